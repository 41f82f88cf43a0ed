//! Child processes: ignored tests of this very binary that do something in a directory and say what
//! they did, one line each.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Tells a child where to work.
const DIRECTORY: &str = "STORAGE_TEST_DIRECTORY";

/// This binary.
pub(crate) fn plain() -> Command {
    Command::new(std::env::current_exe().unwrap())
}

/// This binary under strace, with these arguments.
pub(crate) fn traced<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Command {
    let version = Command::new("strace")
        .arg("-V")
        .stdout(Stdio::null())
        .status();
    assert!(
        version.is_ok_and(|status| status.success()),
        "this test counts and injects system calls with strace: install it (apt-get install strace)"
    );
    let mut command = Command::new("strace");
    command
        .arg("-f")
        .args(arguments)
        .arg(std::env::current_exe().unwrap());
    command
}

/// Starts the child `test` in `directory`.
pub(crate) fn start(mut command: Command, test: &str, directory: &Path) -> Child {
    command
        .args([
            "--exact",
            test,
            "--ignored",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(DIRECTORY, directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the test binary starts")
}

/// Runs the child `test` to its end and gives what it said.
pub(crate) fn run(command: Command, test: &str, directory: &Path) -> Vec<String> {
    let output = start(command, test, directory).wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}: {text}", output.status);
    text.lines().map(|line| said(line).to_owned()).collect()
}

/// In a child: where to work. `None` if this process was started for something else.
pub(crate) fn directory() -> Option<PathBuf> {
    std::env::var_os(DIRECTORY).map(PathBuf::from)
}

/// In a child: says a line.
pub(crate) fn say(line: &str) {
    writeln!(std::io::stdout().lock(), "{line}").unwrap();
}

/// What a line says: the test harness puts its own words before the first one.
pub(crate) fn said(line: &str) -> &str {
    line.rsplit("... ").next().unwrap_or(line)
}
