//! The signals that ask a process to do something, with who sent them.
//!
//! Who sent it matters twice. What the terminal sends (Ctrl-C) reaches the whole job by itself and
//! must not be passed on to it a second time: many programs take a second one for impatience. And
//! the keeper of a command listens only to the process that it guards the command for.
//!
//! A signal that was ignored when the process started stays ignored (`nohup`, and what shells do
//! to background jobs): it is none of those that [`listen`] gives out.

use std::io;

use rustix::process::{Pid, Signal};
use signal_hook::consts::signal as number;
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::origin::WithOrigin;
use signal_hook::low_level::siginfo::Cause;
use tokio::signal::unix::{SignalKind, signal};

/// The signals that people and supervisors send to say something; each ends a process that has no
/// use for it.
pub(super) const SPOKEN: [Signal; 6] = [
    Signal::TERM,
    Signal::INT,
    Signal::HUP,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
];

/// How many signals may wait until they are looked at; more are dropped, as the kernel does with
/// equal ones.
pub(super) const WAITING_MAX: usize = 64;

/// One signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Received {
    /// Which one.
    pub(super) signal: Signal,
    /// The process that sent it, where one did.
    pub(super) sender: Option<Pid>,
    /// Whether the kernel itself sent it: for these signals that is the terminal.
    pub(super) by_kernel: bool,
}

/// Hands each of `signals` to `sink` from now on, on a thread of its own.
pub(super) fn listen(
    signals: &[Signal],
    sink: impl Fn(Received) + Send + 'static,
) -> io::Result<()> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let heard = signals
        .iter()
        .map(|signal| signal.as_raw())
        // A process whose children are ignored can't wait for them.
        .filter(|&signal| signal == number::SIGCHLD || !is_ignored(&status, signal));
    let mut origins = SignalsInfo::<WithOrigin>::new(heard)?;
    let thread = std::thread::Builder::new().name("signals".to_owned());
    thread.spawn(move || {
        for origin in origins.forever() {
            if let Some(signal) = Signal::from_named_raw(origin.signal) {
                sink(Received {
                    signal,
                    sender: origin.process.and_then(|sender| Pid::from_raw(sender.pid)),
                    by_kernel: origin.cause == Cause::Kernel,
                });
            }
        }
    })?;
    Ok(())
}

/// Lets this process wait for its children also if whoever started it ignores theirs: that is
/// inherited, and the kernel then drops how a child ended together with the child.
pub(super) fn heed_children() -> io::Result<()> {
    // What is caught once stays caught.
    signal(SignalKind::child()).map(drop)
}

/// Whether the process whose `/proc/PID/status` this is ignores the signal.
fn is_ignored(status: &str, signal: i32) -> bool {
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_mask() {
        // nohup: SIGHUP is 1.
        let status = "Name:\tx\nSigBlk:\t0000000000000002\nSigIgn:\t0000000000000001\n";
        assert!(is_ignored(status, number::SIGHUP));
        assert!(!is_ignored(status, number::SIGINT));
        assert!(!is_ignored("", number::SIGHUP));
    }
}
