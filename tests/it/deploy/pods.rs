//! A StatefulSet as the kubelets would run it: pods with stable names, a volume each, a new address
//! at every start, and probes that look at them all the time.
//!
//! The environment is the one of `deploy/kubernetes/base/stateful-set.yaml`. All pods share one
//! network here, so each binds its own loopback address, where a real one binds all that it has.

use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use super::liveness::Liveness;
use super::names::Hosts;
use crate::harness::process::{self, Process, binary};
use crate::harness::{PATIENCE, SETTLE, eventually, http};

/// How many pods there are.
pub(crate) const PODS: usize = 3;

/// What clients prove to know.
pub(crate) const AUTH_TOKEN: &str = "a token that is long enough";

/// The ports, the same for all pods.
const CLIENT_PORT: u16 = 5225;
const ADMIN_PORT: u16 = 7225;

/// A pod may take this long to end, without the hook before.
const STOP_MAX: Duration = Duration::from_secs(10);

/// The host names of the pods.
pub(crate) fn names() -> Vec<String> {
    (0..PODS)
        .map(|ordinal| format!("ticketing-{ordinal}.ticketing-peers.ticketing.svc"))
        .collect()
}

/// The client addresses of the pods.
pub(crate) fn addresses() -> Vec<String> {
    let address = |name| format!("{name}:{CLIENT_PORT}");
    names().into_iter().map(address).collect()
}

/// All pods of the set.
pub(crate) struct StatefulSet {
    hosts: Hosts,
    pods: Vec<Pod>,
    /// The greatest index that any pod was seen to have applied.
    applied: u64,
    liveness: Liveness,
    dir: TempDir,
}

struct Pod {
    name: String,
    volume: PathBuf,
    log: PathBuf,
    /// Counts the starts, and with them the addresses.
    starts: u8,
    /// What had been applied anywhere when it was started last.
    applied_before: u64,
    address: Option<Ipv4Addr>,
    process: Option<Process>,
}

impl StatefulSet {
    /// A set of which nothing runs yet.
    pub(crate) fn new(hosts: Hosts) -> Self {
        let dir = TempDir::new().expect("a temporary directory");
        let pod = |ordinal| Pod {
            name: format!("ticketing-{ordinal}"),
            volume: dir.path().join(format!("volume-{ordinal}")),
            log: dir.path().join(format!("ticketing-{ordinal}.log")),
            starts: 0,
            applied_before: 0,
            address: None,
            process: None,
        };
        Self {
            hosts,
            pods: (0..PODS).map(pod).collect(),
            applied: 0,
            liveness: Liveness::watch(),
            dir,
        }
    }

    /// Starts a pod with its volume, under an address that no pod ever had.
    pub(crate) fn start(&mut self, ordinal: usize) {
        let number = u8::try_from(ordinal).expect("three pods");
        let address = Ipv4Addr::new(127, 1, number, self.pods[ordinal].starts + 1);
        self.start_at(ordinal, address);
    }

    /// Starts a pod with its volume under this address.
    pub(crate) fn start_at(&mut self, ordinal: usize, address: Ipv4Addr) {
        self.observe();
        let own = addresses().swap_remove(ordinal);
        let pod = &mut self.pods[ordinal];
        assert!(pod.process.is_none(), "{} runs", pod.name);
        pod.starts += 1;
        pod.applied_before = self.applied;
        pod.address = Some(address);
        self.hosts.set(ordinal, Some(address));
        let mut command = binary();
        command
            .arg("serve")
            .env("SOCKET_BIND", address.to_string())
            .env("ADMIN_BIND", pod.admin())
            .env("CLUSTER_SELF", own)
            .env("CLUSTER_PEERS", addresses().join(","))
            .env("CLUSTER_SECRET", "a secret that is long enough")
            .env("AUTH_TOKEN", AUTH_TOKEN)
            .env("DATA_DIR", &pod.volume);
        pod.process = Some(Process::spawn(&pod.name, command, &pod.log));
        self.liveness.expect(ordinal, Some(pod.admin()));
    }

    /// The address that a pod has, or had last.
    pub(crate) fn address(&self, ordinal: usize) -> Ipv4Addr {
        self.pods[ordinal].address.expect("it was started")
    }

    /// SIGTERM; the pod must end by itself and in order. Its name loses its address.
    pub(crate) fn terminate(&mut self, ordinal: usize) {
        self.observe();
        self.liveness.expect(ordinal, None);
        let pod = &mut self.pods[ordinal];
        let mut process = pod.process.take().expect("it runs");
        process.signal(Signal::TERM);
        let status = process.wait(STOP_MAX);
        assert_eq!(status.code(), Some(0), "{}: {status}", pod.name);
        self.hosts.set(ordinal, None);
    }

    /// `kill -9`. Its name keeps the address, as names do for a while.
    pub(crate) fn kill(&mut self, ordinal: usize) {
        self.observe();
        self.liveness.expect(ordinal, None);
        let process = self.pods[ordinal].process.take();
        process.expect("it runs").kill();
    }

    /// Deletes the volume of a pod that does not run.
    pub(crate) fn delete_volume(&self, ordinal: usize) {
        let pod = &self.pods[ordinal];
        assert!(pod.process.is_none(), "{} runs", pod.name);
        fs::remove_dir_all(&pod.volume).expect("the volume is there");
    }

    /// Waits until a pod says that it is ready, and holds that against what it is: in the moment in
    /// which it first says so it has applied whatever had been applied anywhere before its start,
    /// and it is a voter in the eyes of the leader.
    pub(crate) fn await_ready(&mut self, ordinal: usize) {
        let name = self.pods[ordinal].name.clone();
        eventually(&format!("{name} is ready"), SETTLE, || {
            self.is_ready(ordinal).then_some(())
        });
        let status = self.pods[ordinal].status().expect("it is ready");
        let applied = number(&status, "applied_index");
        let before = self.pods[ordinal].applied_before;
        assert!(
            applied >= before,
            "{name} is ready at {applied}, and {before} was applied before its start"
        );
        eventually(&format!("{name} is a voter"), PATIENCE, || {
            let leader = self.pods.iter().filter_map(Pod::status);
            let leader = leader.into_iter().find(|seen| seen["role"] == "leader")?;
            let members = leader["members"].as_array()?.clone();
            let own = members
                .iter()
                .find(|member| member["node_id"] == status["node_id"]);
            let kind = own.map(|member| member["kind"].clone());
            assert_eq!(kind, Some("voter".into()), "{name}, which is ready");
            Some(())
        });
        self.liveness.assert_clean();
    }

    /// Waits until a pod that runs says that it is not ready.
    pub(crate) fn await_unready(&mut self, ordinal: usize) {
        let what = format!("{} is not ready", self.pods[ordinal].name);
        eventually(&what, PATIENCE, || (!self.is_ready(ordinal)).then_some(()));
        self.liveness.assert_clean();
    }

    fn is_ready(&mut self, ordinal: usize) -> bool {
        let pod = &mut self.pods[ordinal];
        let ended = pod.process.as_mut().expect("it runs").ended();
        assert!(ended.is_none(), "{} has ended: {ended:?}", pod.name);
        http::try_get(&pod.admin(), "/readyz").is_some_and(|answer| answer.status == 200)
    }

    /// The pod that leads.
    pub(crate) fn leader(&self) -> usize {
        eventually("a leader", SETTLE, || {
            let leads = |pod: &Pod| pod.status().is_some_and(|seen| seen["role"] == "leader");
            self.pods.iter().position(leads)
        })
    }

    /// Remembers how far the pods that run have come.
    fn observe(&mut self) {
        for status in self.pods.iter().filter_map(Pod::status) {
            self.applied = self.applied.max(number(&status, "applied_index"));
        }
    }

    /// Ends everything; whatever a liveness probe saw counts.
    pub(crate) fn finish(mut self) {
        for ordinal in 0..PODS {
            self.terminate(ordinal);
        }
        self.liveness.assert_clean();
    }
}

impl Drop for StatefulSet {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for pod in &self.pods {
                let log = fs::read_to_string(&pod.log).unwrap_or_default();
                let state = if pod.process.is_some() {
                    "was up"
                } else {
                    "was down"
                };
                process::show(&pod.name, state, &log);
            }
            eprintln!("--- all of it was in {}", self.dir.path().display());
        }
    }
}

impl Pod {
    /// Where its probes and its status are.
    fn admin(&self) -> String {
        let address = self.address.expect("it was started");
        format!("{address}:{ADMIN_PORT}")
    }

    /// What it says of itself, if it runs and answers.
    fn status(&self) -> Option<Value> {
        self.process.as_ref()?;
        Some(http::try_get(&self.admin(), "/v1/status")?.json())
    }
}

/// The number under a name, 0 where there is none yet.
fn number(status: &Value, name: &str) -> u64 {
    status[name].as_u64().unwrap_or(0)
}
