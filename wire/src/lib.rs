//! The client protocol as data: domain newtypes, frames and the handshake's digest.
//!
//! No sockets, no runtime, no clock. Client and server share this crate, and tests drive it
//! byte by byte.

mod frame;
mod handshake;
mod types;

pub use frame::{
    ADDRESS_BYTES_MAX, Acquire, Decode, FRAME_BYTES_MAX, Reason, Release, Reply, Request,
    decode_reply, decode_request, encode_reply, encode_request, is_address,
};
pub use handshake::{
    AuthToken, DIGEST_BYTES, HANDSHAKE_LINE_BYTES_MAX, NONCE_BYTES, NONCE_RANDOM_BYTES, Nonce,
    decode_challenge, decode_line, digest, verify,
};
pub use types::{
    KEY_BYTES_MAX, Key, KeyError, LEASE_SECONDS_MAX, Lease, LeaseError, Owner, Token, Wait,
};
