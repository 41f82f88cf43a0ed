//! What went through the driver, as plain numbers.

use raft::measure::Histogram;
use wire::{Reason, Reply};

/// Bounds of commands in a batch; the last one is the most that there can be.
const BATCH_COMMANDS: &[u64] = &[0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512];

/// What went through the driver since the process started. Replies are counted as they are decided,
/// whether they reach their client or not.
#[derive(Clone, Debug)]
pub struct Traffic {
    /// Acquires that were granted.
    pub granted: u64,
    /// Acquires whose wait was over.
    pub timed_out: u64,
    /// Acquires that met a limit.
    pub busy: u64,
    /// Releases that freed a key.
    pub released: u64,
    /// Releases whose token was not the current one.
    pub not_current: u64,
    /// Requests that were sent on to the leader.
    pub moved: u64,
    /// Requests that met a follower without a leader.
    pub no_leader: u64,
    /// Requests that met a node that could not serve.
    pub not_active: u64,
    /// Sessions that were closed because the fate of a request of theirs is unknown.
    pub indeterminate: u64,
    /// Commands in each batch; a batch of none only carries time.
    pub batch_commands: Histogram,
}

impl Default for Traffic {
    fn default() -> Self {
        Self {
            granted: 0,
            timed_out: 0,
            busy: 0,
            released: 0,
            not_current: 0,
            moved: 0,
            no_leader: 0,
            not_active: 0,
            indeterminate: 0,
            batch_commands: Histogram::new(BATCH_COMMANDS),
        }
    }
}

impl Traffic {
    /// Counts a reply.
    pub(super) fn note(&mut self, reply: &Reply) {
        let count = match reply {
            Reply::Granted { .. } => &mut self.granted,
            Reply::TimedOut { .. } => &mut self.timed_out,
            Reply::Busy { .. } => &mut self.busy,
            Reply::Released { .. } => &mut self.released,
            Reply::NotCurrent { .. } => &mut self.not_current,
            Reply::Moved(_) => &mut self.moved,
            Reply::Error(Reason::NoLeader) => &mut self.no_leader,
            Reply::Error(Reason::NotActive) => &mut self.not_active,
            // News, and the last words of a session: no answers to requests.
            Reply::Leader(_) | Reply::Error(_) => return,
        };
        *count += 1;
    }
}
