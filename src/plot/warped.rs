//! The train of waves with time counted by the retries of the fitted schedule.
//!
//! `log(1 + (t - t0)(f - 1) / base)` spaces an exponential train evenly, and nothing else: a cap, a
//! polynomial or a list bends it. Here the clock is warped by the fitted waits themselves (a line
//! between two retries, which for an exponential schedule is that logarithm to within a tenth of a
//! retry), so that every schedule comes out even if, and only if, the clients follow it.

use super::load::Load;
use super::svg::{Anchor, Canvas, Frame};
use super::{Look, NotDrawn};
use crate::classify::sentence::{number, seconds};
use crate::wire::IncidentJson;
use crate::wire::around::SeriesJson;

/// Bars between two retries.
const BARS: u32 = 10;
/// The height of the picture.
pub(super) const HEIGHT: f64 = 260.0;
const LEFT: f64 = 66.0;
const RIGHT: f64 = 24.0;
const ABOVE: f64 = 52.0;
const BELOW: f64 = 60.0;

/// A clock that counts retries: the instant of each, seconds after the first failure.
#[derive(Debug, Clone)]
pub(super) struct Warp {
    // Invariant: rising strictly, the first is 0, at least two.
    instants: Vec<f64>,
}

impl Warp {
    /// The clock of the fitted schedule; none without one.
    pub(super) fn of(incident: &IncidentJson) -> Option<Self> {
        let schedule = incident.schedule.as_ref()?;
        let mut instants = vec![0.0];
        for wait in &schedule.waits_seconds {
            let wait = wait.0 + schedule.attempt_latency_seconds.0;
            if !(wait.is_finite() && wait > 0.0) {
                break;
            }
            instants.push(instants[instants.len() - 1] + wait);
        }
        (instants.len() >= 2).then_some(Self { instants })
    }

    /// Retries that the schedule has until now.
    pub(super) fn retries(&self) -> usize {
        self.instants.len() - 1
    }

    /// The instant of retry `n`, seconds after the first failure.
    pub(super) fn instant(&self, n: usize) -> f64 {
        self.instants[n.min(self.retries())]
    }

    /// The number of retries due at an instant, with its fraction.
    fn position(&self, at: f64) -> f64 {
        let after = self.instants.partition_point(|instant| *instant <= at);
        // Before the first failure and behind the last retry the nearest wait goes on.
        let low = after.saturating_sub(1).min(self.retries() - 1);
        let (from, to) = (self.instants[low], self.instants[low + 1]);
        low as f64 + (at - from) / (to - from)
    }
}

pub(super) fn draw(
    incident: &IncidentJson,
    series: &SeriesJson,
    look: &Look,
) -> Result<String, NotDrawn> {
    let warp = Warp::of(incident).ok_or(NotDrawn("it has no schedule"))?;
    let load = Load::of(series).ok_or(NotDrawn("its counts were not kept"))?;
    let last = warp.retries() as f64 + 1.0;
    let count = super::load::index((last + 1.0) * f64::from(BARS));
    let width = 1.0 / f64::from(BARS);
    let mut bars = vec![0.0; count];
    let start = incident.started_at.0;
    let normal = incident.impact.baseline_rate.0;
    for (at, cell) in load.within(load.from, load.until()) {
        let Some((requests, _)) = cell else { continue };
        let from = at.seconds_since(start);
        let (low, high) =
            (warp.position(from) + 1.0, warp.position(from + load.cell_seconds) + 1.0);
        let excess = (requests - normal) * load.cell_seconds;
        spread(&mut bars, low / width, high / width, excess);
    }
    let peak = bars.iter().copied().fold(1.0, f64::max);
    let title = format!("{}: requests above normal, by retry", incident.dependency);
    let about = format!(
        "Bars of the requests above normal over the number of the retry, {} retries",
        warp.retries()
    );
    let mut canvas = Canvas::new(look, HEIGHT, &title, &about);
    canvas.headline(&title);
    let frame = Frame {
        left: LEFT,
        right: look.width() - RIGHT,
        top: ABOVE,
        bottom: HEIGHT - BELOW,
        x: [-1.0, last],
        y: [0.0, peak * 1.05],
    };
    frame.draw(&mut canvas, "requests", number);
    for (n, value) in (0_u32..).zip(&bars).filter(|(_, value)| **value > 0.0) {
        let (left, y) = (frame.at_x(f64::from(n).mul_add(width, -1.0)), frame.at_y(*value));
        let right = frame.at_x(f64::from(n + 1).mul_add(width, -1.0));
        let size = (right - left - 0.6, frame.bottom - y);
        canvas.rect("loadfill", (left, y), size, "");
    }
    let mut free_from = f64::NEG_INFINITY;
    for n in 0..=warp.retries() {
        let x = frame.at_x(n as f64);
        let dashes = "stroke-opacity=\"0.5\" stroke-dasharray=\"2 3\"";
        canvas.line("wave", (x, frame.top), (x, frame.bottom), dashes);
        canvas.marker("wavefill", (x, frame.top));
        if x >= free_from {
            free_from = x + 52.0;
            frame.x_label(&mut canvas, n as f64, &n.to_string());
            let text = format!("+{}", seconds(warp.instant(n)));
            canvas.text((x, frame.bottom + 32.0), "soft", Anchor::Middle, &text);
        }
    }
    let below = "retries due since the first failure, and the seconds they stand for";
    canvas.text((LEFT, HEIGHT - 10.0), "soft", Anchor::Start, below);
    Ok(canvas.finish())
}

/// Adds an amount evenly between two positions; what lies outside is left out.
fn spread(bars: &mut [f64], low: f64, high: f64, amount: f64) {
    let length = high - low;
    if !(length.is_finite() && length > 0.0 && amount.is_finite()) {
        return;
    }
    let first = super::load::index(low.max(0.0));
    for (number, bar) in (0_u32..).zip(bars.iter_mut()).skip(first) {
        let start = f64::from(number);
        if start >= high {
            break;
        }
        *bar += amount * (high.min(start + 1.0) - low.max(start)).max(0.0) / length;
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::storm;
    use super::*;

    #[test]
    fn the_clock_counts_retries() {
        let (incident, _) = storm();
        let warp = Warp::of(&incident).unwrap();
        // Waits of 1, 2, 4, 8 s.
        for (at, n) in [(0.0, 0.0), (1.0, 1.0), (3.0, 2.0), (7.0, 3.0), (15.0, 4.0), (5.0, 2.5)] {
            assert!((warp.position(at) - n).abs() < 1e-9, "{at}");
        }
        assert!((warp.position(-1.0) + 1.0).abs() < 1e-9);
        assert!((warp.position(23.0) - 5.0).abs() < 1e-9);
    }

    #[test]
    fn nothing_is_lost_in_between() {
        let mut bars = vec![0.0; 10];
        spread(&mut bars, 2.25, 7.5, 10.0);
        assert!((bars.iter().sum::<f64>() - 10.0).abs() < 1e-9);
        assert!(bars[1].abs() < 1e-12 && bars[8].abs() < 1e-12);
        spread(&mut bars, -3.0, 3.0, 6.0);
        assert!((bars[0] - 1.0).abs() < 1e-9);
    }
}
