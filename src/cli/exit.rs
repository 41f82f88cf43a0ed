//! The exit codes, in one place: scripts tell a refusal from a failure by them.
//!
//! They follow sysexits where it has a word for it, and shells for what becomes of a command.
//! [`CODES`] is what the help and the man pages show; docs/CLI.md is held against it by a test.

/// A node could not start or had to stop, or something else failed.
pub const EXIT_FAILURE: u8 = 1;

/// The command line or a setting is wrong.
pub const EXIT_USAGE: u8 = 64;

/// No server answered, or what became of the request is unknown.
pub const EXIT_UNAVAILABLE: u8 = 69;

/// The lock was not acquired: held by others, or the server is at a limit.
pub const EXIT_NOT_ACQUIRED: u8 = 75;

/// The command was stopped, or not even started, because the lease ended.
pub const EXIT_LEASE_OVER: u8 = 76;

/// The auth token was refused.
pub const EXIT_AUTH: u8 = 77;

/// There was nothing to release: the token is not the lock's current one.
pub const EXIT_NOT_CURRENT: u8 = 79;

/// The lock was lost while the command ran, which ended by itself.
pub const EXIT_LOCK_LOST: u8 = 80;

/// The command could not be executed: as shells report it.
pub const EXIT_CANNOT_EXECUTE: u8 = 126;

/// The command was not found: as shells report it.
pub const EXIT_NOT_FOUND: u8 = 127;

/// What is added to the number of the signal that ended something.
pub const EXIT_SIGNAL: u8 = 128;

/// Every code with what it means; the last one stands for all codes from it on.
pub const CODES: [(u8, &str); 12] = [
    (0, "done"),
    (EXIT_FAILURE, "failed in another way than those below"),
    (EXIT_USAGE, "the command line or a setting is wrong"),
    (
        EXIT_UNAVAILABLE,
        "no server answered, or what became of the request is unknown",
    ),
    (
        EXIT_NOT_ACQUIRED,
        "the lock was not acquired: held by others, or a limit is reached",
    ),
    (
        EXIT_LEASE_OVER,
        "the command was stopped, or not started, because the lease ended",
    ),
    (EXIT_AUTH, "the auth token was refused"),
    (
        EXIT_NOT_CURRENT,
        "nothing was released: the token is not the lock's current one",
    ),
    (
        EXIT_LOCK_LOST,
        "the lock was lost while the command ran: released from outside, or its lease was over",
    ),
    (EXIT_CANNOT_EXECUTE, "the command could not be executed"),
    (EXIT_NOT_FOUND, "the command was not found"),
    (EXIT_SIGNAL, "and more, 128 + n: ended by signal n"),
];

/// The code for an end by this signal.
pub fn signal_code(signal: i32) -> u8 {
    u8::try_from(i32::from(EXIT_SIGNAL) + signal).unwrap_or(EXIT_FAILURE)
}

/// The table of codes as `--help` and the man pages show it.
pub(super) fn help() -> String {
    let mut text = String::from("Exit codes:\n");
    for (code, meaning) in CODES {
        text += &format!("  {code:>3}  {meaning}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_and_the_constants_agree() {
        let document = include_str!("../../docs/CLI.md");
        let rows: Vec<_> = document
            .lines()
            .filter_map(|line| {
                let mut cells = line.strip_prefix("| ")?.split(" | ");
                let code: u8 = cells.next()?.trim().parse().ok()?;
                Some((code, cells.next()?.trim_end_matches(" |").trim().to_owned()))
            })
            .collect();
        let expected: Vec<_> = CODES
            .map(|(code, meaning)| (code, meaning.to_owned()))
            .into();
        assert_eq!(rows, expected);
    }

    #[test]
    fn codes_are_in_order_and_none_is_used_twice() {
        assert!(CODES.is_sorted_by(|(one, _), (other, _)| one < other));
    }

    #[test]
    fn a_signal_is_reported_as_shells_do() {
        assert_eq!(signal_code(15), 143);
        assert_eq!(signal_code(400), EXIT_FAILURE);
    }
}
