//! `ticketing serve`: one node, in the foreground.

use std::io::IsTerminal;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use tracing_subscriber::EnvFilter;

use crate::cli::{EXIT_FAILURE, EXIT_USAGE};
use crate::config::{Config, LogFormat, SETTINGS, Setting, Source};
use crate::node;

/// Worker threads of the front end. Raft and the disk have threads of their own.
const WORKER_THREADS: usize = 2;

/// Log level when `RUST_LOG` says nothing. The libraries speak only when a person should look.
const DEFAULT_LOG: &str = "info,openraft=error,sled=warn";

/// The arguments of `serve`, made from the table of settings.
#[derive(Debug)]
pub struct ServeArgs {
    flags: Vec<(&'static str, String)>,
    parent: Option<u32>,
}

impl Args for ServeArgs {
    fn augment_args(command: Command) -> Command {
        let parent = Arg::new("parent")
            .long("parent")
            .hide(true)
            .value_parser(clap::value_parser!(u32))
            .help("Stop when this parent process ends");
        SETTINGS
            .iter()
            .fold(command, |command, setting| command.arg(argument(setting)))
            .arg(parent)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ServeArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let flags = SETTINGS
            .iter()
            .filter_map(|s| Some((s.flag, matches.get_one::<String>(s.flag)?.clone())))
            .collect();
        Ok(Self {
            flags,
            parent: matches.get_one::<u32>("parent").copied(),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn argument(setting: &Setting) -> Arg {
    let default = match setting.default {
        "" => String::new(),
        default => format!(", default {default}"),
    };
    let help = format!("{} [env {}{default}]", setting.help, setting.env);
    let arg = Arg::new(setting.flag)
        .long(setting.flag)
        .help(help)
        .action(ArgAction::Set);
    if setting.value.is_empty() {
        arg.num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true")
            .value_name("BOOL")
    } else {
        arg.value_name(setting.value)
    }
}

impl ServeArgs {
    fn lookup(&self, setting: &Setting) -> Option<(Source, String)> {
        if let Some((_, value)) = self.flags.iter().find(|(flag, _)| *flag == setting.flag) {
            return Some((Source::Flag, value.clone()));
        }
        let value = std::env::var(setting.env)
            .ok()
            .filter(|value| !value.is_empty())?;
        Some((Source::Environment, value))
    }
}

/// Runs a node until it is told to stop; returns the exit code.
pub fn run(args: &ServeArgs) -> u8 {
    let config = match Config::resolve(&|setting| args.lookup(setting)) {
        Ok(config) => config,
        Err(error) => {
            complain!("{error}");
            return EXIT_USAGE;
        }
    };
    if let Some(parent) = args.parent
        && !follow_parent(parent)
    {
        return EXIT_FAILURE;
    }
    start_log(config.log_format);
    raise_file_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKER_THREADS)
        .enable_all()
        .build();
    let outcome = match runtime {
        Ok(runtime) => runtime.block_on(node::run(config)),
        Err(error) => Err(node::Error::Runtime(error)),
    };
    match outcome {
        Ok(()) => 0,
        Err(error) => {
            complain!("{error}");
            EXIT_FAILURE
        }
    }
}

/// Asks the kernel to end this process with its parent (a `dev` that was killed must not leave
/// servers behind). False when the parent is gone already.
fn follow_parent(parent: u32) -> bool {
    use rustix::process::{Signal, getppid, set_parent_process_death_signal};
    let asked = set_parent_process_death_signal(Some(Signal::TERM));
    let now = getppid().map(|pid| pid.as_raw_nonzero().get());
    asked.is_ok() && now == i32::try_from(parent).ok()
}

fn start_log(format: LogFormat) {
    // Of an empty variable the filter would make silence.
    let given = std::env::var(EnvFilter::DEFAULT_ENV).ok();
    let given = given.filter(|filter| !filter.is_empty());
    let filter = given.and_then(|filter| EnvFilter::try_new(filter).ok());
    let filter = filter.unwrap_or_else(|| EnvFilter::new(DEFAULT_LOG));
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        // A line that can't be written (a full disk, a reader that went away) is lost. To say so there
        // as well would panic, in the middle of whatever there is a line about.
        .log_internal_errors(false);
    match format {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().init(),
    }
}

/// Connections are file descriptors, and the usual soft limit of 1,024 is below what can be
/// configured; the hard limit is the operator's word.
fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, limit = limit.current, "the limit on open files stays as it is");
    }
}
