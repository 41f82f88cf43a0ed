//! Every example of the documents is typed into a shell, as a reader would, and does what its text says.
//!
//! Each `sh` block of a document has a row in [`EXAMPLES`]: how it is run here, or which other part of
//! the gate runs it. A block without a row, and a row without a block, fail the test. The shell stops
//! at the first command that fails (`sh -eu`), except where a line names another exit code itself.
//! A block that takes a lock is run once more while another holds that lock: nothing may then be
//! done as if it were held.

use std::process::Command;

use super::code;
use crate::harness::process::{binary, output};
use crate::harness::{Cluster, Frame, PATIENCE, SETTLE, acquire, release};

const ADMIN_TOKEN: &str = "operator";

/// What the documents call the program, by two names, is the binary under test.
const PRELUDE: &str = r#"
ticketing() { "$BINARY" "$@"; }
cargo() { while [ "$1" != -- ]; do shift; done; shift; "$BINARY" "$@"; }
"#;

const DOCUMENTS: [(&str, &str); 5] = [
    ("README.md", include_str!("../../../README.md")),
    ("docs/CLI.md", include_str!("../../../docs/CLI.md")),
    (
        "docs/OPERATIONS.md",
        include_str!("../../../docs/OPERATIONS.md"),
    ),
    ("docs/TESTING.md", include_str!("../../../docs/TESTING.md")),
    (
        "deploy/README.md",
        include_str!("../../../deploy/README.md"),
    ),
];

/// How an example is tried.
enum Trial {
    /// It is run, with these words replaced by those of the cluster under test.
    Run {
        replaced: &'static [(&'static str, Word)],
        /// Something that it says when it works.
        says: &'static str,
        /// The lock that it takes first, if it takes one.
        takes: Option<&'static str>,
    },
    /// It is run elsewhere.
    Elsewhere(&'static str),
}

/// What stands for a word of an example.
#[derive(Clone, Copy)]
enum Word {
    /// Another word.
    Text(&'static str),
    /// A directory for this run.
    Directory,
    /// The process id of the leader.
    LeadersProcess,
    /// The admin address of the leader.
    LeadersAdmin,
    /// The admin addresses of all nodes.
    Admins,
    /// The token of a lock `deploy` that was just granted to somebody else's script.
    LastToken,
}

/// All examples: document, begin of the first line, trial.
const EXAMPLES: &[(&str, &str, Trial)] = &[
    (
        "README.md",
        "cargo run --release -- dev",
        Trial::Elsewhere("cli::dev"),
    ),
    (
        "README.md",
        "cargo run --release -- lock demo",
        Trial::Run {
            replaced: &[],
            says: "I hold the lock under token ",
            takes: Some("demo"),
        },
    ),
    (
        "README.md",
        "cargo run --release -- lock --lease 60 demo",
        Trial::Run {
            replaced: &[
                (
                    "sleep 30 &",
                    Word::Text("sh -c 'echo begun; sleep 5' & wait_for begun"),
                ),
                ("PROCESS-OF-THE-LEADER", Word::LeadersProcess),
            ],
            says: "mine",
            takes: None,
        },
    ),
    (
        "README.md",
        "cargo test --workspace",
        Trial::Elsewhere("the gate itself"),
    ),
    (
        "README.md",
        "ticketing lock --lease 60 nightly-report",
        Trial::Run {
            replaced: &[("./report.sh", Word::Text("true")), ("42", Word::LastToken)],
            says: "token ",
            takes: Some("nightly-report"),
        },
    ),
    (
        "README.md",
        "cargo run --release -- serve",
        Trial::Elsewhere("every test with a single server"),
    ),
    (
        "docs/CLI.md",
        "token=$(ticketing acquire",
        Trial::Run {
            replaced: &[],
            says: "the work, with token ",
            takes: Some("deploy"),
        },
    ),
    (
        "docs/CLI.md",
        "ticketing completions bash",
        Trial::Run {
            replaced: &[
                ("/etc/bash_completion.d", Word::Directory),
                ("/usr/local/share/man/man1", Word::Directory),
            ],
            says: "",
            takes: None,
        },
    ),
    (
        "docs/OPERATIONS.md",
        "ticketing status --admin",
        Trial::Run {
            replaced: &[
                ("a:7225,b:7225,c:7225", Word::Admins),
                (
                    "locks --prefix",
                    Word::Text("locks --admin $ADMINS --prefix"),
                ),
                ("localhost:7225", Word::LeadersAdmin),
            ],
            says: "\"members\"",
            takes: None,
        },
    ),
    (
        "docs/OPERATIONS.md",
        "curl -X POST",
        Trial::Run {
            replaced: &[("localhost:7225", Word::LeadersAdmin)],
            says: "",
            takes: None,
        },
    ),
    (
        "docs/TESTING.md",
        "cargo run --release -p jepsen -- run",
        Trial::Elsewhere("the gate runs jepsen"),
    ),
    (
        "docs/TESTING.md",
        "cargo build --features planted-bugs",
        Trial::Elsewhere("by hand: each planted bug takes minutes"),
    ),
    (
        "deploy/README.md",
        "deploy/secrets.sh\ndocker compose",
        Trial::Elsewhere("deploy::compose"),
    ),
    (
        "deploy/README.md",
        "docker compose --file deploy/compose.yaml ps",
        Trial::Elsewhere("deploy::compose"),
    ),
    (
        "deploy/README.md",
        "id=$(docker create",
        Trial::Elsewhere("deploy::compose"),
    ),
    (
        "deploy/README.md",
        "./ticketing lock --lease 120",
        Trial::Elsewhere("deploy::compose"),
    ),
    (
        "deploy/README.md",
        "export TICKETING_HOST_1",
        Trial::Elsewhere("deploy::compose"),
    ),
    (
        "deploy/README.md",
        "docker compose --file deploy/compose.yaml build",
        Trial::Elsewhere("deploy::compose"),
    ),
    (
        "deploy/README.md",
        "deploy/bases.sh",
        Trial::Elsewhere("the gate makes the bases"),
    ),
    (
        "deploy/README.md",
        "docker build --file deploy/Dockerfile",
        Trial::Elsewhere("the gate builds the image; there is no registry to push to"),
    ),
    (
        "deploy/README.md",
        "deploy/secrets.sh\nkubectl",
        Trial::Elsewhere("deploy/test/kubernetes.py validates the manifests"),
    ),
    (
        "deploy/README.md",
        "kubectl --namespace ticketing exec",
        Trial::Elsewhere("by hand: it needs a Kubernetes"),
    ),
    (
        "deploy/README.md",
        "kubectl --namespace ticketing set env",
        Trial::Elsewhere("by hand: it needs a Kubernetes"),
    ),
    (
        "deploy/README.md",
        "systemctl daemon-reload",
        Trial::Elsewhere("by hand: it needs systemd"),
    ),
];

/// The `sh` blocks of a document.
fn blocks(text: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while lines.any(|line| line == "```sh") {
        let block: Vec<_> = lines.by_ref().take_while(|line| *line != "```").collect();
        blocks.push(block.join("\n"));
    }
    blocks
}

/// A block as a script that a shell stops in at the first failure. Where a line says "exit code N"
/// that is what it has to end with.
fn script(block: &str) -> String {
    let line = |line: &str| match line.split_once("exit code ") {
        None => format!("{line}\n"),
        Some((_, rest)) => {
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            let (command, _) = line.split_once('#').expect("exit codes stand in comments");
            format!("code=0; {command} || code=$?; [ \"$code\" = {digits} ]\n")
        }
    };
    block.lines().map(line).collect()
}

struct Setting {
    cluster: Cluster,
    dir: tempfile::TempDir,
}

impl Setting {
    fn word(&mut self, word: Word) -> String {
        let leader = self.cluster.settle();
        match word {
            Word::Text(text) => text.to_owned(),
            Word::Directory => self.dir.path().to_string_lossy().into_owned(),
            Word::LeadersProcess => self.cluster.nodes[leader].process().pid().to_string(),
            Word::LeadersAdmin => self.cluster.nodes[leader].admin.clone(),
            Word::Admins => self.admins(),
            // Two grants go before it in its script; nothing else asks meanwhile.
            Word::LastToken => {
                let token = self.cluster.ask(&acquire("probe", 0, 1, 1)).token();
                (token + 2).to_string()
            }
        }
    }

    fn admins(&self) -> String {
        let nodes = self.cluster.nodes.iter();
        let admins: Vec<_> = nodes.map(|node| node.admin.as_str()).collect();
        admins.join(",")
    }

    fn shell(&self, script: &str) -> Command {
        let mut shell = Command::new("sh");
        let wait_for = "wait_for() { until grep -q \"$1\" \"$OUTPUT\"; do sleep 0.05; done; }";
        let script = format!("{PRELUDE}{wait_for}\nexec > \"$OUTPUT\"\n{script}");
        let binary = binary();
        shell
            .args(["-eu", "-c", &script])
            .current_dir(self.dir.path())
            .env("BINARY", binary.get_program())
            .env("OUTPUT", self.output())
            .env("ADMINS", self.admins())
            .env("TICKETING_ADDRS", super::addresses_of(&self.cluster));
        shell
    }

    fn output(&self) -> std::path::PathBuf {
        self.dir.path().join("output")
    }

    fn said(&self) -> String {
        std::fs::read_to_string(self.output()).expect("it was written")
    }

    /// Runs a block as it stands; it must succeed.
    fn run(&mut self, block: &str, replaced: &[(&str, Word)], says: &str) {
        let mut text = script(block);
        for (from, to) in replaced {
            assert!(text.contains(from), "{from:?} is not in {block}");
            text = text.replace(from, &self.word(*to));
        }
        let ended = output(self.shell(&text), SETTLE);
        let said = self.said();
        assert!(ended.status.success(), "{text}\n{said}\n{ended:?}");
        assert!(said.contains(says), "{text}\n{said}");
        // One that the example killed.
        for node in &mut self.cluster.nodes {
            if node.has_ended() {
                node.kill();
                node.start();
            }
        }
    }

    /// Runs a block while another holds the lock that it takes: it must end at that, with nothing
    /// said by what it would have done under the lock.
    fn run_without_the_lock(&mut self, block: &str, key: &str, says: &str) {
        let token = self.cluster.ask(&acquire(key, 5, 60, 1)).token();
        let text = script(block)
            .replace(" acquire ", " acquire --wait 0 ")
            .replace(" lock ", " lock --wait 0 ");
        let ended = output(self.shell(&text), PATIENCE);
        assert_eq!(ended.status.code(), Some(code::NOT_ACQUIRED), "{ended:?}");
        let said = self.said();
        assert!(!said.contains(says), "{text}\n{said}");
        let released = Frame::released(token, key);
        assert_eq!(self.cluster.ask(&release(key, token)), released);
    }
}

#[test]
fn every_example_has_a_trial_and_every_trial_an_example() {
    let mut found = Vec::new();
    for (document, text) in DOCUMENTS {
        for block in blocks(text) {
            let rows = EXAMPLES.iter().enumerate();
            let mut rows = rows.filter(|(_, (in_document, start, _))| {
                *in_document == document && block.starts_with(start)
            });
            let (row, _) = rows
                .next()
                .unwrap_or_else(|| panic!("{document}: no trial for\n{block}"));
            assert!(rows.next().is_none(), "{document}: two trials for\n{block}");
            found.push(row);
        }
    }
    found.sort_unstable();
    let rows: Vec<_> = (0..EXAMPLES.len()).collect();
    assert_eq!(found, rows, "each trial is of one example");
    for (_, _, trial) in EXAMPLES {
        if let Trial::Elsewhere(place) = trial {
            assert!(!place.is_empty());
        }
    }
}

#[test]
fn every_example_of_the_command_line_does_what_it_says() {
    let mut setting = Setting {
        cluster: Cluster::start_with(3, &["--admin-token", ADMIN_TOKEN]),
        dir: tempfile::tempdir().expect("a temporary directory"),
    };
    setting.cluster.settle();
    let dir = setting.dir.path().to_owned();
    std::fs::write(dir.join("admin-token"), ADMIN_TOKEN).expect("it can be written");
    for (document, text) in DOCUMENTS {
        for block in blocks(text) {
            let row = EXAMPLES.iter().find(|(in_document, start, _)| {
                *in_document == document && block.starts_with(start)
            });
            let Some((
                _,
                _,
                Trial::Run {
                    replaced,
                    says,
                    takes,
                },
            )) = row
            else {
                continue;
            };
            setting.run(&block, replaced, says);
            if let Some(key) = takes {
                setting.run_without_the_lock(&block, key, says);
            }
        }
    }
    let files = ["ticketing", "ticketing-lock.1"];
    assert!(files.iter().all(|name| dir.join(name).exists()));
}
