//! An HTTP receiver on a loopback port that answers by a script, and breaks on request.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// How a request is answered.
#[derive(Debug, Clone)]
pub(crate) enum Answer {
    /// A whole answer.
    Status { status: u16, headers: String, body: String },
    /// The connection is reset before any answer.
    Reset,
    /// The answer ends before its body does.
    Truncated,
}

impl Answer {
    pub(crate) fn status(status: u16, body: &str) -> Self {
        Self::Status { status, headers: String::new(), body: body.to_owned() }
    }
}

/// One request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Request {
    /// The value of a header, whatever the case of its name.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

/// The receiver; it ends when dropped.
pub(crate) struct Loopback {
    address: String,
    requests: Arc<Mutex<Vec<Request>>>,
    task: JoinHandle<()>,
}

impl Drop for Loopback {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Loopback {
    /// Starts it; `answer` is given the number of the request, from 0.
    pub(crate) async fn start(answer: impl Fn(usize) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let kept = requests.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                serve(stream, &kept, &answer).await;
            }
        });
        Self { address, requests, task }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }
}

async fn serve(
    mut stream: TcpStream,
    requests: &Mutex<Vec<Request>>,
    answer: &(impl Fn(usize) -> Answer + Send + Sync),
) {
    let Some(request) = read(&mut stream).await else { return };
    let number = {
        let mut requests = requests.lock().unwrap();
        requests.push(request);
        requests.len() - 1
    };
    let text = match answer(number) {
        Answer::Status { status, headers, body } => format!(
            "HTTP/1.1 {status} -\r\nContent-Length: {}\r\nConnection: close\r\n{headers}\r\n{body}",
            body.len()
        ),
        Answer::Reset => {
            // A linger of zero makes the close a reset.
            stream.set_zero_linger().unwrap();
            return;
        }
        Answer::Truncated => {
            "HTTP/1.1 200 OK\r\nContent-Length: 100\r\nConnection: close\r\n\r\nhalf".to_owned()
        }
    };
    stream.write_all(text.as_bytes()).await.ok();
    stream.shutdown().await.ok();
}

async fn read(stream: &mut TcpStream) -> Option<Request> {
    let mut bytes = Vec::new();
    loop {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n");
        if let Some(end) = end {
            let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
            let request = Request { head, body: Vec::new() };
            let length: usize = request.header("content-length")?.parse().ok()?;
            let mut body = bytes[end + 4..].to_vec();
            while body.len() < length {
                if stream.read_buf(&mut body).await.ok()? == 0 {
                    return None;
                }
            }
            return Some(Request { body, ..request });
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
}
