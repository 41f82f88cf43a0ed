//! What is said to one session and not yet encoded: filled by the driver, emptied by the session.
//!
//! The driver never waits for a session. It puts replies here and goes on; the session's own task
//! encodes and writes them, up to [`REPLIES_PER_WRITE_MAX`](super::REPLIES_PER_WRITE_MAX) at a time. Waking is a step of
//! its own, so that a session that gets many replies in one round of the driver is woken once.
//!
//! No grant is lost between the two: a reply either gets into the queue before the session closes
//! it, and then the session accounts for it, or [`Outbox::push`] hands it back to the driver.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};
use std::task::{Context, Waker};

use wire::Reply;

/// More replies than can be owed to one session: all waiters, all acquires and releases in flight
/// at their hard caps, and ample room for refusals and pushes. A session that gets here reads
/// nothing of what it is sent.
const REPLIES_MAX: usize = 131_072;

/// A queue that was drained keeps this much room, so that one burst does not pin memory.
const REPLIES_KEPT_MAX: usize = 512;

/// The replies of one session on their way from the driver to the socket.
#[derive(Debug, Default)]
pub(crate) struct Outbox(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    replies: VecDeque<Reply>,
    /// Nothing more will be said: the session writes what is queued and closes.
    ending: bool,
    /// The session is gone.
    closed: bool,
    waker: Option<Waker>,
}

/// What the session finds in its outbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Contents {
    /// Replies that were moved out.
    pub(crate) taken: usize,
    /// Replies that are still queued.
    pub(crate) left: usize,
    /// Nothing more will be queued.
    pub(crate) ending: bool,
}

impl Outbox {
    /// Queues `reply`, without waking the session. Gives it back when it cannot be said any more.
    pub(crate) fn push(&self, reply: Reply) -> Result<(), Reply> {
        let mut state = self.state();
        if state.ending || state.closed {
            return Err(reply);
        }
        state.replies.push_back(reply);
        if state.replies.len() >= REPLIES_MAX {
            state.ending = true;
        }
        Ok(())
    }

    /// Queues `last` if it is there, and lets nothing follow it. Does not wake the session.
    pub(crate) fn finish(&self, last: Option<Reply>) {
        let mut state = self.state();
        if !state.ending && !state.closed {
            state.replies.extend(last);
            state.ending = true;
        }
    }

    /// Has the session look into its outbox.
    pub(crate) fn wake(&self) {
        let waker = self.state().waker.take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Moves up to `count_max` replies into `each`, and has `cx` woken at the next [`wake`](Self::wake).
    pub(crate) fn take(
        &self,
        cx: &mut Context<'_>,
        count_max: usize,
        each: impl FnMut(Reply),
    ) -> Contents {
        let mut state = self.state();
        let taken = state.replies.len().min(count_max);
        state.replies.drain(..taken).for_each(each);
        if state.replies.is_empty() {
            state.replies.shrink_to(REPLIES_KEPT_MAX);
        }
        match &mut state.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            waker @ None => *waker = Some(cx.waker().clone()),
        }
        Contents {
            taken,
            left: state.replies.len(),
            ending: state.ending,
        }
    }

    /// Lets nothing in any more and hands out what was not taken.
    pub(crate) fn close(&self) -> VecDeque<Reply> {
        let mut state = self.state();
        state.closed = true;
        state.waker = None;
        std::mem::take(&mut state.replies)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0
            .lock()
            .expect("nothing panics while it holds this lock")
    }
}

#[cfg(test)]
mod tests {
    use wire::{Reason, Token};

    use super::*;

    fn reply(token: u64) -> Reply {
        Reply::Released {
            token: Token(token),
            key: "job".parse().unwrap(),
        }
    }

    fn take(outbox: &Outbox, count_max: usize) -> (Vec<Reply>, Contents) {
        let mut replies = Vec::new();
        let mut cx = Context::from_waker(Waker::noop());
        let contents = outbox.take(&mut cx, count_max, |reply| replies.push(reply));
        (replies, contents)
    }

    #[test]
    fn replies_come_out_in_order_and_in_portions() {
        let outbox = Outbox::default();
        for token in 1..=3 {
            outbox.push(reply(token)).unwrap();
        }
        let (replies, contents) = take(&outbox, 2);
        assert_eq!(replies, [reply(1), reply(2)]);
        assert_eq!(
            contents,
            Contents {
                taken: 2,
                left: 1,
                ending: false
            }
        );
    }

    #[test]
    fn nothing_follows_the_last_reply() {
        let outbox = Outbox::default();
        outbox.push(reply(1)).unwrap();
        outbox.finish(Some(Reply::Error(Reason::BadOp)));
        outbox.finish(Some(Reply::Error(Reason::BadKey)));
        assert_eq!(outbox.push(reply(2)), Err(reply(2)));
        let (replies, contents) = take(&outbox, 64);
        assert_eq!(replies, [reply(1), Reply::Error(Reason::BadOp)]);
        assert!(contents.ending);
    }

    #[test]
    fn a_closed_outbox_gives_back_what_is_pushed_and_what_was_left() {
        let outbox = Outbox::default();
        outbox.push(reply(1)).unwrap();
        assert_eq!(outbox.close(), [reply(1)]);
        assert_eq!(outbox.push(reply(2)), Err(reply(2)));
        assert_eq!(take(&outbox, 64).0, []);
    }

    #[test]
    fn an_outbox_that_nobody_empties_ends_at_its_bound() {
        let outbox = Outbox::default();
        for token in 0..REPLIES_MAX as u64 {
            outbox.push(reply(token)).unwrap();
        }
        assert!(outbox.push(reply(0)).is_err());
        let (_, contents) = take(&outbox, 64);
        assert!(contents.ending);
    }
}
