//! Names the build: the commit that it is made from, where that is known, and the target.
//!
//! Only an optimised build names a commit: what is built while it is being written is some commit
//! and changes, and naming it would rebuild everything here after every commit. Without git, or
//! outside of a repository of its own, the commit is left out; nothing of this can fail a build.

use std::path::Path;
use std::process::Command;

/// Says which commit this is to builds from sources without a repository.
const COMMIT_VARIABLE: &str = "TICKETING_COMMIT";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed={COMMIT_VARIABLE}");
    let target = std::env::var("TARGET").unwrap_or_default();
    let named = std::env::var(COMMIT_VARIABLE).ok();
    let commit = match named.filter(|commit| !commit.is_empty()) {
        Some(commit) => Some(commit),
        None if std::env::var("PROFILE").as_deref() == Ok("release") => commit(),
        None => None,
    };
    let commit = commit.unwrap_or_else(|| "unknown commit".to_owned());
    println!("cargo::rustc-env=TICKETING_BUILD={commit}, {target}");
}

/// The commit that is checked out in the repository whose root is this folder.
fn commit() -> Option<String> {
    let here = std::env::var("CARGO_MANIFEST_DIR").ok()?;
    // Sources that lie somewhere in another repository are none of its commits.
    let root = git(&["rev-parse", "--show-toplevel"])?;
    if Path::new(&root).canonicalize().ok()? != Path::new(&here).canonicalize().ok()? {
        return None;
    }
    for name in ["HEAD", "logs/HEAD"] {
        // A path that is not there would run this at every build. The log of HEAD changes with
        // every commit, HEAD itself with every switch.
        let path = git(&["rev-parse", "--git-path", name])?;
        if Path::new(&path).exists() {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    git(&["rev-parse", "--short=12", "HEAD"])
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && !text.trim().is_empty()).then(|| text.trim().to_owned())
}
