//! A running hash of the held locks that costs a constant per change.
//!
//! The locks' hashes are summed up, so adding and removing one is an addition and a subtraction,
//! and the order in which locks came does not matter: a table restored from a snapshot has the
//! sum of one that went through every entry. The functions are fixed here (FNV-1a and the
//! finalizer of SplitMix64) because those of the standard library may change with its version, and
//! nodes of two versions compare their hashes.

use wire::Key;

use super::Held;
use super::command::Stamp;

/// The sum over all held locks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fingerprint(u64);

impl Fingerprint {
    /// Notes that `key` is held.
    pub(super) fn add(&mut self, key: &Key, held: &Held) {
        self.0 = self.0.wrapping_add(lock_hash(key, held));
    }

    /// Takes back what [`add`](Self::add) did.
    pub(super) fn remove(&mut self, key: &Key, held: &Held) {
        self.0 = self.0.wrapping_sub(lock_hash(key, held));
    }

    /// The hash of a whole table.
    pub(super) fn of_state(
        self,
        now: Stamp,
        tokens_granted: u64,
        active_keys_max: Option<u32>,
    ) -> u64 {
        // No cap and a cap of any size are told apart by the bit above the cap's own.
        let cap = active_keys_max.map_or(1 << 32, u64::from);
        [now.0, tokens_granted, cap].into_iter().fold(self.0, chain)
    }
}

fn lock_hash(key: &Key, held: &Held) -> u64 {
    const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(FNV_PRIME);
    let name = key.as_bytes().iter().fold(FNV_OFFSET, step);
    let rest = [
        held.grant.token.0,
        held.grant.deadline.0,
        u64::from(held.lease.seconds()),
    ];
    rest.into_iter().fold(name, chain)
}

/// Mixes `value` into `hash`; the order of the values matters.
fn chain(hash: u64, value: u64) -> u64 {
    let mut mixed = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ value;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
