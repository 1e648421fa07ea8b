//! Receivers over real sockets, in real time: what goes over the wire, and what comes of answers.

mod alertmanager;
mod loopback;
mod mail;

use std::sync::Arc;
use std::time::Duration;

use squall::notify::{
    Http, Links, Message, NoMeter, Notifier, NotifyError, Planner, Reason, Receiver, Route, Secret,
    Settings, Worker, build, signature,
};
use squall::store::{Batch, Event, Grouping, Outbox, SqlStore, Store};

use self::loopback::{Answer, Loopback};
use crate::store::example;

fn webhook(url: String) -> Receiver {
    Receiver {
        name: "hook".to_owned(),
        route: Route::default(),
        settings: Settings::Webhook {
            url: Secret::Inline(url),
            secret: Some(Secret::Inline("key".to_owned())),
            http: Http::plain().unwrap(),
        },
    }
}

fn notifier(receiver: &Receiver) -> Arc<dyn Notifier> {
    let links = Links::new("http://squall.example:9797");
    build(std::slice::from_ref(receiver), &links).unwrap().remove(0)
}

/// A message about one incident, as the outbox would give it.
async fn message() -> Message {
    let store = SqlStore::in_memory().await.unwrap();
    store.enqueue(&[example::notification("hook", 1, 1, Event::Firing)]).await.unwrap();
    let alone = Grouping { within: Duration::ZERO, incidents_max: 1 };
    let claim = store.claim("hook", "me", Duration::from_secs(30), alone).await.unwrap();
    let squall::store::Claim::Ready(delivery) = claim else { panic!("{claim:?}") };
    Message::read(&delivery, example::START).unwrap()
}

#[tokio::test]
async fn a_webhook_is_signed_and_keyed_and_the_same_for_every_try() {
    let loopback = Loopback::start(|_| Answer::status(200, "")).await;
    let notifier = notifier(&webhook(loopback.url("/hook")));
    let message = message().await;
    notifier.send(&message).await.unwrap();
    notifier.send(&message).await.unwrap();
    let requests = loopback.requests();
    assert_eq!(requests[0].body, requests[1].body);
    for request in &requests {
        assert!(request.head.starts_with("POST /hook HTTP/1.1\r\n"), "{}", request.head);
        assert_eq!(request.header("content-type"), Some("application/json"));
        assert_eq!(request.header("idempotency-key"), Some("hook/1/1"));
        let expected = signature(b"key", &request.body);
        assert_eq!(request.header("x-squall-signature"), Some(expected.as_str()));
        assert!(request.header("user-agent").unwrap().starts_with("squall/"));
    }
    let body: serde_json::Value = serde_json::from_slice(&requests[0].body).unwrap();
    assert_eq!((&body["version"], &body["squall"]["dependency"]), (&"4".into(), &"d1".into()));
}

#[tokio::test]
async fn answers_have_their_reasons() {
    let check = async |answer: Answer, reason: Reason, last: bool| {
        let label = format!("{answer:?}");
        let loopback = Loopback::start(move |_| answer.clone()).await;
        let notifier = notifier(&webhook(loopback.url("/")));
        let error = notifier.send(&message().await).await.unwrap_err();
        assert_eq!((error.reason(), error.is_final()), (reason, last), "{label}");
    };
    check(Answer::status(503, "busy"), Reason::BadStatus, false).await;
    check(Answer::status(301, ""), Reason::BadStatus, false).await;
    check(Answer::status(401, ""), Reason::BadStatus, false).await;
    check(Answer::status(400, "no"), Reason::Refused, true).await;
    check(Answer::status(429, ""), Reason::RateLimited, false).await;
    check(Answer::Reset, Reason::Unreachable, false).await;
    check(Answer::Truncated, Reason::Unreachable, false).await;
}

#[tokio::test]
async fn retry_after_is_read_and_the_address_is_not_told() {
    let loopback = Loopback::start(|_| Answer::Status {
        status: 429,
        headers: "Retry-After: 17\r\n".to_owned(),
        body: "slow down".to_owned(),
    })
    .await;
    let error = notifier(&webhook(loopback.url("/T000/secret"))).send(&message().await).await;
    let error = error.unwrap_err();
    assert_eq!(error.retry_after(), Some(Duration::from_secs(17)));
    assert_eq!(error.to_string(), "receiver `hook` answered 429: slow down");

    let closed = notifier(&webhook("http://127.0.0.1:1/T000/secret".to_owned()));
    let error = closed.send(&message().await).await.unwrap_err();
    assert_eq!(error.reason(), Reason::Unreachable);
    let text = format!("{error:?}");
    assert!(!text.contains("T000"), "{text}");
}

#[tokio::test]
async fn a_secret_in_a_file_is_read_at_every_send() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("hook");
    let loopback = Loopback::start(|_| Answer::status(200, "")).await;
    let mut receiver = webhook(loopback.url("/"));
    receiver.settings = Settings::Webhook {
        url: Secret::Inline(loopback.url("/")),
        secret: Some(Secret::File(file.clone())),
        http: Http::plain().unwrap(),
    };
    let notifier = notifier(&receiver);
    let message = message().await;
    let error = notifier.send(&message).await.unwrap_err();
    assert!(matches!(error, NotifyError::Secret { .. }), "{error}");
    for secret in ["one", "two"] {
        std::fs::write(&file, format!("{secret}\n")).unwrap();
        notifier.send(&message).await.unwrap();
        let last = loopback.requests().pop().unwrap();
        let expected = signature(secret.as_bytes(), &last.body);
        assert_eq!(last.header("x-squall-signature"), Some(expected.as_str()));
    }
}

#[tokio::test]
async fn slack_and_pagerduty_must_confirm_in_their_own_words() {
    let slack = |url: String| Settings::Slack {
        webhook_url: Secret::Inline(url),
        http: Http::plain().unwrap(),
    };
    let pagerduty = |url: String| Settings::Pagerduty {
        url,
        routing_key: Secret::Inline("R".repeat(32)),
        http: Http::plain().unwrap(),
    };
    let check = async |settings: &dyn Fn(String) -> Settings, answer: Answer, taken: bool| {
        let label = format!("{answer:?}");
        let loopback = Loopback::start(move |_| answer.clone()).await;
        let receiver = Receiver {
            name: "hook".to_owned(),
            route: Route::default(),
            settings: settings(loopback.url("")),
        };
        let sent = notifier(&receiver).send(&message().await).await;
        assert_eq!(sent.is_ok(), taken, "{label}: {sent:?}");
        loopback.requests().pop().unwrap()
    };
    check(&slack, Answer::status(200, "ok"), true).await;
    check(&slack, Answer::status(200, "<html>"), false).await;
    let taken = r#"{"status":"success","message":"Event processed","dedup_key":"x"}"#;
    let request = check(&pagerduty, Answer::status(202, taken), true).await;
    assert!(request.head.starts_with("POST /v2/enqueue "), "{}", request.head);
    check(&pagerduty, Answer::status(202, "{}"), false).await;
    let invalid = r#"{"status":"invalid event","message":"Event object is invalid"}"#;
    check(&pagerduty, Answer::status(400, invalid), false).await;
}

#[tokio::test]
async fn from_an_incident_to_a_receiver_that_falters_and_back() {
    // Down, then reset, then fine.
    let loopback = Loopback::start(|number| match number {
        0 => Answer::status(503, ""),
        1 => Answer::Reset,
        _ => Answer::status(200, ""),
    })
    .await;
    let receiver = webhook(loopback.url("/"));
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(SqlStore::sqlite(directory.path()).await.unwrap());
    let mut planner = Planner::new(std::slice::from_ref(&receiver));
    for (reason, incident) in [
        (squall::store::Reason::Fired, example::incident(1)),
        (squall::store::Reason::Resolved, example::resolved(1)),
    ] {
        let now = incident.updated_at;
        let notifications =
            planner.plan(store.as_ref(), std::slice::from_ref(&incident), now).await;
        let batch = Batch { notifications, ..example::batch(reason, incident) };
        store.save(&batch).await.unwrap();
    }
    let now: squall::notify::Now = Arc::new(|| example::START);
    // No jitter to wait for: the draws are all zero.
    let mut worker = Worker::new(store.clone(), notifier(&receiver), "me", now, Arc::new(NoMeter))
        .with_draw(|| 0.0);
    let emptied = tokio::time::timeout(Duration::from_secs(30), async {
        while !store.lanes().await.unwrap().is_empty() {
            let wait = worker.turn().await;
            tokio::time::sleep(wait.min(Duration::from_millis(50))).await;
        }
    });
    emptied.await.expect("the lane empties");
    let keys: Vec<String> = loopback
        .requests()
        .iter()
        .map(|request| request.header("idempotency-key").unwrap().to_owned())
        .collect();
    assert_eq!(keys.len(), 4, "{keys:?}");
    assert!(keys[0] == keys[1] && keys[1] == keys[2], "one key for every try: {keys:?}");
    assert_ne!(keys[2], keys[3]);
    let end: serde_json::Value = serde_json::from_slice(&loopback.requests()[3].body).unwrap();
    assert_eq!(end["status"], "resolved");
}

#[test]
fn a_test_goes_to_each_receiver_with_its_end_and_says_who_did_not_take_it() {
    use crate::support::process::squall;
    let (good, bad) =
        (crate::support::receiver::Receiver::start(), crate::support::receiver::Receiver::start());
    bad.answer(403);
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("squall.yml");
    let text = format!(
        "prometheus: [{{url: http://127.0.0.1:1}}]\nwatch: [{{requests: x_total}}]\nnotify:\n  \
         - webhook: {{name: good, url: {}}}\n  - webhook: {{name: bad, url: {}}}\n",
        good.url(),
        bad.url()
    );
    std::fs::write(&config, text).unwrap();
    let test = |more: &[&str]| {
        let mut command = squall();
        command.args(["notify", "test"]).arg(format!("--config.file={}", config.display()));
        command.args(more).output().unwrap()
    };
    let output = test(&[]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.starts_with("good: took it\nbad: receiver `bad` answered 403"), "{said}");
    let received = good.received();
    let told: Vec<_> = received.iter().map(|it| it.body["status"].as_str().unwrap()).collect();
    assert_eq!(told, ["firing", "resolved"]);
    let groups: Vec<_> = received.iter().map(|it| &it.body["alerts"][0]["fingerprint"]).collect();
    assert_eq!(groups[0], groups[1], "the end is of the same alert");
    assert!(received[0].raw.contains("nothing is wrong"), "{}", received[0].raw);
    // One alone, and one that does not exist.
    assert_eq!(test(&["--receiver=good"]).status.code(), Some(0));
    let unknown = test(&["--receiver=pager"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("known: good, bad"));
}
