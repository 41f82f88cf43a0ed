//! What an operator may ask of a running node.
//!
//! Fault answered: a transfer of the lead to a voter that is gone by then. Raft marks the leader as
//! leaving and lets it propose nothing more, and nothing takes that back; the cluster would have a
//! leader that serves nobody. So if nobody has taken the lead over in time, this node stands for
//! election itself: in the new term, whoever wins may propose. The leases on the old term were
//! given up for the transfer, so the others do not refuse.

use std::time::Duration;

use openraft::ServerState;
use openraft::async_runtime::watch::WatchReceiver;

use super::{Node, overview};

/// How many election timeouts a hand-over may take.
const HAND_OVER_TIMEOUTS: u32 = 2;

/// Why an operator's request was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Only a leader can do it.
    #[error("this node does not lead")]
    NotLeading,
    /// There is nobody to take the lead.
    #[error("no other voter was heard from lately")]
    NobodyThere,
    /// Nobody took the lead over in time.
    #[error("nobody took the lead over in time; there is a new election")]
    NotTaken,
}

impl Node {
    /// Gives the lead to the voter that is most up to date. The client address of the new leader.
    pub async fn transfer(&self) -> Result<String, Refused> {
        let passed = self.pass_lead().await;
        if passed == Err(Refused::NotTaken) {
            // An error means that Raft has stopped, which its owner finds out by itself.
            let _ = self.raft.trigger().elect(true).await;
        }
        let leader = passed?;
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let peer = metrics.membership_config.membership().get_node(&leader);
        Ok(peer.map_or_else(String::new, |peer| peer.client.clone()))
    }

    /// Ends this node's activity for good and, if it leads, gives the lead to the voter that is most
    /// up to date. True when somebody else leads (or this node never did); false if that did not
    /// come about within two election timeouts.
    pub async fn hand_over(&self) -> bool {
        self.board.stop();
        matches!(self.pass_lead().await, Ok(_) | Err(Refused::NotLeading))
    }

    /// The id of who took the lead over.
    async fn pass_lead(&self) -> Result<u64, Refused> {
        let target = {
            let metrics = self.raft.metrics();
            let metrics = metrics.borrow_watched();
            if metrics.state != ServerState::Leader {
                return Err(Refused::NotLeading);
            }
            overview::successor(&metrics, self.election_timeout).ok_or(Refused::NobodyThere)?
        };
        let asked = self.raft.trigger().transfer_leader(target).await;
        asked.map_err(|_| Refused::NotTaken)?;
        let own = *self.raft.node_id();
        let others = move |leader: Option<u64>| leader.is_some_and(|leader| leader != own);
        let patience: Duration = self.election_timeout * HAND_OVER_TIMEOUTS;
        let wait = self.raft.wait(Some(patience));
        let seen = wait.metrics(move |m| others(m.current_leader), "hand-over");
        let seen = seen.await.map_err(|_| Refused::NotTaken)?;
        seen.current_leader.ok_or(Refused::NotTaken)
    }
}
