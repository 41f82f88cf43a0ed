//! The store as its users see it: on a real disk, through openraft's traits.

#![allow(clippy::unwrap_used, reason = "in a test, that is a failed assertion")]

mod child;
mod contract;
mod crash;
mod damage;
mod machine;
mod model;
mod power;
mod random;
mod sled_files;
mod store;
mod syscalls;
