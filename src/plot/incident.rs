//! The picture of an incident: what arrived, what failed, where the waves stand.

use std::fmt::Write;

use super::Look;
use super::load::{Load, view};
use super::svg::{Anchor, Canvas, Frame, clock, time_ticks};
use crate::classify::sentence::{OUTLIVED_SECONDS_MIN, number, seconds};
use crate::series::Timestamp;
use crate::wire::{IncidentJson, rfc3339};

use crate::wire::around::SeriesJson;

/// Room for the labels at the left.
const LEFT: f64 = 70.0;
/// Room at the right, for half a label.
const RIGHT: f64 = 30.0;
/// Room for the headline and the labels of the waves.
const ABOVE: f64 = 70.0;
/// Room for the times and the legend.
const BELOW: f64 = 74.0;
/// The height of the picture.
pub(super) const HEIGHT: f64 = 340.0;
/// How far the finer line stands above the measured peak before it is said.
pub(super) const ABOVE_THE_PEAK: f64 = 1.05;
/// Width from which the foot has room for a sentence, pixels.
const FOOT_WIDTH: f64 = 760.0;
/// Shortest distance of two labels of waves, pixels.
const LABEL_ROOM: f64 = 42.0;

pub(super) fn draw(incident: &IncidentJson, series: &SeriesJson, look: &Look) -> String {
    let load = Load::of(series);
    let [from, to] = view(incident, load.as_ref());
    let title = format!("{}: {}, {}", incident.dependency, incident.classification, incident.state);
    let mut canvas = Canvas::new(look, HEIGHT, &title, &incident.summary);
    canvas.headline(&title);
    let impact = &incident.impact;
    let peak = load.as_ref().map_or(impact.peak_rate.0, |load| load.peak(from, to));
    let peak = peak.max(impact.baseline_rate.0).max(1.0);
    let frame = Frame {
        left: LEFT,
        right: look.width() - RIGHT,
        top: ABOVE,
        bottom: HEIGHT - BELOW,
        x: [0.0, to.seconds_since(from)],
        y: [0.0, if peak.is_finite() { peak * 1.05 } else { 1.0 }],
    };
    let x = |at: Timestamp| frame.at_x(at.seconds_since(from));
    trigger(&mut canvas, &frame, incident, x);
    frame.draw(&mut canvas, "", |rate| format!("{}/s", number(rate)));
    if let Some(load) = &load {
        canvas.path("errors", &area(load, from, to, &frame), "fill-opacity=\"0.85\"");
        let line = steps(load, from, to, &frame);
        canvas.path("load", &line, "fill=\"none\" stroke-width=\"1.6\" stroke-linejoin=\"round\"");
    } else {
        let middle = f64::midpoint(frame.left, frame.right);
        let text = "The counts around this incident were not kept.";
        canvas.text((middle, 110.0), "soft", Anchor::Middle, text);
    }
    let normal = impact.baseline_rate.0;
    if normal.is_finite() {
        let y = frame.at_y(normal);
        canvas.line(
            "normal",
            (LEFT, y),
            (frame.right, y),
            "stroke-width=\"2\" stroke-dasharray=\"5 3\"",
        );
    }
    waves(&mut canvas, &frame, incident, look, x);
    let date = rfc3339(look.local(incident.started_at.0));
    let count = if look.is_narrow() { 3 } else { 7 };
    for at in time_ticks(from, to, count, look) {
        frame.x_label(&mut canvas, at.seconds_since(from), &clock(at, look));
    }
    let resolution = load.as_ref().map_or_else(String::new, |load| {
        let scrape = seconds(load.scrape_seconds);
        let measured = impact.peak_rate.0;
        let stands_above = measured.is_finite() && peak > ABOVE_THE_PEAK * measured;
        match (look.width() < FOOT_WIDTH, stands_above) {
            (true, true) => format!(" · finer than the peak's {scrape}"),
            (true, false) => format!(" · scraped every {scrape}"),
            (false, true) => format!(
                " · drawn at {}, so tips stand above the peak of {}/s, the mean over a scrape of {scrape}",
                seconds(load.cell_seconds),
                number(measured)
            ),
            (false, false) => {
                format!(" · drawn at {}, scraped every {scrape}", seconds(load.cell_seconds))
            }
        }
    });
    let below = format!("{} {}{resolution}", date.get(..10).unwrap_or_default(), look.zone());
    canvas.text((LEFT, HEIGHT - BELOW + 34.0), "soft", Anchor::Start, &below);
    let mut entries =
        vec![("load", "requests"), ("errors", "failed"), ("normal", "normal traffic")];
    if !incident.waves.is_empty() {
        entries.push(("wavefill", what_waves_count(incident).0));
    }
    if trigger_span(incident).is_some() {
        entries.push(("trigger", "the first cause"));
    }
    let wraps = look.width() < 520.0;
    canvas.legend(HEIGHT - if wraps { 24.0 } else { 12.0 }, &entries);
    canvas.finish()
}

/// What the number over each wave is: for the legend, and as the head of its row.
fn what_waves_count(incident: &IncidentJson) -> (&'static str, &'static str) {
    match incident.waves.first().map(|wave| wave.counts.as_str()) {
        Some("failures") => ("waves, and how many requests failed in each", "failed"),
        _ => ("waves, and how many requests came in each", "requests"),
    }
}

/// From the first failure to the end of its first cause, where the load outlived it by enough to say
/// so: waves that go on to the end of a cause say nothing of it.
fn trigger_span(incident: &IncidentJson) -> Option<[Timestamp; 2]> {
    let ended = incident.impact.trigger_ended_at?.0;
    if incident.impact.outlived_trigger_seconds.0 < OUTLIVED_SECONDS_MIN {
        return None;
    }
    (ended > incident.started_at.0).then_some([incident.started_at.0, ended])
}

fn trigger(
    canvas: &mut Canvas,
    frame: &Frame,
    incident: &IncidentJson,
    x: impl Fn(Timestamp) -> f64,
) {
    let Some([from, to]) = trigger_span(incident) else { return };
    let (left, right) = (x(from), x(to));
    let at = (left, frame.top);
    canvas.rect("trigger", at, ((right - left).max(2.0), frame.bottom - frame.top), "");
}

/// Marks every wave, and labels as many as there is room for.
fn waves(
    canvas: &mut Canvas,
    frame: &Frame,
    incident: &IncidentJson,
    look: &Look,
    x: impl Fn(Timestamp) -> f64,
) {
    let start = incident.started_at.0;
    let first_wait = incident.schedule.as_ref().map_or(0.0, |schedule| schedule.base_seconds.0);
    let since = |at: Timestamp| {
        let after = at.seconds_since(start).max(0.0);
        if after < first_wait / 2.0 { "failure".to_owned() } else { format!("+{}", seconds(after)) }
    };
    let mut free_from = f64::NEG_INFINITY;
    if incident.waves.is_empty() {
        let at = x(start);
        canvas.line("wave", (at, frame.top), (at, frame.bottom), "stroke-dasharray=\"2 3\"");
        canvas.text((at - 4.0, frame.top - 8.0), "wavefill", Anchor::Start, "first failure");
        return;
    }
    let head = |canvas: &mut Canvas, above: f64, text: &str| {
        canvas.text((LEFT - 6.0, frame.top - above), "soft", Anchor::End, text);
    };
    head(canvas, 22.0, "after");
    // Counted over the whole wave: no height on the axis below.
    head(canvas, 10.0, what_waves_count(incident).1);
    for wave in &incident.waves {
        let at = x(wave.expected_at.0);
        canvas.line(
            "wave",
            (at, frame.top),
            (at, frame.bottom),
            "stroke-opacity=\"0.45\" stroke-dasharray=\"2 3\"",
        );
        canvas.marker("wavefill", (at, frame.top));
        if at >= free_from {
            free_from = at + LABEL_ROOM;
            let text = since(wave.expected_at.0);
            canvas.text((at, frame.top - 22.0), "wavefill", Anchor::Middle, &text);
            if wave.requests.0.is_finite() {
                let size = number(wave.requests.0);
                canvas.text((at, frame.top - 10.0), "soft", Anchor::Middle, &size);
            }
        }
    }
    let Some(next) = incident.next_wave_at.filter(|_| incident.state != "resolved") else { return };
    let at = x(next.0);
    canvas.line(
        "wave",
        (at, frame.top),
        (at, frame.bottom),
        "stroke-width=\"2\" stroke-dasharray=\"6 4\"",
    );
    let text = format!("next wave {}", clock(next.0, look));
    // Into the picture where it would run over its edge; letters are some 7 pixels wide.
    let ends = 7.0_f64.mul_add(text.chars().count() as f64, at + 6.0);
    let runs_over = ends > frame.right + RIGHT;
    let (anchor, shift) = if runs_over { (Anchor::End, -6.0) } else { (Anchor::Start, 6.0) };
    canvas.text((at + shift, frame.top + 14.0), "wavefill", anchor, &text);
}

/// The highest and lowest cell of each column of pixels, so that no wave is lost.
fn columns(load: &Load, from: Timestamp, to: Timestamp, frame: &Frame) -> Vec<Option<Column>> {
    let mut columns: Vec<Option<Column>> = Vec::new();
    let mut last = f64::NEG_INFINITY;
    for (start, cell) in load.within(from, to) {
        let left = frame.at_x(start.seconds_since(from));
        let right = frame.at_x(start.plus_seconds(load.cell_seconds).seconds_since(from));
        let Some((requests, errors)) = cell else {
            columns.push(None);
            last = f64::NEG_INFINITY;
            continue;
        };
        // At most two cells a pixel.
        if left < last + 0.5
            && let Some(Some(column)) = columns.last_mut()
        {
            column.right = right;
            column.requests = column.requests.max(requests);
            column.errors = column.errors.max(errors);
            continue;
        }
        last = left;
        columns.push(Some(Column { left, right, requests, errors }));
    }
    columns
}

/// One step of the drawn line.
#[derive(Debug, Clone, Copy)]
struct Column {
    left: f64,
    right: f64,
    requests: f64,
    errors: f64,
}

/// The requests as a line of steps, broken at gaps.
pub(super) fn steps(load: &Load, from: Timestamp, to: Timestamp, frame: &Frame) -> String {
    let mut d = String::new();
    let mut pen_is_down = false;
    for column in columns(load, from, to, frame) {
        let Some(column) = column else {
            pen_is_down = false;
            continue;
        };
        let y = frame.at_y(column.requests);
        if pen_is_down {
            write!(d, "V{y:.1}H{:.1}", column.right).ok();
        } else {
            write!(d, "M{:.1} {y:.1}H{:.1}", column.left, column.right).ok();
            pen_is_down = true;
        }
    }
    d
}

/// The failures as an area.
fn area(load: &Load, from: Timestamp, to: Timestamp, frame: &Frame) -> String {
    let mut d = String::new();
    for column in columns(load, from, to, frame).into_iter().flatten() {
        if column.errors > 0.0 {
            let (y, bottom) = (frame.at_y(column.errors), frame.bottom);
            write!(d, "M{:.1} {bottom:.1}V{y:.1}H{:.1}V{bottom:.1}z", column.left, column.right)
                .ok();
        }
    }
    d
}
