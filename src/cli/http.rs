//! A client of the admin endpoint: one request, one bounded answer.

use std::fmt::Display;
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Largest answer that is read, in bytes: a thousand locks with the longest keys are a third of it.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// An answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) text: String,
}

/// Asks `GET path` at `address` and waits at most `patience` for all of the answer. What went wrong
/// comes back as half a sentence.
pub(super) async fn get(
    address: &str,
    path: &str,
    token: Option<&str>,
    patience: Duration,
) -> Result<Answer, String> {
    match timeout(patience, ask(address, path, token)).await {
        Ok(answer) => answer,
        Err(_) => Err(format!("no answer within {patience:?}")),
    }
}

async fn ask(address: &str, path: &str, token: Option<&str>) -> Result<Answer, String> {
    let stream = TcpStream::connect(address).await.map_err(text)?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(text)?;
    let mut request = Request::builder()
        .method(Method::GET)
        .uri(path)
        .header(header::HOST, address);
    if let Some(token) = token {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    let request = request.body(Empty::<Bytes>::new()).map_err(text)?;
    let answer = async {
        let answer = sender.send_request(request).await.map_err(text)?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX);
        let body = body.collect().await.map_err(text)?.to_bytes();
        let text = String::from_utf8_lossy(&body).into_owned();
        Ok(Answer { status, text })
    };
    tokio::select! {
        answer = answer => answer,
        // It ends only with the answer, or with a failure that the answer's side reports as well.
        Err(error) = connection => Err(text(error)),
    }
}

fn text(error: impl Display) -> String {
    error.to_string()
}
