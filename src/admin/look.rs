//! One look at the process, taken for one request.
//!
//! The desk's task and the core of Raft are asked anew each time, and each has a bounded time to
//! answer: what does not answer is stuck, and what it published before is not believed.

use std::sync::Arc;
use std::time::Duration;

use raft::Node;
use raft::lock::Listing;
use raft::node::{Measures, Overview};
use tokio::time::timeout;
use wire::Key;

use crate::driver::Report;
use crate::server::Probe;

/// How long the desk's task and the core of Raft may take to answer. A probe's own patience is
/// usually a second, and it is to get an answer, not silence.
const ANSWER_TIME_MAX: Duration = Duration::from_millis(800);

/// How long the desk's task may take before the process counts as dead: longer, for a machine that
/// is merely starved is no reason to be killed.
const LIVE_TIME_MAX: Duration = Duration::from_secs(5);

/// What is looked at.
pub(super) struct Subject {
    pub(super) node: Option<Arc<Node>>,
    pub(super) probe: Probe,
    pub(super) address: String,
}

/// What was seen.
pub(super) struct Look {
    /// What the desk's task says; `None` if it does not answer.
    pub(super) report: Option<Report>,
    /// What the node says of itself; `None` in single mode.
    pub(super) node: Option<NodeLook>,
    /// This node's client address.
    pub(super) address: String,
    /// Open client connections.
    pub(super) connections: usize,
    /// A planned stop has begun.
    pub(super) stopping: bool,
}

/// A node of a cluster, as seen.
pub(super) struct NodeLook {
    /// Whether the core of Raft answers.
    pub(super) responds: bool,
    pub(super) overview: Overview,
    pub(super) measures: Measures,
}

impl Subject {
    /// Looks at everything; takes at most [`ANSWER_TIME_MAX`].
    pub(super) async fn look(&self) -> Look {
        let report = timeout(ANSWER_TIME_MAX, self.probe.driver().report());
        let (report, node) = tokio::join!(report, self.look_at_node());
        Look {
            report: report.ok().flatten(),
            node,
            address: self.address.clone(),
            connections: self.probe.connections(),
            stopping: self.probe.is_stopping(),
        }
    }

    async fn look_at_node(&self) -> Option<NodeLook> {
        let node = self.node.as_ref()?;
        let responds = timeout(ANSWER_TIME_MAX, node.responds()).await;
        Some(NodeLook {
            responds: responds.unwrap_or(false),
            overview: node.overview(),
            measures: node.measures(),
        })
    }

    /// Whether the desk's task answers at all.
    pub(super) async fn is_live(&self) -> bool {
        let report = timeout(LIVE_TIME_MAX, self.probe.driver().report()).await;
        report.is_ok_and(|report| report.is_some())
    }

    /// Held locks whose keys begin with `prefix`, and how many acquires queue here for each; `None`
    /// if that can't be said in time.
    pub(super) async fn locks(
        &self,
        prefix: String,
        count_max: usize,
    ) -> Option<(Listing, Vec<usize>)> {
        let driver = self.probe.driver();
        let both = async {
            let listing = match &self.node {
                Some(node) => node.locks(prefix, count_max).await?,
                None => driver.locks(prefix, count_max).await?,
            };
            let keys: Vec<Key> = listing.locks.iter().map(|l| l.lock.key.clone()).collect();
            let waiters = driver.waiters(keys).await?;
            Some((listing, waiters))
        };
        timeout(ANSWER_TIME_MAX, both).await.ok().flatten()
    }
}
