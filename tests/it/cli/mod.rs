//! The command line, as a person or a script meets it.

mod dev;
mod lock;
mod start_errors;
