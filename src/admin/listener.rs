//! Accepts connections and bounds what each may cost.
//!
//! A connection answers one request and is closed: nothing is kept for a client that may or may not
//! come back, and every bound on a request is a bound on its connection. Beyond
//! [`CONNECTIONS_MAX`] newcomers wait in the kernel's queue; as each connection ends within
//! [`CONNECTION_TIME_MAX`], their turn comes.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

/// Connections that are served at the same time.
const CONNECTIONS_MAX: usize = 64;

/// How long the head of a request may take to arrive.
const HEAD_TIME_MAX: Duration = Duration::from_secs(2);

/// Largest head of a request, in bytes.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// Most header fields of a request.
const HEAD_FIELDS_MAX: usize = 64;

/// How long a connection may take in all.
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(10);

/// Pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until it is dropped.
pub(super) async fn serve(listener: TcpListener, routes: Router) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let slot = Arc::clone(&slots).acquire_owned().await;
        match listener.accept().await {
            Ok((stream, _)) => {
                let routes = routes.clone();
                tokio::spawn(async move {
                    let _slot = slot;
                    // A client that was too slow, or not a client of ours, has been cut off.
                    let _ = timeout(CONNECTION_TIME_MAX, answer(stream, routes)).await;
                });
            }
            Err(error) => {
                tracing::debug!(%error, "cannot accept an admin connection");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn answer(stream: TcpStream, routes: Router) -> hyper::Result<()> {
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEAD_FIELDS_MAX)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes))
        .await
}
