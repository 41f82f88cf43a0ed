//! Which node is asked, when it is dialled, and what a handshake that fails means.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use wire::Nonce;

use super::network::broker as brokers;
use super::*;

#[tokio::test(start_paused = true)]
async fn requests_go_to_the_node_that_the_newest_word_names() {
    let (mut servers, broker) = brokers::<3>();
    let mut peers = Vec::new();
    for server in &mut servers {
        peers.push(server.accept().await);
    }
    peers[0]
        .say(Reply::Leader(servers[1].address.clone()))
        .await;
    assert_serves(&broker, &mut peers[1], 1).await;
    // The leader dies; a follower knows the next one, and the open connection is used at once.
    drop(peers.remove(1));
    let _noticed = servers[1].connection().await;
    let started = Instant::now();
    peers[0]
        .say(Reply::Leader(servers[2].address.clone()))
        .await;
    assert_serves(&broker, &mut peers[1], 2).await;
    assert_eq!(started.elapsed(), ms(0));
}

#[tokio::test(start_paused = true)]
async fn a_moved_call_goes_on_at_the_leader_with_the_same_owner() {
    let ([mut follower, mut leader], broker) = brokers();
    let mut peer = follower.accept().await;
    let challenged_late = leader.connection().await;
    let call = ask(&broker, "k", 5000);
    let refused = peer.acquire().await;
    peer.say(Reply::Moved(leader.address.clone())).await;
    peer.closed().await;
    let mut peer = Peer::handshake(challenged_late).await;
    let acquire = peer.acquire().await;
    assert_eq!(acquire.owner, refused.owner);
    peer.grant(3, &acquire).await;
    assert_eq!(outcome(call).await.unwrap().token(), Token(3));
}

#[tokio::test(start_paused = true)]
async fn an_address_that_is_not_configured_is_not_dialled() {
    let network = Network::default();
    let (mut known, mut other) = (network.server("known:1"), network.server("other:1"));
    let broker = known.broker();
    let mut peer = known.accept().await;
    peer.say(Reply::Leader(other.address.clone())).await;
    let call = ask(&broker, "k", 5000);
    peer.acquire().await;
    peer.say(Reply::Moved(other.address.clone())).await;
    peer.closed().await;
    let mut peer = known.accept().await;
    let acquire = peer.acquire().await;
    peer.grant(1, &acquire).await;
    assert_eq!(outcome(call).await.unwrap().token(), Token(1));
    tokio::time::sleep(ms(10_000)).await;
    assert!(!other.is_dialled());
}

#[tokio::test(start_paused = true)]
async fn a_refused_auth_token_ends_calls_at_once() {
    let mut server = Server::alone();
    let broker = server.broker();
    let call = ask(&broker, "k", 5000);
    let started = Instant::now();
    let mut stream = server.connection().await;
    stream
        .write_all(&Nonce::from_random([0; 6]).challenge())
        .await
        .unwrap();
    stream.read_exact(&mut [0; 44]).await.unwrap();
    stream.write_all(b"Eauth_failed\n").await.unwrap();
    assert_error!(failure(call).await, Error::Auth);
    let ready = broker.wait_ready(ms(5000)).await;
    assert_error!(ready.unwrap_err(), Error::Auth);
    assert_eq!(started.elapsed(), ms(0));
}

#[tokio::test(start_paused = true)]
async fn something_else_than_a_server_is_found_out_at_once() {
    for greeting in [
        "SSH-2.0-OpenSSH\n",
        "SHA-256 AAAAAAAA\nLtoo:1\n",
        &"x".repeat(300),
    ] {
        let mut server = Server::alone();
        let broker = server.broker();
        let call = ask(&broker, "k", 5000);
        let started = Instant::now();
        let mut stream = server.connection().await;
        stream.write_all(greeting.as_bytes()).await.unwrap();
        assert_error!(failure(call).await, Error::Protocol, greeting);
        assert_eq!(started.elapsed(), ms(0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_broker_is_ready_when_a_request_could_be_sent() {
    let (mut servers, broker) = brokers::<2>();
    let ready = broker.wait_ready(ms(1000)).await;
    assert_error!(ready.unwrap_err(), Error::NotConnected);
    let mut peer = servers[0].accept().await;
    peer.say(Reply::Leader(servers[1].address.clone())).await;
    let ready = broker.wait_ready(ms(1000)).await;
    assert_error!(ready.unwrap_err(), Error::NotConnected, "to the leader");
    let waiting = tokio::spawn({
        let broker = broker.clone();
        async move { broker.wait_ready(Duration::MAX).await }
    });
    let _leader = servers[1].accept().await;
    assert!(soon("the connection", waiting).await.unwrap().is_ok());
    assert!(broker.is_connected());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_gone_is_dialled_with_growing_pauses() {
    let network = Network::default();
    let mut server = network.server("a:1");
    let _broker = server.broker();
    let mut last = Instant::now();
    let mut pauses = Vec::new();
    for _ in 0..9 {
        drop(server.connection().await);
        pauses.push(last.elapsed().as_millis());
        last = Instant::now();
    }
    // With the longest random part.
    assert_eq!(pauses, [0, 100, 100, 200, 400, 800, 1600, 3200, 3200]);
}

#[tokio::test(start_paused = true)]
async fn word_that_a_node_leads_ends_its_pause() {
    let (mut servers, broker) = brokers::<2>();
    let mut peer = servers[0].accept().await;
    for _ in 0..6 {
        drop(servers[1].connection().await);
    }
    let started = Instant::now();
    peer.say(Reply::Leader(servers[1].address.clone())).await;
    let mut leader = servers[1].accept().await;
    assert_eq!(started.elapsed(), ms(0));
    assert_serves(&broker, &mut leader, 1).await;
}

#[tokio::test(start_paused = true)]
async fn addresses_are_checked() {
    let many: Vec<_> = (1..=17).map(|port| format!("h:{port}")).collect();
    let many = many.iter().map(String::as_str).collect();
    for addresses in [
        vec![],
        vec!["host"],
        vec![":1:"],
        vec!["h:0"],
        vec!["h:65536"],
        many,
    ] {
        let built = Broker::builder().addresses(addresses.clone()).build();
        assert_error!(built.unwrap_err(), Error::InvalidInput(_), addresses);
    }
}
