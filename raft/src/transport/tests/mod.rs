//! The transport over real sockets on loopback.

mod cluster;
mod hostile;
mod streams;
mod support;
