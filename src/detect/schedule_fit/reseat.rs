//! Other waits for the same waves: what a local search cannot reach.
//!
//! The counts say where the waves are, and many schedules put them nearly there: a longer base with a
//! smaller factor, a longer latency with a shorter base, an earlier onset with a longer first wait.
//! Between two of them lies a ridge of likelihood that no walk along single parameters crosses. So
//! the usual schedules are laid over the found waves by least squares,
//!
//! ```text
//! minimise over onset o and latency l >= 0:   sum_n h_n * (p_n - o - S_n - n*l)^2
//! ```
//!
//! with `p_n` the found start of wave n, `h_n` its height and `S_n` the sum of the candidate's first n
//! waits; where the base is free it is the third unknown. The first waves are often closer together
//! than the sampling can tell, so a candidate may also have one or two waves more, or one fewer,
//! before the second that was found. Those that leave the waves in place go on to the likelihood.

use super::search::{BASE_MIN, FACTORS, ROUND, Scored, Search, price};
use super::train::{Growth, Train};

/// Candidates that get a likelihood.
const SEATED: usize = 60;
/// Candidates that are given back.
const KEPT: usize = 24;
/// How far off the waves of a candidate may be, in effective steps and widths.
const OFF_MAX: f64 = 1.0;
/// What waves that are off by one unit of that are expected to lose, in deviance.
const MISPLACED_PRICE: f64 = 8.0;
/// Latencies beyond this are no attempt's.
const LATENCY_MAX: f64 = 2.0;

/// Waves that a candidate may have before the second one found, beside those found.
const SHIFTS: [isize; 4] = [0, 1, 2, -1];

/// A wave that was found: which retry it is taken for, its start and its height.
#[derive(Debug, Clone, Copy)]
struct Stand {
    retry: usize,
    start: f64,
    height: f64,
}

impl Search<'_> {
    /// The usual schedules whose waves stand where those of `train` do, the cheapest first.
    pub(super) fn reseated(&mut self, train: &Train, iterations: usize) -> Vec<Scored> {
        let stands = self.stands(train, iterations);
        if stands.len() < 2 || train.growth != Growth::Exponential || train.factor <= 1.0 {
            return Vec::new();
        }
        let scale = self.window.effective_step().max(0.05) + 0.5 * train.width;
        let mut caps = vec![f64::INFINITY];
        if train.cap.is_finite() {
            caps.push(train.cap);
            caps.extend(ROUND.into_iter().filter(|cap| (cap / train.cap).ln().abs() < 0.12));
        }
        // What a candidate can be expected to cost: its price, and what its misplaced waves lose.
        let mut candidates: Vec<(f64, Train)> = Vec::new();
        for factor in FACTORS.into_iter().filter(|factor| *factor > 1.0) {
            for &cap in &caps {
                let shape = Train { factor, cap, ..*train };
                for shift in SHIFTS {
                    let stands = shifted(&stands, shift);
                    let free = solve_base(&stands, &shape);
                    let bases = ROUND.into_iter().chain(free).filter(|base| *base >= BASE_MIN);
                    for base in bases {
                        let Some(seated) = seat(&stands, &Train { base, ..shape }) else {
                            continue;
                        };
                        let off = misplaced(&stands, &seated);
                        if off <= OFF_MAX * scale {
                            let lost = MISPLACED_PRICE * (off / scale).powi(2);
                            candidates.push((self.misfit * price(&seated) + lost, seated));
                        }
                    }
                }
            }
        }
        candidates.sort_by(|a, b| a.0.total_cmp(&b.0));
        candidates.truncate(SEATED);
        let mut scored: Vec<Scored> = candidates
            .into_iter()
            .map(|(_, train)| Scored { train, cost: self.cost(&train, iterations) })
            .filter(|scored| scored.cost.is_finite())
            .collect();
        scored.sort_by(|a, b| a.cost.total_cmp(&b.cost));
        scored.truncate(KEPT);
        scored
    }

    /// Where the waves of a train that hold anything stand.
    fn stands(&mut self, train: &Train, iterations: usize) -> Vec<Stand> {
        self.cost(train, iterations);
        let mut stands = Vec::new();
        let heights = &self.solver.heights;
        train.waves(self.window.horizon, self.lists, |wave, start, _, _| {
            let height = heights.get(wave).copied().unwrap_or(0.0);
            if height > 0.0 {
                stands.push(Stand { retry: wave, start, height });
            }
        });
        stands
    }
}

/// The waves found, taken for later or earlier retries; the failure itself is then left out, as it
/// stands among waves that were not told apart.
fn shifted(stands: &[Stand], shift: isize) -> Vec<Stand> {
    if shift == 0 {
        return stands.to_vec();
    }
    stands
        .iter()
        .filter(|stand| stand.retry > 0)
        .filter_map(|stand| {
            let retry = stand.retry.checked_add_signed(shift)?;
            Some(Stand { retry, ..*stand })
        })
        .collect()
}

/// The sum of a schedule's waits up to each of the waves.
fn sums(train: &Train, stands: &[Stand]) -> Vec<f64> {
    let (mut sum, mut done) = (0.0, 0);
    stands
        .iter()
        .map(|stand| {
            while done < stand.retry {
                done += 1;
                sum += train.wait(done, &[]).unwrap_or(0.0);
            }
            sum
        })
        .collect()
}

/// A straight line by least squares: its level at 0 and its slope; no slope without two places.
fn line(points: impl Iterator<Item = (f64, f64, f64)>) -> Option<(f64, Option<f64>)> {
    let points: Vec<(f64, f64, f64)> = points.collect();
    let (mut weight, mut mean_x, mut mean_y) = (0.0, 0.0, 0.0);
    for &(x, y, w) in &points {
        weight += w;
        mean_x += w * x;
        mean_y += w * y;
    }
    if weight <= 0.0 {
        return None;
    }
    (mean_x, mean_y) = (mean_x / weight, mean_y / weight);
    let (mut along, mut square) = (0.0, 0.0);
    for (x, y, w) in points {
        along += w * (x - mean_x) * (y - mean_y);
        square += w * (x - mean_x) * (x - mean_x);
    }
    let slope = (square > 0.0).then(|| along / square);
    Some((mean_y - slope.unwrap_or(0.0) * mean_x, slope))
}

/// The train with the onset and the latency that leave the waves in place.
fn seat(stands: &[Stand], train: &Train) -> Option<Train> {
    let sums = sums(train, stands);
    let points = stands
        .iter()
        .zip(&sums)
        .map(|(stand, sum)| (stand.retry as f64, stand.start - sum, stand.height));
    let (_, slope) = line(points.clone())?;
    let latency = slope.unwrap_or(0.0).clamp(0.0, LATENCY_MAX.min(train.base));
    let (mut onset, mut weight) = (0.0, 0.0);
    for (retry, rest, height) in points {
        onset += height * (rest - latency * retry);
        weight += height;
    }
    Some(Train { latency, onset: onset / weight, ..*train })
}

/// The base that leaves the waves in place best, at the latency of the train: Gauss and Newton's
/// steps, since a cap makes the sums bend.
fn solve_base(stands: &[Stand], train: &Train) -> Option<f64> {
    let mut base = train.base;
    for _ in 0..6 {
        let shape = Train { base, ..*train };
        // How fast each sum grows with the base: only waits under the cap do.
        let under = Train { cap: f64::INFINITY, base: 1.0, ..*train };
        let growth: Vec<f64> = stands
            .iter()
            .map(|stand| {
                (1..=stand.retry)
                    .filter_map(|retry| under.wait(retry, &[]))
                    .filter(|wait| wait * base < train.cap)
                    .sum()
            })
            .collect();
        let points =
            stands.iter().zip(sums(&shape, stands)).zip(&growth).map(|((stand, sum), growth)| {
                let rest = stand.start - stand.retry as f64 * train.latency - sum;
                (*growth, rest + growth * base, stand.height)
            });
        let (_, slope) = line(points)?;
        base = slope?.clamp(BASE_MIN, (train.cap / 1.03).max(BASE_MIN));
    }
    Some(base)
}

/// Root mean square distance of a train's waves from where the waves stand, seconds.
fn misplaced(stands: &[Stand], train: &Train) -> f64 {
    let sums = sums(train, stands);
    let (mut sum, mut weight) = (0.0, 0.0);
    for (stand, waits) in stands.iter().zip(&sums) {
        let off = stand.start - train.onset - waits - stand.retry as f64 * train.latency;
        sum += stand.height * off * off;
        weight += stand.height;
    }
    (sum / weight).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn train(base: f64, factor: f64, latency: f64, onset: f64) -> Train {
        Train {
            growth: Growth::Exponential,
            onset,
            width: 0.3,
            base,
            factor,
            cap: f64::INFINITY,
            latency,
            spread: 0.0,
            drain: 0.0,
        }
    }

    fn stands_of(train: &Train, waves: usize) -> Vec<Stand> {
        let mut stands = Vec::new();
        train.waves(f64::MAX, &[], |retry, start, _, _| {
            if retry < waves {
                stands.push(Stand { retry, start, height: 100.0 / (retry + 1) as f64 });
            }
        });
        stands
    }

    #[test]
    fn onset_and_latency_are_read_off_the_waves() {
        let truth = train(1.0, 2.0, 0.2, 0.4);
        let seated = seat(&stands_of(&truth, 6), &train(1.0, 2.0, 0.0, 0.0)).expect("six waves");
        assert!((seated.latency - 0.2).abs() < 1e-9 && (seated.onset - 0.4).abs() < 1e-9);
        assert!(misplaced(&stands_of(&truth, 6), &seated) < 1e-9);
    }

    #[test]
    fn another_factor_cannot_be_seated_on_six_waves() {
        let truth = train(1.0, 2.0, 0.2, 0.4);
        let seated = seat(&stands_of(&truth, 6), &train(1.0, 1.6, 0.0, 0.0)).expect("six waves");
        assert!(misplaced(&stands_of(&truth, 6), &seated) > 1.0);
    }

    #[test]
    fn a_wave_that_was_not_told_apart_is_put_back() {
        let truth = train(1.0, 2.0, 0.2, 0.4);
        let mut seen = stands_of(&truth, 6);
        seen.remove(1);
        for (retry, stand) in seen.iter_mut().enumerate() {
            stand.retry = retry;
        }
        let seated = seat(&shifted(&seen, 1), &train(1.0, 2.0, 0.0, 0.0)).expect("four waves");
        assert!((seated.latency - 0.2).abs() < 1e-9 && (seated.onset - 0.4).abs() < 1e-9);
    }

    #[test]
    fn a_capped_base_is_solved() {
        let truth = Train { cap: 8.0, ..train(0.47, 2.0, 0.2, 0.4) };
        let start = Train { base: 0.6, ..truth };
        let base = solve_base(&stands_of(&truth, 9), &start).expect("nine waves");
        assert!((base - 0.47).abs() < 0.01, "{base}");
    }
}
