//! What is kept around an incident so that it can be drawn: the counts, the baseline, the
//! autocorrelation and the spectrum.
//!
//! A verdict says what is believed; this is what it was believed from, cut out of the history while
//! that is still there. The samples in the Prometheus beside us may be gone in two weeks, and an
//! incident is read years later.
//!
//! The head of a storm is kept as it was scraped. A long one goes on for hours in which nothing new
//! is to be seen, so behind the first three thousand intervals successive ones of one target are
//! joined; counts are never lost by it, only instants.

use crate::detect::baseline::Baseline;
use crate::detect::even::{Count, EvenResiduals, median};
use crate::detect::resolution::Resolution;
use crate::detect::spectrum::Spectrum;
use crate::incident::{Incident, IncidentId};
use crate::series::{Interval, Timestamp};

/// Intervals kept as they were scraped.
const RAW_MAX: usize = 3000;
/// Intervals kept of what comes behind those, joined as far as that takes.
const JOINED_MAX: usize = 3000;
/// Scrape cycles of normal traffic kept before the first failure.
const LEAD_CYCLES: f64 = 12.0;
/// Shortest and longest time kept before the first failure, seconds.
const LEAD_SECONDS: [f64; 2] = [20.0, 300.0];
/// Scrape cycles kept after the end.
const TAIL_CYCLES: f64 = 6.0;
/// Failures from which on their autocorrelation tells more than that of the requests.
const ERRORS_MIN: f64 = 30.0;
/// Points of a curve; more than a screen has columns shows nothing.
const POINTS_MAX: usize = 400;
/// Longest lag of the correlogram, seconds: waits beyond two minutes are rare.
const LAG_SECONDS_MAX: f64 = 130.0;
/// Longest lag as a share of the window: beyond it too few pairs are left.
const LAG_SHARE_MAX: f64 = 1.0 / 3.0;
/// The scaled MAD is 1.4826 times the MAD (1 / Phi^-1(3/4)); 1.96 of it hold 95 % of normal noise.
const BAND_MADS: f64 = 1.96 * 1.4826;

/// What is kept around one incident.
#[derive(Debug, Clone, PartialEq)]
pub struct Around {
    /// Whose it is.
    pub incident: IncidentId,
    /// The newest sample in it.
    pub at: Timestamp,
    /// Per-target increments, in the order of their ends.
    pub increments: Vec<Interval>,
    /// What normal traffic was, and how finely it can be seen.
    pub model: Model,
    /// The autocorrelation, where there is enough to take one of.
    pub correlogram: Option<Correlogram>,
    /// The spectrum, where there is enough to take one of.
    pub spectrum: Option<PowerCurve>,
}

/// Normal traffic as it was learned, and the sampling.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// Requests per second before the incident.
    pub rate: f64,
    /// Variance-to-mean ratio of the counts.
    pub dispersion: f64,
    /// Share of requests that fail in normal traffic.
    pub error_ratio: f64,
    /// Each target's share of the traffic, by target number.
    pub shares: Vec<f64>,
    /// Who calls, by target number; empty where the watch names no label of the caller.
    pub clients: Vec<String>,
    /// Seconds between two scrapes of one target.
    pub scrape_seconds: f64,
    /// Seconds between two scrapes of any target.
    pub step_seconds: f64,
    /// The shortest wait between two waves that can be told apart, seconds.
    pub gap_seconds: f64,
}

/// The autocorrelation of what is above the trend.
#[derive(Debug, Clone, PartialEq)]
pub struct Correlogram {
    /// Which counts.
    pub count: Count,
    /// Lag in seconds, autocorrelation. Lags under a scrape interval hold products of an interval
    /// with itself and are left out.
    pub points: Vec<(f64, f64)>,
    /// Half the width of the band that 95 % of the lags stay in: 1.96 times the scaled MAD over
    /// all lags, since `1.96 / sqrt(N)` is passed by 40 % of red noise.
    pub band: f64,
}

/// The power at each frequency beside that of the noise.
#[derive(Debug, Clone, PartialEq)]
pub struct PowerCurve {
    /// Which counts.
    pub count: Count,
    /// Frequency in hertz, power, and the level of the red noise there.
    pub points: Vec<(f64, f64, f64)>,
}

/// Cuts what is kept around `incident` out of `history`, which is in the order of arrival.
pub(super) fn cut<'a>(
    incident: &Incident,
    history: impl Iterator<Item = &'a Interval>,
    baseline: &Baseline,
    resolution: &Resolution,
) -> Option<Around> {
    let cycle = resolution.scrape_seconds;
    let started = incident.verdict.started_at;
    let lead = (LEAD_CYCLES * cycle).clamp(LEAD_SECONDS[0], LEAD_SECONDS[1]);
    let from = started.plus_seconds(-lead);
    let until = incident.ended_at.map(|ended| ended.plus_seconds(TAIL_CYCLES * cycle));
    let mut kept: Vec<Interval> = history
        .filter(|it| it.to > from && until.is_none_or(|until| it.from < until))
        .copied()
        .collect();
    kept.sort_by_key(|interval| (interval.to, interval.target));
    let at = kept.last()?.to;
    let failures: f64 = kept.iter().map(|interval| interval.errors).sum();
    let count = if failures >= ERRORS_MIN { Count::Errors } else { Count::Requests };
    let even = EvenResiduals::new(&kept, count).ok();
    Some(Around {
        incident: incident.id.clone(),
        at,
        correlogram: even.as_ref().and_then(|even| correlogram(even, count)),
        spectrum: even.as_ref().and_then(|even| power(even, count)),
        increments: thinned(kept),
        model: Model {
            rate: baseline.rate,
            dispersion: baseline.dispersion,
            error_ratio: baseline.error_ratio,
            shares: baseline.shares.clone(),
            clients: Vec::new(),
            scrape_seconds: cycle,
            step_seconds: resolution.step_seconds,
            gap_seconds: resolution.gap_seconds,
        },
    })
}

/// The intervals, those behind the first few thousand joined to longer ones of the same target.
fn thinned(mut intervals: Vec<Interval>) -> Vec<Interval> {
    if intervals.len() <= RAW_MAX + JOINED_MAX {
        return intervals;
    }
    let rest = intervals.split_off(RAW_MAX);
    let run = rest.len().div_ceil(JOINED_MAX);
    let targets = rest.iter().map(|it| it.target.0 as usize + 1).max().unwrap_or(0);
    let mut open: Vec<Option<(Interval, usize)>> = vec![None; targets];
    for interval in rest {
        let slot = &mut open[interval.target.0 as usize];
        *slot = Some(match slot.take() {
            // A gap stays a gap.
            Some((mut joined, parts)) if joined.to == interval.from && parts < run => {
                joined.to = interval.to;
                joined.requests += interval.requests;
                joined.errors += interval.errors;
                (joined, parts + 1)
            }
            Some((full, _)) => {
                intervals.push(full);
                (interval, 1)
            }
            None => (interval, 1),
        });
    }
    intervals.extend(open.into_iter().flatten().map(|(joined, _)| joined));
    intervals.sort_by_key(|interval| (interval.to, interval.target));
    intervals
}

fn correlogram(even: &EvenResiduals, count: Count) -> Option<Correlogram> {
    let step = even.step_seconds();
    let longest = LAG_SECONDS_MAX.min(even.span_seconds() * LAG_SHARE_MAX);
    let first = steps(even.interval_seconds() / step);
    let lags = steps(longest / step) + 1;
    let covariance = even.autocovariance(lags);
    let variance = *covariance.first()?;
    if variance <= 0.0 || lags <= first + 8 {
        return None;
    }
    let all: Vec<(f64, f64)> = (0..lags)
        .map(|lag| lag as f64 * step)
        .zip(covariance.iter().map(|value| value / variance))
        .skip(first)
        .collect();
    let mut sizes: Vec<f64> = all.iter().map(|(_, value)| value.abs()).collect();
    let band = BAND_MADS * median(&mut sizes);
    // Of each run of lags the one farthest from zero, so that no tooth is lost.
    let run = all.len().div_ceil(POINTS_MAX);
    let points = all
        .chunks(run)
        .filter_map(|chunk| chunk.iter().max_by(|a, b| a.1.abs().total_cmp(&b.1.abs())).copied())
        .collect();
    Some(Correlogram { count, points, band })
}

fn power(even: &EvenResiduals, count: Count) -> Option<PowerCurve> {
    let spectrum = Spectrum::new(even).ok()?;
    let (low, high) = spectrum.band_hertz();
    let step = spectrum.step_hertz();
    let background = spectrum.background();
    let all: Vec<(f64, f64, f64)> = (steps(low / step)..=steps(high / step))
        .map(|bin| bin as f64 * step)
        .map(|hertz| (hertz, spectrum.ratio_at(hertz), background.level(hertz)))
        .filter(|(_, ratio, level)| *ratio > 0.0 && level.is_finite())
        .map(|(hertz, ratio, level)| (hertz, ratio * level, level))
        .collect();
    let run = all.len().div_ceil(POINTS_MAX).max(1);
    let points: Vec<(f64, f64, f64)> = all
        .chunks(run)
        .filter_map(|chunk| chunk.iter().max_by(|a, b| (a.1 / a.2).total_cmp(&(b.1 / b.2))))
        .copied()
        .collect();
    (points.len() >= 8).then_some(PowerCurve { count, points })
}

/// The nearest whole number of steps.
fn steps(position: f64) -> usize {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "positions on a bounded grid; the cast saturates"
    )]
    let steps = position.round() as usize;
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::TargetId;

    fn seconds(target: u32, count: u32) -> Vec<Interval> {
        (0..count)
            .map(|second| Interval {
                target: TargetId(target),
                from: Timestamp::from_seconds(f64::from(second)),
                to: Timestamp::from_seconds(f64::from(second + 1)),
                requests: f64::from(second % 7 + 1),
                errors: f64::from(second % 3),
            })
            .collect()
    }

    fn total(intervals: &[Interval]) -> (f64, f64) {
        let requests = intervals.iter().map(|it| it.requests).sum();
        (requests, intervals.iter().map(|it| it.errors).sum())
    }

    #[test]
    fn a_short_storm_is_kept_as_it_was_scraped() {
        let intervals = seconds(0, 500);
        assert_eq!(thinned(intervals.clone()), intervals);
    }

    #[test]
    fn a_long_storm_keeps_its_head_and_every_count() {
        let mut intervals = seconds(0, 20_000);
        intervals.extend(seconds(1, 20_000));
        intervals.sort_by_key(|interval| (interval.to, interval.target));
        let thin = thinned(intervals.clone());
        assert!(thin.len() <= RAW_MAX + JOINED_MAX + 2, "{}", thin.len());
        assert_eq!(thin[..RAW_MAX], intervals[..RAW_MAX]);
        // Whole numbers, so the sums are exact.
        let (all, kept) = (total(&intervals), total(&thin));
        assert!((all.0 - kept.0).abs() < 1e-9 && (all.1 - kept.1).abs() < 1e-9);
    }

    #[test]
    fn joining_never_bridges_a_gap() {
        let mut intervals = seconds(0, 20_000);
        intervals.retain(|interval| !(9000.0..9100.0).contains(&interval.from.seconds()));
        let gap = thinned(intervals)
            .windows(2)
            .any(|pair| (pair[1].from.seconds_since(pair[0].to) - 100.0).abs() < 1e-9);
        assert!(gap, "a hundred seconds without a scrape must stay to be seen");
    }

    #[test]
    fn a_fixed_train_stands_over_the_band_at_its_period() {
        let intervals: Vec<Interval> = (0..240)
            .map(|second: u32| Interval {
                target: TargetId(0),
                from: Timestamp::from_seconds(f64::from(second)),
                to: Timestamp::from_seconds(f64::from(second + 1)),
                requests: if second.is_multiple_of(10) {
                    200.0
                } else {
                    f64::from(10 + second * 7 % 5)
                },
                errors: 0.0,
            })
            .collect();
        let even = EvenResiduals::new(&intervals, Count::Requests).unwrap();
        let correlogram = correlogram(&even, Count::Requests).unwrap();
        let at = |lag: f64| {
            let near = correlogram.points.iter().filter(|(x, _)| (x - lag).abs() < 0.6);
            near.map(|(_, y)| *y).fold(f64::MIN, f64::max)
        };
        assert!(at(10.0) > 3.0 * correlogram.band, "{} {}", at(10.0), correlogram.band);
        assert!(at(15.0) < correlogram.band);
        let curve = power(&even, Count::Requests).unwrap();
        let best = curve.points.iter().max_by(|a, b| (a.1 / a.2).total_cmp(&(b.1 / b.2))).unwrap();
        let harmonic = best.0 * 10.0;
        assert!((harmonic - harmonic.round()).abs() < 0.05, "{} Hz", best.0);
    }
}
