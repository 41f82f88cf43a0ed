//! What must hold inside the desk after every event.

use std::collections::{BTreeMap, BTreeSet};

use raft::lock::Grant;
use wire::Key;

use super::world::World;
use crate::desk::SessionId;
use crate::desk::span::{Asked, Intent, Span};
use crate::desk::waiters::{Place, WaiterId};

/// Checks the desk of `world`, which has heard of no keys but `keys`.
pub(super) fn check(world: &World, keys: &[Key]) {
    let Some(span) = &world.desk.span else {
        assert_eq!(world.desk.wakeup(), None);
        return;
    };
    check_mirror(world, span, keys);
    check_queues(span, keys);
    check_places(span, keys);
}

/// The mirror shows what the table holds: the table moves only when the desk is told.
fn check_mirror(world: &World, span: &Span, keys: &[Key]) {
    let held = world.table.held();
    let held: BTreeMap<Key, Grant> = held.into_iter().map(|l| (l.key, l.grant)).collect();
    for key in keys {
        let mirrored = span.keys.get(key).and_then(|state| state.held);
        let mirrored = mirrored.map(|held| held.grant);
        assert_eq!(mirrored, held.get(key).copied(), "mirror of {key}");
    }
    assert_eq!(span.keys.held_count(), held.len());
    assert_eq!(span.admission.keys.used(), held.len());
}

/// Nobody is stranded, and only the first is under way.
fn check_queues(span: &Span, keys: &[Key]) {
    for (key, state) in keys
        .iter()
        .filter_map(|key| Some((key, span.keys.get(key)?)))
    {
        let first = state.queue.first().copied();
        assert!(
            state.under_way.is_none() || state.under_way == first,
            "{key}: {:?} of {:?} is under way",
            state.under_way,
            state.queue,
        );
        let moves = state.under_way.is_some() || state.attempt_pending || state.held.is_some();
        assert!(first.is_none() || moves, "{key}: {first:?} is stranded");
    }
}

/// Every acquire holds its place, every place has its acquire.
fn check_places(span: &Span, keys: &[Key]) {
    let states = keys.iter().filter_map(|key| span.keys.get(key));
    let (mut queued, mut in_flight, mut under_way, mut kept) = (0, 0, 0, 0);
    for state in states {
        let places = state.queue.iter().map(|id| span.waiters.get(*id).place);
        let queued_here = places.filter(|place| *place == Place::Queued).count();
        assert_eq!(state.queued, queued_here);
        queued += queued_here;
        in_flight += state.queue.len() - queued_here;
        under_way += usize::from(state.under_way.is_some());
        kept += usize::from(state.place_kept);
        assert!(state.attempt_pending || !state.place_kept);
    }
    assert_eq!(span.admission.waiters.used(), queued);
    let places = in_flight + kept + tries(span).count();
    assert_eq!(span.admission.acquires.used(), places);
    let waiters = queued + in_flight;
    assert_eq!(span.waiters.len(), (waiters, waiters - under_way));
    assert_eq!(waiters_proposed(span).count(), under_way);
}

/// The sessions of all tries, pending or proposed.
fn tries(span: &Span) -> impl Iterator<Item = SessionId> {
    let pending = span.pending.iter().filter_map(|intent| match intent {
        Intent::Try { asker, .. } => Some(asker.session),
        _ => None,
    });
    pending.chain(tries_proposed(span))
}

fn tries_proposed(span: &Span) -> impl Iterator<Item = SessionId> {
    asked(span).filter_map(|asked| match asked {
        Asked::Try(asker) => Some(asker.session),
        _ => None,
    })
}

fn waiters_proposed(span: &Span) -> impl Iterator<Item = WaiterId> {
    asked(span).filter_map(waiter_of)
}

fn asked(span: &Span) -> impl Iterator<Item = &Asked> {
    span.flights.iter().flat_map(|flight| &flight.asked)
}

fn waiter_of(asked: &Asked) -> Option<WaiterId> {
    match asked {
        Asked::Attempt { waiter, .. } => Some(*waiter),
        Asked::Release { next, .. } => *next,
        Asked::Try(_) => None,
    }
}

/// The sessions of which an acquire is in the log, undecided.
pub(super) fn proposed_sessions(world: &World) -> BTreeSet<SessionId> {
    let Some(span) = &world.desk.span else {
        return BTreeSet::new();
    };
    let waiting = waiters_proposed(span).map(|id| span.waiters.get(id).asker.session);
    tries_proposed(span).chain(waiting).collect()
}

/// The owners of the acquires in the newest batch, command by command.
pub(super) fn owners_of_newest(world: &World) -> Vec<Option<u64>> {
    let Some(span) = &world.desk.span else {
        return Vec::new();
    };
    let newest = span.flights.back().expect("a batch was just taken");
    let owner = |asked: &Asked| match asked {
        Asked::Try(asker) => Some(asker.owner.0),
        other => waiter_of(other).map(|id| span.waiters.get(id).asker.owner.0),
    };
    newest.asked.iter().map(owner).collect()
}

/// Nothing is left of anything.
pub(super) fn check_empty(world: &World) {
    assert_eq!(world.desk.counts(), crate::desk::Counts::default());
    if let Some(span) = &world.desk.span {
        assert_eq!(span.keys.len(), 0);
        assert_eq!(span.waiters.len(), (0, 0));
        assert!(span.pending.is_empty() && span.flights.is_empty());
        assert_eq!(world.desk.wakeup(), None);
    }
}
