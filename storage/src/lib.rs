//! Durable storage of one node: Raft's log and vote, the node's identity, the newest snapshot.
//!
//! The cluster's safety rests on what a node remembers. A node that forgets a vote may vote twice in a
//! term; one that forgets entries it acknowledged lets a leader be elected that never had them. So the
//! promises here are few and plain:
//!
//! 1. **Durable before acknowledged.** A vote before [`save_vote`] returns, entries before the append's
//!    callback, the rest before the call returns; in order, never one overtaking the other.
//! 2. **Whole or refused.** What is opened is at least all that was acknowledged, or the store refuses
//!    to open, in one line that names the file, the place in it, and how to go on.
//! 3. **One failure ends it.** After a failed write or sync nothing is acknowledged: [`Storage::failed`].
//!
//! The log is a write-ahead log of our own in preallocated segments (`wal/`), because it is on the path of
//! every operation and because no library was found that tells a torn tail from damage. What is small
//! and rare is in sled. They watch each other: the log's watermark knows how new sled must be, sled
//! has a copy of the vote and knows which log is its own.
//!
//! This crate is generic over openraft's type config and knows nothing of locks. Reading order:
//! [`Storage`], [`LogStore`], then `wal/mod.rs`.
//!
//! Left out on purpose: encryption and compression (the disk's and the snapshot's business), more than
//! one log per directory, repair of damaged files (the peers have the data; a node that guesses does
//! harm).
//!
//! [`save_vote`]: openraft::storage::RaftLogStorage::save_vote

pub mod codec;
mod error;
mod failure;
mod log;
pub mod measure;
pub mod memory;
mod meta;
mod snapshots;
mod store;
mod vote_copy;
mod wal;

pub use error::Error;
pub use log::LogStore;
pub use snapshots::{Snapshots, Stored};
pub use store::{Options, Storage};
pub use wal::Measures;
