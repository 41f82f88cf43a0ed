//! Rules for packets, in the network namespaces of nodes and clients.
//!
//! Packets are dropped, lost, held and doubled by iptables rules at the receiver, or the sender
//! where that is the only place; each rule counts what it did. There is no netem on the machines
//! that this is built on, so packets are delayed by a netfilter queue and a process of ours that
//! holds them ([`crate::delay`]).

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::mem;
use std::os::fd::AsRawFd;
use std::process::Stdio;
use std::sync::Arc;

use tokio::process::{Child, Command};

use super::{Applied, Effect, End, Evidence, Link};
use crate::error::{Error, output, run, words};

/// How a command gets into a network namespace.
#[derive(Clone, Debug)]
pub(super) struct Way {
    /// What stands before the command.
    prefix: String,
    /// Keeps the namespace when nobody lives in it any more: its rules can still be counted.
    _open: Option<Arc<File>>,
}

impl Way {
    /// To the network namespace that this process is in.
    fn here() -> Self {
        Self {
            prefix: String::new(),
            _open: None,
        }
    }

    /// To the network namespace with the file `path`.
    pub(super) fn network(path: &str) -> Self {
        Self {
            prefix: format!("nsenter --net={path}"),
            _open: None,
        }
    }

    /// To the network namespace that `file` is, which lasts as long as this.
    pub(super) fn open(file: File) -> Self {
        let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        Self {
            _open: Some(Arc::new(file)),
            ..Self::network(&path)
        }
    }

    pub(super) fn command(&self, line: &str) -> Command {
        words(&format!("{} {line}", self.prefix))
    }
}

/// What somebody else sees of a place.
#[derive(Clone, Debug)]
pub(super) struct Face {
    ip: String,
    /// What packets leave through.
    device: String,
}

impl Face {
    pub(super) fn new(ip: &str, device: &str) -> Self {
        Self {
            ip: ip.into(),
            device: device.into(),
        }
    }
}

/// Where a node is in the network.
pub(super) struct Place {
    /// `None` before its first start.
    pub(super) way: Option<Way>,
    pub(super) to_nodes: Face,
    pub(super) to_clients: Face,
}

/// The rules of one run.
pub(crate) struct Rules {
    nodes: Vec<Place>,
    /// The clients are where this process is.
    clients: Face,
    next: u64,
    applied: BTreeMap<u64, Work>,
}

/// One effect.
struct Work {
    effect: Effect,
    links: Vec<Link>,
    done: Vec<Done>,
}

/// What was done for it in one network namespace.
struct Done {
    way: Way,
    /// The device that is slowed down; else there is a chain of rules.
    device: Option<String>,
    /// The process that holds packets.
    holder: Option<Child>,
}

impl Rules {
    pub(super) fn new(nodes: Vec<Place>, clients: Face) -> Self {
        Self {
            nodes,
            clients,
            next: 1,
            applied: BTreeMap::new(),
        }
    }

    /// What `other` sees of `end`.
    fn face(&self, end: End, other: End) -> &Face {
        match (end, other) {
            (End::Node(node), End::Node(_)) => &self.nodes[node].to_nodes,
            (End::Node(node), End::Clients) => &self.nodes[node].to_clients,
            (End::Clients, _) => &self.clients,
        }
    }

    fn way(&self, end: End) -> Option<Way> {
        match end {
            End::Node(node) => self.nodes[node].way.clone(),
            End::Clients => Some(Way::here()),
        }
    }

    pub(super) async fn apply(&mut self, effect: Effect, links: &[Link]) -> Result<Applied, Error> {
        let number = self.next;
        self.next += 1;
        let mut work = Work {
            effect,
            links: links.to_vec(),
            done: Vec::new(),
        };
        let ends: BTreeSet<End> = links.iter().map(|link| place(effect, *link)).collect();
        for end in ends {
            self.put(number, &mut work, end).await?;
        }
        self.applied.insert(number, work);
        Ok(Applied(number))
    }

    /// A node is at another place: what is on must be on there as well.
    pub(super) async fn moved(&mut self, node: usize, place: Place) -> Result<(), Error> {
        self.nodes[node] = place;
        let mut applied = mem::take(&mut self.applied);
        for (number, work) in &mut applied {
            self.put(*number, work, End::Node(node)).await?;
        }
        self.applied = applied;
        Ok(())
    }

    /// Does what `work` needs at one end.
    async fn put(&self, number: u64, work: &mut Work, end: End) -> Result<(), Error> {
        let effect = work.effect;
        let links = work.links.iter().copied();
        let links: Vec<Link> = links.filter(|link| place(effect, *link) == end).collect();
        let Some(way) = self.way(end).filter(|_| !links.is_empty()) else {
            return Ok(());
        };
        if effect == Effect::Slow {
            for device in self.devices(&links) {
                let shape = "root tbf rate 256kbit burst 4kb latency 400ms";
                run(&mut way.command(&format!("tc qdisc add dev {device} {shape}"))).await?;
                work.done.push(Done {
                    way: way.clone(),
                    device: Some(device.to_owned()),
                    holder: None,
                });
            }
            return Ok(());
        }
        let holder = match effect {
            Effect::Delay | Effect::Reorder => Some(hold(&way, effect, number)?),
            _ => None,
        };
        for line in self.chain(effect, number, &links) {
            run(&mut way.command(&line)).await?;
        }
        work.done.push(Done {
            way,
            device: None,
            holder,
        });
        Ok(())
    }

    /// The devices through which packets leave for `links`, which all begin at one place.
    fn devices(&self, links: &[Link]) -> BTreeSet<&str> {
        let devices = links.iter().map(|link| self.face(link.from, link.to));
        devices.map(|face| face.device.as_str()).collect()
    }

    /// The commands that make the chain of an effect for `links`, which all are at one place.
    fn chain(&self, effect: Effect, number: u64, links: &[Link]) -> Vec<String> {
        let (table, hook) = table(effect);
        let mut lines = vec![format!("-N F{number}")];
        for link in links {
            let rule = if effect == Effect::Duplicate {
                let to = &self.face(link.to, link.from).ip;
                let pick = "-m statistic --mode random --probability 0.33";
                format!("-d {to} {pick} -j TEE --gateway {to}")
            } else {
                let from = &self.face(link.from, link.to).ip;
                format!("-s {from} {}", target(effect, number))
            };
            lines.push(format!("-A F{number} {rule}"));
        }
        lines.push(format!("-I {hook} -j F{number}"));
        let full = lines
            .iter()
            .map(|line| format!("iptables -w -t {table} {line}"));
        full.collect()
    }

    pub(super) async fn take_back(&mut self, applied: Applied) -> Result<Evidence, Error> {
        let number = applied.0;
        let Some(work) = self.applied.remove(&number) else {
            return Ok(Evidence::default());
        };
        let mut count = 0;
        for mut done in work.done {
            count += match &done.device {
                Some(device) => unslow(&done.way, device).await?,
                None => unchain(&done.way, work.effect, number).await?,
            };
            if let Some(holder) = &mut done.holder {
                // Gone already only if it failed, and then its packets were counted nevertheless.
                let _ = holder.kill().await;
            }
        }
        let of = match work.effect {
            Effect::Drop | Effect::Lose => "packets dropped",
            Effect::Delay | Effect::Reorder => "packets held back",
            Effect::Duplicate => "packets doubled",
            Effect::Slow => "times a packet had to wait",
        };
        Ok(Evidence { count, of })
    }
}

/// The end of a link at which an effect is brought about.
fn place(effect: Effect, link: Link) -> End {
    match effect {
        Effect::Duplicate | Effect::Slow => link.from,
        _ => link.to,
    }
}

/// Starts the process that holds packets back. It ends with this one, whatever way that does.
fn hold(way: &Way, effect: Effect, number: u64) -> Result<Child, Error> {
    let own = std::env::current_exe().map_err(|error| Error::of("finding this program", error))?;
    let reorder = if effect == Effect::Reorder {
        "--reorder"
    } else {
        ""
    };
    let line = format!(
        "setpriv --pdeathsig KILL -- {} {} delay --queue {number} {reorder}",
        way.prefix,
        own.display()
    );
    let mut command = words(&line);
    command.stdin(Stdio::piped()).kill_on_drop(true);
    command
        .spawn()
        .map_err(|error| Error::of("starting the process that delays packets", error))
}

/// Removes a chain; how many packets its rules have met.
async fn unchain(way: &Way, effect: Effect, number: u64) -> Result<u64, Error> {
    let (table, hook) = table(effect);
    let iptables = format!("iptables -w -t {table}");
    run(&mut way.command(&format!("{iptables} -D {hook} -j F{number}"))).await?;
    let listed = run(&mut way.command(&format!("{iptables} -nvxL F{number}"))).await?;
    run(&mut way.command(&format!("{iptables} -F F{number}"))).await?;
    run(&mut way.command(&format!("{iptables} -X F{number}"))).await?;
    Ok(packets(&listed))
}

/// Lets a device be as fast as it is; how often a packet had to wait.
async fn unslow(way: &Way, device: &str) -> Result<u64, Error> {
    let shown = output(&mut way.command(&format!("tc -s qdisc show dev {device}"))).await?;
    if !shown.status.success() {
        // It went with the container that it belonged to.
        return Ok(0);
    }
    run(&mut way.command(&format!("tc qdisc del dev {device} root"))).await?;
    Ok(overlimits(&String::from_utf8_lossy(&shown.stdout)))
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

    /// Nodes with one device to each other and one to the clients.
    fn rules() -> Rules {
        let place = |node| Place {
            way: None,
            to_nodes: Face::new(&format!("10.0.1.{node}"), "eth1"),
            to_clients: Face::new(&format!("10.0.0.{node}"), "eth0"),
        };
        let clients = Face::new("10.0.0.254", "bridge");
        Rules::new((0..3).map(place).collect(), clients)
    }

    #[test]
    fn a_rule_names_the_address_that_the_other_end_sees() {
        let links = Link::both(End::Node(1), End::Node(2));
        let lines = rules().chain(Effect::Drop, 7, &links[1..]);
        let expected = "iptables -w -t filter -A F7 -s 10.0.1.2 -j DROP";
        assert_eq!(lines[1], expected);
        let links = Link::both(End::Node(1), End::Clients);
        let lines = rules().chain(Effect::Drop, 7, &links[..1]);
        assert!(lines[1].contains("-s 10.0.0.1 "), "{lines:?}");
        let lines = rules().chain(Effect::Duplicate, 7, &links[1..]);
        assert!(lines[1].contains("-d 10.0.0.1 "), "{lines:?}");
    }

    #[test]
    fn a_slow_link_is_slow_where_its_packets_leave() {
        let devices = |a, b| {
            let rules = rules();
            let devices = rules.devices(&Link::both(a, b)[..1]);
            devices.into_iter().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(devices(End::Node(0), End::Node(1)), ["eth1"]);
        assert_eq!(devices(End::Node(0), End::Clients), ["eth0"]);
        assert_eq!(devices(End::Clients, End::Node(0)), ["bridge"]);
    }

    #[test]
    fn packets_of_all_rules_are_counted() {
        let listed = "Chain F1 (1 references)\n    pkts      bytes target prot\n      12     720 DROP 0\n       3     100 DROP 0\n";
        assert_eq!(packets(listed), 15);
    }

    #[test]
    fn what_a_shaper_did_is_read() {
        let shown =
            "qdisc tbf 8001: root\n Sent 10 bytes 1 pkt (dropped 0, overlimits 42 requeues 0)\n";
        assert_eq!(overlimits(shown), 42);
        assert_eq!(overlimits(""), 0);
    }
}
