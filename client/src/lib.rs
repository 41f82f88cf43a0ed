//! The official Rust client.
