//! The processes of one command: signalled together, and seen to be gone.
//!
//! Fault answered: a part of the command that nobody counted, at work after the lock was given to
//! another. A process group is not enough: `timeout` and shells with job control make groups of
//! their own. So this process is the *reaper of its descendants* (`PR_SET_CHILD_SUBREAPER`): whoever
//! among them loses its parent becomes our child, however it was started, and nothing of the command
//! is gone from sight before it has ended. That all has ended is not read from a table but said by
//! the kernel: no child is left to wait for.
//!
//! Killing goes from the top: our children are killed and waited for, by which theirs become ours,
//! and so on until the kernel has no child to report. A killed process starts no other any more, so
//! this ends. There is no bound on the rounds in which something was killed: giving up would mean to
//! report an end that is none.
//!
//! What does not hold: a process that changed its user (sudo) can't be signalled by ours unless we
//! are root; it is left out, and has to end by itself. One that is stuck in the kernel (a dead
//! network file system) ends when the kernel lets it, and is waited for.

use std::io;
use std::process::Command;
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, getpid, kill_process,
    kill_process_group, set_child_subreaper, wait, waitid,
};

use super::table::{self, Process};
use crate::cli::EXIT_FAILURE;
use crate::cli::exit::signal_code;

/// Distance between two looks at the children that are being killed.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// How many readings of the table in a row must show none: a process whose parent ends while the
/// table is read is in that one reading nobody's child.
const LOOKS: usize = 2;

/// Makes this process the one that its descendants come to when they lose their parent.
pub(super) fn adopt_descendants() -> io::Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// The processes of a command that this process started.
pub(super) struct Family {
    command: Pid,
    /// Whether the command leads a process group of its own.
    leads_group: bool,
    /// Whether the command's process was not seen to end yet: until then its id is taken.
    runs: bool,
    /// None if it was begun outside this PID namespace, from where its id can't be seen.
    session: Option<Pid>,
}

impl Family {
    /// Starts the command, in a process group of its own or in ours. Nothing of ours may wait for
    /// children elsewhere.
    pub(super) fn start(mut command: Command, leads_group: bool) -> io::Result<Self> {
        use std::os::unix::process::CommandExt as _;
        adopt_descendants()?;
        // Whatever can't be read now could not be read when it is needed. The table tells our session
        // also where its id is 0, which is none for the kernel's own question about it (getsid).
        let me = getpid();
        let all = table::read()?;
        let own = all.iter().find(|process| process.pid == me);
        let session = own.ok_or(io::ErrorKind::NotFound)?.session;
        if leads_group {
            command.process_group(0);
        }
        Ok(Self {
            command: Pid::from_child(&command.spawn()?),
            leads_group,
            runs: true,
            session,
        })
    }

    /// Waits for all children that have ended. The code of the command's process if it is among
    /// them.
    pub(super) fn reap(&mut self) -> Option<u8> {
        let mut code = None;
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if pid == self.command && self.runs {
                self.runs = false;
                code = Some(code_of(status));
            }
        }
        code
    }

    /// Sends a signal to all processes of the command that are in its session. To its group in one
    /// step, by which none that is just being started escapes; to the others one by one.
    pub(super) fn signal(&self, signal: Signal) {
        let group = (self.leads_group && self.runs).then_some(self.command);
        if let Some(group) = group {
            // Nothing is lost when there is none to receive it.
            let _ = kill_process_group(group, signal);
        }
        for process in self.members() {
            if group.is_none() || process.group != group {
                let _ = kill_process(process.pid, signal);
            }
        }
    }

    /// Whether anything of the command runs in its session.
    pub(super) fn has_members(&self) -> bool {
        // Without any child there is nothing to look for, which is what mostly happens.
        has_children() && (0..LOOKS).any(|_| !self.members().is_empty())
    }

    /// Kills what runs in the command's session and waits for it.
    pub(super) fn kill_members(&self) {
        let session = self.session;
        kill_children(|process| process.session == session);
    }

    fn members(&self) -> Vec<Process> {
        let mut members = table::descendants(&table::read().unwrap_or_default(), getpid());
        members.retain(|process| process.session == self.session && !process.is_zombie);
        members
    }
}

/// Kills all that descends from this process and waits for it.
pub(super) fn kill_descendants() {
    kill_children(|_| true);
}

/// Kills children, and what becomes one by that, as long as there are such.
fn kill_children(which: impl Fn(&Process) -> bool) {
    let mut looks = 0;
    while has_children() && looks < LOOKS {
        let me = Some(getpid());
        let all = table::read().unwrap_or_default();
        let chosen = all
            .iter()
            .filter(|process| process.parent == me && which(process));
        let killed = chosen.filter(|process| kill_process(process.pid, Signal::KILL).is_ok());
        looks = if killed.count() > 0 { 0 } else { looks + 1 };
        thread::sleep(LOOK_AGAIN);
        while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
    }
}

fn has_children() -> bool {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(waitid(WaitId::All, look), Err(Errno::CHILD))
}

fn code_of(status: WaitStatus) -> u8 {
    let code = status
        .exit_status()
        .and_then(|code| u8::try_from(code).ok());
    code.unwrap_or_else(|| {
        status
            .terminating_signal()
            .map_or(EXIT_FAILURE, signal_code)
    })
}
