//! A mail server on a loopback port: what it is told, and what comes of its answers.

use std::sync::{Arc, Mutex};

use squall::notify::{EmailSettings, Reason, Receiver, Route, Settings, SmtpSecurity};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// Speaks enough SMTP to take one mail a connection, or refuses its receiver with `refusal`.
async fn serve(stream: TcpStream, said: Arc<Mutex<String>>, refusal: Option<&'static str>) {
    let (read, mut write) = stream.into_split();
    let mut lines = BufReader::new(read).lines();
    write.write_all(b"220 mail.example ESMTP\r\n").await.unwrap();
    let mut data = false;
    while let Ok(Some(line)) = lines.next_line().await {
        said.lock().unwrap().push_str(&format!("{line}\n"));
        let answer = match line.split(' ').next().unwrap_or_default() {
            _ if data && line != "." => continue,
            "EHLO" => "250 mail.example",
            "RCPT" => refusal.unwrap_or("250 ok"),
            "DATA" => {
                data = true;
                "354 go on"
            }
            "QUIT" => "221 bye",
            _ => "250 ok",
        };
        data &= line != ".";
        if write.write_all(format!("{answer}\r\n").as_bytes()).await.is_err() {
            return;
        }
    }
}

async fn send(
    refusal: Option<&'static str>,
    security: SmtpSecurity,
) -> (Result<(), squall::notify::NotifyError>, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let said = Arc::new(Mutex::new(String::new()));
    let kept = said.clone();
    let server = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, kept.clone(), refusal));
        }
    });
    let receiver = Receiver {
        name: "mail".to_owned(),
        route: Route::default(),
        settings: Settings::Email(EmailSettings {
            host: "127.0.0.1".to_owned(),
            port,
            security,
            login: None,
            from: "squall@shop.example".to_owned(),
            to: vec!["oncall@shop.example".to_owned(), "lead@shop.example".to_owned()],
        }),
    };
    let sent = super::notifier(&receiver).send(&super::message().await).await;
    server.abort();
    let said = said.lock().unwrap().clone();
    (sent, said)
}

#[tokio::test]
async fn a_mail_is_handed_over_to_everybody() {
    let (sent, said) = send(None, SmtpSecurity::Plain).await;
    sent.unwrap();
    for expected in [
        "MAIL FROM:<squall@shop.example>",
        "RCPT TO:<oncall@shop.example>",
        "RCPT TO:<lead@shop.example>",
        "X-Squall-Idempotency-Key: hook/1/1",
        "http://squall.example:9797/api/v1/incidents/incident-000001/plot.svg",
    ] {
        // Long lines are folded on their way.
        let unfolded = said.replace("=\r\n", "").replace("=\n", "");
        assert!(unfolded.contains(expected), "{expected} in\n{said}");
    }
}

#[tokio::test]
async fn a_full_mailbox_and_a_grey_list_are_tried_again() {
    for refusal in ["451 greylisted, try later", "550 no such mailbox"] {
        let (sent, _) = send(Some(refusal), SmtpSecurity::Plain).await;
        let error = sent.unwrap_err();
        assert_eq!((error.reason(), error.is_final()), (Reason::BadStatus, false), "{error:?}");
    }
}

#[tokio::test]
async fn without_starttls_nothing_is_sent_unprotected() {
    let (sent, said) = send(None, SmtpSecurity::StartTls).await;
    assert_eq!(sent.unwrap_err().reason(), Reason::Unreachable);
    assert!(!said.contains("MAIL FROM"), "{said}");
}
