//! Paths, and what is answered on each.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Query, RawQuery, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use raft::Node;
use serde::{Deserialize, Serialize};

use super::access::{Access, Need, Refusal};
use super::health::{self, Check};
use super::locks::{self, LOCKS_DEFAULT, LOCKS_MAX};
use super::look::Subject;
use super::{metrics, status};

/// What the handlers share.
struct Endpoint {
    access: Access,
    subject: Subject,
}

type Shared = State<Arc<Endpoint>>;

/// All paths.
pub(super) fn router(access: Access, subject: Subject) -> Router {
    Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics_page))
        .route("/v1/status", get(v1_status))
        .route("/v1/locks", get(v1_locks))
        .route("/v1/leader/transfer", post(v1_leader_transfer))
        .route("/v1/members/{id}/promote", post(v1_member_promote))
        .route("/v1/members/{id}/remove", post(v1_member_remove))
        .fallback(async || sentence(StatusCode::NOT_FOUND, "there is nothing at this path"))
        .with_state(Arc::new(Endpoint { access, subject }))
}

async fn livez(State(endpoint): Shared) -> Response {
    if endpoint.subject.is_live().await {
        sentence(StatusCode::OK, "live")
    } else {
        sentence(
            StatusCode::SERVICE_UNAVAILABLE,
            "not live: the desk does not answer",
        )
    }
}

async fn readyz(State(endpoint): Shared, RawQuery(query): RawQuery) -> Response {
    let checks = health::readiness(&endpoint.subject.look().await);
    let ready = health::is_ready(&checks);
    let status = if ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    let verbose = query.is_some_and(|query| query.split('&').any(|part| part == "verbose"));
    let failed = checks.iter().find(|check| !check.passed);
    let mut lines: Vec<String> = Vec::new();
    if verbose {
        lines.extend(checks.iter().map(check_line));
    }
    lines.push(match failed {
        None => "ready".to_owned(),
        Some(check) => format!("not ready: {}: {}", check.name, check.note),
    });
    sentence(status, lines.join("\n"))
}

fn check_line(check: &Check) -> String {
    let mark = if check.passed { '+' } else { '-' };
    format!("[{mark}] {}: {}", check.name, check.note)
}

async fn metrics_page(State(endpoint): Shared) -> Response {
    let look = endpoint.subject.look().await;
    let text = metrics::page(&look, endpoint.subject.probe.counters());
    let kind = HeaderValue::from_static(metrics::CONTENT_TYPE);
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}

async fn v1_status(State(endpoint): Shared, headers: HeaderMap) -> Response {
    if let Err(refusal) = endpoint.check(Need::Read, &headers) {
        return refused(refusal);
    }
    json(&status::status(&endpoint.subject.look().await))
}

/// What `/v1/locks` may be asked with.
#[derive(Deserialize)]
struct LocksQuery {
    #[serde(default)]
    prefix: String,
    limit: Option<String>,
}

async fn v1_locks(
    State(endpoint): Shared,
    headers: HeaderMap,
    Query(query): Query<LocksQuery>,
) -> Response {
    if let Err(refusal) = endpoint.check(Need::Read, &headers) {
        return refused(refusal);
    }
    let limit = match query.limit {
        None => LOCKS_DEFAULT,
        Some(text) => match text.parse::<usize>() {
            Ok(limit) if (1..=LOCKS_MAX).contains(&limit) => limit,
            _ => {
                let line = format!("limit is {text:?}: it must be 1 to {LOCKS_MAX}");
                return sentence(StatusCode::BAD_REQUEST, line);
            }
        },
    };
    match endpoint.subject.locks(query.prefix, limit).await {
        Some((listing, waiters)) => json(&locks::locks(listing, &waiters)),
        None => sentence(
            StatusCode::SERVICE_UNAVAILABLE,
            "the locks can't be listed now: the desk or Raft does not answer",
        ),
    }
}

async fn v1_leader_transfer(State(endpoint): Shared, headers: HeaderMap) -> Response {
    if let Err(refusal) = endpoint.check(Need::Change, &headers) {
        return refused(refusal);
    }
    let Some(node) = &endpoint.subject.node else {
        return sentence(StatusCode::CONFLICT, "in single mode there is no lead");
    };
    tracing::info!("an operator asks for a transfer of the lead");
    match node.transfer().await {
        Ok(leader) => json(&Transferred { leader }),
        Err(refused) => sentence(StatusCode::CONFLICT, refused.to_string()),
    }
}

async fn v1_member_promote(
    State(endpoint): Shared,
    headers: HeaderMap,
    Path(id): Path<String>,
) -> Response {
    change_member(&endpoint, &headers, "promote", &id, Node::promote)
}

async fn v1_member_remove(
    State(endpoint): Shared,
    headers: HeaderMap,
    Path(id): Path<String>,
) -> Response {
    change_member(&endpoint, &headers, "remove", &id, Node::remove)
}

/// Asks the node for a change of the membership; it goes on after the answer.
fn change_member(
    endpoint: &Endpoint,
    headers: &HeaderMap,
    what: &'static str,
    id: &str,
    change: fn(&Node, u64) -> Result<(), raft::node::Refused>,
) -> Response {
    if let Err(refusal) = endpoint.check(Need::Change, headers) {
        return refused(refusal);
    }
    let Some(node) = &endpoint.subject.node else {
        return sentence(StatusCode::CONFLICT, "in single mode there are no members");
    };
    let Ok(number) = u64::from_str_radix(id, 16) else {
        let line = format!("{id:?} is no node id: it must be hexadecimal, as in /v1/status");
        return sentence(StatusCode::BAD_REQUEST, line);
    };
    tracing::info!(
        what,
        node = id,
        "an operator asks for a change of the membership"
    );
    match change(node, number) {
        Ok(()) => sentence(StatusCode::ACCEPTED, "the change is under way"),
        Err(refused) => sentence(StatusCode::CONFLICT, refused.to_string()),
    }
}

/// What became of a transfer.
#[derive(Serialize)]
struct Transferred {
    /// Client address of the new leader.
    leader: String,
}

impl Endpoint {
    fn check(&self, need: Need, headers: &HeaderMap) -> Result<(), Refusal> {
        let authorization = headers.get(header::AUTHORIZATION);
        self.access
            .check(need, authorization.map(HeaderValue::as_bytes))
    }
}

fn refused((status, line): Refusal) -> Response {
    let mut response = sentence(status, line);
    if status == StatusCode::UNAUTHORIZED {
        let scheme = HeaderValue::from_static("Bearer");
        response
            .headers_mut()
            .insert(header::WWW_AUTHENTICATE, scheme);
    }
    response
}

fn sentence(status: StatusCode, line: impl Into<String>) -> Response {
    (status, line.into() + "\n").into_response()
}

fn json(value: &impl Serialize) -> Response {
    let text = serde_json::to_string(value).expect("plain data always encodes");
    let json = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, json)], text + "\n").into_response()
}
