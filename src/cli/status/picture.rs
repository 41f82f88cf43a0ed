//! The picture that `ticketing status` draws: a heading, a row for each node, and what the cluster has
//! as a whole.

use super::{Asked, complaints};
use crate::admin::{Member, MemberKind, Mode, Role, Status};
use crate::cli::table::{Side, Table, brief, grouped};

/// How a line is to strike the eye.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Faint,
    Strong,
    Alarm,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line(Tone, String);

impl Line {
    pub(super) fn text(&self, colours: bool) -> String {
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
pub(super) fn of(asked: &[Asked]) -> Vec<Line> {
    let known: Vec<&Status> = asked.iter().filter_map(|a| a.status.as_ref()).collect();
    let leader = known
        .iter()
        .find(|status| status.active && status.mode == Mode::Cluster);
    let mut lines = heading(&known, leader.copied());
    lines.extend(nodes(asked, leader.copied()));
    lines.extend(totals(&known, leader.copied()));
    lines.extend(
        complaints::about(&known)
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

/// The beginning of a long id: enough to tell two clusters apart.
pub(super) fn short(id: &str) -> &str {
    id.get(..8).unwrap_or(id)
}
