//! The correlogram with the lags of the schedule, and the spectrum with the level of its noise.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::svg::{Anchor, Canvas, Frame, ticks};
use super::warped::Warp;
use super::{Look, NotDrawn};
use crate::classify::sentence::{seconds, significant};
use crate::wire::IncidentJson;
use crate::wire::around::SeriesJson;

const LEFT: f64 = 58.0;
const RIGHT: f64 = 24.0;
const ABOVE: f64 = 52.0;
/// The height of the picture.
pub(super) const HEIGHT: f64 = 260.0;

/// The lags at which clients in step are alike: the waits, their sums, and the differences of those.
fn teeth(incident: &IncidentJson, longest: f64) -> Vec<f64> {
    let Some(warp) = Warp::of(incident) else { return Vec::new() };
    let mut lags = BTreeSet::new();
    for high in 1..=warp.retries() {
        for low in 0..high {
            let lag = warp.instant(high) - warp.instant(low);
            if lag <= longest {
                // Tenths of a second: closer ones are one.
                lags.insert(super::load::index((lag * 10.0).round()));
            }
        }
    }
    lags.into_iter().map(|tenths| tenths as f64 / 10.0).collect()
}

pub(super) fn correlogram(
    incident: &IncidentJson,
    series: &SeriesJson,
    look: &Look,
) -> Result<String, NotDrawn> {
    let kept = series.correlogram.as_ref().ok_or(NotDrawn("it is too short for one"))?;
    let points: Vec<(f64, f64)> = kept
        .lag_seconds
        .iter()
        .zip(&kept.autocorrelation)
        .map(|(lag, value)| (*lag, value.0))
        .filter(|(_, value)| value.is_finite())
        .collect();
    let (Some(first), Some(last)) = (points.first(), points.last()) else {
        return Err(NotDrawn("it is too short for one"));
    };
    let band = if kept.band.0.is_finite() { kept.band.0 } else { 0.0 };
    let high = points.iter().map(|point| point.1).fold(1.5 * band, f64::max) * 1.1;
    let low = points.iter().map(|point| point.1).fold(-1.5 * band, f64::min) * 1.1;
    let title = format!("{}: autocorrelation of the {}", incident.dependency, kept.count);
    let about = format!("lags from {} to {}", seconds(first.0), seconds(last.0));
    let mut canvas = Canvas::new(look, HEIGHT, &title, &about);
    canvas.headline(&title);
    let frame = Frame {
        left: LEFT,
        right: look.width() - RIGHT,
        top: ABOVE,
        bottom: HEIGHT - 48.0,
        x: [0.0, last.0],
        y: [low.max(-1.0), high.min(1.0).max(low + 1e-6)],
    };
    let (top, bottom) = (frame.at_y(band), frame.at_y(-band));
    canvas.rect("band", (LEFT, top), (frame.right - LEFT, bottom - top), "");
    frame.draw(&mut canvas, "", |value| significant(value, 2));
    let zero = frame.at_y(0.0);
    canvas.line("axis", (LEFT, zero), (frame.right, zero), "");
    for lag in teeth(incident, last.0) {
        let x = frame.at_x(lag);
        canvas.line(
            "wave",
            (x, frame.top),
            (x, frame.bottom),
            "stroke-opacity=\"0.5\" stroke-dasharray=\"2 3\"",
        );
        canvas.marker("wavefill", (x, frame.top));
    }
    let mut d = String::new();
    for (n, (lag, value)) in points.iter().enumerate() {
        let letter = if n == 0 { 'M' } else { 'L' };
        write!(d, "{letter}{:.1} {:.1}", frame.at_x(*lag), frame.at_y(*value)).ok();
    }
    canvas.path("load", &d, "fill=\"none\" stroke-width=\"1.4\" stroke-linejoin=\"round\"");
    for lag in ticks(0.0, last.0, if look.is_narrow() { 4 } else { 8 }) {
        frame.x_label(&mut canvas, lag, &seconds(lag));
    }
    let below = format!("lag; lags under one scrape interval ({}) say nothing", seconds(first.0));
    canvas.text((LEFT, HEIGHT - 10.0), "soft", Anchor::Start, &below);
    Ok(canvas.finish())
}

pub(super) fn spectrum(
    incident: &IncidentJson,
    series: &SeriesJson,
    look: &Look,
) -> Result<String, NotDrawn> {
    let kept = series.spectrum.as_ref().ok_or(NotDrawn("it is too short for one"))?;
    // Frequency, power and noise, all by their logarithm.
    let points: Vec<(f64, f64, f64)> = (0..kept.hertz.len().min(kept.power.len()))
        .filter_map(|n| Some((kept.hertz[n], kept.power[n].0, kept.background.get(n)?.0)))
        .filter(|(hertz, power, level)| *hertz > 0.0 && *power > 0.0 && *level > 0.0)
        .map(|(hertz, power, level)| (hertz.log10(), power.log10(), level.log10()))
        .collect();
    let (Some(first), Some(last)) = (points.first(), points.last()) else {
        return Err(NotDrawn("it is too short for one"));
    };
    let high = points.iter().map(|it| it.1.max(it.2)).fold(f64::NEG_INFINITY, f64::max) + 0.2;
    // What lies a thousand times under the noise shows nothing.
    let floor = points.iter().map(|it| it.2).fold(f64::INFINITY, f64::min) - 1.5;
    let title = format!("{}: spectrum of the {}", incident.dependency, kept.count);
    let (long, short) = (10_f64.powf(-first.0), 10_f64.powf(-last.0));
    let about = format!("periods from {} to {}", seconds(long), seconds(short));
    let mut canvas = Canvas::new(look, HEIGHT, &title, &about);
    canvas.headline(&title);
    let frame = Frame {
        left: LEFT,
        right: look.width() - RIGHT,
        top: ABOVE,
        bottom: HEIGHT - 66.0,
        x: [first.0, last.0],
        y: [floor, high],
    };
    frame.draw(&mut canvas, "power", |value| format!("10^{}", significant(value, 2)));
    let line = |of: fn(&(f64, f64, f64)) -> f64| {
        let mut d = String::new();
        for (n, point) in points.iter().enumerate() {
            let letter = if n == 0 { 'M' } else { 'L' };
            write!(d, "{letter}{:.1} {:.1}", frame.at_x(point.0), frame.at_y(of(point))).ok();
        }
        d
    };
    canvas.path("load", &line(|it| it.1), "fill=\"none\" stroke-width=\"1.3\"");
    canvas.path(
        "normal",
        &line(|it| it.2),
        "fill=\"none\" stroke-width=\"2\" stroke-dasharray=\"5 3\"",
    );
    let periods = [0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0];
    let mut free_until = f64::INFINITY;
    for period in periods.into_iter().filter(|it| (short..=long).contains(it)) {
        let at = -period.log10();
        let x = frame.at_x(at);
        if x <= free_until {
            free_until = x - 44.0;
            frame.x_label(&mut canvas, at, &seconds(period));
        }
    }
    canvas.text((LEFT, HEIGHT - 30.0), "soft", Anchor::Start, "period (slow at the left)");
    canvas.legend(HEIGHT - 10.0, &[("load", "power"), ("normal", "level of the noise")]);
    Ok(canvas.finish())
}

#[cfg(test)]
mod tests {
    use super::super::tests::storm;
    use super::*;

    #[test]
    fn the_comb_has_the_waits_and_their_sums() {
        let (incident, _) = storm();
        // Instants 0, 1, 3, 7, 15 s.
        let wanted = [1.0, 2.0, 3.0, 4.0, 6.0, 7.0, 8.0, 12.0, 14.0, 15.0];
        assert_eq!(teeth(&incident, 60.0), wanted);
        assert_eq!(teeth(&incident, 5.0), wanted[..4]);
    }
}
