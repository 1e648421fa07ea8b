//! The HTTP side without a socket: requests go into the router as values.

use axum::body::Body;
use axum::http::{Method, Request, Response};
use futures_util::StreamExt;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::*;
use crate::incident::{DependencyKey, IncidentId, State as Standing, Visibility};
use crate::series::{Labels, Timestamp};
use crate::store::{Batch, Reason, Saved, SqlStore};
use crate::wire::IncidentJson;

/// A clock that stands still.
#[derive(Debug)]
struct Still;

impl Clock for Still {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(1_790_000_600_000)
    }
}

/// What a test holds on to.
pub(super) struct Fixture {
    router: Router,
    pub(super) store: Arc<dyn Store>,
    pub(super) board: watch::Sender<Arc<Board>>,
    ready: watch::Sender<Readiness>,
    web: watch::Sender<Arc<WebConfig>>,
    changes: broadcast::Sender<Arc<ChangeEvent>>,
    reloads: mpsc::Receiver<ReloadRequest>,
    stop: CancellationToken,
}

pub(super) async fn fixture() -> Fixture {
    let store: Arc<dyn Store> = Arc::new(SqlStore::in_memory().await.unwrap());
    let (board, board_reader) = watch::channel(Arc::default());
    let (ready, ready_reader) = watch::channel(Readiness::Ready);
    let (web, web_reader) = watch::channel(Arc::default());
    let (_, rules) = watch::channel(Arc::new(KnownRules {
        schedules: vec![json!({"id": "a-schedule"})],
        presets: vec![json!({"id": "a-preset"})],
    }));
    let (changes, _) = broadcast::channel(EVENTS_KEPT);
    let (reload, reloads) = mpsc::channel(1);
    let stop = CancellationToken::new();
    let router = router(Parts {
        store: Arc::clone(&store),
        board: board_reader,
        changes: changes.clone(),
        ready: ready_reader,
        reload,
        rules,
        web: web_reader,
        metrics: Arc::new(|| "# EOF\n".to_owned()),
        clock: Arc::new(Still),
        stop: stop.clone(),
    });
    Fixture { router, store, board, ready, web, changes, reloads, stop }
}

impl Fixture {
    pub(super) async fn send(&self, request: Request<Body>) -> Response<Body> {
        self.router.clone().oneshot(request).await.unwrap()
    }

    pub(super) async fn get(&self, path: &str) -> (u16, Value) {
        let response = self.send(Request::get(path).body(Body::empty()).unwrap()).await;
        let status = response.status().as_u16();
        (status, body_of(response).await)
    }

    pub(super) async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let request = Request::post(path)
            .header("content-type", "application/json")
            .body(Body::from(body.to_string()))
            .unwrap();
        let response = self.send(request).await;
        let status = response.status().as_u16();
        (status, body_of(response).await)
    }

    pub(super) async fn keep(&self, incident: &Incident) {
        let saved = Saved { reason: Reason::Fired, incident: incident.clone() };
        let batch = Batch { incidents: vec![saved], ..Batch::default() };
        self.store.save(&batch).await.unwrap();
    }
}

async fn body_of(response: Response<Body>) -> Value {
    let bytes = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
    serde_json::from_slice(&bytes)
        .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()))
}

pub(super) fn incident(id: &str) -> Incident {
    let text = include_str!("../../tests/golden/record/incident.json");
    let wire: IncidentJson = serde_json::from_str(text).unwrap();
    let mut incident = Incident::try_from(wire).unwrap();
    incident.id = IncidentId(id.to_owned());
    incident
}

pub(super) fn dependency(name: &str) -> Dependency {
    Dependency {
        key: DependencyKey {
            source: "main".to_owned(),
            watch: "http".to_owned(),
            labels: Labels::new([("dependency", name)]),
        },
        state: Visibility::Watched,
        targets: 20,
        scrape_interval_seconds: 15.0,
        effective_step_seconds: 0.75,
        resolvable_gap_seconds: 1.5,
        baseline_rate: 50.0,
        dispersion: 1.2,
        last_sample_at: Some(Timestamp::from_millis(1_790_000_500_000)),
        observations: Vec::new(),
    }
}

#[tokio::test]
async fn every_path_answers_and_every_other_says_so_in_json() {
    let fixture = fixture().await;
    for (path, _) in routes() {
        if path.contains('{') || path == "/-/reload" {
            continue;
        }
        let (status, body) = fixture.get(path).await;
        assert_eq!(status, 200, "{path}: {body}");
    }
    let (status, body) = fixture.get("/api/v1/nothing").await;
    assert_eq!((status, &body["errorType"]), (404, &json!("not_found")));
    let (status, body) = fixture.post("/api/v1/incidents", &json!({})).await;
    assert_eq!((status, &body["errorType"]), (405, &json!("bad_data")));
}

#[tokio::test]
async fn incidents_are_listed_newest_first_in_pages() {
    let fixture = fixture().await;
    for id in ["a", "b", "c"] {
        fixture.keep(&incident(id)).await;
    }
    let (status, page) = fixture.get("/api/v1/incidents?limit=2&dependency=payments").await;
    assert_eq!((status, &page["status"]), (200, &json!("success")));
    let ids = |page: &Value| -> Vec<String> {
        let list = page["data"]["incidents"].as_array().unwrap();
        list.iter().map(|it| it["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids(&page), ["c", "b"]);
    let cursor = page["data"]["next_cursor"].as_str().unwrap();
    let (_, rest) = fixture.get(&format!("/api/v1/incidents?limit=2&cursor={cursor}")).await;
    assert_eq!((ids(&rest), &rest["data"]["next_cursor"]), (vec!["a".to_owned()], &Value::Null));
    let (_, none) = fixture.get("/api/v1/incidents?classification=partial-jitter").await;
    assert!(ids(&none).is_empty());
}

#[tokio::test]
async fn a_wrong_parameter_is_named_with_what_it_may_be() {
    let fixture = fixture().await;
    let check = async |query: &str, says: &str| {
        let (status, body) = fixture.get(&format!("/api/v1/incidents?{query}")).await;
        assert_eq!((status, &body["errorType"]), (400, &json!("bad_data")), "{query}");
        assert!(body["error"].as_str().unwrap().contains(says), "{query}: {body}");
    };
    check("limit=1001", "\"limit\": must be 1 to 1000").await;
    check("classification=storm", "backoff-without-jitter").await;
    check("state=open", "pending, firing, resolved").await;
    check("from=today", "RFC 3339").await;
    check("from=20&to=10", "is before `from`").await;
    check("cursor=x", "cursor").await;
    check("dependancy=x", "no such parameter").await;
}

#[tokio::test]
async fn what_is_pending_is_listed_from_what_is_live() {
    let fixture = fixture().await;
    let mut pending = incident("live");
    pending.state = Standing::Pending;
    fixture.board.send_replace(Arc::new(Board { incidents: vec![pending], ..Board::default() }));
    let (_, list) = fixture.get("/api/v1/incidents?state=pending").await;
    assert_eq!(list["data"]["incidents"][0]["id"], "live");
    let (_, list) = fixture.get("/api/v1/incidents?state=resolved").await;
    assert_eq!(list["data"]["incidents"], json!([]));
    let (status, one) = fixture.get("/api/v1/incidents/live").await;
    assert_eq!((status, &one["data"]["state"]), (200, &json!("pending")));
}

#[tokio::test]
async fn only_what_pages_and_fires_is_an_alert() {
    let fixture = fixture().await;
    let firing = incident("a");
    let mut resolved = incident("b");
    resolved.state = Standing::Resolved;
    let mut harmless = incident("c");
    harmless.verdict.class = crate::classify::Class::JitteredBackoff;
    let incidents = vec![firing, resolved, harmless];
    fixture.board.send_replace(Arc::new(Board { incidents, ..Board::default() }));
    let (_, body) = fixture.get("/api/v1/alerts").await;
    let alerts = body["data"]["alerts"].as_array().unwrap();
    assert_eq!(alerts.len(), 1, "{body}");
    assert_eq!(alerts[0]["labels"]["alertname"], "BackoffWithoutJitter");
    assert_eq!(alerts[0]["labels"]["severity"], "critical");
    assert_eq!(alerts[0]["state"], "firing");
    assert_eq!(alerts[0]["activeAt"], "2026-09-21T14:08:25.086Z");
}

#[tokio::test]
async fn feedback_is_kept_and_shown() {
    let fixture = fixture().await;
    fixture.keep(&incident("a")).await;
    let given = json!({"verdict": "false", "class": "jittered-backoff", "note": "a load test"});
    let (status, body) = fixture.post("/api/v1/incidents/a/feedback", &given).await;
    assert_eq!((status, body), (200, json!({"status": "success", "data": null})));
    let (_, one) = fixture.get("/api/v1/incidents/a").await;
    assert_eq!(one["data"]["feedback"]["verdict"], "false");
    assert_eq!(one["data"]["feedback"]["note"], "a load test");
    let (status, _) = fixture.post("/api/v1/incidents/z/feedback", &given).await;
    assert_eq!(status, 404);
    for (wrong, says) in [
        (json!({"verdict": "maybe"}), "true or false"),
        (json!({"verdict": "true", "class": "storm"}), "class"),
        (json!({"verdict": "true", "notes": ""}), "notes"),
        (json!({"verdict": "true", "note": "x".repeat(4001)}), "longer than 4000"),
    ] {
        let (status, body) = fixture.post("/api/v1/incidents/a/feedback", &wrong).await;
        assert_eq!(status, 400, "{wrong}");
        assert!(body["error"].as_str().unwrap().contains(says), "{body}");
    }
    let form = Request::post("/api/v1/incidents/a/feedback").body(Body::from("{}")).unwrap();
    assert_eq!(fixture.send(form).await.status(), 400);
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused() {
    let fixture = fixture().await;
    let large = json!({"verdict": "true", "note": "x".repeat(BODY_BYTES_MAX)});
    let (status, _) = fixture.post("/api/v1/incidents/a/feedback", &large).await;
    assert_eq!(status, 413);
}

#[tokio::test]
async fn dependencies_are_listed_in_pages_and_found_by_id() {
    let fixture = fixture().await;
    let dependencies = vec![dependency("b"), dependency("a"), dependency("c")];
    fixture.board.send_replace(Arc::new(Board { dependencies, ..Board::default() }));
    let (_, page) = fixture.get("/api/v1/dependencies?limit=2").await;
    let list = page["data"]["dependencies"].as_array().unwrap();
    assert_eq!([&list[0]["name"], &list[1]["name"]], ["a", "b"]);
    let cursor = page["data"]["next_cursor"].as_str().unwrap();
    let (_, rest) = fixture.get(&format!("/api/v1/dependencies?cursor={cursor}")).await;
    assert_eq!(rest["data"]["dependencies"][0]["name"], "c");
    let id = list[0]["id"].as_str().unwrap();
    let (_, one) = fixture.get(&format!("/api/v1/dependencies/{id}")).await;
    assert_eq!(one["data"]["name"], "a");
    assert_eq!(fixture.get("/api/v1/dependencies/zz").await.0, 404);
}

#[tokio::test]
async fn what_a_source_does_not_answer_is_said_beside_what_it_did() {
    let fixture = fixture().await;
    let sources = vec![
        SourceHealth { name: "main".to_owned(), fault: Some("`http`: timed out".to_owned()) },
        SourceHealth { name: "other".to_owned(), fault: None },
    ];
    fixture.board.send_replace(Arc::new(Board { sources, ..Board::default() }));
    let (status, body) = fixture.get("/api/v1/dependencies").await;
    assert_eq!((status, &body["warnings"]), (200, &json!(["source `main`: `http`: timed out"])));
}

#[tokio::test]
async fn what_fires_while_the_record_takes_no_writes_is_listed() {
    let fixture = fixture().await;
    let mut old = incident("was-saved");
    old.state = Standing::Firing;
    old.ended_at = None;
    fixture.keep(&old).await;
    let unsaved = Incident { id: IncidentId("is-not-saved".to_owned()), ..old.clone() };
    let ended = Incident { state: Standing::Resolved, ended_at: Some(old.updated_at), ..old };
    let board = Board {
        incidents: vec![unsaved, ended],
        storage_fault: Some("full".to_owned()),
        ..Board::default()
    };
    fixture.board.send_replace(Arc::new(board.clone()));
    let listed = async |query: &str| {
        let (_, body) = fixture.get(&format!("/api/v1/incidents{query}")).await;
        let all = body["data"]["incidents"].as_array().expect("a list").clone();
        let mut all: Vec<(String, String)> = all
            .iter()
            .map(|it| [&it["id"], &it["state"]].map(|it| it.as_str().unwrap_or("").to_owned()))
            .map(|[id, state]| (id, state))
            .collect();
        all.sort();
        all
    };
    let pair = |id: &str, state: &str| (id.to_owned(), state.to_owned());
    let both = [pair("is-not-saved", "firing"), pair("was-saved", "resolved")];
    assert_eq!(listed("").await, both);
    assert_eq!(listed("?state=firing").await, both[..1]);
    // The record alone, once it takes writes.
    fixture.board.send_replace(Arc::new(Board { storage_fault: None, ..board }));
    assert_eq!(listed("").await, [pair("was-saved", "firing")]);
}

#[tokio::test]
async fn management_answers_as_prometheus_does() {
    let mut fixture = fixture().await;
    assert_eq!(fixture.get("/-/ready").await.0, 200);
    fixture.ready.send_replace(Readiness::NotReady("replaying the last hour"));
    let (status, body) = fixture.get("/-/ready").await;
    assert_eq!((status, body), (503, json!("squall is not ready: replaying the last hour.\n")));
    assert_eq!(fixture.get("/-/healthy").await.0, 200);
    let board = Board { storage_fault: Some("full".to_owned()), ..Board::default() };
    fixture.board.send_replace(Arc::new(board));
    fixture.ready.send_replace(Readiness::Ready);
    let (status, body) = fixture.get("/-/ready").await;
    assert_eq!((status, body), (200, json!("squall is ready; storage takes no writes: full.\n")));
    let reloader = tokio::spawn(async move {
        let first = fixture.reloads.recv().await.unwrap();
        first.send(Err("squall.yml:3: watch: must be a list".to_owned())).unwrap();
        let second = fixture.reloads.recv().await.unwrap();
        second.send(Ok(())).unwrap();
    });
    let request = || Request::builder().method(Method::POST).uri("/-/reload").body(Body::empty());
    let refused = fixture.router.clone().oneshot(request().unwrap()).await.unwrap();
    assert_eq!(refused.status(), 500);
    let accepted = fixture.router.clone().oneshot(request().unwrap()).await.unwrap();
    assert_eq!(accepted.status(), 200);
    reloader.await.unwrap();
}

#[tokio::test]
async fn answers_are_packed_when_asked_and_carry_the_headers() {
    let fixture = fixture().await;
    fixture.web.send_replace(Arc::new(WebConfig {
        headers: [("X-Frame-Options".to_owned(), "deny".to_owned())].into(),
        ..WebConfig::default()
    }));
    let request = Request::get("/api/v1/openapi.json")
        .header("accept-encoding", "gzip")
        .body(Body::empty())
        .unwrap();
    let response = fixture.send(request).await;
    let header = |name: &str| response.headers().get(name).map(|v| v.to_str().unwrap().to_owned());
    assert_eq!(header("content-encoding").as_deref(), Some("gzip"));
    assert_eq!(header("x-frame-options").as_deref(), Some("deny"));
    assert_eq!(header("x-content-type-options").as_deref(), Some("nosniff"));
    assert!(header("x-request-id").is_some());
}

#[tokio::test]
async fn with_users_only_the_right_password_is_let_in() {
    let fixture = fixture().await;
    let hash = bcrypt::hash("s3cret", 4).unwrap();
    fixture.web.send_replace(Arc::new(WebConfig {
        users: [("alice".to_owned(), hash)].into(),
        ..WebConfig::default()
    }));
    let get = |authorization: &str| {
        Request::get("/-/healthy")
            .header("authorization", authorization)
            .body(Body::empty())
            .unwrap()
    };
    // alice:s3cret and alice:wrong
    assert_eq!(fixture.send(get("Basic YWxpY2U6czNjcmV0")).await.status(), 200);
    let refused = fixture.send(get("Basic YWxpY2U6d3Jvbmc=")).await;
    assert_eq!(refused.status(), 401);
    assert!(refused.headers().contains_key("www-authenticate"));
    assert_eq!(fixture.get("/metrics").await.0, 401);
}

#[tokio::test]
async fn changes_are_streamed_until_the_end() {
    let fixture = fixture().await;
    let request = Request::get(EVENTS_PATH).body(Body::empty()).unwrap();
    let response = fixture.send(request).await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let change = ChangeEvent { reason: "fired", incident: incident("a") };
    assert_eq!(fixture.changes.send(Arc::new(change)).unwrap(), 1);
    let mut frames = response.into_body().into_data_stream();
    let frame = frames.next().await.unwrap().unwrap();
    let text = String::from_utf8(frame.to_vec()).unwrap();
    assert!(text.contains("event: fired") && text.contains("\"id\":\"a\""), "{text}");
    fixture.stop.cancel();
    assert!(frames.next().await.is_none());
}

#[tokio::test]
async fn the_past_is_counted_by_dependency_client_and_feedback() {
    let fixture = fixture().await;
    for id in ["a", "b", "c"] {
        fixture.keep(&incident(id)).await;
    }
    fixture.post("/api/v1/incidents/a/feedback", &json!({"verdict": "true"})).await;
    fixture.post("/api/v1/incidents/b/feedback", &json!({"verdict": "false"})).await;
    let at = "from=2026-09-01T00:00:00Z&to=2026-10-01T00:00:00Z";
    let (status, body) = fixture.get(&format!("/api/v1/offenders?{at}")).await;
    let line = &body["data"]["offenders"][0];
    assert_eq!((status, &line["name"], &line["incidents"]), (200, &json!("payments"), &json!(3)));
    assert_eq!(line["last_at"], "2026-09-21T14:08:25.086Z");
    let (_, body) = fixture.get(&format!("/api/v1/offenders?by=client&{at}")).await;
    let client = incident("a").verdict.matches[0].name.clone();
    assert_eq!(body["data"]["offenders"][0]["name"], client.as_str());
    let (_, body) = fixture.get(&format!("/api/v1/precision?step=30d&{at}")).await;
    let expected = json!([{
        "classification": "backoff-without-jitter", "from": "2026-09-01T00:00:00.000Z",
        "right": 1, "judged": 2, "precision": 0.5,
    }]);
    assert_eq!(body["data"]["precision"], expected);
    for (path, says) in [
        ("offenders?by=team", "dependency, client"),
        ("offenders?from=20&to=10", "is before `from`"),
        ("precision?step=1s", "more than 1000 spans"),
        ("precision?step=soon", "such as 7d"),
    ] {
        let (status, body) = fixture.get(&format!("/api/v1/{path}")).await;
        assert_eq!(status, 400, "{path}");
        assert!(body["error"].as_str().unwrap().contains(says), "{path}: {body}");
    }
}
