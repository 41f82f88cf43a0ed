//! What the desk and the driver count.

use super::page::{Page, Unit};
use crate::driver::{Report, Traffic};

pub(super) fn add(page: &mut Page, report: &Report) {
    page.gauge(
        "ticketing_active",
        "1 if this node decides on requests: in a cluster, as the leader that may serve.",
        report.active.into(),
    );
    requests(page, &report.traffic);
    let tally = &report.tally;
    page.counter(
        "ticketing_leases_expired_total",
        "Grants that ended by their lease while this node served.",
        tally.expired,
    );
    page.counter(
        "ticketing_compensating_releases_total",
        "Grants that could not be told to their client and that this node released itself.",
        tally.given_back,
    );
    page.histogram(
        "ticketing_acquire_wait_seconds",
        "From the arrival of an acquire to its grant; only of those that were granted.",
        &tally.waits,
        Unit::Nanos,
    );
    page.histogram(
        "ticketing_lock_hold_seconds",
        "From a grant to its release or the end of its lease, as seen by the node that granted it.",
        &tally.holds,
        Unit::Nanos,
    );
    page.histogram(
        "ticketing_batch_commands",
        "Commands in each batch that was proposed; a batch of none only carries time.",
        &report.traffic.batch_commands,
        Unit::One,
    );
    room(page, report);
}

fn requests(page: &mut Page, traffic: &Traffic) {
    page.labelled_counter(
        "ticketing_acquires_total",
        "Acquires that this node decided, by outcome.",
        "outcome",
        [
            ("granted", traffic.granted),
            ("timed_out", traffic.timed_out),
            ("busy", traffic.busy),
        ],
    );
    page.labelled_counter(
        "ticketing_releases_total",
        "Releases that this node decided, by outcome.",
        "outcome",
        [
            ("released", traffic.released),
            ("not_current", traffic.not_current),
        ],
    );
    page.labelled_counter(
        "ticketing_refusals_total",
        "Requests that this node did not decide on, by what it said instead.",
        "reason",
        [
            ("moved", traffic.moved),
            ("no_leader", traffic.no_leader),
            ("not_active", traffic.not_active),
        ],
    );
    page.counter(
        "ticketing_indeterminate_sessions_total",
        "Sessions that were closed because the lead was lost with a request of theirs under way.",
        traffic.indeterminate,
    );
}

fn room(page: &mut Page, report: &Report) {
    let counts = &report.counts;
    page.gauge(
        "ticketing_waiters",
        "Acquires that queue on this node.",
        counts.waiters as u64,
    );
    page.labelled_gauge(
        "ticketing_requests_in_flight",
        "Requests that were put to the lock table or the log and are not answered.",
        "kind",
        [
            ("acquire", counts.acquires_in_flight as u64),
            ("release", counts.releases_in_flight as u64),
        ],
    );
    page.labelled_gauge(
        "ticketing_admission_closed",
        "1 while new ones are turned away with B: from 90 % of the limit until below 75 %.",
        "gate",
        [
            ("acquires", counts.closed.acquires.into()),
            ("waiters", counts.closed.waiters.into()),
            ("keys", counts.closed.keys.into()),
        ],
    );
}
