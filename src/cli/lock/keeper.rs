//! The process between `ticketing lock` and its command: it guards the command and nothing else.
//!
//! Faults answered: `ticketing lock` is killed (`kill -9`, the OOM killer), stopped (Ctrl-Z, a
//! debugger), or stuck in its network, while the command works on. Who has to end a command must not
//! depend on any of that, so it is done by a process of its own that knows the end of the lease (a
//! grant is never renewed) and needs no network: it is the command's parent, and the reaper of all
//! that the command starts ([`family`](super::family)).
//!
//! - The kernel tells it when its own parent is gone (`PR_SET_PDEATHSIG`); it then kills everything.
//! - It is in a process group of its own, so that neither the terminal's Ctrl-Z nor a signal to the
//!   group of `ticketing lock` reaches it, and listens to signals of its parent only.
//! - It never writes to the terminal, which could stop it; what there is to say its parent says.
//! - If it is itself killed, the kernel kills the command's process ([`launch`](super::launch)), and
//!   its parent adopts and kills the others.
//!
//! What does not hold: when both are killed in the same moment only the command's process is
//! certain to end, not what it has started. And both can be stopped at once.

use std::process::Command;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal, setpgid};

use super::family::{self, Family};
use super::launch::LaunchArgs;
use super::moment::Moment;
use super::plan::{OnLeaseEnd, Plan, parse_seconds};
use super::watch::{Effect, Event, Watch};
use super::{CommandArgs, own_binary};
use crate::cli::EXIT_FAILURE;
use crate::cli::signals::{Received, SPOKEN, WAITING_MAX, listen};

/// The subcommand's name.
pub(in crate::cli) const NAME: &str = "lock-keeper";

/// How often the keeper looks at the clock at the least. Its timer stands still while the machine
/// sleeps and the clock does not: this is how late a lease's end is seen after waking.
const LOOK: Duration = Duration::from_millis(100);

/// What the keeper is told.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct KeeperArgs {
    /// The process that holds the lock
    #[arg(long)]
    parent: i32,
    /// When the lease ends
    #[arg(long)]
    lease_end: Moment,
    /// From TERM to KILL
    #[arg(long, value_parser = parse_seconds)]
    kill_after: Duration,
    /// What happens to the command at the end of the lease
    #[arg(long)]
    on_lease_end: OnLeaseEnd,
    /// Whether the command gets a process group of its own
    #[arg(long)]
    own_group: bool,
    #[command(flatten)]
    command: CommandArgs,
}

impl KeeperArgs {
    /// The command line of a keeper for the calling process.
    pub(super) fn new(
        plan: Plan,
        lease_end: Moment,
        own_group: bool,
        command: &CommandArgs,
    ) -> Self {
        Self {
            parent: getpid().as_raw_nonzero().get(),
            lease_end,
            kill_after: plan.kill_after,
            on_lease_end: plan.on_lease_end,
            own_group,
            command: command.clone(),
        }
    }

    /// The process to start.
    pub(super) fn into_process(self) -> Command {
        let mut process = own_binary("ticketing-lock-keeper");
        process
            .arg(NAME)
            .args(["--parent", &self.parent.to_string()])
            .args(["--lease-end", &self.lease_end.to_string()])
            .args(["--kill-after", &self.kill_after.as_secs_f64().to_string()])
            .args(["--on-lease-end", self.on_lease_end.name()]);
        if self.own_group {
            process.arg("--own-group");
        }
        process.arg("--").args(&self.command.command);
        process
    }

    fn plan(&self) -> Plan {
        Plan {
            on_lease_end: self.on_lease_end,
            kill_after: self.kill_after,
        }
    }
}

/// Starts the command and guards it to its end; returns the exit code.
pub(crate) fn run(args: &KeeperArgs) -> u8 {
    // A keeper that fails must end as if it had been killed: then its parent ends the command. The
    // exit code of a panic could as well be the command's.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::abort();
    }));
    match Keeper::start(args) {
        Ok(mut keeper) => keeper.guard(),
        Err(error) => {
            complain!("the command can't be guarded: {error}");
            EXIT_FAILURE
        }
    }
}

struct Keeper {
    parent: Option<Pid>,
    family: Family,
    watch: Watch,
    began: Moment,
    signals: Receiver<Received>,
}

impl Keeper {
    fn start(args: &KeeperArgs) -> std::io::Result<Self> {
        // The signal's only purpose is to wake this process, and the one that can't be ignored by
        // inheritance is the one that children send. Whether the parent is there is asked anew each
        // time.
        set_parent_process_death_signal(Some(Signal::CHILD))?;
        let (received, signals) = sync_channel(WAITING_MAX);
        let heard: Vec<_> = SPOKEN.into_iter().chain([Signal::CHILD]).collect();
        listen(&heard, move |signal| {
            // A full queue holds what the same signals would say.
            let _ = received.try_send(signal);
        })?;
        let began = Moment::now();
        let watch = Watch::new(&args.plan(), args.lease_end.left());
        let launch = LaunchArgs::new(args.plan(), args.lease_end, &args.command);
        let family = Family::start(launch.into_process(), args.own_group)?;
        // Only now, since the command must be in the group of `ticketing lock` from its first moment
        // where it has none of its own: else a Ctrl-C might miss it.
        setpgid(None, None)?;
        Ok(Self {
            parent: Pid::from_raw(args.parent),
            family,
            watch,
            began,
            signals,
        })
    }

    fn guard(&mut self) -> u8 {
        loop {
            if let Some(code) = self.look() {
                return code;
            }
            let event = match self.signals.recv_timeout(LOOK) {
                // Signals of others are for the command only if its holder says so.
                Ok(received) if received.signal != Signal::CHILD => {
                    (received.sender == self.parent).then_some(Event::Signal(received.signal))
                }
                Ok(_) | Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => {
                    thread::sleep(LOOK);
                    None
                }
            };
            if let Some(event) = event
                && let Some(code) = self.happened(event)
            {
                return code;
            }
        }
    }

    /// Tells the watch all that can be seen; the exit code at the end.
    fn look(&mut self) -> Option<u8> {
        if getppid() != self.parent
            && let Some(code) = self.happened(Event::Orphaned)
        {
            return Some(code);
        }
        if let Some(code) = self.family.reap() {
            self.happened(Event::Ended(code));
        }
        if self.watch.has_ended() {
            let rest = Event::Rest(self.family.has_members());
            if let Some(code) = self.happened(rest) {
                return Some(code);
            }
        }
        self.happened(Event::Time)
    }

    /// Decides about one event and does what is decided; the exit code at the end.
    fn happened(&mut self, event: Event) -> Option<u8> {
        match self.watch.step(self.began.elapsed(), event)? {
            Effect::PassOn(signal) => {
                self.family.signal(signal);
                None
            }
            Effect::Stop => {
                self.family.signal(Signal::TERM);
                // A stopped process can't act on a signal before it goes on.
                self.family.signal(Signal::CONT);
                None
            }
            Effect::KillAll(code) => {
                family::kill_descendants();
                Some(code)
            }
            Effect::KillRest(code) => {
                self.family.kill_members();
                Some(code)
            }
            Effect::Exit(code) => Some(code),
        }
    }
}
