//! The decision: which class the evidence of one look amounts to, and how sure that is.
//!
//! Transparent on purpose: a handful of rules over named statistics, in the order a person would
//! ask. Did anything fail? Did more arrive than is wanted? Do the counts follow a schedule, a
//! jittered decay, or a level, better than anything else, and well? And if none can be told, could
//! this sampling have told?
//!
//! Each family of the schedule fit must *fit* and win by a margin; where it only wins, or where the
//! sampling could not have shown the waves, the answer is that the kind is open.

mod spread;

use crate::classify::evidence::{evidence, schedule_of};
use crate::classify::rhythm::{self, Rhythm};
use crate::classify::{
    Class, Finding, Impact, Observation, ObservationKind, Ripeness, Schedule, Severity, Verdict,
    Wave,
};
use crate::detect::baseline::Baseline;
use crate::detect::flood::Load;
use crate::detect::resolution::Resolution;
use crate::detect::schedule_fit::{Family, FitReport, Smear, Waits};
use crate::series::Timestamp;

use spread::{jittered_reading, smeared_reading};

/// Failures above their floor under which nothing failed.
const FAILURES_MIN: f64 = 8.0;
/// Failures over the floor's standard deviation under which nothing failed.
const FAILURES_SDS: f64 = 5.0;
/// Excess over its standard deviation that shows more attempts than are wanted.
pub(super) const EXCESS_SDS: f64 = 4.0;
/// Attempts per request wanted that show retries, once the excess is significant.
pub(super) const AMPLIFICATION_MIN: f64 = 1.15;
/// Margin of the score by which a family wins: twice a log-likelihood ratio, so e^6 to one.
const GAIN_CLEAR: f64 = 12.0;
/// Margin past which one look is enough, also where no failure speaks for the train.
const GAIN_CERTAIN: f64 = 60.0;
/// The same where next to nothing is left unexplained: what passed [`GAIN_CLEAR`] by chance left
/// more.
const GAIN_CERTAIN_FITTING: f64 = 24.0;
/// Deviance per interval up to which waves in step fit.
const GOODNESS_WAVES: f64 = 1.5;
/// Gain over the deviance left, past which waves in step explain nearly everything although what
/// they leave is more than chance: real herds are not as sharp as the model.
const GAIN_OVER_DEVIANCE: f64 = 2.0;
/// Margin for each wave besides: every wave of a long train is one more chance to fit the wander
/// of a flood.
const GAIN_PER_WAVE: f64 = 1.25;
/// Shortest activity, seconds, in which a comb is believed.
const COMB_SECONDS: f64 = 60.0;
/// Growth of the waits from which a train may stand without failures.
const GROWTH_ALONE: f64 = 1.25;
/// Share of the excess in the later half of the activity from which load is held up: a half for a
/// plateau, less for one whose last scrape reaches past its end, far less for a decay.
const HELD_SHARE: f64 = 0.25;
/// Load of the later half over the peak, both above the baseline, under which it has sunk.
const SUNK_SHARE: f64 = 0.1;
/// Margin at which a class that pages nobody is named.
const GAIN_SMALL: f64 = 4.0;
/// Waves that must stand apart before a schedule is named.
const WAVES_MIN: usize = 2;
/// Waves that must stand apart before one look is enough.
const WAVES_CERTAIN: usize = 3;
/// The same where no failure speaks for the train.
const WAVES_ALONE: usize = 4;
/// Spread of a wave over the gap to the next under which the herd stays a herd.
pub(super) const SPREAD_HERD: f64 = 0.16;
/// Spread over which no waves are left.
const SPREAD_WAVES: f64 = 0.4;
/// Coarsest resolvable gap, seconds, at which the absence of waves is evidence of a flood: no
/// schedule worth the name waits less.
const FLOOD_GAP_SECONDS: f64 = 3.0;
/// Shortest activity of a flood, seconds.
const FLOOD_SECONDS_MIN: f64 = 25.0;
/// Activity of a flood in scrape cycles.
const FLOOD_CYCLES_MIN: f64 = 2.5;
/// Excess over its standard deviation past which a storm is certain.
const STORM_SDS: f64 = 8.0;
/// The same past which one look is enough for a flood or a storm of open kind.
const STORM_SDS_CERTAIN: f64 = 16.0;
/// Amplification past which a storm is certain.
const STORM_AMPLIFICATION: f64 = 1.5;
/// Activity after which a storm of open kind pages, in scrape cycles and in seconds.
const STORM_CYCLES: f64 = 2.5;
const STORM_SECONDS: f64 = 30.0;
/// Excess requests for each failure past which they are no retries: one, and a half more for
/// failures that the error selector does not count.
const RETRIES_PER_FAILURE: f64 = 1.5;
/// Share of storms of open kind whose kind nobody could have told.
const OPEN_CONFIDENCE: f64 = 0.87;
/// Score at which the doubt of a named class has sunk to a third.
const SCORE_SCALE: f64 = 12.0;
/// Goodput over the baseline past which the clients want more than usual.
const SURGE_GOODPUT: f64 = 1.5;
/// Excess before the first failure, in standard deviations, that says the rise came first.
const SURGE_LEAD_SDS: f64 = 6.0;

/// Everything one look has to go by.
#[derive(Debug, Clone, Copy)]
pub struct Scene<'a> {
    /// The dependency's name.
    pub dependency: &'a str,
    /// Whether errors are counted at all.
    pub with_errors: bool,
    /// Normal traffic.
    pub baseline: &'a Baseline,
    /// How finely it is sampled.
    pub resolution: &'a Resolution,
    /// The bracket of the first failure.
    pub onset: [Timestamp; 2],
    /// Load since then.
    pub load: &'a Load,
    /// Excess in the minutes before the first failure, in standard deviations.
    pub lead_sds: f64,
    /// The schedule fit, where there was enough for one.
    pub fit: Option<&'a FitReport>,
    /// What repeats in it, where there was enough to listen to.
    pub rhythm: Option<&'a Rhythm>,
    /// The end of the newest interval.
    pub seen_until: Timestamp,
    /// The class that fires by now.
    pub fires: Option<Class>,
}

impl Scene<'_> {
    fn elapsed(&self) -> f64 {
        self.seen_until.seconds_since(self.onset[1])
    }

    fn quiet_seconds(&self) -> f64 {
        self.seen_until.seconds_since(self.load.active_until)
    }

    /// Whether anything failed beyond the usual.
    pub(super) fn failing(&self) -> bool {
        let noise = (self.baseline.error_dispersion * self.load.error_floor.max(1.0)).sqrt();
        self.with_errors && self.load.failures() >= FAILURES_MIN.max(FAILURES_SDS * noise)
    }

    /// Whether more arrived than is wanted.
    fn excess(&self) -> bool {
        self.load.excess_sds() >= EXCESS_SDS && self.load.amplification >= AMPLIFICATION_MIN
    }

    /// Whether more came than retries could have brought: every retry follows a failure, so
    /// there are at most as many as failures.
    fn exceeds_failures(&self) -> bool {
        self.load.excess
            > RETRIES_PER_FAILURE.mul_add(self.load.failures(), EXCESS_SDS * self.load.excess_sd)
    }

    /// Whether load is held up by retries for certain.
    fn storm_is_certain(&self) -> bool {
        self.failing()
            && self.load.excess_sds() >= STORM_SDS
            && self.load.amplification >= STORM_AMPLIFICATION
    }
}

/// What the counts amount to.
pub(super) struct Reading {
    pub(super) class: Class,
    pub(super) ripeness: Ripeness,
    pub(super) score: f64,
    /// The schedule, where it is not that of the fit.
    pub(super) schedule: Option<Schedule>,
}

/// Decides one look.
#[must_use]
pub fn decide(scene: &Scene<'_>) -> Finding {
    let train = train_reading(scene);
    if !scene.failing() {
        return without_failures(scene, train);
    }
    let led = scene.lead_sds > SURGE_LEAD_SDS && scene.load.goodput_ratio > SURGE_GOODPUT;
    if led || scene.exceeds_failures() {
        return ruled(scene, ObservationKind::OrganicSurge);
    }
    // Waves of failures on a schedule are retries, whatever the sum of requests says, if requests come
    // in the same waves: failures that clump by themselves fit some schedule sooner or later.
    let confirmed = scene.fit.and_then(|fit| fit.agreement).is_some_and(|gain| gain >= GAIN_CLEAR);
    let waves = train.as_ref().is_some_and(|reading| {
        reading.class == Class::BackoffWithoutJitter
            && reading.ripeness >= Ripeness::Clear
            && confirmed
    });
    if !scene.excess() && !waves {
        let cycles = scene.elapsed() / scene.resolution.scrape_seconds;
        return if cycles < 2.0 {
            Finding::Undecided
        } else {
            ruled(scene, ObservationKind::OutageWithoutRetries)
        };
    }
    let named = train.as_ref().is_some_and(|train| train.class == Class::BackoffWithoutJitter);
    // A decay that may still turn into a plateau keeps nobody from being woken by one.
    let train = train.filter(|reading| {
        let provisional = reading.class == Class::JitteredBackoff
            && reading.ripeness == Ripeness::Early
            && reading.score < GAIN_CLEAR;
        !(provisional && open_kind_pages(scene))
    });
    let reading = comb_reading(scene)
        .filter(|_| !named)
        .or_else(|| flood_reading(scene))
        .filter(|flood| train.as_ref().is_none_or(|train| train.score < flood.score))
        .or(train)
        .unwrap_or_else(|| open_reading(scene));
    Finding::Storm { ripeness: reading.ripeness, verdict: Box::new(verdict(scene, &reading)) }
}

/// What the schedule fit says, where it says anything.
fn train_reading(scene: &Scene<'_>) -> Option<Reading> {
    let fit = scene.fit?;
    herd_reading(scene, fit)
        .or_else(|| smeared_reading(scene, fit))
        .or_else(|| jittered_reading(scene, fit))
}

/// Waves in step, by the fit.
fn herd_reading(scene: &Scene<'_>, fit: &FitReport) -> Option<Reading> {
    let lockstep = &fit.lockstep;
    // What fires already stands as long as nothing explains the counts better.
    let known = scene.fires == Some(Class::BackoffWithoutJitter);
    if !stands_in_step(fit.winner())
        || !requests_agree(fit)
        || !(known || waves_fit(fit) && waves_seen(scene, fit))
    {
        return None;
    }
    let class = if lockstep.spread < SPREAD_HERD && smeared_requests(fit).is_none() {
        Class::BackoffWithoutJitter
    } else if lockstep.spread < SPREAD_WAVES {
        Class::PartialJitter
    } else {
        Class::JitteredBackoff
    };
    let margin = if class == Class::BackoffWithoutJitter {
        fit.gain.min(fit.gain_over_equal)
    } else {
        fit.gain
    };
    if margin < GAIN_CLEAR && !(known && class == Class::BackoffWithoutJitter) {
        return None;
    }
    let enough = if fit.goodness <= GOODNESS_WAVES { GAIN_CERTAIN_FITTING } else { GAIN_CERTAIN };
    // Two waves are enough where all requests stand in them as well.
    let confirmed = fit.agreement.is_some_and(|gain| gain > GAIN_CERTAIN);
    let waves = if confirmed { WAVES_MIN } else { WAVES_CERTAIN };
    let certain = margin > enough && lockstep.waves_resolved >= waves;
    let ripeness = if certain { Ripeness::Certain } else { Ripeness::Clear };
    Some(Reading { class, ripeness, score: margin, schedule: None })
}

/// Whether nothing says that requests come evenly while failures come in waves.
fn requests_agree(fit: &FitReport) -> bool {
    fit.agreement.is_none_or(|gain| gain >= -GAIN_SMALL)
}

/// How wide the waves of all requests are where they are wider than a herd's for certain, and the
/// failures only their middle.
pub(super) fn smeared_requests(fit: &FitReport) -> Option<Smear> {
    fit.smear.filter(|smear| smear.gain >= GAIN_CLEAR)
}

/// Whether the longest wait between waves is one that this sampling can tell: shorter ones fit
/// whatever shape the load has.
fn waves_seen(scene: &Scene<'_>, fit: &FitReport) -> bool {
    fit.lockstep.waves.iter().any(|wave| wave.wait_seconds >= scene.resolution.gap_seconds)
}

/// Whether a family's waves stand in step. Processes that each keep a phase of their own still
/// come back together from the second wave on.
const fn stands_in_step(family: Family) -> bool {
    family.is_lockstep() || matches!(family, Family::ProcessPhase)
}

/// Whether waves in step win by a margin, fit, and stand apart.
fn waves_fit(fit: &FitReport) -> bool {
    let left = fit.goodness * count(fit.intervals);
    let resolved = fit.lockstep.waves_resolved;
    fit.gain >= GAIN_CLEAR.max(GAIN_PER_WAVE * count(resolved))
        && resolved >= WAVES_MIN
        && (fit.goodness <= GOODNESS_WAVES || fit.gain >= GAIN_OVER_DEVIANCE * left)
}

/// Clients that fail all the time and each come back on the same schedule: no waves, since they have
/// no common start, but every failure is echoed.
fn comb_reading(scene: &Scene<'_>) -> Option<Reading> {
    let comb = scene.rhythm?.certain_comb()?;
    // The bank's law is that of steady noise: the first moments of a herd and its decay are none.
    let goes_on = scene.load.active_seconds >= COMB_SECONDS && held_share(scene) >= HELD_SHARE;
    goes_on.then(|| Reading {
        class: Class::BackoffWithoutJitter,
        ripeness: Ripeness::Clear,
        score: (-2.0 * comb.p_value.max(1e-12).ln()).min(GAIN_CERTAIN),
        schedule: Some(rhythm::schedule_of(comb)),
    })
}

/// Load held up with no schedule in it, where a schedule would have been seen.
fn flood_reading(scene: &Scene<'_>) -> Option<Reading> {
    let load = scene.load;
    let long_enough = load.active_seconds
        >= FLOOD_SECONDS_MIN.max(FLOOD_CYCLES_MIN * scene.resolution.scrape_seconds);
    let visible = scene.resolution.gap_seconds <= FLOOD_GAP_SECONDS;
    if !(long_enough && visible && scene.storm_is_certain()) {
        return None;
    }
    if let Some(fit) = scene.fit
        && fit.winner().is_lockstep()
        && waves_fit(fit)
    {
        return None;
    }
    // Held up, not decaying: the second half of the activity carries its part of the load.
    let held = held_share(scene);
    if held < HELD_SHARE {
        return None;
    }
    Some(Reading {
        class: Class::RetryStormWithoutBackoff,
        ripeness: if load.active_seconds > 2.0 * FLOOD_SECONDS_MIN
            || load.excess_sds() >= STORM_SDS_CERTAIN
        {
            Ripeness::Certain
        } else {
            Ripeness::Clear
        },
        score: GAIN_CERTAIN * held,
        schedule: None,
    })
}

/// Share of the excess that stands in the later half of the activity; a half for a plateau. None of
/// it where that half has sunk to little beside the peak: what capped waits leave of a herd while an
/// outage goes on is a plateau too, and holds nothing up.
fn held_share(scene: &Scene<'_>) -> f64 {
    let load = scene.load;
    let middle = scene.onset[0].plus_seconds(load.active_seconds / 2.0);
    let excess = |late: bool| -> f64 {
        load.bins
            .iter()
            .filter(|bin| bin.to <= load.active_until && (bin.from >= middle) == late)
            .map(|bin| (bin.rate - scene.baseline.rate).max(0.0) * bin.to.seconds_since(bin.from))
            .sum()
    };
    let (early, late) = (excess(false), excess(true));
    let late_rate = late / (load.active_seconds / 2.0).max(scene.resolution.scrape_seconds);
    let sunk = late_rate < SUNK_SHARE * (load.peak_rate - scene.baseline.rate);
    if early + late > 0.0 && !sunk { late / (early + late) } else { 0.0 }
}

/// Retries are there, and their kind is open.
fn open_reading(scene: &Scene<'_>) -> Reading {
    let over = scene.quiet_seconds() > 2.0 * scene.resolution.scrape_seconds;
    let pages = open_kind_pages(scene);
    let ripeness = if pages && scene.load.excess_sds() >= STORM_SDS_CERTAIN {
        Ripeness::Certain
    } else if pages || over {
        Ripeness::Clear
    } else {
        Ripeness::Early
    };
    Reading { class: Class::Inconclusive, ripeness, score: 0.0, schedule: None }
}

/// Whether a storm of open kind is worth waking somebody: certain, lasting, and held up. A decay
/// cures itself whatever its kind.
fn open_kind_pages(scene: &Scene<'_>) -> bool {
    let lasting = scene.load.active_seconds
        >= (STORM_CYCLES * scene.resolution.scrape_seconds).max(STORM_SECONDS);
    scene.storm_is_certain() && lasting && held_share(scene) >= HELD_SHARE
}

/// Nothing failed, or failures are not counted: only a train on a schedule can be told, at a
/// stricter level.
fn without_failures(scene: &Scene<'_>, train: Option<Reading>) -> Finding {
    let strict = train.filter(|reading| {
        reading.class == Class::BackoffWithoutJitter
            && reading.ripeness == Ripeness::Certain
            && !scene.with_errors
            && scene.fit.is_some_and(stands_alone)
    });
    if let Some(reading) = strict {
        return Finding::Storm {
            ripeness: Ripeness::Clear,
            verdict: Box::new(verdict(scene, &reading)),
        };
    }
    if scene.elapsed() < 2.0 * scene.resolution.scrape_seconds {
        return Finding::Undecided;
    }
    ruled(scene, ObservationKind::OrganicSurge)
}

/// Whether a train stands on its own, with no failure to speak for it: its waits grow, since a
/// period without failures is load on a schedule, and next to nothing is left unexplained.
fn stands_alone(fit: &FitReport) -> bool {
    let grows = match fit.lockstep.waits {
        Waits::Exponential { factor, .. } => factor >= GROWTH_ALONE,
        Waits::Polynomial { .. } | Waits::List(_) => true,
    };
    grows
        && fit.goodness <= GOODNESS_WAVES
        && fit.gain.min(fit.gain_over_equal) > GAIN_CERTAIN
        && fit.lockstep.waves_resolved >= WAVES_ALONE
}

fn ruled(scene: &Scene<'_>, kind: ObservationKind) -> Finding {
    use crate::classify::sentence::{number, percent};
    let load = scene.load;
    let says = match kind {
        ObservationKind::OutageWithoutRetries => format!(
            "{} failed and no more arrived than usual ({} requests against {} expected): these \
             clients do not retry",
            percent(load.error_ratio),
            number(load.requests),
            number(load.expected)
        ),
        ObservationKind::OrganicSurge if scene.with_errors => format!(
            "load rose to {}/s against {}/s before and was served ({} failed, {} is usual)",
            number(load.peak_rate),
            number(scene.baseline.rate),
            percent(load.errors / load.requests.max(1.0)),
            percent(scene.baseline.error_ratio)
        ),
        _ => format!(
            "load rose to {}/s against {}/s before with no schedule in it; without an error \
             selector a flood cannot be told from a surge",
            number(load.peak_rate),
            number(scene.baseline.rate)
        ),
    };
    Finding::Ruled(Observation {
        kind,
        from: scene.onset[0],
        to: load.active_until.max(scene.onset[1]),
        says,
    })
}

fn verdict(scene: &Scene<'_>, reading: &Reading) -> Verdict {
    let load = scene.load;
    let train = matches!(reading.class, Class::BackoffWithoutJitter | Class::PartialJitter)
        .then_some(scene.fit)
        .flatten()
        .filter(|_| reading.schedule.is_none());
    let schedule = reading.schedule.clone().or_else(|| train.map(schedule_of));
    let waves: Vec<Wave> = train.map_or_else(Vec::new, |fit| {
        fit.told
            .waves
            .iter()
            .map(|wave| Wave { expected_at: wave.at, requests: wave.size, counts: fit.channel })
            .collect()
    });
    let started_at = train.map_or_else(
        || midpoint(scene.onset),
        |fit| fit.told.onset.clamp(scene.onset[0], scene.onset[1]),
    );
    let impact = Impact {
        baseline_rate: scene.baseline.rate,
        peak_rate: load.peak_rate.max(scene.baseline.rate),
        amplification: load.amplification,
        error_ratio: load.error_ratio,
        excess_requests: load.excess.max(0.0),
        herd_size: waves.iter().map(|wave| wave.requests).fold(0.0, f64::max),
        trigger_ended_at: load.trigger_ended_at,
        outlived_trigger_seconds: load
            .trigger_ended_at
            .map_or(0.0, |end| load.active_until.seconds_since(end).max(0.0)),
    };
    let severity = match reading.class {
        Class::BackoffWithoutJitter | Class::RetryStormWithoutBackoff => Severity::Critical,
        Class::PartialJitter => Severity::Warning,
        Class::JitteredBackoff => Severity::Info,
        Class::Inconclusive if open_kind_pages(scene) => Severity::Warning,
        Class::Inconclusive => Severity::Info,
    };
    Verdict {
        class: reading.class,
        severity,
        started_at,
        confidence: confidence(reading),
        summary: String::new(),
        next_wave_at: train.and_then(|fit| fit.told.next_wave_at),
        schedule,
        waves,
        impact,
        evidence: evidence(scene, reading),
        matches: Vec::new(),
        advice: Vec::new(),
    }
}

fn midpoint([low, high]: [Timestamp; 2]) -> Timestamp {
    low.plus_seconds(high.seconds_since(low) / 2.0)
}

/// How likely the class is right: `1 - e^(-score/12) / 2`, and one figure for what is left open. Both are
/// read off draws of `make accuracy`, whose report (`tests/accuracy/RESULTS.md`) has the curve; the
/// margin itself, a log-likelihood ratio, would claim far more than a model of real fleets can keep.
fn confidence(reading: &Reading) -> f64 {
    match reading.class {
        Class::Inconclusive => OPEN_CONFIDENCE,
        _ => 0.5f64.mul_add(-(-reading.score.max(0.0) / SCORE_SCALE).exp(), 1.0),
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts here are far below 2^53")]
fn count(number: usize) -> f64 {
    number as f64
}
