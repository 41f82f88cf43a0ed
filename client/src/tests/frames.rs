//! Connections that are cut inside a frame, replies in pieces, and what must not be said.

use tokio::io::AsyncReadExt as _;
use wire::{NONCE_BYTES, Nonce};

use super::network::broker as brokers;
use super::*;

/// The bytes of the frame that asks for `k`.
const FRAME_BYTES: usize = 1 + 10 + 1 + 1;

/// The calls ends when the server cuts the connection after it has taken `taken` bytes of the frame.
async fn cut_after(taken: usize) -> (Result<Ticket, Error>, Server) {
    let network = Network::default();
    // Room for the digest, and from then on for exactly what is taken.
    let mut server = network.narrow_server("a:1", taken.max(1));
    let broker = server.broker();
    let mut connection = server.connection().await;
    let peer = async {
        let nonce = Nonce::from_random([0; 6]);
        assert_eq!(nonce.challenge().len(), 8 + NONCE_BYTES + 1);
        tokio::io::AsyncWriteExt::write_all(&mut connection, &nonce.challenge())
            .await
            .unwrap();
        connection.read_exact(&mut [0; 44]).await.unwrap();
    };
    soon("the handshake", peer).await;
    if taken == 0 {
        drop(connection);
        // The session ends before the call is made, or with it on its way.
        return (outcome(ask(&broker, "k", 2000)).await, server);
    }
    let call = ask(&broker, "k", 2000);
    // All that fits is written; nothing of it is read.
    tokio::time::sleep(ms(1)).await;
    drop(connection);
    (outcome(call).await, server)
}

#[tokio::test(start_paused = true)]
async fn a_frame_of_which_a_byte_was_taken_leaves_the_outcome_open() {
    for taken in 1..=FRAME_BYTES {
        let (result, _server) = cut_after(taken).await;
        assert_error!(result.unwrap_err(), Error::Indeterminate, taken);
    }
}

#[tokio::test(start_paused = true)]
async fn a_frame_of_which_no_byte_was_taken_goes_to_the_next_connection() {
    let network = Network::default();
    let mut server = network.narrow_server("a:1", FRAME_BYTES);
    let broker = server.broker();
    let mut peer = server.accept().await;
    // The first fills the connection; both are in the client's buffer.
    let (first, second) = (ask(&broker, "k", 5000), ask(&broker, "k", 5000));
    tokio::time::sleep(ms(1)).await;
    let taken = peer.acquire().await;
    drop(peer);
    assert_error!(failure(first).await, Error::Indeterminate);
    let mut peer = server.accept().await;
    let acquire = peer.acquire().await;
    assert_eq!(acquire.owner.0, taken.owner.0 + 1);
    peer.grant(1, &acquire).await;
    assert_eq!(outcome(second).await.unwrap().token(), Token(1));
}

#[tokio::test(start_paused = true)]
async fn a_call_without_a_byte_sent_survives_the_cut() {
    let (result, _server) = cut_after(0).await;
    assert_error!(
        result.unwrap_err(),
        Error::Timeout,
        "nothing was sent, and nobody answers any more"
    );
}

#[tokio::test(start_paused = true)]
async fn replies_may_come_in_any_pieces() {
    let mut server = Server::alone();
    let broker = server.broker();
    let mut peer = server.accept().await;
    let length = 1 + 16 + 1 + 1;
    for at in 1..length {
        let token = 10 + at as u64;
        let call = ask(&broker, "k", 5000);
        let acquire = peer.acquire().await;
        let bytes = bytes_of(&granted(token, &acquire));
        assert_eq!(bytes.len(), length);
        peer.raw(&bytes[..at]).await;
        tokio::time::sleep(ms(10)).await;
        assert!(!call.is_finished(), "split at {at}");
        peer.raw(&bytes[at..]).await;
        let ticket = outcome(call).await.unwrap();
        assert_eq!(ticket.token(), Token(token));
        let (released, ()) = tokio::join!(ticket.release(), peer.expect_release(token));
        assert_eq!(released.unwrap(), crate::ReleaseOutcome::Released);
    }
}

#[tokio::test(start_paused = true)]
async fn many_replies_may_come_at_once_with_keep_alives_between_them() {
    let mut server = Server::alone();
    let broker = server.broker();
    let mut peer = server.accept().await;
    let calls: Vec<_> = (0..100).map(|_| ask(&broker, "k", 5000)).collect();
    let mut bytes = Vec::new();
    for token in 1..=100 {
        bytes.extend(bytes_of(&granted(token, &peer.acquire().await)));
        bytes.push(b'\n');
    }
    peer.raw(&bytes).await;
    for call in calls {
        assert!(outcome(call).await.is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_server_must_not_say_ends_the_session_and_leaves_the_outcome_open() {
    let oversized = [b"L", &[b'x'; 200] as &[u8]].concat();
    for bytes in [
        b"Ebad_key\n" as &[u8],
        b"Ebad_op\n",
        b"Ebad_lease\n",
        b"Ebad_request\n",
        b"Eline_too_long\n",
        b"Ewhat\n",
        b"X",
        b"\r\n",
        b"T\0\0\0\0\0\0\0\x63nobody\n",
        b"B\0\0\0\0\0\0\0\x63nobody\n",
        b"R\0\0\0\0\0\0\0\x63nobody\n",
        b"N\0\0\0\0\0\0\0\0probe\n",
        b"A\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01no key\n",
        &oversized,
    ] {
        let mut server = Server::alone();
        let broker = server.broker();
        let mut peer = server.accept().await;
        let call = ask(&broker, "k", 5000);
        peer.acquire().await;
        peer.raw(bytes).await;
        peer.closed().await;
        assert_error!(failure(call).await, Error::Indeterminate, bytes);
        assert_serves(&broker, &mut server.accept().await, 1).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_to_a_request_that_was_not_sent_yet_is_a_breach() {
    // Owners are counted from 1, so this one is the call's.
    let ([mut silent, mut other], broker) = brokers::<2>();
    let mut peer = silent.accept().await;
    let mut second = other.accept().await;
    peer.raw(b"T\0\0\0\0\0\0\0\x01k\n").await;
    peer.closed().await;
    second.say(Reply::Leader(other.address.clone())).await;
    assert_serves(&broker, &mut second, 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_grant_for_a_request_that_was_not_sent_yet_is_given_back_and_the_request_goes_on() {
    let network = Network::default();
    // Less than a frame at a time.
    let mut server = network.narrow_server("a:1", 4);
    let broker = server.broker();
    let mut peer = server.accept().await;
    let first = ask(&broker, "k", 5000);
    tokio::time::sleep(ms(1)).await;
    let second = ask(&broker, "q", 5000);
    tokio::time::sleep(ms(1)).await;
    // The first one's frame is still being taken. Owners are counted from 1.
    peer.raw(b"A\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0\x02q\n").await;
    let acquire = peer.acquire().await;
    peer.grant(10, &acquire).await;
    assert_eq!(outcome(first).await.unwrap().detach(), Token(10));
    let acquire = peer.acquire().await;
    peer.expect_release(9).await;
    peer.grant(11, &acquire).await;
    assert_eq!(outcome(second).await.unwrap().detach(), Token(11));
}

#[tokio::test(start_paused = true)]
async fn a_read_that_ends_inside_a_reply_leaves_the_outcome_open() {
    let mut server = Server::alone();
    let broker = server.broker();
    let mut peer = server.accept().await;
    let call = ask(&broker, "k", 5000);
    let acquire = peer.acquire().await;
    let bytes = bytes_of(&granted(1, &acquire));
    peer.raw(&bytes[..bytes.len() - 1]).await;
    drop(peer);
    assert_error!(failure(call).await, Error::Indeterminate);
    let mut peer = server.accept().await;
    let owed = tokio::time::timeout(ms(100), peer.next()).await;
    assert!(owed.is_err(), "nothing is owed: {owed:?}");
}
