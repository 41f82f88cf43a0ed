//! `--version`, from what the build script finds out to what is shown.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::harness::PATIENCE;
use crate::harness::process::{binary, output};

/// What the build script says of a commit when it knows none.
const UNKNOWN: &str = "unknown commit";

#[test]
fn the_version_is_shown_with_what_the_build_script_said() {
    let mut command = binary();
    command.arg("--version");
    let said = output(command, PATIENCE);
    let (version, build) = (env!("CARGO_PKG_VERSION"), env!("TICKETING_BUILD"));
    assert_eq!(
        String::from_utf8_lossy(&said.stdout),
        format!("ticketing {version} ({build})\n")
    );
    let (commit, target) = build.split_once(", ").expect("a commit and a target");
    assert!(!commit.is_empty() && target.contains('-'), "{build}");
}

/// The build script by itself.
struct BuildScript(TempDir);

impl BuildScript {
    fn compile() -> Self {
        let dir = TempDir::new().expect("a temporary directory");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("build.rs");
        let mut rustc = Command::new("rustc");
        rustc.args(["--edition", "2024", "-o"]);
        rustc.arg(dir.path().join("script")).arg(source);
        let said = output(rustc, 6 * PATIENCE);
        assert!(said.status.success(), "{said:?}");
        Self(dir)
    }

    /// What it takes for the commit of the sources in `root`.
    fn commit(&self, root: &Path, profile: &str, more: &[(&str, &str)]) -> String {
        let mut script = inside(root, self.0.path().join("script"));
        script
            .env_remove("TICKETING_COMMIT")
            .env("CARGO_MANIFEST_DIR", root)
            .env("PROFILE", profile)
            .env("TARGET", "here")
            .envs(more.iter().copied());
        let said = output(script, PATIENCE);
        assert!(said.status.success(), "{said:?}");
        let text = String::from_utf8_lossy(&said.stdout);
        let start = "cargo::rustc-env=TICKETING_BUILD=";
        let line = text.lines().find_map(|line| line.strip_prefix(start));
        let commit = line.and_then(|build| build.strip_suffix(", here"));
        commit.expect("it names the build").to_owned()
    }
}

/// A command in `root` that looks for the repository there, also when the tests are run by a hook of
/// another one.
fn inside(root: &Path, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command
        .current_dir(root)
        .env_remove("GIT_DIR")
        .env_remove("GIT_WORK_TREE")
        .env_remove("GIT_INDEX_FILE");
    command
}

fn git(root: &Path, arguments: &[&str]) -> String {
    let mut git = inside(root, "git");
    git.args(["-c", "user.name=a", "-c", "user.email=a@example.com"])
        .args(["-c", "commit.gpgsign=false"])
        .args(arguments);
    let said = output(git, PATIENCE);
    assert!(said.status.success(), "{said:?}");
    String::from_utf8_lossy(&said.stdout).trim().to_owned()
}

#[test]
fn a_build_is_named_by_its_own_commit_or_by_none() {
    let script = BuildScript::compile();
    let dir = TempDir::new().expect("a temporary directory");
    let root = dir.path();
    assert_eq!(
        script.commit(root, "release", &[]),
        UNKNOWN,
        "no repository"
    );
    git(root, &["init", "--quiet"]);
    assert_eq!(script.commit(root, "release", &[]), UNKNOWN, "no commit");
    git(root, &["commit", "--quiet", "--allow-empty", "-m", "one"]);
    let head = git(root, &["rev-parse", "HEAD"]);
    let commit = script.commit(root, "release", &[]);
    assert!(commit.len() >= 12 && head.starts_with(&commit), "{commit}");
    // What changes while it is built is no commit.
    assert_eq!(script.commit(root, "debug", &[]), UNKNOWN);
    // Sources inside of somebody else's repository.
    let inside = root.join("vendor");
    std::fs::create_dir(&inside).expect("it can be made");
    assert_eq!(script.commit(&inside, "release", &[]), UNKNOWN);
    assert_eq!(
        script.commit(root, "release", &[("PATH", "")]),
        UNKNOWN,
        "no git"
    );
    // Whoever knows better says so, for every build; saying nothing is not that.
    for profile in ["release", "debug"] {
        let told = [("TICKETING_COMMIT", "abc")];
        assert_eq!(script.commit(&inside, profile, &told), "abc");
    }
    let empty = [("TICKETING_COMMIT", "")];
    assert_eq!(script.commit(root, "release", &empty), commit);
}
