//! What happens to disks: no power, no room, no hurry.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, sleep};

use super::{Nemesis, Ongoing, Work};
use crate::error::Error;

/// A disk with less room than this, in bytes, counts as full.
const FULL_BYTES: u64 = 1 << 20;

/// How long a slow disk stands still, and how long it works in between, in milliseconds.
const STILL_MS: std::ops::Range<u64> = 30..250;
const WORKS_MS: std::ops::Range<u64> = 5..60;

impl Nemesis {
    /// All disks lose what is not synced, then all processes are killed, then the disks come back.
    pub(super) async fn cut_power(&mut self, ongoing: &mut Ongoing) -> Result<(), Error> {
        ongoing.counted = "disks cut off";
        for node in &mut self.cluster.nodes {
            node.may_end = true;
        }
        let cuts = self.cluster.nodes.iter().map(|node| node.disk.cut_power());
        for cut in join_all(cuts).await {
            cut?;
            ongoing.evidence += 1;
        }
        for node in &mut self.cluster.nodes {
            node.kill().await;
        }
        for node in &self.cluster.nodes {
            node.disk.restore().await?;
        }
        self.cluster.start_all().await
    }

    pub(super) async fn fill(&mut self, ongoing: &mut Ongoing) -> Result<(), Error> {
        ongoing.counted = "disks full";
        ongoing.work = Work::Empty;
        for node in &ongoing.targets {
            let node = &mut self.cluster.nodes[*node];
            node.may_end = true;
            let left = node.disk.fill().await?;
            ongoing.evidence += u64::from(left < FULL_BYTES);
        }
        Ok(())
    }

    /// Disks stand still again and again for `time`.
    pub(super) async fn stutter(
        &mut self,
        ongoing: &mut Ongoing,
        time: Duration,
    ) -> Result<(), Error> {
        let until = Instant::now() + time;
        while Instant::now() < until {
            for node in &ongoing.targets {
                self.cluster.nodes[*node].disk.freeze().await?;
                ongoing.evidence += 1;
            }
            sleep(Duration::from_millis(self.random.u64(STILL_MS))).await;
            for node in &ongoing.targets {
                self.cluster.nodes[*node].disk.thaw().await?;
            }
            sleep(Duration::from_millis(self.random.u64(WORKS_MS))).await;
        }
        Ok(())
    }
}
