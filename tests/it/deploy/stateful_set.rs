//! What a StatefulSet goes through: a parallel start, a rolling update, a lost volume, a power cut,
//! a lost quorum. Held locks stay held, tokens grow, readiness says the truth, liveness stays green.

use super::names::on_own_machine;
use super::pods::{self, AUTH_TOKEN, PODS, StatefulSet};
use crate::harness::clients::Clients;
use crate::harness::gate;

#[test]
fn pods_whose_addresses_change_at_every_start_lose_no_lock_and_are_ready_only_when_they_are() {
    const TEST: &str = "deploy::stateful_set::pods_whose_addresses_change_at_every_start_lose_no_lock_and_are_ready_only_when_they_are";
    on_own_machine(TEST, &pods::names(), |hosts| {
        let _gate = gate::shared();
        let mut set = StatefulSet::new(hosts);
        start_in_parallel(&mut set);
        let clients = Clients::start(&pods::addresses(), AUTH_TOKEN);
        clients.check("after the start");

        update_one_after_the_other(&mut set, &clients);
        lose_a_volume(&mut set, &clients);
        lose_power_and_swap_addresses(&mut set, &clients);
        lose_the_quorum(&mut set, &clients);

        clients.finish();
        set.finish();
    });
}

/// All at the same time: `podManagementPolicy: Parallel`.
fn start_in_parallel(set: &mut StatefulSet) {
    for ordinal in 0..PODS {
        set.start(ordinal);
    }
    for ordinal in 0..PODS {
        set.await_ready(ordinal);
    }
}

/// From the last to the first, each ready before the next is touched: `RollingUpdate`.
fn update_one_after_the_other(set: &mut StatefulSet, clients: &Clients) {
    for ordinal in (0..PODS).rev() {
        set.terminate(ordinal);
        clients.check("while a pod is replaced");
        set.start(ordinal);
        set.await_ready(ordinal);
    }
    clients.check("after the update");
}

/// The leader dies, and its claim is deleted: the pod comes back as somebody else.
fn lose_a_volume(set: &mut StatefulSet, clients: &Clients) {
    let leader = set.leader();
    set.kill(leader);
    set.delete_volume(leader);
    set.start(leader);
    clients.check("while a pod without its volume joins");
    set.await_ready(leader);
    clients.check("after a volume was lost");
}

/// All die at once, and each comes back under an address that another one had.
fn lose_power_and_swap_addresses(set: &mut StatefulSet, clients: &Clients) {
    let before: Vec<_> = (0..PODS).map(|ordinal| set.address(ordinal)).collect();
    for ordinal in 0..PODS {
        set.kill(ordinal);
    }
    for ordinal in 0..PODS {
        set.start_at(ordinal, before[(ordinal + 1) % PODS]);
    }
    for ordinal in 0..PODS {
        set.await_ready(ordinal);
    }
    clients.check("after all pods died and swapped addresses");
}

/// One of three is no quorum: it is not ready, and that is no reason to restart it.
fn lose_the_quorum(set: &mut StatefulSet, clients: &Clients) {
    let last = set.leader();
    let others: Vec<_> = (0..PODS).filter(|ordinal| *ordinal != last).collect();
    for &ordinal in &others {
        set.kill(ordinal);
    }
    set.await_unready(last);
    for &ordinal in &others {
        set.start(ordinal);
    }
    for ordinal in 0..PODS {
        set.await_ready(ordinal);
    }
    clients.check("after the quorum was lost");
}
