//! `jepsen run`: from the command line to one or more runs and one judgement.
//!
//! With namespaces the program starts itself anew inside of them ([`crate::hosts::enter`]); the
//! process outside only waits.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::args::{HostsArg, RunArgs, Suite, TlsArg};
use crate::cluster::ELECTION_MS;
use crate::error::Error;
use crate::history::{History, RunInfo};
use crate::hosts::{CONTAINERS, Containers, Guard, Hosts, INSIDE, Namespaces, Proxies, enter};
use crate::nemesis::Fault;
use crate::report::{Counts, Judgement, Verdict};
use crate::run::{Plan, run as run_plan};
use crate::workload::Workload;

/// The longest run with one cluster, in minutes: `full` goes on with another one.
const ROUND_MINUTES: u64 = 10;

/// Does what the command line says.
pub(crate) fn run(args: &RunArgs) -> Result<Judgement, Error> {
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..1 << 32));
    let mut args = args.clone();
    args.seed = Some(seed);
    args.server = Some(match &args.server {
        Some(server) if server.exists() => server.clone(),
        Some(server) => {
            let server = server.display();
            return Err(Error(format!("--server {server}: there is no such file")));
        }
        None => build_server()?,
    });
    if args.hosts == HostsArg::Auto {
        let root = rustix::process::geteuid().is_root();
        args.hosts = if root {
            HostsArg::Namespaces
        } else {
            HostsArg::Proxies
        };
    }
    if args.hosts == HostsArg::Containers {
        args.nodes = Some(containers(&args)?);
    }
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Error::of("starting", error))?;
    runtime.block_on(async {
        let interrupted = interruption()?;
        if std::env::var_os(INSIDE).is_some() {
            one(&args, interrupted).await
        } else {
            rounds(&args, interrupted).await
        }
    })
}

/// How many nodes there are in containers, if they can be had.
fn containers(args: &RunArgs) -> Result<String, Error> {
    let nodes = CONTAINERS.to_string();
    match &args.nodes {
        Some(asked) if *asked != nodes => Err(Error(format!(
            "--hosts containers: deploy/compose.yaml has {nodes} nodes, not {asked}"
        ))),
        _ if !rustix::process::geteuid().is_root() => Err(Error(
            "--hosts containers needs root: rules for packets are put where containers live".into(),
        )),
        _ => Ok(nodes),
    }
}

/// Waits for the same run inside namespaces, which `command` enters.
async fn outside(
    mut command: tokio::process::Command,
    mut interrupted: watch::Receiver<bool>,
) -> Result<Judgement, Error> {
    let mut inside = command
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| Error::of("entering namespaces", error))?;
    let status = tokio::select! {
        status = inside.wait() => status.map_err(|error| Error::of("waiting", error))?,
        _ = interrupted.wait_for(|interrupted| *interrupted) => {
            // Everything inside ends with it.
            let _ = inside.kill().await;
            return Err(Error("interrupted".into()));
        }
    };
    match status.code() {
        Some(0) => Ok(Judgement::Clean),
        Some(1) => Ok(Judgement::Violation),
        _ => Ok(Judgement::Invalid),
    }
}

/// The command line of a run.
fn arguments(args: &RunArgs) -> Vec<String> {
    let name = |value: clap::builder::PossibleValue| value.get_name().to_owned();
    let mut words = vec!["run".to_owned()];
    let mut add = |flag: &str, value: Option<String>| {
        words.extend(
            value
                .into_iter()
                .flat_map(|value| [format!("--{flag}"), value]),
        );
    };
    add("suite", args.suite.to_possible_value().map(name));
    add("nodes", args.nodes.clone());
    add("minutes", Some(args.minutes.to_string()));
    add("seed", args.seed.map(|seed| seed.to_string()));
    add(
        "faults",
        args.faults.as_ref().map(|faults| {
            let names = faults
                .iter()
                .map(|fault| fault.map_or("none".to_owned(), Fault::name));
            names.collect::<Vec<_>>().join(",")
        }),
    );
    add("workload", args.workload.map(Workload::name));
    add("hosts", args.hosts.to_possible_value().map(name));
    add("tls", args.tls.to_possible_value().map(name));
    add(
        "server",
        args.server.as_ref().map(|path| path.display().to_string()),
    );
    add("bug", args.bug.clone());
    add(
        "out",
        args.out.as_ref().map(|path| path.display().to_string()),
    );
    words
}

/// Becomes true when this process is asked to end.
fn interruption() -> Result<watch::Receiver<bool>, Error> {
    let failed = |error| Error::of("listening to signals", error);
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let (sender, receiver) = watch::channel(false);
    tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        sender.send_replace(true);
    });
    Ok(receiver)
}

/// Run after run, each with hosts of its own, until the time is over or a promise is broken.
async fn rounds(args: &RunArgs, interrupted: watch::Receiver<bool>) -> Result<Judgement, Error> {
    let began = Instant::now();
    let mut worst = Judgement::Clean;
    let mut all = Counts::default();
    for round in 0.. {
        let left = args.minutes.saturating_sub(began.elapsed().as_secs() / 60);
        if round > 0 && (args.suite == Suite::Ci || left == 0) {
            break;
        }
        let args = round_of(args, round, left);
        let dir = folder(&args);
        prepare(&dir)?;
        let guard = match args.hosts {
            HostsArg::Containers => Some(Guard::start(&dir)?),
            _ => None,
        };
        let done = match enter(args.hosts, &arguments(&args))? {
            Some(command) => outside(command, interrupted.clone()).await,
            None => one(&args, interrupted.clone()).await,
        };
        if let Some(guard) = guard
            && let Err(error) = guard.finish().await
        {
            eprintln!("jepsen: {error}");
        }
        let judgement = match done {
            Ok(judgement) => judgement,
            Err(error) if *interrupted.borrow() => return Err(error),
            Err(error) => {
                eprintln!("jepsen: {error}");
                Judgement::Invalid
            }
        };
        worst = worst.max(judgement);
        if let Some(verdict) = Verdict::read(&dir) {
            all.add(&verdict.counts);
        }
        if round > 0 {
            println!("{} runs: {}", round + 1, all.text());
        }
        if judgement == Judgement::Violation {
            break;
        }
    }
    Ok(worst)
}

/// One run of a series, with `left` minutes left for all that follow.
fn round_of(args: &RunArgs, round: u64, left: u64) -> RunArgs {
    let nodes = match args.suite {
        Suite::Full if round % 2 == 1 => "5",
        _ => "3",
    };
    RunArgs {
        suite: Suite::Ci,
        seed: args.seed.map(|seed| seed.wrapping_add(round)),
        nodes: Some(args.nodes.clone().unwrap_or_else(|| nodes.to_owned())),
        minutes: match args.suite {
            Suite::Ci => args.minutes,
            Suite::Full => left.min(ROUND_MINUTES),
        },
        ..args.clone()
    }
}

/// Where a run leaves what came of it.
fn folder(args: &RunArgs) -> PathBuf {
    let out = args.out.as_deref().unwrap_or(Path::new("target/jepsen"));
    out.join(format!("run-{}", args.seed.unwrap_or(0)))
}

/// The faults of a run. What was asked for by name has to be possible; of all, what is not is said
/// and left out.
fn chosen(
    asked: Option<&[Option<Fault>]>,
    is_possible: impl Fn(Fault) -> bool,
) -> Result<Vec<Fault>, Error> {
    let wanted: Vec<Fault> = match asked {
        Some(asked) => asked.iter().copied().flatten().collect(),
        None => Fault::value_variants().to_vec(),
    };
    let (faults, impossible): (Vec<Fault>, Vec<Fault>) =
        wanted.into_iter().partition(|fault| is_possible(*fault));
    if impossible.is_empty() {
        return Ok(faults);
    }
    let names: Vec<String> = impossible.iter().map(|fault| fault.name()).collect();
    let said = format!("not possible here: {}", names.join(", "));
    if asked.is_some() {
        return Err(Error::of("--faults", said));
    }
    println!("{said}");
    Ok(faults)
}

/// One run, where its hosts can be made.
async fn one(args: &RunArgs, interrupted: watch::Receiver<bool>) -> Result<Judgement, Error> {
    let seed = args.seed.unwrap_or(0);
    let nodes: u16 = match args.nodes.as_deref() {
        Some("5") => 5,
        _ => 3,
    };
    let hosts = match args.hosts {
        HostsArg::Proxies => Hosts::Proxies(Proxies::create(nodes.into()).await?),
        HostsArg::Containers => Hosts::Containers(Containers::create().await?),
        _ => Hosts::Namespaces(Namespaces::create(nodes.into()).await?),
    };
    let faults = chosen(args.faults.as_deref(), |fault| fault.is_possible(&hosts))?;
    let workloads = match args.workload {
        Some(workload) => vec![workload],
        None => Workload::value_variants().to_vec(),
    };
    let plan = Plan {
        info: RunInfo {
            seed,
            nodes,
            tls: match args.tls {
                TlsArg::On => true,
                TlsArg::Off => false,
                TlsArg::Auto => (seed / 2) % 2 == 1,
            },
            hosts: hosts.name().into(),
            election_ms: ELECTION_MS,
            faults: faults.iter().map(|fault| fault.name()).collect(),
            workloads: workloads.iter().map(|workload| workload.name()).collect(),
            repeat: repeat(args),
        },
        time: Duration::from_secs(60 * args.minutes),
        faults,
        workloads,
        server: args.server.clone().unwrap_or_default(),
        bug: args.bug.clone(),
    };
    let dir = folder(args);
    println!(
        "seed {seed}, {nodes} nodes, {}; in {}",
        plan.info.hosts,
        dir.display()
    );
    let file = run_plan(&plan, hosts, &dir, interrupted).await?;
    let history = History::read(&file).map_err(|error| Error(error.to_string()))?;
    let verdict = Verdict::of(&history);
    verdict.write(&history, &dir)?;
    print!("{}", verdict.text());
    Ok(verdict.judgement)
}

/// The command that repeats a run.
fn repeat(args: &RunArgs) -> String {
    let mut one = args.clone();
    // Another machine builds its own.
    if one.bug.is_none() {
        one.server = None;
    }
    format!(
        "cargo run --release -p jepsen -- {}",
        arguments(&one).join(" ")
    )
}

/// An empty directory: what an earlier run with the same seed has left is not mixed up with this
/// one.
fn prepare(dir: &Path) -> Result<(), Error> {
    let failed = |error| Error::of(format!("making {}", dir.display()), error);
    if dir.exists() {
        std::fs::remove_dir_all(dir).map_err(failed)?;
    }
    std::fs::create_dir_all(dir).map_err(failed)
}

/// Builds the server with the profile that this program was built with, and finds it beside this
/// program.
fn build_server() -> Result<PathBuf, Error> {
    let own = std::env::current_exe().map_err(|error| Error::of("finding this program", error))?;
    let dir = own.parent().unwrap_or(Path::new("."));
    let server = dir.join("ticketing");
    if let Some(cargo) = std::env::var_os("CARGO") {
        let mut command = Command::new(cargo);
        command.args(["build", "--package", "ticketing", "--bin", "ticketing"]);
        if dir.ends_with("release") {
            command.arg("--release");
        }
        let built = command
            .status()
            .map_err(|error| Error::of("building the server", error))?;
        if !built.success() {
            return Err(Error(format!("building the server: {built}")));
        }
    }
    if !server.exists() {
        let server = server.display();
        return Err(Error(format!(
            "there is no {server}: build it, or say --server FILE"
        )));
    }
    Ok(server)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{CommandLine, Subcommands};

    fn parse(words: &[&str]) -> RunArgs {
        let words = ["jepsen", "run"].iter().chain(words);
        match CommandLine::parse_from(words).command {
            Subcommands::Run(args) => args,
            _ => panic!("another command"),
        }
    }

    #[test]
    fn a_series_alternates_and_every_run_of_it_can_be_repeated_alone() {
        let args = parse(&["--suite", "full", "--seed", "7", "--minutes", "25"]);
        let told = |round, left| {
            let one = round_of(&args, round, left);
            assert_eq!(one.suite, Suite::Ci);
            (one.seed, one.nodes.unwrap_or_default(), one.minutes)
        };
        assert_eq!(told(0, 25), (Some(7), "3".into(), 10));
        assert_eq!(told(1, 14), (Some(8), "5".into(), 10));
        assert_eq!(told(2, 3), (Some(9), "3".into(), 3));
        let command = repeat(&round_of(&args, 1, 14));
        assert!(
            command.ends_with(
                "run --suite ci --nodes 5 --minutes 10 --seed 8 --hosts auto --tls auto"
            ),
            "{command}"
        );
    }

    #[test]
    fn there_are_as_many_containers_as_the_compose_file_has() {
        let error = containers(&parse(&["--nodes", "5"])).unwrap_err();
        assert!(error.to_string().contains("3 nodes, not 5"), "{error}");
    }

    #[test]
    fn a_fault_that_was_asked_for_has_to_be_possible() {
        let is_possible = |fault| fault != Fault::ClockJump;
        let asked = parse(&["--faults", "kill,clock-jump"]).faults;
        let error = chosen(asked.as_deref(), is_possible).unwrap_err();
        assert_eq!(error.to_string(), "--faults: not possible here: clock-jump");
        let asked = parse(&["--faults", "kill"]).faults;
        assert_eq!(
            chosen(asked.as_deref(), is_possible).unwrap(),
            [Fault::Kill]
        );
        let all = chosen(None, is_possible).unwrap();
        assert_eq!(all.len(), Fault::value_variants().len() - 1);
        let none = parse(&["--faults", "none"]).faults;
        assert_eq!(chosen(none.as_deref(), is_possible).unwrap(), []);
    }

    #[test]
    fn one_run_is_as_it_was_asked_for() {
        let args = parse(&["--nodes", "5", "--seed", "7", "--minutes", "20"]);
        let one = round_of(&args, 0, 20);
        assert_eq!(arguments(&one), arguments(&args));
    }
}
