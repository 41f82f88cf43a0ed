//! What the front end has seen since it started, and what of it is worth a line in the log.
//!
//! Whatever a client does wrong comes through [`Counters::mishap`]: it is always counted, and logged
//! at most once a second for each kind (see [`QuietLog`]), with the client's address and how many
//! lines were dropped. What a client *said* is never logged: it may be a secret, or half of one.

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
    /// A malformed frame.
    Malformed(Reason),
    /// It does not read.
    Slow,
}

impl Counters {
    /// Counts what happened to a client, and may log it.
    pub(super) fn mishap(&self, client: SocketAddr, mishap: Mishap) {
        let (counter, log) = match mishap {
            Mishap::TurnedAway => (&self.turned_away, &self.turned_away_log),
            Mishap::Tls => (&self.failed_tls, &self.handshake_log),
            Mishap::Auth => (&self.failed_auth, &self.handshake_log),
            Mishap::Line => (&self.failed_line, &self.handshake_log),
            Mishap::Deadline => (&self.failed_deadline, &self.handshake_log),
            Mishap::Lost => return self.failed_lost.add_one(),
            Mishap::Malformed(_) => (&self.malformed, &self.session_log),
            Mishap::Slow => (&self.slow, &self.session_log),
        };
        counter.add_one();
        let Some(dropped) = log.admit() else { return };
        let reason = match mishap {
            Mishap::TurnedAway | Mishap::Slow | Mishap::Lost => "",
            Mishap::Tls => "tls",
            Mishap::Auth => "auth",
            Mishap::Line => "line",
            Mishap::Deadline => "deadline",
            Mishap::Malformed(reason) => reason.as_str(),
        };
        match mishap {
            Mishap::TurnedAway => {
                tracing::warn!(%client, dropped, "a client was turned away: every slot is taken");
            }
            Mishap::Slow => {
                tracing::info!(%client, dropped, "a client was cut off: it did not read");
            }
            Mishap::Malformed(_) => {
                tracing::info!(%client, reason, dropped, "a client was cut off: malformed frame");
            }
            _ => tracing::info!(%client, reason, dropped, "a client failed its handshake"),
        }
    }
}
