//! The page at `/metrics`, in Prometheus' text format.
//!
//! Instruments are plain numbers where things happen (in the desk, the driver, the node, the log);
//! here, and only here, they get names. A page is made anew for each scrape from one look, so
//! nothing is registered and nothing is remembered.
//!
//! Its size depends on the number of members of the cluster and on nothing else: no label takes its
//! values from clients, keys least of all. Which labels there are and which values they have is
//! what stands in these files.
//!
//! What is not known is left out, not shown as zero: the desk's part when it does not answer, the
//! cluster's part in single mode, a peer's lag on a node that does not lead.

mod desk;
mod node;
mod page;
mod process;

use page::Page;

use super::health;
use super::look::Look;
use crate::server::Counters;

/// The content type of the text format.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The page for what was seen.
pub(super) fn page(look: &Look, counters: &Counters) -> String {
    let mut page = Page::default();
    page.labelled_gauge(
        "ticketing_build_info",
        "Always 1; the label names the program's version.",
        "version",
        [(env!("CARGO_PKG_VERSION"), 1)],
    );
    let ready = health::is_ready(&health::readiness(look));
    page.gauge(
        "ticketing_ready",
        "1 if this node can do its part (what /readyz says), else 0.",
        ready.into(),
    );
    process::add(&mut page);
    connections(&mut page, look, counters);
    if let Some(report) = &look.report {
        desk::add(&mut page, report);
    }
    if let Some(node) = &look.node {
        let active = look.report.as_ref().is_some_and(|report| report.active);
        node::add(&mut page, node, active);
    } else if let Some(table) = look.report.as_ref().and_then(|report| report.table) {
        node::add_locks(&mut page, table.active_keys, table.tokens_granted);
    }
    page.text()
}

fn connections(page: &mut Page, look: &Look, counters: &Counters) {
    page.gauge(
        "ticketing_connections",
        "Client connections that are open, those in their handshake included.",
        look.connections as u64,
    );
    page.counter(
        "ticketing_connections_accepted_total",
        "Client connections that got a slot.",
        counters.connections.get(),
    );
    page.counter(
        "ticketing_connections_turned_away_total",
        "Client connections that were closed at once because every slot was taken.",
        counters.turned_away.get(),
    );
    page.counter(
        "ticketing_sessions_opened_total",
        "Client connections that came through their handshake.",
        counters.sessions.get(),
    );
    page.labelled_counter(
        "ticketing_handshakes_failed_total",
        "Client connections that ended in their handshake, by reason.",
        "reason",
        [
            ("tls", counters.failed_tls.get()),
            ("auth", counters.failed_auth.get()),
            ("line", counters.failed_line.get()),
            ("deadline", counters.failed_deadline.get()),
            ("lost", counters.failed_lost.get()),
        ],
    );
    page.counter(
        "ticketing_slow_clients_closed_total",
        "Sessions that were closed because their client did not read.",
        counters.slow.get(),
    );
    page.counter(
        "ticketing_malformed_frames_total",
        "Sessions that were closed for a malformed frame.",
        counters.malformed.get(),
    );
}
