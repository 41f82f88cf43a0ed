//! Clusters as people meet them, drawn.

use super::*;
use crate::admin::{Member, MemberKind, Mode, Role};

fn member(number: u64, contact: Option<u64>, lag: u64) -> Member {
    Member {
        node_id: format!("{number:016x}"),
        address: format!("127.0.0.1:522{number}"),
        kind: MemberKind::Voter,
        last_contact_ms: contact,
        lag_entries: Some(lag),
    }
}

fn node(number: u64, role: Role) -> Asked {
    let leads = role == Role::Leader;
    let members = vec![
        member(5, None, 0),
        member(6, Some(12), 3),
        member(7, Some(61_500), 40_000),
    ];
    let status = Status {
        version: "0.1.0".to_owned(),
        mode: Mode::Cluster,
        address: format!("127.0.0.1:522{number}"),
        node_id: Some(format!("{number:016x}")),
        cluster_id: Some("3f2a90b1c4d5e6f73f2a90b1c4d5e6f7".to_owned()),
        role: Some(role),
        active: leads,
        ready: true,
        term: Some(7),
        leader: Some("127.0.0.1:5225".to_owned()),
        members: Some(members),
        applied_index: Some(1_234_567),
        last_log_index: Some(1_234_570),
        snapshot_index: None,
        purged_index: None,
        cluster_time_ms: 5,
        active_keys: 12,
        waiters: if leads { 3 } else { 0 },
        tokens_granted: 98_765,
        connections: 340,
        state_hash: "00f00d0000f00d00".to_owned(),
    };
    Asked {
        admin: format!("127.0.0.1:722{number}"),
        status: Some(status),
        error: None,
    }
}

fn gone(number: u64) -> Asked {
    Asked {
        admin: format!("127.0.0.1:722{number}"),
        status: None,
        error: Some("Connection refused (os error 111)".to_owned()),
    }
}

fn shown(asked: &[Asked]) -> String {
    let lines = picture::of(asked);
    let lines: Vec<String> = lines.iter().map(|line| line.text(false)).collect();
    assert!(
        lines.iter().all(|line| line.chars().count() <= 80),
        "80 columns: {lines:#?}"
    );
    lines.join("\n")
}

#[test]
fn a_cluster_with_a_node_that_is_gone_fits_a_terminal() {
    let asked = [node(5, Role::Leader), node(6, Role::Follower), gone(7)];
    let expected = "\
cluster 3f2a90b1, term 7, version 0.1.0, 127.0.0.1:5225 leads

  NODE            ROLE      READY    APPLIED     LAG  CONTACT  WAITERS  CONNS
* 127.0.0.1:5225  leader    yes    1,234,567       -        -        3    340
  127.0.0.1:5226  follower  yes    1,234,567       3    12 ms        0    340
  127.0.0.1:5227  (voter)   ?              -  40,000   61.5 s        -      -
  admin 127.0.0.1:7227  unreachable: Connection refused (os error 111)

locks held 12, waiters 3, tokens granted 98,765, state 00f00d0000f00d00";
    assert_eq!(shown(&asked), expected);
}

#[test]
fn nothing_is_hidden_when_no_node_answers_or_none_leads() {
    assert!(shown(&[gone(5)]).contains("unreachable"));
    let mut follower = node(6, Role::Follower);
    follower.status.as_mut().expect("there").ready = false;
    let text = shown(&[follower]);
    assert!(
        text.contains("no leader") && text.contains("follower  no"),
        "{text}"
    );
}

#[test]
fn diverged_replicas_and_strangers_are_named() {
    let mut astray = node(6, Role::Follower);
    let status = astray.status.as_mut().expect("there");
    status.state_hash = "1".repeat(16);
    let text = shown(&[node(5, Role::Leader), astray.clone()]);
    assert!(text.contains("DIVERGED"), "{text}");
    let status = astray.status.as_mut().expect("there");
    status.cluster_id = Some("0".repeat(32));
    let text = shown(&[node(5, Role::Leader), astray]);
    assert!(
        text.contains("different clusters") && !text.contains("DIVERGED"),
        "{text}"
    );
}
