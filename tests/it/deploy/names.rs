//! A machine of a test's own: a network without any other host, process ids that end with it, and
//! a hosts file that the test writes, so that names can change their addresses.
//!
//! The test runs itself again, inside of new namespaces (`unshare`, as root or with a user
//! namespace). There, the hosts file is one file that is never replaced (a mount holds on to the
//! file, not to its name), and never longer or shorter: one write changes it, and nobody who reads
//! it meanwhile sees half of it.

use std::fs::File;
use std::net::Ipv4Addr;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;

/// Set inside: where the hosts file is.
const HOSTS_VARIABLE: &str = "TICKETING_TEST_HOSTS";

/// Bytes of a line of the hosts file.
const LINE_BYTES: usize = 80;

/// Runs `body` on a machine of its own. `test` is the name of the calling test, as the test runner
/// spells it.
pub(crate) fn on_own_machine(test: &str, names: &[String], body: impl FnOnce(Hosts)) {
    match std::env::var_os(HOSTS_VARIABLE) {
        Some(path) => body(Hosts::open(Path::new(&path), names)),
        None => run_inside(test, names),
    }
}

fn run_inside(test: &str, names: &[String]) {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    Hosts::open(file.path(), names);
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    let output = command
        .args(["--net", "--mount", "--pid", "--fork"])
        .args(["--kill-child", "--mount-proc"])
        .args(["sh", "-euc"])
        .arg(r#"ip link set lo up; mount --bind "$0" /etc/hosts; exec "$@""#)
        .arg(file.path())
        .arg(std::env::current_exe().expect("this binary has a path"))
        .args(["--exact", test, "--nocapture"])
        .env(HOSTS_VARIABLE, file.path())
        .output()
        .expect("`unshare` is installed");
    print!("{}", String::from_utf8_lossy(&output.stdout));
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    assert!(
        output.status.success(),
        "inside, it failed: {}",
        output.status
    );
    let ran = String::from_utf8_lossy(&output.stdout).contains("1 passed");
    assert!(ran, "inside, nothing ran: is {test:?} the test's name?");
}

/// The hosts file of the test's machine.
pub(crate) struct Hosts {
    file: File,
    lines: Vec<(String, Option<Ipv4Addr>)>,
}

impl Hosts {
    /// A hosts file in which none of `names` has an address.
    fn open(path: &Path, names: &[String]) -> Self {
        let hosts = Self {
            file: File::options()
                .write(true)
                .open(path)
                .expect("the hosts file can be written"),
            lines: names.iter().map(|name| (name.clone(), None)).collect(),
        };
        hosts.write();
        hosts
    }

    /// Gives the name of this number an address, or takes it away.
    pub(crate) fn set(&mut self, number: usize, address: Option<Ipv4Addr>) {
        self.lines[number].1 = address;
        self.write();
    }

    fn write(&self) {
        let local = "127.0.0.1 localhost".to_owned();
        let names = self.lines.iter().map(|(name, address)| match address {
            Some(address) => format!("{address} {name}"),
            None => format!("# {name}"),
        });
        let text: String = std::iter::once(local)
            .chain(names)
            .map(|line| format!("{line:<width$}\n", width = LINE_BYTES - 1))
            .collect();
        self.file
            .write_all_at(text.as_bytes(), 0)
            .expect("the hosts file can be written");
    }
}
