//! `deploy/compose.yaml` as it is, with a real container engine: three containers, clients outside.
//!
//! Not run by default: it needs an engine, the image `ticketing-runtime:local` (the target
//! `runtime` of the Dockerfile, everything of the final image but the binary) and the ports that the
//! file publishes. `.ci/run` sees to that. The binary is the one under test.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::harness::clients::Clients;
use crate::harness::process::output;
use crate::harness::raw::Received;
use crate::harness::{Frame, PATIENCE, Raw, SETTLE, acquire, eventually, gate};

/// The image of the test, and the project that keeps its containers apart from others.
const IMAGE: &str = "ticketing:test";
const PROJECT: &str = "ticketing-test";

/// What every call of the engine may take; stopping three containers is the longest.
const CALL_MAX: Duration = Duration::from_secs(120);

/// Containers, counted from 1, and the client port of the first.
const NODES: usize = 3;
const FIRST_PORT: usize = 5225;

#[test]
#[ignore = "needs a container engine"]
fn containers_lose_no_lock_when_the_leader_is_cut_off_or_killed_and_when_all_restart() {
    let _gate = gate::shared();
    let image = Image::build();
    assert!(
        !image.runs("/bin/sh") && image.runs("/usr/local/bin/ticketing"),
        "there is a shell in the image"
    );
    let project = Project::up();
    project.await_healthy();
    let addresses: Vec<_> = (1..=NODES).map(address).collect();
    let clients = Clients::start(&addresses, &project.auth_token);
    clients.check("after the start");

    let cut = project.leader();
    let started = project.inspect(cut, "{{.State.StartedAt}}");
    docker(&["network", "disconnect", &project.peers(), project.id(cut)]);
    clients.check("while the leader is cut off from its peers");
    project.assert_refuses(cut);
    eventually("the cut off node is unhealthy", SETTLE, || {
        (project.health(cut) == "unhealthy").then_some(())
    });
    let alias = format!("peer-{cut}");
    let (network, id) = (project.peers(), project.id(cut));
    docker(&["network", "connect", "--alias", &alias, &network, id]);
    project.await_healthy();
    assert_eq!(project.inspect(cut, "{{.State.StartedAt}}"), started);
    clients.check("after the cut is healed");

    let killed = project.leader();
    docker(&["kill", project.id(killed)]);
    clients.check("while the leader is dead");
    docker(&["start", project.id(killed)]);
    project.await_healthy();
    clients.check("after the leader came back");

    project.compose(&["restart"]);
    project.await_healthy();
    clients.check("after all were restarted");
    clients.finish();

    project.compose(&["stop"]);
    for node in 1..=NODES {
        assert_eq!(project.inspect(node, "{{.State.ExitCode}}"), "0");
    }
}

/// Where clients on this machine find a node.
fn address(node: usize) -> String {
    format!("127.0.0.1:{}", FIRST_PORT + node - 1)
}

/// Runs a command of the engine, which must succeed; gives back what it said.
fn docker(arguments: &[&str]) -> String {
    let mut command = Command::new("docker");
    command.args(arguments);
    said(command)
}

fn said(command: Command) -> String {
    let what = format!("{command:?}");
    let output = output(command, CALL_MAX);
    assert!(output.status.success(), "{what}: {output:?}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// The image under test, removed at the end.
struct Image;

impl Image {
    /// Puts the binary under test where the Dockerfile puts the one that it builds.
    fn build() -> Self {
        let context = TempDir::new().expect("a temporary directory");
        let binary = context.path().join("ticketing");
        let mut strip = Command::new("objcopy");
        strip.args(["--strip-debug", env!("CARGO_BIN_EXE_ticketing")]);
        strip.arg(&binary);
        said(strip);
        let steps = "FROM ticketing-runtime:local\nCOPY ticketing /usr/local/bin/ticketing\n";
        fs::write(context.path().join("Dockerfile"), steps).expect("the directory is writable");
        let path = context.path().display().to_string();
        docker(&["build", "--quiet", "--tag", IMAGE, &path]);
        Self
    }

    /// Whether there is a program at `path` that runs.
    fn runs(&self, path: &str) -> bool {
        let mut command = Command::new("docker");
        command.args(["run", "--rm", "--network", "none", "--entrypoint", path]);
        command.args([IMAGE, "--version"]);
        output(command, CALL_MAX).status.success()
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        quietly(Command::new("docker").args(["rmi", "--force", IMAGE]));
    }
}

/// Cleaning up goes on when a step fails: what is left is named by the engine's own tools.
fn quietly(command: &mut Command) {
    let _ = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
}

/// The containers, their networks and volumes; all gone at the end.
struct Project {
    dir: TempDir,
    auth_token: String,
    containers: Vec<String>,
}

impl Project {
    /// Starts everything from a copy of the files, with secrets of its own.
    fn up() -> Self {
        let dir = TempDir::new().expect("a temporary directory");
        let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy");
        for name in ["compose.yaml", "secrets.sh"] {
            fs::copy(deploy.join(name), dir.path().join(name)).expect("the file is there");
        }
        said(Command::new(dir.path().join("secrets.sh")));
        let token = dir.path().join("secrets/auth-token");
        let token = fs::read_to_string(token).expect("the script made it");
        let mut project = Self {
            dir,
            auth_token: token.trim_end().to_owned(),
            containers: Vec::new(),
        };
        project.compose(&["up", "--detach", "--no-build"]);
        for node in 1..=NODES {
            let id = project.compose(&["ps", "--quiet", &format!("ticketing-{node}")]);
            project.containers.push(id);
        }
        project
    }

    /// Compose 2 is a part of the engine's command line, Compose 1 is a program of its own.
    fn compose_command(&self, arguments: &[&str]) -> Command {
        let mut probe = Command::new("docker");
        probe.args(["compose", "version"]);
        let mut command = if output(probe, CALL_MAX).status.success() {
            let mut command = Command::new("docker");
            command.arg("compose");
            command
        } else {
            Command::new("docker-compose")
        };
        command
            .args(["--project-name", PROJECT, "--file"])
            .arg(self.dir.path().join("compose.yaml"))
            .args(arguments)
            .env("TICKETING_IMAGE", IMAGE);
        command
    }

    fn compose(&self, arguments: &[&str]) -> String {
        said(self.compose_command(arguments))
    }

    /// The container of a node; it is the same one until the end.
    fn id(&self, node: usize) -> &str {
        &self.containers[node - 1]
    }

    fn inspect(&self, node: usize, what: &str) -> String {
        docker(&["inspect", "--format", what, self.id(node)])
    }

    /// What the engine says of a container's own check: starting, healthy, unhealthy.
    fn health(&self, node: usize) -> String {
        self.inspect(node, "{{.State.Health.Status}}")
    }

    fn await_healthy(&self) {
        for node in 1..=NODES {
            eventually(&format!("node {node} is healthy"), SETTLE, || {
                (self.health(node) == "healthy").then_some(())
            });
        }
    }

    /// The network that only nodes are on.
    fn peers(&self) -> String {
        format!("{PROJECT}_peers")
    }

    /// The node that names itself the leader.
    fn leader(&self) -> usize {
        eventually("a leader", SETTLE, || {
            (1..=NODES).find(|&node| {
                let session = Raw::try_connect(&address(node), &self.auth_token);
                session.is_ok_and(|mut session| {
                    session.receive(PATIENCE) == Received::Frame(Frame::Leads(address(node)))
                })
            })
        })
    }

    /// A node without a quorum can be reached, and grants nothing.
    fn assert_refuses(&self, node: usize) {
        eventually("the node refuses", SETTLE, || {
            let mut session = Raw::try_connect(&address(node), &self.auth_token).ok()?;
            session.try_send(acquire("cut", 0, 1, 1)).ok()?;
            match session.receive_reply(PATIENCE) {
                Received::Frame(Frame::Error(_)) => Some(()),
                Received::Frame(Frame::Granted { .. }) => panic!("granted without a quorum"),
                _ => None,
            }
        });
    }
}

impl Drop for Project {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let logs = output(self.compose_command(&["logs", "--tail=80"]), CALL_MAX);
            eprintln!("{}", String::from_utf8_lossy(&logs.stdout));
        }
        quietly(&mut self.compose_command(&["down", "--volumes", "--timeout", "1"]));
    }
}
