//! What happens to processes and to their wall clocks.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{Fault, Nemesis, Ongoing, Work};
use crate::error::Error;
use crate::history::What;
use crate::process::IN_ORDER;

/// A pause that is shorter than any election.
const SHORT_PAUSE_MS: std::ops::Range<u64> = 100..450;

/// How long a planned stop may take, as the product promises.
const STOP_TIME_MAX: Duration = Duration::from_secs(10);

/// Between two nodes of a rolling restart.
const ROLL_MS: std::ops::Range<u64> = 1_000..2_500;

/// How far wall clocks jump, in seconds.
const JUMPS_S: [f64; 6] = [0.001, 0.1, 1.0, 30.0, 300.0, 3600.0];

/// Between two jumps of a strobing clock: as often as the library looks.
const STROBE: Duration = Duration::from_millis(1000);

impl Nemesis {
    pub(super) async fn kill(&mut self, ongoing: &mut Ongoing) {
        ongoing.counted = "processes gone";
        for node in &ongoing.targets {
            ongoing.evidence += u64::from(self.cluster.nodes[*node].kill().await);
        }
    }

    pub(super) async fn terminate(&mut self, ongoing: &mut Ongoing) {
        ongoing.counted = "processes ended";
        for index in ongoing.targets.clone() {
            ongoing.evidence += u64::from(self.stop(index).await);
        }
    }

    /// SIGTERM, whose way is a promise as well.
    async fn stop(&mut self, index: usize) -> bool {
        let node = &mut self.cluster.nodes[index];
        let may_end = node.may_end;
        let Some((how, after)) = node.terminate().await else {
            return false;
        };
        if (how != IN_ORDER || after > STOP_TIME_MAX) && !may_end {
            let how = format!("{how}, {after:?} after SIGTERM");
            let node = node.address.clone();
            self.recorder.write(What::Died { node, how });
        }
        true
    }

    pub(super) async fn pause(&mut self, ongoing: &mut Ongoing, fault: Fault) {
        ongoing.counted = "processes stopped";
        for index in &ongoing.targets {
            ongoing.evidence += u64::from(self.cluster.nodes[*index].pause().await);
        }
        if fault == Fault::PauseLong {
            ongoing.work = Work::Resume;
            return;
        }
        sleep(Duration::from_millis(self.random.u64(SHORT_PAUSE_MS))).await;
        for index in &ongoing.targets {
            self.cluster.nodes[*index].resume();
        }
    }

    pub(super) async fn roll(&mut self, ongoing: &mut Ongoing) -> Result<(), Error> {
        ongoing.counted = "processes ended";
        for index in ongoing.targets.clone() {
            ongoing.evidence += u64::from(self.stop(index).await);
            self.cluster.start(index).await?;
            sleep(Duration::from_millis(self.random.u64(ROLL_MS))).await;
        }
        Ok(())
    }

    pub(super) fn jump(&mut self, ongoing: &mut Ongoing, strobe: bool) -> Result<(), Error> {
        ongoing.counted = "clocks shifted";
        let far = self.random.choice(JUMPS_S).unwrap_or(1.0);
        let seconds = if self.random.bool() { far } else { -far };
        ongoing.work = Work::SetClocks { strobe, seconds };
        self.shift(ongoing, seconds)
    }

    fn shift(&mut self, ongoing: &mut Ongoing, seconds: f64) -> Result<(), Error> {
        for node in &ongoing.targets {
            let shifted = self.cluster.nodes[*node].shift_clock(seconds)?;
            ongoing.evidence += u64::from(shifted);
        }
        Ok(())
    }

    pub(super) async fn strobe(
        &mut self,
        ongoing: &mut Ongoing,
        seconds: f64,
        time: Duration,
    ) -> Result<(), Error> {
        let until = Instant::now() + time;
        let mut seconds = seconds;
        while Instant::now() < until {
            sleep(STROBE).await;
            seconds = -seconds;
            self.shift(ongoing, seconds)?;
        }
        Ok(())
    }
}
