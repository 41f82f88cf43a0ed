//! The admin endpoint: what it tells, how soon, and to whom.

mod access;
mod health;
mod locks;
mod logs;
mod manual;
mod metrics;
mod operators;
mod status;
mod truth;
