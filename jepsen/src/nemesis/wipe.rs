//! A node loses its disk, in the worst way for a cluster that would take it for the old one:
//!
//! 1. as many nodes as a quorum can spare are cut off, and know nothing of what is granted
//!    meanwhile;
//! 2. another node is killed and its disk deleted;
//! 3. the nodes that know everything are stopped, and the ones cut off come back;
//! 4. the wiped node starts. Under its old id it would make a quorum with those that know nothing.
//!
//! A sound cluster serves nobody until step 5, in which those who know go on.

use std::time::Duration;

use tokio::time::sleep;

use super::{Nemesis, Ongoing};
use crate::error::Error;
use crate::hosts::{Effect, End, Link};

/// How long the cluster goes on without those cut off: long enough that everybody has granted
/// something since.
const APART: Duration = Duration::from_millis(2_500);

/// How long the ignorant are left to themselves: a few elections.
const IGNORANT: Duration = Duration::from_secs(7);

impl Nemesis {
    pub(super) async fn wipe(&mut self, ongoing: &mut Ongoing) -> Result<(), Error> {
        ongoing.counted = "disks lost";
        let count = self.cluster.nodes.len();
        let leader = self.leader_index();
        let mut others: Vec<usize> = (0..count).filter(|node| Some(*node) != leader).collect();
        self.random.shuffle(&mut others);
        let apart: Vec<usize> = others.drain(..count / 2).collect();
        let wiped = others.pop().unwrap_or(0);
        let mut know = others;
        know.extend(leader);

        let links: Vec<Link> = apart
            .iter()
            .flat_map(|a| {
                (0..count)
                    .filter(|b| !apart.contains(b))
                    .map(move |b| (*a, b))
            })
            .flat_map(|(a, b)| Link::both(End::Node(a), End::Node(b)))
            .collect();
        let cut = self.cluster.hosts.apply(Effect::Drop, &links).await?;
        sleep(APART).await;
        self.cluster.nodes[wiped].kill().await;
        self.cluster.nodes[wiped].disk.wipe()?;
        ongoing.evidence += 1;
        for node in &know {
            self.cluster.nodes[*node].pause().await;
        }
        self.cluster.hosts.take_back(cut).await?;
        self.cluster.start(wiped).await?;
        sleep(IGNORANT).await;
        for node in &know {
            self.cluster.nodes[*node].resume();
        }
        ongoing.targets = vec![wiped];
        Ok(())
    }
}
