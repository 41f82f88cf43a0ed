//! What one connection owes: requests that wait to be written, requests that wait for an answer,
//! and when patience with each of them ends. Plain data: time, commands and replies go in, frames
//! and answers come out; [`session`](crate::session) does the I/O.
//!
//! Rules that hold here:
//! - A request counts as sent from the moment at which its frame is made, just before the write.
//!   Until then it can go elsewhere or time out; from then on only a definitive answer lets it go
//!   on, and without one the caller hears Indeterminate.
//! - A caller whose deadline passes, or who goes away, is never kept waiting, and never costs the
//!   others the connection if the late answer comes within [`LATE_REPLY_MAX`]. An acquire's late
//!   grant is given back. If nothing comes, the connection is closed, which also takes the request
//!   out of the server's queue.
//! - What is left of a lease is counted from the latest moment that is surely before the grant. The
//!   server decides in the order in which it answers, so a release that was answered before the
//!   grant was sent before it. While something waits and no release is under way anyway, one of
//!   token 0, which changes nothing, is sent every [`PROBE_EVERY`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use wire::{Acquire, Key, Lease, Owner, Reason, Release, Reply, Request, Token, encode_request};

use crate::call::{AcquireCall, Call, Grant, ReleaseCall};
use crate::clock::Moment;
use crate::dispatch::{Dispatcher, RELEASE_PATIENCE};
use crate::{Error, ReleaseOutcome};

/// How long an answer that nobody waits for any more is awaited before the connection is closed.
const LATE_REPLY_MAX: Duration = Duration::from_millis(1500);

/// How often a connection with waiting acquires sends a release.
const PROBE_EVERY: Duration = Duration::from_secs(1);

/// The key that probes name. Any would do: token 0 is never current.
const PROBE_KEY: &str = "probe";

/// Why a session ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The connection is gone, or too late with an answer: what was sent may have been done.
    Lost,
    /// The server refused the whole session: nothing unanswered was granted or will be.
    Refused,
    /// The auth token was refused.
    Auth,
    /// The server said something that it must not say.
    Protocol,
}

/// What a reply tells beyond its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// The lock table answered.
    Served,
    /// That node leads.
    Leader(String),
}

/// Which entry a deadline belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Acquire(Owner),
    Release(u64),
}

/// What is to be written, in order. The entries themselves are in their tables.
enum Item {
    Acquire(Owner),
    Release(u64),
}

struct Acquiring {
    key: Key,
    lease: Lease,
    due: Instant,
    /// From just before its frame was sent.
    sent: Option<Moment>,
    /// `None` once nobody waits for it.
    call: Option<AcquireCall>,
}

struct Releasing {
    key: Key,
    token: Token,
    due: Instant,
    sent: Option<Moment>,
    /// `None` for a probe and for what is settled elsewhere.
    call: Option<ReleaseCall>,
}

/// See the module.
pub(crate) struct Ledger {
    dispatcher: Arc<Dispatcher>,
    queue: VecDeque<Item>,
    acquires: BTreeMap<Owner, Acquiring>,
    /// How many of the acquires somebody waits for.
    callers: usize,
    /// By a number that grows in the order of sending.
    releases: BTreeMap<u64, Releasing>,
    next_release: u64,
    due: BTreeSet<(Instant, Due)>,
    /// When the newest release that was answered was sent.
    answered: Option<Moment>,
    /// Since when nothing shows how late it is at the server: the newest release's sending, or the
    /// first acquire's coming.
    quiet_since: Instant,
}

impl Ledger {
    pub(crate) fn new(dispatcher: Arc<Dispatcher>, now: Instant) -> Self {
        Self {
            dispatcher,
            queue: VecDeque::new(),
            acquires: BTreeMap::new(),
            callers: 0,
            releases: BTreeMap::new(),
            next_release: 0,
            due: BTreeSet::new(),
            answered: None,
            quiet_since: now,
        }
    }

    /// Takes a call over.
    pub(crate) fn submit(&mut self, call: Call, now: Instant) {
        match call {
            Call::Acquire(call) => self.submit_acquire(call, now),
            Call::Release(call) => {
                let (key, token, due) = (call.key.clone(), call.token, call.deadline);
                self.submit_release(Releasing {
                    key,
                    token,
                    due,
                    sent: None,
                    call: Some(call),
                });
            }
        }
    }

    fn submit_acquire(&mut self, call: AcquireCall, now: Instant) {
        if self.callers == 0 {
            self.quiet_since = now;
        }
        self.callers += 1;
        let owner = call.owner;
        self.due.insert((call.deadline, Due::Acquire(owner)));
        self.queue.push_back(Item::Acquire(owner));
        let entry = Acquiring {
            key: call.key.clone(),
            lease: call.lease,
            due: call.deadline,
            sent: None,
            call: Some(call),
        };
        self.acquires.insert(owner, entry);
    }

    fn submit_release(&mut self, entry: Releasing) {
        let number = self.next_release;
        self.next_release += 1;
        self.due.insert((entry.due, Due::Release(number)));
        self.queue.push_back(Item::Release(number));
        self.releases.insert(number, entry);
    }

    /// The caller of an acquire went away.
    pub(crate) fn abandon(&mut self, owner: Owner, now: Instant) {
        let Some(entry) = self.acquires.get_mut(&owner) else {
            return;
        };
        if entry.call.take().is_none() {
            return;
        }
        self.callers -= 1;
        self.due.remove(&(entry.due, Due::Acquire(owner)));
        if entry.sent.is_none() {
            self.acquires.remove(&owner);
        } else {
            entry.due = now + LATE_REPLY_MAX;
            self.due.insert((entry.due, Due::Acquire(owner)));
        }
    }

    /// Another node leads now. Releases may be tried there as well, as a token ends at most one
    /// grant however often it is released; acquires may have been taken here and must stay.
    pub(crate) fn superseded(&mut self) -> Vec<Call> {
        let unsent = self
            .releases
            .extract_if(.., |_, entry| entry.sent.is_none());
        let unsent: Vec<_> = unsent.collect();
        let mut calls = Vec::new();
        for (number, entry) in unsent {
            self.due.remove(&(entry.due, Due::Release(number)));
            calls.extend(entry.call);
        }
        // The sent ones stay as what an answer must match, without a caller.
        calls.extend(
            self.releases
                .values_mut()
                .filter_map(|entry| entry.call.take()),
        );
        calls.into_iter().map(Call::Release).collect()
    }

    /// Whether no release is under way.
    pub(crate) fn is_settled(&self) -> bool {
        self.releases.values().all(|entry| entry.call.is_none())
    }

    /// Whether there is anything to write at `now`.
    pub(crate) fn has_output(&self, now: Instant) -> bool {
        !self.queue.is_empty() || self.probe_due().is_some_and(|due| due <= now)
    }

    /// Makes frames of what waits to be written, about `bytes_max` of them. They count as sent.
    pub(crate) fn encode(&mut self, out: &mut Vec<u8>, bytes_max: usize, now: Instant) {
        if self.probe_due().is_some_and(|due| due <= now) {
            self.probe(now);
        }
        let moment = Moment::now();
        while out.len() < bytes_max {
            match self.queue.pop_front() {
                Some(Item::Acquire(owner)) => self.encode_acquire(owner, out, now, moment),
                Some(Item::Release(number)) => self.encode_release(number, out, now, moment),
                None => break,
            }
        }
    }

    fn encode_acquire(&mut self, owner: Owner, out: &mut Vec<u8>, now: Instant, moment: Moment) {
        let Some(entry) = self.acquires.get_mut(&owner) else {
            return;
        };
        // An entry in the queue has its call, or it would have been removed.
        let Some(call) = &entry.call else { return };
        if call.deadline <= now || call.is_abandoned() {
            let due = entry.due;
            self.expire(due, Due::Acquire(owner), now);
            return;
        }
        entry.sent = Some(moment);
        let (wait, lease, key) = (call.wait(now), entry.lease, entry.key.clone());
        encode_request(
            &Request::Acquire(Acquire {
                wait,
                lease,
                owner,
                key,
            }),
            out,
        );
    }

    fn encode_release(&mut self, number: u64, out: &mut Vec<u8>, now: Instant, moment: Moment) {
        let Some(entry) = self.releases.get_mut(&number) else {
            return;
        };
        if let Some(call) = &mut entry.call {
            call.sent = true;
        }
        entry.sent = Some(moment);
        self.quiet_since = now;
        let release = Release {
            token: entry.token,
            key: entry.key.clone(),
        };
        encode_request(&Request::Release(release), out);
    }

    /// When the next probe is due.
    fn probe_due(&self) -> Option<Instant> {
        let wanted =
            self.dispatcher.settings.probing && self.releases.is_empty() && self.callers > 0;
        wanted.then(|| self.quiet_since + PROBE_EVERY)
    }

    fn probe(&mut self, now: Instant) {
        let key = PROBE_KEY.parse().expect("the probe's key is a key");
        let due = now + RELEASE_PATIENCE;
        self.submit_release(Releasing {
            key,
            token: Token(0),
            due,
            sent: None,
            call: None,
        });
    }

    /// When, after `now`, there is something to do by time alone.
    pub(crate) fn wakeup(&self, now: Instant) -> Option<Instant> {
        let due = self.due.first().map(|(due, _)| *due);
        // A probe that is due already waits for the socket, not for time.
        let probe = self.probe_due().filter(|due| *due > now);
        due.into_iter().chain(probe).min()
    }

    /// Ends the patience that is over at `now`.
    pub(crate) fn tick(&mut self, now: Instant) -> Result<(), End> {
        while let Some((due, which)) = self.due.first().copied()
            && due <= now
        {
            if !self.expire(due, which, now) {
                tracing::info!("no answer in time, closing the connection");
                return Err(End::Lost);
            }
        }
        Ok(())
    }

    /// Ends the patience with one entry; false if that was the last of it.
    fn expire(&mut self, due: Instant, which: Due, now: Instant) -> bool {
        self.due.remove(&(due, which));
        match which {
            Due::Acquire(owner) => {
                let Some(entry) = self.acquires.get_mut(&owner) else {
                    return true;
                };
                let Some(call) = entry.call.take() else {
                    return false;
                };
                self.callers -= 1;
                if entry.sent.is_none() {
                    self.acquires.remove(&owner);
                    call.answer(Err(Error::Timeout));
                    return true;
                }
                call.answer(Err(Error::Indeterminate));
                entry.due = now + LATE_REPLY_MAX;
                self.due.insert((entry.due, which));
            }
            Due::Release(number) => {
                let Some(entry) = self.releases.get_mut(&number) else {
                    return true;
                };
                let late = due >= entry.due + LATE_REPLY_MAX;
                if let Some(call) = entry.call.take() {
                    call.give_up();
                }
                if entry.sent.is_none() {
                    self.releases.remove(&number);
                } else if late {
                    return false;
                } else {
                    self.due.insert((entry.due + LATE_REPLY_MAX, which));
                }
            }
        }
        true
    }

    /// Takes a reply in.
    pub(crate) fn reply(&mut self, reply: Reply) -> Result<Option<News>, End> {
        match reply {
            Reply::Granted { token, owner, key } => {
                self.granted(token, owner, key);
                Ok(Some(News::Served))
            }
            Reply::TimedOut { owner, key } => self.not_acquired(owner, &key, Error::Timeout),
            Reply::Busy { owner, key } => self.not_acquired(owner, &key, Error::Busy),
            Reply::Released { token, key } => self.settled(token, &key, ReleaseOutcome::Released),
            Reply::NotCurrent { token, key } => {
                self.settled(token, &key, ReleaseOutcome::NotCurrent)
            }
            Reply::Leader(address) => Ok(Some(News::Leader(address))),
            Reply::Moved(_) | Reply::Error(Reason::NoLeader | Reason::NotActive) => {
                Err(End::Refused)
            }
            Reply::Error(Reason::AuthFailed) => Err(End::Auth),
            Reply::Error(_) => Err(End::Protocol),
        }
    }

    fn granted(&mut self, token: Token, owner: Owner, key: Key) {
        match self.answered_acquire(owner, &key) {
            Some(Acquiring {
                lease,
                sent: Some(sent),
                call,
                ..
            }) => {
                let probing = self.dispatcher.settings.probing;
                let since = self
                    .answered
                    .filter(|_| probing)
                    .map_or(sent, |at| at.max(sent));
                let grant = Grant::new(Arc::clone(&self.dispatcher), key, token, lease, since);
                match call {
                    Some(call) => call.answer(Ok(grant)),
                    // Nobody waits for it: dropped, it gives itself back.
                    None => drop(grant),
                }
            }
            // Not ours to use, but ours to give back.
            _ => self.dispatcher.compensate(key, token),
        }
    }

    fn not_acquired(&mut self, owner: Owner, key: &Key, why: Error) -> Result<Option<News>, End> {
        let entry = self.answered_acquire(owner, key).ok_or(End::Protocol)?;
        if let Some(call) = entry.call {
            call.answer(Err(why));
        }
        Ok(Some(News::Served))
    }

    /// Takes the sent acquire out that an answer echoes.
    fn answered_acquire(&mut self, owner: Owner, key: &Key) -> Option<Acquiring> {
        let entry = self.acquires.get(&owner)?;
        if entry.key != *key || entry.sent.is_none() {
            return None;
        }
        self.due.remove(&(entry.due, Due::Acquire(owner)));
        self.callers -= usize::from(entry.call.is_some());
        self.acquires.remove(&owner)
    }

    fn settled(
        &mut self,
        token: Token,
        key: &Key,
        outcome: ReleaseOutcome,
    ) -> Result<Option<News>, End> {
        // The oldest equal one; answers come in order, so that is nearly always the first.
        let equal = |entry: &Releasing| entry.token == token && entry.key == *key;
        let sent = self
            .releases
            .iter()
            .take_while(|(_, entry)| entry.sent.is_some());
        let found = sent
            .into_iter()
            .find(|(_, entry)| equal(entry))
            .map(|(number, _)| *number);
        let number = found.ok_or(End::Protocol)?;
        let entry = self.releases.remove(&number).expect("just found");
        self.due.remove(&(entry.due, Due::Release(number)));
        self.due
            .remove(&(entry.due + LATE_REPLY_MAX, Due::Release(number)));
        self.answered = self.answered.max(entry.sent);
        if let Some(call) = entry.call {
            call.answer(Ok(outcome));
        }
        Ok(Some(News::Served))
    }

    /// Ends everything: answers what can be answered, and returns what may go elsewhere.
    pub(crate) fn end(self, end: &End) -> Vec<Call> {
        let mut elsewhere = Vec::new();
        for entry in self.acquires.into_values() {
            let Some(call) = entry.call else { continue };
            match end {
                _ if entry.sent.is_none() => elsewhere.push(Call::Acquire(call)),
                End::Refused => elsewhere.push(Call::Acquire(call)),
                End::Auth => call.answer(Err(Error::Auth)),
                End::Lost | End::Protocol => call.answer(Err(Error::Indeterminate)),
            }
        }
        let releases = self.releases.into_values().filter_map(|entry| entry.call);
        elsewhere.extend(releases.map(Call::Release));
        elsewhere
    }
}
