//! The guard: a process that removes a run's containers when the run has ended, whatever way.
//!
//! It does nothing but wait for the end of its standard input, which the kernel brings about when
//! the process is gone that started it, and then cleans up. It is in a process group of its own, so
//! that an interrupt from a terminal does not reach it.

use std::io;
use std::path::Path;
use std::process::Stdio;

use tokio::process::{Child, Command};
use tokio::runtime::Builder;

use super::project::Project;
use crate::error::Error;

/// A guard that waits.
pub(crate) struct Guard(Child);

impl Guard {
    /// Starts the guard of the run in `dir`.
    pub(crate) fn start(dir: &Path) -> Result<Self, Error> {
        let failed = |error| Error::of("starting the guard", error);
        let own = std::env::current_exe().map_err(failed)?;
        let mut command = Command::new(own);
        command
            .args(["guard", "--dir"])
            .arg(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .process_group(0);
        command.spawn().map(Self).map_err(failed)
    }

    /// The run has ended: waits until nothing is left of it.
    pub(crate) async fn finish(mut self) -> Result<(), Error> {
        drop(self.0.stdin.take());
        let ended = self.0.wait().await;
        match ended {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(Error::of("removing the containers", status)),
            Err(error) => Err(Error::of("removing the containers", error)),
        }
    }
}

/// What a guard does.
pub(crate) fn guard(dir: &Path) -> Result<(), Error> {
    let failed = |error| Error::of("guarding a run", error);
    // Nothing is ever said: this ends with the process that has the other end.
    io::copy(&mut io::stdin(), &mut io::sink()).map_err(failed)?;
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.map_err(failed)?.block_on(async {
        let project = Project::of(dir)?;
        project.save_logs(dir).await;
        project.remove().await
    })
}
