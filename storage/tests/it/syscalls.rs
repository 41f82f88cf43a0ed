//! What the process asks the kernel, seen with strace: an acknowledgement comes after a successful
//! fdatasync of the bytes that it is about, and a failed one ends it all.

use std::fs;

use openraft::storage::RaftLogStorage;
use tempfile::TempDir;

use crate::child::{self, say};
use crate::machine::{self, Log, append};
use crate::model;

const ENTRIES: u64 = 30;
const FIRST_SEGMENT: &str = "wal/0000000000000001.log";

#[test]
fn an_acknowledgement_comes_after_the_sync_of_what_it_is_about() {
    let dir = TempDir::new().unwrap();
    let trace = TempDir::new().unwrap();
    let trace = trace.path().join("trace");
    let calls = "trace=pwrite64,fdatasync,write";
    let strace = child::traced(["-y", "-e", calls, "-o", trace.to_str().unwrap()]);
    child::run(
        strace,
        "syscalls::child_that_does_one_thing_at_a_time",
        dir.path(),
    );

    let calls = Calls::parse(&fs::read_to_string(trace).unwrap());
    let mut acknowledged = 0;
    let mut rest = calls.0.as_slice();
    while let Some(at) = rest.iter().position(|call| call.name == "write") {
        let (before, after) = rest.split_at(at);
        let what = &after[0].arguments;
        // Under its temporary name a segment is being prepared in the background.
        let file = if what.contains("cluster") {
            "/sled/db>"
        } else {
            ".log>"
        };
        let mine = |call: &&Call| call.arguments.contains(file);
        let mut mine = before.iter().filter(mine);
        let last = mine
            .next_back()
            .unwrap_or_else(|| panic!("{what}: nothing before it"));
        assert_eq!(
            (last.name.as_str(), last.result.as_str()),
            ("fdatasync", "0"),
            "{what}"
        );
        assert!(
            mine.any(|call| call.name == "pwrite64"),
            "{what}: {before:?}"
        );
        acknowledged += 1;
        rest = &after[1..];
    }
    assert_eq!(
        acknowledged,
        ENTRIES + 3,
        "every acknowledgement is in the trace"
    );
}

/// One finished system call.
#[derive(Debug)]
struct Call {
    name: String,
    arguments: String,
    result: String,
}

/// Calls in the order in which they finished; of the writes, only what the child said.
struct Calls(Vec<Call>);

impl Calls {
    fn parse(trace: &str) -> Calls {
        let mut begun = std::collections::BTreeMap::new();
        let mut calls = Vec::new();
        for line in trace.lines() {
            let (thread, text) = line.split_once(' ').unwrap();
            let text = text.trim_start();
            let text = match text.strip_suffix(" <unfinished ...>") {
                Some(beginning) => {
                    begun.insert(thread.to_owned(), beginning.to_owned());
                    continue;
                }
                None => match text
                    .strip_prefix("<... ")
                    .and_then(|t| t.split_once(" resumed>"))
                {
                    Some((_, end)) => begun.remove(thread).unwrap() + end,
                    None => text.to_owned(),
                },
            };
            let Some((name, rest)) = text.split_once('(') else {
                continue;
            };
            let Some((arguments, result)) = rest.rsplit_once(" = ") else {
                continue;
            };
            let result = result.split(' ').next().unwrap();
            if name != "write" || arguments.contains("acknowledged") {
                let [name, arguments, result] = [name, arguments, result].map(str::to_owned);
                calls.push(Call {
                    name,
                    arguments,
                    result,
                });
            }
        }
        Calls(calls)
    }
}

/// Not a test: what strace looks at.
#[test]
#[ignore = "runs in a child process"]
fn child_that_does_one_thing_at_a_time() {
    let Some(dir) = child::directory() else {
        return;
    };
    let storage = machine::open(&dir).unwrap();
    say("acknowledged opening");
    let mut log: Log = storage.log_store().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(async {
        log.save_vote(&machine::vote(1, 1)).await.unwrap();
        say("acknowledged vote");
        for index in 0..ENTRIES {
            append(&mut log, vec![model::sized_entry(1, index)])
                .await
                .unwrap();
            say("acknowledged entry");
        }
    });
    storage.set_cluster_id(1).unwrap();
    say("acknowledged cluster id");
}

/// Lets one call of the IO thread on the first segment fail; those after it would succeed.
fn nothing_is_acknowledged_after(failure: &str) {
    let dir = TempDir::new().unwrap();
    let segment = dir.path().canonicalize().unwrap().join(FIRST_SEGMENT);
    let inject = format!("inject={failure}:when=5");
    let strace = child::traced(["-P", segment.to_str().unwrap(), "-e", &inject]);
    let said = child::run(
        strace,
        "syscalls::child_that_goes_on_after_a_failure",
        dir.path(),
    );
    let said: Vec<_> = said
        .iter()
        .filter(|line| line.starts_with("child"))
        .collect();
    let expected: Vec<_> = (0..4)
        .map(|index| format!("child: entry {index} is durable"))
        .collect();
    assert_eq!(
        said[..4],
        expected.iter().collect::<Vec<_>>()[..],
        "{said:?}"
    );
    assert_eq!(said[4..], ["child: everything is refused"], "{said:?}");

    let storage = machine::open(dir.path()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let found = runtime.block_on(model::found(&storage)).unwrap();
    assert!(
        (0..4).all(|index| found.entries.contains_key(&index)),
        "{found:?}"
    );
}

#[test]
fn a_disk_that_is_gone_is_no_reason_to_panic_at_the_end() {
    let dir = TempDir::new().unwrap();
    let db = dir.path().canonicalize().unwrap().join("sled/db");
    // All but the syncs of opening.
    let strace = child::traced(["-P", db.to_str().unwrap(), "-e", "inject=fsync:error=EIO"]);
    let said = child::run(strace, "syscalls::child_that_ends", dir.path());
    assert!(said.contains(&"child: ended".to_owned()), "{said:?}");
}

#[test]
#[ignore = "a child of another test"]
fn child_that_ends() {
    let Some(directory) = child::directory() else {
        return;
    };
    let storage = machine::open(&directory).unwrap();
    storage.set_cluster_id(1).unwrap();
    drop(storage);
    say("child: ended");
}

#[test]
fn nothing_is_acknowledged_after_a_failed_sync() {
    nothing_is_acknowledged_after("fdatasync:error=EIO");
}

#[test]
fn nothing_is_acknowledged_after_a_failed_write() {
    nothing_is_acknowledged_after("pwrite64:error=ENOSPC");
}

/// Not a test: what strace makes fail.
#[test]
#[ignore = "runs in a child process"]
fn child_that_goes_on_after_a_failure() {
    let Some(dir) = child::directory() else {
        return;
    };
    let storage = machine::open(&dir).unwrap();
    let mut log: Log = storage.log_store().unwrap();
    let failed = storage.failed();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut index = 0;
        say("");
        while append(&mut log, vec![model::sized_entry(1, index)])
            .await
            .is_ok()
        {
            say(&format!("child: entry {index} is durable"));
            index += 1;
        }
        assert!(
            failed
                .borrow()
                .as_ref()
                .is_some_and(|why| why.contains("wal")),
            "{failed:?}"
        );
        assert!(
            append(&mut log, vec![model::sized_entry(1, index + 1)])
                .await
                .is_err()
        );
        assert!(log.save_vote(&machine::vote(1, 1)).await.is_err());
        assert!(log.truncate_after(None).await.is_err());
        assert!(storage.set_cluster_id(1).is_err());
        assert!(storage.snapshots().save(b"", b"").is_err());
        say("child: everything is refused");
    });
}
