//! Who may use the machine.
//!
//! Most tests only look at order and at generous bounds; they share the machine. A test that
//! asserts a time needs it alone. The gate is a lock on a file, because a test runner may put
//! each test into a process of its own, where a static mutex guards nothing. Shared holders may
//! overtake a waiting exclusive one: a test may start a second cluster without a deadlock, and a
//! timing test simply runs when the others are done.

use std::fs::File;
use std::path::Path;

/// The right to use the machine; given back on drop.
#[derive(Debug)]
pub(crate) struct Gate {
    _file: File,
}

/// Uses the machine together with others.
pub(crate) fn shared() -> Gate {
    let file = open();
    file.lock_shared().expect("the gate's file can be locked");
    Gate { _file: file }
}

/// Uses the machine alone; waits until every other test has given it back.
pub(crate) fn alone() -> Gate {
    let file = open();
    file.lock().expect("the gate's file can be locked");
    Gate { _file: file }
}

fn open() -> File {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("it.gate");
    File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .expect("the target directory is writable")
}
