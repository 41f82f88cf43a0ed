//! Histories written by hand, for the checkers' tests. Times are in milliseconds.

use super::*;

/// A history in the making; operations are numbered from 1 in the order in which they are added.
#[derive(Default)]
pub(crate) struct Build {
    events: Vec<Event>,
    ops: OpId,
}

impl Build {
    fn add(mut self, ms: u64, what: What) -> Self {
        self.events.push(Event { at: ms * MS, what });
        self
    }

    fn invoke(mut self, called: u64, call: Call) -> Self {
        self.ops += 1;
        let (op, client) = (self.ops, self.ops as u32);
        self.add(called, What::Invoke { op, client, call })
    }

    fn ask(self, key: &str, wait_s: u8, lease_s: u8, called: u64, by: By) -> Self {
        let call = Call::Acquire {
            key: key.into(),
            wait_s,
            lease_s,
            by,
            node: String::from(if by == By::Raw { "a" } else { "" }),
        };
        self.invoke(called, call)
    }

    fn answer(self, ended: u64, answer: Answer) -> Self {
        let op = self.ops;
        self.add(ended, What::Ok { op, answer })
    }

    /// A grant to a raw client that asked with a wait of 60 s.
    pub(crate) fn grant(self, key: &str, lease_s: u8, called: u64, ended: u64, token: u64) -> Self {
        let answer = Answer::Granted {
            token,
            valid_until: None,
        };
        self.ask(key, 60, lease_s, called, By::Raw)
            .answer(ended, answer)
    }

    /// A grant to the official client.
    pub(crate) fn ticket(
        self,
        key: &str,
        lease_s: u8,
        (called, ended): (u64, u64),
        token: u64,
        valid_until: u64,
    ) -> Self {
        let answer = Answer::Granted {
            token,
            valid_until: Some(valid_until * MS),
        };
        self.ask(key, 60, lease_s, called, By::Official)
            .answer(ended, answer)
    }

    /// The operation added last had arrived at `ms`.
    pub(crate) fn arrived(self, ms: u64) -> Self {
        let op = self.ops;
        self.add(ms, What::Arrived { op })
    }

    /// A raw acquire that was not granted.
    pub(crate) fn refused(
        self,
        key: &str,
        wait_s: u8,
        called: u64,
        ended: u64,
        why: Refusal,
    ) -> Self {
        let this = self.ask(key, wait_s, 10, called, By::Raw);
        let op = this.ops;
        this.add(ended, What::Fail { op, why })
    }

    /// An acquire of the official client that was not granted.
    pub(crate) fn timeout(self, key: &str, wait_s: u8, called: u64, ended: u64) -> Self {
        let this = self.ask(key, wait_s, 10, called, By::Official);
        let op = this.ops;
        let why = Refusal::TimedOut;
        this.add(ended, What::Fail { op, why })
    }

    /// A raw acquire of which nobody knows, with a wait of 5 s.
    pub(crate) fn doubt(self, key: &str, lease_s: u8, called: u64, ended: u64, why: Doubt) -> Self {
        let this = self.ask(key, 5, lease_s, called, By::Raw);
        let op = this.ops;
        this.add(ended, What::Info { op, why })
    }

    /// A raw acquire that has no end.
    pub(crate) fn open(self, key: &str, lease_s: u8, called: u64) -> Self {
        self.ask(key, 5, lease_s, called, By::Raw)
    }

    /// A release that was answered.
    pub(crate) fn release(
        self,
        by: By,
        key: &str,
        token: u64,
        (called, ended): (u64, u64),
        answer: Answer,
    ) -> Self {
        let key = key.into();
        self.invoke(called, Call::Release { key, token, by })
            .answer(ended, answer)
    }

    /// A raw client's release with `R`.
    pub(crate) fn released(self, key: &str, token: u64, called: u64, ended: u64) -> Self {
        self.release(By::Raw, key, token, (called, ended), Answer::Released)
    }

    /// A raw client's release with `N`.
    pub(crate) fn not_current(self, key: &str, token: u64, called: u64, ended: u64) -> Self {
        self.release(By::Raw, key, token, (called, ended), Answer::NotCurrent)
    }

    /// A release of which nobody knows.
    pub(crate) fn release_lost(self, key: &str, token: u64, called: u64, ended: u64) -> Self {
        let (key, by) = (key.into(), By::Raw);
        let this = self.invoke(called, Call::Release { key, token, by });
        let op = this.ops;
        let why = Doubt::Lost;
        this.add(ended, What::Info { op, why })
    }

    /// An answer to nothing.
    pub(crate) fn stray(self, ms: u64) -> Self {
        let frame = "A".into();
        self.add(ms, What::Stray { session: 1, frame })
    }

    /// A fault that hit `target`; `None` as the leader: nobody led.
    pub(crate) fn fault(
        self,
        kind: &str,
        target: &str,
        leader: Option<&str>,
        (began, ended): (u64, u64),
        evidence: u64,
    ) -> Self {
        let fault = began;
        let begin = FaultBegan {
            fault,
            kind: kind.into(),
            what: String::new(),
            targets: vec![target.into()],
            leader: leader.map(str::to_owned),
        };
        let end = FaultEnded {
            fault,
            evidence,
            counted: "packets".into(),
        };
        self.add(began, What::Began(begin))
            .add(ended, What::Ended(end))
    }

    /// A node ended by itself.
    pub(crate) fn died(self, ms: u64, node: &str) -> Self {
        let (node, how) = (node.into(), "exit status: 1".into());
        self.add(ms, What::Died { node, how })
    }

    /// All is well again.
    pub(crate) fn healed(self, ms: u64) -> Self {
        self.add(ms, What::Healed)
    }

    /// Somebody used a register.
    pub(crate) fn access(self, ms: u64, access: Access) -> Self {
        self.add(ms, What::Store(access))
    }

    /// What a node said of itself.
    pub(crate) fn status(self, ms: u64, node: &str, applied: u64, state_hash: &str) -> Self {
        let status = NodeStatus {
            node: node.into(),
            applied,
            state_hash: state_hash.into(),
            ..NodeStatus::default()
        };
        self.add(ms, What::Status(status))
    }

    /// The history of what was added, in order of time.
    pub(crate) fn history(mut self) -> History {
        // Stable, so a call stays before an end of the same moment.
        self.events.sort_by_key(|event| event.at);
        let mut reading = Reading::default();
        reading.history.info.election_ms = 1000;
        reading.history.info.nodes = 3;
        for event in self.events {
            reading.take(event).unwrap();
        }
        reading.history
    }
}
