//! Each node in a network namespace of its own, on a bridge; the clients at another address of that
//! bridge.
//!
//! Nothing is left behind, whatever way a run ends: [`enter`] starts the run anew inside namespaces
//! for network, mounts and processes, which the kernel takes down with the last process in them;
//! and the first process in them is killed with the one that started it.
//!
//! Packets are dropped, lost, held and doubled by iptables rules ([`Rules`]) at the receiver, or
//! the sender where that is the only place; each rule counts what it did. There is no netem on the
//! machines that this is built on, so packets are delayed by a netfilter queue and a process of
//! ours that holds them ([`crate::delay`]).

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;

use tokio::process::{Child, Command};

use super::{Applied, Effect, End, Evidence, Link};
use crate::error::{Error, output, run, words};

/// Set in the process that runs inside the namespaces.
pub(crate) const INSIDE: &str = "TICKETING_JEPSEN_INSIDE";

/// What the host of node 0 is called; the others follow.
const NAME: &str = "tj";

/// The network device at a node, and the one that the clients have.
const NODE_DEVICE: &str = "eth0";
const CLIENTS_DEVICE: &str = "tjbr";

/// The clients' own address.
const CLIENTS_IP: &str = "10.77.0.254";

/// A command that starts this program anew inside namespaces of its own.
pub(crate) fn enter(arguments: impl Iterator<Item = String>) -> Result<Command, Error> {
    let own = std::env::current_exe().map_err(|error| Error::of("finding this program", error))?;
    // The death of this process is the death of all.
    let mut command = words(
        "setpriv --pdeathsig KILL -- unshare --net --mount --pid --fork --kill-child --mount-proc --",
    );
    command.arg(own).args(arguments).env(INSIDE, "1");
    Ok(command)
}

/// The hosts of one run.
pub(crate) struct Namespaces {
    rules: Rules,
}

impl Namespaces {
    /// Makes the bridge and `nodes` hosts.
    pub(crate) async fn create(nodes: usize) -> Result<Self, Error> {
        // What `ip netns` mounts stays in this mount namespace.
        run(&mut words("mkdir -p /run/netns")).await?;
        run(&mut words("mount -t tmpfs tmpfs /run/netns")).await?;
        run(&mut words("ip link set lo up")).await?;
        for line in [
            format!("ip link add {CLIENTS_DEVICE} type bridge"),
            format!("ip addr add {CLIENTS_IP}/24 dev {CLIENTS_DEVICE}"),
            format!("ip link set {CLIENTS_DEVICE} up"),
        ] {
            run(&mut words(&line)).await?;
        }
        for node in 0..nodes {
            let (name, ip) = (name(node), Self::ip(node));
            for line in [
                format!("ip netns add {name}"),
                format!("ip link add {name}v type veth peer name {NODE_DEVICE} netns {name}"),
                format!("ip link set {name}v master {CLIENTS_DEVICE} up"),
                format!("ip -n {name} addr add {ip}/24 dev {NODE_DEVICE}"),
                format!("ip -n {name} link set {NODE_DEVICE} up"),
                format!("ip -n {name} link set lo up"),
            ] {
                run(&mut words(&line)).await?;
            }
        }
        let enter = (0..nodes).map(|node| format!("nsenter --net=/run/netns/{}", name(node)));
        let ips = (0..nodes).map(Self::ip).collect();
        let rules = Rules::new(enter.collect(), ips, CLIENTS_IP.into());
        Ok(Self { rules })
    }

    /// A node's address.
    pub(crate) fn ip(node: usize) -> String {
        format!("10.77.0.{}", node + 1)
    }

    /// A command in a node's namespace. Only the network is another one, so that file systems can
    /// come and go under a running node.
    pub(crate) fn command(node: usize, program: &Path) -> Command {
        let mut command = words(&format!("nsenter --net=/run/netns/{}", name(node)));
        command.arg(program);
        command
    }

    pub(super) fn rules(&mut self) -> &mut Rules {
        &mut self.rules
    }
}

/// What a place's packets leave through.
fn device(place: End) -> &'static str {
    match place {
        End::Node(_) => NODE_DEVICE,
        End::Clients => CLIENTS_DEVICE,
    }
}

fn name(node: usize) -> String {
    format!("{NAME}{node}")
}

/// Rules for packets, in the network namespaces of nodes and clients.
pub(crate) struct Rules {
    /// How to run a command at each node.
    enter: Vec<String>,
    ips: Vec<String>,
    clients_ip: String,
    next: u64,
    applied: BTreeMap<u64, Work>,
}

/// One effect at its places.
struct Work {
    effect: Effect,
    places: Vec<End>,
    /// The processes that hold packets.
    holders: Vec<Child>,
}

impl Rules {
    pub(super) fn new(enter: Vec<String>, ips: Vec<String>, clients_ip: String) -> Self {
        Self {
            enter,
            ips,
            clients_ip,
            next: 1,
            applied: BTreeMap::new(),
        }
    }

    fn ip(&self, end: End) -> &str {
        match end {
            End::Node(node) => &self.ips[node],
            End::Clients => &self.clients_ip,
        }
    }

    fn at(&self, end: End, line: &str) -> Command {
        match end {
            End::Node(node) => words(&format!("{} {line}", self.enter[node])),
            End::Clients => words(line),
        }
    }

    pub(super) async fn apply(&mut self, effect: Effect, links: &[Link]) -> Result<Applied, Error> {
        let number = self.next;
        self.next += 1;
        let mut places: BTreeMap<End, Vec<String>> = BTreeMap::new();
        for link in links {
            let (place, rule) = match effect {
                Effect::Duplicate | Effect::Slow => {
                    let to = self.ip(link.to);
                    let pick = "-m statistic --mode random --probability 0.33";
                    (link.from, format!("-d {to} {pick} -j TEE --gateway {to}"))
                }
                _ => (
                    link.to,
                    format!("-s {} {}", self.ip(link.from), target(effect, number)),
                ),
            };
            places.entry(place).or_default().push(rule);
        }
        let mut work = Work {
            effect,
            places: places.keys().copied().collect(),
            holders: Vec::new(),
        };
        for (place, rules) in places {
            match effect {
                Effect::Slow => {
                    let shape = "root tbf rate 256kbit burst 16kb latency 400ms";
                    let line = format!("tc qdisc add dev {} {shape}", device(place));
                    run(&mut self.at(place, &line)).await?;
                }
                Effect::Delay | Effect::Reorder => {
                    work.holders.push(self.hold(place, effect, number)?);
                    self.chain(place, effect, number, &rules).await?;
                }
                _ => self.chain(place, effect, number, &rules).await?,
            }
        }
        self.applied.insert(number, work);
        Ok(Applied(number))
    }

    async fn chain(
        &self,
        place: End,
        effect: Effect,
        number: u64,
        rules: &[String],
    ) -> Result<(), Error> {
        let (table, hook) = table(effect);
        let mut lines = vec![format!("-N F{number}")];
        lines.extend(rules.iter().map(|rule| format!("-A F{number} {rule}")));
        lines.push(format!("-I {hook} -j F{number}"));
        for line in lines {
            run(&mut self.at(place, &format!("iptables -w -t {table} {line}"))).await?;
        }
        Ok(())
    }

    /// Starts the process that holds packets back.
    fn hold(&self, place: End, effect: Effect, number: u64) -> Result<Child, Error> {
        let own =
            std::env::current_exe().map_err(|error| Error::of("finding this program", error))?;
        let reorder = if effect == Effect::Reorder {
            "--reorder"
        } else {
            ""
        };
        let line = format!("{} delay --queue {number} {reorder}", own.display());
        let mut command = self.at(place, &line);
        command.stdin(Stdio::piped()).kill_on_drop(true);
        command
            .spawn()
            .map_err(|error| Error::of("starting the process that delays packets", error))
    }

    pub(super) async fn take_back(&mut self, applied: Applied) -> Result<Evidence, Error> {
        let number = applied.0;
        let Some(mut work) = self.applied.remove(&number) else {
            return Ok(Evidence::default());
        };
        let mut count = 0;
        for place in work.places {
            if work.effect == Effect::Slow {
                count += self.unslow(place).await?;
                continue;
            }
            let (table, hook) = table(work.effect);
            let iptables = format!("iptables -w -t {table}");
            run(&mut self.at(place, &format!("{iptables} -D {hook} -j F{number}"))).await?;
            let listed = self
                .at(place, &format!("{iptables} -nvxL F{number}"))
                .output()
                .await;
            let listed = listed.map_err(|error| Error::of("counting packets", error))?;
            count += packets(&String::from_utf8_lossy(&listed.stdout));
            run(&mut self.at(place, &format!("{iptables} -F F{number}"))).await?;
            run(&mut self.at(place, &format!("{iptables} -X F{number}"))).await?;
        }
        for holder in &mut work.holders {
            // Gone already only if it failed, and then its packets were counted nevertheless.
            let _ = holder.kill().await;
        }
        let of = match work.effect {
            Effect::Drop | Effect::Lose => "packets dropped",
            Effect::Delay | Effect::Reorder => "packets held back",
            Effect::Duplicate => "packets doubled",
            Effect::Slow => "times a packet had to wait",
        };
        Ok(Evidence { count, of })
    }

    async fn unslow(&self, place: End) -> Result<u64, Error> {
        let device = device(place);
        let shown = output(&mut self.at(place, &format!("tc -s qdisc show dev {device}"))).await?;
        run(&mut self.at(place, &format!("tc qdisc del dev {device} root"))).await?;
        Ok(overlimits(&String::from_utf8_lossy(&shown.stdout)))
    }
}

fn target(effect: Effect, number: u64) -> String {
    match effect {
        Effect::Drop => "-j DROP".into(),
        Effect::Lose => "-m statistic --mode random --probability 0.2 -j DROP".into(),
        _ => format!("-j NFQUEUE --queue-num {number} --queue-bypass"),
    }
}

fn table(effect: Effect) -> (&'static str, &'static str) {
    match effect {
        Effect::Duplicate => ("mangle", "OUTPUT"),
        _ => ("filter", "INPUT"),
    }
}

/// The packets that the rules of a listed chain have matched: the first number of each line after
/// the two of the head.
fn packets(listed: &str) -> u64 {
    let rules = listed.lines().skip(2);
    rules
        .filter_map(|rule| rule.split_whitespace().next()?.parse::<u64>().ok())
        .sum()
}

/// How often a shaper made a packet wait.
fn overlimits(shown: &str) -> u64 {
    let mut words = shown.split_whitespace();
    words
        .find(|word| *word == "overlimits")
        .and_then(|_| words.next()?.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_of_all_rules_are_counted() {
        let listed = "Chain F1 (1 references)\n    pkts      bytes target prot\n      12     720 DROP 0\n       3     100 DROP 0\n";
        assert_eq!(packets(listed), 15);
    }

    #[test]
    fn clients_send_through_the_bridge() {
        assert_eq!(device(End::Node(1)), "eth0");
        assert_eq!(device(End::Clients), "tjbr");
    }

    #[test]
    fn what_a_shaper_did_is_read() {
        let shown =
            "qdisc tbf 8001: root\n Sent 10 bytes 1 pkt (dropped 0, overlimits 42 requeues 0)\n";
        assert_eq!(overlimits(shown), 42);
        assert_eq!(overlimits(""), 0);
    }
}
