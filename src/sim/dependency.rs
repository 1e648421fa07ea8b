//! What a dependency answers, settled when the request arrives.
//!
//! A server's queue is one number, the instant until which it is busy: a request that arrives now
//! waits until then, and moves it on by its own service time. Work for a client that has meanwhile
//! given up is done all the same, which is how goodput collapses under timeouts.

use super::random::Draws;
use super::scenario::{DependencyPlan, Fault, FaultKind};

/// Microseconds in a second.
pub(super) const MICROS: f64 = 1_000_000.0;

/// An instant or a length in microseconds from a length in seconds; infinite is the largest.
pub(super) fn micros(seconds: f64) -> u64 {
    (seconds * MICROS).round() as u64
}

/// Seconds from microseconds.
pub(super) fn seconds(micros: u64) -> f64 {
    micros as f64 / MICROS
}

/// What a request gets.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Answer {
    /// Microseconds until it comes; `u64::MAX` for never.
    pub(super) after: u64,
    /// The code: 200 or that of a failure.
    pub(super) code: u16,
    /// `Retry-After`, seconds.
    pub(super) retry_after: Option<f64>,
}

impl Answer {
    pub(super) fn is_ok(&self) -> bool {
        self.code == OK
    }
}

/// The code of success.
pub(super) const OK: u16 = 200;

/// The code a client counts when it gave up waiting.
pub(super) const TIMED_OUT: u16 = 504;

/// The code of a write that came too late.
pub(super) const CONFLICT: u16 = 409;

/// A bucket that fills at `rate` up to `burst`.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    rate: f64,
    burst: f64,
    level: f64,
    at: f64,
}

impl Bucket {
    fn new(rate: f64, burst: f64) -> Self {
        Self { rate, burst, level: burst, at: 0.0 }
    }

    /// Takes one if there is one.
    fn take(&mut self, now: f64) -> bool {
        self.level = (self.level + (now - self.at) * self.rate).min(self.burst);
        self.at = now;
        let granted = self.level >= 1.0;
        if granted {
            self.level -= 1.0;
        }
        granted
    }
}

/// A dependency in progress.
#[derive(Debug, Clone)]
pub(super) struct Dependency {
    pub(super) plan: DependencyPlan,
    capacity: f64,
    next_change: usize,
    /// Until when each replica is busy, seconds.
    busy_until: Vec<f64>,
    knock: Option<Bucket>,
    shed: Option<Bucket>,
    down_until: f64,
    /// Version of the contended record.
    pub(super) version: u64,
    draws: Draws,
}

impl Dependency {
    pub(super) fn new(plan: &DependencyPlan, draws: Draws) -> Self {
        Self {
            capacity: plan.capacity,
            next_change: 0,
            busy_until: vec![0.0; plan.replicas.max(1)],
            knock: plan.knock_down.map(|k| Bucket::new(k.rate, k.burst)),
            shed: plan.shed.map(|s| Bucket::new(s.rate, s.burst)),
            down_until: f64::NEG_INFINITY,
            version: 0,
            plan: plan.clone(),
            draws,
        }
    }

    /// One trip over the network of a contended dependency, microseconds.
    pub(super) fn trip(&mut self) -> u64 {
        let Some(contention) = self.plan.contention else { return 0 };
        micros(
            (contention.trip_mean_seconds + contention.trip_sd_seconds * self.draws.normal()).abs(),
        )
    }

    /// Answers a request of `population` that arrives at `now`.
    pub(super) fn answer(&mut self, now: u64, population: usize) -> Answer {
        let at = seconds(now);
        let mut slower = 1.0;
        for index in 0..self.plan.faults.len() {
            let fault = &self.plan.faults[index];
            let Some((share, ends_in)) = active(fault, at) else { continue };
            if !fault.hits.is_empty() && !fault.hits.contains(&population) {
                continue;
            }
            let kind = fault.kind;
            if share < 1.0 && !self.draws.chance(share) {
                continue;
            }
            match kind {
                FaultKind::Refuse { retry_after_seconds } => {
                    return self.refusal(self.plan.error_code, retry_after_seconds);
                }
                FaultKind::BlackHole => {
                    return Answer { after: u64::MAX, code: TIMED_OUT, retry_after: None };
                }
                FaultKind::Hold => {
                    let after = micros(ends_in + self.latency());
                    return Answer { after, code: OK, retry_after: None };
                }
                FaultKind::Slow { factor } => slower *= factor,
            }
        }
        if let (Some(bucket), Some(knock)) = (&mut self.knock, self.plan.knock_down) {
            let stands = bucket.take(at);
            if at >= self.down_until && !stands {
                self.down_until = at + knock.down_seconds;
            }
            if at < self.down_until {
                return self.refusal(self.plan.error_code, None);
            }
        }
        if let (Some(bucket), Some(shed)) = (&mut self.shed, self.plan.shed)
            && !bucket.take(at)
        {
            return self.refusal(shed.code, shed.retry_after_seconds);
        }
        let Some(wait) = self.queue(at, slower) else {
            return self.refusal(self.plan.error_code, None);
        };
        let after = micros(wait + self.latency() * slower);
        let failed = self.plan.error_share > 0.0 && self.draws.chance(self.plan.error_share);
        let code = if failed { self.plan.error_code } else { OK };
        Answer { after, code, retry_after: None }
    }

    /// Seconds to wait for a server, or none when the queue is full.
    fn queue(&mut self, at: f64, slower: f64) -> Option<f64> {
        while let Some((when, capacity)) = self.plan.capacity_changes.get(self.next_change) {
            if *when > at {
                break;
            }
            self.capacity = *capacity;
            self.next_change += 1;
        }
        if self.capacity.is_infinite() {
            return Some(0.0);
        }
        let replicas = self.busy_until.len();
        let replica = if replicas > 1 { self.draws.below(replicas) } else { 0 };
        let service = slower * replicas as f64 / self.capacity;
        let starts_at = self.busy_until[replica].max(at);
        if starts_at - at > self.plan.queue_seconds {
            return None;
        }
        self.busy_until[replica] = starts_at + service;
        Some(starts_at - at)
    }

    /// A floor and an exponential tail, as service times have.
    fn latency(&mut self) -> f64 {
        self.plan.latency_seconds * (0.7 + self.draws.exponential(0.3))
    }

    fn refusal(&mut self, code: u16, retry_after: Option<f64>) -> Answer {
        let after = micros(self.plan.refusal_seconds * (0.9 + 0.2 * self.draws.uniform()));
        Answer { after, code, retry_after }
    }
}

/// The share a fault hits at this instant and the seconds until it ends, while it lasts.
fn active(fault: &Fault, at: f64) -> Option<(f64, f64)> {
    let since = at - fault.from_seconds;
    if since < 0.0 {
        return None;
    }
    let into = if fault.every_seconds.is_finite() { since % fault.every_seconds } else { since };
    if into >= fault.for_seconds {
        return None;
    }
    let share = fault.share + (fault.share_end - fault.share) * into / fault.for_seconds;
    Some((share, fault.for_seconds - into))
}

#[cfg(test)]
mod tests {
    use super::super::scenario::{KnockDown, Shed};
    use super::*;

    fn served(dependency: &mut Dependency, requests: usize, from: f64, gap: f64) -> usize {
        (0..requests)
            .filter(|i| dependency.answer(micros(from + gap * *i as f64), 0).is_ok())
            .count()
    }

    #[test]
    fn a_full_queue_refuses_what_it_cannot_serve_in_time() {
        let plan =
            DependencyPlan { capacity: 100.0, queue_seconds: 0.5, ..DependencyPlan::new("d") };
        let mut dependency = Dependency::new(&plan, Draws::new(1, 1));
        // A thousand at once: the queue holds half a second of work, and the one in service.
        let through = served(&mut dependency, 1_000, 1.0, 0.0);
        assert!((50..=51).contains(&through), "{through}");
        // Ten seconds at twice the capacity: half get through, and what the queue still held.
        let through = served(&mut dependency, 2_000, 20.0, 0.005);
        assert!((1_000..1_060).contains(&through), "{through}");
    }

    #[test]
    fn a_wave_knocks_it_down_and_a_trickle_does_not() {
        let knock_down = Some(KnockDown { rate: 50.0, burst: 20.0, down_seconds: 2.0 });
        let plan = DependencyPlan { knock_down, ..DependencyPlan::new("d") };
        let mut dependency = Dependency::new(&plan, Draws::new(1, 1));
        assert_eq!(served(&mut dependency, 100, 1.0, 0.05), 100);
        assert_eq!(served(&mut dependency, 100, 10.0, 0.0), 20);
        assert_eq!(served(&mut dependency, 1, 11.9, 0.0), 0);
        assert_eq!(served(&mut dependency, 1, 12.1, 0.0), 1);
    }

    #[test]
    fn shedding_tells_when_to_come_back() {
        let shed = Shed { rate: 1.0, burst: 3.0, code: 429, retry_after_seconds: Some(5.0) };
        let plan = DependencyPlan { shed: Some(shed), ..DependencyPlan::new("d") };
        let mut dependency = Dependency::new(&plan, Draws::new(1, 1));
        assert_eq!(served(&mut dependency, 10, 1.0, 0.0), 3);
        let answer = dependency.answer(micros(1.0), 0);
        assert_eq!((answer.code, answer.retry_after), (429, Some(5.0)));
    }

    #[test]
    fn a_fault_hits_its_share_of_its_populations_while_it_lasts() {
        let fault =
            Fault { share: 0.8, share_end: 0.2, hits: vec![1], ..Fault::outage(10.0, 10.0) };
        let plan = DependencyPlan { faults: vec![fault], ..DependencyPlan::new("d") };
        let mut dependency = Dependency::new(&plan, Draws::new(1, 1));
        let mut failures = |population, from: f64| {
            (0..1000)
                .filter(|i| {
                    let at = micros(from + f64::from(*i) * 0.001);
                    !dependency.answer(at, population).is_ok()
                })
                .count()
        };
        assert_eq!((failures(0, 10.0), failures(1, 9.0), failures(1, 20.0)), (0, 0, 0));
        let (early, late) = (failures(1, 10.0), failures(1, 19.0));
        assert!((720..820).contains(&early) && (190..270).contains(&late), "{early} {late}");
    }
}
