//! The clients of a herd: how many retries they made, and what full jitter would have done.

use std::fmt::Write;

use super::incident::steps;
use super::load::{Load, index, view};
use super::svg::{Anchor, Canvas, Frame, clock, time_ticks};
use super::warped::Warp;
use super::{Look, NotDrawn};
use crate::classify::sentence::number;
use crate::wire::IncidentJson;
use crate::wire::around::SeriesJson;

const LEFT: f64 = 58.0;
const RIGHT: f64 = 24.0;
const ABOVE: f64 = 52.0;
/// Points of the computed curve.
const POINTS: usize = 1200;

/// The clients in each wave of retries: the first is the failure itself.
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

/// The height of the bars.
pub(super) const COHORTS_HEIGHT: f64 = 230.0;
/// The height of the comparison.
pub(super) const COUNTERFACTUAL_HEIGHT: f64 = 280.0;

pub(super) fn cohorts(incident: &IncidentJson, look: &Look) -> Result<String, NotDrawn> {
    if incident.schedule.is_none() || incident.waves.is_empty() {
        return Err(NotDrawn("it has no waves"));
    }
    let heights = heights(incident);
    // Clients that made exactly n retries: those in wave n that are not in wave n + 1.
    let exactly: Vec<f64> = (0..heights.len())
        .map(|n| (heights[n] - heights.get(n + 1).copied().unwrap_or(0.0)).max(0.0))
        .collect();
    let peak = exactly.iter().copied().fold(1.0, f64::max);
    let title = format!("{}: clients by the retries they made", incident.dependency);
    let about: Vec<String> = (0..)
        .zip(&exactly)
        .map(|(n, clients)| format!("{} clients made {n} retries", number(*clients)))
        .collect();
    let mut canvas = Canvas::new(look, COHORTS_HEIGHT, &title, &about.join(", "));
    canvas.headline(&title);
    let frame = Frame {
        left: LEFT,
        right: look.width() - RIGHT,
        top: ABOVE,
        bottom: COHORTS_HEIGHT - 44.0,
        x: [-0.5, exactly.len() as f64 - 0.5],
        y: [0.0, peak * 1.12],
    };
    frame.draw(&mut canvas, "clients", number);
    let open = incident.state != "resolved";
    let mut free_from = f64::NEG_INFINITY;
    for (n, clients) in exactly.iter().enumerate() {
        let (left, right) = (frame.at_x(n as f64 - 0.32), frame.at_x(n as f64 + 0.32));
        let y = frame.at_y(*clients);
        let last = n + 1 == exactly.len();
        let class = if last && open { "wavefill" } else { "loadfill" };
        canvas.rect(class, (left, y), (right - left, frame.bottom - y), "");
        let middle = f64::midpoint(left, right);
        if middle >= free_from {
            free_from = middle + 34.0;
            canvas.text((middle, y - 5.0), "ink", Anchor::Middle, &number(*clients));
            frame.x_label(&mut canvas, n as f64, &n.to_string());
        }
    }
    let below =
        if open { "retries made (the last bar: and they may come again)" } else { "retries made" };
    canvas.text((LEFT, COHORTS_HEIGHT - 8.0), "soft", Anchor::Start, below);
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
    let heights = heights(incident);
    let curve = jittered(&warp, &heights, cell, POINTS);
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
    let about = format!(
        "from the second retry on the load peaks at {}/s; with full jitter it would have been {}/s",
        number(seen_peak),
        number(other_peak)
    );
    let mut canvas = Canvas::new(look, COUNTERFACTUAL_HEIGHT, &title, &about);
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
    for at in time_ticks(from, to, if look.is_narrow() { 3 } else { 7 }) {
        frame.x_label(&mut canvas, at.seconds_since(from), &clock(at));
    }
    let text = format!(
        "from the second retry on: peak {}/s as it was, {}/s with full jitter",
        number(seen_peak),
        number(other_peak)
    );
    canvas.text((LEFT, COUNTERFACTUAL_HEIGHT - 40.0), "ink", Anchor::Start, &text);
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
        let heights = heights(&incident);
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
    fn the_mean_over_cells_is_a_convolution() {
        let mut density = vec![0.0; 8];
        density[0] = 1.0;
        assert_eq!(averaged(&density, 4.0), [0.25, 0.25, 0.25, 0.25, 0.0, 0.0, 0.0, 0.0]);
        let half = averaged(&density, 2.5);
        assert!((half.iter().sum::<f64>() - 1.0).abs() < 1e-12 && (half[2] - 0.2).abs() < 1e-12);
    }
}
