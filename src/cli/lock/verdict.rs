//! The exit code of `ticketing lock`, decided from how the command ended and what the release found.
//!
//! Fault answered: a command that ran to its end while its lock was already gone. The token was
//! released from outside, or the command was allowed to outlive its lease. Scripts act on the exit
//! code alone, so a success of the command must not stand for a success under the lock. The release
//! is the proof: the servers answer `R` only if the token was current until then, so a command
//! whose release was answered so was protected to its end, also when the lease looked over from here
//! (a client's view of a lease ends before the servers' view). Everything else is a loss, unless
//! the lease still ran and no answer came at all.

use std::time::Duration;

use client::{Error, ReleaseOutcome};

use crate::cli::exit::{EXIT_LEASE_OVER, EXIT_LOCK_LOST};

/// How the command under the lock ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CommandEnd {
    /// Its exit code.
    pub(super) code: u8,
    /// The time from the grant to the command's end.
    pub(super) held: Duration,
    /// How long the lease had been over at the command's end; `None` while it ran.
    pub(super) lease_over: Option<Duration>,
}

/// The exit code to end with, and what is to be said about it.
pub(super) fn verdict(
    key: &str,
    end: CommandEnd,
    released: &Result<ReleaseOutcome, Error>,
) -> (u8, Option<String>) {
    let stopped = (end.code == EXIT_LEASE_OVER)
        .then(|| format!("the lease of {key:?} ended before the command did"));
    match released {
        Ok(ReleaseOutcome::Released) => (end.code, stopped),
        Ok(ReleaseOutcome::NotCurrent) if stopped.is_some() => (end.code, stopped),
        Ok(ReleaseOutcome::NotCurrent) => (EXIT_LOCK_LOST, Some(lost(key, end))),
        Err(error) if stopped.is_none() && end.lease_over.is_some() => {
            let lost = lost(key, end);
            (EXIT_LOCK_LOST, Some(format!("{lost} (release: {error})")))
        }
        Err(error) => {
            let release = format!("release: {error}; the lock ends with its lease");
            let said = stopped.map_or(release.clone(), |stopped| format!("{stopped}; {release}"));
            (end.code, Some(said))
        }
    }
}

/// What was lost, since when at the latest, and what the command made of it.
fn lost(key: &str, end: CommandEnd) -> String {
    let since = match end.lease_over {
        Some(over) => format!(
            "its lease was over {} s before the command ended",
            tenths(over)
        ),
        None => format!(
            "its token was released by another, at the latest {} s after the grant",
            tenths(end.held)
        ),
    };
    format!(
        "the lock {key:?} was lost while the command ran: {since}; others may hold it; the command \
         ended with {}",
        end.code
    )
}

/// Seconds with one decimal, rounded up: a loss is never told as later than it was.
fn tenths(time: Duration) -> f64 {
    time.as_millis().div_ceil(100) as f64 / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "job";

    fn end(code: u8, lease_over_ms: Option<u64>) -> CommandEnd {
        CommandEnd {
            code,
            held: Duration::from_millis(3_120),
            lease_over: lease_over_ms.map(Duration::from_millis),
        }
    }

    #[test]
    fn a_lock_that_was_held_to_the_end_leaves_the_command_its_code() {
        let released = Ok(ReleaseOutcome::Released);
        for code in [0, 7, 143] {
            assert_eq!(verdict(KEY, end(code, None), &released), (code, None));
            // The servers count the lease for longer than this side does.
            assert_eq!(verdict(KEY, end(code, Some(20)), &released), (code, None));
        }
    }

    #[test]
    fn a_lock_that_was_released_from_outside_is_lost_whatever_the_command_says() {
        let gone = Ok(ReleaseOutcome::NotCurrent);
        for code in [0, 7] {
            let (exit, said) = verdict(KEY, end(code, None), &gone);
            assert_eq!(exit, EXIT_LOCK_LOST);
            let said = said.expect("it is said");
            assert!(
                said.contains("at the latest 3.2 s after the grant"),
                "{said}"
            );
            assert!(said.ends_with(&format!("ended with {code}")), "{said}");
        }
    }

    #[test]
    fn a_lease_that_was_over_before_the_command_is_a_loss_unless_the_servers_say_otherwise() {
        let gone = Ok(ReleaseOutcome::NotCurrent);
        let unknown = Err(Error::Indeterminate);
        for released in [gone, unknown] {
            let (exit, said) = verdict(KEY, end(0, Some(1_010)), &released);
            assert_eq!(exit, EXIT_LOCK_LOST);
            let said = said.expect("it is said");
            assert!(
                said.contains("over 1.1 s before the command ended"),
                "{said}"
            );
        }
    }

    #[test]
    fn a_release_without_an_answer_while_the_lease_ran_is_no_loss() {
        let (exit, said) = verdict(KEY, end(0, None), &Err(Error::Indeterminate));
        assert_eq!(exit, 0);
        assert!(said.is_some_and(|said| said.contains("ends with its lease")));
    }

    #[test]
    fn a_command_that_was_stopped_in_time_has_the_code_for_that() {
        let outcomes = [
            Ok(ReleaseOutcome::Released),
            Ok(ReleaseOutcome::NotCurrent),
            Err(Error::Indeterminate),
        ];
        for released in outcomes {
            let (exit, said) = verdict(KEY, end(EXIT_LEASE_OVER, None), &released);
            assert_eq!(exit, EXIT_LEASE_OVER);
            let said = said.expect("it is said");
            assert!(said.starts_with("the lease of \"job\" ended"), "{said}");
        }
    }
}
