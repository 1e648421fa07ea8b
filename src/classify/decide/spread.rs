//! Retries that are spread: waves that are smeared, and a decay that has none.

use super::{
    GAIN_CLEAR, GAIN_SMALL, HELD_SHARE, Reading, SPREAD_HERD, SPREAD_WAVES, Scene, count,
    held_share, requests_agree, stands_in_step, waves_seen,
};
use crate::classify::{Class, Ripeness};
use crate::detect::schedule_fit::{Family, FitReport, Waits};

/// Centroid of a load, as a share of its time, from which it is a plateau and no decay.
const CENTROID_MAX: f64 = 0.4;
/// Intervals it takes to tell smeared waves from none.
const INTERVALS_TO_SMEAR: usize = 24;
/// Difference of scores under which two families explain the counts alike.
const GAIN_TIE: f64 = 3.0;
/// Deviance per interval up to which a family without waves fits.
const GOODNESS_FITS: f64 = 4.0;
/// Deviance per interval up to which a jittered decay fits: the drawn waits of one policy are
/// seldom exactly a fleet's.
const GOODNESS_JITTERED: f64 = 7.0;
/// Activity, in gaps that can be told, over which a jittered schedule shows its shape.
const LONG_GAPS: f64 = 12.0;
/// Gaps that can be told, from the first wave of the best train to the last, under which the whole storm
/// is one burst: of that, no shape can be told.
const BURST_GAPS: f64 = 2.0;
/// Part of the largest wave under which a wave is none of a burst.
const BURST_WAVE: f64 = 0.05;
/// Activity, seconds, from which a jittered schedule that wins is named while it goes on.
const JITTERED_SECONDS: f64 = 60.0;
/// Share of the excess that stands in the waves of a herd that is mostly in step.
const WAVE_SHARE_MIN: f64 = 0.5;

/// Waves that are there and smeared: equal jitter explains them best by far, or about as well as
/// anything while the best train needs waves as wide as equal jitter makes them.
pub(super) fn smeared_reading(scene: &Scene<'_>, fit: &FitReport) -> Option<Reading> {
    let best = fit.families.first()?;
    let score = |family| fit.family(family).map_or(f64::INFINITY, |other| other.score);
    let in_step = score(Family::Lockstep).min(score(Family::LockstepOverDecay));
    let jittered = score(Family::Full).min(score(Family::Decorrelated));
    let equal = score(Family::Equal);
    let by_far = best.family == Family::Equal
        && equal_keeps_waves(scene, fit)
        && jittered - equal >= GAIN_SMALL
        && in_step - equal >= GAIN_CLEAR;
    let wide = (SPREAD_HERD..SPREAD_WAVES).contains(&fit.lockstep.spread)
        && waves_seen(scene, fit)
        && equal.min(in_step).min(score(Family::ProcessPhase)) - best.score < GAIN_TIE
        && equal.min(in_step) < jittered;
    let goodness = best.deviance / count(fit.intervals.max(1));
    let enough =
        requests_agree(fit) && fit.intervals >= INTERVALS_TO_SMEAR && goodness <= GOODNESS_FITS;
    (enough && (by_far || wide)).then_some(Reading {
        class: Class::PartialJitter,
        ripeness: Ripeness::Clear,
        score: jittered - equal.min(in_step),
        schedule: None,
    })
}

/// Whether equal jitter, at its best, leaves waves, or a wait is long enough to be told anyhow: each
/// retry adds the spread of its wait, and after some capped waits one wave runs into the next, as
/// under any other jitter.
fn equal_keeps_waves(scene: &Scene<'_>, fit: &FitReport) -> bool {
    if waves_seen(scene, fit) {
        return true;
    }
    let waits = fit.family(Family::Equal).and_then(|equal| equal.waits);
    let Some(Waits::Exponential { base_seconds, factor, cap_seconds }) = waits else {
        return true;
    };
    let (mut wait, mut at, mut variance) = (base_seconds, 0.0, 0.0);
    let (mut spread, mut waves) = (0.0, 0.0);
    while at < scene.load.active_seconds && waves < 100.0 {
        let next = cap_seconds.map_or(wait, |cap| wait.min(cap));
        // U(w/2, w): mean 3w/4, variance w^2/48.
        at += 0.75 * next;
        variance += next * next / 48.0;
        spread += variance.sqrt() / (0.75 * next);
        waves += 1.0;
        wait *= factor;
    }
    spread < SPREAD_WAVES * waves
}

/// Where in the time from the first wave to the last the middle of the load stands: half-way for a
/// plateau, whose end a coarse sampling does not see.
fn centroid(fit: &FitReport) -> f64 {
    let waves = &fit.lockstep.waves;
    let (Some(first), Some(last)) = (waves.first(), waves.last()) else { return 0.0 };
    let whole: f64 = waves.iter().map(|wave| wave.size).sum();
    let moment: f64 = waves.iter().map(|wave| wave.size * wave.at.seconds_since(first.at)).sum();
    let extent = last.at.seconds_since(first.at);
    if whole > 0.0 && extent > 0.0 { moment / (whole * extent) } else { 0.0 }
}

/// Whether all that came back did so within few gaps that can be told, and then nobody.
fn is_one_burst(scene: &Scene<'_>, fit: &FitReport) -> bool {
    let waves = &fit.lockstep.waves;
    let largest = waves.iter().map(|wave| wave.size).fold(0.0, f64::max);
    let last = waves.iter().rev().find(|wave| wave.size > BURST_WAVE * largest);
    let (Some(first), Some(last)) = (waves.first(), last) else { return false };
    last.at.seconds_since(first.at) < BURST_GAPS * scene.resolution.gap_seconds
}

/// A decay without waves, by the fit.
pub(super) fn jittered_reading(scene: &Scene<'_>, fit: &FitReport) -> Option<Reading> {
    // Waves in step were not believed by now: what is left to compare is what has none.
    let mut others = fit.families.iter().filter(|other| !stands_in_step(other.family));
    let winner = others.next()?;
    let decays = held_share(scene) < HELD_SHARE && centroid(fit) < CENTROID_MAX;
    let merged = !equal_keeps_waves(scene, fit);
    let spreads = |family| match family {
        Family::Full | Family::Decorrelated | Family::Smooth => true,
        Family::Equal => merged,
        Family::Envelope => decays,
        _ => false,
    };
    let goodness = winner.deviance / count(fit.intervals.max(1));
    if !spreads(winner.family) || goodness > GOODNESS_JITTERED {
        return None;
    }
    let next = others.find(|other| !spreads(other.family)).map_or(f64::INFINITY, |it| it.score);
    let margin = next - winner.score;
    // Waves that do nearly as well are not ruled out, unless requests speak against them: where this
    // sampling could tell them by their score, and where it could not by what they leave as well.
    // A best train that needs most of the load beneath it, or waves as wide as jitter makes them, is
    // not one in step; against a shape that is no schedule either it still counts, while its waves
    // are waves at all.
    let scheduled = matches!(winner.family, Family::Full | Family::Decorrelated | Family::Equal);
    let sharp = fit.lockstep.spread < SPREAD_HERD && fit.lockstep.wave_share >= WAVE_SHARE_MIN;
    let counts = sharp || !scheduled && fit.lockstep.spread < SPREAD_WAVES;
    let in_step = || {
        fit.families
            .iter()
            .filter(|other| stands_in_step(other.family) && (counts || !other.family.is_lockstep()))
    };
    let lead = in_step().next().map_or(f64::INFINITY, |other| other.score - winner.score);
    let left = in_step().map(|other| other.deviance).fold(f64::INFINITY, f64::min);
    let ruled_out = if waves_seen(scene, fit) {
        lead >= GAIN_CLEAR
    } else {
        // A train too close to be told is as good as any shape, and says little against a schedule
        // that was followed for long.
        let long = scene.load.active_seconds >= LONG_GAPS * scene.resolution.gap_seconds;
        let alike = lead >= GAIN_SMALL && left >= winner.deviance - GAIN_SMALL;
        let followed = long && scheduled && decays && lead > -GAIN_CLEAR;
        (alike || followed) && !is_one_burst(scene, fit)
    };
    if requests_agree(fit) && !ruled_out {
        return None;
    }
    // While it goes on a decay may still turn into a plateau; a schedule that was followed for long
    // will not.
    let settled = scheduled
        && lead >= GAIN_CLEAR
        && scene.load.active_seconds
            >= (LONG_GAPS * scene.resolution.gap_seconds).max(JITTERED_SECONDS);
    let ripeness =
        if scene.quiet_seconds() > 0.0 || settled { Ripeness::Clear } else { Ripeness::Early };
    (margin >= GAIN_SMALL).then_some(Reading {
        class: Class::JitteredBackoff,
        ripeness,
        score: margin,
        schedule: None,
    })
}
