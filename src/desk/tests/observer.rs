//! What clients can see: keeps account of every request and checks every effect against it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use raft::lock::{Applied, Attempt, Batch, Command, Outcome};
use wire::{Acquire, Key, Reason, Release, Reply, Token, Wait};

use crate::desk::{Effect, SessionId};

/// The least time before its end at which a wait may be over, in nanoseconds.
const MARGIN: u64 = 100_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Input {
    Open,
    Closed,
    Malformed,
}

/// A session that the desk has not been told to forget, and has not told to go.
#[derive(Debug)]
struct Session {
    input: Input,
    refused: bool,
    /// Unanswered, in order of arrival.
    releases: VecDeque<Release>,
    /// Refusals of acquires that can't be told apart.
    acquires_refused: usize,
}

/// An unanswered acquire. Its owner is its number in order of arrival.
#[derive(Debug)]
struct Asked {
    session: SessionId,
    key: Key,
    wait: Wait,
    arrived: u64,
}

/// Everything that was asked and answered.
#[derive(Default)]
pub(super) struct Observer {
    sessions: BTreeMap<SessionId, Session>,
    acquires: BTreeMap<u64, Asked>,
    /// Owners whose acquires were refused: never to be granted.
    refused: BTreeSet<u64>,
    /// Owners of the commands of each batch that was taken.
    proposed: BTreeMap<u64, Vec<Option<u64>>>,
    /// All grants of the table, in order.
    pub(super) granted: BTreeMap<Token, Key>,
    /// Those that were told with an `A`, and did not come back undelivered.
    pub(super) told: BTreeSet<Token>,
    newest_told: Token,
    releases_asked: usize,
    releases_settled: usize,
    pub(super) busy: usize,
}

impl Observer {
    pub(super) fn opened(&mut self, id: SessionId) {
        self.sessions.insert(
            id,
            Session {
                input: Input::Open,
                refused: false,
                releases: VecDeque::new(),
                acquires_refused: 0,
            },
        );
    }

    pub(super) fn asks(&self, id: SessionId) -> bool {
        self.sessions
            .get(&id)
            .is_some_and(|session| session.input == Input::Open)
    }

    pub(super) fn acquired(&mut self, session: SessionId, arrived: u64, acquire: &Acquire) {
        if self.asks(session) {
            let asked = Asked {
                session,
                key: acquire.key.clone(),
                wait: acquire.wait,
                arrived,
            };
            self.acquires.insert(acquire.owner.0, asked);
        }
    }

    pub(super) fn released(&mut self, id: SessionId, release: &Release) {
        self.releases_asked += 1;
        if self.asks(id) {
            let session = self.sessions.get_mut(&id).expect("it asks");
            session.releases.push_back(release.clone());
        }
    }

    pub(super) fn input_ended(&mut self, id: SessionId, input: Input) {
        if !self.asks(id) {
            return;
        }
        self.sessions.get_mut(&id).expect("it asks").input = input;
        if input == Input::Closed {
            // Nobody waits for these, and no answer may come.
            self.acquires.retain(|_, asked| asked.session != id);
        }
    }

    pub(super) fn closed(&mut self, id: SessionId) {
        self.sessions.remove(&id);
        self.acquires.retain(|_, asked| asked.session != id);
    }

    /// A batch went into the log with acquires of these owners.
    pub(super) fn proposed(&mut self, batch: &Batch, owners: Vec<Option<u64>>) {
        assert_eq!(owners.len(), batch.commands.len());
        self.proposed.insert(batch.sequence, owners);
    }

    /// The table has carried a batch out, whether the desk hears of it or not.
    pub(super) fn applied(&mut self, batch: &Batch, applied: &Applied) {
        let owners = self.proposed.remove(&batch.sequence).expect("it was taken");
        let results = batch.commands.iter().zip(&applied.outcomes);
        for ((command, outcome), owner) in results.zip(owners) {
            let (Command::Acquire { key, .. } | Command::Release { key, .. }) = command;
            if let Outcome::Acquired(attempt)
            | Outcome::Released {
                next: Some(attempt),
            }
            | Outcome::NotCurrent {
                next: Some(attempt),
            } = outcome
                && let Attempt::Granted(grant) = attempt
            {
                let owner = owner.expect("only acquires are granted");
                assert!(!self.refused.contains(&owner), "{owner} was refused");
                self.granted.insert(grant.token, key.clone());
            }
        }
    }

    /// Checks what an event led to; `proposed` are the sessions that must be closed if
    /// it ended the activity.
    pub(super) fn observe(
        &mut self,
        now: u64,
        effects: &[Effect],
        ends: Option<&BTreeSet<SessionId>>,
    ) {
        let mut closed = BTreeSet::new();
        for effect in effects {
            match effect {
                Effect::Reply(id, reply) => self.observe_reply(now, *id, reply, ends.is_some()),
                Effect::Finish(id, last) => self.observe_finish(*id, last.as_ref()),
                Effect::Close(id) => {
                    assert!(self.sessions.contains_key(id), "{id:?} was closed before");
                    self.closed(*id);
                    closed.insert(*id);
                }
                Effect::ReleaseSettled => self.releases_settled += 1,
            }
        }
        match ends {
            Some(proposed) => {
                let here = |id: &&SessionId| closed.contains(id) || self.sessions.contains_key(id);
                let expected: BTreeSet<SessionId> = proposed.iter().filter(here).copied().collect();
                assert_eq!(
                    closed, expected,
                    "silence is for who was proposed, and only for them"
                );
                self.check_all_refused();
            }
            None => assert!(closed.is_empty(), "only a loss of activity closes sessions"),
        }
        assert!(self.releases_settled <= self.releases_asked);
    }

    fn observe_reply(&mut self, now: u64, id: SessionId, reply: &Reply, lost: bool) {
        let session = self.sessions.get_mut(&id);
        let session = session.unwrap_or_else(|| panic!("{reply:?} to {id:?}, which is gone"));
        match reply {
            Reply::Leader(_) => assert_eq!(session.input, Input::Open),
            Reply::Moved(_) | Reply::Error(Reason::NoLeader | Reason::NotActive) => {
                session.refused = true;
                if lost && !session.releases.is_empty() {
                    session.releases.pop_front();
                } else {
                    session.acquires_refused += 1;
                }
                let refused = self
                    .acquires
                    .iter()
                    .filter(|(_, asked)| asked.session == id);
                self.refused.extend(refused.map(|(owner, _)| *owner));
            }
            Reply::Released { token, key } | Reply::NotCurrent { token, key } => {
                let oldest = session.releases.pop_front();
                let (token, key) = (*token, key.clone());
                assert_eq!(oldest, Some(Release { token, key }));
            }
            Reply::Granted { token, owner, key } => {
                assert!(!session.refused, "a grant after a refusal");
                let asked = self.answered(id, owner.0, key);
                self.check_grant(*token, owner.0, &asked);
            }
            Reply::TimedOut { owner, key } => {
                assert!(!session.refused, "an answer after a refusal");
                let asked = self.answered(id, owner.0, key);
                let over = asked.arrived + asked.wait.nanos().saturating_sub(MARGIN);
                assert!(now >= over, "{asked:?} timed out at {now}");
            }
            Reply::Busy { owner, key } => {
                assert!(!session.refused, "an answer after a refusal");
                self.answered(id, owner.0, key);
                self.busy += 1;
            }
            Reply::Error(other) => panic!("{other:?} is not for the desk to say"),
        }
    }

    /// The one answer to an acquire.
    fn answered(&mut self, id: SessionId, owner: u64, key: &Key) -> Asked {
        let asked = self.acquires.remove(&owner);
        let asked = asked.unwrap_or_else(|| panic!("{owner} has no answer to get"));
        assert_eq!((asked.session, &asked.key), (id, key));
        asked
    }

    fn check_grant(&mut self, token: Token, owner: u64, asked: &Asked) {
        assert_eq!(
            self.granted.get(&token),
            Some(&asked.key),
            "granted by the table"
        );
        assert!(token > self.newest_told, "tokens are told in order");
        self.newest_told = token;
        self.told.insert(token);
        let ahead = self.acquires.range(..owner).find(|(_, other)| {
            let waits = other.wait > Wait(0) && other.key == asked.key;
            waits && self.sessions[&other.session].input == Input::Open
        });
        // A try was on its way to the table before anybody could queue behind it.
        let overtakes = asked.wait > Wait(0) && ahead.is_some();
        assert!(!overtakes, "{owner} overtook {ahead:?}");
    }

    fn observe_finish(&mut self, id: SessionId, last: Option<&Reply>) {
        let session = self.sessions.remove(&id);
        let session = session.unwrap_or_else(|| panic!("{id:?} is gone"));
        match session.input {
            Input::Open => panic!("{id:?} may still ask"),
            Input::Closed => assert_eq!(last, None),
            Input::Malformed => assert_eq!(last, Some(&Reply::Error(Reason::BadOp))),
        }
        assert!(session.releases.is_empty(), "every release is answered");
        self.closed(id);
    }

    /// One refusal has come for the one request of an event, or for every request at a loss.
    fn check_all_refused(&mut self) {
        for (id, session) in &mut self.sessions {
            let asked = |asked: &&Asked| asked.session == *id;
            let acquires = self.acquires.values().filter(asked).count();
            let dropped_silently = session.input == Input::Malformed;
            assert!(
                session.acquires_refused == acquires
                    || dropped_silently && session.acquires_refused < acquires,
                "{id:?}: {} refusals for {acquires} acquires",
                session.acquires_refused,
            );
            assert!(session.releases.is_empty());
            session.acquires_refused = 0;
        }
        self.acquires.clear();
    }

    /// A request was made that was refused at once, if it was: it has its answer.
    pub(super) fn settle_refused_request(
        &mut self,
        id: SessionId,
        effects: &[Effect],
        owner: Option<u64>,
    ) {
        let is_refusal = |effect: &Effect| {
            matches!(
                effect,
                Effect::Reply(to, Reply::Moved(_) | Reply::Error(_)) if *to == id
            )
        };
        let Some(session) = self.sessions.get_mut(&id) else {
            return;
        };
        match effects.iter().filter(|effect| is_refusal(effect)).count() {
            0 => assert!(
                !session.refused || session.input != Input::Open,
                "it is sticky"
            ),
            1 => {
                session.acquires_refused -= 1;
                match owner {
                    Some(owner) => drop(self.acquires.remove(&owner)),
                    None => drop(session.releases.pop_back()),
                }
            }
            more => panic!("{more} refusals for one request"),
        }
    }

    /// Everything is decided: nobody waits for anything, but for whom only `held` keys keep waiting.
    pub(super) fn check_nobody_stranded(&self, held: &[Key]) {
        for (owner, asked) in &self.acquires {
            let session = &self.sessions[&asked.session];
            let excused = session.refused || session.input != Input::Open;
            assert!(
                excused || held.contains(&asked.key),
                "{owner} is stranded: {asked:?}"
            );
        }
        assert!(
            self.sessions
                .values()
                .all(|session| session.releases.is_empty())
        );
        assert_eq!(self.releases_settled, self.releases_asked);
    }

    /// All time has passed: every acquire has had its answer.
    pub(super) fn check_all_answered(&self) {
        for (id, session) in &self.sessions {
            assert_eq!(
                session.input,
                Input::Open,
                "{id:?} should have been told to finish"
            );
            let acquires = self.acquires.values().filter(|asked| asked.session == *id);
            assert_eq!(
                acquires.count(),
                session.acquires_refused,
                "{id:?} waits for answers"
            );
        }
    }
}
