//! The clients of a herd: how many retries they made, and what full jitter would have done.

use std::fmt::Write;

use super::incident::steps;
use super::load::{Load, index, view};
use super::svg::{Anchor, Canvas, Frame, clock, time_ticks};
use super::warped::Warp;
use super::{Look, NotDrawn};
use crate::classify::sentence::{number, percent};
use crate::wire::IncidentJson;
use crate::wire::around::SeriesJson;

const LEFT: f64 = 58.0;
const RIGHT: f64 = 24.0;
const ABOVE: f64 = 52.0;
/// Least distance of two bars with the number of those that left, pixels.
const OUT_ROOM: f64 = 52.0;
/// Points of the computed curve.
const POINTS: usize = 1200;

/// The size of each wave, the first of which is the failure itself.
fn heights(incident: &IncidentJson) -> Vec<f64> {
    let sizes = incident.waves.iter().map(|wave| wave.requests.0);
    let mut heights: Vec<f64> = sizes.map(|size| if size > 0.0 { size } else { 0.0 }).collect();
    let retries = incident.schedule.as_ref().map_or(0, |schedule| schedule.waits_seconds.len());
    // A failure too small to be reported as a wave still has its place.
    while heights.len() <= retries {
        heights.insert(0, heights.first().copied().unwrap_or(0.0));
    }
    heights
}

/// Whether the waves count those who failed, and not all who came.
fn counts_failures(incident: &IncidentJson) -> bool {
    incident.waves.first().is_some_and(|wave| wave.counts == "failures")
}

/// The clients that make each retry, the first retry at 1: who failed makes the next one.
fn retrying(incident: &IncidentJson) -> Vec<f64> {
    let mut heights = heights(incident);
    if counts_failures(incident) {
        heights.insert(0, 0.0);
    }
    heights
}

/// Of each wave those that came in the next one as well, and those that did not.
fn again_or_out(heights: &[f64]) -> Vec<[f64; 2]> {
    let next = heights.iter().skip(1).chain([&0.0]);
    heights
        .iter()
        .zip(next)
        .map(|(all, next)| {
            let again = next.min(*all);
            [again, all - again]
        })
        .collect()
}

/// The height of the bars.
pub(super) const COHORTS_HEIGHT: f64 = 270.0;
/// The height of the comparison.
pub(super) const COUNTERFACTUAL_HEIGHT: f64 = 280.0;

pub(super) fn cohorts(incident: &IncidentJson, look: &Look) -> Result<String, NotDrawn> {
    if incident.schedule.is_none() || incident.waves.is_empty() {
        return Err(NotDrawn("it has no waves"));
    }
    let heights = heights(incident);
    let parts = again_or_out(&heights);
    let open = incident.state != "resolved";
    let last = heights.len() - 1;
    let what = if counts_failures(incident) { "failed" } else { "came" };
    let title = format!("{}: who came again, wave by wave", incident.dependency);
    let about: Vec<String> = (0..)
        .zip(heights.iter().zip(&parts))
        .map(|(n, (all, [again, out]))| {
            let of_them = match (n == last, open) {
                (false, _) => format!(
                    "{} of them again in the next wave, {} not",
                    number(*again),
                    number(*out)
                ),
                (true, true) => "the last so far".to_owned(),
                (true, false) => "the last".to_owned(),
            };
            format!("wave {n}: {} {what}, {of_them}", number(*all))
        })
        .collect();
    let mut canvas = Canvas::new(look, COHORTS_HEIGHT, &title, &about.join("; "));
    canvas.headline(&title);
    let peak = heights.iter().copied().fold(1.0, f64::max);
    let frame = Frame {
        left: LEFT,
        right: look.width() - RIGHT,
        top: ABOVE,
        bottom: COHORTS_HEIGHT - 76.0,
        x: [-0.5, last as f64 + 0.5],
        // Room for two lines over the highest bar.
        y: [0.0, peak * 1.28],
    };
    frame.draw(&mut canvas, what, number);
    let has_room = frame.at_x(1.0) - frame.at_x(0.0) >= OUT_ROOM;
    let mut free_from = f64::NEG_INFINITY;
    for (n, (all, [again, out])) in heights.iter().zip(&parts).enumerate() {
        let (left, right) = (frame.at_x(n as f64 - 0.32), frame.at_x(n as f64 + 0.32));
        let unknown = n == last && open;
        let (top, middle) = (frame.at_y(*all), frame.at_y(*again));
        let upper = if unknown { "wavefill" } else { "palefill" };
        canvas.rect(upper, (left, top), (right - left, middle - top), "");
        canvas.rect("loadfill", (left, middle), (right - left, frame.bottom - middle), "");
        let centre = f64::midpoint(left, right);
        if centre >= free_from {
            free_from = centre + 34.0;
            let label = if n == 0 { "failure".to_owned() } else { n.to_string() };
            frame.x_label(&mut canvas, n as f64, &label);
            let shows_out = has_room && !unknown;
            let above = if shows_out { 18.0 } else { 5.0 };
            canvas.text((centre, top - above), "ink", Anchor::Middle, &number(*all));
            if shows_out {
                let text = format!("{} out", number(*out));
                canvas.text((centre, top - 5.0), "soft", Anchor::Middle, &text);
            }
        }
    }
    let below = "retry, counted from the first failure";
    canvas.text((LEFT, COHORTS_HEIGHT - 42.0), "soft", Anchor::Start, below);
    let mut entries =
        vec![("loadfill", "again in the next wave"), ("palefill", "out: served, or gave up")];
    if open {
        entries.push(("wavefill", "not known yet"));
    }
    let wraps = look.width() < 480.0;
    canvas.legend(COHORTS_HEIGHT - if wraps { 24.0 } else { 12.0 }, &entries);
    Ok(canvas.finish())
}

/// The density of retries per second under full jitter, on cells of `cell` seconds from the first
/// failure on: wave `n` is the sum of `n` waits, each drawn evenly from 0 to what it was.
fn jittered(warp: &Warp, heights: &[f64], cell: f64, cells: usize) -> Vec<f64> {
    let mut total = vec![0.0; cells];
    let mut density = vec![0.0; cells];
    density[0] = 1.0;
    for n in 1..=warp.retries() {
        let wait = warp.instant(n) - warp.instant(n - 1);
        density = averaged(&density, (wait / cell).max(1.0));
        let height = heights.get(n).copied().unwrap_or(0.0);
        for (sum, share) in total.iter_mut().zip(&density) {
            *sum += height * share / cell;
        }
    }
    total
}

/// The mean of the `width` cells up to and with each one: the convolution with `U(0, width)`.
fn averaged(density: &[f64], width: f64) -> Vec<f64> {
    let mut sums = Vec::with_capacity(density.len() + 1);
    sums.push(0.0);
    for value in density {
        sums.push(sums[sums.len() - 1] + value);
    }
    let upto = |position: f64| {
        let whole = index(position.max(0.0)).min(density.len() - 1);
        (position.max(0.0) - whole as f64).min(1.0).mul_add(density[whole], sums[whole])
    };
    (1..=density.len()).map(|end| (sums[end] - upto(end as f64 - width)) / width).collect()
}

pub(super) fn counterfactual(
    incident: &IncidentJson,
    series: &SeriesJson,
    look: &Look,
) -> Result<String, NotDrawn> {
    let warp = Warp::of(incident).ok_or(NotDrawn("it has no schedule"))?;
    let load = Load::of(series).ok_or(NotDrawn("its counts were not kept"))?;
    let [from, to] = view(incident, Some(&load));
    let start = incident.started_at.0;
    let span = to.seconds_since(start).max(1.0);
    let cell = span / POINTS as f64;
    let curve = jittered(&warp, &retrying(incident), cell, POINTS);
    let normal = incident.impact.baseline_rate.0.max(0.0);
    // Compared from between the first two retries on: the failure and the first retry come too close
    // together for any jitter to matter.
    let settled_seconds = f64::midpoint(warp.instant(1), warp.instant(2));
    let seen_peak = load.peak(start.plus_seconds(settled_seconds), to);
    let run = index((load.cell_seconds / cell).ceil()).max(1);
    // As the load is drawn: the mean over one of its cells.
    let smooth = averaged(&curve, run as f64);
    let skipped = index(settled_seconds / cell);
    let other_peak = smooth.iter().skip(skipped).copied().fold(0.0, f64::max) + normal;
    let peak = load.peak(from, to).max(other_peak).max(1.0);
    let title = format!("{}: as it was, and with full jitter", incident.dependency);
    // A share and no rate: this line is drawn finer than the peak of the incident is measured.
    let text = format!(
        "from retry 2 on, full jitter brings the highest point to {}",
        percent(other_peak.min(seen_peak) / seen_peak.max(f64::MIN_POSITIVE))
    );
    let mut canvas = Canvas::new(look, COUNTERFACTUAL_HEIGHT, &title, &text);
    canvas.headline(&title);
    let frame = Frame {
        left: LEFT,
        right: look.width() - RIGHT,
        top: ABOVE,
        bottom: COUNTERFACTUAL_HEIGHT - 74.0,
        x: [0.0, to.seconds_since(from)],
        y: [0.0, peak * 1.05],
    };
    frame.draw(&mut canvas, "per s", number);
    canvas.path("past", &steps(&load, from, to, &frame), "fill=\"none\" stroke-width=\"1.4\"");
    let lead = start.seconds_since(from);
    let mut d = format!("M{:.1} {:.1}H{:.1}", LEFT, frame.at_y(normal), frame.at_x(lead));
    for (n, value) in (0_u32..).zip(&smooth) {
        let x = frame.at_x((f64::from(n) + 0.5).mul_add(cell, lead));
        write!(d, "L{x:.1} {:.1}", frame.at_y(value + normal)).ok();
    }
    canvas.path("better", &d, "fill=\"none\" stroke-width=\"2.2\" stroke-linejoin=\"round\"");
    for at in time_ticks(from, to, if look.is_narrow() { 3 } else { 7 }, look) {
        frame.x_label(&mut canvas, at.seconds_since(from), &clock(at, look));
    }
    let at = (if look.is_narrow() { 12.0 } else { LEFT }, COUNTERFACTUAL_HEIGHT - 40.0);
    canvas.text(at, "ink", Anchor::Start, &format!("{}; {text}", look.zone()));
    let entries = [("past", "as it was"), ("better", "with full jitter (computed)")];
    canvas.legend(COUNTERFACTUAL_HEIGHT - 14.0, &entries);
    Ok(canvas.finish())
}

#[cfg(test)]
mod tests {
    use super::super::tests::storm;
    use super::*;

    #[test]
    fn jitter_moves_retries_and_loses_none() {
        let (incident, _) = storm();
        let warp = Warp::of(&incident).unwrap();
        let heights = retrying(&incident);
        let cell = 0.01;
        let curve = jittered(&warp, &heights, cell, 4000);
        let all: f64 = curve.iter().sum::<f64>() * cell;
        let wanted: f64 = heights[1..].iter().sum();
        assert!((all - wanted).abs() < 0.01 * wanted, "{all} {wanted}");
        // The first retry alone is even over its wait: 2,000 clients in one second.
        let first = curve[40];
        assert!(first < heights[1] * 2.2 && first > heights[1] * 0.9, "{first}");
    }

    #[test]
    fn bars_are_as_high_as_the_waves_and_fall_with_them() {
        let (mut incident, _) = storm();
        let sizes = [2000.0, 2000.0, 1850.0, 1500.0, 900.0];
        let parts = again_or_out(&heights(&incident));
        let whole: Vec<f64> = parts.iter().map(|[again, out]| again + out).collect();
        assert_eq!(whole, sizes);
        let out: Vec<f64> = parts.iter().map(|part| part[1]).collect();
        assert_eq!(out, [0.0, 150.0, 350.0, 600.0, 900.0]);
        // More than before came: all of them are taken to have come again, and nobody is below 0.
        assert_eq!(again_or_out(&[10.0, 15.0]), [[10.0, 0.0], [0.0, 15.0]]);

        // The columns drawn: pale on dark, as high as the wave, lower from one to the next.
        incident.state = "resolved".to_owned();
        let svg = cohorts(&incident, &Look::default()).unwrap();
        let tall = |class: &str| -> Vec<f64> {
            let of_class = |line: &&str| line.starts_with(&format!("<rect class=\"{class}\" x"));
            let heights =
                svg.lines().filter(of_class).filter(|line| !line.contains("width=\"14.0\""));
            heights
                .map(|line| line.split("height=\"").nth(1).unwrap().split('"').next().unwrap())
                .map(|height| height.parse().unwrap())
                .collect()
        };
        let columns: Vec<f64> =
            tall("loadfill").iter().zip(tall("palefill")).map(|(dark, pale)| dark + pale).collect();
        assert_eq!(columns.len(), sizes.len());
        for (column, size) in columns.iter().zip(sizes) {
            assert!((column / columns[0] - size / sizes[0]).abs() < 0.01, "{columns:?}");
        }
        for label in ["2,000", "1,850", "150 out", "1,500", "350 out", "900", "900 out"] {
            assert!(svg.contains(&format!(">{label}</text>")), "{label}");
        }
    }

    #[test]
    fn those_who_failed_make_the_next_retries() {
        let (mut incident, _) = storm();
        assert_eq!(retrying(&incident)[1..3], [2000.0, 1850.0]);
        for wave in &mut incident.waves {
            wave.counts = "failures".to_owned();
        }
        assert_eq!(retrying(&incident)[1..4], [2000.0, 2000.0, 1850.0]);
    }

    #[test]
    fn the_mean_over_cells_is_a_convolution() {
        let mut density = vec![0.0; 8];
        density[0] = 1.0;
        assert_eq!(averaged(&density, 4.0), [0.25, 0.25, 0.25, 0.25, 0.0, 0.0, 0.0, 0.0]);
        let half = averaged(&density, 2.5);
        assert!((half.iter().sum::<f64>() - 1.0).abs() < 1e-12 && (half[2] - 0.2).abs() < 1e-12);
    }
}
