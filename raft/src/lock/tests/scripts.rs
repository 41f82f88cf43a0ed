//! Runs the golden scripts in `testscripts/lock`. `UPDATE_GOLDENFILES=1` writes them anew; read the
//! difference before you keep it.
//!
//! - `table [max=N] [tokens=N] [now=T]`: starts over with a table that has a cap (or none), has granted so
//!   many tokens, and whose cluster time is `T`
//! - `acquire KEY lease=S`, `release KEY token=N [next=S]`: one batch of one command
//! - `pass KEY token=N next=S times=N`: one batch of so many hand-overs; shows the last
//! - `begin`, commands, `apply`: one batch of several commands
//! - `stamp T`: an empty batch
//! - `cap N`: what an activation does
//! - `held`, `state`: what the table holds
//! - `snapshot`: the table is replaced by what its snapshot decodes to
//!
//! Every batch takes `at=T`; without it, it has the stamp of the batch before. Times are
//! cluster time in seconds, or `max`, `beyond` for the last stamp and the one after it.

use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;

use goldenscript::{ArgumentConsumer, Context, Runner};
use wire::{Key, Lease, Token};

use crate::lock::{
    Applied, Attempt, Batch, Command, Grant, Image, LockTable, Outcome, STAMP_MAX, Stamp,
};

/// The table under test and the batch that is being written.
#[derive(Default)]
struct Script {
    table: LockTable,
    stamp: Stamp,
    /// The commands since `begin`.
    batch: Option<Vec<Command>>,
    sequence: u64,
}

impl Runner for Script {
    type Command = goldenscript::Command;

    fn start_script(&mut self) -> Result<(), Box<dyn Error>> {
        self.table = LockTable::new(65_536);
        Ok(())
    }

    fn run(
        &mut self,
        command: &goldenscript::Command,
        _: &Context,
    ) -> Result<String, Box<dyn Error>> {
        let mut args = command.consume_args();
        if let Some(at) = args.take_key("at") {
            self.stamp = parse_stamp(at)?;
        }
        let output = match command.name.as_str() {
            "table" => self.start_over(&mut args)?,
            "cap" => {
                self.table.fix_active_keys_max(next(&mut args)?.parse()?);
                format!("cap {:?}\n", self.table.active_keys_max())
            }
            "acquire" => {
                let key = next(&mut args)?.parse()?;
                let lease = lease(&mut args, "lease")?.ok_or("a lease is missing")?;
                self.add(Command::Acquire { key, lease })
            }
            "release" => {
                let key = next(&mut args)?.parse()?;
                let token = Token(
                    args.take_key("token")
                        .ok_or("a token is missing")?
                        .parse()?,
                );
                let next = lease(&mut args, "next")?;
                self.add(Command::Release { key, token, next })
            }
            "pass" => self.pass(&mut args)?,
            "begin" => {
                self.batch = Some(Vec::new());
                String::new()
            }
            "apply" => {
                let commands = self.batch.take().ok_or("nothing was begun")?;
                self.apply(commands)
            }
            "stamp" => {
                self.stamp = parse_stamp(next(&mut args)?)?;
                self.apply(Vec::new())
            }
            "held" => self.held(),
            "state" => self.state(),
            "snapshot" => self.snapshot()?,
            unknown => return Err(format!("no such command: {unknown}").into()),
        };
        args.reject_next()?;
        Ok(output)
    }
}

impl Script {
    fn start_over(&mut self, args: &mut ArgumentConsumer<'_>) -> Result<String, Box<dyn Error>> {
        let max = args.take_key("max").map(str::parse).transpose()?;
        let tokens_granted = args.take_key("tokens").unwrap_or("0").parse()?;
        let now = parse_stamp(args.take_key("now").unwrap_or("0"))?;
        self.table = LockTable {
            active_keys_max: max,
            tokens_granted,
            now,
            ..Default::default()
        };
        Ok(String::new())
    }

    /// Adds to the batch that was begun, or makes a batch of this command alone.
    fn add(&mut self, command: Command) -> String {
        match &mut self.batch {
            Some(commands) => {
                commands.push(command);
                String::new()
            }
            None => self.apply(vec![command]),
        }
    }

    fn pass(&mut self, args: &mut ArgumentConsumer<'_>) -> Result<String, Box<dyn Error>> {
        let key: Key = next(args)?.parse()?;
        let token: u64 = args
            .take_key("token")
            .ok_or("a token is missing")?
            .parse()?;
        let times: u64 = args.take_key("times").ok_or("times are missing")?.parse()?;
        let next = lease(args, "next")?;
        let release = |token| Command::Release {
            key: key.clone(),
            token: Token(token),
            next,
        };
        let output = self.apply((token..token + times).map(release).collect());
        Ok(output.lines().last().unwrap_or_default().to_owned())
    }

    fn apply(&mut self, commands: Vec<Command>) -> String {
        self.sequence += 1;
        let batch = Batch {
            origin: 1,
            sequence: self.sequence,
            stamp: self.stamp,
            commands,
        };
        let applied = self.table.apply(&batch);
        assert_eq!(
            (applied.origin, applied.sequence),
            (batch.origin, batch.sequence)
        );
        describe(&batch, &applied)
    }

    fn held(&self) -> String {
        let mut output = String::new();
        for lock in self.table.held() {
            writeln!(output, "{} {}", lock.key, grant(lock.grant)).expect("a string takes it");
        }
        output
    }

    fn state(&self) -> String {
        format!(
            "now={} tokens_granted={} active_keys={} next_deadline={} heap={}\n",
            time(self.table.now()),
            self.table.tokens_granted(),
            self.table.active_keys(),
            self.table.next_deadline().map_or("none".to_owned(), time),
            self.table.deadlines.len(),
        )
    }

    fn snapshot(&mut self) -> Result<String, Box<dyn Error>> {
        let image: Image = self.table.image();
        let decoded = LockTable::decode(&image.encode())?;
        assert_eq!(decoded.image(), image);
        assert_eq!(decoded.state_hash(), self.table.state_hash());
        self.table = decoded;
        Ok("the decoded table is the same\n".to_owned())
    }
}

/// What a batch did, a line for each effect.
fn describe(batch: &Batch, applied: &Applied) -> String {
    let mut output = String::new();
    let mut line = |text: String| {
        output.push_str(&text);
        output.push('\n');
    };
    if batch.commands.is_empty() {
        line(format!("now {}", time(applied.now)));
    }
    for lock in &applied.ended {
        line(format!("ended {} {}", lock.key, grant(lock.grant)));
    }
    assert_eq!(batch.commands.len(), applied.outcomes.len());
    for (command, outcome) in batch.commands.iter().zip(&applied.outcomes) {
        let (Command::Acquire { key, .. } | Command::Release { key, .. }) = command;
        match outcome {
            Outcome::Acquired(result) => line(format!("{key}: {}", attempt(result))),
            Outcome::Released { next } => line(format!("{key}: released{}", then(next))),
            Outcome::NotCurrent { next } => line(format!("{key}: not current{}", then(next))),
        }
    }
    output
}

fn then(next: &Option<Attempt>) -> String {
    next.as_ref().map_or(String::new(), |result| {
        format!(", next {}", attempt(result))
    })
}

fn attempt(result: &Attempt) -> String {
    match result {
        Attempt::Granted(granted) => format!("granted {}", grant(*granted)),
        Attempt::Held(held) => format!("held under {}", grant(*held)),
        Attempt::KeysFull => "keys full".to_owned(),
        Attempt::TokensExhausted => "tokens exhausted".to_owned(),
    }
}

fn grant(grant: Grant) -> String {
    format!("token={} deadline={}", grant.token, time(grant.deadline))
}

const SECOND: u64 = 1_000_000_000;

fn time(Stamp(nanos): Stamp) -> String {
    let fraction = format!("{:09}", nanos % SECOND);
    let fraction = fraction.trim_end_matches('0');
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{}{point}{fraction}", nanos / SECOND)
}

fn parse_stamp(text: &str) -> Result<Stamp, Box<dyn Error>> {
    match text {
        "max" => return Ok(STAMP_MAX),
        "beyond" => return Ok(Stamp(STAMP_MAX.0 + 1)),
        _ => {}
    }
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let nanos: u64 = format!("{fraction:0<9}").parse()?;
    Ok(Stamp(seconds.parse::<u64>()? * SECOND + nanos))
}

fn next<'a>(args: &mut ArgumentConsumer<'a>) -> Result<&'a str, Box<dyn Error>> {
    args.next_pos()
        .ok_or_else(|| "an argument is missing".into())
}

fn lease(args: &mut ArgumentConsumer<'_>, name: &str) -> Result<Option<Lease>, Box<dyn Error>> {
    let Some(text) = args.take_key(name) else {
        return Ok(None);
    };
    Ok(Some(Lease::from_seconds(text.parse()?)?))
}

#[test]
fn every_script_plays_as_written() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("testscripts/lock");
    let mut paths: Vec<_> = std::fs::read_dir(&directory)
        .expect("the scripts are there")
        .map(|file| file.expect("the directory can be read").path())
        .collect();
    paths.sort();
    assert!(!paths.is_empty(), "no scripts in {}", directory.display());
    for path in paths {
        println!("{}", path.display());
        goldenscript::run(&mut Script::default(), &path).expect("the script can be run");
    }
}

#[test]
fn times_are_read_and_written_alike() {
    for text in ["0", "0.000000001", "10.5", "18446744073"] {
        assert_eq!(time(parse_stamp(text).unwrap()), text);
    }
}
