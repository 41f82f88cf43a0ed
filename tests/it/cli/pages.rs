//! What describes the command line: completions, man pages.

use std::process::Command;

use crate::harness::PATIENCE;
use crate::harness::process::{binary, output};

fn said(arguments: &[&str]) -> String {
    let mut command = binary();
    command.args(arguments);
    let output = output(command, PATIENCE);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("it is text")
}

#[test]
fn shells_are_told_what_can_be_typed_and_nothing_else() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let text = said(&["completions", shell]);
        for word in [
            "acquire",
            "kill-after",
            "on-lease-end",
            "conflict-exit-code",
        ] {
            assert!(text.contains(word), "{shell}: {word}");
        }
        assert!(!text.contains("lock-keeper"), "{shell}");
    }
    let mut command = binary();
    command.args(["completions", "sh"]);
    assert_eq!(output(command, PATIENCE).status.code(), Some(64));
}

#[test]
fn bash_completes_with_them() {
    let line = "source /dev/stdin; COMP_WORDS=(ticketing lock --kill); COMP_CWORD=2; \
                _ticketing ticketing --kill lock; echo \"${COMPREPLY[@]}\"";
    let script = said(&["completions", "bash"]);
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("completions");
    std::fs::write(&file, script).expect("the file can be written");
    let mut bash = Command::new("bash");
    bash.args(["-c", line])
        .stdin(std::fs::File::open(&file).expect("it is there"));
    let output = output(bash, PATIENCE);
    assert_eq!(
        String::from_utf8_lossy(&output.stdout).trim(),
        "--kill-after",
        "{output:?}"
    );
}

#[test]
fn every_subcommand_has_a_man_page_with_its_exit_codes() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let out = dir.path().to_string_lossy();
    assert_eq!(said(&["man", "--out", &out]), "");
    for name in [
        "serve",
        "dev",
        "lock",
        "acquire",
        "release",
        "bench",
        "status",
        "locks",
        "health",
        "completions",
        "man",
    ] {
        let page = dir.path().join(format!("ticketing-{name}.1"));
        let text = std::fs::read_to_string(page).expect("the page is there");
        if matches!(name, "lock" | "acquire" | "release") {
            assert!(text.contains("79  nothing was released"), "{name}");
        }
    }
    let main = std::fs::read_to_string(dir.path().join("ticketing.1")).expect("it is there");
    assert_eq!(main, said(&["man"]));
    let mut command = binary();
    command.args(["man", "--out", "/nowhere/at/all"]);
    let output = output(command, PATIENCE);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--out is \"/nowhere/at/all\""));
}
