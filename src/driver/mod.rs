//! The one task around the desk: it brings events in, performs what the desk decides, and hands
//! batches to the [`Backend`].
//!
//! ```text
//!  sessions ──Inbound──►┌────────┐──Batch──► lock table (single) or log (cluster)
//!  outboxes ◄──replies──│ driver │◄──Applied─ at once,           or through the feed
//!                       │  desk  │◄──Status── who leads, what is revoked
//!                       └────────┘
//! ```
//!
//! # Rounds
//!
//! The task sleeps until something is there, takes in all that is there (bounded), lets the desk
//! handle it, proposes while fewer than `BATCHES_IN_FLIGHT_MAX` batches are under way, and wakes
//! the sessions that got replies, each once. So batches grow by themselves with the load: what comes
//! in while the batches under way are being synced goes into the next one. No timer delays
//! anything, since tokio's timers have a millisecond's grain; they only wake the task for waits and
//! leases that end.
//!
//! # Why it is safe
//!
//! - *One consumer.* Every event reaches the desk from here and every reply leaves from here, so a
//!   session's replies come in the order in which they were decided.
//! - *Order within a round:* the apply stream, then the status, then the sessions. Outcomes that
//!   were applied before a loss of activity became known are answers of the log and still go out;
//!   no request is judged by a mirror that is known to be revoked. The feed and the status race
//!   otherwise: a revocation names the last activity that is over, so one that comes before its
//!   activation or long after it means the same.
//! - *A process that slept* (SIGSTOP, a starved machine) may wake here before anybody has looked
//!   whether it still leads. So each round first asks whether the time for which that was known is
//!   over (`Sink::expire`), and then sees the revocation in the status.
//! - *Stamps.* A batch's stamp is read after its last command is in, by the task that hands
//!   it over next; no batch is handed over twice.
//! - *No grant is lost on the way out.* A grant that an outbox does not take any more goes back to
//!   the desk as undelivered. One that a session took but could not write comes back with
//!   `Inbound::Gone`.
//! - *Nothing blocks.* Outboxes and the proposer never wait, so sessions may wait for this task.

mod backend;
mod front;
mod handle;
mod node;
mod outbox;
mod question;
mod seats;
mod traffic;

use std::sync::Arc;
use std::time::Duration;

use raft::clock::Clock;
use raft::{Activity, Feed};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::Instant;
use wire::{Key, Request, Token};

use crate::desk::{Desk, Effect, Event, Leadership, Limits, SessionId};
use crate::timer::LazyTimer;

pub use backend::{Backend, Cluster, Propose};
pub(crate) use front::{Front, Inbound};
pub(crate) use handle::Handle;
use handle::{Phase, QUIESCE};
pub(crate) use outbox::{Contents, Outbox};
pub use question::{Observer, Report, Table};
use question::{QUESTIONS_MAX, Question};
use seats::Seats;
pub use traffic::Traffic;

/// Batches that are proposed and not applied yet. Enough to keep network, disk and state machine
/// busy at the same time; more would only make batches smaller.
const BATCHES_IN_FLIGHT_MAX: usize = 4;

/// Commands in one batch: with the longest keys about 80 KB in the log.
const BATCH_COMMANDS_MAX: usize = 512;

/// Messages from sessions that are taken in before the sessions are woken.
const MESSAGES_PER_ROUND_MAX: usize = 64;

/// Requests that are taken in before the desk proposes again. More at once would fill the lane of
/// acquires although the lock table is idle.
const REQUESTS_PER_PROPOSAL: usize = BATCH_COMMANDS_MAX;

/// Messages of the apply stream that are taken in before the desk proposes again.
const FEEDS_PER_ROUND_MAX: usize = 64;

/// Messages from sessions that may wait for the driver; a session that has more waits itself.
const INBOUND_MAX: usize = 1024;

/// Releases in flight in all sessions together (PROTOCOL section 7).
pub(crate) const RELEASES_IN_FLIGHT_MAX: usize = 512;

/// The longest sleep; a wake-up too many costs nothing.
const SLEEP_MAX: Duration = Duration::from_secs(3600);

/// Starts the task.
pub(crate) fn start(backend: Backend, limits: Limits, clock: Arc<dyn Clock>) -> (Front, Handle) {
    let (inbound, messages) = mpsc::channel(INBOUND_MAX);
    let (phase, phases) = watch::channel(Phase::Serving);
    let (quiet, quiets) = watch::channel(false);
    let (asking, questions) = mpsc::channel(QUESTIONS_MAX);
    let release_lane = Arc::new(Semaphore::new(RELEASES_IN_FLIGHT_MAX));
    let driver = Driver::new(
        backend,
        limits,
        Arc::clone(&clock),
        Arc::clone(&release_lane),
        quiet,
    );
    let task = tokio::spawn(driver.run(messages, questions, phases));
    (
        Front {
            inbound,
            release_lane,
            clock,
        },
        Handle::new(phase, quiets, Observer(asking), task),
    )
}

struct Driver {
    desk: Desk,
    clock: Arc<dyn Clock>,
    sink: backend::Sink,
    feed: node::ApplyStream,
    status: node::StatusWatch,
    release_lane: Arc<Semaphore>,
    seats: Seats,
    traffic: Traffic,
    phase: Phase,
    /// The sessions were told to close; newcomers are told so at once.
    stopped: bool,
    quiet: watch::Sender<bool>,
    /// What is being performed; kept for its room.
    effects: Vec<Effect>,
    /// Grants that no outbox took.
    undelivered: Vec<(Key, Token)>,
    /// The table as it will be when all that is proposed has been applied.
    #[cfg(feature = "planted-bugs")]
    shadow: Option<raft::lock::LockTable>,
}

/// What woke the driver.
enum Wake {
    Messages,
    Question(Question),
    Feed(Option<Feed>),
    Status,
    Phase,
    Timer,
}

impl Driver {
    fn new(
        backend: Backend,
        limits: Limits,
        clock: Arc<dyn Clock>,
        release_lane: Arc<Semaphore>,
        quiet: watch::Sender<bool>,
    ) -> Self {
        let single = matches!(backend, Backend::Single);
        let (origin, own, sink, feed, status) = match backend {
            Backend::Single => (0, None, backend::Sink::table(clock.now()), None, None),
            Backend::Cluster(Cluster {
                origin,
                own,
                proposer,
                feed,
                status,
            }) => (
                origin,
                Some(own),
                backend::Sink::Log(proposer),
                Some(feed),
                Some(status),
            ),
        };
        let mut driver = Self {
            desk: Desk::new(origin, own.clone(), limits),
            clock,
            sink,
            feed: node::ApplyStream::new(feed),
            status: node::StatusWatch::new(status, own),
            release_lane,
            seats: Seats::default(),
            traffic: Traffic::default(),
            phase: Phase::Serving,
            stopped: false,
            quiet,
            effects: Vec::new(),
            undelivered: Vec::new(),
            #[cfg(feature = "planted-bugs")]
            shadow: None,
        };
        if single {
            let now = driver.clock.now();
            driver.handle(now, Event::Activated(backend::single_activation(now)));
        }
        driver
    }

    async fn run(
        mut self,
        mut inbound: mpsc::Receiver<Inbound>,
        mut questions: mpsc::Receiver<Question>,
        mut phases: watch::Receiver<Phase>,
    ) {
        let mut messages = Vec::with_capacity(MESSAGES_PER_ROUND_MAX);
        let mut timer = LazyTimer::new();
        let mut quiesce_until = None;
        loop {
            let due = self.next_due(quiesce_until);
            let wake = tokio::select! {
                count = inbound.recv_many(&mut messages, MESSAGES_PER_ROUND_MAX) => match count {
                    0 => break,
                    _ => Wake::Messages,
                },
                feed = self.feed.next() => Wake::Feed(feed),
                () = self.status.changed() => Wake::Status,
                Ok(()) = phases.changed() => Wake::Phase,
                Some(question) = questions.recv() => Wake::Question(question),
                () = timer.wait(due), if due.is_some() => Wake::Timer,
            };
            // The session that spoke is one of many, most likely.
            while messages.len() < MESSAGES_PER_ROUND_MAX
                && let Ok(message) = inbound.try_recv()
            {
                messages.push(message);
            }
            if let Wake::Phase = wake {
                self.phase = *phases.borrow_and_update();
                quiesce_until.get_or_insert_with(|| Instant::now() + QUIESCE);
            }
            self.round(wake, &mut messages);
            if self.phase > Phase::Serving {
                self.wind_down(quiesce_until.is_some_and(|until| Instant::now() >= until));
            }
        }
    }

    /// Takes in all that is there, proposes, and wakes whoever got something.
    fn round(&mut self, wake: Wake, messages: &mut Vec<Inbound>) {
        let mut now = self.clock.now();
        self.sink.expire(now);
        let status = matches!(wake, Wake::Status) || self.status.has_changed();
        match wake {
            Wake::Feed(feed) => self.take_feed(now, feed),
            Wake::Question(question) => self.answer(now, question),
            Wake::Messages | Wake::Status | Wake::Phase | Wake::Timer => {}
        }
        for _ in 0..FEEDS_PER_ROUND_MAX {
            match self.feed.try_next() {
                Some(feed) => self.take_feed(now, Some(feed)),
                None => break,
            }
        }
        if status {
            for event in self.status.news().into_iter().flatten() {
                self.handle(now, event);
            }
        }
        let mut requests = 0;
        for message in messages.drain(..) {
            requests += message.requests();
            self.take_message(now, message);
            if requests >= REQUESTS_PER_PROPOSAL {
                requests = 0;
                self.propose();
                now = self.clock.now();
            }
        }
        if self.desk.wakeup().is_some_and(|at| at <= now) {
            self.handle(now, Event::Tick);
        }
        self.propose();
        self.seats.wake_touched();
    }

    fn take_feed(&mut self, now: u64, feed: Option<Feed>) {
        match feed {
            Some(Feed::Activated(activation)) => {
                #[cfg(feature = "planted-bugs")]
                if planted::has(planted::Bug::AnswerBeforeCommit) {
                    self.shadow = Some(activation.shadow.clone());
                }
                self.handle(now, Event::Activated(activation));
            }
            Some(Feed::Applied { activity, applied }) => {
                self.handle(now, Event::Applied { activity, applied });
            }
            None => {
                // The node is gone, and with it every promise to serve.
                self.handle(now, Event::Leader(Leadership::Unknown));
                self.handle(now, Event::Revoked(Activity(u64::MAX)));
            }
        }
    }

    /// Answers whoever looks in from outside. That nobody waits for the answer any more is no news.
    fn answer(&self, now: u64, question: Question) {
        match question {
            Question::Report(answer) => {
                let report = Report {
                    active: self.desk.is_active(),
                    counts: self.desk.counts(),
                    tally: self.desk.tally().clone(),
                    traffic: self.traffic.clone(),
                    table: self.sink.show(now),
                };
                let _ = answer.send(report);
            }
            Question::Waiters { keys, answer } => {
                let waiters = keys.iter().map(|key| self.desk.waiters(key));
                let _ = answer.send(waiters.collect());
            }
            Question::Locks {
                prefix,
                count_max,
                answer,
            } => {
                let _ = answer.send(self.sink.list(&prefix, count_max, now));
            }
        }
    }

    fn take_message(&mut self, now: u64, message: Inbound) {
        match message {
            Inbound::Opened { session, outbox } => {
                self.seats.open(session, outbox);
                self.handle(now, Event::Opened(session));
                if self.stopped {
                    self.seats.end(session, None);
                }
            }
            Inbound::Requests {
                session,
                arrived,
                requests,
            } => {
                self.take_requests(now, session, arrived, requests);
            }
            Inbound::Ended { session, last } => {
                self.handle(now, Event::InputEnded { session, last });
            }
            Inbound::Gone {
                session,
                undelivered,
            } => {
                self.seats.remove(session);
                self.handle(now, Event::Closed(session));
                for (key, token) in undelivered {
                    self.handle(now, Event::Undelivered { key, token });
                }
            }
        }
    }

    fn take_requests(
        &mut self,
        now: u64,
        session: SessionId,
        arrived: u64,
        requests: Vec<Request>,
    ) {
        // A session that was told to close gets no answers, so nothing is done for it either; only
        // its releases' places in the lane come back.
        if !self.seats.is_served(session) {
            let release = |request: &&Request| matches!(request, Request::Release(_));
            self.release_lane
                .add_permits(requests.iter().filter(release).count());
            return;
        }
        for request in requests {
            let event = match request {
                Request::Acquire(acquire) => Event::Acquire {
                    session,
                    arrived,
                    acquire,
                },
                Request::Release(release) => Event::Release { session, release },
            };
            self.handle(now, event);
        }
    }

    /// Lets the desk handle `event`, performs what it decides, and tells it of the grants that
    /// nobody could be told of.
    fn handle(&mut self, now: u64, event: Event) {
        self.desk.handle(now, event, &mut self.effects);
        self.perform();
        while let Some((key, token)) = self.undelivered.pop() {
            self.desk
                .handle(now, Event::Undelivered { key, token }, &mut self.effects);
            self.perform();
        }
    }

    fn perform(&mut self) {
        let mut effects = std::mem::take(&mut self.effects);
        let mut settled = 0;
        for effect in effects.drain(..) {
            match effect {
                Effect::Reply(session, reply) => {
                    self.traffic.note(&reply);
                    self.undelivered.extend(self.seats.say(session, reply));
                }
                Effect::Finish(session, last) => self.seats.end(session, last),
                Effect::Close(session) => {
                    self.traffic.indeterminate += 1;
                    self.seats.end(session, None);
                }
                Effect::ReleaseSettled => settled += 1,
            }
        }
        self.release_lane.add_permits(settled);
        self.effects = effects;
    }

    fn propose(&mut self) {
        while self.phase == Phase::Serving && self.desk.batches_in_flight() < BATCHES_IN_FLIGHT_MAX
        {
            let now = self.clock.now();
            let Some((activity, batch)) = self.desk.take_batch(now, BATCH_COMMANDS_MAX) else {
                break;
            };
            self.traffic
                .batch_commands
                .observe(batch.commands.len() as u64);
            #[cfg(feature = "planted-bugs")]
            if let Some(shadow) = &mut self.shadow {
                let applied = shadow.apply(&batch);
                self.sink.propose(activity, batch);
                self.handle(now, Event::Applied { activity, applied });
                continue;
            }
            if let Some(applied) = self.sink.propose(activity, batch) {
                self.handle(now, Event::Applied { activity, applied });
            }
        }
    }

    /// On the way out: says when nothing is under way any more, and then, if the process is to
    /// stop, refuses what is left and closes every session.
    fn wind_down(&mut self, too_late: bool) {
        if self.desk.batches_in_flight() > 0 && !too_late {
            return;
        }
        self.quiet
            .send_if_modified(|quiet| !std::mem::replace(quiet, true));
        if self.phase == Phase::Stopping && !self.stopped {
            self.stopped = true;
            self.handle(self.clock.now(), Event::Stopping);
            self.seats.end_all();
            self.seats.wake_touched();
        }
    }

    /// When to wake up even if nothing happens.
    fn next_due(&self, quiesce_until: Option<Instant>) -> Option<Instant> {
        let now = Instant::now();
        let tick = self.desk.wakeup().map(|at| {
            now + Duration::from_nanos(at.saturating_sub(self.clock.now())).min(SLEEP_MAX)
        });
        let quiesced = quiesce_until.filter(|until| *until > now);
        tick.into_iter().chain(quiesced).min()
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use raft::clock::ManualClock;
    use tokio::time::timeout;
    use wire::{Acquire, Lease, Owner, Reply, Wait};

    use super::*;

    const SESSION: SessionId = SessionId(1);

    fn limits() -> Limits {
        Limits {
            waiters_per_key_max: 10,
            waiters_max: 10,
            acquires_in_flight_max: 4096,
        }
    }

    fn acquire(number: u64) -> Request {
        Request::Acquire(Acquire {
            wait: Wait(0),
            lease: Lease::from_seconds(30).unwrap(),
            owner: Owner(number),
            key: number.to_string().parse().unwrap(),
        })
    }

    fn replies(outbox: &Outbox) -> Vec<Reply> {
        let mut replies = Vec::new();
        let mut cx = Context::from_waker(Waker::noop());
        outbox.take(&mut cx, usize::MAX, |reply| replies.push(reply));
        replies
    }

    #[tokio::test]
    async fn a_crowd_that_comes_at_once_does_not_fill_the_lane_of_an_idle_table() {
        let (front, _handle) = start(Backend::Single, limits(), Arc::new(ManualClock::default()));
        let outbox = Arc::new(Outbox::default());
        let opened = Inbound::Opened {
            session: SESSION,
            outbox: Arc::clone(&outbox),
        };
        front.inbound.try_send(opened).unwrap();
        for message in 0..MESSAGES_PER_ROUND_MAX as u64 {
            let requests = (message * 100..(message + 1) * 100).map(acquire).collect();
            let requests = Inbound::Requests {
                session: SESSION,
                arrived: 0,
                requests,
            };
            front.inbound.try_send(requests).unwrap();
        }
        let mut granted = 0;
        while granted < 6400 {
            tokio::task::yield_now().await;
            for reply in replies(&outbox) {
                assert!(matches!(reply, Reply::Granted { .. }), "{reply:?}");
                granted += 1;
            }
        }
    }

    #[tokio::test]
    async fn a_grant_that_no_outbox_takes_is_given_back() {
        let (front, _handle) = start(Backend::Single, limits(), Arc::new(ManualClock::default()));
        let (closed, open) = (Arc::new(Outbox::default()), Arc::new(Outbox::default()));
        closed.close();
        for (session, outbox) in [(SessionId(1), &closed), (SessionId(2), &open)] {
            let outbox = Arc::clone(outbox);
            front
                .inbound
                .try_send(Inbound::Opened { session, outbox })
                .unwrap();
            let requests = Inbound::Requests {
                session,
                arrived: 0,
                requests: vec![acquire(7)],
            };
            front.inbound.try_send(requests).unwrap();
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
        }
        let replies = replies(&open);
        assert!(
            matches!(
                replies[..],
                [Reply::Granted {
                    token: Token(2),
                    ..
                }]
            ),
            "{replies:?}"
        );
    }

    #[tokio::test]
    async fn a_release_of_a_session_that_was_told_to_close_frees_its_place() {
        let (front, handle) = start(Backend::Single, limits(), Arc::new(ManualClock::default()));
        let outbox = Arc::new(Outbox::default());
        let opened = Inbound::Opened {
            session: SESSION,
            outbox,
        };
        front.inbound.try_send(opened).unwrap();
        handle.quiesce().await;
        handle.stop();
        tokio::task::yield_now().await;
        front.release_lane.try_acquire().unwrap().forget();
        let release = Request::Release(wire::Release {
            token: Token(1),
            key: "job".parse().unwrap(),
        });
        let requests = Inbound::Requests {
            session: SESSION,
            arrived: 0,
            requests: vec![release],
        };
        front.inbound.try_send(requests).unwrap();
        let whole = u32::try_from(RELEASES_IN_FLIGHT_MAX).unwrap();
        let lane = timeout(
            Duration::from_secs(10),
            front.release_lane.acquire_many(whole),
        )
        .await;
        assert!(lane.is_ok_and(|permits| permits.is_ok()));
    }
}
