//! Applied batches that are not the ones that the desk waits for.

use raft::Activity;
use raft::lock::{Applied, Attempt, Grant, Outcome, Stamp};
use wire::{Acquire, Lease, Owner, Reply, Token, Wait};

use super::world::{ORIGIN, ROOMY, World};
use crate::desk::{Effect, Event, SessionId};

const SESSION: SessionId = SessionId(1);

/// A desk in its second activity, with one acquire in the log.
fn waiting() -> World {
    let mut world = World::new(None, ROOMY, 65_536);
    world.activate();
    world.revoke();
    world.activate();
    world.handle(Event::Opened(SESSION));
    world.handle(Event::Acquire {
        session: SESSION,
        arrived: 0,
        acquire: Acquire {
            wait: Wait(0),
            lease: Lease::from_seconds(10).expect("a lease"),
            owner: Owner(5),
            key: "job".parse().expect("a key"),
        },
    });
    world.take(1).expect("there is an acquire");
    world
}

/// What the acquire in the log will come to.
fn outcome() -> Applied {
    Applied {
        origin: ORIGIN,
        sequence: 1,
        now: Stamp(0),
        ended: Vec::new(),
        outcomes: vec![Outcome::Acquired(Attempt::Granted(Grant {
            token: Token(1),
            deadline: Stamp(10),
        }))],
    }
}

fn feed(world: &mut World, activity: u64, applied: Applied) -> Vec<Effect> {
    let activity = Activity(activity);
    world.handle(Event::Applied { activity, applied })
}

fn check_ignored(activity: u64, applied: Applied) {
    let mut world = waiting();
    assert_eq!(feed(&mut world, activity, applied), []);
    assert_eq!(world.desk.batches_in_flight(), 1);
    assert_eq!(world.desk.counts().active_keys, 0);
}

#[test]
fn an_outcome_of_another_activity_is_ignored() {
    check_ignored(1, outcome());
    check_ignored(3, outcome());
}

#[test]
fn an_outcome_of_another_process_is_ignored() {
    check_ignored(
        2,
        Applied {
            origin: ORIGIN + 1,
            ..outcome()
        },
    );
}

#[test]
fn an_outcome_of_another_batch_is_ignored() {
    for sequence in [0, 2, u64::MAX] {
        check_ignored(
            2,
            Applied {
                sequence,
                ..outcome()
            },
        );
    }
}

#[test]
fn the_outcome_itself_is_told() {
    let mut world = waiting();
    let granted = Reply::Granted {
        token: Token(1),
        owner: Owner(5),
        key: "job".parse().expect("a key"),
    };
    let effects = feed(&mut world, 2, outcome());
    assert_eq!(effects, [Effect::Reply(SESSION, granted)]);
    assert_eq!(feed(&mut world, 2, outcome()), [], "only once");
}

#[test]
fn time_that_another_batch_brings_ends_leases() {
    let mut world = waiting();
    feed(&mut world, 2, outcome());
    assert_eq!(world.desk.counts().active_keys, 1);
    let later = Applied {
        origin: ORIGIN + 1,
        now: Stamp(10),
        outcomes: Vec::new(),
        ..outcome()
    };
    feed(&mut world, 2, later);
    assert_eq!(world.desk.counts().active_keys, 0);
}
