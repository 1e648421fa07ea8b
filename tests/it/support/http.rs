//! The few HTTP requests a test makes, over a plain socket: a client library would be under test
//! together with the server.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

/// Longest wait for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// An answer: its status and its body.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
}

impl Answer {
    /// The body as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body)
            .unwrap_or_else(|error| panic!("no JSON ({error}): {}", self.body))
    }
}

/// Asks; none when nobody answers.
pub(crate) fn request(method: &str, port: u16, path: &str, body: &str) -> Option<Answer> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT)).ok()?;
    write!(
        stream,
        "{method} {path} HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
    .ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let text = String::from_utf8(answer).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some(Answer { status, body: body.to_owned() })
}

/// `GET`
pub(crate) fn get(port: u16, path: &str) -> Option<Answer> {
    request("GET", port, path, "")
}

/// `GET` of JSON that must be answered with 200.
pub(crate) fn get_json(port: u16, path: &str) -> Value {
    let answer = get(port, path).unwrap_or_else(|| panic!("no answer at port {port} for {path}"));
    assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    answer.json()
}
