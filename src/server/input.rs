//! A session's input: a read buffer of fixed size, and the clock of the frame that is incomplete.

use std::time::Duration;

use tokio::time::Instant;

/// Size of the read buffer. It holds any frame and any handshake line.
const BUFFER_BYTES: usize = 4096;

/// How long a frame may take from its op byte to its newline, not counting the time in which the
/// server does not read.
pub(super) const FRAME_TIME_MAX: Duration = Duration::from_secs(5);

/// What was read and not decoded yet.
#[derive(Debug)]
pub(super) struct Input {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Input {
    pub(super) fn new() -> Self {
        Self {
            bytes: vec![0; BUFFER_BYTES].into_boxed_slice(),
            start: 0,
            end: 0,
        }
    }

    /// The bytes at hand.
    pub(super) fn pending(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// The first `count` bytes at hand are done with.
    pub(super) fn consume(&mut self, count: usize) {
        self.start += count;
        assert!(self.start <= self.end, "only bytes at hand can be consumed");
    }

    /// Room to read into; empty only if nothing was consumed since the buffer was full.
    pub(super) fn room(&mut self) -> &mut [u8] {
        if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        &mut self.bytes[self.end..]
    }

    /// `count` bytes were read into the room.
    pub(super) fn filled(&mut self, count: usize) {
        self.end += count;
        assert!(self.end <= self.bytes.len(), "only the room can be filled");
    }
}

/// Measures how long the frame at the front of the input has been incomplete. It stands still
/// while the server does not read: a client can't finish its frame then.
#[derive(Debug)]
pub(super) struct FrameClock {
    /// Time that the frame has left, from `since` if that is there; `None` between frames.
    left: Option<Duration>,
    /// When the clock last began to run.
    since: Option<Instant>,
    reading: bool,
}

impl FrameClock {
    pub(super) fn new() -> Self {
        Self {
            left: None,
            since: None,
            reading: false,
        }
    }

    /// A frame has begun.
    pub(super) fn begin(&mut self) {
        self.left = Some(FRAME_TIME_MAX);
        self.since = self.reading.then(Instant::now);
    }

    /// The input stands between frames.
    pub(super) fn clear(&mut self) {
        self.left = None;
        self.since = None;
    }

    /// Whether a frame has begun.
    pub(super) fn has_begun(&self) -> bool {
        self.left.is_some()
    }

    /// Says whether the server reads.
    pub(super) fn set_reading(&mut self, reading: bool) {
        if self.reading == reading {
            return;
        }
        self.reading = reading;
        let Some(left) = self.left else {
            return;
        };
        self.since = if reading {
            Some(Instant::now())
        } else {
            let used = self.since.map_or(Duration::ZERO, |since| since.elapsed());
            self.left = Some(left.saturating_sub(used));
            None
        };
    }

    /// When the frame's time is over, if nothing changes.
    pub(super) fn deadline(&self) -> Option<Instant> {
        Some(self.since? + self.left?)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn the_buffer_takes_in_more_once_something_was_consumed() {
        let mut input = Input::new();
        assert_eq!(input.room().len(), BUFFER_BYTES);
        input.room()[..3].copy_from_slice(b"abc");
        input.filled(3);
        input.consume(1);
        assert_eq!(input.pending(), b"bc");
        assert_eq!(input.room().len(), BUFFER_BYTES - 2);
        input.room()[0] = b'd';
        input.filled(1);
        assert_eq!(input.pending(), b"bcd");
    }

    #[tokio::test(start_paused = true)]
    async fn the_frame_clock_stands_still_while_the_server_does_not_read() {
        let mut clock = FrameClock::new();
        assert_eq!(clock.deadline(), None);
        clock.set_reading(true);
        clock.begin();
        assert_eq!(clock.deadline(), Some(Instant::now() + seconds(5)));
        advance(seconds(2)).await;
        clock.set_reading(false);
        assert_eq!(clock.deadline(), None);
        advance(seconds(60)).await;
        clock.set_reading(true);
        assert_eq!(clock.deadline(), Some(Instant::now() + seconds(3)));
        clock.clear();
        assert_eq!(clock.deadline(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_frame_that_begins_while_the_server_does_not_read_has_all_its_time_left() {
        let mut clock = FrameClock::new();
        clock.begin();
        advance(seconds(60)).await;
        clock.set_reading(true);
        assert_eq!(clock.deadline(), Some(Instant::now() + seconds(5)));
    }
}
