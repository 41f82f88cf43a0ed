//! The store as its users see it: on a real disk, through openraft's traits.

mod contract;
mod machine;
