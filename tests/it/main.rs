//! End-to-end tests: real server processes on loopback, spoken to in bytes.
//!
//! [`harness`] starts, stops, pauses and kills the processes and speaks the protocol by hand, so
//! that nothing here shares a codec with the server. [`protocol`] walks the tables of
//! PROTOCOL.md; [`faults`] kills, pauses, wipes and floods; [`cli`] looks at the command line as
//! a person or a script does; [`admin`] at what a server tells its operators; [`timing`] holds the tests whose result is a time: they run alone
//! (see [`harness::gate`]), and their name lets the test runner start them last.

mod admin;
mod cli;
mod deploy;
mod faults;
mod harness;
mod protocol;
mod timing;
