//! The processes of this machine, as `/proc` tells them, and which of them descend from one.
//!
//! A reading is not of one moment: a process may begin or end meanwhile. Whoever must be sure that
//! none is left reads again until the kernel has no child to report (see
//! [`family`](super::family)).

use std::fs;
use std::io;

use rustix::process::Pid;

/// One process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: Pid,
    pub(super) parent: Option<Pid>,
    /// None if it was made outside this PID namespace, for processes of the kernel, and for one that is
    /// just being waited for.
    pub(super) group: Option<Pid>,
    /// None if it was begun outside this PID namespace, and else as the group.
    pub(super) session: Option<Pid>,
    /// Ended, and not waited for by its parent yet.
    pub(super) is_zombie: bool,
}

/// All processes that can be seen.
pub(super) fn read() -> io::Result<Vec<Process>> {
    let mut all = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        if name.as_encoded_bytes().iter().all(u8::is_ascii_digit)
            // One that ended since the folder was read is gone, and that is what we want to know.
            && let Ok(stat) = fs::read(std::path::Path::new("/proc").join(name).join("stat"))
            && let Some(process) = parse(&stat)
        {
            all.push(process);
        }
    }
    Ok(all)
}

/// Reads `/proc/PID/stat`: the id, the name in brackets, the state, then numbers.
fn parse(stat: &[u8]) -> Option<Process> {
    // The name may contain anything, brackets as well.
    let name_end = stat.iter().rposition(|&byte| byte == b')')?;
    let id_end = stat.iter().position(|&byte| byte == b' ')?;
    let rest = std::str::from_utf8(stat.get(name_end + 1..)?).ok()?;
    // Of a process that is just being waited for, the kernel says -1 as group and session.
    let pid = |text: &str| {
        let raw = text.parse().ok().filter(|raw: &i32| *raw > 0);
        raw.and_then(Pid::from_raw)
    };
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?;
    Some(Process {
        pid: pid(std::str::from_utf8(&stat[..id_end]).ok()?)?,
        parent: pid(fields.next()?),
        group: pid(fields.next()?),
        session: pid(fields.next()?),
        is_zombie: state == "Z" || state == "X",
    })
}

/// Those that descend from `ancestor`, each after its parent.
pub(super) fn descendants(all: &[Process], ancestor: Pid) -> Vec<Process> {
    let mut found = Vec::new();
    let mut parents = vec![ancestor];
    // Ids that were used again while the table was read could make it look like a circle.
    while !parents.is_empty() && found.len() <= all.len() {
        let is_child = |process: &&Process| {
            process
                .parent
                .is_some_and(|parent| parents.contains(&parent))
        };
        let children: Vec<Process> = all.iter().filter(is_child).copied().collect();
        parents = children.iter().map(|child| child.pid).collect();
        found.extend(children);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pid(raw: i32) -> Pid {
        Pid::from_raw(raw).expect("not zero")
    }

    fn process(id: i32, parent: i32) -> Process {
        Process {
            pid: pid(id),
            parent: Pid::from_raw(parent),
            group: Some(pid(id)),
            session: Some(pid(1)),
            is_zombie: false,
        }
    }

    #[test]
    fn a_line_is_read_whatever_the_name_of_the_process() {
        for name in ["sh", "a b", ") R 1 (", "(", "a\nb"] {
            let line = format!("42 ({name}) S 7 40 30 34817 42 4194304 100\n");
            let expected = Process {
                pid: pid(42),
                parent: Some(pid(7)),
                group: Some(pid(40)),
                session: Some(pid(30)),
                is_zombie: false,
            };
            assert_eq!(parse(line.as_bytes()), Some(expected), "{name:?}");
        }
        let kernel = parse(b"2 (kthreadd) S 0 0 0 0 -1").expect("it is a process");
        assert_eq!(
            (kernel.parent, kernel.group, kernel.session),
            (None, None, None)
        );
        assert!(parse(b"9 (sh) Z 1 9 9 0").is_some_and(|process| process.is_zombie));
        let leaving = parse(b"9 (sh) Z 0 -1 -1 0 -1").expect("it is a process");
        assert_eq!((leaving.group, leaving.session), (None, None));
        for wrong in [
            &b""[..],
            b"42",
            b"42 (sh)",
            b"42 (sh) S 1 2",
            b"(sh) S 1 2 3",
        ] {
            assert_eq!(parse(wrong), None);
        }
    }

    #[test]
    fn descendants_are_found_at_every_depth() {
        let all = [
            process(30, 20),
            process(1, 0),
            process(20, 10),
            process(10, 1),
            process(11, 1),
            process(21, 10),
        ];
        let ids = |found: Vec<Process>| -> Vec<i32> {
            found
                .iter()
                .map(|process| process.pid.as_raw_nonzero().get())
                .collect()
        };
        assert_eq!(ids(descendants(&all, pid(10))), [20, 21, 30]);
        assert!(descendants(&all, pid(30)).is_empty());
    }

    #[test]
    fn a_circle_comes_to_an_end() {
        let all = [process(10, 20), process(20, 10)];
        assert!(descendants(&all, pid(10)).len() <= 4);
    }

    #[test]
    fn this_process_is_in_the_table() {
        let me = rustix::process::getpid();
        let all = read().expect("/proc can be read");
        let mine = all.iter().find(|process| process.pid == me);
        assert_eq!(
            mine.map(|process| process.parent),
            Some(rustix::process::getppid())
        );
    }
}
