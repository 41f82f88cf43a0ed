//! Random lives of a desk, watched by an [`Observer`] and checked inside after every step.

use std::collections::BTreeSet;

use proptest::prelude::*;
use raft::lock::{Command, STAMP_MAX};
use wire::{Acquire, Key, Lease, Owner, Reason, Release, Token, Wait};

use super::consistency;
use super::observer::{Input, Observer};
use super::world::{ROOMY, World};
use crate::desk::{Effect, Event, Leadership, Limits, SessionId};

/// Limits that are reached all the time.
const TIGHT: Limits = Limits {
    waiters_per_key_max: 4,
    waiters_max: 10,
    acquires_in_flight_max: 7,
};

/// The sessions that a step may choose from.
const SESSIONS_RECENT: usize = 6;

#[derive(Clone, Debug)]
enum Step {
    Open,
    Acquire {
        session: usize,
        key: usize,
        wait: u8,
        lease: u8,
    },
    /// A token that was granted before, or 0.
    Release {
        session: usize,
        key: usize,
        token: Option<usize>,
    },
    EndInput {
        session: usize,
        malformed: bool,
    },
    Close {
        session: usize,
    },
    Undelivered {
        token: usize,
    },
    Take {
        commands_max: usize,
    },
    Apply,
    Pass {
        nanos: u64,
    },
    Wake,
    Leader(Leadership),
    Revoke {
        lost: usize,
    },
    Activate,
    Foreign {
        key: usize,
    },
    Stop,
}

fn step() -> impl Strategy<Value = Step> {
    let session = 0..SESSIONS_RECENT;
    let key = 0..4usize;
    let wait = prop_oneof![Just(0u8), 1u8..4, Just(30u8)];
    let lease = prop_oneof![Just(1u8), 2u8..4, Just(30u8)];
    let token = proptest::option::weighted(0.9, 0..4usize);
    let leadership = prop_oneof![
        Just(Leadership::Own),
        Just(Leadership::Unknown),
        Just(Leadership::Other("other:1".to_owned())),
    ];
    prop_oneof![
        4 => Just(Step::Open),
        40 => (session.clone(), key.clone(), wait, lease).prop_map(
            |(session, key, wait, lease)| Step::Acquire { session, key, wait, lease }),
        24 => (session.clone(), key.clone(), token).prop_map(
            |(session, key, token)| Step::Release { session, key, token }),
        2 => (session.clone(), any::<bool>()).prop_map(
            |(session, malformed)| Step::EndInput { session, malformed }),
        3 => session.prop_map(|session| Step::Close { session }),
        2 => (0..4usize).prop_map(|token| Step::Undelivered { token }),
        24 => prop_oneof![1..4usize, Just(512)].prop_map(|commands_max| Step::Take { commands_max }),
        26 => Just(Step::Apply),
        6 => prop_oneof![1..10_000_000u64, 1..2_000_000_000u64]
            .prop_map(|nanos| Step::Pass { nanos }),
        6 => Just(Step::Wake),
        1 => leadership.prop_map(Step::Leader),
        1 => (0..3usize).prop_map(|lost| Step::Revoke { lost }),
        3 => Just(Step::Activate),
        1 => key.prop_map(|key| Step::Foreign { key }),
    ]
}

/// A desk with everything that watches it.
struct Life {
    world: World,
    observer: Observer,
    keys: Vec<Key>,
    sessions: Vec<SessionId>,
    owners: u64,
    stopped: bool,
    /// The newest token when the activity began: older ones are not the desk's to give back.
    first_token: Token,
}

impl Life {
    fn new(limits: Limits, active_keys_max: u32) -> Self {
        let keys = ["a", "b", "c", "d"];
        Self {
            world: World::new(Some("me:1"), limits, active_keys_max),
            observer: Observer::default(),
            keys: keys.map(|key| key.parse().expect("a key")).to_vec(),
            sessions: Vec::new(),
            owners: 0,
            stopped: false,
            first_token: Token(0),
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Open => self.open(),
            Step::Acquire {
                session,
                key,
                wait,
                lease,
            } => self.acquire(session, key, wait, lease),
            Step::Release {
                session,
                key,
                token,
            } => self.release(session, key, token),
            Step::EndInput { session, malformed } => self.end_input(session, malformed),
            Step::Close { session } => {
                if let Some(id) = self.session(session) {
                    self.handle(Event::Tick);
                    self.observer.closed(id);
                    self.handle(Event::Closed(id));
                }
            }
            Step::Undelivered { token } => self.undelivered(token),
            Step::Take { commands_max } => drop(self.take(commands_max)),
            Step::Apply => drop(self.apply()),
            Step::Pass { nanos } => self.world.now += nanos,
            Step::Wake => drop(self.wake()),
            Step::Leader(leadership) => drop(self.handle(Event::Leader(leadership))),
            Step::Revoke { lost } => {
                self.ending(|world| world.revoke());
                self.world.lose(lost);
            }
            Step::Activate => self.activate(),
            Step::Foreign { key } => self.foreign(key),
            Step::Stop => {
                self.stopped = true;
                self.ending(|world| world.handle(Event::Stopping));
                self.world.active = false;
            }
        }
        consistency::check(&self.world, &self.keys);
    }

    fn handle(&mut self, event: Event) -> Vec<Effect> {
        let effects = self.world.handle(event);
        self.observer.observe(self.world.now, &effects, None);
        effects
    }

    /// An event that ends the activity, if there is one.
    fn ending(&mut self, event: impl FnOnce(&mut World) -> Vec<Effect>) {
        // Waits that are over end first, and may end sessions with them.
        self.handle(Event::Tick);
        let proposed = consistency::proposed_sessions(&self.world);
        let active = self.world.desk.span.is_some();
        let effects = event(&mut self.world);
        let ends = active.then_some(&proposed);
        self.observer.observe(self.world.now, &effects, ends);
    }

    fn session(&self, index: usize) -> Option<SessionId> {
        let recent = self.sessions.iter().rev().take(SESSIONS_RECENT);
        recent.copied().nth(index)
    }

    fn open(&mut self) {
        let id = SessionId(self.sessions.len() as u64 + 1);
        self.sessions.push(id);
        self.observer.opened(id);
        self.handle(Event::Opened(id));
    }

    fn acquire(&mut self, session: usize, key: usize, wait: u8, lease: u8) {
        let Some(session) = self.session(session) else {
            return;
        };
        self.owners += 1;
        let acquire = Acquire {
            wait: Wait(wait),
            lease: Lease::from_seconds(lease).expect("a lease"),
            owner: Owner(self.owners),
            key: self.keys[key].clone(),
        };
        // What is due ends before the request is looked at.
        self.handle(Event::Tick);
        let arrived = self.world.now;
        self.observer.acquired(session, arrived, &acquire);
        let effects = self.handle(Event::Acquire {
            session,
            arrived,
            acquire,
        });
        let owner = Some(self.owners);
        self.observer
            .settle_refused_request(session, &effects, owner);
    }

    fn release(&mut self, session: usize, key: usize, token: Option<usize>) {
        let Some(session) = self.session(session) else {
            return;
        };
        let newest = self.observer.granted.iter().rev();
        let chosen = token.and_then(|back| newest.clone().nth(back));
        let (token, key) = match chosen {
            Some((token, key)) => (*token, key.clone()),
            None => (Token(0), self.keys[key].clone()),
        };
        let release = Release { token, key };
        self.handle(Event::Tick);
        self.observer.released(session, &release);
        let effects = self.handle(Event::Release { session, release });
        self.observer
            .settle_refused_request(session, &effects, None);
    }

    fn end_input(&mut self, session: usize, malformed: bool) {
        let Some(session) = self.session(session) else {
            return;
        };
        self.handle(Event::Tick);
        let (input, last) = match malformed {
            true => (Input::Malformed, Some(Reason::BadOp)),
            false => (Input::Closed, None),
        };
        self.observer.input_ended(session, input);
        self.handle(Event::InputEnded { session, last });
    }

    fn undelivered(&mut self, back: usize) {
        let Some(token) = self.observer.told.iter().rev().nth(back).copied() else {
            return;
        };
        self.observer.told.remove(&token);
        let key = self.observer.granted[&token].clone();
        self.handle(Event::Undelivered { key, token });
    }

    fn take(&mut self, commands_max: usize) -> bool {
        let Some(batch) = self.world.take(commands_max) else {
            return false;
        };
        assert!(batch.commands.len() <= commands_max);
        let owners = consistency::owners_of_newest(&self.world);
        self.observer.proposed(&batch, owners);
        true
    }

    fn apply(&mut self) -> bool {
        let Some((batch, applied, effects)) = self.world.apply() else {
            return false;
        };
        self.observer.applied(&batch, &applied);
        self.observer.observe(self.world.now, &effects, None);
        true
    }

    fn wake(&mut self) -> bool {
        let Some(at) = self.world.desk.wakeup() else {
            return false;
        };
        self.world.now = self.world.now.max(at);
        self.handle(Event::Tick);
        true
    }

    fn activate(&mut self) {
        if self.stopped {
            return;
        }
        // An activation stands behind all that is in the log; what is applied until then is applied
        // for the activity before, if it still is one.
        while self.apply() {}
        self.first_token = Token(self.world.table.tokens_granted());
        self.ending(|world| world.activate());
    }

    fn foreign(&mut self, key: usize) {
        if self.world.desk.span.is_some() {
            return;
        }
        while self.apply() {}
        let acquire = Command::Acquire {
            key: self.keys[key].clone(),
            lease: Lease::from_seconds(2).expect("a lease"),
        };
        let now = self.world.table.now();
        self.world.apply_foreign(now, vec![acquire]);
    }

    fn drain(&mut self) {
        while self.take(usize::MAX) | self.apply() {
            consistency::check(&self.world, &self.keys);
        }
    }

    /// The end: everything is decided, then all time passes, then everybody goes.
    fn end(mut self) {
        self.drain();
        let held = self.world.table.held();
        let keys: Vec<Key> = held.iter().map(|lock| lock.key.clone()).collect();
        self.observer.check_nobody_stranded(&keys);
        if self.world.desk.span.is_some() {
            let own = held
                .iter()
                .filter(|lock| lock.grant.token > self.first_token);
            for lock in own {
                let told = self.observer.told.contains(&lock.grant.token);
                assert!(told, "{lock:?} is held by nobody");
            }
        }
        let mut wakes = 0;
        while self.wake() {
            self.drain();
            wakes += 1;
            assert!(wakes < 500, "time does not come to an end");
        }
        self.observer.check_all_answered();
        for id in std::mem::take(&mut self.sessions) {
            self.observer.closed(id);
            self.handle(Event::Closed(id));
        }
        self.drain();
        consistency::check_empty(&self.world);
    }
}

fn live(mut life: Life, steps: Vec<Step>) -> Life {
    for step in steps {
        life.step(step);
    }
    life
}

/// Begins where everything works: two sessions, and the node serves.
fn serving(steps: impl IntoIterator<Item = Step>) -> Vec<Step> {
    let begin = [Step::Activate, Step::Open, Step::Open];
    begin.into_iter().chain(steps).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn every_request_has_one_answer_and_nothing_is_left(
        steps in proptest::collection::vec(step(), 1..250),
    ) {
        let life = live(Life::new(ROOMY, 65_536), serving(steps));
        assert_eq!(life.observer.busy, 0, "nobody is busy when there is room");
        life.end();
    }

    #[test]
    fn limits_change_nothing_of_that(steps in proptest::collection::vec(step(), 1..250)) {
        live(Life::new(TIGHT, 3), serving(steps)).end();
    }

    #[test]
    fn nor_does_a_stop(steps in proptest::collection::vec(step(), 1..100)) {
        let mut life = live(Life::new(ROOMY, 65_536), serving(steps));
        life.step(Step::Stop);
        life.step(Step::Activate);
        life.end();
    }

    #[test]
    fn nor_does_the_end_of_tokens(steps in proptest::collection::vec(step(), 1..150)) {
        // Cluster time is over in one second; from then on the table grants nothing.
        let mut life = Life::new(ROOMY, 65_536);
        let mut stamp = STAMP_MAX;
        stamp.0 -= 1_000_000_000;
        life.world.apply_foreign(stamp, Vec::new());
        let mut life = live(life, serving(steps));
        life.drain();
        let refused: BTreeSet<SessionId> = life.sessions.drain(..).collect();
        life.handle(Event::Tick);
        for id in refused {
            life.observer.closed(id);
            life.handle(Event::Closed(id));
        }
        life.drain();
        prop_assert_eq!(life.world.desk.counts().waiters, 0);
        prop_assert_eq!(life.world.desk.counts().acquires_in_flight, 0);
        prop_assert_eq!(life.world.desk.counts().releases_in_flight, 0);
    }
}
