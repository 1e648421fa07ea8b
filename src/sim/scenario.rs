//! What is simulated: fleets, the dependencies they call, and the scraper that watches.
//!
//! The types here are the running form, with every default filled in and no name unresolved; they
//! are built by code (`corpus`, `shop`) or read from a scenario file (`read`).

pub mod read;

use std::sync::Arc;

use super::policy::RetryPolicy;

/// Unix seconds at which a scenario starts unless it says otherwise: a full hour, so that load on
/// the wall clock falls on the clock's own marks.
pub const START_UNIX_SECONDS: f64 = 1_790_002_800.0;

/// One world to simulate.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// One sentence on what it shows.
    pub about: String,
    /// How long it runs, seconds.
    pub duration_seconds: f64,
    /// The Unix time of its first instant.
    pub start_unix_seconds: f64,
    /// Who calls.
    pub clients: Vec<Population>,
    /// What is called.
    pub dependencies: Vec<DependencyPlan>,
    /// How it is watched.
    pub scrape: ScrapePlan,
    /// What is right to say of it.
    pub expect: Expect,
}

/// Many clients alike.
#[derive(Debug, Clone, PartialEq)]
pub struct Population {
    /// Its name, for people and for `hits`.
    pub name: String,
    /// The `job` label of its targets.
    pub job: String,
    /// The dependency it calls, by index.
    pub to: usize,
    /// When its calls come.
    pub calls: Calls,
    /// What it does about failures.
    pub retry: RetryPolicy,
    /// Seconds after which an attempt is given up; infinite without one.
    pub timeout_seconds: f64,
    /// What holds its retries back besides the policy.
    pub guard: Guard,
}

/// When the calls of a population come.
#[derive(Debug, Clone, PartialEq)]
pub enum Calls {
    /// A stream from a great many independent users.
    Stream {
        /// Calls per second over time, `(seconds, rate)`, straight between the points.
        profile: Vec<(f64, f64)>,
        /// Variance-to-mean ratio of the counts per second; 1 is Poisson.
        dispersion: f64,
        /// Over how many seconds its ups and downs last.
        correlation_seconds: f64,
        /// Depth of the daily wave, as a share of the rate.
        daily: f64,
    },
    /// Everybody at once, once or again and again.
    Burst {
        /// How many clients call.
        size: usize,
        /// The first time, seconds.
        at_seconds: f64,
        /// Over how many seconds they spread.
        within_seconds: f64,
        /// Seconds to the next time; infinite for once only.
        every_seconds: f64,
        /// How often at most.
        times: u32,
    },
    /// A fixed number of clients, each of which calls, waits for the answer, pauses, calls again.
    Loop {
        /// How many clients there are.
        size: usize,
        /// When the first of them starts, seconds.
        from_seconds: f64,
        /// When they stop, seconds.
        until_seconds: f64,
        /// Over how many seconds their starts spread.
        within_seconds: f64,
        /// The pause between an answer and the next call, seconds.
        pause_seconds: f64,
        /// The pause is `pause * U(1 - spread, 1 + spread)`.
        pause_spread: f64,
    },
    /// At these instants, as recorded somewhere: seconds, never falling.
    Trace(Arc<[f64]>),
    /// Only called by the dependency that fans out to it.
    Inner,
}

/// What holds a population's retries back besides its policy.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Guard {
    /// Retries allowed as a share of calls.
    pub budget_share: Option<f64>,
    /// A breaker for each target.
    pub breaker: Option<Breaker>,
    /// Most attempts in flight for each target.
    pub bulkhead: Option<u32>,
    /// Sends a second attempt when the first has not answered after this many seconds.
    pub hedge_after_seconds: Option<f64>,
    /// No retry starts after this many seconds: somebody has switched them off.
    pub retries_end_seconds: Option<f64>,
}

/// A circuit breaker: opens on failures, lets one attempt through after a pause.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Breaker {
    /// Failures in a row that open it.
    pub failures: u32,
    /// Seconds it stays open.
    pub open_seconds: f64,
}

/// What is called.
#[derive(Debug, Clone, PartialEq)]
pub struct DependencyPlan {
    /// The value of the `dependency` label.
    pub name: String,
    /// Mean seconds to serve one request without waiting.
    pub latency_seconds: f64,
    /// Seconds to refuse one.
    pub refusal_seconds: f64,
    /// Share of requests that fail on a good day.
    pub error_share: f64,
    /// The code of its failures.
    pub error_code: u16,
    /// Requests per second it can serve, all replicas together; infinite without a limit.
    pub capacity: f64,
    /// Servers behind it, each with its own queue and its part of the capacity.
    pub replicas: usize,
    /// Longest wait in the queue, seconds; beyond it requests are refused.
    pub queue_seconds: f64,
    /// A change of the capacity (a deploy, a scale-out), `(seconds, capacity)`.
    pub capacity_changes: Vec<(f64, f64)>,
    /// What overload does to it.
    pub knock_down: Option<KnockDown>,
    /// What it turns away.
    pub shed: Option<Shed>,
    /// When it fails.
    pub faults: Vec<Fault>,
    /// Clients contend for one record instead of for capacity.
    pub contention: Option<Contention>,
    /// The population, by index, through which it calls a further dependency for each request.
    pub calls: Option<usize>,
}

/// More than `rate` per second, with `burst` to spare, knocks the dependency down.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KnockDown {
    /// Requests per second it stands.
    pub rate: f64,
    /// Requests it stands at once.
    pub burst: f64,
    /// Seconds until it is up again, unless the load goes on.
    pub down_seconds: f64,
}

/// Requests beyond `rate` per second, with `burst` to spare, are turned away.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shed {
    /// Requests per second let in.
    pub rate: f64,
    /// Requests let in at once.
    pub burst: f64,
    /// The code of the answer.
    pub code: u16,
    /// `Retry-After` of the answer, seconds.
    pub retry_after_seconds: Option<f64>,
}

/// A time in which requests fail.
#[derive(Debug, Clone, PartialEq)]
pub struct Fault {
    /// What happens to a request.
    pub kind: FaultKind,
    /// When it starts, seconds.
    pub from_seconds: f64,
    /// How long it lasts, seconds.
    pub for_seconds: f64,
    /// Seconds from one start to the next; infinite for once only.
    pub every_seconds: f64,
    /// Share of requests that it hits at its start.
    pub share: f64,
    /// Share that it hits at its end; straight in between.
    pub share_end: f64,
    /// Only these populations, by index; all when empty.
    pub hits: Vec<usize>,
}

/// What a fault does to a request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FaultKind {
    /// Answered with the dependency's error code at once.
    Refuse {
        /// `Retry-After` of the answer, seconds.
        retry_after_seconds: Option<f64>,
    },
    /// Never answered: the client's timeout ends it.
    BlackHole,
    /// Served this many times slower, at as much less capacity.
    Slow {
        /// How many times.
        factor: f64,
    },
    /// Held until the fault ends, then served.
    Hold,
}

/// Optimistic writers of one record: a write fails when another came after one's own read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Contention {
    /// Mean of one trip over the network, seconds.
    pub trip_mean_seconds: f64,
    /// Its standard deviation, seconds.
    pub trip_sd_seconds: f64,
}

/// How the clients are watched.
#[derive(Debug, Clone, PartialEq)]
pub struct ScrapePlan {
    /// Seconds between two scrapes of one target.
    pub interval_seconds: f64,
    /// Targets of each job.
    pub targets: usize,
    /// The number of targets over time, where it changes, `(seconds, targets)`.
    pub scale: Vec<(f64, usize)>,
    /// Share of scrapes that fail.
    pub missed: f64,
    /// Times in which all scrapes fail, `(from, for)` in seconds.
    pub holes: Vec<(f64, f64)>,
    /// Share of scrapes that come late, by up to half an interval.
    pub late: f64,
    /// A scrape that comes later than this many seconds is lost; infinite for none.
    pub timeout_seconds: f64,
    /// Standard deviation of a scrape's instant, seconds.
    pub wobble_seconds: f64,
    /// Every series is there from the start; else it appears with its first request.
    pub lazy: bool,
    /// Restarts of targets, at which their counters begin again.
    pub restarts: Vec<Restart>,
    /// Seconds between two updates of what the exporter shows; 0 for at once.
    pub flush_seconds: f64,
    /// Share of samples that arrive twice.
    pub duplicated: f64,
    /// Share of samples that arrive after their successor.
    pub out_of_order: f64,
    /// Jumps of the scraper's clock, `(seconds, by)`.
    pub clock_jumps: Vec<(f64, f64)>,
    /// A second scraper.
    pub replicas: Replicas,
    /// Also counts retries and calls, as some client libraries do.
    pub retry_counters: bool,
    /// How unlike the targets are: their weights spread over `[1 - s, 1 + s]`.
    pub weight_spread: f64,
}

/// Whether the scraper has a twin.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Replicas {
    /// It has none.
    One,
    /// Two, told apart by the label `replica`.
    Labelled,
    /// Two behind a layer that shows one at a time and flips between them.
    Flipping {
        /// Mean seconds from one flip to the next.
        every_seconds: f64,
    },
}

/// Targets that start again.
#[derive(Debug, Clone, PartialEq)]
pub struct Restart {
    /// When the first one restarts, seconds.
    pub at_seconds: f64,
    /// Seconds from one target to the next.
    pub stagger_seconds: f64,
    /// Share of the targets that restart.
    pub share: f64,
    /// Seconds a target is away; its traffic goes to the others.
    pub down_seconds: f64,
    /// Whether it comes back under a new `instance`.
    pub renamed: bool,
    /// Seconds to the next restart of this kind; infinite for once only.
    pub every_seconds: f64,
}

/// What is right to say of a scenario; the simulation does not use it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Expect {
    /// Classes that are right; empty for silence only.
    pub accept: Vec<String>,
    /// Whether saying nothing is right too.
    pub silence: bool,
    /// The first failure, seconds, where there is one.
    pub onset_seconds: Option<f64>,
    /// Why, in a sentence.
    pub why: String,
    /// Where the numbers come from.
    pub source: Option<String>,
}

impl Scenario {
    /// An empty world of this name and length.
    #[must_use]
    pub fn new(name: &str, duration_seconds: f64) -> Self {
        Self {
            name: name.to_owned(),
            about: String::new(),
            duration_seconds,
            start_unix_seconds: START_UNIX_SECONDS,
            clients: Vec::new(),
            dependencies: Vec::new(),
            scrape: ScrapePlan::default(),
            expect: Expect::default(),
        }
    }

    /// Adds a dependency and returns its index.
    pub fn dependency(&mut self, plan: DependencyPlan) -> usize {
        self.dependencies.push(plan);
        self.dependencies.len() - 1
    }

    /// Adds a population and returns its index.
    pub fn population(&mut self, population: Population) -> usize {
        self.clients.push(population);
        self.clients.len() - 1
    }
}

impl DependencyPlan {
    /// A dependency without limits that answers in 20 ms.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            latency_seconds: 0.02,
            refusal_seconds: 0.02,
            error_share: 0.0,
            error_code: 503,
            capacity: f64::INFINITY,
            replicas: 1,
            queue_seconds: 0.5,
            capacity_changes: Vec::new(),
            knock_down: None,
            shed: None,
            faults: Vec::new(),
            contention: None,
            calls: None,
        }
    }
}

impl Fault {
    /// Every request is refused in this time.
    #[must_use]
    pub fn outage(from_seconds: f64, for_seconds: f64) -> Self {
        Self {
            kind: FaultKind::Refuse { retry_after_seconds: None },
            from_seconds,
            for_seconds,
            every_seconds: f64::INFINITY,
            share: 1.0,
            share_end: 1.0,
            hits: Vec::new(),
        }
    }
}

impl Population {
    /// A steady stream of `rate` calls per second that does not retry.
    #[must_use]
    pub fn stream(name: &str, to: usize, rate: f64) -> Self {
        Self {
            name: name.to_owned(),
            job: "shop".to_owned(),
            to,
            calls: Calls::Stream {
                profile: vec![(0.0, rate)],
                dispersion: 1.0,
                correlation_seconds: 30.0,
                daily: 0.0,
            },
            retry: RetryPolicy::none(),
            timeout_seconds: f64::INFINITY,
            guard: Guard::default(),
        }
    }

    /// `size` clients that call together once, then follow the policy.
    #[must_use]
    pub fn burst(
        name: &str,
        to: usize,
        size: usize,
        at_seconds: f64,
        within_seconds: f64,
        retry: RetryPolicy,
    ) -> Self {
        Self {
            calls: Calls::Burst {
                size,
                at_seconds,
                within_seconds,
                every_seconds: f64::INFINITY,
                times: 1,
            },
            retry,
            ..Self::stream(name, to, 0.0)
        }
    }
}

impl Default for ScrapePlan {
    fn default() -> Self {
        Self {
            interval_seconds: 15.0,
            targets: 4,
            scale: Vec::new(),
            missed: 0.0,
            holes: Vec::new(),
            late: 0.0,
            timeout_seconds: f64::INFINITY,
            wobble_seconds: 0.002,
            lazy: false,
            restarts: Vec::new(),
            flush_seconds: 0.0,
            duplicated: 0.0,
            out_of_order: 0.0,
            clock_jumps: Vec::new(),
            replicas: Replicas::One,
            retry_counters: false,
            weight_spread: 0.1,
        }
    }
}
