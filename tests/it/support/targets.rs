//! Scrape targets of a test's own: one thread serves their expositions and the list by which a
//! Prometheus finds them.

use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// What a target exposes so many seconds after the start.
pub(crate) type Exposition = Box<dyn Fn(f64) -> String + Send>;

/// One target.
pub(crate) struct Target {
    /// Its labels; `instance` among them.
    pub(crate) labels: Vec<(&'static str, String)>,
    pub(crate) exposition: Exposition,
}

/// Targets being served; their thread ends with them.
pub(crate) struct Targets {
    pub(crate) port: u16,
    stop: Arc<AtomicBool>,
}

impl fmt::Debug for Targets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Targets").field("port", &self.port).finish_non_exhaustive()
    }
}

impl Targets {
    /// Serves `targets` on a free port.
    pub(crate) fn start(targets: Vec<Target>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        std::thread::spawn(move || {
            let began = now();
            for stream in listener.incoming() {
                if told.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                // A caller that goes away is its own affair.
                let _answered = answer(&stream, port, &targets, began.elapsed().as_secs_f64());
            }
        });
        Self { port, stop }
    }

    /// The address of the list, for HTTP service discovery.
    pub(crate) fn discovery(&self) -> String {
        format!("http://127.0.0.1:{}/targets", self.port)
    }
}

impl Drop for Targets {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Wakes the thread, so that it sees the flag.
        drop(TcpStream::connect(("127.0.0.1", self.port)));
    }
}

#[expect(clippy::disallowed_methods, reason = "real programs run in real time")]
fn now() -> Instant {
    Instant::now()
}

fn answer(stream: &TcpStream, port: u16, targets: &[Target], elapsed: f64) -> Option<()> {
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    let mut lines = BufReader::new(stream.try_clone().ok()?).lines();
    let first = lines.next()?.ok()?;
    for line in lines {
        if line.ok()?.trim().is_empty() {
            break;
        }
    }
    let path = first.split(' ').nth(1)?;
    let number = path.trim_start_matches('/').split('/').next().and_then(|it| it.parse().ok());
    let (kind, body) = match number.and_then(|number: usize| targets.get(number)) {
        Some(target) => ("text/plain; version=0.0.4", (target.exposition)(elapsed)),
        None => ("application/json", list(port, targets).to_string()),
    };
    let mut stream = stream;
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n\
         {body}",
        body.len()
    )
    .ok()
}

fn list(port: u16, targets: &[Target]) -> Value {
    let entry = |(number, target): (usize, &Target)| {
        let mut labels: serde_json::Map<String, Value> =
            target.labels.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
        labels.insert("__metrics_path__".to_owned(), json!(format!("/{number}/metrics")));
        json!({"targets": [format!("127.0.0.1:{port}")], "labels": labels})
    };
    targets.iter().enumerate().map(entry).collect()
}
