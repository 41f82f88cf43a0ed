//! Ports for processes that are started, killed and started again.
//!
//! They lie below the range from which the kernel takes source ports, or a connection made while
//! a node is down could sit on the node's port when it comes back. A UDP socket on the same
//! number is the reservation: it is seen by every test process, costs the servers nothing (they
//! use TCP), and ends with its owner whatever way that ends.

use std::net::{TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};

/// First port that is handed out.
const FIRST: u32 = 10_000;

/// How many there are: up to 31,999, below Linux's default ephemeral range.
const COUNT: u32 = 22_000;

/// Ports of one test, reserved until this is dropped.
#[derive(Debug)]
pub(crate) struct Ports {
    next: u16,
    reservations: Vec<UdpSocket>,
}

impl Ports {
    /// `count` neighbouring ports that nobody uses, and as many at each of `offsets` above them.
    fn block(count: u16, offsets: &[u16]) -> Self {
        for _ in 0..COUNT {
            let first = candidate(count);
            let offsets = [0].iter().chain(offsets);
            let wanted = offsets.flat_map(|offset| first + offset..first + offset + count);
            let taken: Option<Vec<_>> = wanted.map(reserve).collect();
            if let Some(reservations) = taken {
                return Self {
                    next: first,
                    reservations,
                };
            }
        }
        panic!("no {count} neighbouring ports are free");
    }

    /// `count` ports, to be taken with [`next`](Self::next).
    pub(crate) fn reserve(count: u16) -> Self {
        Self::block(count, &[])
    }

    /// `count` client ports, the same number of peer ports 1,000 above them, and of admin ports
    /// another 1,000 above those.
    pub(crate) fn with_default_offsets(count: u16) -> Self {
        Self::block(count, &[1_000, 2_000])
    }

    /// The next port of the block.
    pub(crate) fn next(&mut self) -> u16 {
        assert!(!self.reservations.is_empty());
        self.next += 1;
        self.next - 1
    }
}

/// Where to look next: each process begins somewhere else and goes on from there.
fn candidate(count: u16) -> u16 {
    static CURSOR: AtomicU32 = AtomicU32::new(0);
    let start = std::process::id().wrapping_mul(7_919);
    let cursor = CURSOR.fetch_add(u32::from(count), Ordering::Relaxed);
    let room = COUNT - 2_000 - u32::from(count);
    let port = FIRST + start.wrapping_add(cursor) % room;
    u16::try_from(port).expect("the range ends below 65,536")
}

fn reserve(port: u16) -> Option<UdpSocket> {
    let reservation = UdpSocket::bind(("127.0.0.1", port)).ok()?;
    TcpListener::bind(("127.0.0.1", port)).ok()?;
    Some(reservation)
}
