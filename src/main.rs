//! The `ticketing` binary.

fn main() {}
