//! Replicas of a server that can be told to fail: they answer real clients, and count what they
//! answered as servers do.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use serde_json::{Value, json};
use squall::sim::random::Draws;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Shortest and longest time to an answer while all is well: clients that are asked to wait for
/// news. Different for each, so that nothing is in step before the failure.
const ANSWER_SECONDS: [f64; 2] = [5.0, 15.0];
/// Seed of those times.
const SEED: u64 = 11;
/// How long writes hang when the failure begins, as behind a gateway that waits for what has gone.
/// Whatever is written meanwhile is refused in one moment.
const HANG: Duration = Duration::from_secs(20);
/// Series besides the counters, so that there is something to write.
const GAUGES: usize = 100;
/// The dependency that samples are written to.
pub(crate) const WRITTEN: &str = "remote-write";

/// The replicas; they end with the test.
#[derive(Debug)]
pub(crate) struct Replicas {
    pub(crate) ports: Vec<u16>,
    failing: watch::Sender<BTreeSet<String>>,
    hang: CancellationToken,
    runtime: Runtime,
}

/// One of them.
#[derive(Debug)]
struct Replica {
    /// Answers by dependency and status.
    answered: Mutex<BTreeMap<(String, u16), u64>>,
    draws: Mutex<Draws>,
    failing: watch::Receiver<BTreeSet<String>>,
    /// Over when writes are refused and do not hang any more.
    hang: CancellationToken,
    /// All of them, for the list of targets.
    ports: Vec<u16>,
}

impl Replicas {
    /// Serves on `count` free ports.
    pub(crate) fn start(count: usize) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let failing = watch::Sender::default();
        let hang = CancellationToken::new();
        let listeners: Vec<TcpListener> = (0..count)
            .map(|_| runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a free port"))
            .collect();
        let port = |it: &TcpListener| it.local_addr().expect("an address").port();
        let ports: Vec<u16> = listeners.iter().map(port).collect();
        for (stream, listener) in (0..).zip(listeners) {
            let replica = Replica {
                answered: Mutex::default(),
                draws: Mutex::new(Draws::new(SEED, stream)),
                failing: failing.subscribe(),
                hang: hang.clone(),
                ports: ports.clone(),
            };
            let router = Router::new()
                .route("/call/{dependency}", get(work))
                .route("/api/v1/write", post(written))
                .route("/metrics", get(metrics))
                .route("/targets", get(targets))
                .layer(DefaultBodyLimit::disable())
                .with_state(Arc::new(replica));
            runtime.spawn(async move { axum::serve(listener, router).await });
        }
        Self { ports, failing, hang, runtime }
    }

    /// Where a Prometheus finds them as targets.
    pub(crate) fn discovery(&self) -> String {
        format!("http://127.0.0.1:{}/targets", self.ports[0])
    }

    /// Answers everything for `dependency` with 503 for so long, what waits for its answer too.
    /// What is written hangs first.
    pub(crate) fn fail(&self, dependency: &'static str, length: Duration) {
        self.failing.send_modify(|failing| {
            failing.insert(dependency.to_owned());
        });
        let (failing, hang) = (self.failing.clone(), self.hang.clone());
        self.runtime.spawn(async move {
            if dependency == WRITTEN {
                tokio::time::sleep(HANG).await;
                hang.cancel();
            }
            tokio::time::sleep(length).await;
            failing.send_modify(|failing| {
                failing.remove(dependency);
            });
        });
    }
}

impl Replica {
    /// Counts an answer and gives its status.
    fn answer(&self, dependency: &str, has_failed: bool) -> StatusCode {
        let status =
            if has_failed { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::NO_CONTENT };
        let mut answered = self.answered.lock().expect("nothing panics while it holds this");
        *answered.entry((dependency.to_owned(), status.as_u16())).or_default() += 1;
        status
    }
}

async fn work(State(replica): State<Arc<Replica>>, Path(dependency): Path<String>) -> StatusCode {
    let [shortest, longest] = ANSWER_SECONDS;
    let draw = || replica.draws.lock().expect("no panic").between(shortest, longest);
    let length = Duration::from_secs_f64(draw());
    let mut failing = replica.failing.clone();
    let failure = failing.wait_for(|failing| failing.contains(&dependency));
    let has_failed = tokio::time::timeout(length, failure).await.is_ok();
    replica.answer(&dependency, has_failed)
}

async fn written(State(replica): State<Arc<Replica>>, _samples: Bytes) -> StatusCode {
    let is_failing = || replica.failing.borrow().contains(WRITTEN);
    if is_failing() {
        replica.hang.cancelled().await;
    }
    replica.answer(WRITTEN, is_failing())
}

async fn metrics(State(replica): State<Arc<Replica>>) -> String {
    let mut text = "# TYPE answers_total counter\n".to_owned();
    let answered = replica.answered.lock().expect("nothing panics while it holds this");
    for ((dependency, code), count) in answered.iter() {
        let series = format!("answers_total{{dependency=\"{dependency}\",code=\"{code}\"}}");
        let _infallible = writeln!(text, "{series} {count}");
    }
    text.push_str("# TYPE room_temperature_celsius gauge\n");
    for room in 0..GAUGES {
        let _infallible = writeln!(text, "room_temperature_celsius{{room=\"{room}\"}} 21");
    }
    text
}

async fn targets(State(replica): State<Arc<Replica>>) -> axum::Json<Value> {
    let targets: Vec<String> =
        replica.ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    axum::Json(json!([{"targets": targets}]))
}
