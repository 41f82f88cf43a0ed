//! Which connection the next request goes to: plain data, events in, a choice out.
//!
//! One connection is kept to each configured address. A cluster's nodes push who leads (`L`), so
//! normally the leader is known before anything is sent, and after a change the next request goes
//! to the new leader over a connection that is open already. The newest word counts, whoever said
//! it: a leader that was cut off still names itself, and a wrong word costs one `M`, which is
//! definitive.
//!
//! When nobody names a leader at a configured address (single mode, a cluster that knows itself by
//! other names), any connection is tried, after a pause in which the node could have spoken.
//! Addresses that are not configured are never dialled.

use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;
use wire::Owner;

use crate::Error;
use crate::call::Call;

/// How long a new connection may stay silent before it is tried without knowing who leads.
const SILENCE: Duration = Duration::from_millis(50);

/// The same in a cluster, whose nodes speak as soon as they know a leader: longer than an election.
const SILENCE_IN_CLUSTER: Duration = Duration::from_secs(3);

/// What a session is told.
pub(crate) enum Command {
    /// Carry this.
    Call(Call),
    /// The caller of this acquire went away.
    Abandon(Owner),
    /// Another node leads now.
    Superseded,
    /// The broker is being closed: nobody waits for acquires any more.
    Close,
    /// End.
    End,
}

/// Why there is no connection to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Down {
    /// It ended, or could not be made.
    Unreachable,
    /// The auth token was refused.
    Auth,
    /// Something else than a server answers there.
    Protocol,
}

impl From<Down> for Error {
    /// What a call hears that no address will ever take.
    fn from(why: Down) -> Self {
        match why {
            Down::Unreachable => Self::NotConnected,
            Down::Auth => Self::Auth,
            Down::Protocol => Self::Protocol,
        }
    }
}

enum State {
    /// The first connection was not made yet.
    New,
    Down(Down),
    Up(Up),
}

struct Up {
    session: UnboundedSender<Command>,
    since: Instant,
    said: Said,
}

/// What a node said of the leader.
#[derive(Clone, Copy)]
enum Said {
    Nothing,
    /// One that is not configured; it may be a configured one, or itself, by another name.
    Stranger,
    Known,
}

/// Where a call can go.
pub(crate) enum Choice<'a> {
    /// There.
    Session(&'a UnboundedSender<Command>),
    /// Nowhere yet; ask again when something happens, or at that moment.
    Wait(Option<Instant>),
    /// Nowhere, and waiting does not help: this is why.
    Nowhere(Down),
}

/// All addresses, and what is known of them.
pub(crate) struct Routes {
    addresses: Vec<String>,
    states: Vec<State>,
    leader: Option<usize>,
    /// The one that answered last, when nobody says who leads.
    served: Option<usize>,
    /// Where the leader is in the newest word of a node that refused a request, if that is none of the
    /// addresses.
    unlisted: Option<String>,
    /// Whether anybody ever spoke of leaders.
    cluster: bool,
    next: usize,
}

impl Routes {
    pub(crate) fn new(addresses: Vec<String>) -> Self {
        let states = addresses.iter().map(|_| State::New).collect();
        Self {
            addresses,
            states,
            leader: None,
            served: None,
            unlisted: None,
            cluster: false,
            next: 0,
        }
    }

    pub(crate) fn address(&self, index: usize) -> &str {
        &self.addresses[index]
    }

    /// Whether there is a session.
    pub(crate) fn is_connected(&self) -> bool {
        self.states
            .iter()
            .any(|state| matches!(state, State::Up(_)))
    }

    /// Tells every session the same.
    pub(crate) fn tell_all(&self, command: impl Fn() -> Command) {
        for state in &self.states {
            if let State::Up(up) = state {
                // It ends by itself if it is closed already.
                let _ = up.session.send(command());
            }
        }
    }

    /// A connection came through its handshake.
    pub(crate) fn up(&mut self, index: usize, session: UnboundedSender<Command>, now: Instant) {
        self.states[index] = State::Up(Up {
            session,
            since: now,
            said: Said::Nothing,
        });
    }

    /// A connection is gone or could not be made. What it said of leaders is void with it: if its
    /// node leads still, the next connection says so.
    pub(crate) fn down(&mut self, index: usize, why: Down) {
        self.states[index] = State::Down(why);
        self.leader.take_if(|leader| *leader == index);
        self.served.take_if(|served| *served == index);
    }

    /// The node at `from` says that `address` leads. The answer is the address's index if it is a
    /// configured one that did not lead before.
    pub(crate) fn named(&mut self, from: usize, address: &str) -> Option<usize> {
        self.cluster = true;
        let leader = self
            .addresses
            .iter()
            .position(|configured| configured == address);
        if let State::Up(up) = &mut self.states[from] {
            up.said = if leader.is_some() {
                Said::Known
            } else {
                Said::Stranger
            };
        }
        let leader = leader?;
        self.unlisted = None;
        self.served = None;
        if self.leader == Some(leader) {
            return None;
        }
        if let Some(State::Up(up)) = self.leader.map(|former| &self.states[former]) {
            // It ends by itself if it is closed already.
            let _ = up.session.send(Command::Superseded);
        }
        self.leader = Some(leader);
        Some(leader)
    }

    /// The node at `from` refused a request because `address` leads; answers as [`Self::named`].
    pub(crate) fn moved(&mut self, from: usize, address: &str) -> Option<usize> {
        self.unlisted = Some(address.to_owned());
        self.named(from, address)
    }

    /// Who leads and can't be asked, see [`Broker::unlisted_leader`](crate::Broker::unlisted_leader).
    pub(crate) fn unlisted(&self) -> Option<&str> {
        self.unlisted.as_deref()
    }

    /// A node says that it knows no leader.
    pub(crate) fn leaderless(&mut self) {
        self.unlisted = None;
        self.cluster = true;
    }

    /// The session there got an answer from the lock table.
    pub(crate) fn served(&mut self, index: usize) {
        self.unlisted = None;
        if self.leader.is_none() && matches!(self.states[index], State::Up(_)) {
            self.served = Some(index);
        }
    }

    /// Where the next call goes.
    pub(crate) fn choose(&mut self, now: Instant) -> Choice<'_> {
        let index = match self.pick(now) {
            Ok(index) => index,
            Err(until) => return self.nowhere().map_or(Choice::Wait(until), Choice::Nowhere),
        };
        match &self.states[index] {
            State::Up(up) => Choice::Session(&up.session),
            _ => Choice::Wait(None),
        }
    }

    fn pick(&mut self, now: Instant) -> Result<usize, Option<Instant>> {
        if self.addresses.len() == 1 && matches!(self.states[0], State::Up(_)) {
            return Ok(0);
        }
        // A leader that is not connected is waited for: the others name the next one.
        if let Some(index) = self.leader.or(self.served) {
            return Ok(index);
        }
        let mut first = None;
        for offset in 0..self.states.len() {
            let index = (self.next + offset) % self.states.len();
            let State::Up(up) = &self.states[index] else {
                continue;
            };
            let from = match up.said {
                Said::Nothing if self.cluster => up.since + SILENCE_IN_CLUSTER,
                Said::Nothing | Said::Stranger => up.since + SILENCE,
                Said::Known => continue,
            };
            if from <= now {
                self.next = index;
                return Ok(index);
            }
            first = Some(first.map_or(from, |first: Instant| first.min(from)));
        }
        Err(first)
    }

    /// Why no address will ever do, as far as one can tell: each was tried, none is connected, and
    /// one at least answered something that does not change by itself.
    fn nowhere(&self) -> Option<Down> {
        let mut worst = None;
        for state in &self.states {
            match state {
                State::New | State::Up(_) => return None,
                State::Down(Down::Unreachable) => {}
                State::Down(Down::Auth) => worst = Some(Down::Auth),
                State::Down(Down::Protocol) => worst = worst.or(Some(Down::Protocol)),
            }
        }
        worst
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

    use super::*;

    struct Fixture {
        routes: Routes,
        sessions: Vec<Option<UnboundedReceiver<Command>>>,
        start: Instant,
    }

    impl Fixture {
        /// Routes to `a:1`, `b:1` and so on.
        fn new(addresses: usize) -> Self {
            let names = ["a:1", "b:1", "c:1"][..addresses]
                .iter()
                .map(|name| name.to_string());
            let sessions = (0..addresses).map(|_| None).collect();
            Self {
                routes: Routes::new(names.collect()),
                sessions,
                start: Instant::now(),
            }
        }

        fn up(&mut self, index: usize) {
            let (sender, receiver) = unbounded_channel();
            self.routes.up(index, sender, self.start);
            self.sessions[index] = Some(receiver);
        }

        /// What is chosen so many ms after the start: an index, or why none.
        fn choice(&mut self, ms: u64) -> Result<usize, String> {
            let now = self.start + Duration::from_millis(ms);
            match self.routes.choose(now) {
                Choice::Session(session) => {
                    session.send(Command::Close).unwrap();
                    let got = |receiver: &mut Option<UnboundedReceiver<Command>>| {
                        let command = receiver.as_mut().map(|receiver| receiver.try_recv());
                        matches!(command, Some(Ok(Command::Close)))
                    };
                    Ok(self.sessions.iter_mut().position(got).unwrap())
                }
                Choice::Wait(None) => Err("wait".into()),
                Choice::Wait(Some(until)) => {
                    Err(format!("wait until {}", (until - self.start).as_millis()))
                }
                Choice::Nowhere(down) => Err(format!("{down:?}")),
            }
        }
    }

    #[test]
    fn the_named_leader_is_chosen_and_the_newest_word_counts() {
        let mut f = Fixture::new(3);
        f.up(0);
        f.up(1);
        f.up(2);
        assert_eq!(f.routes.named(0, "b:1"), Some(1));
        assert_eq!(f.choice(0), Ok(1));
        assert_eq!(f.routes.named(2, "b:1"), None, "nothing new");
        assert_eq!(f.routes.named(2, "c:1"), Some(2));
        let superseded = f.sessions[1].as_mut().unwrap().try_recv();
        assert!(matches!(superseded, Ok(Command::Superseded)));
        assert_eq!(f.choice(0), Ok(2));
    }

    #[test]
    fn an_address_that_is_not_configured_is_never_chosen() {
        let mut f = Fixture::new(2);
        f.up(0);
        f.up(1);
        assert_eq!(f.routes.named(0, "evil:1"), None);
        assert_eq!(f.choice(0), Err("wait until 50".into()));
        assert_eq!(f.choice(50), Ok(0), "it may know itself by another name");
    }

    #[test]
    fn a_leader_that_is_not_configured_is_remembered_until_there_is_newer_word() {
        let mut f = Fixture::new(2);
        f.up(0);
        f.up(1);
        f.routes.named(0, "else:1");
        assert_eq!(
            f.routes.unlisted(),
            None,
            "it may be this node's other name"
        );
        assert_eq!(f.routes.moved(0, "else:1"), None);
        f.routes.down(0, Down::Unreachable);
        assert_eq!(f.routes.unlisted(), Some("else:1"));
        let newer: [fn(&mut Routes); 4] = [
            |routes| _ = routes.named(1, "b:1"),
            |routes| _ = routes.moved(1, "a:1"),
            |routes| routes.leaderless(),
            |routes| routes.served(1),
        ];
        for word in newer {
            f.routes.moved(1, "else:1");
            word(&mut f.routes);
            assert_eq!(f.routes.unlisted(), None);
        }
    }

    #[test]
    fn a_silent_server_is_tried_after_a_pause_and_kept_once_it_serves() {
        let mut f = Fixture::new(2);
        assert_eq!(f.choice(0), Err("wait".into()));
        f.up(1);
        assert_eq!(f.choice(0), Err("wait until 50".into()));
        assert_eq!(f.choice(50), Ok(1));
        f.routes.served(1);
        f.up(0);
        assert_eq!(f.choice(2000), Ok(1));
    }

    #[test]
    fn a_node_of_a_cluster_is_not_tried_while_it_looks_for_a_leader() {
        let mut f = Fixture::new(2);
        f.up(0);
        f.up(1);
        f.routes.named(0, "a:1");
        f.routes.served(0);
        f.routes.down(0, Down::Unreachable);
        f.up(0);
        assert_eq!(f.choice(2999), Err("wait until 3000".into()));
        f.routes.named(1, "b:1");
        assert_eq!(f.choice(0), Ok(1));
    }

    #[test]
    fn the_only_address_needs_no_pause() {
        let mut f = Fixture::new(1);
        f.up(0);
        assert_eq!(f.choice(0), Ok(0));
    }

    #[test]
    fn a_follower_that_names_a_lost_leader_is_not_tried() {
        let mut f = Fixture::new(2);
        f.up(0);
        f.up(1);
        f.routes.named(0, "b:1");
        f.routes.named(1, "b:1");
        f.routes.down(1, Down::Unreachable);
        assert_eq!(f.choice(5000), Err("wait".into()));
        f.routes.named(0, "a:1");
        assert_eq!(f.choice(5000), Ok(0));
    }

    #[test]
    fn a_refused_auth_token_ends_the_waiting_once_every_address_was_tried() {
        let mut f = Fixture::new(3);
        f.routes.down(0, Down::Auth);
        f.routes.down(1, Down::Protocol);
        assert_eq!(f.choice(0), Err("wait".into()));
        f.routes.down(2, Down::Unreachable);
        assert_eq!(f.choice(0), Err("Auth".into()));
        f.routes.down(0, Down::Unreachable);
        assert_eq!(f.choice(0), Err("Protocol".into()));
        f.up(2);
        assert_eq!(f.choice(0), Err("wait until 50".into()));
    }
}
