//! Against a scripted server on a loopback socket, in real time with bounded waits.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::http::{Authorization, BasicAuth, OAuth2, Secret};
use crate::source::{Collected, Reason};

const WHOLE: &str = r#"{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"__name__":"x"},"values":[[1,"2"]]}]}}"#;

/// Answers each request with the next of the scripted texts (the last one for ever); keeps what
/// was asked.
async fn server(script: Vec<String>) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&asked);
    tokio::spawn(async move {
        let mut next = 0;
        while let Ok((mut socket, _)) = listener.accept().await {
            let request = read_request(&mut socket).await;
            log.lock().unwrap().push(request);
            let answer = &script[next.min(script.len() - 1)];
            next += 1;
            if socket.write_all(answer.as_bytes()).await.is_err() {
                continue;
            }
            socket.shutdown().await.ok();
        }
    });
    (url, asked)
}

async fn read_request(socket: &mut tokio::net::TcpStream) -> String {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&bytes).to_lowercase();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.split("content-length: ").nth(1);
            let length = length.and_then(|rest| rest.split("\r\n").next()?.parse().ok());
            if body.len() >= length.unwrap_or(0) {
                return String::from_utf8_lossy(&bytes).into_owned();
            }
        }
        match socket.read(&mut buffer).await {
            Ok(0) | Err(_) => return String::from_utf8_lossy(&bytes).into_owned(),
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
        }
    }
}

fn reply(status: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nConnection: close\r\n{headers}Content-Length: {length}\r\n\r\n{body}"
    )
}

fn json(body: &str) -> String {
    reply("200 OK", "Content-Type: application/json\r\n", body)
}

fn config(url: &str) -> Config {
    Config {
        timeout: Duration::from_secs(2),
        budget: Duration::from_secs(20),
        ..Config::new("main", url)
    }
}

fn window(seconds: i64) -> Window {
    let until = Timestamp::from_millis(1_767_225_600_500);
    Window { after: Timestamp::from_millis(until.millis() - seconds * 1000), until }
}

async fn ask(config: Config) -> (Result<Answer, SourceError>, Collected) {
    let source = Prometheus::new(config, Metrics::new()).unwrap();
    let mut sink = Collected::default();
    let selector = "x{a=\"b\"}".parse().unwrap();
    let outcome = source.samples(&selector, window(45), &mut sink).await;
    (outcome, sink)
}

async fn outcome_of(script: Vec<String>) -> Result<Answer, SourceError> {
    let (url, _) = server(script).await;
    ask(config(&url)).await.0
}

#[tokio::test]
async fn the_question_is_a_form_with_a_range_selector_and_an_explicit_time() {
    let (url, asked) = server(vec![json(WHOLE)]).await;
    let (outcome, sink) = ask(config(&format!("{url}/prefix/"))).await;
    assert_eq!(outcome.unwrap(), Answer { series: 1, samples: 1, warnings: vec![] });
    assert_eq!(sink.0.len(), 1);
    let asked = asked.lock().unwrap();
    assert!(asked[0].starts_with("POST /prefix/api/v1/query HTTP/1.1"), "{}", asked[0]);
    assert!(asked[0].to_lowercase().contains("accept-encoding: identity"));
    let form = "query=x%7Ba%3D%22b%22%7D%5B45000ms%5D&time=1767225600.500&timeout=2000ms&nocache=1";
    assert!(asked[0].ends_with(form), "{}", asked[0]);
}

#[test]
fn answers_are_packed_where_they_cross_a_network() {
    for here in ["http://localhost:9090", "http://127.0.0.1/prefix", "http://[::1]:9090"] {
        assert!(is_here(here), "{here}");
    }
    for elsewhere in ["http://prometheus:9090", "https://10.0.0.7", "http://localhost.example", "x"]
    {
        assert!(!is_here(elsewhere), "{elsewhere}");
    }
}

#[tokio::test]
async fn what_may_pass_is_asked_again() {
    let late = reply(
        "400 Bad Request",
        "Content-Type: application/json\r\n",
        r#"{"status":"error","errorType":"bad_data","error":"invalid parameter \"query\": context deadline exceeded"}"#,
    );
    let busy = reply("503 Service Unavailable", "", "starting");
    let cut = json(WHOLE).replace("Content-Length: ", "Content-Length: 9");
    let broken = json(&WHOLE[..WHOLE.len() - 4]);
    let answer = outcome_of(vec![late, busy, cut, String::new(), json(WHOLE)]).await;
    assert_eq!(answer.unwrap().samples, 1);
    assert_eq!(outcome_of(vec![broken]).await.unwrap_err().reason(), Reason::Decode);
}

#[tokio::test]
async fn the_server_decides_when_to_be_asked_again() {
    let busy = reply("429 Too Many Requests", "Retry-After: 1\r\n", "later");
    let start = Instant::now();
    assert!(outcome_of(vec![busy, json(WHOLE)]).await.is_ok());
    assert!(start.elapsed() >= Duration::from_secs(1));
    // More than the budget: given up at once, and the time is handed on.
    let busy = reply("429 Too Many Requests", "Retry-After: 600\r\n", "later");
    let start = Instant::now();
    let error = outcome_of(vec![busy]).await.unwrap_err();
    assert_eq!(error.retry_after(), Some(Duration::from_secs(600)));
    assert!(start.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn lasting_refusals_are_not_repeated() {
    let bad = r#"{"status":"error","errorType":"bad_data","error":"parse error"}"#;
    let (url, asked) = server(vec![reply("400 Bad Request", "", bad)]).await;
    let error = ask(config(&url)).await.0.unwrap_err();
    assert_eq!(error.to_string(), "source `main` answered 400: bad_data: parse error");
    assert_eq!(asked.lock().unwrap().len(), 1);
    let page = reply("200 OK", "Content-Type: text/html\r\n", "<html>log in</html>");
    assert_eq!(outcome_of(vec![page]).await.unwrap_err().reason(), Reason::Decode);
}

#[tokio::test]
async fn too_much_is_asked_for_in_parts() {
    let much = r#"{"status":"error","errorType":"execution","error":"query processing would load too many samples into memory in query execution"}"#;
    let much = reply("422 Unprocessable Entity", "Content-Type: application/json\r\n", much);
    let (url, asked) = server(vec![much, json(WHOLE)]).await;
    assert_eq!(ask(config(&url)).await.0.unwrap().series, 2);
    let asked = asked.lock().unwrap();
    assert_eq!(asked.len(), 3);
    assert!(asked[1].contains("instance%3D%7E") && asked[2].contains("instance%21%7E"));
}

#[tokio::test]
async fn an_answer_has_a_limit() {
    let (url, _) = server(vec![json(WHOLE)]).await;
    let limited = Config { answer_bytes_max: 50, ..config(&url) };
    let error = ask(limited).await.0.unwrap_err();
    assert_eq!(error.reason(), Reason::TooLarge);
}

#[tokio::test]
async fn a_server_that_is_not_there_or_slow_is_said_to_be() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let slow = Config {
        timeout: Duration::from_millis(100),
        budget: Duration::from_millis(100),
        ..config(&url)
    };
    assert_eq!(ask(slow.clone()).await.0.unwrap_err().reason(), Reason::Timeout);
    drop(listener);
    assert_eq!(ask(slow).await.0.unwrap_err().reason(), Reason::Unreachable);
}

#[tokio::test]
async fn warnings_make_an_answer_partial_and_notes_do_not() {
    let warned = |text: &str| {
        let end = format!(r#","warnings":["{text}"]}}"#);
        json(&format!("{}{end}", &WHOLE[..WHOLE.len() - 1]))
    };
    assert!(!outcome_of(vec![warned("a store is missing")]).await.unwrap().is_whole());
    assert!(outcome_of(vec![warned("PromQL info: a gauge")]).await.unwrap().is_whole());
}

#[tokio::test]
async fn credentials_are_sent_and_do_not_follow_a_redirect() {
    let (elsewhere, stolen) = server(vec![json(WHOLE)]).await;
    let away = reply("307 Temporary Redirect", &format!("Location: {elsewhere}/\r\n"), "");
    let (url, asked) = server(vec![away]).await;
    let mut signed = config(&url);
    signed.http.headers.insert("X-Scope-OrgID".to_owned(), "shop".to_owned());
    signed.http.basic_auth = Some(BasicAuth {
        username: Secret::Inline("me".to_owned()),
        password: Secret::Inline("pass".to_owned()),
    });
    assert_eq!(ask(signed).await.0.unwrap_err().reason(), Reason::BadStatus);
    let first = asked.lock().unwrap()[0].to_lowercase();
    assert!(first.contains("authorization: basic bwu6cgfzcw=="), "{first}");
    assert!(first.contains("x-scope-orgid: shop"));
    assert!(stolen.lock().unwrap().is_empty());
}

#[tokio::test]
async fn tokens_are_fetched_once_and_bearers_read_from_their_file() {
    let token = r#"{"access_token":"abc","expires_in":3600}"#;
    let (token_url, given) = server(vec![json(token)]).await;
    let (url, asked) = server(vec![json(WHOLE)]).await;
    let mut signed = config(&url);
    signed.http.oauth2 = Some(OAuth2 {
        client_id: "id".to_owned(),
        client_secret: Secret::Inline("secret".to_owned()),
        token_url,
        scopes: vec!["read".to_owned()],
        endpoint_params: std::collections::BTreeMap::new(),
    });
    let source = Prometheus::new(signed, Metrics::new()).unwrap();
    let selector = "x".parse().unwrap();
    for _ in 0..2 {
        source.samples(&selector, window(45), &mut Collected::default()).await.unwrap();
    }
    assert_eq!(given.lock().unwrap().len(), 1);
    assert!(given.lock().unwrap()[0].ends_with("grant_type=client_credentials&scope=read"));
    assert!(asked.lock().unwrap().iter().all(|r| r.to_lowercase().contains("bearer abc")));
    assert!(!format!("{source:?}").contains("secret\""), "{source:?}");

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "from-file\n").unwrap();
    let mut signed = config(&url);
    signed.http.authorization =
        Some(Authorization { r#type: "Bearer".to_owned(), credentials: Secret::File(file) });
    ask(signed).await.0.unwrap();
    assert!(asked.lock().unwrap()[2].to_lowercase().contains("authorization: bearer from-file"));
}

#[tokio::test]
async fn the_servers_clock_is_read_in_both_shapes() {
    for body in [
        r#"{"status":"success","data":{"resultType":"scalar","result":[5.5,"1796005805.035"]}}"#,
        r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[5,"1796005805.035"]}]}}"#,
    ] {
        let (url, _) = server(vec![json(body)]).await;
        let source = Prometheus::new(config(&url), Metrics::new()).unwrap();
        assert_eq!(source.now().await.unwrap().millis(), 1_796_005_805_035);
    }
}
