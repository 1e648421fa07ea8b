//! What jitter would have made of a herd that was seen.
//!
//! An engineer who reads "add jitter" asks what it would have changed. The herd is run again, as
//! fitted, once as it was and once with full jitter, and the smallest spread of a single wait that
//! keeps the peak under a target is found by halving.
//!
//! # Method
//!
//! Not the whole world: expected numbers on a grid of instants, so that the answer takes a
//! millisecond and has no luck in it. With `c_n` the clients that make the n-th retry and `d_n` its
//! wait, the density of the n-th instants is the convolution of the waits' densities:
//!
//! ```text
//! none   p_n(t) = p_{n-1}(t - d_n)
//! full   p_n(t) = (1 / d_n) * integral of p_{n-1} over (t - d_n, t)
//! ```
//!
//! and the load is `sum of c_n p_n(t)`. The peak is the largest number in one second.

/// Cells of the grid for each second; its width is the finest spread told apart.
const CELLS_PER_SECOND: f64 = 10.0;

/// Longest span that is looked at, seconds: the herd is at its densest long before.
const SPAN_SECONDS_MAX: f64 = 400.0;

/// Halvings of the search for the window: to a thousandth of the widest.
const HALVINGS: u32 = 12;

/// A herd as it was fitted.
#[derive(Debug, Clone, PartialEq)]
pub struct Herd {
    /// Clients that made each retry, the first retry first; may shrink, never grow.
    pub clients: Vec<f64>,
    /// The wait before each, seconds, latency included; as many.
    pub waits_seconds: Vec<f64>,
    /// Requests per second of the other traffic.
    pub background_rate: f64,
}

impl Herd {
    /// The herd of `size` clients on `min(cap, base * factor^n)`, of whom all stay for `waves` waves,
    /// but for those that a capacity lets through in each: `admitted`.
    #[must_use]
    pub fn exponential(
        size: f64,
        base_seconds: f64,
        factor: f64,
        cap_seconds: Option<f64>,
        waves: usize,
        admitted: f64,
        background_rate: f64,
    ) -> Self {
        let cap = cap_seconds.unwrap_or(f64::INFINITY);
        let (mut wait, mut left) = (base_seconds, size);
        let (mut clients, mut waits_seconds) = (Vec::new(), Vec::new());
        for _ in 0..waves {
            clients.push(left);
            waits_seconds.push(wait.min(cap));
            wait = (wait * factor).min(cap);
            left = (left - admitted).max(0.0);
        }
        Self { clients, waits_seconds, background_rate }
    }
}

/// What would have been.
#[derive(Debug, Clone, PartialEq)]
pub struct Counterfactual {
    /// The highest requests in one second as it was.
    pub peak_without_jitter: f64,
    /// The same with full jitter. A first wait of a second or less spreads its wave over no more
    /// than that second, so that this may be no lower than the peak in step.
    pub peak_with_full_jitter: f64,
    /// The densest second of each wave by itself, in step and with full jitter: how the later waves
    /// melt.
    pub waves: Vec<[f64; 2]>,
    /// The spread of the first wait, `U(0, window)` on top of it, that keeps the peak under the
    /// target, seconds; none when the background alone is above it or no window is enough.
    pub window_seconds: Option<f64>,
}

/// Runs the herd again: as it was, with full jitter, and for the window that keeps the peak under
/// `target_peak` requests per second.
///
/// ```
/// use squall::sim::counterfactual::{Herd, counterfactual};
///
/// // 2,000 clients on 1, 2, 4, 8 s, all refused: full height at every wave.
/// let herd = Herd::exponential(2000.0, 1.0, 2.0, Some(32.0), 5, 0.0, 50.0);
/// let other = counterfactual(&herd, 300.0);
/// assert!((other.peak_without_jitter - 2050.0).abs() < 1.0);
/// // Full jitter spreads the third wave over its four seconds.
/// assert!(other.waves[2][1] < 520.0 && other.waves[2][0] > 1999.0);
/// // 2,000 clients at 250 a second take 8 s.
/// assert!(other.window_seconds.is_some_and(|window| (6.0..20.0).contains(&window)));
/// ```
#[must_use]
pub fn counterfactual(herd: &Herd, target_peak: f64) -> Counterfactual {
    let added = |window: f64| peak_of(herd, &|wait| (wait, wait + window)).0;
    let widest = herd.clients.first().copied().unwrap_or(0.0)
        / (target_peak - herd.background_rate).max(f64::MIN_POSITIVE)
        * 2.0
        + 1.0;
    let widest = widest.min(SPAN_SECONDS_MAX / 4.0);
    let reachable = target_peak > herd.background_rate && added(widest) <= target_peak;
    let window_seconds = reachable.then(|| {
        let (mut low, mut high) = (0.0, widest);
        for _ in 0..HALVINGS {
            let middle = 0.5 * (low + high);
            if added(middle) <= target_peak {
                high = middle;
            } else {
                low = middle;
            }
        }
        high
    });
    let (peak_without_jitter, in_step) = peak_of(herd, &|wait| (wait, wait));
    let (peak_with_full_jitter, spread) = peak_of(herd, &|wait| (0.0, wait));
    Counterfactual {
        peak_without_jitter,
        peak_with_full_jitter,
        waves: in_step.into_iter().zip(spread).map(|(a, b)| [a, b]).collect(),
        window_seconds,
    }
}

/// The largest number of requests in one second when each wait is uniform over `spread(wait)`, and
/// that of each wave by itself.
fn peak_of(herd: &Herd, spread: &dyn Fn(f64) -> (f64, f64)) -> (f64, Vec<f64>) {
    let spans: Vec<(f64, f64)> = herd.waits_seconds.iter().map(|wait| spread(*wait)).collect();
    let total: f64 = spans.iter().map(|(_, high)| high).sum();
    let cells = (total.min(SPAN_SECONDS_MAX) * CELLS_PER_SECOND) as usize + 2;
    let mut share = vec![0.0; cells];
    share[0] = 1.0;
    let mut load = vec![0.0; cells];
    let mut waves = Vec::new();
    for ((low, high), clients) in spans.iter().zip(&herd.clients) {
        share = convolved(&share, *low, *high);
        waves.push(clients * densest_second(&share));
        for (sum, part) in load.iter_mut().zip(&share) {
            *sum += clients * part;
        }
    }
    (densest_second(&load) + herd.background_rate, waves)
}

fn densest_second(load: &[f64]) -> f64 {
    let second = CELLS_PER_SECOND as usize;
    let (mut sum, mut most) = (0.0, 0.0_f64);
    for cell in 0..load.len() {
        sum += load[cell];
        if cell >= second {
            sum -= load[cell - second];
        }
        most = most.max(sum);
    }
    most
}

/// The density after one more wait that is uniform over `low..high`, by a running sum.
fn convolved(share: &[f64], low: f64, high: f64) -> Vec<f64> {
    let first = (low * CELLS_PER_SECOND).round() as usize;
    let last = ((high * CELLS_PER_SECOND).round() as usize).max(first);
    let width = (last - first + 1) as f64;
    let mut sums = Vec::with_capacity(share.len() + 1);
    let mut sum = 0.0;
    sums.push(sum);
    for part in share {
        sum += part;
        sums.push(sum);
    }
    (0..share.len())
        .map(|cell| {
            let upper = (cell + 1).saturating_sub(first);
            let lower = cell.saturating_sub(last);
            (sums[upper] - sums[lower.min(upper)]) / width
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::policy::{Jitter, RetryPolicy};
    use super::super::run;
    use super::super::scenario::{DependencyPlan, Fault, Population, Scenario};
    use super::*;

    #[test]
    fn the_short_cut_agrees_with_the_simulation() {
        let mut scenario = Scenario::new("herd", 120.0);
        let faults = vec![Fault::outage(10.0, 500.0)];
        scenario.dependency(DependencyPlan { faults, ..DependencyPlan::new("payments") });
        let policy = RetryPolicy::exponential(2.0, 2.0, 32.0, 5, Jitter::Full);
        scenario.population(Population::burst("herd", 0, 2_000, 10.0, 0.01, policy));
        let truth = run(&scenario, 1).truth;
        let line = truth.timeline("payments").cloned().unwrap_or_default();
        // The first attempts are all in second 10 and not part of the retries.
        let simulated = line.iter().skip(11).map(|(_, row)| row.attempts).max().unwrap_or(0);
        let herd = Herd::exponential(2_000.0, 2.0, 2.0, Some(32.0), 5, 0.0, 0.0);
        let expected = counterfactual(&herd, 500.0).peak_with_full_jitter;
        // Fixed seconds against any second, and 3 standard deviations of a count of 1,300.
        assert!((f64::from(simulated) / expected - 1.0).abs() < 0.12, "{simulated} {expected}");
    }

    #[test]
    fn a_herd_that_no_window_can_spread_gets_none() {
        let herd = Herd::exponential(100.0, 1.0, 2.0, None, 4, 10.0, 50.0);
        assert_eq!(counterfactual(&herd, 40.0).window_seconds, None);
        let spread = counterfactual(&herd, 60.0);
        assert!(spread.window_seconds.is_some_and(|window| window > 1.0), "{spread:?}");
        assert!(spread.waves[3][1] < 0.4 * spread.waves[3][0], "{spread:?}");
    }

    #[test]
    fn an_empty_herd_is_the_background() {
        let herd = Herd { clients: vec![], waits_seconds: vec![], background_rate: 7.0 };
        let other = counterfactual(&herd, 10.0);
        assert!((other.peak_without_jitter - 7.0).abs() < 1e-9);
        assert_eq!(other.window_seconds.map(|window| window < 0.01), Some(true));
    }
}
