//! Debian's own Alertmanager: pages, repeats, resolves, and restarts of either side.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use squall::incident::Incident;
use squall::notify::{
    ActiveAlerts, Alertmanager, Http, Links, NoMeter, Notifier, Now, Planner, Receiver, Route,
    Settings, Worker,
};
use squall::series::Timestamp;
use squall::store::{Outbox, SqlStore};

use super::loopback::{Answer, Loopback};
use crate::store::example;

/// How long anything may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

struct Server {
    process: Child,
    port: u16,
    directory: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Server {
    async fn start(hook: &str, group_wait: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let config = format!(
            "route:\n  receiver: hook\n  group_by: [alertname]\n  group_wait: {group_wait}\n  \
             group_interval: 1s\n  repeat_interval: 1h\nreceivers:\n  - name: hook\n    \
             webhook_configs:\n      - url: {hook}\n"
        );
        std::fs::write(directory.path().join("alertmanager.yml"), config).unwrap();
        let port = free_port();
        let process = Self::spawn(&directory, port);
        let server = Self { process, port, directory };
        server.ready().await;
        server
    }

    fn spawn(directory: &tempfile::TempDir, port: u16) -> Child {
        Command::new("prometheus-alertmanager")
            .arg(format!("--config.file={}", directory.path().join("alertmanager.yml").display()))
            .arg(format!("--storage.path={}", directory.path().join("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .arg("--cluster.listen-address=")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("Alertmanager is installed (Debian: apt-get install prometheus-alertmanager)")
    }

    async fn restart(&mut self) {
        // In good order: killed, it would lose its own log of what it told.
        let pid = self.process.id().to_string();
        Command::new("kill").args(["-TERM", &pid]).status().unwrap();
        self.process.wait().unwrap();
        self.process = Self::spawn(&self.directory, self.port);
        self.ready().await;
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    async fn ready(&self) {
        let client = squall::http::Client::new(squall::http::HttpConfig::default()).unwrap();
        until("Alertmanager is ready", async || {
            let answer = client.requests().get(format!("{}/-/ready", self.url())).send().await;
            answer.is_ok_and(|answer| answer.status().is_success())
        })
        .await;
    }

    async fn alerts(&self) -> Vec<Value> {
        let client = squall::http::Client::new(squall::http::HttpConfig::default()).unwrap();
        let answer =
            client.requests().get(format!("{}/api/v2/alerts", self.url())).send().await.unwrap();
        answer.json().await.unwrap()
    }
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let waited = tokio::time::timeout(LIMIT, async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("never: {what}"));
}

fn system_now() -> Timestamp {
    Timestamp::from_millis(jiff::Timestamp::now().as_millisecond())
}

/// An incident that fired `seconds` ago.
fn fired_ago(seconds: f64) -> Incident {
    let mut incident = example::incident(1);
    let now = system_now();
    incident.verdict.started_at = now.plus_seconds(-seconds - 10.0);
    incident.detected_at = Some(now.plus_seconds(-seconds));
    incident.updated_at = now;
    incident
}

fn over(mut incident: Incident, seconds_after_firing: f64) -> Incident {
    incident.state = squall::incident::State::Resolved;
    incident.ended_at = incident.detected_at.map(|fired| fired.plus_seconds(seconds_after_firing));
    incident.updated_at = system_now();
    incident
}

fn receiver(server: &Server) -> Receiver {
    Receiver {
        name: "am".to_owned(),
        route: Route::default(),
        settings: Settings::Alertmanager {
            // A dead member beside the living one must not hold anything up.
            urls: vec!["http://127.0.0.1:1".to_owned(), format!("{}/", server.url())],
            http: Http::plain().unwrap(),
        },
    }
}

fn alertmanager(server: &Server) -> Arc<Alertmanager> {
    let links = Links::new("http://squall.example:9797");
    Arc::new(Alertmanager::from_receiver(&receiver(server), links).unwrap())
}

/// Plans, keeps and sends what is to be told of `incident`.
async fn tell(server: &Server, store: &Arc<SqlStore>, incident: &Incident) {
    let receiver = receiver(server);
    let mut planner = Planner::new(&[receiver]);
    let planned =
        planner.plan(store.as_ref(), std::slice::from_ref(incident), incident.updated_at).await;
    assert!(!planned.is_empty(), "nothing to tell of {:?}", incident.state);
    store.enqueue(&planned).await.unwrap();
    let now: Now = Arc::new(system_now);
    let notifier: Arc<dyn Notifier> = alertmanager(server);
    let outbox: Arc<dyn Outbox> = store.clone();
    let mut worker = Worker::new(outbox, notifier, "me", now, Arc::new(NoMeter));
    until("the outbox is empty", async || {
        worker.turn().await;
        store.lanes().await.unwrap().is_empty()
    })
    .await;
}

/// The statuses of the notifications that came to the webhook so far.
fn told(hook: &Loopback) -> Vec<String> {
    hook.requests()
        .iter()
        .map(|request| {
            let body: Value = serde_json::from_slice(&request.body).unwrap();
            body["status"].as_str().unwrap().to_owned()
        })
        .collect()
}

#[tokio::test]
async fn a_storm_is_paged_stays_up_over_restarts_and_resolves() {
    let hook = Loopback::start(|_| Answer::status(200, "")).await;
    let mut server = Server::start(&hook.url("/hook"), "1s").await;
    let store = Arc::new(SqlStore::in_memory().await.unwrap());
    // Long enough ago that the hold of a short storm plays no part here.
    let firing = fired_ago(400.0);
    tell(&server, &store, &firing).await;
    until("the page", async || told(&hook) == ["firing"]).await;
    let alert = &server.alerts().await[0];
    assert_eq!(alert["labels"]["alertname"], "BackoffWithoutJitter");
    assert_eq!(alert["labels"]["dependency"], "d1");
    assert_eq!(alert["generatorURL"], "http://squall.example:9797/?incident=incident-000001");

    // Alertmanager comes back without the alert, and the next statement brings it back, unpaged.
    server.restart().await;
    let active = ActiveAlerts::new(Route::default());
    active.observe(std::slice::from_ref(&firing));
    alertmanager(&server).state(&active, system_now()).await.unwrap();
    until("the alert is back", async || server.alerts().await.len() == 1).await;

    // squall comes back: nothing is told again, and the end is.
    let mut again = Planner::new(&[receiver(&server)]);
    let nothing =
        again.plan(store.as_ref(), std::slice::from_ref(&firing), firing.updated_at).await;
    assert_eq!(nothing, []);
    let ended = over(firing, 395.0);
    active.observe(std::slice::from_ref(&ended));
    alertmanager(&server).state(&active, system_now()).await.unwrap();
    tell(&server, &store, &ended).await;
    until("the end", async || told(&hook) == ["firing", "resolved"]).await;
}

#[tokio::test]
async fn a_storm_shorter_than_group_wait_still_notifies() {
    let hook = Loopback::start(|_| Answer::status(200, "")).await;
    // The default of Alertmanager.
    let server = Server::start(&hook.url("/hook"), "30s").await;
    let store = Arc::new(SqlStore::in_memory().await.unwrap());
    // Fired and over within the wait.
    let firing = fired_ago(8.0);
    tell(&server, &store, &firing).await;
    tell(&server, &store, &over(firing, 8.0)).await;
    until("the page", async || told(&hook) == ["firing"]).await;
    // And it is still up, by its own end.
    let alerts = server.alerts().await;
    assert_eq!(alerts.len(), 1);
    assert_eq!(alerts[0]["status"]["state"], "active");
}
