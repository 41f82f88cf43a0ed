//! Partitions and bad links: which links a fault is on, as a plain decision.

use super::{Fault, Nemesis};
use crate::hosts::{Effect, End, Link};

/// What is done to which links.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) effect: Effect,
    pub(super) links: Vec<Link>,
    pub(super) what: String,
}

/// What a fault does to links, if it is one of links.
pub(super) fn effect(fault: Fault) -> Option<Effect> {
    Some(match fault {
        Fault::PartitionHalves
        | Fault::PartitionAlone
        | Fault::PartitionBridge
        | Fault::PartitionRing
        | Fault::PartitionOneWay => Effect::Drop,
        Fault::Delay => Effect::Delay,
        Fault::Loss => Effect::Lose,
        Fault::Duplicate => Effect::Duplicate,
        Fault::Reorder => Effect::Reorder,
        Fault::SlowLink => Effect::Slow,
        _ => return None,
    })
}

/// The links that a fault is on; `None` if it is no fault of links.
pub(super) fn plan(nemesis: &mut Nemesis, fault: Fault, targets: &[usize]) -> Option<Plan> {
    let effect = effect(fault)?;
    let count = nemesis.cluster.nodes.len();
    let clients = nemesis.random.u8(0..3) == 0;
    let links = match fault {
        Fault::PartitionOneWay => one_way(count, targets, nemesis.random.bool()),
        Fault::PartitionBridge => bridge(count, targets, nemesis.leader_index()),
        Fault::PartitionRing => ring(count),
        _ => around(count, targets, clients),
    };
    let what = if clients {
        "clients as well"
    } else {
        "nodes only"
    };
    Some(Plan {
        effect,
        links,
        what: what.into(),
    })
}

/// All links between `inside` and the rest, both ways.
fn around(count: usize, inside: &[usize], clients: bool) -> Vec<Link> {
    let mut links = Vec::new();
    // When everybody is hit, each is on its own.
    let everybody = inside.len() == count;
    for &node in inside {
        let others = (0..count).filter(|other| {
            if everybody {
                *other > node
            } else {
                !inside.contains(other)
            }
        });
        links.extend(others.flat_map(|other| Link::both(End::Node(node), End::Node(other))));
        if clients {
            links.extend(Link::both(End::Node(node), End::Clients));
        }
    }
    links
}

/// The links to `targets` from all other nodes, or the other way.
fn one_way(count: usize, targets: &[usize], deaf: bool) -> Vec<Link> {
    around(count, targets, false)
        .into_iter()
        .filter(|link| matches!(link.to, End::Node(node) if targets.contains(&node)) == deaf)
        .collect()
}

/// The first of `targets` that does not lead hears everybody, or another follower does; the others
/// are in two groups. With the leader in the middle nothing would be cut: followers have nothing to
/// say to each other.
fn bridge(count: usize, targets: &[usize], leader: Option<usize>) -> Vec<Link> {
    let mut nodes = targets.iter().copied().chain(0..count);
    let middle = nodes.find(|node| Some(*node) != leader).unwrap_or(0);
    let others: Vec<usize> = (0..count).filter(|node| *node != middle).collect();
    let (left, right) = others.split_at(others.len() / 2);
    left.iter()
        .flat_map(|a| right.iter().map(move |b| (*a, *b)))
        .flat_map(|(a, b)| Link::both(End::Node(a), End::Node(b)))
        .collect()
}

/// Each node hears its neighbours in a ring. Of three nodes all are neighbours: there, each is
/// heard by one of them only.
fn ring(count: usize) -> Vec<Link> {
    let mut links = Vec::new();
    for a in 0..count {
        for b in (0..count).filter(|b| *b != a) {
            let next = b == (a + 1) % count;
            let neighbours = next || a == (b + 1) % count;
            if (count == 3 && next) || (count > 3 && !neighbours) {
                links.push(Link {
                    from: End::Node(a),
                    to: End::Node(b),
                });
            }
        }
    }
    links
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(links: &[Link]) -> Vec<String> {
        let name = |end| match end {
            End::Node(node) => node.to_string(),
            End::Clients => "c".into(),
        };
        links
            .iter()
            .map(|link| format!("{}{}", name(link.from), name(link.to)))
            .collect()
    }

    #[test]
    fn who_is_alone_hears_nobody_and_is_heard_by_nobody() {
        assert_eq!(names(&around(3, &[1], false)), ["10", "01", "12", "21"]);
        assert_eq!(names(&around(2, &[1], true)), ["10", "01", "1c", "c1"]);
    }

    #[test]
    fn when_everybody_is_hit_each_link_is_hit_once() {
        let links = names(&around(3, &[2, 0, 1], false));
        assert_eq!(links, ["01", "10", "02", "20", "12", "21"]);
    }

    #[test]
    fn one_way_is_one_way() {
        assert_eq!(names(&one_way(3, &[0], true)), ["10", "20"]);
        assert_eq!(names(&one_way(3, &[0], false)), ["01", "02"]);
    }

    #[test]
    fn a_bridge_is_in_both_groups() {
        assert_eq!(names(&bridge(3, &[1], None)), ["02", "20"]);
        assert_eq!(bridge(5, &[0], Some(4)).len(), 8);
    }

    #[test]
    fn a_bridge_cuts_the_leader_off_from_somebody() {
        assert_eq!(names(&bridge(3, &[1], Some(1))), ["12", "21"]);
        assert_eq!(names(&bridge(3, &[0, 1], Some(0))), ["02", "20"]);
    }

    #[test]
    fn in_a_ring_everybody_hears_a_majority() {
        let links = ring(5);
        for node in 0..5 {
            let deaf_to = links.iter().filter(|link| link.to == End::Node(node));
            assert_eq!(deaf_to.count(), 2);
        }
        assert_eq!(names(&ring(3)), ["01", "12", "20"]);
    }
}
