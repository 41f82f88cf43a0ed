//! What one connection owes: requests that wait to be written, requests that wait for an answer,
//! and when patience with each of them ends. Plain data: time, commands and replies go in, frames
//! and answers come out; [`session`](crate::session) does the I/O.
//!
//! Rules that hold here:
//! - What becomes of an acquire is decided by the table of [`request`](crate::request). It counts as
//!   sent from the moment at which its frame is made, just before the write; when the connection
//!   ends, a frame of which the socket took no byte counts as unsent after all.
//! - A caller whose deadline passes, or who goes away, is never kept waiting, and never costs the
//!   others the connection if the late answer comes within [`LATE_REPLY_MAX`].
//! - What is left of a lease is counted from the latest moment that is surely before the grant. The
//!   server decides in the order in which it answers, so a release that was answered before the
//!   grant was sent before it. While something waits and no release is under way anyway, one of
//!   token 0, which changes nothing, is sent every [`PROBE_EVERY`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use wire::{Acquire, Key, Lease, Owner, Reason, Release, Reply, Request, Token, encode_request};

use crate::call::{AcquireCall, Call, Grant, Permit, ReleaseCall};
use crate::clock::{Moment, Validity};
use crate::dispatch::{Dispatcher, RELEASE_PATIENCE};
use crate::request::{Event, Failure, Stage, Step, step};
use crate::{ReleaseOutcome, trace};

/// How long an answer that nobody waits for any more is awaited before the connection is closed.
pub(crate) const LATE_REPLY_MAX: Duration = Duration::from_millis(1500);

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
    /// There is nothing left to do for a broker that is closed.
    Closed,
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

/// When and where a frame was made.
#[derive(Clone, Copy)]
struct Sent {
    at: Moment,
    /// How many bytes of the connection came before it.
    offset: u64,
}

impl Sent {
    /// Whether a byte of it may have been sent, if the socket took so many bytes in all.
    fn is_possible(self, bytes_taken: u64) -> bool {
        self.offset < bytes_taken
    }
}

struct Acquiring {
    key: Key,
    lease: Lease,
    due: Instant,
    sent: Option<Sent>,
    caller: Caller,
}

/// Who waits for an acquire's answer.
enum Caller {
    Waits(AcquireCall),
    /// Nobody; its place under the limit stays taken, as the server still has it.
    Gone {
        _permit: Permit,
    },
}

impl Acquiring {
    fn stage(&self) -> Stage {
        match (&self.caller, self.sent) {
            (Caller::Gone { .. }, _) => Stage::Cancelled,
            (Caller::Waits(_), None) => Stage::Queued,
            (Caller::Waits(_), Some(_)) => Stage::MaybeSent,
        }
    }

    fn fail(self, failure: Failure) {
        if let Caller::Waits(call) = self.caller {
            drop(call.answer(Err(failure.into())));
        }
    }
}

struct Releasing {
    key: Key,
    token: Token,
    due: Instant,
    sent: Option<Sent>,
    /// `None` for a probe and for what is settled elsewhere.
    call: Option<ReleaseCall>,
}

impl Releasing {
    /// Its call, to be ended or carried on elsewhere, with what this connection adds to its past.
    fn take_call(&mut self, bytes_taken: u64) -> Option<ReleaseCall> {
        let mut call = self.call.take()?;
        call.sent |= self.sent.is_some_and(|sent| sent.is_possible(bytes_taken));
        Some(call)
    }
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
            caller: Caller::Waits(call),
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
        // Nothing that follows from this ends the session.
        let _ = self.happen(owner, Event::Dropped, now);
    }

    /// The broker is being closed: nobody waits for acquires any more.
    pub(crate) fn close(&mut self, now: Instant) {
        let owners: Vec<_> = self.acquires.keys().copied().collect();
        for owner in owners {
            // As above.
            let _ = self.happen(owner, Event::Closing, now);
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
        let sent = self.releases.values_mut();
        calls.extend(sent.filter_map(|entry| entry.take_call(u64::MAX)));
        calls.into_iter().map(Call::Release).collect()
    }

    /// Whether there is anything to write at `now`.
    pub(crate) fn has_output(&self, now: Instant) -> bool {
        !self.queue.is_empty() || self.probe_due().is_some_and(|due| due <= now)
    }

    /// Makes frames of what waits to be written, about `bytes_max` of them. They count as sent.
    /// `offset` is how many bytes of the connection come before `out`'s first.
    pub(crate) fn encode(
        &mut self,
        out: &mut Vec<u8>,
        bytes_max: usize,
        offset: u64,
        now: Instant,
    ) {
        if self.probe_due().is_some_and(|due| due <= now) {
            self.probe(now);
        }
        let at = self.dispatcher.settings.clock.now();
        while out.len() < bytes_max {
            let sent = Sent {
                at,
                offset: offset + out.len() as u64,
            };
            match self.queue.pop_front() {
                Some(Item::Acquire(owner)) => self.encode_acquire(owner, out, now, sent),
                Some(Item::Release(number)) => self.encode_release(number, out, now, sent),
                None => break,
            }
        }
    }

    fn encode_acquire(&mut self, owner: Owner, out: &mut Vec<u8>, now: Instant, sent: Sent) {
        // An entry in the queue whose caller went away is gone from the table.
        let Some(entry) = self.acquires.get_mut(&owner) else {
            return;
        };
        let Caller::Waits(call) = &entry.caller else {
            return;
        };
        let over = match (call.deadline <= now, call.is_abandoned()) {
            (_, true) => Event::Dropped,
            (true, false) => Event::Deadline,
            (false, false) => {
                let acquire = Acquire {
                    wait: call.wait(now),
                    lease: entry.lease,
                    owner,
                    key: entry.key.clone(),
                };
                entry.sent = Some(sent);
                return encode_request(&Request::Acquire(acquire), out);
            }
        };
        // What ends unsent does not end the session.
        let _ = self.happen(owner, over, now);
    }

    fn encode_release(&mut self, number: u64, out: &mut Vec<u8>, now: Instant, sent: Sent) {
        let Some(entry) = self.releases.get_mut(&number) else {
            return;
        };
        entry.sent = Some(sent);
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
            let ended = match which {
                Due::Acquire(owner) => self.happen(owner, Event::Deadline, now),
                Due::Release(number) => self.expire_release(number, due),
            };
            if ended.is_err() {
                trace::info!("no answer in time, closing the connection");
            }
            ended?;
        }
        Ok(())
    }

    /// Lets something other than an answer happen to an acquire.
    fn happen(&mut self, owner: Owner, event: Event, now: Instant) -> Result<(), End> {
        let Some(entry) = self.acquires.get(&owner) else {
            return Ok(());
        };
        match step(entry.stage(), event) {
            Step::Cancel => self.cancel(owner, now),
            Step::Fail(failure) => {
                if let Some(entry) = self.take_acquire(owner) {
                    entry.fail(failure);
                }
            }
            Step::Forget => drop(self.take_acquire(owner)),
            Step::CloseSession => return Err(End::Lost),
            Step::Deliver | Step::GiveBack | Step::Elsewhere | Step::Breach => {
                unreachable!("these follow from answers, and from the session's end")
            }
        }
        Ok(())
    }

    /// Lets go of the caller; the answer is still awaited for a while, once.
    fn cancel(&mut self, owner: Owner, now: Instant) {
        let Some(mut entry) = self.take_acquire(owner) else {
            return;
        };
        if let Caller::Waits(call) = entry.caller {
            entry.caller = Caller::Gone {
                _permit: call.answer(Err(Failure::Indeterminate.into())),
            };
            entry.due = now + LATE_REPLY_MAX;
        }
        self.due.insert((entry.due, Due::Acquire(owner)));
        self.acquires.insert(owner, entry);
    }

    fn take_acquire(&mut self, owner: Owner) -> Option<Acquiring> {
        let entry = self.acquires.remove(&owner)?;
        self.due.remove(&(entry.due, Due::Acquire(owner)));
        self.callers -= usize::from(matches!(entry.caller, Caller::Waits(_)));
        Some(entry)
    }

    fn expire_release(&mut self, number: u64, due: Instant) -> Result<(), End> {
        self.due.remove(&(due, Due::Release(number)));
        let Some(entry) = self.releases.get_mut(&number) else {
            return Ok(());
        };
        let last = entry.due + LATE_REPLY_MAX;
        if let Some(call) = entry.take_call(u64::MAX) {
            call.give_up();
        }
        if entry.sent.is_none() {
            self.releases.remove(&number);
        } else if due >= last {
            return Err(End::Lost);
        } else {
            self.due.insert((last, Due::Release(number)));
        }
        Ok(())
    }

    /// Takes a reply in.
    pub(crate) fn reply(&mut self, reply: Reply) -> Result<Option<News>, End> {
        match reply {
            Reply::Granted { token, owner, key } => {
                self.granted(token, owner, key);
                Ok(Some(News::Served))
            }
            Reply::TimedOut { owner, key } => self.not_acquired(owner, &key, Event::TimedOut),
            Reply::Busy { owner, key } => self.not_acquired(owner, &key, Event::Busy),
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
        let stage = self.stage(owner, &key);
        match stage.map(|stage| step(stage, Event::Granted)) {
            Some(Step::Deliver) => {
                let entry = self.take_acquire(owner);
                let Some(Acquiring {
                    lease,
                    sent: Some(sent),
                    caller: Caller::Waits(call),
                    ..
                }) = entry
                else {
                    unreachable!("it was sent, and somebody waits for it");
                };
                let clock = self.dispatcher.settings.clock;
                let answered = self.answered.filter(|_| self.dispatcher.settings.probing);
                let since = answered.map_or(sent.at, |at| at.max(sent.at));
                let validity = Validity {
                    since,
                    lease,
                    clock,
                };
                let grant = Grant::new(Arc::clone(&self.dispatcher), key, token, validity);
                drop(call.answer(Ok(grant)));
            }
            // An unsent request was not answered by this, and goes on.
            Some(_) if stage == Some(Stage::Queued) => self.dispatcher.compensate(key, token),
            // Its place is given up last, so that a broker that is being closed waits for both.
            Some(_) => {
                let _entry = self.take_acquire(owner);
                self.dispatcher.compensate(key, token);
            }
            // Nobody asked for it; it is not ours to use, but ours to give back.
            None => self.dispatcher.compensate(key, token),
        }
    }

    fn not_acquired(&mut self, owner: Owner, key: &Key, event: Event) -> Result<Option<News>, End> {
        let stage = self.stage(owner, key).ok_or(End::Protocol)?;
        let next = step(stage, event);
        if next == Step::Breach {
            return Err(End::Protocol);
        }
        if let (Some(entry), Step::Fail(failure)) = (self.take_acquire(owner), next) {
            entry.fail(failure);
        }
        Ok(Some(News::Served))
    }

    /// Where the acquire stands that an answer echoes; `None` if there is no such one.
    fn stage(&self, owner: Owner, key: &Key) -> Option<Stage> {
        let entry = self.acquires.get(&owner)?;
        (entry.key == *key).then(|| entry.stage())
    }

    fn settled(
        &mut self,
        token: Token,
        key: &Key,
        outcome: ReleaseOutcome,
    ) -> Result<Option<News>, End> {
        // The oldest equal one; answers come in order, so that is nearly always the first.
        let equal = |entry: &Releasing| entry.token == token && entry.key == *key;
        let mut sent = self
            .releases
            .iter()
            .take_while(|(_, entry)| entry.sent.is_some());
        let found = sent.find(|(_, entry)| equal(entry));
        let number = found.map(|(number, _)| *number).ok_or(End::Protocol)?;
        let entry = self.releases.remove(&number).expect("just found");
        self.due.remove(&(entry.due, Due::Release(number)));
        self.due
            .remove(&(entry.due + LATE_REPLY_MAX, Due::Release(number)));
        self.answered = self.answered.max(entry.sent.map(|sent| sent.at));
        if let Some(call) = entry.call {
            call.answer(Ok(outcome));
        }
        Ok(Some(News::Served))
    }

    /// Ends everything: answers what can be answered, and returns what may go elsewhere.
    /// `bytes_taken` is how many bytes the socket took in all.
    pub(crate) fn end(self, end: &End, bytes_taken: u64) -> Vec<Call> {
        let event = match end {
            End::Refused => Event::SessionRefused,
            End::Auth => Event::AuthRefused,
            End::Lost | End::Protocol | End::Closed => Event::SessionLost,
        };
        let mut elsewhere = Vec::new();
        for mut entry in self.acquires.into_values() {
            entry.sent = entry.sent.filter(|sent| sent.is_possible(bytes_taken));
            match (step(entry.stage(), event), entry.caller) {
                (Step::Elsewhere, Caller::Waits(call)) => elsewhere.push(Call::Acquire(call)),
                (Step::Fail(failure), Caller::Waits(call)) => {
                    drop(call.answer(Err(failure.into())));
                }
                _ => {}
            }
        }
        // Who was not let in was not heard, whatever was sent.
        let bytes_taken = match end {
            End::Auth => 0,
            _ => bytes_taken,
        };
        let mut releases = self.releases;
        let releases = releases.values_mut();
        let calls = releases.filter_map(|entry| entry.take_call(bytes_taken));
        elsewhere.extend(calls.map(Call::Release));
        elsewhere
    }
}
