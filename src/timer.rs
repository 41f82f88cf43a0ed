//! A timer for deadlines that move with every request.
//!
//! Setting a timer anew for each request would cost more than the request. Deadlines mostly
//! move to later, so this timer stays armed for the earliest moment it was ever asked for: when it
//! rings too early, it is set once for the deadline of then.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::time::{Instant, Sleep, sleep_until};

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct LazyTimer {
    sleep: Pin<Box<Sleep>>,
    /// When `sleep` rings; `None` if it is not set.
    armed: Option<Instant>,
}

impl LazyTimer {
    /// A timer that is not set. It belongs to a runtime.
    pub(crate) fn new() -> Self {
        Self {
            sleep: Box::pin(sleep_until(Instant::now())),
            armed: None,
        }
    }

    /// Ready when `due` has come.
    pub(crate) fn poll(&mut self, due: Instant, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if self.armed.is_none_or(|armed| armed > due) {
                self.sleep.as_mut().reset(due);
                self.armed = Some(due);
            }
            ready!(self.sleep.as_mut().poll(cx));
            if self.armed.take() == Some(due) || Instant::now() >= due {
                return Poll::Ready(());
            }
        }
    }

    /// Waits until `due`; without it, for ever.
    pub(crate) async fn wait(&mut self, due: Option<Instant>) {
        match due {
            Some(due) => poll_fn(|cx| self.poll(due, cx)).await,
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_rings_at_the_deadline_that_was_asked_for_last() {
        let start = Instant::now();
        let mut timer = LazyTimer::new();
        for (asked_first, asked_last) in [(5, 9), (9, 5), (3, 3)] {
            let at = |seconds| Instant::now() + Duration::from_secs(seconds);
            let (first, last) = (at(asked_first), at(asked_last));
            let early = poll_fn(|cx| Poll::Ready(timer.poll(first, cx))).await;
            assert_eq!(early, Poll::Pending);
            timer.wait(Some(last)).await;
            assert_eq!(Instant::now(), last);
        }
        assert_eq!(start.elapsed(), Duration::from_secs(17));
    }
}
