//! What the front end has seen since it started, and what of it is worth a line in the log.
//!
//! Whatever a client does wrong comes through [`Counters::mishap`]: it is always counted, and logged
//! at most once a second for each kind (see [`QuietLog`]), with the client's address and how many
//! lines were dropped. What a client *said* is never logged: it may be a secret, or half of one.

use std::io;
use std::net::SocketAddr;

use raft::measure::Counter;
use raft::quiet_log::QuietLog;
use wire::Reason;

/// Counts of connections, by what became of them.
#[derive(Debug, Default)]
pub struct Counters {
    /// Connections that got a slot.
    pub connections: Counter,
    /// Connections that were closed at once because every slot was taken.
    pub turned_away: Counter,
    /// Handshakes that ended because the client did not speak TLS, or not ours.
    pub failed_tls: Counter,
    /// Handshakes that ended because the digest did not match.
    pub failed_auth: Counter,
    /// Handshakes that ended because a line was too long.
    pub failed_line: Counter,
    /// Handshakes that ran into their deadline.
    pub failed_deadline: Counter,
    /// Handshakes that ended with the connection.
    pub failed_lost: Counter,
    /// Sessions that began.
    pub sessions: Counter,
    /// Sessions that were closed for a malformed frame.
    pub malformed: Counter,
    /// Sessions that were closed because they did not read.
    pub slow: Counter,
    accept_log: QuietLog,
    turned_away_log: QuietLog,
    handshake_log: QuietLog,
    session_log: QuietLog,
}

/// What can go wrong with a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mishap {
    /// Every slot is taken.
    TurnedAway,
    /// No TLS, or not ours.
    Tls,
    /// The digest does not match.
    Auth,
    /// A line of the handshake is too long.
    Line,
    /// The handshake took too long.
    Deadline,
    /// The connection ended in its handshake. Everyday: port scans and probes do nothing else.
    Lost,
    /// The system has no random bytes for its challenge.
    NoRandomness,
    /// A malformed frame.
    Malformed(Reason),
    /// It does not read.
    Slow,
}

impl Counters {
    /// Counts what happened to a client, and may log it.
    pub(super) fn mishap(&self, client: SocketAddr, mishap: Mishap) {
        let handshake = |counter| {
            (
                counter,
                &self.handshake_log,
                "a client failed its handshake",
            )
        };
        let (counter, log, message) = match mishap {
            Mishap::Tls => handshake(&self.failed_tls),
            Mishap::Auth => handshake(&self.failed_auth),
            Mishap::Line => handshake(&self.failed_line),
            Mishap::Deadline => handshake(&self.failed_deadline),
            Mishap::NoRandomness => handshake(&self.failed_lost),
            Mishap::Lost => return self.failed_lost.add_one(),
            Mishap::TurnedAway => {
                let message = "a client was turned away";
                (&self.turned_away, &self.turned_away_log, message)
            }
            Mishap::Malformed(_) => (&self.malformed, &self.session_log, CUT_OFF),
            Mishap::Slow => (&self.slow, &self.session_log, CUT_OFF),
        };
        counter.add_one();
        let Some(dropped) = log.admit() else { return };
        let reason = mishap.reason();
        if matches!(mishap, Mishap::TurnedAway | Mishap::NoRandomness) {
            tracing::warn!(%client, reason, dropped, "{message}");
        } else {
            tracing::info!(%client, reason, dropped, "{message}");
        }
    }

    /// Accepting failed for want of something.
    pub(super) fn cannot_accept(&self, error: &io::Error) {
        if let Some(dropped) = self.accept_log.admit() {
            tracing::warn!(%error, dropped, "cannot accept connections");
        }
    }
}

/// What the log says about sessions that the server ends.
const CUT_OFF: &str = "a client was cut off";

impl Mishap {
    /// The word for it in the log.
    fn reason(self) -> &'static str {
        match self {
            Self::TurnedAway => "every slot is taken",
            Self::Tls => "tls",
            Self::Auth => "auth",
            Self::Line => "line",
            Self::Deadline => "deadline",
            Self::Lost => "lost",
            Self::NoRandomness => "no random bytes",
            Self::Malformed(reason) => reason.as_str(),
            Self::Slow => "it did not read",
        }
    }
}
