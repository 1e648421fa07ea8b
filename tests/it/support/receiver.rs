//! A webhook receiver: a real socket that keeps what it is sent, and can be told to refuse.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;

use super::process::wait_for;

/// One request as it was received.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    pub(crate) idempotency_key: Option<String>,
    pub(crate) signature: Option<String>,
    pub(crate) raw: String,
    pub(crate) body: Value,
}

/// The receiver; its thread ends with it.
#[derive(Debug)]
pub(crate) struct Receiver {
    pub(crate) port: u16,
    received: Arc<Mutex<Vec<Received>>>,
    // What it answers.
    status: Arc<AtomicU16>,
    stop: Arc<AtomicBool>,
}

impl Receiver {
    /// Listens on a free port.
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let received = Arc::new(Mutex::new(Vec::new()));
        let status = Arc::new(AtomicU16::new(200));
        let stop = Arc::new(AtomicBool::new(false));
        let shared = (Arc::clone(&received), Arc::clone(&status), Arc::clone(&stop));
        std::thread::spawn(move || {
            let (received, status, stop) = shared;
            for stream in listener.incoming() {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let status = status.load(Ordering::Relaxed);
                if let Some(request) = take(stream, status)
                    && status == 200
                {
                    received.lock().expect("no test panics here").push(request);
                }
            }
        });
        Self { port, received, status, stop }
    }

    /// Where to send to.
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/hook", self.port)
    }

    /// Answers with this status from now on; what is refused is not kept.
    pub(crate) fn answer(&self, status: u16) {
        self.status.store(status, Ordering::Relaxed);
    }

    /// Everything taken so far.
    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().expect("no test panics here").clone()
    }

    /// Waits for a request that `wanted` picks.
    pub(crate) fn wait_for(
        &self,
        what: &str,
        limit: Duration,
        wanted: impl Fn(&Received) -> bool,
    ) -> Received {
        wait_for(limit, || self.received().into_iter().find(&wanted)).unwrap_or_else(|| {
            panic!("waited {limit:?} in vain for {what}; received: {:#?}", self.received())
        })
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Wakes the thread, so that it sees the flag.
        drop(TcpStream::connect(("127.0.0.1", self.port)));
    }
}

/// Reads one request and answers it.
fn take(stream: TcpStream, status: u16) -> Option<Received> {
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut length = 0;
    let (mut idempotency_key, mut signature) = (None, None);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':') {
            let value = value.trim().to_owned();
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.parse().ok()?,
                "idempotency-key" => idempotency_key = Some(value),
                "x-squall-signature" => signature = Some(value),
                _ => {}
            }
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let mut stream = stream;
    write!(stream, "HTTP/1.1 {status} told\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        .ok()?;
    let raw = String::from_utf8(body).ok()?;
    let body = serde_json::from_str(&raw).unwrap_or(Value::Null);
    Some(Received { idempotency_key, signature, raw, body })
}
