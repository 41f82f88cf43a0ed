//! Nodes that must stop, and say why.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use openraft::storage::{RaftLogStorage, RaftLogStorageExt};
use openraft::{EntryPayload, LogId, Membership};
use raft::node::Error;
use raft::type_config::{Payload, TypeConfig};
use storage::{Options, Storage};

use crate::cluster::{Cluster, Settings};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_of_an_unknown_version_stops_the_node_with_a_clear_line() {
    let mut cluster = Cluster::places(1, Settings::default());
    write_log_of_a_later_version(&cluster).await;

    cluster.start(0).await;
    let failed = cluster.node(0).node.failed();
    let error = tokio::time::timeout(Duration::from_secs(20), failed).await;
    let error = error.unwrap_or_else(|_| panic!("it goes on\n{}", cluster.show()));
    assert!(matches!(error, Error::Consensus(_)), "{error}");
    assert!(error.to_string().contains("format version 99"), "{error}");
    assert_eq!(cluster.node(0).serving(), None);
}

/// As if a later build had led this single node: its membership, then an entry that nobody here
/// knows.
async fn write_log_of_a_later_version(cluster: &Cluster) {
    let place = &cluster.places[0];
    let options = Options {
        segment_bytes: 1 << 20,
        ..Options::default()
    };
    let storage = Storage::open(&place.data, options).unwrap();
    let id = storage.node_id();
    let nodes = BTreeMap::from([(id, place.peer.clone())]);
    let membership = Membership::new(vec![BTreeSet::from([id])], nodes).unwrap();
    let entry = |index, payload| openraft::Entry {
        log_id: LogId::new_term_index(1, index),
        payload,
    };
    let mut log = storage.log_store::<TypeConfig>().unwrap();
    log.save_vote(&openraft::Vote::new(1, id)).await.unwrap();
    let unknown = Payload(Bytes::from_static(&[99, 1, 2, 3]));
    log.blocking_append([
        entry(0, EntryPayload::Membership(membership)),
        entry(1, EntryPayload::Normal(unknown)),
    ])
    .await
    .unwrap();
}
