//! The compose project of one run: its files, and how it is made and removed.
//!
//! The files are in the folder `compose` of the run's own: the compose file as it is, the secrets,
//! and `run.json`, which says what is different in a run. That one is laid over the first by
//! Compose; it is written as JSON, which is YAML as well.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Map, Value, json};
use tokio::process::Command;

use super::{
    CLIENTS_BRIDGE, CLIENTS_NET, Containers, NODES, PEERS_BRIDGE, PEERS_NET, call, docker, image,
    peer_ip,
};
use crate::cluster::{ADMIN_TOKEN, AUTH_TOKEN, CLUSTER_SECRET, Settings};
use crate::error::{Error, words};
use crate::pki::Identity;

/// The compose file, and what its copy and the one over it are called.
const COMPOSE: &str = include_str!("../../../../deploy/compose.yaml");
const COMPOSE_FILE: &str = "compose.yaml";
const RUN_FILE: &str = "run.json";

/// Where a container finds its certificate and key.
const CERTIFICATE: &str = "/run/tls/certificate.pem";
const KEY: &str = "/run/tls/key.pem";

/// The label by which Compose knows what is whose.
const LABEL: &str = "com.docker.compose.project";

/// How often what is left is looked for and removed: what was being made when the run died can
/// appear after it.
const REMOVALS_MAX: usize = 5;

/// Files that all may read: a container's user is nobody here.
const READABLE: u32 = 0o444;

/// Compose 2 is a part of the engine's command line, Compose 1 is a program of its own.
pub(super) async fn compose() -> Result<&'static str, Error> {
    let mut why = String::new();
    for command in ["docker compose", "docker-compose"] {
        match call(&mut words(&format!("{command} version"))).await {
            Ok(_) => return Ok(command),
            Err(error) => why = error.to_string(),
        }
    }
    let wanted = "--hosts containers needs Compose (`docker compose` or `docker-compose` 1.29)";
    Err(Error::of(wanted, why))
}

/// A project.
pub(super) struct Project {
    /// Its name, which everything of it bears.
    name: String,
    image: String,
    dir: PathBuf,
}

impl Project {
    /// The project of the run in the folder `dir`.
    pub(super) fn of(dir: &Path) -> Result<Self, Error> {
        let dir = std::path::absolute(dir).map_err(|error| Error::of("finding a run", error))?;
        let run = dir.file_name().unwrap_or_default().to_string_lossy();
        Ok(Self {
            name: format!("ticketing-{run}"),
            image: format!("ticketing:{run}"),
            dir: dir.join("compose"),
        })
    }

    /// Its image.
    pub(super) fn image(&self) -> &str {
        &self.image
    }

    /// Where its files are.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The volume of a node.
    pub(super) fn volume(&self, node: usize) -> String {
        format!("{}_data-{}", self.name, node + 1)
    }

    /// Writes its files.
    pub(super) fn write(&self, settings: &Settings) -> Result<(), Error> {
        let failed = |error| Error::of("writing the compose project", error);
        let secrets = self.dir.join("secrets");
        fs::create_dir_all(&secrets).map_err(failed)?;
        fs::write(self.dir.join(COMPOSE_FILE), COMPOSE).map_err(failed)?;
        let over = over(settings).to_string();
        fs::write(self.dir.join(RUN_FILE), over).map_err(failed)?;
        for (name, secret) in [
            ("auth-token", AUTH_TOKEN),
            ("cluster-secret", CLUSTER_SECRET),
            ("admin-token", ADMIN_TOKEN),
        ] {
            fs::write(secrets.join(name), secret).map_err(failed)?;
            readable(&secrets.join(name)).map_err(failed)?;
        }
        if let Some(identity) = &settings.identity {
            readable(&identity.certificate).map_err(failed)?;
            readable(&identity.key).map_err(failed)?;
        }
        Ok(())
    }

    /// Makes networks, volumes and containers, and starts them: Compose 1 gives a container its
    /// second network only then.
    pub(super) async fn up(&self, compose: &str) -> Result<(), Error> {
        let files = format!("--file {COMPOSE_FILE} --file {RUN_FILE}");
        let project = format!("--project-name {} {files}", self.name);
        // It must not go on when nobody waits for it any more.
        let mut command = words(&format!(
            "setpriv --pdeathsig KILL -- {compose} {project} up --detach --no-build"
        ));
        self.surround(&mut command);
        call(&mut command).await?;
        Ok(())
    }

    /// The id of a node's container.
    pub(super) async fn container(&self, node: usize) -> Result<Option<String>, Error> {
        let label = format!("label=com.docker.compose.service={}", service(node));
        let kind = format!("ps --all --no-trunc --filter {label}");
        let found = self.list(&kind).await?;
        Ok(found.lines().next().map(str::to_owned))
    }

    /// Writes what a node has said in all its lives to `file`.
    pub(super) async fn save_log(&self, node: usize, file: &Path) -> Result<(), Error> {
        let Some(id) = self.container(node).await? else {
            return Ok(());
        };
        let failed = |error| Error::of("saving a log", error);
        let out = File::create(file).map_err(failed)?;
        let both = out.try_clone().map_err(failed)?;
        let mut command = words(&format!("docker logs {id}"));
        let saved = command.stdout(out).stderr(both).status().await;
        match saved.map_err(failed)? {
            status if status.success() => Ok(()),
            status => Err(Error::of("saving a log", status)),
        }
    }

    /// The same for all nodes, as far as possible.
    pub(super) async fn save_logs(&self, dir: &Path) {
        for node in 0..NODES {
            let file = dir.join(format!("node-{}.log", node + 1));
            // Not worth less cleaning up.
            let _ = self.save_log(node, &file).await;
        }
    }

    /// Removes all there is of it. That is found by its label, so no file and no Compose is needed.
    pub(super) async fn remove(&self) -> Result<(), Error> {
        let mut left = Vec::new();
        for _ in 0..REMOVALS_MAX {
            left.clear();
            for (kind, remove) in [
                ("ps --all", "rm --force --volumes"),
                ("network ls", "network rm"),
                ("volume ls", "volume rm --force"),
            ] {
                let found = self.list(kind).await?;
                let found: Vec<&str> = found.split_whitespace().collect();
                if !found.is_empty() {
                    // What could not be removed is found once more.
                    let _ = docker(&format!("{remove} {}", found.join(" "))).await;
                    left.push(format!("{kind}: {}", found.join(" ")));
                }
            }
            if left.is_empty() {
                return image::remove(&self.image).await;
            }
        }
        let (name, left) = (&self.name, left.join("; "));
        Err(Error(format!(
            "of the project {name} something is left: {left}"
        )))
    }

    /// What there is of a kind, a line each.
    async fn list(&self, kind: &str) -> Result<String, Error> {
        docker(&format!(
            "{kind} --quiet --filter label={LABEL}={}",
            self.name
        ))
        .await
    }

    /// The variables that the compose file asks for; what is meant for another cluster is kept out.
    fn surround(&self, command: &mut Command) {
        command
            .current_dir(&self.dir)
            .env("TICKETING_IMAGE", &self.image)
            .env("TICKETING_PUBLISH", "127.0.0.1")
            .env("CLUSTER_BOOTSTRAP", "auto")
            .stdin(Stdio::null());
        for node in 0..NODES {
            let variable = format!("TICKETING_HOST_{}", node + 1);
            command.env(variable, Containers::ip(node));
        }
    }
}

/// A node's name in the compose file.
fn service(node: usize) -> String {
    format!("ticketing-{}", node + 1)
}

fn readable(file: &Path) -> std::io::Result<()> {
    fs::set_permissions(file, Permissions::from_mode(READABLE))
}

/// What is different in a run.
fn over(settings: &Settings) -> Value {
    let services: Map<String, Value> = (0..NODES)
        .map(|node| {
            let over = json!({
                // A node comes back when the run says so.
                "restart": "no",
                "environment": environment(settings),
                "volumes": settings.identity.as_ref().map_or_else(Vec::new, mounts),
                // What is at the same place after every restart can be named in a rule.
                "networks": {
                    "clients": { "ipv4_address": Containers::ip(node) },
                    "peers": { "ipv4_address": peer_ip(node) },
                },
            });
            (service(node), over)
        })
        .collect();
    let network = |net: &str, bridge: &str| {
        json!({
            "driver_opts": { "com.docker.network.bridge.name": bridge },
            "ipam": { "config": [{ "subnet": format!("{net}.0/24") }] },
        })
    };
    json!({
        "services": services,
        "networks": {
            "clients": network(CLIENTS_NET, CLIENTS_BRIDGE),
            "peers": network(PEERS_NET, PEERS_BRIDGE),
        },
    })
}

fn environment(settings: &Settings) -> Map<String, Value> {
    let mut environment: Map<String, Value> = settings
        .variables()
        .into_iter()
        .map(|(name, value)| (name.to_owned(), literal(&value).into()))
        .collect();
    if settings.identity.is_some() {
        environment.insert("TLS_CERT".into(), CERTIFICATE.into());
        environment.insert("TLS_KEY".into(), KEY.into());
    }
    environment
}

/// The certificate and its key, for a container to read.
fn mounts(identity: &Identity) -> Vec<String> {
    let mount = |file: &Path, at: &str| {
        let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
        format!("{}:{at}:ro", literal(&file.display().to_string()))
    };
    vec![
        mount(&identity.certificate, CERTIFICATE),
        mount(&identity.key, KEY),
    ]
}

/// A text in which Compose finds no variable.
fn literal(text: &str) -> String {
    text.replace('$', "$$")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings {
            server: PathBuf::from("ticketing"),
            snapshot_entries: 100,
            identity: None,
            shifted_clocks: false,
            bug: None,
        }
    }

    #[test]
    fn a_node_keeps_its_addresses_and_is_restarted_by_nobody_else() {
        let over = over(&settings());
        let node = &over["services"]["ticketing-2"];
        assert_eq!(node["restart"], "no");
        assert_eq!(node["environment"]["SNAPSHOT_ENTRIES"], "100");
        assert_eq!(node["environment"]["TICKETING_PLANTED_BUG"], Value::Null);
        assert_eq!(node["volumes"], json!([]));
        let networks = &node["networks"];
        assert_eq!(networks["clients"]["ipv4_address"], "10.78.0.12");
        assert_eq!(networks["peers"]["ipv4_address"], "10.78.1.12");
        let subnet = &over["networks"]["peers"]["ipam"]["config"][0]["subnet"];
        assert_eq!(subnet, "10.78.1.0/24");
        assert!(over["services"]["ticketing-4"].is_null());
    }

    #[test]
    fn a_planted_bug_and_a_certificate_reach_the_container() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("a$b");
        fs::create_dir(&dir).unwrap();
        let identity = Identity::create(&dir, vec!["10.78.0.11".into()]).unwrap();
        let over = over(&Settings {
            identity: Some(identity),
            bug: Some("wall-clock".into()),
            ..settings()
        });
        let node = &over["services"]["ticketing-1"];
        assert_eq!(node["environment"]["TICKETING_PLANTED_BUG"], "wall-clock");
        assert_eq!(node["environment"]["TLS_KEY"], KEY);
        let mount = node["volumes"][1].as_str().unwrap();
        assert!(
            mount.ends_with("/a$$b/key.pem:/run/tls/key.pem:ro") && mount.starts_with('/'),
            "{mount}"
        );
    }

    #[test]
    fn the_compose_file_has_the_nodes_that_are_spoken_of() {
        for node in 0..NODES {
            assert!(COMPOSE.contains(&format!("\n  {}:\n", service(node))));
            let admin = Containers::admin(node);
            let port = admin.rsplit(':').next().unwrap();
            assert!(COMPOSE.contains(&format!("ADMIN_BIND: 0.0.0.0:{port}")));
        }
        assert!(!COMPOSE.contains(&service(NODES)));
    }

    #[test]
    fn a_project_is_called_as_its_run_is() {
        let project = Project::of(Path::new("target/jepsen/run-7")).unwrap();
        assert_eq!(project.volume(1), "ticketing-run-7_data-2");
        assert_eq!(project.image(), "ticketing:run-7");
        assert!(project.dir().is_absolute());
    }
}
