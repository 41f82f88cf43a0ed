//! Random numbers from a seed.

/// SplitMix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// A number less than `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    /// That many random bytes.
    pub(crate) fn noise(&mut self, bytes: usize) -> Vec<u8> {
        (0..bytes).map(|_| self.below(256) as u8).collect()
    }
}
