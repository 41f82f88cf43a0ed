//! The life of one acquire, as a table: where it stands, what happens, what follows.
//!
//! Faults answered: a request that is sent twice, a caller who is told "not acquired" of a lock that
//! is or will be granted, a grant that nobody knows of. The argument is in the table's shape:
//!
//! - only a request of which surely no byte was sent ([`Stage::Queued`]), or one that was refused
//!   together with its whole session, may go to another connection;
//! - from [`Stage::MaybeSent`] on only an answer is definitive, so a deadline, a dropped future and
//!   a lost connection leave the outcome open, and the caller hears so at once;
//! - a request whose caller is gone ([`Stage::Cancelled`]) is still owed an answer. A late grant is
//!   given back, a late refusal ends it, and if neither comes in time the session is closed, which
//!   takes the request out of the server's queue. No other call pays for it before that.
//!
//! One task at a time moves a request (its session's, or whoever holds the dispatcher's lock), so
//! no two events meet. The last step is the caller's: an answer that lies ready but is noticed after
//! the deadline is judged by [`judge`], and a grant that is not taken gives itself back.

use std::time::Duration;

use tokio::time::Instant;

use crate::Error;

/// Where an acquire stands while it has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Surely no byte of it was sent.
    Queued,
    /// A byte may have been sent, and its caller waits.
    MaybeSent,
    /// A byte may have been sent, and nobody waits any more.
    Cancelled,
}

/// What happens to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The call's deadline passed, or the patience with a cancelled one.
    Deadline,
    /// The caller's future was dropped.
    Dropped,
    /// The broker is being closed.
    Closing,
    /// The server granted it.
    Granted,
    /// The server says that the wait is over.
    TimedOut,
    /// The server is at a limit.
    Busy,
    /// The server refused the session with all that is unanswered on it.
    SessionRefused,
    /// The server refused the auth token, and so everything that was sent behind it.
    AuthRefused,
    /// The connection ended in any other way.
    SessionLost,
}

/// What the caller hears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    Timeout,
    Busy,
    Indeterminate,
    Auth,
    Closed,
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Timeout => Self::Timeout,
            Failure::Busy => Self::Busy,
            Failure::Indeterminate => Self::Indeterminate,
            Failure::Auth => Self::Auth,
            Failure::Closed => Self::Closed,
        }
    }
}

/// What follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// It is over; its caller, if there is one, hears this.
    Fail(Failure),
    /// It is over, and nobody is there to hear it.
    Forget,
    /// Its caller, if there is one, hears Indeterminate; the answer is awaited a little longer.
    Cancel,
    /// The grant goes to the caller.
    Deliver,
    /// The grant is released in the background.
    GiveBack,
    /// It goes on to another connection, as the same request.
    Elsewhere,
    /// No answer came: the session is closed.
    CloseSession,
    /// The server answers what it was not asked.
    Breach,
}

/// The table.
pub(crate) fn step(stage: Stage, event: Event) -> Step {
    match (stage, event) {
        (Stage::Queued, Event::Deadline) => Step::Fail(Failure::Timeout),
        (Stage::Queued, Event::Dropped) => Step::Forget,
        (Stage::Queued, Event::Closing) => Step::Fail(Failure::Closed),
        (Stage::Queued, Event::Granted) => Step::GiveBack,
        (Stage::Queued, Event::TimedOut | Event::Busy) => Step::Breach,
        (Stage::Queued, Event::SessionRefused | Event::AuthRefused | Event::SessionLost) => {
            Step::Elsewhere
        }

        (Stage::MaybeSent, Event::Deadline | Event::Dropped | Event::Closing) => Step::Cancel,
        (Stage::MaybeSent, Event::Granted) => Step::Deliver,
        (Stage::MaybeSent, Event::TimedOut) => Step::Fail(Failure::Timeout),
        (Stage::MaybeSent, Event::Busy) => Step::Fail(Failure::Busy),
        (Stage::MaybeSent, Event::SessionRefused) => Step::Elsewhere,
        (Stage::MaybeSent, Event::AuthRefused) => Step::Fail(Failure::Auth),
        (Stage::MaybeSent, Event::SessionLost) => Step::Fail(Failure::Indeterminate),

        (Stage::Cancelled, Event::Deadline) => Step::CloseSession,
        // Cancelled already: the patience with it goes on.
        (Stage::Cancelled, Event::Dropped | Event::Closing) => Step::Cancel,
        (Stage::Cancelled, Event::Granted) => Step::GiveBack,
        (
            Stage::Cancelled,
            Event::TimedOut
            | Event::Busy
            | Event::SessionRefused
            | Event::AuthRefused
            | Event::SessionLost,
        ) => Step::Forget,
    }
}

/// Whether the caller may have a grant that it notices at `now`, with so much of its lease left.
/// If not, the grant is released in the background.
pub(crate) fn judge(
    now: Instant,
    deadline: Instant,
    remaining: Duration,
    budget: Duration,
) -> Result<(), Error> {
    if now > deadline {
        Err(Error::Indeterminate)
    } else if remaining.is_zero() || remaining < budget {
        Err(Error::InsufficientLease)
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAGES: [Stage; 3] = [Stage::Queued, Stage::MaybeSent, Stage::Cancelled];
    const EVENTS: [Event; 9] = [
        Event::Deadline,
        Event::Dropped,
        Event::Closing,
        Event::Granted,
        Event::TimedOut,
        Event::Busy,
        Event::SessionRefused,
        Event::AuthRefused,
        Event::SessionLost,
    ];

    /// Every pair that satisfies `condition`.
    fn pairs(condition: impl Fn(Stage, Event, Step) -> bool) -> Vec<(Stage, Event)> {
        let all = STAGES
            .iter()
            .flat_map(|stage| EVENTS.map(|event| (*stage, event)));
        all.filter(|(stage, event)| condition(*stage, *event, step(*stage, *event)))
            .collect()
    }

    #[test]
    fn what_may_have_been_sent_is_sent_again_only_after_a_refusal() {
        let again = pairs(|stage, _, step| step == Step::Elsewhere && stage != Stage::Queued);
        assert_eq!(again, [(Stage::MaybeSent, Event::SessionRefused)]);
    }

    #[test]
    fn a_definitive_failure_of_a_sent_request_rests_on_an_answer() {
        let definitive = pairs(|stage, _, step| {
            stage != Stage::Queued
                && matches!(step, Step::Fail(failure) if failure != Failure::Indeterminate)
        });
        assert_eq!(
            definitive,
            [
                (Stage::MaybeSent, Event::TimedOut),
                (Stage::MaybeSent, Event::Busy),
                (Stage::MaybeSent, Event::AuthRefused),
            ]
        );
    }

    #[test]
    fn every_grant_has_a_taker_or_is_given_back() {
        for stage in STAGES {
            let taken = match stage {
                Stage::MaybeSent => Step::Deliver,
                Stage::Queued | Stage::Cancelled => Step::GiveBack,
            };
            assert_eq!(step(stage, Event::Granted), taken);
        }
    }

    #[test]
    fn only_patience_that_is_over_closes_a_session() {
        let closing = pairs(|_, _, step| step == Step::CloseSession);
        assert_eq!(closing, [(Stage::Cancelled, Event::Deadline)]);
    }

    #[test]
    fn nobody_is_told_anything_twice() {
        let told = pairs(|stage, _, step| {
            stage == Stage::Cancelled && matches!(step, Step::Fail(_) | Step::Deliver)
        });
        assert_eq!(told, []);
    }

    #[test]
    fn a_grant_that_is_noticed_late_or_with_too_little_left_is_not_taken() {
        let deadline = Instant::now();
        let ms = Duration::from_millis;
        let judged = |late, remaining, budget| {
            judge(deadline + ms(late), deadline, ms(remaining), ms(budget)).map_err(|error| {
                match error {
                    Error::Indeterminate => "indeterminate",
                    Error::InsufficientLease => "insufficient",
                    _ => "another",
                }
            })
        };
        assert_eq!(judged(0, 100, 100), Ok(()));
        assert_eq!(judged(1, 100, 100), Err("indeterminate"));
        assert_eq!(judged(0, 99, 100), Err("insufficient"));
        assert_eq!(judged(0, 0, 0), Err("insufficient"), "nothing is left");
        assert_eq!(judged(1, 0, 100), Err("indeterminate"), "the first reason");
    }
}
