//! When this process may serve as leader.
//!
//! An *activity* is one continuous span in which this process serves. It begins when an entry that
//! the process proposed itself in its term is applied, and ends for good at the first doubt.
//!
//! # Which faults this answers
//!
//! - *A leader that was cut off and doesn't know it.* It cannot grant (grants are committed
//!   entries), but it must not speak from its stale state either. So an activity ends when no
//!   quorum has acknowledged anything that was sent within an election timeout.
//! - *Leadership lost and won again between two looks.* The term tells: an activity belongs to one
//!   term, batches are proposed for that term, and Raft refuses them in any other.
//! - *A process that slept* (SIGSTOP, a starved machine). When it wakes, nobody has looked yet, and
//!   requests are there already. So every look says until when its view may be believed, and who
//!   serves asks before it answers from what it holds ([`Board::expire`]).
//! - *A batch of unknown fate.* Whatever fails to be proposed ends its activity, so nobody waits
//!   for its outcome.
//!
//! # Why a batch of an ended activity cannot be mistaken for one of the next
//!
//! Batches and the [`Activate`](crate::entry::Entry::Activate) entries go to the log through one
//! queue and one task (see [`proposals`](super::proposals)). That task drops a batch whose activity
//! is over, and an `Activate` enters the queue only after the activity before it was ended. So in
//! the log every batch stands between its own `Activate` and the next one.
//!
//! [`Board`] is the plain decision; [`Monitor`] is the loop that looks at Raft for it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use openraft::async_runtime::watch::WatchReceiver;
use openraft::{Instant, RaftState, ServerState, TokioInstant};
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use super::RaftHandle;
use super::catch_up::CatchUp;
use super::proposals::Proposals;
use crate::clock::Clock;
use crate::feed::{Activity, Leader, Status};
use crate::state_machine::Progress;
use crate::type_config::TypeConfig;

/// What this node sees of the cluster at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct View {
    /// The current term.
    pub(super) term: u64,
    /// True while Raft has this node as leader of `term`.
    pub(super) leading: bool,
    /// Leading, and a quorum acknowledged something that was sent within an election timeout.
    pub(super) quorum_fresh: bool,
    /// Until when that is so, as far as is known: monotonic time in nanoseconds.
    pub(super) fresh_until: u64,
    /// Who leads: this node, or a leader that was heard from within an election timeout.
    pub(super) leader: Option<Leader>,
    /// What that leader says is committed, is applied here.
    pub(super) caught_up: bool,
}

/// An activity that is to be proposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    /// Its number.
    pub(super) activity: Activity,
    /// The term that it belongs to.
    pub(super) term: u64,
}

/// The activities of this process: which one may propose, and which are over.
///
/// Shared by the tasks that find a reason to end one. Every change is published in the same step,
/// under the lock, so that the status never goes back.
#[derive(Debug)]
pub(super) struct Board {
    inner: Mutex<Inner>,
    status: watch::Sender<Status>,
    /// Wakes the monitor when an activity ended elsewhere.
    ended: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    issued: Activity,
    current: Option<Span>,
    /// Until when the current span may be believed to be one.
    fresh_until: u64,
    stopping: bool,
    /// Which term this node leads, and since when it knows.
    led: Option<(u64, TokioInstant)>,
    /// From the newest view.
    caught_up: bool,
    /// The leader that was known last, and how many times it was another one than before.
    known_leader: Option<u64>,
    leader_changes: u64,
}

impl Board {
    /// A board on which nothing was active yet.
    pub(super) fn new() -> Self {
        Self {
            inner: Mutex::default(),
            status: watch::Sender::new(Status::default()),
            ended: Notify::new(),
        }
    }

    /// The published status.
    pub(super) fn status(&self) -> watch::Receiver<Status> {
        self.status.subscribe()
    }

    /// The term in which `activity` may propose; `None` once it is over.
    pub(super) fn term_of(&self, activity: Activity) -> Option<u64> {
        let inner = self.lock();
        inner
            .current
            .filter(|span| span.activity == activity)
            .map(|span| span.term)
    }

    /// Takes a new view: ends the current activity if the view gives a reason, begins one if it
    /// may, and publishes both.
    pub(super) fn observe(&self, view: &View) -> Option<Span> {
        let mut inner = self.lock();
        if view.leading && inner.led.is_none_or(|(term, _)| term != view.term) {
            inner.led = Some((view.term, TokioInstant::now()));
        } else if !view.leading {
            inner.led = None;
        }
        inner.caught_up = view.caught_up;
        if let Some(leader) = &view.leader
            && inner.known_leader.replace(leader.id) != Some(leader.id)
        {
            inner.leader_changes += 1;
            tracing::info!(
                term = view.term,
                leader = leader.client,
                "the leader changed"
            );
        }
        let may_serve = view.leading && view.quorum_fresh && !inner.stopping;
        if inner
            .current
            .is_some_and(|span| !may_serve || span.term != view.term)
        {
            inner.current = None;
        }
        inner.fresh_until = view.fresh_until;
        let mut begun = None;
        if may_serve && inner.current.is_none() {
            inner.issued = Activity(inner.issued.0 + 1);
            begun = Some(Span {
                activity: inner.issued,
                term: view.term,
            });
            inner.current = begun;
        }
        let new = Status {
            leader: view.leader.clone(),
            leading: view.leading,
            term: view.term,
            revoked: inner.revoked(),
        };
        self.publish(|status| *status = new);
        begun
    }

    /// Whether this node had caught up with its leader at the newest look.
    pub(super) fn has_caught_up(&self) -> bool {
        self.lock().caught_up
    }

    /// How many times this node came to know another leader than before, since it started.
    pub(super) fn leader_changes(&self) -> u64 {
        self.lock().leader_changes
    }

    /// For how long this node has led in its present term.
    pub(super) fn led_for(&self) -> Duration {
        self.lock()
            .led
            .map_or(Duration::ZERO, |(_, since)| since.elapsed())
    }

    /// Ends `activity`, and with it every one before it.
    pub(super) fn revoke(&self, activity: Activity) {
        let mut inner = self.lock();
        if inner.current.is_some_and(|span| span.activity <= activity) {
            inner.current = None;
            let revoked = inner.revoked();
            self.publish(|status| status.revoked = revoked);
            self.ended.notify_one();
        }
    }

    /// Ends the current activity unless a quorum was heard from within an election timeout of `now`.
    pub(super) fn expire(&self, now: u64) {
        let mut inner = self.lock();
        if inner.current.is_some() && now >= inner.fresh_until {
            inner.current = None;
            let revoked = inner.revoked();
            self.publish(|status| status.revoked = revoked);
            self.ended.notify_one();
        }
    }

    /// Ends the current activity and lets none begin any more.
    pub(super) fn stop(&self) {
        let mut inner = self.lock();
        inner.stopping = true;
        inner.current = None;
        let revoked = inner.revoked();
        self.publish(|status| status.revoked = revoked);
    }

    fn publish(&self, change: impl FnOnce(&mut Status)) {
        self.status.send_if_modified(|status| {
            let before = status.clone();
            change(status);
            *status != before
        });
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Every update is complete before the guard is dropped, so a panic elsewhere leaves
        // nothing half done.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Everything issued is over, but for the current one.
    fn revoked(&self) -> Activity {
        match self.current {
            Some(span) => Activity(span.activity.0 - 1),
            None => self.issued,
        }
    }
}

/// Looks at Raft again and again and keeps the [`Board`] true to it.
pub(super) struct Monitor {
    pub(super) raft: RaftHandle,
    pub(super) board: std::sync::Arc<Board>,
    pub(super) proposals: Proposals,
    /// The clock of whoever asks [`Board::expire`].
    pub(super) clock: std::sync::Arc<dyn Clock>,
    /// Nothing that was heard before this process started names a leader.
    pub(super) started: TokioInstant,
    pub(super) election_timeout: Duration,
    /// How often to look when nothing seems to change.
    pub(super) period: Duration,
    /// How far the log is applied.
    pub(super) progress: watch::Receiver<Progress>,
    pub(super) catch_up: CatchUp,
}

impl Monitor {
    /// Runs until Raft has stopped, then ends every activity.
    pub(super) async fn run(mut self) {
        let mut server = self.raft.server_metrics();
        let mut data = self.raft.data_metrics();
        let mut term = 0;
        loop {
            // A core that is stuck on its disk can't tell; then nothing is known but the term.
            let view = match timeout(self.election_timeout, self.look()).await {
                Ok(Some(view)) => view,
                Ok(None) => break,
                Err(_) => View {
                    term,
                    ..View::default()
                },
            };
            term = view.term;
            let waits_for_quorum = view.leading && !view.quorum_fresh;
            if let Some(span) = self.board.observe(&view) {
                tracing::info!(term = span.term, activity = span.activity.0, "leading");
                self.proposals.activate(span);
            }
            tokio::select! {
                () = tokio::time::sleep(self.period) => {}
                changed = server.changed() => if changed.is_err() { break },
                changed = data.changed(), if waits_for_quorum => if changed.is_err() { break },
                // Not at once: a proposal that Raft refuses again and again must not spin.
                () = self.board.ended.notified() => tokio::time::sleep(self.period / 4).await,
            }
        }
        self.board.stop();
    }

    /// The view of this moment; `None` when Raft has stopped.
    async fn look(&mut self) -> Option<View> {
        let own = *self.raft.node_id();
        let seen = self.raft.with_raft_state(Seen::of).await.ok()?;
        let leading = seen.leading && seen.leader == Some(own);
        let heard = leading
            || seen
                .heard
                .is_some_and(|at| self.is_recent(at) && at > self.started);
        let leader = seen.leader.filter(|_| heard);
        let client = leader.and_then(|id| self.client_address(id));
        let applied = self.progress.borrow().last_applied.map(|id| id.index());
        let committed = seen.committed.filter(|_| leader.is_some());
        let caught_up = self.catch_up.observe(committed, applied);
        let fresh_until = self.fresh_until(own).filter(|_| leading);
        Some(View {
            term: seen.term,
            leading,
            quorum_fresh: fresh_until.is_some(),
            fresh_until: fresh_until.unwrap_or(0),
            leader: leader.zip(client).map(|(id, client)| Leader { id, client }),
            caught_up,
        })
    }

    /// Until when a quorum has acknowledged something that was sent within an election timeout;
    /// `None` when that time is over.
    fn fresh_until(&self, own: u64) -> Option<u64> {
        // Read before the age of the acknowledgement, so that a pause between the two makes the
        // answer too early and never too late.
        let now = self.clock.now();
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let mut voters = metrics.membership_config.voter_ids();
        if voters.next() == Some(own) && voters.next().is_none() {
            return Some(u64::MAX); // This node alone is the quorum.
        }
        let acked = metrics.last_quorum_acked?.into_inner();
        let left = self.election_timeout.checked_sub(acked.elapsed())?;
        let left = u64::try_from(left.as_nanos())
            .ok()
            .filter(|left| *left > 0)?;
        Some(now.saturating_add(left))
    }

    fn client_address(&self, id: u64) -> Option<String> {
        let metrics = self.raft.server_metrics();
        let metrics = metrics.borrow_watched();
        metrics
            .membership_config
            .get_node(&id)
            .map(|peer| peer.client.clone())
    }

    fn is_recent(&self, at: TokioInstant) -> bool {
        at.elapsed() < self.election_timeout
    }
}

/// What the core of Raft knows, copied out of it.
struct Seen {
    term: u64,
    /// Whose vote this node holds, if a quorum granted it.
    leader: Option<u64>,
    leading: bool,
    /// When the leader was heard from last.
    heard: Option<TokioInstant>,
    /// How far the log is committed, as the leader says.
    committed: Option<u64>,
}

impl Seen {
    fn of(state: &RaftState<TypeConfig>) -> Self {
        let vote = state.vote_ref();
        let leader = vote.is_committed().then_some(vote.leader_id().voted_for);
        Self {
            term: vote.leader_id().term,
            leader,
            leading: state.server_state == ServerState::Leader,
            heard: state.vote_last_modified(),
            committed: state.cluster_committed().map(|id| id.index()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leading(term: u64) -> View {
        View {
            term,
            leading: true,
            quorum_fresh: true,
            fresh_until: 1_000,
            leader: None,
            caught_up: true,
        }
    }

    #[test]
    fn a_term_that_is_won_begins_one_activity() {
        let board = Board::new();
        let span = board.observe(&leading(3)).unwrap();
        assert_eq!(
            span,
            Span {
                activity: Activity(1),
                term: 3
            }
        );
        assert_eq!(board.observe(&leading(3)), None);
        assert_eq!(board.term_of(Activity(1)), Some(3));
        assert_eq!(board.status().borrow().revoked, Activity(0));
    }

    #[test]
    fn a_leader_that_is_lost_and_found_again_is_no_change() {
        let board = Board::new();
        let led_by = |id| View {
            leader: Some(Leader {
                id,
                client: String::new(),
            }),
            ..View::default()
        };
        for view in [led_by(1), View::default(), led_by(1), led_by(2), led_by(1)] {
            board.observe(&view);
        }
        assert_eq!(board.leader_changes(), 3);
    }

    #[test]
    fn nothing_begins_without_a_quorum() {
        let board = Board::new();
        let alone = View {
            quorum_fresh: false,
            ..leading(1)
        };
        assert_eq!(board.observe(&alone), None);
        assert!(board.status().borrow().leading);
    }

    #[test]
    fn a_quorum_lost_and_regained_begins_a_new_activity_in_the_same_term() {
        let board = Board::new();
        board.observe(&leading(3)).unwrap();
        board.observe(&View {
            quorum_fresh: false,
            ..leading(3)
        });
        assert_eq!(board.status().borrow().revoked, Activity(1));
        assert_eq!(board.term_of(Activity(1)), None);
        let again = board.observe(&leading(3)).unwrap();
        assert_eq!(
            again,
            Span {
                activity: Activity(2),
                term: 3
            }
        );
    }

    #[test]
    fn another_term_led_by_the_same_node_is_another_activity() {
        let board = Board::new();
        board.observe(&leading(3)).unwrap();
        let again = board.observe(&leading(5)).unwrap();
        assert_eq!(
            again,
            Span {
                activity: Activity(2),
                term: 5
            }
        );
        assert_eq!(board.status().borrow().revoked, Activity(1));
    }

    #[test]
    fn a_failed_proposal_ends_its_activity_but_not_a_later_one() {
        let board = Board::new();
        board.observe(&leading(3)).unwrap();
        board.revoke(Activity(1));
        assert_eq!(board.status().borrow().revoked, Activity(1));
        board.observe(&leading(3)).unwrap();
        board.revoke(Activity(1));
        assert_eq!(board.term_of(Activity(2)), Some(3));
        assert_eq!(board.status().borrow().revoked, Activity(1));
    }

    #[test]
    fn an_activity_ends_when_nobody_has_looked_for_too_long() {
        let board = Board::new();
        board.observe(&leading(3)).unwrap();
        board.expire(999);
        assert_eq!(board.term_of(Activity(1)), Some(3));
        board.expire(1_000);
        assert_eq!(board.term_of(Activity(1)), None);
        assert_eq!(board.status().borrow().revoked, Activity(1));
        let again = board.observe(&leading(3)).unwrap();
        assert_eq!(again.activity, Activity(2));
    }

    #[test]
    fn a_stopping_node_begins_nothing_more() {
        let board = Board::new();
        board.observe(&leading(3)).unwrap();
        board.stop();
        assert_eq!(board.status().borrow().revoked, Activity(1));
        assert_eq!(board.observe(&leading(4)), None);
    }
}
