//! Processes that die, pause, restart and lose their disks; clients that flood and vanish.
//!
//! Clusters run with default settings: heartbeat 100 ms, election timeout 1,000 ms.

mod client;
mod crash;
mod flood;
mod pause;
mod queues;
mod restart;
mod wiped;

use std::time::Duration;

/// The default election timeout.
const ELECTION_TIMEOUT: Duration = Duration::from_secs(1);
