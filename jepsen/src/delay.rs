//! `jepsen delay`: holds the packets of one netfilter queue back, in a node's network namespace.
//!
//! A delay keeps the order, as a long line does; reordering lets some packets be overtaken. It ends
//! when it is killed; the rule that fills the queue lets packets pass by when nobody reads it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use nfq::{Message, Queue, Verdict};

/// How long a packet is held: so much, and up to twice the jitter on top.
const DELAY: Duration = Duration::from_millis(40);
const JITTER_MS: u64 = 20;

/// How long a packet is held that is to be overtaken, and how many of a hundred are.
const OVERTAKEN: Duration = Duration::from_millis(20);
const OVERTAKEN_PERCENT: u64 = 25;

/// How often packets are looked for and let go.
const LOOK: Duration = Duration::from_millis(1);

/// Packets that the kernel may keep for us.
const QUEUE_PACKETS_MAX: u32 = 8192;

/// Serves queue `number` until it is killed.
pub(crate) fn serve(number: u16, reorder: bool) -> io::Result<()> {
    let mut queue = Queue::open()?;
    queue.bind(number)?;
    queue.set_queue_max_len(number, QUEUE_PACKETS_MAX)?;
    queue.set_nonblocking(true);
    let mut random = fastrand::Rng::new();
    let mut held: BinaryHeap<Reverse<(Instant, u64)>> = BinaryHeap::new();
    let mut messages: std::collections::BTreeMap<u64, Message> = std::collections::BTreeMap::new();
    let mut last_due = Instant::now();
    let mut count = 0;
    loop {
        loop {
            match queue.recv() {
                Ok(message) => {
                    let now = Instant::now();
                    let due = if !reorder {
                        last_due = last_due
                            .max(now + DELAY + Duration::from_millis(random.u64(0..=JITTER_MS)));
                        last_due
                    } else if random.u64(0..100) < OVERTAKEN_PERCENT {
                        now + OVERTAKEN
                    } else {
                        now
                    };
                    count += 1;
                    messages.insert(count, message);
                    held.push(Reverse((due, count)));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // The kernel had no room for a packet's notice: the packet is lost, as packets may
                // be.
                Err(error) if error.raw_os_error() == Some(105) => {}
                Err(error) => return Err(error),
            }
        }
        while let Some(Reverse((due, number))) = held.peek().copied()
            && due <= Instant::now()
        {
            held.pop();
            if let Some(mut message) = messages.remove(&number) {
                message.set_verdict(Verdict::Accept);
                queue.verdict(message)?;
            }
        }
        std::thread::sleep(LOOK);
    }
}
