//! The manual and the program say the same.

use std::collections::BTreeSet;
use std::fmt::Write;

use ticketing::config::SETTINGS;

use crate::harness::metrics::{PREFIXES, Page};
use crate::harness::{Cluster, SETTLE, eventually, gate};

fn manual() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/OPERATIONS.md");
    std::fs::read_to_string(path).expect("the manual is there")
}

#[test]
fn the_manual_lists_every_setting_as_it_is() {
    let mut table = String::from("| flag | environment | default | what |\n|---|---|---|---|\n");
    for setting in SETTINGS {
        let value = match setting.value {
            "" => String::new(),
            value => format!(" {}", value.replace('|', "\\|")),
        };
        let default = match (setting.default, setting.secret) {
            ("", _) | (_, true) => "–".to_owned(),
            (default, false) => format!("`{default}`"),
        };
        let (flag, env, help) = (setting.flag, setting.env, setting.help);
        writeln!(
            table,
            "| `--{flag}{value}` | `{env}` | {default} | {help} |"
        )
        .expect("a string takes everything");
    }
    assert!(
        manual().contains(&table),
        "docs/OPERATIONS.md must hold this table of settings:\n\n{table}"
    );
}

#[test]
fn an_empty_variable_counts_as_not_set() {
    let mut cluster = Cluster::prepare(gate::shared(), 1, &[]);
    let node = &mut cluster.nodes[0];
    // Where the endpoint is must be said: at its default it would be in another test's way.
    let others = SETTINGS
        .iter()
        .filter(|setting| setting.env != "ADMIN_BIND");
    for variable in others.map(|setting| setting.env).chain(["RUST_LOG"]) {
        node.set_variable(variable, "");
    }
    node.start();
    eventually("it says what it does", SETTLE, || {
        node.log().contains(" INFO ").then_some(())
    });
}

/// The names of metrics that stand at the beginning of a row of a table.
fn documented() -> BTreeSet<String> {
    let manual = manual();
    let rows = manual.lines().filter_map(|line| line.strip_prefix("| `"));
    let names = rows.filter_map(|row| row.split(['`', '{']).next());
    let is_metric = |name: &&str| PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    let names: Vec<String> = names.filter(is_metric).map(str::to_owned).collect();
    let set: BTreeSet<String> = names.iter().cloned().collect();
    assert_eq!(set.len(), names.len(), "each has one row");
    set
}

#[test]
fn the_manual_has_a_row_for_every_metric_and_no_other() {
    // A leader that has made a snapshot and purged its log shows everything that there is.
    let mut cluster = Cluster::start_with(3, &["--snapshot-entries", "16"]);
    let leader = cluster.settle();
    let mut session = cluster.session(leader);
    for owner in 0..200 {
        session.ask(crate::harness::acquire(format!("k{owner}"), 0, 250, owner));
    }
    let known = documented();
    let shown = eventually("the whole page", SETTLE, || {
        let page = Page::of(&cluster.nodes[leader].admin);
        let shown: BTreeSet<String> = page.families.into_keys().collect();
        let whole = ["ticketing_snapshot_index", "ticketing_log_purged_index"];
        whole
            .iter()
            .all(|name| shown.contains(*name))
            .then_some(shown)
    });
    let missing: Vec<_> = shown.difference(&known).collect();
    let gone: Vec<_> = known.difference(&shown).collect();
    assert!(
        missing.is_empty() && gone.is_empty(),
        "without a row: {missing:?}; rows about nothing: {gone:?}"
    );
}
