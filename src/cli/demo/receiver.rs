//! The webhook receiver of the demo: takes what Alertmanager's webhooks take, and tells of it.
//!
//! A dozen lines of HTTP/1.1 over a socket and no server library: it has one client, which is
//! squall itself, and must not depend on the part that is shown.

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::Line;

/// Largest body taken.
const BODY_BYTES_MAX: usize = 4 << 20;
/// Most headers taken.
const HEADERS_MAX: usize = 100;

/// Receives until told to stop.
pub(super) async fn receive(
    listener: TcpListener,
    lines: mpsc::Sender<Line>,
    stop: CancellationToken,
) {
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, _)) = accepted else { continue };
        let lines = lines.clone();
        tokio::spawn(async move {
            let mut stream = BufReader::new(stream);
            // Each request of a connection that is kept open.
            while let Some(body) = take(&mut stream).await {
                for text in pages(&body) {
                    if lines.send(Line { speaker: "page", text }).await.is_err() {
                        return;
                    }
                }
            }
        });
    }
}

/// Takes one request and confirms it; none at the end of the connection.
async fn take(stream: &mut BufReader<TcpStream>) -> Option<Value> {
    let mut length = 0;
    for _ in 0..HEADERS_MAX {
        let mut line = String::new();
        if stream.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().ok()?;
        }
    }
    if length > BODY_BYTES_MAX {
        return None;
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.ok()?;
    serde_json::from_slice(&body).ok()
}

/// What a notification says, one text for each alert in it.
fn pages(body: &Value) -> Vec<String> {
    let alerts = body["alerts"].as_array().into_iter().flatten();
    alerts
        .map(|alert| {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let name = text(&alert["labels"]["alertname"]);
            let dependency = text(&alert["labels"]["dependency"]);
            let severity = text(&alert["labels"]["severity"]);
            match alert["status"].as_str() {
                Some("resolved") => format!("{name} for {dependency}: resolved"),
                _ => format!("{name} for {dependency}: firing, {severity}"),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_told_in_one_sentence_for_each_alert() {
        let body = serde_json::json!({"alerts": [
            {"status": "firing", "labels": {"alertname": "RetryStorm", "dependency": "search",
             "severity": "critical"}},
            {"status": "resolved", "labels": {"alertname": "RetryStorm", "dependency": "search"}},
        ]});
        assert_eq!(
            pages(&body),
            ["RetryStorm for search: firing, critical", "RetryStorm for search: resolved"]
        );
        assert!(pages(&Value::Null).is_empty());
    }
}
