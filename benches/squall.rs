//! One group for each promise of speed, each beside the plain reference it is compared with.
//!
//! Figures are ratios within one run: machines differ, and so does their load.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tokio::sync::{broadcast, mpsc, watch};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use squall::api::{self, Board, EVENTS_KEPT, Parts, Readiness};
use squall::classify::{Class, Severity};
use squall::clock::SystemClock;
use squall::detect::comb::{CombBank, find_comb};
use squall::detect::even::{Count, EvenResiduals, autocorrelate};
use squall::detect::period::{PeriodSearch, find_period};
use squall::detect::spectrum::Spectrum;
use squall::detect::warped::warped_peaks;
use squall::incident::{Dependency, DependencyKey, Incident, IncidentId, State, Visibility};
use squall::plot::{Look, Picture, draw};
use squall::series::{Interval, Labels, TargetId, Timestamp};
use squall::sim;
use squall::sim::policy::{Jitter, RetryPolicy};
use squall::sim::scenario::{DependencyPlan, Fault, Population, Scenario};
use squall::store::{Batch, IncidentQuery, Reason, Saved, SqlStore, Store};
use squall::wire::around::{IncrementsJson, ModelJson, SeriesJson};
use squall::wire::{IncidentJson, Instant3339, Number};

/// Seeded counts of one target at one second.
fn intervals(seconds: u32) -> Vec<Interval> {
    let mut random = ChaCha8Rng::seed_from_u64(7);
    (0..seconds)
        .map(|second| Interval {
            target: TargetId(0),
            from: Timestamp::from_seconds(f64::from(second)),
            to: Timestamp::from_seconds(f64::from(second + 1)),
            requests: f64::from(random.random_range(30..70_u32)),
            errors: f64::from(random.random_range(0..20_u32)),
        })
        .collect()
}

/// The autocorrelation as it is defined, the reference.
fn autocorrelate_naive(values: &[f64], lags: usize) -> Vec<f64> {
    (0..lags).map(|lag| values.iter().zip(&values[lag..]).map(|(a, b)| a * b).sum()).collect()
}

fn autocorrelation(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("autocorrelation");
    for length in [240_usize, 960, 4096] {
        let values: Vec<f64> = (0_u32..).take(length).map(|k| f64::from(k * k % 17)).collect();
        group.bench_with_input(BenchmarkId::new("fft", length), &values, |b, values| {
            b.iter(|| autocorrelate(black_box(values), length / 3));
        });
        group.bench_with_input(BenchmarkId::new("naive", length), &values, |b, values| {
            b.iter(|| autocorrelate_naive(black_box(values), length / 3));
        });
    }
}

fn periods(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("period");
    for seconds in [240, 960] {
        let intervals = intervals(seconds);
        group.bench_with_input(BenchmarkId::new("residuals", seconds), &intervals, |b, i| {
            b.iter(|| EvenResiduals::new(black_box(i), Count::Requests).is_ok());
        });
        let even = EvenResiduals::new(&intervals, Count::Requests).expect("enough intervals");
        group.bench_with_input(BenchmarkId::new("spectrum", seconds), &even, |b, even| {
            b.iter(|| Spectrum::new(black_box(even)).is_ok());
        });
        group.bench_with_input(BenchmarkId::new("find", seconds), &even, |b, even| {
            b.iter(|| find_period(black_box(even), &PeriodSearch::default()).is_ok());
        });
        let bracket = [Timestamp::from_seconds(60.0), Timestamp::from_seconds(61.0)];
        group.bench_with_input(BenchmarkId::new("warped", seconds), &even, |b, even| {
            b.iter(|| warped_peaks(black_box(even), bracket, 8).len());
        });
    }
}

fn comb(criterion: &mut Criterion) {
    let even = EvenResiduals::new(&intervals(300), Count::Errors).expect("enough intervals");
    let spectrum = Spectrum::new(&even).expect("a band");
    let bank = CombBank::new(&even, &spectrum).expect("lags");
    let mut group = criterion.benchmark_group("comb");
    group.sample_size(10);
    group.bench_function("bank", |b| b.iter(|| CombBank::new(black_box(&even), &spectrum).is_ok()));
    group.bench_function("test", |b| b.iter(|| find_comb(black_box(&spectrum), &bank).z));
}

/// A hundred thousand clients that fail together, and other traffic, for ten simulated minutes:
/// promised in under two seconds on one core.
fn fleet(clients: usize) -> Scenario {
    let mut scenario = Scenario::new("fleet", 600.0);
    let faults = vec![Fault::outage(120.0, 40.0)];
    let to = scenario.dependency(DependencyPlan { faults, ..DependencyPlan::new("payments") });
    scenario.population(Population::stream("others", to, clients as f64 / 20.0));
    let policy = RetryPolicy::exponential(1.0, 2.0, 32.0, 7, Jitter::Full);
    scenario.population(Population::burst("herd", to, clients, 120.0, 1.0, policy));
    scenario
}

/// The reference is a tenth of the clients: the time must grow with the attempts and no faster.
fn simulation(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("simulation");
    group.sample_size(10);
    for clients in [10_000_usize, 100_000] {
        let scenario = fleet(clients);
        group.bench_function(BenchmarkId::new("ten minutes", clients), |b| {
            b.iter(|| sim::run(black_box(&scenario), 1).series.len());
        });
    }
}

/// An incident that everything is known of.
fn example() -> IncidentJson {
    let text = include_str!("../tests/golden/record/incident.json");
    serde_json::from_str(text).expect("the example")
}

/// What is kept of a long storm: twenty targets scraped every fifteen seconds, six thousand counts.
fn kept(incident: &IncidentJson) -> SeriesJson {
    let mut random = ChaCha8Rng::seed_from_u64(7);
    let mut rows = IncrementsJson {
        since: Instant3339(incident.started_at.0.plus_seconds(-120.0)),
        target: Vec::new(),
        from_seconds: Vec::new(),
        to_seconds: Vec::new(),
        requests: Vec::new(),
        errors: Vec::new(),
    };
    for scrape in 0..300_u32 {
        for target in 0..20_u32 {
            let from = f64::from(target).mul_add(0.75, f64::from(scrape) * 15.0);
            rows.target.push(target);
            rows.from_seconds.push(from);
            rows.to_seconds.push(from + 15.0);
            rows.requests.push(f64::from(random.random_range(30..90_u32)));
            rows.errors.push(f64::from(random.random_range(0..30_u32)));
        }
    }
    let model = ModelJson {
        baseline_rate: Number(50.0),
        dispersion: Number(1.2),
        error_ratio: Number(0.0),
        shares: vec![Number(0.05); 20],
        clients: Vec::new(),
        scrape_interval_seconds: Number(15.0),
        effective_step_seconds: Number(0.75),
        resolvable_gap_seconds: Number(1.5),
    };
    SeriesJson { increments: Some(rows), model: Some(model), ..SeriesJson::default() }
}

/// A picture is promised in under 20 ms; the reference is the JSON of the same counts.
fn picture(criterion: &mut Criterion) {
    let incident = example();
    let series = kept(&incident);
    let mut group = criterion.benchmark_group("picture");
    group.bench_function("incident", |b| {
        b.iter(|| {
            draw(Picture::Incident, black_box(&incident), &series, &Look::default())
                .map_or(0, |it| it.len())
        });
    });
    group.bench_function("json", |b| {
        b.iter(|| serde_json::to_vec(black_box(&series)).map_or(0, |it| it.len()));
    });
}

/// A daemon's web side over 10,000 incidents and 5,000 dependencies, as a value.
async fn web() -> axum::Router {
    let store: Arc<dyn Store> = Arc::new(SqlStore::in_memory().await.expect("a store"));
    let example = Incident::try_from(example()).expect("the example");
    let mut incidents = (0..10_000_u32).map(|n| {
        let mut incident = example.clone();
        incident.id = IncidentId(format!("{n:016x}"));
        incident.verdict.started_at = example.verdict.started_at.plus_seconds(-60.0 * f64::from(n));
        incident.state = State::Resolved;
        incident.ended_at = Some(incident.verdict.started_at.plus_seconds(50.0));
        Saved { reason: Reason::Replayed, incident }
    });
    loop {
        let batch: Vec<Saved> = incidents.by_ref().take(500).collect();
        if batch.is_empty() {
            break;
        }
        store.save(&Batch { incidents: batch, ..Batch::default() }).await.expect("saved");
    }
    let dependencies = (0..5_000_u32).map(|n| Dependency {
        key: DependencyKey {
            source: "main".to_owned(),
            watch: "http".to_owned(),
            labels: Labels::new([("dependency", format!("service-{n}"))]),
        },
        state: if n % 10 == 0 { Visibility::Blind } else { Visibility::Watched },
        targets: 20,
        scrape_interval_seconds: 15.0,
        effective_step_seconds: 0.75,
        resolvable_gap_seconds: 1.5,
        baseline_rate: 50.0,
        dispersion: 1.2,
        last_sample_at: Some(example.updated_at),
        observations: Vec::new(),
    });
    let board = Board { dependencies: dependencies.collect(), ..Board::default() };
    api::router(Parts {
        store,
        board: watch::channel(Arc::new(board)).1,
        changes: broadcast::channel(EVENTS_KEPT).0,
        ready: watch::channel(Readiness::Ready).1,
        reload: mpsc::channel(1).0,
        rules: watch::channel(Arc::default()).1,
        web: watch::channel(Arc::default()).1,
        metrics: Arc::new(String::new),
        clock: Arc::new(SystemClock),
        stop: CancellationToken::new(),
    })
}

/// Asks for a page and gives its length.
async fn page(router: axum::Router, path: &str) -> usize {
    let request = axum::extract::Request::get(path).body(axum::body::Body::empty());
    let answer = router.oneshot(request.expect("a request")).await.expect("an answer");
    assert!(answer.status().is_success(), "{path}: {}", answer.status());
    axum::body::to_bytes(answer.into_body(), 1 << 24).await.expect("a body").len()
}

/// The lists are promised in under 200 ms and 300 kB; the reference is the API's own list.
fn pages(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let router = runtime.block_on(web());
    let mut group = criterion.benchmark_group("page");
    for (name, path) in [
        ("incidents", "/"),
        ("incidents as JSON", "/api/v1/incidents?limit=50"),
        ("dependencies", "/dependencies"),
        ("dependencies as JSON", "/api/v1/dependencies"),
    ] {
        let bytes = runtime.block_on(page(router.clone(), path));
        assert!(bytes < 300_000, "{path}: {bytes} bytes");
        group.bench_function(name, |b| {
            b.iter(|| runtime.block_on(page(router.clone(), black_box(path))));
        });
    }
}

/// Incidents in the record that is measured: a million with `SQUALL_BENCH_INCIDENTS=1000000`.
const INCIDENTS: u32 = 5_000;
/// Incidents that become durable together.
const BATCH: u32 = 200;

/// Incident `n` of a long record: a hundred dependencies, one an hour.
fn incident(n: u32) -> Incident {
    let text = include_str!("../tests/golden/record/incident.json");
    let wire: IncidentJson = serde_json::from_str(text).expect("an incident");
    let mut incident = Incident::try_from(wire).expect("an incident");
    let start = Timestamp::from_seconds(3600.0f64.mul_add(f64::from(n), 1.4e9));
    incident.id = IncidentId(format!("{n:016x}"));
    incident.dependency.labels = Labels::new([("dependency", format!("d{}", n % 100))]);
    incident.verdict.class = Class::ALL[n as usize % Class::ALL.len()];
    incident.verdict.started_at = start;
    incident.detected_at = Some(start);
    incident.updated_at = start;
    incident
}

fn batch(from: u32) -> Batch {
    let saved = |n| Saved { reason: Reason::Fired, incident: incident(n) };
    Batch { incidents: (from..from + BATCH).map(saved).collect(), ..Batch::default() }
}

/// The record in a file: durable batches, and filtered pages of a long record.
fn record(criterion: &mut Criterion) {
    let wanted = squall::config::environment("SQUALL_BENCH_INCIDENTS");
    let wanted = wanted.map_or(INCIDENTS, |text| text.parse().expect("a number of incidents"));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let folder = tempfile::tempdir().expect("a folder");
    let store = runtime.block_on(SqlStore::sqlite(folder.path())).expect("a store");
    for from in (0..wanted).step_by(BATCH as usize) {
        runtime.block_on(store.save(&batch(from))).expect("a durable batch");
    }
    let mut group = criterion.benchmark_group(format!("record of {wanted}"));
    group.sample_size(20);
    let mut next = wanted;
    group.throughput(Throughput::Elements(u64::from(BATCH)));
    group.bench_function("insert", |b| {
        b.iter(|| {
            next += BATCH;
            runtime.block_on(store.save(&batch(next))).expect("a durable batch");
        });
    });
    group.throughput(Throughput::Elements(1));
    let pages = [
        ("newest", IncidentQuery::default()),
        (
            "dependency and class",
            IncidentQuery {
                dependency: Some("d7".to_owned()),
                class: Some(Class::ALL[7 % Class::ALL.len()]),
                ..IncidentQuery::default()
            },
        ),
        (
            "state, severity and time",
            IncidentQuery {
                state: Some(State::Firing),
                severity: Some(Severity::Critical),
                to: Some(Timestamp::from_seconds(1800.0f64.mul_add(f64::from(wanted), 1.4e9))),
                ..IncidentQuery::default()
            },
        ),
        (
            "rule",
            IncidentQuery {
                schedule: Some(incident(0).verdict.matches[0].rule.clone()),
                ..IncidentQuery::default()
            },
        ),
    ];
    for (name, query) in pages {
        group.bench_function(BenchmarkId::new("page", name), |b| {
            b.iter(|| runtime.block_on(store.incidents(black_box(&query))).expect("a page"));
        });
    }
}

criterion_group!(benches, autocorrelation, periods, comb, simulation, picture, pages, record);
criterion_main!(benches);
