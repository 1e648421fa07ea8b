//! Two daemons on one PostgreSQL: each watches its share, whoever is left takes over, one that was
//! away for a minute without knowing it does no harm, and a storm is one page.
//!
//! In real time, as all stories with real servers.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use sqlx::{Connection as _, PgConnection};

use crate::store::cluster::Cluster;
use crate::storm::{PAGE_LIMIT, QUIET_SECONDS, Stage};
use crate::support::http::get;
use crate::support::process::{Program, free_port, squall, wait_until};

/// Dependencies: as many as make it certain that each of two replicas has some.
const DEPENDENCIES: u32 = 16;
/// When half of the dependencies storm: after the replicas have settled twice.
const STORM_SECONDS: u32 = QUIET_SECONDS + 60;
/// Longest time in which what a dead replica watched is watched again.
const TAKE_OVER: Duration = Duration::from_secs(30);
/// How long one of them is stopped, at the least: over twice its lease and its membership.
const PAUSE: Duration = Duration::from_secs(60);

/// Herds without jitter on every other dependency, all from one cause.
fn scenario() -> String {
    let mut text = "about: Herds on half of the dependencies.\nduration: 1h\n\
                    scrape: {interval: 1s, targets: 8}\ndependencies:\n"
        .to_owned();
    for n in 0..DEPENDENCIES {
        text.push_str(&match n % 2 {
            0 => format!("- name: d{n}\n  faults: [{{at: {STORM_SECONDS}s, for: 30500ms}}]\n"),
            _ => format!("- name: d{n}\n"),
        });
    }
    text.push_str("clients:\n");
    for n in 0..DEPENDENCIES {
        text.push_str(&format!("- {{name: users {n}, calls: d{n}, rate: 10}}\n"));
        if n % 2 == 0 {
            text.push_str(&format!(
                "- name: herd {n}\n  calls: d{n}\n  size: 800\n  at: {STORM_SECONDS}s\n  \
                 within: 100ms\n  retry: {{schedule: exponential, base: 1s, factor: 2, cap: 32s, \
                 jitter: none, retries: 6}}\n"
            ));
        }
    }
    text
}

fn replica(stage: &Stage, name: &str, port: u16) -> Program {
    let mut command = squall();
    command
        .arg("run")
        .arg(format!("--config.file={}", stage.config().display()))
        .arg(format!("--web.listen-address=127.0.0.1:{port}"));
    Program::start(name, stage.folder.path(), &mut command)
}

/// The dependencies that the replica at `port` watches; none while it does not answer.
fn watched(port: u16) -> BTreeSet<String> {
    let Some(answer) = get(port, "/api/v1/dependencies") else { return BTreeSet::new() };
    let list = answer.json()["data"]["dependencies"].as_array().cloned().unwrap_or_default();
    list.iter().filter_map(|it| it["name"].as_str().map(str::to_owned)).collect()
}

/// Whether each dependency is watched by exactly one of the two, and each has some.
fn is_divided(ports: [u16; 2]) -> bool {
    let [a, b] = ports.map(watched);
    let all = usize::try_from(DEPENDENCIES).unwrap();
    a.is_disjoint(&b) && a.len() + b.len() == all && !a.is_empty() && !b.is_empty()
}

#[test]
fn two_replicas_divide_the_work_and_one_that_dies_or_pauses_is_replaced_in_time() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (cluster, url) = runtime.block_on(async {
        let cluster = Cluster::start().await;
        let url = cluster.database("replicas").await;
        (cluster, url)
    });
    let stage = Stage::set(&scenario());
    stage.configure(None);
    let mut config = std::fs::read_to_string(stage.config()).unwrap();
    config.push_str(&format!("storage: {{url: '{url}'}}\n"));
    std::fs::write(stage.config(), config).unwrap();

    let ports = [free_port(), free_port()];
    let mut first = replica(&stage, "first", ports[0]);
    let mut second = replica(&stage, "second", ports[1]);
    wait_until("the work is divided", PAGE_LIMIT, || is_divided(ports));

    // One dies, without a word.
    first.kill();
    wait_until("the other has taken over", TAKE_OVER, || {
        watched(ports[1]).len() == usize::try_from(DEPENDENCIES).unwrap()
    });
    // Another comes, and gets its share.
    let ports = [free_port(), ports[1]];
    let mut third = replica(&stage, "third", ports[0]);
    wait_until("the work is divided again", PAGE_LIMIT, || is_divided(ports));

    // Each storm is told once, by whomever, and ended once.
    let expected: BTreeSet<String> = (0..DEPENDENCIES / 2).map(|n| format!("d{}", 2 * n)).collect();
    let told = |status: &str| -> BTreeSet<String> {
        let received = stage.receiver.received();
        let alerts = received.iter().filter_map(|it| it.body["alerts"].as_array()).flatten();
        alerts
            .filter(|alert| alert["status"] == status)
            .filter_map(|alert| alert["labels"]["dependency"].as_str().map(str::to_owned))
            .collect()
    };
    // One is stopped before the storms, and goes on after their pages without knowing that it was.
    second.signal("STOP");
    let mut is_long_enough = has_passed(PAUSE);
    wait_until("the other has taken over", TAKE_OVER, || {
        watched(ports[0]).len() == usize::try_from(DEPENDENCIES).unwrap()
    });
    wait_until("every storm is paged", PAGE_LIMIT, || told("firing") == expected);
    wait_until("a minute is over", PAUSE, &mut is_long_enough);
    second.signal("CONT");
    wait_until("the work is divided once more", PAGE_LIMIT, || is_divided(ports));
    wait_until("every storm is over", PAGE_LIMIT, || told("resolved") == expected);
    for name in &expected {
        let path = format!("/api/v1/incidents?dependency={name}");
        let list = get(ports[0], &path).unwrap().json()["data"]["incidents"].clone();
        assert_eq!(list.as_array().unwrap().len(), 1, "{name}: {list:#}");
    }
    for event in ["firing", "resolved"] {
        let counts = runtime.block_on(counts(&url, event));
        assert_eq!(counts, vec![1; expected.len()], "`{event}` of each storm");
    }
    assert_eq!(third.terminate(), Some(0), "{}", third.output());
    assert_eq!(second.terminate(), Some(0), "{}", second.output());
    drop(cluster);
}

/// Whether so much time has passed since now.
#[expect(clippy::disallowed_methods, reason = "real programs run in real time")]
fn has_passed(time: Duration) -> impl FnMut() -> bool {
    let began = Instant::now();
    move || began.elapsed() >= time
}

/// How often each incident was told with this event, by what both replicas kept to be sent.
async fn counts(url: &str, event: &str) -> Vec<i64> {
    let mut connection = PgConnection::connect(url).await.unwrap();
    let sql = "SELECT COUNT(*) FROM outbox WHERE event = $1 GROUP BY incident";
    sqlx::query_scalar(sql).bind(event).fetch_all(&mut connection).await.unwrap()
}
