//! The store as its users see it: on a real disk, through openraft's traits.

mod child;
mod contract;
mod crash;
mod damage;
mod machine;
mod model;
mod random;
mod sled_files;
mod syscalls;
