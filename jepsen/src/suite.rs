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
use crate::hosts::{Hosts, INSIDE, Namespaces, Proxies, enter};
use crate::nemesis::Fault;
use crate::report::{Judgement, Verdict};
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
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Error::of("starting", error))?;
    if args.hosts == HostsArg::Namespaces && std::env::var_os(INSIDE).is_none() {
        return runtime.block_on(outside(&args));
    }
    runtime.block_on(rounds(&args))
}

/// Waits for the same run inside namespaces.
async fn outside(args: &RunArgs) -> Result<Judgement, Error> {
    let mut command = enter(arguments(args).into_iter())?;
    let mut inside = command
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| Error::of("entering namespaces", error))?;
    let mut stopped = interruption()?;
    let status = tokio::select! {
        status = inside.wait() => status.map_err(|error| Error::of("waiting", error))?,
        _ = stopped.wait_for(|stopped| *stopped) => {
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

/// The command line that repeats a run.
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

/// Run after run, until the time is over or a promise is broken.
async fn rounds(args: &RunArgs) -> Result<Judgement, Error> {
    let interrupted = interruption()?;
    let until = Instant::now() + Duration::from_secs(60 * args.minutes);
    let mut worst = Judgement::Clean;
    for round in 0.. {
        let left = until.saturating_duration_since(Instant::now());
        if round > 0 && (args.suite == Suite::Ci || left < Duration::from_secs(60)) {
            break;
        }
        let time = match args.suite {
            Suite::Ci => left,
            Suite::Full => left.min(Duration::from_secs(60 * ROUND_MINUTES)),
        };
        let judgement = one(args, round, time, interrupted.clone()).await?;
        worst = worst.max(judgement);
        if judgement == Judgement::Violation {
            break;
        }
    }
    Ok(worst)
}

async fn one(
    args: &RunArgs,
    round: u64,
    time: Duration,
    interrupted: watch::Receiver<bool>,
) -> Result<Judgement, Error> {
    let seed = args.seed.unwrap_or(0).wrapping_add(round);
    let nodes: u16 = match args.nodes.as_deref() {
        Some("5") => 5,
        Some(_) => 3,
        None if args.suite == Suite::Full && round % 2 == 1 => 5,
        None => 3,
    };
    let hosts = match args.hosts {
        HostsArg::Proxies => Hosts::Proxies(Proxies::create(nodes.into()).await?),
        _ => Hosts::Namespaces(Namespaces::create(nodes.into()).await?),
    };
    let faults: Vec<Fault> = match &args.faults {
        Some(faults) => faults.iter().copied().flatten().collect(),
        None => Fault::value_variants().to_vec(),
    };
    let (faults, impossible): (Vec<Fault>, Vec<Fault>) = faults
        .into_iter()
        .partition(|fault| fault.is_possible(&hosts));
    if !impossible.is_empty() {
        let names: Vec<String> = impossible.iter().map(|fault| fault.name()).collect();
        println!("not possible here: {}", names.join(", "));
    }
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
            repeat: repeat(args, seed, nodes),
        },
        time,
        faults,
        workloads,
        server: args.server.clone().unwrap_or_default(),
        bug: args.bug.clone(),
    };
    let out = args
        .out
        .clone()
        .unwrap_or_else(|| PathBuf::from("target/jepsen"));
    let dir = out.join(format!("run-{seed}"));
    prepare(&dir)?;
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

/// The command that repeats one run of a series.
fn repeat(args: &RunArgs, seed: u64, nodes: u16) -> String {
    let mut one = args.clone();
    one.seed = Some(seed);
    one.nodes = Some(nodes.to_string());
    one.suite = Suite::Ci;
    one.minutes = args.minutes.min(ROUND_MINUTES);
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
