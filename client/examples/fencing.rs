//! A holder that is late, and a store that does not let it do harm.
//!
//! Start a local cluster (`ticketing dev`), then `cargo run -p client --example fencing`.

use std::time::Duration;

use client::{Broker, Error, Token};

/// What the lock protects: a value, and the greatest token that ever wrote it.
struct Store {
    value: String,
    fence: Token,
}

impl Store {
    /// Check and write in one step, as a database does it in one transaction.
    fn write(&mut self, token: Token, value: &str) -> bool {
        if token < self.fence {
            return false;
        }
        self.fence = token;
        self.value = value.to_owned();
        true
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let addresses = ["127.0.0.1:5225", "127.0.0.1:5226", "127.0.0.1:5227"];
    let broker = Broker::builder().addresses(addresses).build()?;
    broker.wait_ready(Duration::from_secs(5)).await?;
    let mut store = Store {
        value: "empty".into(),
        fence: Token(0),
    };

    let lease = Duration::from_secs(2);
    let asked = broker.acquire("fencing-example").lease(lease);
    let late = asked.work_budget(Duration::from_secs(1)).await?;
    println!(
        "the first holder has token {}, and falls asleep",
        late.token()
    );
    late.lease_over().await;

    let next = asked.work_budget(Duration::from_secs(1)).await?;
    println!(
        "its lease is over, the next holder has token {}",
        next.token()
    );
    assert!(store.write(next.token(), "written by the next holder"));

    let written = store.write(late.token(), "written too late");
    println!(
        "the first holder wakes and writes: {}",
        if written { "done" } else { "refused" }
    );
    println!("the store says: {}", store.value);
    assert!(!written);

    let outcome = next.release().await?;
    println!("the next holder releases: {outcome:?}");
    broker.close().await;
    Ok(())
}
