//! Append streams, votes and snapshots between a hand-made leader and a real follower.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use openraft::RaftNetworkFactory;
use openraft::errors::RPCError;
use openraft::network::{NetSnapshot, NetStreamAppend, NetVote, RPCOption};
use openraft::raft::{AppendEntriesRequest, StreamAppendError, VoteRequest, VoteResponse};
use openraft::type_config::alias::{SnapshotMetaOf, SnapshotOf};
use tokio::net::TcpListener;

use super::support::*;
use crate::transport::connection::Connection;
use crate::transport::wire::{self, AppendRef, Kind};
use crate::transport::{PeerClient, PeerNetwork, StreamEnded, Vote, auth::Lane, handshake};
use crate::type_config::{Peer, TypeConfig};

const LEADER: u64 = 1;
const FOLLOWER: u64 = 2;

fn option() -> RPCOption {
    RPCOption::new(Duration::from_secs(4))
}

fn peer(address: &str) -> Peer {
    Peer {
        client: String::new(),
        raft: address.to_owned(),
    }
}

async fn client(network: &PeerNetwork, address: &str) -> PeerClient {
    network.clone().new_client(FOLLOWER, &peer(address)).await
}

fn append(index: u64) -> AppendEntriesRequest<TypeConfig> {
    AppendEntriesRequest {
        vote: leader_vote(LEADER),
        prev_log_id: index.checked_sub(1).map(|prev| log_id(LEADER, prev)),
        entries: vec![entry(LEADER, index, index.to_be_bytes().to_vec())],
        leader_commit: index.checked_sub(1).map(|prev| log_id(LEADER, prev)),
    }
}

fn heartbeat() -> impl Stream<Item = AppendEntriesRequest<TypeConfig>> + Send + Unpin + 'static {
    let request = AppendEntriesRequest {
        entries: vec![],
        prev_log_id: None,
        ..append(0)
    };
    Box::pin(stream::once(async { request }))
}

/// One heartbeat the way openraft sends it: the answer, and then the end of the stream.
async fn beat(client: &mut PeerClient, patience: Duration) -> Result<(), RPCError<TypeConfig>> {
    let mut answers = client
        .stream_append(heartbeat(), RPCOption::new(patience))
        .await?;
    let answer = answers.next().await.expect("an answer or an error")?;
    assert_eq!(answer, Ok(None));
    assert!(
        answers.next().await.is_none(),
        "the stream lingers after its last answer"
    );
    Ok(())
}

/// A peer that takes the handshake and then does what the test says.
async fn acceptor() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

async fn accept(listener: &TcpListener) -> Connection {
    let mut connection = Connection::new(listener.accept().await.unwrap().0).unwrap();
    handshake::accept(&mut connection, &identity(FOLLOWER), || true, || Ok(()))
        .await
        .unwrap();
    connection
}

#[tokio::test]
async fn a_pipelined_stream_is_answered_in_order_and_applied_in_order() {
    const REQUESTS: u64 = 2000;
    let follower = node(FOLLOWER, false).await;
    let network = PeerNetwork::new(identity(LEADER));
    let mut client = client(&network, &follower.bare.address).await;

    let input = stream::iter((0..REQUESTS).map(append));
    let answers: Vec<_> = client
        .stream_append(input, option())
        .await
        .unwrap()
        .collect()
        .await;
    let expected: Vec<_> = (0..REQUESTS)
        .map(|index| Ok(Ok(Some(log_id(LEADER, index)))))
        .collect();
    assert_eq!(answers, expected);

    let payloads = || follower.memory.0.lock().unwrap().payloads.clone();
    eventually("applied", || payloads().len() as u64 == REQUESTS - 1).await;
    let expected: Vec<_> = (0..REQUESTS - 1)
        .map(|index| index.to_be_bytes().to_vec())
        .collect();
    assert_eq!(payloads(), expected);
    follower.stop().await;
}

#[tokio::test]
async fn requests_go_out_before_earlier_ones_are_answered() {
    let (listener, address) = acceptor().await;
    let peer = async {
        let mut connection = accept(&listener).await;
        for _ in 0..10 {
            connection.expect().await.unwrap();
        }
        let answer: wire::Answer<_> =
            Ok(openraft::raft::AppendEntriesResponse::<TypeConfig>::Success);
        for _ in 0..10 {
            connection
                .send(|out| wire::encode(Kind::Append, &answer, out))
                .await
                .unwrap();
        }
        connection
    };
    let network = PeerNetwork::new(identity(LEADER));
    let leader = async {
        let mut client = client(&network, &address).await;
        let input = stream::iter((0..10).map(append));
        let answers: Vec<_> = client
            .stream_append(input, option())
            .await
            .unwrap()
            .collect()
            .await;
        assert_eq!(answers.len(), 10);
        assert!(answers.iter().all(|answer| matches!(answer, Ok(Ok(_)))));
    };
    tokio::join!(peer, leader);
}

#[tokio::test]
async fn answers_come_in_the_order_of_their_requests_whatever_is_ready_first() {
    let follower = node(FOLLOWER, false).await;
    let network = PeerNetwork::new(identity(LEADER));
    let dialled = network
        .dialer()
        .dial(&follower.bare.address, Lane::Raft, Some(FOLLOWER))
        .await;
    let mut connection = dialled.unwrap();
    // A pre-vote is answered at once; an append and a vote wait for the log.
    let kinds = [
        Kind::Append,
        Kind::PreVote,
        Kind::Vote,
        Kind::PreVote,
        Kind::Append,
    ]
    .repeat(5);
    for kind in &kinds {
        let vote = leader_vote(LEADER);
        let append = AppendRef {
            vote: &vote,
            prev_log_id: None,
            leader_commit: &None,
            entries: &[],
        };
        let candidacy = VoteRequest::<TypeConfig>::new(Vote::new(9, LEADER), None);
        let queued = connection.queue(|out| match kind {
            Kind::Append => wire::encode(Kind::Append, &append, out),
            kind => wire::encode(*kind, &candidacy, out),
        });
        queued.unwrap();
    }
    connection.send_raw(&[]).await;
    for kind in kinds {
        let frame = connection.expect().await.unwrap();
        assert_eq!(wire::split(&frame).unwrap().0, kind);
    }
    follower.stop().await;
}

#[tokio::test]
async fn a_large_request_is_divided_and_taken_whole() {
    let follower = node(FOLLOWER, false).await;
    let network = PeerNetwork::new(identity(LEADER));
    let mut client = client(&network, &follower.bare.address).await;
    let entries = (0..40)
        .map(|index| entry(LEADER, index, vec![7; 500_000]))
        .collect();
    let request = AppendEntriesRequest {
        entries,
        ..append(0)
    };
    let input = stream::iter([request]);
    let answers: Vec<_> = client
        .stream_append(input, option())
        .await
        .unwrap()
        .collect()
        .await;
    assert!(answers.len() > 1);
    assert!(
        answers.iter().all(|answer| matches!(answer, Ok(Ok(_)))),
        "{answers:?}"
    );
    assert_eq!(answers.last(), Some(&Ok(Ok(Some(log_id(LEADER, 39))))));
    follower.stop().await;
}

#[tokio::test]
async fn a_conflict_and_a_higher_vote_end_the_stream_and_keep_the_connection() {
    let mut follower = node(FOLLOWER, false).await;
    let network = PeerNetwork::new(identity(LEADER));
    let mut client = client(&network, &follower.bare.address).await;

    let input = stream::iter([append(5), append(6)]);
    let answers: Vec<_> = client
        .stream_append(input, option())
        .await
        .unwrap()
        .collect()
        .await;
    assert_eq!(
        answers,
        [Ok(Err(StreamAppendError::Conflict(log_id(LEADER, 4))))]
    );

    beat(&mut client, option().hard_ttl()).await.unwrap();
    let older = AppendEntriesRequest {
        vote: Vote::new_committed(2, LEADER),
        ..append(0)
    };
    let input = stream::iter([older]);
    let answers: Vec<_> = client
        .stream_append(input, option())
        .await
        .unwrap()
        .collect()
        .await;
    assert_eq!(
        answers,
        [Ok(Err(StreamAppendError::HigherVote(leader_vote(LEADER))))]
    );

    // Streams of both votes went over one connection, and it is open still.
    let vote = Vote::new_committed(2, LEADER);
    assert!(follower.bare.server.has_live_stream(&vote));
    let ended = follower.bare.ended.try_recv();
    assert_eq!(
        ended,
        Ok(StreamEnded {
            vote: leader_vote(LEADER)
        })
    );
    follower.stop().await;
}

#[tokio::test]
async fn streams_and_elections_reuse_one_connection() {
    let (listener, address) = acceptor().await;
    let network = PeerNetwork::new(identity(LEADER));
    let peer = async {
        let mut connection = accept(&listener).await;
        let answer: wire::Answer<_> =
            Ok(openraft::raft::AppendEntriesResponse::<TypeConfig>::Success);
        while let Some(frame) = connection.next().await.unwrap() {
            assert_eq!(wire::split(&frame).unwrap().0, Kind::Append);
            connection
                .send(|out| wire::encode(Kind::Append, &answer, out))
                .await
                .unwrap();
        }
    };
    let leader = async {
        for _ in 0..3 {
            let mut client = client(&network, &address).await;
            for _ in 0..3 {
                beat(&mut client, option().hard_ttl()).await.unwrap();
            }
        }
        network.close();
    };
    // A second dial would wait for an accept that never comes.
    tokio::time::timeout(SOON, async { tokio::join!(peer, leader) })
        .await
        .unwrap();
}

#[tokio::test]
async fn a_connection_that_the_peer_closed_meanwhile_is_replaced() {
    let network = PeerNetwork::new(identity(LEADER));
    let follower = node(FOLLOWER, false).await;
    let mut client = client(&network, &follower.bare.address).await;
    beat(&mut client, option().hard_ttl()).await.unwrap();
    let address = follower.bare.address.clone();
    follower.stop().await;
    // The same peer is back at the same address.
    let listener = TcpListener::bind(&address).await.unwrap();
    let peer = async {
        let mut connection = accept(&listener).await;
        connection.expect().await.unwrap();
        let answer: wire::Answer<_> =
            Ok(openraft::raft::AppendEntriesResponse::<TypeConfig>::Success);
        connection
            .send(|out| wire::encode(Kind::Append, &answer, out))
            .await
            .unwrap();
        connection
    };
    let (_, beaten) = tokio::join!(peer, beat(&mut client, option().hard_ttl()));
    beaten.unwrap();
}

#[tokio::test]
async fn an_answer_cut_in_the_middle_is_an_error() {
    let (listener, address) = acceptor().await;
    let peer = async {
        let mut connection = accept(&listener).await;
        connection.expect().await.unwrap();
        // Half an answer: the length of a frame and one byte of it.
        connection.send_raw(&[0, 0, 0, 9, Kind::Append as u8]).await;
    };
    let network = PeerNetwork::new(identity(LEADER));
    let leader = async {
        let mut client = client(&network, &address).await;
        let beaten = beat(&mut client, option().hard_ttl()).await;
        assert!(matches!(beaten, Err(RPCError::Network(_))), "{beaten:?}");
    };
    tokio::join!(peer, leader);
}

#[tokio::test]
async fn a_peer_that_ends_the_connection_is_an_error_even_between_answers() {
    let (listener, address) = acceptor().await;
    let peer = async {
        accept(&listener).await.expect().await.unwrap();
    };
    let network = PeerNetwork::new(identity(LEADER));
    let leader = async {
        let mut client = client(&network, &address).await;
        let beaten = beat(&mut client, option().hard_ttl()).await;
        assert!(matches!(beaten, Err(RPCError::Network(_))), "{beaten:?}");
    };
    tokio::join!(peer, leader);
}

#[tokio::test]
async fn a_request_cut_in_the_middle_ends_the_stream_at_the_follower() {
    let mut follower = node(FOLLOWER, false).await;
    let network = PeerNetwork::new(identity(LEADER));
    let dialled = network
        .dialer()
        .dial(&follower.bare.address, Lane::Raft, Some(FOLLOWER))
        .await;
    let mut connection = dialled.unwrap();
    let vote = leader_vote(LEADER);
    let request = AppendRef {
        vote: &vote,
        prev_log_id: None,
        leader_commit: &None,
        entries: &[],
    };
    connection
        .send(|out| wire::encode(Kind::Append, &request, out))
        .await
        .unwrap();
    connection.expect().await.unwrap();
    assert!(follower.bare.server.has_live_stream(&vote));

    connection
        .send_raw(&[0, 0, 1, 0, Kind::Append as u8, 1, 2, 3])
        .await;
    drop(connection);
    assert_eq!(follower.bare.ended.recv().await, Some(StreamEnded { vote }));
    assert!(!follower.bare.server.has_live_stream(&vote));
    follower.stop().await;
}

#[tokio::test]
async fn a_forged_leader_is_cut_off() {
    let follower = node(FOLLOWER, false).await;
    let network = PeerNetwork::new(identity(9));
    let mut client = client(&network, &follower.bare.address).await;
    let beaten = beat(&mut client, option().hard_ttl()).await;
    assert!(matches!(beaten, Err(RPCError::Network(_))), "{beaten:?}");
    assert!(!follower.bare.server.has_live_stream(&leader_vote(LEADER)));
    follower.stop().await;
}

#[tokio::test]
async fn a_silent_peer_is_given_up_in_time_and_its_connection_after_a_few_heartbeats() {
    let (listener, address) = acceptor().await;
    let network = PeerNetwork::new(identity(LEADER));
    let silent = async {
        let _first = accept(&listener).await;
        // Nothing is read or answered; the dial after some heartbeats is the proof of the drop.
        let _second = accept(&listener).await;
    };
    let leader = async {
        let mut client = network
            .clone()
            .new_heartbeat_client(FOLLOWER, &peer(&address))
            .await;
        loop {
            let began = Instant::now();
            let beaten = beat(&mut client, Duration::from_millis(100)).await;
            assert!(
                matches!(beaten, Err(RPCError::Unreachable(_))),
                "{beaten:?}"
            );
            assert!(
                began.elapsed() < Duration::from_millis(1000),
                "{:?}",
                began.elapsed()
            );
        }
    };
    let given_up = tokio::time::timeout(SOON, async {
        tokio::select! {
            () = silent => {}
            () = leader => {}
        }
    });
    given_up.await.unwrap();
}

#[tokio::test]
async fn a_late_answer_is_not_taken_for_the_next_one() {
    use openraft::raft::AppendEntriesResponse::{HigherVote, Success};
    let (listener, address) = acceptor().await;
    let network = PeerNetwork::new(identity(LEADER));
    let (late, wait) = tokio::sync::oneshot::channel::<()>();
    let peer_side = async {
        let mut connection = accept(&listener).await;
        let fresh: wire::Answer<_> = Ok(Success::<TypeConfig>);
        let stale: wire::Answer<_> = Ok(HigherVote::<TypeConfig>(Vote::new(99, 9)));
        connection.expect().await.unwrap();
        connection
            .send(|out| wire::encode(Kind::Append, &fresh, out))
            .await
            .unwrap();
        connection.expect().await.unwrap();
        wait.await.unwrap();
        connection
            .send(|out| wire::encode(Kind::Append, &stale, out))
            .await
            .unwrap();
        connection.expect().await.unwrap();
        connection
            .send(|out| wire::encode(Kind::Append, &fresh, out))
            .await
            .unwrap();
        connection
    };
    let leader = async {
        let mut client = network
            .clone()
            .new_heartbeat_client(FOLLOWER, &peer(&address))
            .await;
        beat(&mut client, option().hard_ttl()).await.unwrap();
        let unanswered = beat(&mut client, Duration::from_millis(100)).await;
        assert!(
            matches!(unanswered, Err(RPCError::Unreachable(_))),
            "{unanswered:?}"
        );
        late.send(()).unwrap();
        beat(&mut client, option().hard_ttl()).await.unwrap();
    };
    tokio::join!(peer_side, leader);
}

#[tokio::test]
async fn a_dial_longer_than_a_heartbeat_is_finished_for_a_later_one() {
    let (listener, address) = acceptor().await;
    let network = PeerNetwork::new(identity(LEADER));
    let (given_up, wait) = tokio::sync::oneshot::channel::<()>();
    let peer_side = async {
        let stream = listener.accept().await.unwrap().0;
        wait.await.unwrap();
        let mut connection = Connection::new(stream).unwrap();
        handshake::accept(&mut connection, &identity(FOLLOWER), || true, || Ok(()))
            .await
            .unwrap();
        let answer: wire::Answer<_> =
            Ok(openraft::raft::AppendEntriesResponse::<TypeConfig>::Success);
        connection.expect().await.unwrap();
        connection
            .send(|out| wire::encode(Kind::Append, &answer, out))
            .await
            .unwrap();
        connection
    };
    let leader = async {
        let mut client = network
            .clone()
            .new_heartbeat_client(FOLLOWER, &peer(&address))
            .await;
        let early = beat(&mut client, Duration::from_millis(50)).await;
        assert!(matches!(early, Err(RPCError::Unreachable(_))), "{early:?}");
        given_up.send(()).unwrap();
        beat(&mut client, option().hard_ttl()).await.unwrap();
    };
    tokio::join!(peer_side, leader);
}

#[tokio::test]
async fn a_dial_longer_than_an_election_is_finished_for_a_later_one() {
    let (listener, address) = acceptor().await;
    let network = PeerNetwork::new(identity(LEADER));
    let (given_up, wait) = tokio::sync::oneshot::channel::<()>();
    let request = VoteRequest::new(Vote::new(4, LEADER), None);
    let peer_side = async {
        let stream = listener.accept().await.unwrap().0;
        wait.await.unwrap();
        let mut connection = Connection::new(stream).unwrap();
        handshake::accept(&mut connection, &identity(FOLLOWER), || true, || Ok(()))
            .await
            .unwrap();
        let answer: wire::Answer<_> = Ok(VoteResponse::<TypeConfig>::new(request.vote, None, true));
        connection.expect().await.unwrap();
        connection
            .send(|out| wire::encode(Kind::PreVote, &answer, out))
            .await
            .unwrap();
        connection
    };
    let elections = async {
        let brief = RPCOption::new(Duration::from_millis(50));
        for _ in 0..2 {
            let mut election = client(&network, &address).await;
            let early = election.pre_vote(request.clone(), brief.clone()).await;
            assert!(matches!(early, Err(RPCError::Unreachable(_))), "{early:?}");
        }
        given_up.send(()).unwrap();
        // Only the first of the dials is ever taken.
        let granted = async {
            loop {
                let mut election = client(&network, &address).await;
                if let Ok(answer) = election.pre_vote(request.clone(), option()).await {
                    return answer.vote_granted;
                }
            }
        };
        assert!(tokio::time::timeout(SOON, granted).await.unwrap());
    };
    tokio::join!(peer_side, elections);
}

#[tokio::test]
async fn an_answer_too_late_after_a_dial_does_not_cost_the_connection() {
    let (listener, address) = acceptor().await;
    let network = PeerNetwork::new(identity(LEADER));
    let (given_up, wait) = tokio::sync::oneshot::channel::<()>();
    let request = |term| VoteRequest::new(Vote::new(term, LEADER), None);
    let peer_side = async {
        let mut connection = accept(&listener).await;
        connection.expect().await.unwrap();
        wait.await.unwrap();
        for (term, granted) in [(4, false), (5, true)] {
            let vote = Vote::new(term, LEADER);
            let answer: wire::Answer<_> = Ok(VoteResponse::<TypeConfig>::new(vote, None, granted));
            connection
                .send(|out| wire::encode(Kind::PreVote, &answer, out))
                .await
                .unwrap();
        }
        connection.expect().await.unwrap();
        // On the same connection again, and this time nothing is answered.
        connection.expect().await.unwrap();
        assert!(connection.next().await.unwrap().is_none(), "it stays open");
    };
    let elections = async {
        let brief = || RPCOption::new(Duration::from_secs(1));
        let mut election = client(&network, &address).await;
        let early = election.pre_vote(request(4), brief()).await;
        assert!(matches!(early, Err(RPCError::Unreachable(_))), "{early:?}");
        drop(election);
        given_up.send(()).unwrap();
        let mut election = client(&network, &address).await;
        let granted = election.pre_vote(request(5), option()).await.unwrap();
        assert!(granted.vote_granted, "the answer to the call before");
        let silent = election.pre_vote(request(6), brief()).await;
        assert!(silent.is_err(), "{silent:?}");
    };
    tokio::time::timeout(SOON, async { tokio::join!(peer_side, elections) })
        .await
        .unwrap();
}

#[tokio::test]
async fn a_peer_that_turns_away_is_dialled_with_growing_pauses() {
    let (listener, address) = acceptor().await;
    let network = PeerNetwork::new(identity(LEADER));
    let mut client = client(&network, &address).await;
    let began = tokio::time::Instant::now();
    let mut dials = 0;
    while dials < 6 {
        tokio::select! {
            // Taken and closed at once, before any handshake.
            accepted = listener.accept() => {
                drop(accepted.unwrap());
                dials += 1;
            }
            beaten = beat(&mut client, Duration::from_millis(50)) => {
                assert!(beaten.is_err(), "nobody answers there");
            }
        }
    }
    // The sixth dial comes after pauses of 20, 40, 80, 100 and 100 ms.
    assert!(began.elapsed() >= Duration::from_millis(340));
}

#[tokio::test]
async fn a_pre_vote_that_reaches_nobody_is_an_error() {
    let (listener, address) = acceptor().await;
    drop(listener);
    let network = PeerNetwork::new(identity(LEADER));
    let mut client = client(&network, &address).await;
    let request = VoteRequest::new(Vote::new(4, LEADER), None);
    let asked = client.pre_vote(request, option()).await;
    assert!(matches!(asked, Err(RPCError::Unreachable(_))), "{asked:?}");
}

#[tokio::test]
async fn votes_of_a_removed_node_do_not_reach_raft() {
    let follower = node(FOLLOWER, false).await;
    let network = PeerNetwork::new(identity(LEADER));
    let mut client = client(&network, &follower.bare.address).await;
    let request = |term| VoteRequest::new(Vote::new(term, LEADER), None);

    follower.bare.service.admits.store(false, Ordering::SeqCst);
    assert!(client.vote(request(50), option()).await.is_err());
    assert!(client.pre_vote(request(51), option()).await.is_err());
    let vote = follower
        .raft
        .with_raft_state(|state| *state.vote_ref())
        .await
        .unwrap();
    assert!(vote.leader_id.term < 50, "the term was raised to {vote}");

    follower.bare.service.admits.store(true, Ordering::SeqCst);
    assert!(
        client
            .vote(request(52), option())
            .await
            .unwrap()
            .vote_granted
    );
    follower.stop().await;
}

fn snapshot(bytes: Bytes) -> SnapshotOf<TypeConfig, Bytes> {
    SnapshotOf::<TypeConfig, Bytes> {
        meta: SnapshotMetaOf::<TypeConfig> {
            last_log_id: Some(log_id(LEADER, 1000)),
            ..SnapshotMetaOf::<TypeConfig>::default()
        },
        snapshot: bytes,
    }
}

#[tokio::test]
async fn heartbeats_go_on_while_a_snapshot_is_sent() {
    let follower = node(FOLLOWER, false).await;
    let network = PeerNetwork::new(identity(LEADER));
    let target = peer(&follower.bare.address);
    let mut sender = network.clone().new_snapshot_client(FOLLOWER, &target).await;
    let mut heart = network
        .clone()
        .new_heartbeat_client(FOLLOWER, &target)
        .await;
    let data: Vec<u8> = (0..20_000_000_u32).map(|at| (at % 251) as u8).collect();
    let data = Bytes::from(data);

    let sending = tokio::spawn({
        let snapshot = snapshot(data.clone());
        let never = std::future::pending();
        async move {
            sender
                .full_snapshot(leader_vote(LEADER), snapshot, never, option())
                .await
        }
    });
    let mut beats = 0;
    let mut slowest = Duration::ZERO;
    while !sending.is_finished() {
        let began = Instant::now();
        beat(&mut heart, Duration::from_millis(1000)).await.unwrap();
        slowest = slowest.max(began.elapsed());
        beats += 1;
    }
    let response = sending.await.unwrap().unwrap();
    assert_eq!(response.vote, leader_vote(LEADER));
    assert!(beats > 10, "only {beats} heartbeats");
    assert!(
        slowest < Duration::from_millis(500),
        "a heartbeat took {slowest:?}"
    );
    assert_eq!(follower.memory.0.lock().unwrap().snapshot, data);
    follower.stop().await;
}

#[tokio::test]
async fn an_empty_snapshot_and_a_second_one_on_the_same_connection_arrive() {
    let follower = node(FOLLOWER, false).await;
    let network = PeerNetwork::new(identity(LEADER));
    let target = peer(&follower.bare.address);
    let mut sender = network.clone().new_snapshot_client(FOLLOWER, &target).await;
    for data in [Bytes::new(), Bytes::from_static(b"second")] {
        let mut snapshot = snapshot(data.clone());
        snapshot.meta.last_log_id = Some(log_id(LEADER, 1000 + data.len() as u64));
        let never = std::future::pending();
        sender
            .full_snapshot(leader_vote(LEADER), snapshot, never, option())
            .await
            .unwrap();
        assert_eq!(follower.memory.0.lock().unwrap().snapshot, data);
    }
    follower.stop().await;
}

#[tokio::test]
async fn a_snapshot_that_was_changed_on_the_way_is_not_installed() {
    let follower = node(FOLLOWER, false).await;
    let network = PeerNetwork::new(identity(LEADER));
    let dialled = network
        .dialer()
        .dial(&follower.bare.address, Lane::Snapshot, Some(FOLLOWER))
        .await;
    let mut connection = dialled.unwrap();
    let begin = wire::SnapshotBegin {
        vote: leader_vote(LEADER),
        meta: snapshot(Bytes::new()).meta,
        bytes: 6,
    };
    connection
        .send(|out| wire::encode(Kind::SnapshotBegin, &begin, out))
        .await
        .unwrap();
    connection.expect().await.unwrap();
    let chunk = wire::SnapshotChunk {
        crc: crc32fast::hash(b"intact"),
        data: Bytes::from_static(b"broken"),
    };
    connection
        .send(|out| wire::encode(Kind::SnapshotChunk, &chunk, out))
        .await
        .unwrap();
    assert!(connection.expect().await.is_err());
    assert_eq!(follower.memory.0.lock().unwrap().last_applied, None);
    follower.stop().await;
}

#[tokio::test]
async fn a_cancelled_snapshot_stops() {
    let (listener, address) = acceptor().await;
    let network = PeerNetwork::new(identity(LEADER));
    let mut sender = network
        .clone()
        .new_snapshot_client(FOLLOWER, &peer(&address))
        .await;
    let (cancel, cancelled) = tokio::sync::oneshot::channel::<()>();
    let silent = async {
        let mut connection = accept(&listener).await;
        connection.expect().await.unwrap();
        cancel.send(()).unwrap();
        assert!(
            connection.next().await.unwrap().is_none(),
            "the connection stays open"
        );
    };
    let leader = async {
        let cancelled = async {
            cancelled.await.unwrap();
            openraft::errors::ReplicationClosed::new("cancelled by the test")
        };
        let snapshot = snapshot(Bytes::from_static(b"never sent"));
        let sent = sender
            .full_snapshot(leader_vote(LEADER), snapshot, cancelled, option())
            .await;
        assert!(
            matches!(sent, Err(openraft::errors::StreamingError::Closed(_))),
            "{sent:?}"
        );
    };
    tokio::join!(silent, leader);
}
