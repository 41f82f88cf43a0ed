//! What the alerts and the dashboard ask for is on the page.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::harness::metrics::Page;
use crate::harness::{Cluster, PATIENCE, eventually};

/// The names of metrics in a text.
fn names(text: &str) -> BTreeSet<String> {
    text.split(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'))
        .filter(|word| word.starts_with("ticketing_"))
        .map(str::to_owned)
        .collect()
}

#[test]
fn alerts_and_dashboard_ask_for_metrics_that_there_are() {
    let mut cluster = Cluster::start(3);
    let leader = cluster.settle();
    for file in ["alerts.yaml", "dashboard.json"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("deploy/monitoring")
            .join(file);
        let wanted = names(&fs::read_to_string(path).expect("the file is there"));
        assert!(wanted.len() > 5, "{file}: {wanted:?}");
        eventually(&format!("all of {wanted:?}"), PATIENCE, || {
            let page = Page::of(&cluster.nodes[leader].admin);
            let series = page
                .names()
                .into_iter()
                .map(|series| series.split('{').next());
            let there: BTreeSet<_> = series.flatten().map(str::to_owned).collect();
            wanted.is_subset(&there).then_some(())
        });
    }
}
