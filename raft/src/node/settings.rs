//! The numbers that openraft runs with, and why.
//!
//! Entries are whole batches, so every threshold of openraft that counts entries counts batches
//! here: at full load there are some 4,000 a second of about 2 KB each.

use openraft::{Config as RaftConfig, SnapshotPolicy};

use super::Error;

/// Default of [`Config::heartbeat_ms`](super::Config::heartbeat_ms).
pub const HEARTBEAT_MS: u64 = 100;

/// Default of [`Config::election_timeout_ms`](super::Config::election_timeout_ms). Syncs of 100 ms
/// happen on busy disks, and a needless election costs more than patience; a dead *process* is
/// replaced within milliseconds anyway, without waiting for this.
pub const ELECTION_TIMEOUT_MS: u64 = 1000;

/// Default of [`Config::snapshot_entries`](super::Config::snapshot_entries): about 32 MB of log,
/// one segment, and about four seconds at full load. More would lengthen a restart (it replays
/// what the snapshot does not hold); less would write more snapshot than log.
pub const SNAPSHOT_ENTRIES: u64 = 16_384;

/// Of the entries between two snapshots, the part that is kept behind the newest snapshot: a peer
/// that was away for a moment is then served from the log, not with a whole snapshot.
const KEPT_DIVISOR: u64 = 4;

/// Of the kept entries, the part that is purged at once. Purging one by one would be a record in
/// the log for each entry.
const PURGE_DIVISOR: u64 = 4;

/// Most entries in one append request. Requests are pipelined, so this costs no speed; it keeps
/// the request below the peers' frame cap: `PAYLOAD_ENTRIES_MAX` × [`BATCH_BYTES_MAX`] = 6 MiB.
const PAYLOAD_ENTRIES_MAX: u64 = 32;

/// Largest encoded batch that is proposed, in bytes.
pub const BATCH_BYTES_MAX: usize = 192 * 1024;

/// How long sending and installing one snapshot may take. At most 20 MB travel, on a connection of
/// their own; a stalled transfer holds up nobody but the node that waits for it.
const SNAPSHOT_MS_MAX: u64 = 60_000;

/// openraft's settings for this node's.
pub(super) fn raft_config(config: &super::Config) -> Result<RaftConfig, Error> {
    let kept = config.snapshot_entries / KEPT_DIVISOR;
    RaftConfig {
        cluster_name: "ticketing".into(),
        heartbeat_interval: config.heartbeat_ms,
        election_timeout_min: config.election_timeout_ms / 2,
        election_timeout_max: config.election_timeout_ms,
        install_snapshot_timeout: SNAPSHOT_MS_MAX,
        max_payload_entries: PAYLOAD_ENTRIES_MAX,
        snapshot_policy: SnapshotPolicy::LogsSinceLast(config.snapshot_entries),
        max_in_snapshot_log_to_keep: kept,
        purge_batch_size: (kept / PURGE_DIVISOR).max(1),
        replication_lag_threshold: config.snapshot_entries.saturating_mul(2),
        // A node that was cut off, or that lags, must not raise the term of a healthy cluster.
        enable_pre_vote: Some(true),
        // A restarted leader would otherwise lead on in its old term with its old first entry, and
        // "an entry of this term that this process proposed" would not mean what it has to mean.
        enable_leader_restore: Some(false),
        ..RaftConfig::default()
    }
    .validate()
    .map_err(|error| Error::Settings(error.to_string()))
}
