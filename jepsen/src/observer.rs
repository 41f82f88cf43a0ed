//! Looks at the cluster from outside, all the time: who leads, and what each node says of itself.
//!
//! The leader is who names itself in an `L`, which a node does only once it can serve. A node's
//! state comes from `/v1/status`.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use wire::{Decode, Reply, decode_reply};

use crate::cluster::ADMIN_TOKEN;
use crate::history::{NodeStatus, Recorder, What};
use crate::raw::connect;

/// How often each node is looked at.
const PERIOD: Duration = Duration::from_millis(100);

/// How many looks there are for one question about the state.
const LOOKS_PER_STATUS: u32 = 3;

/// How long a look may take.
const LOOK_TIME_MAX: Duration = Duration::from_millis(500);

/// How long a node may take to say who leads.
const PUSH_TIME_MAX: Duration = Duration::from_millis(100);

/// Longest answer of an admin endpoint that is read, in bytes.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// A node, as the observer knows it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) address: String,
    /// Its admin endpoint.
    pub(crate) admin: String,
}

/// Looks until it is dropped. Who leads now is in `leader`.
pub(crate) async fn observe(
    nodes: Vec<Seen>,
    tls: Option<Arc<rustls::ClientConfig>>,
    recorder: Arc<Recorder>,
    leader: watch::Sender<Option<String>>,
) {
    let mut look = 0;
    loop {
        let mut now = None;
        for node in &nodes {
            if names_itself(node, tls.as_ref()).await {
                now = Some(node.address.clone());
            }
        }
        let changed = leader.send_if_modified(|leader| {
            let changed = *leader != now;
            leader.clone_from(&now);
            changed
        });
        if changed {
            recorder.write(What::Leader { node: now });
        }
        look += 1;
        if look % LOOKS_PER_STATUS == 0 {
            for node in &nodes {
                if let Some(status) = status(node).await {
                    recorder.write(What::Status(status));
                }
            }
        }
        sleep(PERIOD).await;
    }
}

async fn names_itself(node: &Seen, tls: Option<&Arc<rustls::ClientConfig>>) -> bool {
    let look = async {
        let mut pipe = connect(tls, &node.address).await?;
        let mut said = Vec::new();
        let push = timeout(PUSH_TIME_MAX, async {
            loop {
                if let Decode::Complete(reply, _) = decode_reply(&said) {
                    return Ok::<_, io::Error>(reply);
                }
                said.push(pipe.read_u8().await?);
            }
        });
        push.await.map_err(io::Error::from)?
    };
    match timeout(LOOK_TIME_MAX, look).await {
        Ok(Ok(Reply::Leader(address))) => address == node.address,
        _ => false,
    }
}

/// What a node says of itself now; `None` if it can't be asked.
pub(crate) async fn status(node: &Seen) -> Option<NodeStatus> {
    /// The part of `/v1/status` that is of interest.
    #[derive(Deserialize)]
    struct Body {
        role: String,
        term: u64,
        applied_index: Option<u64>,
        snapshot_index: Option<u64>,
        state_hash: String,
    }
    let body = timeout(LOOK_TIME_MAX, get(&node.admin, "/v1/status"))
        .await
        .ok()?
        .ok()?;
    let body: Body = serde_json::from_str(&body).ok()?;
    Some(NodeStatus {
        node: node.address.clone(),
        term: body.term,
        role: body.role,
        applied: body.applied_index?,
        snapshot: body.snapshot_index,
        state_hash: body.state_hash,
    })
}

/// The body of an answer with status 200.
async fn get(address: &str, path: &str) -> io::Result<String> {
    let mut socket = TcpStream::connect(address).await?;
    let request = format!(
        "GET {path} HTTP/1.0\r\nHost: {address}\r\nAuthorization: Bearer {ADMIN_TOKEN}\r\nConnection: close\r\n\r\n"
    );
    socket.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    socket
        .take(ANSWER_BYTES_MAX)
        .read_to_string(&mut answer)
        .await?;
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.split_whitespace().nth(1) == Some("200") => Ok(body.to_owned()),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}
