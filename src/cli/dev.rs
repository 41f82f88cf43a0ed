//! `ticketing dev`: a local cluster of server processes on loopback, for trying things out.
//!
//! The nodes are real: separate processes with data directories of their own, so that killing one
//! by hand shows what a cluster does. They end with this process, whatever way it ends.

use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use clap::Args;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use wire::{AuthToken, Decode, Reply, decode_challenge, decode_reply, digest};

use crate::cli::ask::Signals;
use crate::cli::signals::heed_children;
use crate::cli::{EXIT_FAILURE, EXIT_USAGE};
use crate::config::{ADMIN_PORT_OFFSET, PEER_PORT_OFFSET, SETTINGS, admin_address};

/// How long a node may take to stop by itself before it is killed: its own bound and a little.
const STOP_WITHIN: Duration = Duration::from_secs(12);

/// Distance between two attempts to reach a node.
const RETRY: Duration = Duration::from_millis(100);

/// How long one attempt to learn a node's view may take.
const ATTEMPT: Duration = Duration::from_secs(1);

/// Lines of a dead node's log that are shown.
const LAST_LINES: usize = 5;

/// Longest line accepted from a node while watching for the leader, in bytes.
const LINE_BYTES_MAX: u64 = 256;

/// The ports of a node, counted from its client port, with what each is for.
const PORTS: [(u16, &str); 3] = [
    (0, "clients"),
    (PEER_PORT_OFFSET, "peers"),
    (ADMIN_PORT_OFFSET, "the admin endpoint"),
];

/// The arguments of `dev`.
#[derive(Args, Debug)]
pub struct DevArgs {
    /// How many nodes: 1, 3, 5 or 7
    #[arg(long, default_value_t = 3)]
    nodes: u16,
    /// Client port of the first node; the others follow it; peers use client port + 1000, the admin
    /// endpoint client port + 2000
    #[arg(long, default_value_t = 5225)]
    port: u16,
    /// Where the nodes keep their data; without it a temporary directory that is removed at the end
    #[arg(long)]
    data_dir: Option<PathBuf>,
}

/// Runs the local cluster until Ctrl-C; returns the exit code.
pub fn run(args: &DevArgs) -> u8 {
    if !matches!(args.nodes, 1 | 3 | 5 | 7) {
        complain!("--nodes is \"{}\": it must be 1, 3, 5 or 7", args.nodes);
        return EXIT_USAGE;
    }
    let last = args.port.checked_add(args.nodes - 1);
    if args.port == 0
        || last
            .and_then(|port| port.checked_add(ADMIN_PORT_OFFSET))
            .is_none()
    {
        complain!(
            "--port is \"{}\": it must be 1 to {}",
            args.port,
            u16::MAX - ADMIN_PORT_OFFSET - (args.nodes - 1)
        );
        return EXIT_USAGE;
    }
    // One thread: the kernel ends the nodes when the thread that started them ends.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    match runtime.and_then(|runtime| runtime.block_on(cluster(args))) {
        Ok(()) => 0,
        Err(error) => {
            complain!("{error}");
            EXIT_FAILURE
        }
    }
}

/// Something that a person watching the cluster wants to know.
enum News {
    /// A node's process ended.
    Ended(usize, io::Result<ExitStatus>),
    /// A node named the leader.
    Leader(String),
}

async fn cluster(args: &DevArgs) -> io::Result<()> {
    let (dir, temporary) = match &args.data_dir {
        Some(dir) => (dir.clone(), false),
        None => (temporary_directory()?, true),
    };
    let outcome = run_nodes(args, &dir, temporary).await;
    if temporary {
        std::fs::remove_dir_all(&dir)?;
    }
    outcome
}

async fn run_nodes(args: &DevArgs, dir: &Path, temporary: bool) -> io::Result<()> {
    // Whatever asks it to end: Ctrl-C, a supervisor, the terminal's end.
    let mut signals = Signals::listen()?;
    heed_children()?;
    let addresses: Vec<String> = (0..args.nodes)
        .map(|node| format!("127.0.0.1:{}", args.port + node))
        .collect();
    check_ports(args)?;
    let (news_in, mut news) = mpsc::channel(16);
    let mut stops = Vec::new();
    let mut processes = BTreeMap::new();
    say!(
        "A cluster of {} on this machine, data in {}",
        args.nodes,
        dir.display()
    );
    for (number, (port, address)) in (args.port..).zip(&addresses).enumerate() {
        let child = start_node(port, &addresses, number, dir)?;
        let process = child.id().unwrap_or(0);
        let admin = admin_address(port).expect("that there is one was checked first");
        say!(
            "  node {}  {address}  process {process}  admin http://{admin}",
            number + 1
        );
        processes.insert(address.clone(), process);
        let (stop_in, stop) = mpsc::channel(1);
        stops.push(stop_in);
        tokio::spawn(guard(number, child, stop, news_in.clone()));
        tokio::spawn(watch(address.clone(), news_in.clone()));
    }
    let mut running = addresses.len();
    let mut leader = String::new();
    let mut outcome = Ok(());
    while running > 0 {
        tokio::select! {
            _ = signals.next() => break,
            Some(item) = news.recv() => match item {
                News::Leader(address) if address == leader => {}
                News::Leader(address) => {
                    // Only a node of this cluster is announced: another program may answer on a
                    // port that one of the nodes could not take.
                    let Some(process) = processes.get(&address) else { continue };
                    if leader.is_empty() { introduce(&addresses, temporary); }
                    say!("{address} leads (process {process})");
                    leader = address;
                }
                News::Ended(number, status) => {
                    running -= 1;
                    processes.remove(&addresses[number]);
                    report_end(number, &addresses[number], status, dir);
                    if leader.is_empty() {
                        outcome = Err(ended_early(number));
                        break;
                    }
                    if running == 0 {
                        outcome = Err(io::Error::other("all nodes have ended"));
                    }
                }
            }
        }
    }
    say!("stopping");
    drop(stops);
    while running > 0 {
        if let Some(News::Ended(..)) = news.recv().await {
            running -= 1;
        }
    }
    outcome
}

/// A node that ends before the cluster has a leader could not start: the reason is shown by then.
fn ended_early(number: usize) -> io::Error {
    io::Error::other(format!(
        "node {} ended before the cluster had a leader",
        number + 1
    ))
}

/// Refuses ports that another program listens on, before any node is started: the nodes that find
/// theirs taken would end one by one, while the program there is mistaken for them.
fn check_ports(args: &DevArgs) -> io::Result<()> {
    for port in args.port..args.port + args.nodes {
        for (offset, purpose) in PORTS {
            let port = port + offset;
            std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(|error| {
                let what = format!("port {port} ({purpose}) can't be used: {error}");
                io::Error::new(error.kind(), what)
            })?;
        }
    }
    Ok(())
}

/// What to try, once there is a leader.
fn introduce(addresses: &[String], temporary: bool) {
    say!("\nTake a lock from another shell:");
    say!(
        "  ticketing lock --addrs {} demo -- sh -c 'echo token $TICKETING_TOKEN'",
        addresses.join(",")
    );
    let fate = if temporary {
        " and removes the data"
    } else {
        ""
    };
    say!("Kill the leader's process and try again. Ctrl-C stops everything{fate}.\n");
}

fn start_node(port: u16, addresses: &[String], number: usize, dir: &Path) -> io::Result<Child> {
    let data = dir.join(format!("node-{}", number + 1));
    std::fs::create_dir_all(&data)?;
    let log = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(log_file(dir, number))?;
    let mut command = Command::new(std::env::current_exe()?);
    for setting in SETTINGS {
        command.env_remove(setting.env);
    }
    command
        .args(["serve", "--port", &port.to_string()])
        .args(["--parent", &std::process::id().to_string()])
        .args([
            "--cluster-peers",
            &addresses.join(","),
            "--cluster-self",
            &addresses[number],
        ])
        .arg("--data-dir")
        .arg(data)
        // A process group of its own: Ctrl-C at the terminal reaches this process alone, which
        // then stops the nodes in order.
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
}

fn log_file(dir: &Path, number: usize) -> PathBuf {
    dir.join(format!("node-{}.log", number + 1))
}

/// Waits for a node's end; when `stop` closes, asks it to end, and after a while makes it.
async fn guard(
    number: usize,
    mut child: Child,
    mut stop: mpsc::Receiver<()>,
    news: mpsc::Sender<News>,
) {
    let status = tokio::select! {
        status = child.wait() => status,
        _ = stop.recv() => {
            terminate_process(&child);
            match tokio::time::timeout(STOP_WITHIN, child.wait()).await {
                Ok(status) => status,
                Err(_) => match child.kill().await {
                    Ok(()) => child.wait().await,
                    Err(error) => Err(error),
                },
            }
        }
    };
    // The receiver is gone only when the whole command is ending.
    let _ = news.send(News::Ended(number, status)).await;
}

fn terminate_process(child: &Child) {
    let id = child.id().and_then(|id| i32::try_from(id).ok());
    if let Some(pid) = id.and_then(rustix::process::Pid::from_raw) {
        // It may have ended in this moment; the wait that follows sees it.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
}

fn report_end(number: usize, address: &str, status: io::Result<ExitStatus>, dir: &Path) {
    let how = match status {
        Ok(status) => status.to_string(),
        Err(error) => error.to_string(),
    };
    say!("node {} ({address}) has ended: {how}", number + 1);
    let log = log_file(dir, number);
    if let Ok(text) = std::fs::read_to_string(&log) {
        let lines: Vec<_> = text.lines().collect();
        for line in &lines[lines.len().saturating_sub(LAST_LINES)..] {
            say!("    {line}");
        }
        say!("    (all of it in {})", log.display());
    }
}

/// Listens to one node for who leads, for as long as the command runs.
async fn watch(address: String, news: mpsc::Sender<News>) {
    while !news.is_closed() {
        // A node that is not there (yet, or any more) is no news: its end is reported by `guard`.
        let _ = follow(&address, &news).await;
        tokio::time::sleep(RETRY).await;
    }
}

async fn follow(address: &str, news: &mpsc::Sender<News>) -> io::Result<()> {
    let mut stream = tokio::time::timeout(ATTEMPT, TcpStream::connect(address)).await??;
    let (read, mut write) = stream.split();
    let mut lines = BufReader::new(read);
    let challenge = tokio::time::timeout(ATTEMPT, next_line(&mut lines)).await??;
    let Decode::Complete(nonce, _) = decode_challenge(challenge.as_bytes()) else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    write
        .write_all(&digest(&AuthToken::default(), &nonce))
        .await?;
    write.write_all(b"\n").await?;
    loop {
        let line = next_line(&mut lines).await?;
        let Decode::Complete(Reply::Leader(leader), _) = decode_reply(line.as_bytes()) else {
            continue;
        };
        if news.send(News::Leader(leader)).await.is_err() {
            return Ok(());
        }
    }
}

/// The next line, newline included.
async fn next_line(lines: &mut (impl AsyncBufReadExt + Unpin)) -> io::Result<String> {
    let mut line = String::new();
    lines.take(LINE_BYTES_MAX).read_line(&mut line).await?;
    if line.ends_with('\n') {
        Ok(line)
    } else {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

/// A new one each time. Process ids come again, in a container at every start, and a `dev` that was
/// killed leaves its directory.
fn temporary_directory() -> io::Result<PathBuf> {
    let run = getrandom::u64().map_err(|error| io::Error::other(error.to_string()))?;
    let dir = std::env::temp_dir().join(format!("ticketing-dev-{run:016x}"));
    std::fs::create_dir(&dir)?;
    Ok(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_run_left_is_not_in_the_way_of_the_next() {
        let dirs = [(); 2].map(|()| temporary_directory().expect("it can be made"));
        assert_ne!(dirs[0], dirs[1]);
        for dir in dirs {
            std::fs::remove_dir(dir).expect("it is there, and empty");
        }
    }
}
