//! Schedule fit: which retry schedule, if any, explains the counts of an incident.
//!
//! A herd that fails together and waits 1, 2, 4, 8 s comes back at 1, 3, 7, 15 s. No lag repeats in
//! that train, so a periodogram or an autocorrelation is blind to it; and a filter matched to one
//! schedule calls a jittered decay a storm as well. What tells them apart is the likelihood of the
//! raw scrape intervals under every family of retry, each searched as finely as the others.
//!
//! # Method
//!
//! Expected count of interval `(a, b]` of a target with share `w`:
//!
//! ```text
//! mu(a, b] = w * ( background * (b - a) + sum_n h_n * [F_n(b) - F_n(a)] ),   h_0 >= h_1 >= ... >= 0
//! ```
//!
//! `F_n` is the distribution of the instant of the n-th retry: for lockstep a step of the failure's
//! width, blurred by what jitter there is; for the jittered families the convolution of their waits;
//! beside them shapes without any retry (decay in log time, levels, ramp, nothing). `h_n` is how many
//! clients retry an n-th time (heights.rs); they can only become fewer, which is what keeps the
//! model from fitting anything.
//!
//! The failures carry the train better than the requests: normal traffic has almost none, and the
//! retries of a herd fail again until the dependency has recovered. So the errors are fitted where
//! there are enough of them, and the requests where there are not.
//!
//! Families are compared by deviance over dispersion plus two for each parameter. A family must also
//! *fit*: its deviance comes out near the number of intervals where it is the truth, and at 4 to 40
//! times that where it is merely the best of wrong ones.
//!
//! Of the trains that fit nearly as well as the best, the one is told whose clients become fewer by
//! the plainest rule (plain.rs); what is decided rests on the best.
//!
//! # How large a gain is chance
//!
//! A family without waves in step is sometimes fitted better by a train by chance: with a gain over 12
//! seldom, and then with much of the deviance left. A herd whose waves can be told apart gains far
//! more, and leaves either next to nothing or a fraction of what it gains, since real herds are not as
//! sharp as the model. So: a gain of 12, and either a goodness below 1.5 or a gain of twice the
//! deviance. How often that is wrong, by class, schedule and sampling, `make accuracy` counts.
//!
//! # Assumptions, and what happens when they fail
//!
//! * Targets see the herd in proportion to their traffic, within some 8 %. Where the failures stand
//!   elsewhere (one caller of several storms), the shares are taken from them and all is fitted
//!   again; what is left of a difference raises every family's deviance alike.
//! * The herd failed within a short time. A long outage has no common start: no family fits well
//!   and the lag comb is the statistic for it.
//! * Waves closer together than the pooled scrapes can tell apart fit many schedules:
//!   the parameter intervals come out wide and the gain small.
//!
//! # Cost
//!
//! Thousands of rough fits and fewer fine ones ([`FitReport::evaluations`] counts them), each
//! proportional to the intervals its waves touch.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "indices come from bounded, non-negative times; casts of floats saturate"
)]
#![expect(clippy::suboptimal_flops, reason = "formulas are written as the headers state them")]

mod agreement;
mod alternatives;
mod density;
mod heights;
mod known;
mod plain;
mod polish;
mod pooled;
mod reseat;
mod search;
mod shares;
mod train;
mod uncertainty;
mod window;

#[cfg(test)]
mod tests;

use crate::detect::NotEnough;
use crate::series::{Interval, Timestamp};

use alternatives::{AlternativeFit, Draw};
use search::Search;
use shares::shares_of;
use train::{Growth, Train};
use window::Window;

pub use known::KnownWaits;

/// Intervals after the onset below which no shape can be told from another.
pub const INTERVALS_MIN: usize = 6;
/// Gain of waves in step from which it is asked whether all requests are as narrow as the failures.
const SMEAR_ASKED: f64 = 8.0;
/// Failures over their floor that make the errors the better channel.
const ERRORS_MIN: f64 = 30.0;
/// Iterations of the last fit of each family.
const FINAL_ITERATIONS: usize = 40;
/// A wave of fewer requests than this is not reported.
const WAVE_SIZE_MIN: f64 = 1.0;

/// What the fit is given.
#[derive(Debug, Clone, Copy)]
pub struct FitInput<'a> {
    /// Observations from a little before the onset until now, in any order.
    pub intervals: &'a [Interval],
    /// Each target's share of the traffic, by target number; sums to 1.
    pub shares: &'a [f64],
    /// Requests per second over all targets before the incident.
    pub background_rate: f64,
    /// Errors per second over all targets before the incident.
    pub error_floor_rate: f64,
    /// Variance over mean of the requests.
    pub dispersion: f64,
    /// Variance over mean of the errors.
    pub error_dispersion: f64,
    /// Between which instants the first failure lies.
    pub onset: [Timestamp; 2],
    /// The present; later intervals are ignored.
    pub now: Timestamp,
    /// Known waits that follow no formula, seconds; a fit names one by its number here.
    pub lists: &'a [Vec<f64>],
}

/// Which counts were fitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channel {
    /// The failures.
    Errors,
    /// All requests.
    Requests,
}

impl Channel {
    /// What is counted, as the wire says it and people read it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Errors => "failures",
            Self::Requests => "requests",
        }
    }

    /// The channel of this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Errors, Self::Requests].into_iter().find(|channel| channel.as_str() == name)
    }
}

/// A kind of explanation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Family {
    /// Waves at the instants of one schedule, jitter included where it is weak.
    Lockstep,
    /// Such waves over a smooth decay: part of the fleet jitters, or has no schedule.
    LockstepOverDecay,
    /// Equal jitter.
    Equal,
    /// Full jitter.
    Full,
    /// Decorrelated jitter.
    Decorrelated,
    /// Each process in its own phase of the schedule.
    ProcessPhase,
    /// A decay smooth in the logarithm of time.
    Smooth,
    /// The best train's heights without its gaps.
    Envelope,
    /// Levels with edges.
    Level,
    /// A straight rise or fall.
    Ramp,
    /// The background alone.
    Flat,
}

impl Family {
    /// The fixed name used in evidence.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Lockstep => "lockstep",
            Self::LockstepOverDecay => "lockstep over a decay",
            Self::Equal => "equal jitter",
            Self::Full => "full jitter",
            Self::Decorrelated => "decorrelated jitter",
            Self::ProcessPhase => "a phase for each process",
            Self::Smooth => "smooth decay",
            Self::Envelope => "a decay without gaps",
            Self::Level => "level shift",
            Self::Ramp => "ramp",
            Self::Flat => "no change",
        }
    }

    /// Whether its waves stand in step.
    #[must_use]
    pub const fn is_lockstep(self) -> bool {
        matches!(self, Self::Lockstep | Self::LockstepOverDecay)
    }
}

/// How the waits grow.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Waits {
    /// `min(cap, base * factor^(n-1))`; a factor of 1 is a fixed delay.
    Exponential {
        /// The first wait, seconds.
        base_seconds: f64,
        /// The growth from one wait to the next.
        factor: f64,
        /// The longest wait, where one was seen.
        cap_seconds: Option<f64>,
    },
    /// `base * n^power`.
    Polynomial {
        /// The first wait, seconds.
        base_seconds: f64,
        /// The power.
        power: f64,
    },
    /// The list of this number in the input.
    List(usize),
}

/// One family at its best.
#[derive(Debug, Clone, PartialEq)]
pub struct FamilyFit {
    /// The family.
    pub family: Family,
    /// Deviance over dispersion; near the number of intervals where the family is the truth.
    pub deviance: f64,
    /// Deviance plus two for each parameter: the figure families are compared by.
    pub score: f64,
    /// How many parameters were fitted.
    pub parameters: usize,
    /// The waits, where the family has any.
    pub waits: Option<Waits>,
}

/// One wave of the train.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FittedWave {
    /// Which retry it is; 0 is the failure itself.
    pub retry: usize,
    /// Its middle.
    pub at: Timestamp,
    /// Counts of the fitted channel in it.
    pub size: f64,
    /// The wait before it, seconds.
    pub wait_seconds: f64,
    /// Standard deviation by jitter, seconds.
    pub sd_seconds: f64,
}

/// The best train of waves.
#[derive(Debug, Clone, PartialEq)]
pub struct LockstepFit {
    /// How the waits grow.
    pub waits: Waits,
    /// The first failure.
    pub onset: Timestamp,
    /// How long the failure lasted, seconds: the width of every wave.
    pub width_seconds: f64,
    /// Time from an attempt to its failure, seconds, added to each wait.
    pub latency_seconds: f64,
    /// Standard deviation of a wave over the gap before it, averaged over the retries seen.
    pub spread: f64,
    /// Its 95 % interval.
    pub spread_interval: [f64; 2],
    /// 95 % interval of the first wait.
    pub base_interval: [f64; 2],
    /// 95 % interval of the factor (of the power for a polynomial).
    pub factor_interval: [f64; 2],
    /// 95 % interval of the cap, where there is one.
    pub cap_interval: Option<[f64; 2]>,
    /// The waves until now that hold anything.
    pub waves: Vec<FittedWave>,
    /// When the next one is due.
    pub next_wave_at: Option<Timestamp>,
    /// Share of the excess that stands in waves, and not in a decay under them.
    pub wave_share: f64,
    /// Retries (wave 0 apart) whose gap to their neighbours the sampling can tell apart.
    pub waves_resolved: usize,
}

/// How wide the waves of all requests are, beside those of the failures.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Smear {
    /// By how much waves wider than a herd's explain them better than narrow ones: deviance over
    /// the dispersion, and over what neither explains.
    pub gain: f64,
    /// Standard deviation of one wait over that wait.
    pub spread: f64,
}

/// What the fit found.
#[derive(Debug, Clone, PartialEq)]
pub struct FitReport {
    /// Which counts were fitted.
    pub channel: Channel,
    /// How many intervals.
    pub intervals: usize,
    /// Every family at its best, best score first.
    pub families: Vec<FamilyFit>,
    /// The best train of waves, whether it wins or not.
    pub lockstep: LockstepFit,
    /// The train whose waits are told: the best one, or one that fits nearly as well and whose clients
    /// become fewer by a plainer rule.
    pub told: LockstepFit,
    /// The known clients whose waits explain the counts nearly as well, the likeliest first; none
    /// until [`FitReport::ask_known`].
    pub known: Vec<KnownWaits>,
    /// Score of the best explanation without waves in step, less that of the best with: positive
    /// where lockstep wins.
    pub gain: f64,
    /// The same against equal jitter alone.
    pub gain_over_equal: f64,
    /// Deviance of the best lockstep fit over the number of intervals: near 1 where it is the truth.
    pub goodness: f64,
    /// How much worse all requests are explained by the train's heights without its gaps than with
    /// them, where the failures were fitted: negative where failures come in waves and requests do
    /// not.
    pub agreement: Option<f64>,
    /// How wide the waves of all requests are, where the failures were fitted and stand in step.
    pub smear: Option<Smear>,
    /// Trains tried, a measure of the work.
    pub evaluations: usize,
    /// Tells these intervals from others.
    pub fingerprint: u64,
    /// What the known clients are held against, until they were.
    asked: Option<known::Asked>,
    /// The trains found, where the next fit of the same incident starts as well.
    seeds: Vec<Seed>,
}

/// A train that was found before, with the instant its times count from.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Seed {
    train: Train,
    origin: Timestamp,
}

impl FitReport {
    /// The best fit of one family.
    #[must_use]
    pub fn family(&self, family: Family) -> Option<&FamilyFit> {
        self.families.iter().find(|fit| fit.family == family)
    }

    /// The family of the best score.
    #[must_use]
    pub fn winner(&self) -> Family {
        self.families.first().map_or(Family::Flat, |fit| fit.family)
    }
}

/// Fits every family to the intervals of one incident.
///
/// # Errors
///
/// [`NotEnough`] where fewer than [`INTERVALS_MIN`] intervals end after the onset.
pub fn fit(input: &FitInput<'_>) -> Result<FitReport, NotEnough> {
    refit(input, None)
}

/// As [`fit`], but starts from the trains of `last` as well, so that what was found once is not lost;
/// and gives `last` back where it was of the very same intervals: the silence after a storm and what
/// goes past the limit on intervals change nothing.
///
/// # Errors
///
/// [`NotEnough`] where fewer than [`INTERVALS_MIN`] intervals end after the onset.
pub fn refit(input: &FitInput<'_>, last: Option<FitReport>) -> Result<FitReport, NotEnough> {
    let (channel, window) = choose_channel(input)?;
    let fingerprint = window.fingerprint();
    let mut seeds = Vec::new();
    if let Some(last) = last {
        if (last.channel, last.fingerprint) == (channel, fingerprint) {
            return Ok(last);
        }
        seeds.extend(last.seeds.iter().map(|seed| Train {
            onset: seed.train.onset + seed.origin.seconds_since(input.onset[0]),
            ..seed.train
        }));
    }
    let mut families = Vec::new();

    let mut search = Search::new(&window, input.lists);
    let mut trains = search.best_trains(&seeds);
    // Where the herd is not where the traffic is, as when one caller of several storms, the failures
    // themselves say which targets see it.
    let moved = match (channel, trains.first()) {
        (Channel::Errors, Some(best)) => shares_of(&mut search, best.train, input.shares),
        _ => None,
    };
    let elsewhere =
        moved.as_ref().map(|shares| Window::new(&FitInput { shares, ..*input }, channel));
    let window = elsewhere.as_ref().unwrap_or(&window);
    if elsewhere.is_some() {
        seeds.extend(trains.iter().map(|scored| scored.train));
        search = Search::new(window, input.lists);
        trains = search.best_trains(&seeds);
    }
    let input = &FitInput { shares: moved.as_deref().unwrap_or(input.shares), ..*input };
    let Some(&best) = trains.first() else {
        return Err(NotEnough { have: window.len(), need: INTERVALS_MIN });
    };
    let smooth = search.best_smooth(25);
    let lockstep = finished(&mut search, best.train, Family::Lockstep);
    let mixed = search.mixed_train(&trains, &seeds, &smooth);
    search.extra = mixed.1;
    let mixed_fit = finished(&mut search, mixed.0.train, Family::LockstepOverDecay);

    // The decay must earn its columns; else the plain train is the answer.
    let decay_wins = mixed_fit.score < lockstep.score;
    let chosen = if decay_wins { mixed.0.train } else { best.train };
    if !decay_wins {
        search.extra = None;
    }
    let plainest = if decay_wins { chosen } else { search.plainest(chosen) };
    let lockstep_fit = search.describe(&chosen, input.onset[0]);
    let told = if plainest == chosen {
        lockstep_fit.clone()
    } else {
        search.describe(&plainest, input.onset[0])
    };
    let decay = smooth.train.filter(|_| decay_wins).map(|train| (train.onset, train.base));
    let agreement = match channel {
        Channel::Errors => agreement::agreement(&mut search, &chosen, decay, input),
        Channel::Requests => None,
    };
    search.extra = None;
    families.push(lockstep);
    families.push(mixed_fit);

    for (family, draw) in [
        (Family::Equal, Draw::Uniform { low: 0.5, high: 1.0 }),
        (Family::Full, Draw::Uniform { low: 0.0, high: 1.0 }),
        (Family::Decorrelated, Draw::Decorrelated),
        (Family::ProcessPhase, Draw::Phase),
    ] {
        let found = search.best_jittered(draw, 20);
        families.push(alternative(family, &found));
    }
    families.push(alternative(Family::Smooth, &smooth));
    families.push(alternative(Family::Envelope, &search.envelope_of(&chosen, 20)));
    families.push(alternative(Family::Level, &search.best_level(12)));
    families.push(alternative(Family::Ramp, &search.best_ramp(20)));
    families.push(alternative(Family::Flat, &search.flat(20)));
    families.sort_by(|a, b| a.score.total_cmp(&b.score));

    let lowest = |wanted: &dyn Fn(Family) -> bool| {
        families
            .iter()
            .filter(|fit| wanted(fit.family))
            .map(|fit| fit.score)
            .fold(f64::INFINITY, f64::min)
    };
    let with = lowest(&Family::is_lockstep);
    // A phase for each process blurs every wave by the first wait only: later waves stand in step.
    let without = lowest(&|family| {
        !family.is_lockstep() && !matches!(family, Family::Equal | Family::ProcessPhase)
    });
    let equal = lowest(&|family| family == Family::Equal);
    let in_step = channel == Channel::Errors && without - with >= SMEAR_ASKED;
    let smear = in_step.then(|| agreement::smear(&chosen, decay, input));
    let goodness = families
        .iter()
        .find(|fit| fit.family.is_lockstep())
        .map_or(f64::INFINITY, |fit| fit.deviance / window.len().max(1) as f64);
    Ok(FitReport {
        channel,
        intervals: window.len(),
        lockstep: lockstep_fit,
        told,
        known: Vec::new(),
        asked: Some(known::Asked {
            told: plainest,
            decay,
            misfit: search.misfit,
            shares: moved.clone(),
        }),
        gain: without - with,
        gain_over_equal: equal - with,
        goodness,
        agreement,
        smear,
        evaluations: search.evaluations,
        fingerprint,
        seeds: [best.train, mixed.0.train, plainest]
            .map(|train| Seed { train, origin: input.onset[0] })
            .to_vec(),
        families,
    })
}

/// The channel that carries the train, laid out.
fn choose_channel(input: &FitInput<'_>) -> Result<(Channel, Window), NotEnough> {
    let after = input
        .intervals
        .iter()
        .filter(|interval| interval.to > input.onset[0] && interval.to <= input.now);
    let (mut have, mut errors, mut seconds) = (0, 0.0, 0.0);
    for interval in after {
        have += 1;
        errors += interval.errors;
        let index = usize::try_from(interval.target.0).unwrap_or(usize::MAX);
        seconds += interval.seconds() * input.shares.get(index).copied().unwrap_or(0.0);
    }
    if have < INTERVALS_MIN {
        return Err(NotEnough { have, need: INTERVALS_MIN });
    }
    let floor = input.error_floor_rate * seconds;
    let noise = (floor * input.error_dispersion.max(1.0)).sqrt();
    let channel = if errors - floor > ERRORS_MIN.max(4.0 * noise) {
        Channel::Errors
    } else {
        Channel::Requests
    };
    let window = Window::new(input, channel);
    if window.len() < INTERVALS_MIN {
        return Err(NotEnough { have: window.len(), need: INTERVALS_MIN });
    }
    Ok((channel, window))
}

/// The last, patient fit of a train.
fn finished(search: &mut Search<'_>, train: Train, family: Family) -> FamilyFit {
    let cost = search.cost(&train, FINAL_ITERATIONS);
    let deviance = search.deviance();
    let levels = search.distinct_heights();
    let mut parameters = 3 + levels;
    parameters += usize::from(train.growth != Growth::Exponential || train.factor > 1.0);
    parameters += usize::from(train.cap.is_finite()) + usize::from(train.spread > 0.0);
    // What a misfit adds to the prices is for the choice among trains, not among families.
    let excess = (search.misfit - 1.0) * search::price(&train);
    let score = cost - excess + 2.0 * parameters as f64;
    FamilyFit { family, deviance, score, parameters, waits: Some(waits_of(&train)) }
}

fn alternative(family: Family, found: &AlternativeFit) -> FamilyFit {
    FamilyFit {
        family,
        deviance: found.deviance,
        score: found.deviance + 2.0 * found.parameters as f64,
        parameters: found.parameters,
        waits: match family {
            Family::Equal | Family::Full | Family::Decorrelated | Family::ProcessPhase => {
                found.train.as_ref().map(waits_of)
            }
            _ => None,
        },
    }
}

/// The train's waits as the report names them.
fn waits_of(train: &Train) -> Waits {
    match train.growth {
        Growth::Exponential => Waits::Exponential {
            base_seconds: train.base,
            factor: train.factor,
            cap_seconds: train.cap.is_finite().then_some(train.cap),
        },
        Growth::Power => Waits::Polynomial { base_seconds: train.base, power: train.factor },
        Growth::List(list) => Waits::List(list),
    }
}
