//! `ticketing status`: what the nodes say of themselves and their cluster, in one picture.
//!
//! Each node is asked; its role and what it has applied are its own words, how far it lags and when
//! it last answered are the leader's. What does not fit together is said below the table: a cluster
//! without a leader, two leaders, nodes of different clusters, equal indices with different states.

use std::collections::BTreeMap;
use std::io::IsTerminal;

use clap::Args;
use serde::Serialize;

use super::admin::{AdminArgs, Output};
use super::table::{Side, Table, brief, grouped};
use crate::admin::{Member, MemberKind, Mode, Role, Status};
use crate::cli::{EXIT_FAILURE, block_on, or_usage};

/// The arguments of `status`.
#[derive(Args, Debug)]
pub struct StatusArgs {
    #[command(flatten)]
    admin: AdminArgs,
}

/// A node that was asked.
#[derive(Clone, Debug, Serialize)]
struct Asked {
    /// Its admin address.
    admin: String,
    /// What it said.
    status: Option<Status>,
    /// Why it said nothing.
    error: Option<String>,
}

/// The answer in JSON.
#[derive(Serialize)]
struct Nodes<'a> {
    nodes: &'a [Asked],
}

/// Asks and shows. The exit code is 0 if every node answered and is ready, else 1.
pub fn run(args: &StatusArgs) -> u8 {
    let endpoints = match or_usage(args.admin.endpoints()) {
        Ok(endpoints) => endpoints,
        Err(code) => return code,
    };
    block_on(async {
        let answers = endpoints.ask_all::<Status>("/v1/status").await;
        let asked = answers.into_iter().map(|(admin, answer)| {
            let (status, error) = match answer {
                Ok(status) => (Some(status), None),
                Err(error) => (None, Some(error)),
            };
            Asked {
                admin,
                status,
                error,
            }
        });
        let asked: Vec<Asked> = asked.collect();
        match args.admin.output {
            Output::Json => {
                let text = serde_json::to_string_pretty(&Nodes { nodes: &asked });
                say!("{}", text.expect("plain data always encodes"));
            }
            Output::Table => {
                let colours = std::io::stdout().is_terminal()
                    && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
                for line in picture(&asked) {
                    say!("{}", line.text(colours));
                }
            }
        }
        let well = |asked: &Asked| asked.status.as_ref().is_some_and(|status| status.ready);
        Ok(if asked.iter().all(well) {
            0
        } else {
            EXIT_FAILURE
        })
    })
}

/// How a line is to strike the eye.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tone {
    Plain,
    Faint,
    Strong,
    Alarm,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Line(Tone, String);

impl Line {
    fn text(&self, colours: bool) -> String {
        let Self(tone, text) = self;
        let code = match tone {
            Tone::Plain => return text.clone(),
            Tone::Faint => "2",
            Tone::Strong => "1",
            Tone::Alarm => "31",
        };
        if colours {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.clone()
        }
    }
}

/// The whole picture.
fn picture(asked: &[Asked]) -> Vec<Line> {
    let known: Vec<&Status> = asked.iter().filter_map(|a| a.status.as_ref()).collect();
    let leader = known
        .iter()
        .find(|status| status.active && status.mode == Mode::Cluster);
    let mut lines = heading(&known, leader.copied());
    lines.extend(nodes(asked, leader.copied()));
    lines.extend(totals(&known, leader.copied()));
    lines.extend(
        complaints(&known)
            .into_iter()
            .map(|text| Line(Tone::Alarm, text)),
    );
    lines
}

fn heading(known: &[&Status], leader: Option<&Status>) -> Vec<Line> {
    let Some(first) = known.first() else {
        return Vec::new();
    };
    let text = match (first.mode, leader) {
        (Mode::Single, _) => format!("single mode, version {}", first.version),
        (Mode::Cluster, leader) => {
            let term = known.iter().filter_map(|status| status.term).max();
            let id = known.iter().find_map(|status| status.cluster_id.as_deref());
            format!(
                "cluster {}, term {}, version {}, {}",
                id.map_or("(none yet)", short),
                term.map_or("-".to_owned(), grouped),
                first.version,
                leader.map_or("no leader".to_owned(), |l| format!("{} leads", l.address)),
            )
        }
    };
    vec![Line(Tone::Plain, text), Line(Tone::Plain, String::new())]
}

fn nodes(asked: &[Asked], leader: Option<&Status>) -> Vec<Line> {
    let mut table = Table::new([
        ("  NODE", Side::Left),
        ("ROLE", Side::Left),
        ("READY", Side::Left),
        ("APPLIED", Side::Right),
        ("LAG", Side::Right),
        ("CONTACT", Side::Right),
        ("WAITERS", Side::Right),
        ("CONNS", Side::Right),
    ]);
    let mut tones = vec![Tone::Faint];
    for status in asked.iter().filter_map(|node| node.status.as_ref()) {
        let (cells, tone) = answered(status, leader);
        table.row(cells);
        tones.push(tone);
    }
    // Members that nobody was asked about, as the leader sees them.
    let answered: Vec<&str> = asked
        .iter()
        .filter_map(|node| Some(node.status.as_ref()?.address.as_str()))
        .collect();
    let members = leader.and_then(|leader| leader.members.as_deref());
    for member in members.unwrap_or_default() {
        if !answered.contains(&member.address.as_str()) {
            table.row(silent_member(member));
            tones.push(Tone::Faint);
        }
    }
    let rows = tones.into_iter().zip(table.lines());
    let mut lines: Vec<Line> = rows.map(|(tone, text)| Line(tone, text)).collect();
    for node in asked {
        if let Some(why) = &node.error {
            let text = format!("  admin {}  unreachable: {why}", node.admin);
            lines.push(Line(Tone::Alarm, text));
        }
    }
    lines
}

fn answered(status: &Status, leader: Option<&Status>) -> (Vec<String>, Tone) {
    let leads = leader.is_some_and(|leader| leader.address == status.address);
    let members = leader.and_then(|leader| leader.members.as_deref());
    let member = members.and_then(|members| {
        let own = |member: &&Member| Some(&member.node_id) == status.node_id.as_ref();
        members.iter().find(own)
    });
    let (lag, contact) = match member {
        Some(member) if !leads => (lag(member), contact(member)),
        _ => ("-".to_owned(), "-".to_owned()),
    };
    let tone = match (status.ready, leads) {
        (false, _) => Tone::Alarm,
        (true, true) => Tone::Strong,
        (true, false) => Tone::Plain,
    };
    let mark = if leads { '*' } else { ' ' };
    let cells = vec![
        format!("{mark} {}", status.address),
        status.role.map_or("single", role).to_owned(),
        if status.ready { "yes" } else { "no" }.to_owned(),
        status.applied_index.map_or("-".to_owned(), grouped),
        lag,
        contact,
        grouped(status.waiters),
        grouped(status.connections),
    ];
    (cells, tone)
}

/// A member that was not asked, or did not answer.
fn silent_member(member: &Member) -> Vec<String> {
    let kind = match member.kind {
        MemberKind::Voter => "voter",
        MemberKind::Learner => "learner",
    };
    let none = || "-".to_owned();
    vec![
        format!("  {}", member.address),
        format!("({kind})"),
        "?".to_owned(),
        none(),
        lag(member),
        contact(member),
        none(),
        none(),
    ]
}

fn lag(member: &Member) -> String {
    member.lag_entries.map_or("-".to_owned(), grouped)
}

fn contact(member: &Member) -> String {
    member.last_contact_ms.map_or("never".to_owned(), brief)
}

fn role(role: Role) -> &'static str {
    match role {
        Role::Leader => "leader",
        Role::Follower => "follower",
        Role::Candidate => "candidate",
        Role::Learner => "learner",
        Role::Starting => "starting",
        Role::Stopped => "stopped",
    }
}

/// What the cluster as a whole has: as the leader says, else as the node says that is furthest.
fn totals(known: &[&Status], leader: Option<&Status>) -> Vec<Line> {
    let furthest = || {
        known
            .iter()
            .copied()
            .max_by_key(|status| status.applied_index)
    };
    let Some(best) = leader.or_else(furthest) else {
        return Vec::new();
    };
    let text = format!(
        "locks held {}, waiters {}, tokens granted {}, state {}",
        grouped(best.active_keys),
        grouped(best.waiters),
        grouped(best.tokens_granted),
        best.state_hash,
    );
    vec![Line(Tone::Plain, String::new()), Line(Tone::Plain, text)]
}

/// What does not fit together.
fn complaints(known: &[&Status]) -> Vec<String> {
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

/// The beginning of a long id: enough to tell two clusters apart.
fn short(id: &str) -> &str {
    id.get(..8).unwrap_or(id)
}

fn distinct<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut texts: Vec<&str> = texts.collect();
    texts.sort_unstable();
    texts.dedup();
    texts
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let lines = picture(asked);
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
}
