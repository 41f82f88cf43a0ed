//! The admin endpoint, asked in bytes.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

/// Longest wait for an answer. A node that is there answers within its own bound, which is shorter.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);

/// An answer, split at its empty line.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    /// The body as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// `GET path`; `None` if nobody answers.
pub(crate) fn try_get(address: &str, path: &str) -> Option<Answer> {
    send(address, &format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"))
}

/// `GET path`, which is answered.
pub(crate) fn get(address: &str, path: &str) -> Answer {
    try_get(address, path).unwrap_or_else(|| panic!("{address} does not answer {path}"))
}

/// A request with this `Authorization` field, which is answered.
pub(crate) fn request(method: &str, address: &str, path: &str, authorization: &str) -> Answer {
    let field = match authorization {
        "" => String::new(),
        text => format!("Authorization: {text}\r\n"),
    };
    let head = format!("{method} {path} HTTP/1.1\r\nHost: x\r\n{field}\r\n");
    send(address, &head).unwrap_or_else(|| panic!("{address} does not answer {method} {path}"))
}

/// Sends these bytes and reads to the end of the stream.
pub(crate) fn send(address: &str, bytes: &str) -> Option<Answer> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(ANSWER_TIME_MAX)).ok()?;
    stream.write_all(bytes.as_bytes()).ok()?;
    let mut text = Vec::new();
    stream.read_to_end(&mut text).ok()?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some(Answer {
        status,
        head: head.to_owned(),
        body: body.to_owned(),
    })
}
