//! A server that stands before another and answers in its stead what servers answer on bad days.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What the proxy does with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Hands it on.
    Pass,
    /// Hands on what is asked for under this prefix, without it, but for paths that begin with one
    /// of those, which it does not have.
    Under(&'static str, &'static [&'static str]),
    /// Answers this head and body: status line and headers, without the length.
    Say(&'static str, &'static str),
    /// Announces more than it sends.
    Truncate,
    /// Says nothing until the client has gone.
    Hang,
}

/// A proxy before one port; its thread ends with it.
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) port: u16,
    manner: Arc<Mutex<Manner>>,
    asked: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
}

impl Proxy {
    /// Stands before `behind`, another port of this machine.
    pub(crate) fn before(behind: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let manner = Arc::new(Mutex::new(Manner::Pass));
        let stop = Arc::new(AtomicBool::new(false));
        let (shared, stopped) = (Arc::clone(&manner), Arc::clone(&stop));
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                counted.fetch_add(1, Ordering::Relaxed);
                let manner = *shared.lock().expect("nothing panics while it holds this");
                // One request a connection; a hanging one must not hold up the next.
                std::thread::spawn(move || answer(stream, manner, behind));
            }
        });
        Self { port, manner, asked, stop }
    }

    /// Requests that came so far, answered or not.
    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }

    /// Does this with every request from now on.
    pub(crate) fn turn(&self, manner: Manner) {
        *self.manner.lock().expect("nothing panics while it holds this") = manner;
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        drop(TcpStream::connect(("127.0.0.1", self.port)));
    }
}

/// Answers one request; none when the client or the server behind goes away.
fn answer(stream: TcpStream, manner: Manner, behind: u16) -> Option<()> {
    stream.set_read_timeout(Some(Duration::from_secs(30))).ok()?;
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let (head, body) = request(&mut reader)?;
    let mut stream = stream;
    match manner {
        Manner::Pass => hand_on(&head, &body, behind, &mut stream)?,
        Manner::Under(prefix, lacks) => {
            let (method, rest) = head.split_once(' ')?;
            match rest.strip_prefix(prefix) {
                Some(path) if !lacks.iter().any(|it| path.starts_with(it)) => {
                    hand_on(&format!("{method} {path}"), &body, behind, &mut stream)?;
                }
                _ => {
                    say("404 Not Found\r\nContent-Type: text/plain", "404 page not found", &stream)?
                }
            }
        }
        Manner::Say(head, body) => say(head, body, &stream)?,
        Manner::Truncate => {
            let half = r#"{"status":"success","data":{"resultType":"matrix","result":[{"met"#;
            let head = "200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000";
            write!(stream, "HTTP/1.1 {head}\r\n\r\n{half}").ok()?;
        }
        Manner::Hang => {
            // Ends when the client closes.
            let mut nothing = [0];
            while reader.read(&mut nothing).ok()? > 0 {}
        }
    }
    Some(())
}

fn hand_on(head: &str, body: &[u8], behind: u16, stream: &mut TcpStream) -> Option<()> {
    let mut server = TcpStream::connect(("127.0.0.1", behind)).ok()?;
    server.write_all(head.as_bytes()).ok()?;
    server.write_all(body).ok()?;
    std::io::copy(&mut server, stream).ok().map(|_| ())
}

fn say(head: &str, body: &str, mut stream: &TcpStream) -> Option<()> {
    let length = body.len();
    write!(stream, "HTTP/1.1 {head}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
        .ok()
}

/// Reads one request; its connection is to be closed after the answer.
fn request(reader: &mut impl BufRead) -> Option<(String, Vec<u8>)> {
    let mut head = String::new();
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line.trim_end().is_empty() {
            head.push_str("Connection: close\r\n\r\n");
            break;
        }
        let name = line.split(':').next().unwrap_or_default().to_ascii_lowercase();
        if name == "content-length" {
            length = line.split_once(':')?.1.trim().parse().ok()?;
        }
        if name != "connection" {
            head.push_str(&line);
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((head, body))
}
