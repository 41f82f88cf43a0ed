//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::nemesis::Fault;
use crate::workload::Workload;

/// Breaks real clusters, records what clients saw, and judges it.
#[derive(Parser)]
#[command(name = "jepsen", disable_help_subcommand = true)]
pub(crate) struct CommandLine {
    #[command(subcommand)]
    pub(crate) command: Subcommands,
}

#[derive(Subcommand)]
pub(crate) enum Subcommands {
    /// Run workloads against a cluster under faults, and judge what came of it
    Run(RunArgs),
    /// Judge a stored history again
    Check(CheckArgs),
    /// Hold the packets of a netfilter queue back; started by `run`
    #[command(hide = true)]
    Delay(DelayArgs),
    /// Remove a run's containers when the run has ended; started by `run`
    #[command(hide = true)]
    Guard(GuardArgs),
}

/// How long and how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Suite {
    /// One cluster, every fault once, five minutes
    Ci,
    /// Cluster after cluster, with 3 and 5 nodes, TLS on and off
    Full,
}

/// What nodes run in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum HostsArg {
    /// Network namespaces, if this is root, else proxies
    Auto,
    /// Network namespaces of their own; needs root
    Namespaces,
    /// Containers of deploy/compose.yaml, three; needs root and a container engine
    Containers,
    /// Processes on loopback behind TCP proxies
    Proxies,
}

/// Whether clients use TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TlsArg {
    /// As the seed says
    Auto,
    On,
    Off,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct RunArgs {
    /// How long and how much
    #[arg(long, value_enum, default_value = "ci")]
    pub(crate) suite: Suite,
    /// How many nodes: 3 or 5; `full` alternates unless it is given
    #[arg(long, value_parser = ["3", "5"])]
    pub(crate) nodes: Option<String>,
    /// For how many minutes, 1 to 10000; 5 unless given
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=10_000), default_value = "5")]
    pub(crate) minutes: u64,
    /// Repeats a run as far as processes allow; random unless given
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Which faults; all unless given. `none`: no faults
    #[arg(long, value_delimiter = ',', value_parser = fault)]
    pub(crate) faults: Option<Vec<Option<Fault>>>,
    /// Which workload; all at once unless given
    #[arg(long, value_enum)]
    pub(crate) workload: Option<Workload>,
    /// What nodes run in
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) hosts: HostsArg,
    /// Whether clients use TLS
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) tls: TlsArg,
    /// The server's binary; built and found unless given
    #[arg(long)]
    pub(crate) server: Option<PathBuf>,
    /// The planted bug that the server is to have; it needs a binary that was built with them
    #[arg(long)]
    pub(crate) bug: Option<String>,
    /// Where histories and verdicts go; target/jepsen unless given
    #[arg(long)]
    pub(crate) out: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct CheckArgs {
    /// A history, as a run has left it
    pub(crate) file: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct DelayArgs {
    /// Number of the queue
    #[arg(long)]
    pub(crate) queue: u16,
    /// Let packets overtake each other instead of delaying all
    #[arg(long)]
    pub(crate) reorder: bool,
}

#[derive(Args, Debug)]
pub(crate) struct GuardArgs {
    /// The run's folder
    #[arg(long)]
    pub(crate) dir: PathBuf,
}

/// A fault by name; `None` for `none`.
fn fault(name: &str) -> Result<Option<Fault>, String> {
    if name == "none" {
        return Ok(None);
    }
    Fault::from_str(name, false).map(Some).map_err(|_| {
        let known: Vec<String> = Fault::value_variants().iter().map(|f| f.name()).collect();
        format!("no such fault; there are none and {}", known.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<RunArgs, String> {
        let words = std::iter::once("jepsen").chain(line.split(' '));
        match CommandLine::try_parse_from(words) {
            Ok(CommandLine {
                command: Subcommands::Run(args),
            }) => Ok(args),
            Ok(_) => Err("another command".into()),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn faults_are_a_list_by_name() {
        let args = parse("run --faults kill,partition-one-way --nodes 5 --seed 7").unwrap();
        let faults = vec![Some(Fault::Kill), Some(Fault::PartitionOneWay)];
        assert_eq!(args.faults, Some(faults));
        assert_eq!((args.nodes.as_deref(), args.seed), (Some("5"), Some(7)));
    }

    #[test]
    fn a_bad_value_is_named_with_its_flag() {
        let error = parse("run --faults flood").unwrap_err();
        assert!(
            error.contains("flood") && error.contains("--faults"),
            "{error}"
        );
        let error = parse("run --nodes 4").unwrap_err();
        assert!(error.contains('4') && error.contains("--nodes"), "{error}");
    }
}
