//! Runs the golden scripts in `tests/scripts/desk`. `UPDATE_GOLDENFILES=1` writes them anew; read
//! the difference before you keep it.
//!
//! Every script begins with a desk of a cluster node `me:1` that is active. Times are seconds.
//!
//! - `desk [single] [key_waiters=N] [waiters=N] [acquires=N] [keys=N]`: starts over with one that is not
//!   active and has these limits
//! - `leader own|unknown|ADDRESS`, `activate`, `revoke [ACTIVITY]`, `stop`
//! - `open SESSION..`, `ended SESSION [last=REASON]`, `close SESSION..`
//! - `acquire SESSION KEY [wait=S] [lease=S] [owner=N]`, `release SESSION KEY token=N`
//! - `undelivered KEY token=N`
//! - `take [max=N]`: a batch goes into the log; `apply`: the oldest is applied; `commit`: both,
//!   until nothing is left; `lose N`: the newest ones never commit
//! - `at T`: time moves on, without a word to the desk; `tick T`: with one
//! - `foreign KEY lease=S`: another leader grants a lock (`foreign stamp=end`: moves the table to
//!   the last stamp there is)
//! - `counts`, `wakeup`

use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;

use goldenscript::{ArgumentConsumer, Context, Runner};
use raft::Activity;
use raft::lock::{Batch, Command, STAMP_MAX};
use wire::{Acquire, Key, Lease, Owner, Reason, Release, Reply, Token, Wait};

use super::world::{ROOMY, World};
use crate::desk::{Effect, Event, Leadership, Limits, SessionId};

type Outcome<T> = Result<T, Box<dyn Error>>;

const SECOND: u64 = 1_000_000_000;

struct Script(World);

impl Script {
    fn new() -> Self {
        let mut world = World::new(Some("me:1"), ROOMY, 65_536);
        world.leader(Leadership::Own);
        world.activate();
        Self(world)
    }

    fn start_over(&mut self, args: &mut ArgumentConsumer<'_>) -> Outcome<()> {
        let mut limit = |name, default| -> Outcome<usize> {
            Ok(args.take_key(name).map_or(Ok(default), str::parse)?)
        };
        let limits = Limits {
            waiters_per_key_max: limit("key_waiters", ROOMY.waiters_per_key_max)?,
            waiters_max: limit("waiters", ROOMY.waiters_max)?,
            acquires_in_flight_max: limit("acquires", ROOMY.acquires_in_flight_max)?,
        };
        let active_keys_max = limit("keys", 65_536)?;
        let own = match args.next_pos() {
            Some("single") => None,
            _ => Some("me:1"),
        };
        self.0 = World::new(own, limits, u32::try_from(active_keys_max)?);
        Ok(())
    }

    /// The event that a command stands for, if it is one.
    fn event(&self, name: &str, args: &mut ArgumentConsumer<'_>) -> Outcome<Option<Event>> {
        Ok(Some(match name {
            "acquire" => Event::Acquire {
                session: session(args)?,
                arrived: self.0.now,
                acquire: Acquire {
                    key: key(args)?,
                    wait: Wait(number(args, "wait", 0)?),
                    lease: Lease::from_seconds(number(args, "lease", 10)?)?,
                    owner: Owner(number(args, "owner", 0)?),
                },
            },
            "release" => Event::Release {
                session: session(args)?,
                release: Release {
                    key: key(args)?,
                    token: token(args)?,
                },
            },
            "ended" => Event::InputEnded {
                session: session(args)?,
                last: args.take_key("last").map(reason).transpose()?,
            },
            "undelivered" => Event::Undelivered {
                key: key(args)?,
                token: token(args)?,
            },
            "leader" => Event::Leader(match positional(args)? {
                "own" => Leadership::Own,
                "unknown" => Leadership::Unknown,
                address => Leadership::Other(address.to_owned()),
            }),
            "stop" => Event::Stopping,
            _ => return Ok(None),
        }))
    }

    /// One event for each session that is named.
    fn each(
        &mut self,
        args: &mut ArgumentConsumer<'_>,
        event: impl Fn(SessionId) -> Event,
    ) -> Outcome<String> {
        let mut output = String::new();
        while let Some(name) = args.next_pos() {
            let effects = self.0.handle(event(parse_session(name)?));
            output.push_str(&describe(&effects));
        }
        Ok(output)
    }

    fn take(&mut self, commands_max: usize) -> Option<String> {
        let batch = self.0.take(commands_max)?;
        Some(describe_batch(&batch))
    }

    fn apply(&mut self) -> Option<String> {
        let (batch, _, effects) = self.0.apply()?;
        let effects = describe(&effects);
        Some(format!("applied {}\n{effects}", batch.sequence))
    }

    fn commit(&mut self) -> String {
        let mut output = String::new();
        loop {
            let taken = self.take(usize::MAX);
            let applied = self.apply();
            if taken.is_none() && applied.is_none() {
                return output;
            }
            output.extend(taken);
            output.extend(applied);
        }
    }

    fn foreign(&mut self, args: &mut ArgumentConsumer<'_>) -> Outcome<String> {
        if args.take_key("stamp").is_some() {
            self.0.apply_foreign(STAMP_MAX, Vec::new());
            return Ok(String::new());
        }
        let acquire = Command::Acquire {
            key: key(args)?,
            lease: Lease::from_seconds(number(args, "lease", 10)?)?,
        };
        let applied = self.0.apply_foreign(self.0.table.now(), vec![acquire]);
        Ok(format!("{:?}\n", applied.outcomes))
    }

    fn counts(&self) -> String {
        let counts = self.0.desk.counts();
        format!(
            "sessions={} waiters={} acquires_in_flight={} releases_in_flight={} active_keys={} \
             pending={} batches_in_flight={}\n",
            counts.sessions,
            counts.waiters,
            counts.acquires_in_flight,
            counts.releases_in_flight,
            counts.active_keys,
            counts.pending,
            counts.batches_in_flight,
        )
    }
}

impl Runner for Script {
    type Command = goldenscript::Command;

    fn run(&mut self, command: &goldenscript::Command, _: &Context) -> Outcome<String> {
        let mut args = command.consume_args();
        let event = self.event(&command.name, &mut args)?;
        let output = match command.name.as_str() {
            _ if event.is_some() => describe(&self.0.handle(event.expect("just looked"))),
            "desk" => {
                self.start_over(&mut args)?;
                String::new()
            }
            "activate" => describe(&self.0.activate()),
            "revoke" => describe(&match args.next_pos() {
                Some(activity) => self.0.handle(Event::Revoked(Activity(activity.parse()?))),
                None => self.0.revoke(),
            }),
            "open" => self.each(&mut args, Event::Opened)?,
            "close" => self.each(&mut args, Event::Closed)?,
            "take" => {
                let commands_max = number(&mut args, "max", usize::MAX)?;
                self.take(commands_max).unwrap_or("nothing\n".to_owned())
            }
            "apply" => self.apply().ok_or("the log is empty")?,
            "commit" => self.commit(),
            "lose" => {
                self.0.lose(positional(&mut args)?.parse()?);
                String::new()
            }
            "at" => {
                self.0.now = parse_time(positional(&mut args)?)?;
                String::new()
            }
            "tick" => {
                self.0.now = parse_time(positional(&mut args)?)?;
                describe(&self.0.handle(Event::Tick))
            }
            "foreign" => self.foreign(&mut args)?,
            "counts" => self.counts(),
            "wakeup" => {
                let wakeup = self.0.desk.wakeup();
                wakeup.map_or("none".to_owned(), time)
            }
            unknown => return Err(format!("no such command: {unknown}").into()),
        };
        args.reject_next()?;
        Ok(output)
    }
}

/// What a batch asks, in one line.
fn describe_batch(batch: &Batch) -> String {
    let mut output = format!("batch {} at {}:", batch.sequence, time(batch.stamp.0));
    if batch.commands.is_empty() {
        output.push_str(" nothing");
    }
    for (index, command) in batch.commands.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        match command {
            Command::Acquire { key, lease } => {
                write!(output, "{comma} acquire {key} lease={}", lease.seconds())
            }
            Command::Release { key, token, next } => {
                let next = next.map_or(String::new(), |lease| format!(" next={}", lease.seconds()));
                write!(output, "{comma} release {key} token={token}{next}")
            }
        }
        .expect("a string takes it");
    }
    output.push('\n');
    output
}

/// Effects, a line each; equal ones in a row are counted.
fn describe(effects: &[Effect]) -> String {
    let mut output = String::new();
    for equal in effects.chunk_by(|one, other| one == other) {
        output.push_str(&describe_effect(&equal[0]));
        if equal.len() > 1 {
            write!(output, " ({} times)", equal.len()).expect("a string takes it");
        }
        output.push('\n');
    }
    output
}

fn describe_effect(effect: &Effect) -> String {
    match effect {
        Effect::Reply(SessionId(id), reply) => format!("s{id}: {}", describe_reply(reply)),
        Effect::Finish(SessionId(id), None) => format!("s{id}: finish"),
        Effect::Finish(SessionId(id), Some(last)) => {
            format!("s{id}: finish after {}", describe_reply(last))
        }
        Effect::Close(SessionId(id)) => format!("s{id}: close"),
        Effect::ReleaseSettled => "release settled".to_owned(),
    }
}

fn describe_reply(reply: &Reply) -> String {
    let owned = |what: &str, owner: &Owner, key: &Key| match owner {
        Owner(0) => format!("{what} {key}"),
        Owner(owner) => format!("{what} {key} owner={owner}"),
    };
    match reply {
        Reply::Granted { token, owner, key } => {
            format!("{} token={token}", owned("granted", owner, key))
        }
        Reply::TimedOut { owner, key } => owned("timed out", owner, key),
        Reply::Busy { owner, key } => owned("busy", owner, key),
        Reply::Released { token, key } => format!("released {key} token={token}"),
        Reply::NotCurrent { token, key } => format!("not current {key} token={token}"),
        Reply::Moved(address) => format!("moved {address}"),
        Reply::Leader(address) => format!("leader {address}"),
        Reply::Error(reason) => format!("error {}", name_of(*reason)),
    }
}

fn name_of(reason: Reason) -> &'static str {
    match reason {
        Reason::BadOp => "bad_op",
        Reason::NoLeader => "no_leader",
        Reason::NotActive => "not_active",
        other => unreachable!("no script says {other:?}"),
    }
}

fn reason(text: &str) -> Outcome<Reason> {
    match text {
        "bad_op" => Ok(Reason::BadOp),
        other => Err(format!("no such reason: {other}").into()),
    }
}

fn positional<'a>(args: &mut ArgumentConsumer<'a>) -> Outcome<&'a str> {
    args.next_pos()
        .ok_or_else(|| "an argument is missing".into())
}

fn session(args: &mut ArgumentConsumer<'_>) -> Outcome<SessionId> {
    parse_session(positional(args)?)
}

fn parse_session(name: &str) -> Outcome<SessionId> {
    let number = name.strip_prefix('s').ok_or("sessions are named s1, s2")?;
    Ok(SessionId(number.parse()?))
}

fn key(args: &mut ArgumentConsumer<'_>) -> Outcome<Key> {
    Ok(positional(args)?.parse()?)
}

fn token(args: &mut ArgumentConsumer<'_>) -> Outcome<Token> {
    let text = args.take_key("token").ok_or("a token is missing")?;
    Ok(Token(text.parse()?))
}

fn number<T>(args: &mut ArgumentConsumer<'_>, name: &str, default: T) -> Outcome<T>
where
    T: std::str::FromStr<Err: Error + 'static>,
{
    match args.take_key(name) {
        Some(text) => Ok(text.parse()?),
        None => Ok(default),
    }
}

fn time(nanos: u64) -> String {
    let fraction = format!("{:09}", nanos % SECOND);
    let fraction = fraction.trim_end_matches('0');
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{}{point}{fraction}", nanos / SECOND)
}

fn parse_time(text: &str) -> Outcome<u64> {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let nanos: u64 = format!("{fraction:0<9}").parse()?;
    Ok(seconds.parse::<u64>()? * SECOND + nanos)
}

#[test]
fn every_script_plays_as_written() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts/desk");
    let mut paths: Vec<_> = std::fs::read_dir(&directory)
        .expect("the scripts are there")
        .map(|file| file.expect("the directory can be read").path())
        .collect();
    paths.sort();
    assert!(!paths.is_empty(), "no scripts in {}", directory.display());
    for path in paths {
        println!("{}", path.display());
        goldenscript::run(&mut Script::new(), &path).expect("the script can be run");
    }
}
