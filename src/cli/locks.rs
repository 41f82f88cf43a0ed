//! `ticketing locks`: who holds what, for how much longer, and how many wait.
//!
//! Every node knows the locks; only the leader knows who waits. So the leader is asked if one of the
//! nodes leads, else the first node that answers.

use clap::Args;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::admin::{AdminArgs, Endpoints, Output};
use super::table::{Side, Table, brief, grouped};
use crate::admin::{LOCKS_DEFAULT, LOCKS_MAX, Locks, Status};
use crate::cli::{EXIT_FAILURE, block_on, or_usage};

/// The arguments of `locks`.
#[derive(Args, Debug)]
pub struct LocksArgs {
    #[command(flatten)]
    admin: AdminArgs,
    /// Only keys that begin with this
    #[arg(long, default_value = "")]
    prefix: String,
    /// How many locks to show, 1 to 1000
    #[arg(long, value_name = "N", default_value_t = LOCKS_DEFAULT as u64,
          value_parser = clap::value_parser!(u64).range(1..=LOCKS_MAX as u64))]
    limit: u64,
}

/// Asks and shows; the exit code is 0 if a node answered.
pub fn run(args: &LocksArgs) -> u8 {
    let endpoints = match or_usage(args.admin.endpoints()) {
        Ok(endpoints) => endpoints,
        Err(code) => return code,
    };
    block_on(async {
        Ok(match ask(&endpoints, args).await {
            Ok(locks) => {
                show(&locks, args.admin.output);
                0
            }
            Err(line) => {
                complain!("{line}");
                EXIT_FAILURE
            }
        })
    })
}

async fn ask(endpoints: &Endpoints, args: &LocksArgs) -> Result<Locks, String> {
    let answers = endpoints.ask_all::<Status>("/v1/status").await;
    let answered = |(address, answer): &(String, Result<Status, String>)| {
        let status = answer.as_ref().ok()?;
        Some((!status.active, address.clone()))
    };
    // The leader comes first; the others stay in their order.
    let best = answers
        .iter()
        .filter_map(answered)
        .min_by_key(|(idle, _)| *idle);
    let Some((_, address)) = best else {
        let why = |(address, answer): &(String, Result<Status, String>)| {
            let error = answer.as_ref().err().map_or("", String::as_str);
            format!("{address}: {error}")
        };
        let all: Vec<String> = answers.iter().map(why).collect();
        return Err(format!("no node answers: {}", all.join("; ")));
    };
    let prefix = utf8_percent_encode(&args.prefix, NON_ALPHANUMERIC);
    let path = format!("/v1/locks?limit={}&prefix={prefix}", args.limit);
    let locks = endpoints.ask(&address, &path).await;
    locks.map_err(|error| format!("{address}: {error}"))
}

fn show(locks: &Locks, output: Output) {
    if output == Output::Json {
        let text = serde_json::to_string_pretty(locks);
        say!("{}", text.expect("plain data always encodes"));
        return;
    }
    for line in lines(locks) {
        say!("{line}");
    }
}

fn lines(locks: &Locks) -> Vec<String> {
    if locks.locks.is_empty() {
        return vec!["no key is held".to_owned()];
    }
    let mut table = Table::new([
        ("KEY", Side::Left),
        ("TOKEN", Side::Right),
        ("LEASE", Side::Right),
        ("LEFT", Side::Right),
        ("WAITERS", Side::Right),
    ]);
    for lock in &locks.locks {
        table.row(vec![
            printable(&lock.key),
            grouped(lock.token),
            format!("{} s", lock.lease_seconds),
            brief(lock.remaining_ms),
            grouped(lock.waiters),
        ]);
    }
    let mut lines = table.lines();
    if locks.more {
        lines.push(format!(
            "and more: --limit shows up to {}, --prefix narrows the list",
            grouped(LOCKS_MAX as u64)
        ));
    }
    lines
}

/// A key as a terminal may get it: keys may hold any control character, and whoever names a key must
/// not steer the terminal of whoever looks.
fn printable(key: &str) -> String {
    let escape = |c: char| {
        let escaped = c.is_control().then(|| c.escape_default().to_string());
        escaped.unwrap_or_else(|| c.to_string())
    };
    key.chars().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::ListedLock;

    fn lock(key: &str) -> ListedLock {
        ListedLock {
            key: key.to_owned(),
            token: 12_345,
            lease_seconds: 30,
            remaining_ms: 12_340,
            waiters: 2,
        }
    }

    #[test]
    fn locks_are_a_table_and_keys_cannot_steer_the_terminal() {
        let locks = Locks {
            locks: vec![lock("在庫"), lock("a\u{1b}[2Jb\t\u{9b}")],
            more: true,
        };
        let expected = [
            "KEY                   TOKEN  LEASE    LEFT  WAITERS",
            "在庫                   12,345   30 s  12.3 s        2",
            "a\\u{1b}[2Jb\\t\\u{9b}  12,345   30 s  12.3 s        2",
            "and more: --limit shows up to 1,000, --prefix narrows the list",
        ];
        let shown = lines(&locks);
        assert_eq!(shown, expected);
        assert!(shown.iter().all(|line| !line.chars().any(char::is_control)));
    }

    #[test]
    fn an_empty_list_says_so() {
        let none = Locks {
            locks: Vec::new(),
            more: false,
        };
        assert_eq!(lines(&none), ["no key is held"]);
    }
}
