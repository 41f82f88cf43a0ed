//! Crowds that come and vanish: what it costs, and what is left.

use wire::{Acquire, Key, Lease, Owner, Wait};

use super::consistency;
use super::world::{ROOMY, World};
use crate::desk::{Event, Limits, SessionId};

const SECOND: u64 = 1_000_000_000;

fn crowded(limits: Limits) -> World {
    let mut world = World::new(None, limits, 65_536);
    world.activate();
    world
}

fn acquire(session: u64, key: &str, wait: u8) -> Event {
    Event::Acquire {
        session: SessionId(session),
        arrived: 0,
        acquire: Acquire {
            wait: Wait(wait),
            lease: Lease::from_seconds(250).expect("a lease"),
            owner: Owner(0),
            key: key.parse().expect("a key"),
        },
    }
}

fn commit(world: &mut World) {
    while world.take(512).is_some() {
        world.apply();
    }
}

/// 5,000 waiters on one key, in 50 sessions, behind a holder.
fn waiting_crowd() -> World {
    let mut world = crowded(Limits {
        waiters_per_key_max: 5_000,
        ..ROOMY
    });
    world.handle(Event::Opened(SessionId(0)));
    world.handle(acquire(0, "job", 0));
    commit(&mut world);
    for session in 1..=50 {
        world.handle(Event::Opened(SessionId(session)));
    }
    for waiter in 0..5_000 {
        world.handle(acquire(1 + waiter % 50, "job", 60));
    }
    assert_eq!(world.desk.counts().waiters, 5_000);
    world
}

#[test]
fn five_thousand_waiters_vanish_and_leave_nothing() {
    let mut world = waiting_crowd();
    for session in 1..=50 {
        assert!(world.handle(Event::Closed(SessionId(session))).is_empty());
    }
    assert_eq!(world.desk.counts().waiters, 0);
    let span = world.desk.span.as_ref().expect("it serves");
    assert_eq!(span.waiters.len(), (0, 0));
    let job: Key = "job".parse().expect("a key");
    let state = span.keys.get(&job).expect("it is held");
    assert!(state.queue.is_empty());
}

#[test]
fn five_thousand_waits_end_at_once() {
    let mut world = waiting_crowd();
    world.now = 60 * SECOND;
    assert_eq!(world.handle(Event::Tick).len(), 5_000);
    assert_eq!(world.desk.counts().waiters, 0);
}

#[test]
fn a_crowd_of_keys_leaves_no_memory_behind() {
    let mut world = crowded(ROOMY);
    for round in 0..10 {
        world.handle(Event::Opened(SessionId(round)));
        for key in 0..3_000 {
            world.handle(acquire(round, &format!("{round}/{key}"), 0));
        }
        commit(&mut world);
    }
    assert_eq!(world.desk.counts().active_keys, 30_000);
    for round in 0..10 {
        world.handle(Event::Closed(SessionId(round)));
    }
    // Delivered grants outlive their sessions; their leases end them all in one blink.
    world.now = 251 * SECOND;
    world.handle(Event::Tick);
    commit(&mut world);
    consistency::check_empty(&world);
    let span = world.desk.span.as_ref().expect("it serves");
    assert!(
        span.keys.capacity() <= 2_048,
        "room for {} keys",
        span.keys.capacity()
    );
    assert!(span.pending.capacity() <= 2_048);
}

#[test]
fn a_crowd_of_tries_leaves_no_memory_behind() {
    let mut world = crowded(ROOMY);
    world.handle(Event::Opened(SessionId(1)));
    for key in 0..3_500 {
        world.handle(acquire(1, &format!("{key}"), 0));
    }
    world.handle(Event::Closed(SessionId(1)));
    assert!(world.take(512).is_none());
    consistency::check_empty(&world);
    let span = world.desk.span.as_ref().expect("it serves");
    assert!(span.pending.capacity() <= 2_048);
}

#[test]
fn coming_and_going_adds_nothing_to_what_is_pending() {
    let mut world = crowded(ROOMY);
    for session in 0..20_000 {
        world.handle(Event::Opened(SessionId(session)));
        world.handle(acquire(session, &format!("{session}"), 5));
        world.handle(Event::Closed(SessionId(session)));
    }
    let counts = world.desk.counts();
    assert!(counts.pending <= ROOMY.acquires_in_flight_max, "{counts:?}");
    assert!(world.take(512).is_none());
    consistency::check_empty(&world);
}
