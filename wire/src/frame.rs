//! Frames in both directions, bytes to values and back.
//!
//! `[op: 1 byte][fixed header][body]\n`. The fixed header is binary and may hold 0x0A, so it is
//! skipped by count before the search for the newline begins. Decoding is incremental: hand over
//! all bytes that are there and get one frame, or "not yet", or a refusal that no further byte
//! could change. Nothing is allocated by a length that a peer named: the only length is the place
//! of the newline, and one call looks at no more than [`FRAME_BYTES_MAX`] + 1 bytes of a frame.
//! So a frame that trickles in byte by byte costs that much a byte at most, whatever else is
//! buffered behind it.

use crate::{Key, Lease, Owner, Token, Wait};

/// Longest frame, op included and newline excluded, in bytes.
pub const FRAME_BYTES_MAX: usize = 192;

/// Longest `host:port` in an `M` or `L`, in bytes.
pub const ADDRESS_BYTES_MAX: usize = FRAME_BYTES_MAX - OP_BYTES;

const OP_BYTES: usize = 1;

/// The lengths of the fixed headers, in bytes, op excluded.
mod header {
    pub(super) const ACQUIRE: usize = 10;
    pub(super) const RELEASE: usize = 8;
    pub(super) const GRANTED: usize = 16;
    pub(super) const ONE_NUMBER: usize = 8;
    pub(super) const NONE: usize = 0;
}

/// What a client asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// `A`: take a lock.
    Acquire(Acquire),
    /// `R`: end a grant.
    Release(Release),
}

/// The fields of an acquire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acquire {
    /// How long it may stay queued.
    pub wait: Wait,
    /// How long the grant would last.
    pub lease: Lease,
    /// Echoed by the answer.
    pub owner: Owner,
    /// The lock's name.
    pub key: Key,
}

/// The fields of a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// Which grant to end.
    pub token: Token,
    /// The lock's name.
    pub key: Key,
}

/// What a server says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// `A`: granted.
    Granted {
        /// The grant's fencing token.
        token: Token,
        /// From the acquire.
        owner: Owner,
        /// From the acquire.
        key: Key,
    },
    /// `T`: not acquired, the wait is over.
    TimedOut {
        /// From the acquire.
        owner: Owner,
        /// From the acquire.
        key: Key,
    },
    /// `B`: not acquired, a limit is reached.
    Busy {
        /// From the acquire.
        owner: Owner,
        /// From the acquire.
        key: Key,
    },
    /// `R`: the grant was ended.
    Released {
        /// From the release.
        token: Token,
        /// From the release.
        key: Key,
    },
    /// `N`: nothing released, the token is not the key's current one.
    NotCurrent {
        /// From the release.
        token: Token,
        /// From the release.
        key: Key,
    },
    /// `M`: ask the leader at this client address.
    Moved(String),
    /// `L`: pushed, who leads now.
    Leader(String),
    /// `E`: an error.
    Error(Reason),
}

/// Why a server says `E`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Unknown op byte; the session ends.
    BadOp,
    /// The stream ended, or stalled, inside a frame; the session ends.
    BadRequest,
    /// Lease 0 or 251 to 255; the session ends.
    BadLease,
    /// The key is empty, too long, has a space, or is not UTF-8; the session ends.
    BadKey,
    /// No newline within the limit; the session ends.
    LineTooLong,
    /// The digest does not match; the session ends.
    AuthFailed,
    /// This node follows and knows no leader; refused for the whole session.
    NoLeader,
    /// This node cannot serve yet or any more; refused for the whole session.
    NotActive,
}

impl Reason {
    /// Every reason there is.
    pub const ALL: [Self; 8] = [
        Self::BadOp,
        Self::BadRequest,
        Self::BadLease,
        Self::BadKey,
        Self::LineTooLong,
        Self::AuthFailed,
        Self::NoLeader,
        Self::NotActive,
    ];

    /// The reason as it stands in an `E`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BadOp => "bad_op",
            Self::BadRequest => "bad_request",
            Self::BadLease => "bad_lease",
            Self::BadKey => "bad_key",
            Self::LineTooLong => "line_too_long",
            Self::AuthFailed => "auth_failed",
            Self::NoLeader => "no_leader",
            Self::NotActive => "not_active",
        }
    }

    /// The reason that an `E` names, if it is a known one.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|reason| reason.as_str().as_bytes() == bytes)
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What the bytes at hand amount to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decode<T> {
    /// A value, and how many bytes it took from the front, keep-alives before it included.
    Complete(T, usize),
    /// More bytes are needed. So many bytes at the front are keep-alives and can go already; a
    /// frame has begun if there are bytes behind them.
    Incomplete(usize),
    /// No further byte can make this valid. The framing cannot be trusted any more.
    Refused(Reason),
}

/// Reads one request from the front of `buf`.
pub fn decode_request(buf: &[u8]) -> Decode<Request> {
    decode(buf, |op| match op {
        b'A' => Some((header::ACQUIRE, acquire as Parse<Request>)),
        b'R' => Some((header::RELEASE, release)),
        _ => None,
    })
}

/// Reads one reply from the front of `buf`, as strictly as a server reads requests: the refusal
/// names what is wrong with it in the same words.
pub fn decode_reply(buf: &[u8]) -> Decode<Reply> {
    decode(buf, |op| match op {
        b'A' => Some((header::GRANTED, granted as Parse<Reply>)),
        b'T' => Some((header::ONE_NUMBER, timed_out)),
        b'B' => Some((header::ONE_NUMBER, busy)),
        b'R' => Some((header::ONE_NUMBER, released)),
        b'N' => Some((header::ONE_NUMBER, not_current)),
        b'M' => Some((header::NONE, moved)),
        b'L' => Some((header::NONE, leader)),
        b'E' => Some((header::NONE, error)),
        _ => None,
    })
}

/// Whether `address` may stand in an `M` or `L`: 1 to [`ADDRESS_BYTES_MAX`] bytes, no newline.
pub fn is_address(address: &str) -> bool {
    (1..=ADDRESS_BYTES_MAX).contains(&address.len()) && !address.contains('\n')
}

/// Makes a value of a complete frame's header and body. The header has the length that was
/// announced with the function.
type Parse<T> = fn(&[u8], &[u8]) -> Result<T, Reason>;

/// The checks, in their order: op, header complete, length, then those of `Parse`.
fn decode<T>(buf: &[u8], grammar: impl Fn(u8) -> Option<(usize, Parse<T>)>) -> Decode<T> {
    let keep_alives = buf.iter().take_while(|byte| **byte == b'\n').count();
    let frame = &buf[keep_alives..];
    let Some(op) = frame.first() else {
        return Decode::Incomplete(keep_alives);
    };
    let Some((header_bytes, parse)) = grammar(*op) else {
        return Decode::Refused(Reason::BadOp);
    };
    let body_start = OP_BYTES + header_bytes;
    let Some(rest) = frame.get(body_start..) else {
        return Decode::Incomplete(keep_alives);
    };
    let body_bytes_max = FRAME_BYTES_MAX - body_start;
    let Some(body_bytes) = rest
        .iter()
        .take(body_bytes_max + 1)
        .position(|byte| *byte == b'\n')
    else {
        return if rest.len() > body_bytes_max {
            Decode::Refused(Reason::LineTooLong)
        } else {
            Decode::Incomplete(keep_alives)
        };
    };
    match parse(&frame[OP_BYTES..body_start], &rest[..body_bytes]) {
        Ok(value) => Decode::Complete(value, keep_alives + body_start + body_bytes + 1),
        Err(reason) => Decode::Refused(reason),
    }
}

fn acquire(header: &[u8], body: &[u8]) -> Result<Request, Reason> {
    let lease = Lease::from_seconds(header[1]).map_err(|_| Reason::BadLease)?;
    let owner = Owner(number(&header[2..]));
    Ok(Request::Acquire(Acquire {
        wait: Wait(header[0]),
        lease,
        owner,
        key: key(body)?,
    }))
}

fn release(header: &[u8], body: &[u8]) -> Result<Request, Reason> {
    Ok(Request::Release(Release {
        token: Token(number(header)),
        key: key(body)?,
    }))
}

fn granted(header: &[u8], body: &[u8]) -> Result<Reply, Reason> {
    let (token, owner) = header.split_at(8);
    let token = Token(number(token));
    if token == Token(0) {
        return Err(Reason::BadRequest);
    }
    Ok(Reply::Granted {
        token,
        owner: Owner(number(owner)),
        key: key(body)?,
    })
}

fn timed_out(header: &[u8], body: &[u8]) -> Result<Reply, Reason> {
    Ok(Reply::TimedOut {
        owner: Owner(number(header)),
        key: key(body)?,
    })
}

fn busy(header: &[u8], body: &[u8]) -> Result<Reply, Reason> {
    Ok(Reply::Busy {
        owner: Owner(number(header)),
        key: key(body)?,
    })
}

fn released(header: &[u8], body: &[u8]) -> Result<Reply, Reason> {
    Ok(Reply::Released {
        token: Token(number(header)),
        key: key(body)?,
    })
}

fn not_current(header: &[u8], body: &[u8]) -> Result<Reply, Reason> {
    Ok(Reply::NotCurrent {
        token: Token(number(header)),
        key: key(body)?,
    })
}

fn moved(_: &[u8], body: &[u8]) -> Result<Reply, Reason> {
    Ok(Reply::Moved(address(body)?))
}

fn leader(_: &[u8], body: &[u8]) -> Result<Reply, Reason> {
    Ok(Reply::Leader(address(body)?))
}

fn error(_: &[u8], body: &[u8]) -> Result<Reply, Reason> {
    Reason::from_bytes(body)
        .map(Reply::Error)
        .ok_or(Reason::BadRequest)
}

fn key(body: &[u8]) -> Result<Key, Reason> {
    Key::from_bytes(body).map_err(|_| Reason::BadKey)
}

fn address(body: &[u8]) -> Result<String, Reason> {
    let text = std::str::from_utf8(body).map_err(|_| Reason::BadRequest)?;
    if is_address(text) {
        Ok(text.to_owned())
    } else {
        Err(Reason::BadRequest)
    }
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(
        bytes
            .try_into()
            .expect("every number in a fixed header has 8 bytes"),
    )
}

/// Appends the frame of `request` to `out`.
pub fn encode_request(request: &Request, out: &mut Vec<u8>) {
    match request {
        Request::Acquire(Acquire {
            wait,
            lease,
            owner,
            key,
        }) => {
            out.extend_from_slice(&[b'A', wait.0, lease.seconds()]);
            out.extend_from_slice(&owner.0.to_be_bytes());
            body(key.as_bytes(), out);
        }
        Request::Release(Release { token, key }) => numbered(b'R', token.0, key, out),
    }
}

/// Appends the frame of `reply` to `out`. An address must be one that [`is_address`] accepts.
pub fn encode_reply(reply: &Reply, out: &mut Vec<u8>) {
    match reply {
        Reply::Granted { token, owner, key } => {
            out.push(b'A');
            out.extend_from_slice(&token.0.to_be_bytes());
            out.extend_from_slice(&owner.0.to_be_bytes());
            body(key.as_bytes(), out);
        }
        Reply::TimedOut { owner, key } => numbered(b'T', owner.0, key, out),
        Reply::Busy { owner, key } => numbered(b'B', owner.0, key, out),
        Reply::Released { token, key } => numbered(b'R', token.0, key, out),
        Reply::NotCurrent { token, key } => numbered(b'N', token.0, key, out),
        Reply::Moved(address) => addressed(b'M', address, out),
        Reply::Leader(address) => addressed(b'L', address, out),
        Reply::Error(reason) => {
            out.push(b'E');
            body(reason.as_str().as_bytes(), out);
        }
    }
}

fn numbered(op: u8, number: u64, key: &Key, out: &mut Vec<u8>) {
    out.push(op);
    out.extend_from_slice(&number.to_be_bytes());
    body(key.as_bytes(), out);
}

fn addressed(op: u8, address: &str, out: &mut Vec<u8>) {
    debug_assert!(
        is_address(address),
        "addresses are checked where they are configured"
    );
    out.push(op);
    body(address.as_bytes(), out);
}

fn body(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(bytes);
    out.push(b'\n');
}

#[cfg(test)]
mod tests;
