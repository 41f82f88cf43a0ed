//! The Ticketing server and command line as a library, so that tests and benchmarks can drive its
//! parts. `node` is the one module that names all of them.

pub mod admin;
pub mod cli;
pub mod config;
pub mod desk;
pub mod driver;
pub mod node;
pub mod server;
mod timer;
