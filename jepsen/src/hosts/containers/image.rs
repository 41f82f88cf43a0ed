//! The image: all of what `deploy/Dockerfile` makes but for the binary, which is the one under
//! test.

use std::fs;
use std::path::Path;

use tokio::process::Command;

use super::{call, docker};
use crate::error::{Error, output, words};

/// The file that the image of the product is made by, and its target that has everything but the
/// binary.
const DOCKERFILE: &str = include_str!("../../../../deploy/Dockerfile");
const TARGET: &str = "runtime";

/// What that target is called here, as in `.ci/run`; it stays for the next run.
const RUNTIME: &str = "ticketing-runtime:local";

/// Names another base than [`BASES`], as for the compose file.
const BASE_VARIABLE: &str = "TICKETING_RUNTIME_BASE";

/// What the image may be built on: what `deploy/bases.sh` makes, or what the Dockerfile asks for
/// by itself. Nothing is fetched.
const BASES: [&str; 2] = ["ticketing-runtime-base:local", "debian:bookworm-slim"];

/// The base that is there.
pub(super) async fn base() -> Result<String, Error> {
    let bases = match std::env::var(BASE_VARIABLE) {
        Ok(base) if !base.is_empty() => vec![base],
        _ => BASES.map(str::to_owned).to_vec(),
    };
    for base in &bases {
        let found = output(&mut words(&format!("docker image inspect {base}"))).await?;
        if found.status.success() {
            return Ok(base.clone());
        }
    }
    Err(Error(format!(
        "--hosts containers builds an image on {}, which is not there: make it with \
         `deploy/bases.sh runtime`, or get it with `docker pull {}`",
        bases.join(" or "),
        BASES[1]
    )))
}

/// Builds the image `tag` around `server`; `dir` is for what the engine is given.
pub(super) async fn build(server: &Path, tag: &str, dir: &Path) -> Result<(), Error> {
    let failed = |error| Error::of("making an image", error);
    let (runtime, whole) = (dir.join("runtime"), dir.join("image"));
    for (context, steps) in [
        (&runtime, DOCKERFILE),
        (
            &whole,
            &format!("FROM {RUNTIME}\nCOPY ticketing /usr/local/bin/ticketing\n"),
        ),
    ] {
        fs::create_dir_all(context).map_err(failed)?;
        fs::write(context.join("Dockerfile"), steps).map_err(failed)?;
    }
    let mut strip = Command::new("objcopy");
    strip.arg("--strip-debug").arg(server);
    call(strip.arg(whole.join("ticketing"))).await?;

    let base = base().await?;
    let quiet = "build --quiet --tag";
    let arguments = format!("--build-arg RUNTIME_BASE={base} --target {TARGET}");
    let mut command = words(&format!("docker {quiet} {RUNTIME} {arguments}"));
    call(command.arg(&runtime)).await?;
    call(words(&format!("docker {quiet} {tag}")).arg(&whole)).await?;
    // The binary is large, and in the image now.
    fs::remove_dir_all(&whole).map_err(failed)
}

/// Removes an image, if it is there.
pub(super) async fn remove(tag: &str) -> Result<(), Error> {
    docker(&format!("image rm --force {tag}")).await?;
    Ok(())
}
