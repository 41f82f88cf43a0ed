//! End-to-end tests: real binaries on loopback.
