//! When the harness itself fails: the run is invalid then, neither a pass nor a violation.

use std::fmt;
use std::process::Output;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

/// How long a helper command (`ip`, `iptables`, `mount`) may take.
const COMMAND_TIME_MAX: Duration = Duration::from_secs(30);

/// Something that the harness needed did not work.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Error(pub(crate) String);

impl Error {
    /// `what` failed, and why.
    pub(crate) fn of(what: impl fmt::Display, why: impl fmt::Display) -> Self {
        Self(format!("{what}: {why}"))
    }
}

/// Runs a helper command to its end; its output, if it succeeded.
pub(crate) async fn run(command: &mut Command) -> Result<String, Error> {
    run_within(command, COMMAND_TIME_MAX).await
}

/// The same for a command that may take longer than helpers do.
pub(crate) async fn run_within(command: &mut Command, time: Duration) -> Result<String, Error> {
    let output = output_within(command, time).await?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(said);
    }
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    let what = format!("{:?}", command.as_std());
    Err(Error::of(what, format!("{} {said}{why}", output.status)))
}

/// Runs a helper command to its end, whatever that is.
pub(crate) async fn output(command: &mut Command) -> Result<Output, Error> {
    output_within(command, COMMAND_TIME_MAX).await
}

async fn output_within(command: &mut Command, time: Duration) -> Result<Output, Error> {
    let what = format!("{:?}", command.as_std());
    let ended = timeout(time, command.kill_on_drop(true).output()).await;
    match ended {
        Ok(Ok(output)) => Ok(output),
        Ok(Err(error)) => Err(Error::of(what, error)),
        Err(_) => Err(Error::of(what, "it takes too long")),
    }
}

/// A command line split at spaces.
pub(crate) fn words(line: &str) -> Command {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words);
    command
}
