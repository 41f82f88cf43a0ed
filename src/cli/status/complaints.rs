//! What does not fit together in the answers of several nodes.

use std::collections::BTreeMap;

use super::picture::short;
use crate::admin::{Mode, Status};

/// A line for each thing.
pub(super) fn about(known: &[&Status]) -> Vec<String> {
    let mut lines = Vec::new();
    let ids = known.iter().filter_map(|s| s.cluster_id.as_deref());
    let ids = distinct(ids.map(short));
    if ids.len() > 1 {
        lines.push(format!(
            "these nodes belong to different clusters: {}",
            ids.join(", ")
        ));
    }
    let leaders = known.iter().filter(|s| s.active && s.mode == Mode::Cluster);
    let leaders: Vec<&str> = distinct(leaders.map(|status| status.address.as_str()));
    if leaders.len() > 1 {
        // Asked one after the other, they may both have been right.
        lines.push(format!(
            "the lead was passed on meanwhile: {}",
            leaders.join(", ")
        ));
    }
    let mut states: BTreeMap<(&str, u64), &Status> = BTreeMap::new();
    for status in known {
        let (Some(id), Some(index)) = (status.cluster_id.as_deref(), status.applied_index) else {
            continue;
        };
        let first = states.entry((id, index)).or_insert(status);
        if first.state_hash != status.state_hash {
            lines.push(format!(
                "{} and {} have DIVERGED at index {index}:",
                first.address, status.address
            ));
            lines.push(format!(
                "  their states are {} and {}; rebuild one",
                first.state_hash, status.state_hash
            ));
        }
    }
    lines
}

fn distinct<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut texts: Vec<&str> = texts.collect();
    texts.sort_unstable();
    texts.dedup();
    texts
}
