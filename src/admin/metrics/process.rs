//! What the kernel knows of this process, under the names that Prometheus' own libraries give it.
//!
//! Read anew for each page, a few small files of `/proc`. What can't be read is left out.

use std::fs;

use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

use super::page::Page;

/// Ticks in a second, in what the kernel tells programs: the same on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// Which number behind the program's name in `/proc/self/stat` is its start, in ticks since the
/// machine's (`proc_pid_stat(5)`: the 22nd field, and the name is the 2nd).
const START_FIELD: usize = 22 - 3;

pub(super) fn add(page: &mut Page) {
    let read = |path| fs::read_to_string(path).ok();
    let machine = read("/proc/stat").as_deref().and_then(machine_start);
    let since = read("/proc/self/stat").as_deref().and_then(start_ticks);
    page.known_seconds(
        "process_start_time_seconds",
        "When this process started, by the wall clock: seconds since 1970.",
        machine
            .zip(since)
            .map(|(machine, ticks)| machine as f64 + ticks as f64 / TICKS_PER_SECOND),
    );
    let used = clock_gettime(ClockId::ProcessCPUTime);
    page.seconds_counter(
        "process_cpu_seconds_total",
        "Time of a processor that this process has used.",
        used.tv_sec as f64 + used.tv_nsec as f64 / 1e9,
    );
    page.known_gauge(
        "process_resident_memory_bytes",
        "Memory of this process that is in RAM.",
        read("/proc/self/status").as_deref().and_then(resident),
    );
    page.known_gauge(
        "process_open_fds",
        "Open file descriptors; a client connection is one.",
        open_files(),
    );
    page.known_gauge(
        "process_max_fds",
        "Most file descriptors that this process may have open.",
        getrlimit(Resource::Nofile).current,
    );
}

/// When the machine started, in seconds since 1970.
fn machine_start(stat: &str) -> Option<u64> {
    let line = stat.lines().find_map(|line| line.strip_prefix("btime "))?;
    line.trim().parse().ok()
}

/// How long after the machine's start that of this process was.
fn start_ticks(stat: &str) -> Option<u64> {
    // The name is in brackets and may hold some itself.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(START_FIELD)?.parse().ok()
}

fn resident(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    kilobytes.checked_mul(1024)
}

fn open_files() -> Option<u64> {
    let count = fs::read_dir("/proc/self/fd").ok()?.count() as u64;
    // One of them is the folder that was just read.
    count.checked_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_the_kernel_are_understood() {
        assert_eq!(
            machine_start("cpu 1 2\nbtime 1700000000\nx 1\n"),
            Some(1_700_000_000)
        );
        let fields: Vec<String> = (3..=52).map(|number: u32| number.to_string()).collect();
        let stat = format!("42 (a) b) {}\n", fields.join(" "));
        assert_eq!(start_ticks(&stat), Some(22));
        assert_eq!(
            resident("VmSize:\t  9 kB\nVmRSS:\t  12 kB\n"),
            Some(12 * 1024)
        );
    }

    #[test]
    fn what_is_not_understood_is_not_known() {
        for text in ["", "btime x", "1 (a) 2", "VmRSS: 1 MB"] {
            assert_eq!(machine_start(text), None);
            assert_eq!(start_ticks(text), None);
            assert_eq!(resident(text), None);
        }
    }
}
