//! What a node measures, gathered from its parts.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use storage::measure::Histogram;

use super::proposals::ProposalCounts;
use crate::state_machine::SnapshotMeasures;
use crate::transport::PeerMeasures;

/// The instruments of a node's parts. Holding them keeps nothing open.
#[derive(Clone)]
pub(super) struct Instruments {
    pub(super) proposals: Arc<ProposalCounts>,
    pub(super) log: Arc<storage::Measures>,
    pub(super) peers: Arc<PeerMeasures>,
    pub(super) snapshots: Arc<SnapshotMeasures>,
}

/// What has been measured since the process started. Durations are in nanoseconds.
#[derive(Clone, Debug)]
pub struct Measures {
    /// Entries of this process that were handed to Raft and are neither applied nor lost.
    pub proposals_pending: u64,
    /// Entries of this process that were applied.
    pub proposals_applied: u64,
    /// Entries of this process that were refused or lost, or not proposed because it had ceased to
    /// serve.
    pub proposals_failed: u64,
    /// Making what was queued for the log durable.
    pub log_appends: Histogram,
    /// The sync alone.
    pub log_syncs: Histogram,
    /// Bytes written to the log.
    pub log_bytes: u64,
    /// From an append request to its answer.
    pub peer_round_trips: Histogram,
    /// Dials that came to nothing.
    pub peer_dials_failed: u64,
    /// Requests to peers that ended with an error.
    pub peer_calls_failed: u64,
    /// Encoding and writing a snapshot of this node's own.
    pub snapshot_builds: Histogram,
    /// Snapshots that came from a leader.
    pub snapshots_received: u64,
    /// Size of the newest snapshot that this process wrote, in bytes; 0 before the first.
    pub snapshot_bytes: u64,
}

impl Instruments {
    /// What they show now.
    pub(super) fn read(&self) -> Measures {
        let Self {
            proposals,
            log,
            peers,
            snapshots,
        } = self;
        // Ends are read before beginnings, so that there are never more of them.
        let (applied, lost) = (proposals.applied.get(), proposals.lost.get());
        Measures {
            proposals_pending: proposals.proposed.get().saturating_sub(applied + lost),
            proposals_applied: applied,
            proposals_failed: lost + proposals.refused.get(),
            log_appends: log.appends.read(),
            log_syncs: log.syncs.read(),
            log_bytes: log.bytes.get(),
            peer_round_trips: peers.round_trips.read(),
            peer_dials_failed: peers.dials_failed.get(),
            peer_calls_failed: peers.calls_failed.get(),
            snapshot_builds: snapshots.builds.read(),
            snapshots_received: snapshots.received.get(),
            snapshot_bytes: snapshots.newest_bytes.load(Ordering::Relaxed),
        }
    }
}
