//! One process of the binary under test: started, signalled, and gone when it is dropped.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::eventually;

/// Lines of a log that are shown when a test fails.
const LAST_LINES: usize = 80;

/// The binary under test, with none of the caller's settings in its environment. Its admin endpoint
/// is off unless a flag says otherwise: tests run side by side.
pub(crate) fn binary() -> Command {
    clean(Command::new(env!("CARGO_BIN_EXE_ticketing")))
}

/// The binary under test in a session of its own: without the terminal that the tests may have.
pub(crate) fn detached() -> Command {
    let mut command = heeding("setsid");
    command.arg(env!("CARGO_BIN_EXE_ticketing"));
    command
}

/// A shell's line in a session of its own; `$0` is the binary under test.
pub(crate) fn detached_shell(line: &str) -> Command {
    let mut command = heeding("setsid");
    command.args(["sh", "-c", line, env!("CARGO_BIN_EXE_ticketing")]);
    command
}

/// A line typed to a shell with job control, on a terminal of its own; `$0` is the binary under test.
/// What is written to the standard input is what a person types.
pub(crate) fn on_terminal(line: &str) -> Command {
    let mut command = heeding("script");
    command
        .args(["--quiet", "--return", "--flush", "--command"])
        .args(["exec bash -mc \"$LINE\" \"$BINARY\"", "/dev/null"])
        .env("SHELL", "/bin/sh")
        .env("LINE", line)
        .env("BINARY", env!("CARGO_BIN_EXE_ticketing"))
        .stdin(Stdio::piped());
    command
}

/// The binary under test as the first process of a PID namespace, as in a container, in the session of
/// whoever made that: it sees neither its parent nor its session.
pub(crate) fn contained() -> Command {
    let mut command = heeding("unshare");
    command
        .args(["--user", "--map-root-user", "--pid", "--fork"])
        .args(["--mount-proc", env!("CARGO_BIN_EXE_ticketing")]);
    command
}

/// A program that heeds every signal, also when whoever runs the tests ignores some (`nohup`, a job
/// in a script's background): what is ignored at the start stays so, and is not what is tested here.
fn heeding(program: &str) -> Command {
    let mut command = clean(Command::new("env"));
    command.args(["--default-signal", program]);
    command
}

fn clean(mut command: Command) -> Command {
    let inherited = [
        "PATH",
        "HOME",
        "TMPDIR",
        "LD_LIBRARY_PATH",
        "LLVM_PROFILE_FILE",
    ];
    command.env_clear().stdin(Stdio::null());
    for name in inherited {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    command.env("ADMIN_BIND", "off");
    command
}

/// Runs a command to its end and gives back what it said; kills it when it takes too long.
pub(crate) fn output(mut command: Command, within: Duration) -> Output {
    let said = format!("{command:?}");
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let pid = Pid::from_child(&child);
    let (done, finished) = std::sync::mpsc::channel();
    // A thread of its own reads both pipes, so that a talkative command is not blocked on them.
    let reader = std::thread::spawn(move || {
        let output = child.wait_with_output().expect("a child can be awaited");
        // The receiver is gone only when the deadline has passed.
        let _ = done.send(());
        output
    });
    let late = finished.recv_timeout(within).is_err();
    if late {
        let _ = kill_process(pid, Signal::KILL);
    }
    let output = reader.join().expect("the reader does not panic");
    assert!(!late, "{said} did not end within {within:?}: {output:?}");
    output
}

/// A process in the background, with everything it says in a file.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
    name: String,
}

impl Process {
    /// Starts it; `log` is appended to.
    pub(crate) fn spawn(name: &str, mut command: Command, log: &Path) -> Self {
        let file = File::options()
            .create(true)
            .append(true)
            .open(log)
            .expect("the log file can be written");
        let child = command
            .stdout(file.try_clone().expect("a file handle can be copied"))
            .stderr(file)
            .spawn()
            .expect("the binary starts");
        Self {
            child,
            log: log.to_owned(),
            name: name.to_owned(),
        }
    }

    /// Types on its terminal, or whatever its standard input is.
    pub(crate) fn type_in(&mut self, text: &str) {
        let stdin = self.child.stdin.as_mut().expect("its input is a pipe");
        stdin.write_all(text.as_bytes()).expect("it reads");
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its process id, for system calls.
    pub(crate) fn id(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.id(), signal).expect("the process is there");
    }

    /// SIGKILL, and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        // An error says that it ended before; the wait sees that as well.
        let _ = self.child.kill();
        self.child.wait().expect("a child can be awaited");
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be looked at")
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self, within: Duration) -> ExitStatus {
        let what = format!("the end of {}", self.name);
        eventually(&what, within, || self.ended())
    }

    /// Everything it has said.
    pub(crate) fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Resident memory in KiB.
    pub(crate) fn resident_kib(&self) -> u64 {
        let path = format!("/proc/{}/status", self.pid());
        let status = fs::read_to_string(path).expect("the process is there");
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let value = line.and_then(|line| line.split_whitespace().nth(1));
        value
            .and_then(|value| value.parse().ok())
            .expect("the kernel says VmRSS in KiB")
    }

    /// User and system time used so far, in milliseconds.
    pub(crate) fn busy_ms(&self) -> u64 {
        let path = format!("/proc/{}/stat", self.pid());
        let stat = fs::read_to_string(path).expect("the process is there");
        // The name in brackets may contain spaces; fields 14 and 15 count from its end.
        let fields = stat.rsplit(") ").next().unwrap_or_default().split(' ');
        let ticks: u64 = fields
            .skip(11)
            .take(2)
            .filter_map(|field| field.parse::<u64>().ok())
            .sum();
        // USER_HZ is 100 on every Linux that Rust runs on.
        ticks * 10
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Shows the end of a log beside the panic of a test.
pub(crate) fn show(name: &str, state: &str, log: &str) {
    let lines: Vec<_> = log.lines().collect();
    eprintln!("--- {name} {state}; its last words:");
    for line in &lines[lines.len().saturating_sub(LAST_LINES)..] {
        eprintln!("    {line}");
    }
}

/// True while a process with this id exists and is no zombie.
pub(crate) fn is_alive(pid: u32) -> bool {
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => !stat
            .rsplit(") ")
            .next()
            .is_some_and(|rest| rest.starts_with('Z')),
        Err(_) => false,
    }
}

/// The processes that `parent` started and that are still there.
pub(crate) fn children(parent: u32) -> Vec<u32> {
    let path = format!("/proc/{parent}/task/{parent}/children");
    let list = fs::read_to_string(path).unwrap_or_default();
    list.split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .collect()
}
