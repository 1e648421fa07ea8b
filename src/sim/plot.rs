//! A picture of the truth: attempts and good answers per second, faults as bands.

use std::fmt::Write;

use super::truth::{Second, Truth};

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 280.0;
/// Room for the labels at the left and below.
const LEFT: f64 = 64.0;
const BELOW: f64 = 34.0;
/// Room for the title.
const ABOVE: f64 = 34.0;
/// Room at the right.
const RIGHT: f64 = 16.0;
/// Most points of a line; longer scenarios show the maximum of each step, so that no wave is lost.
const POINTS_MAX: usize = 1_200;

/// The picture as SVG: one panel for each dependency.
#[must_use]
pub fn svg(truth: &Truth) -> String {
    let panels = truth.dependencies.len() as f64;
    let height = panels * HEIGHT;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    );
    for (index, (name, line)) in (0_u32..).zip(&truth.dependencies) {
        let rows: Vec<(usize, Second)> = line.iter().collect();
        let top = f64::from(index) * HEIGHT;
        panel(&mut out, truth, name, &rows, top);
    }
    out.push_str("</svg>\n");
    out
}

fn panel(out: &mut String, truth: &Truth, name: &str, rows: &[(usize, Second)], top: f64) {
    let last = rows.last().map_or(1, |(at, _)| at + 1) as f64;
    let peak = rows.iter().map(|(_, row)| row.attempts.max(row.served)).max().unwrap_or(0).max(1);
    let x = |at: f64| LEFT + at / last * (WIDTH - LEFT - RIGHT);
    let base = top + HEIGHT - BELOW;
    let y = |rate: f64| base - rate / f64::from(peak) * (HEIGHT - BELOW - ABOVE);
    let mut add = |text: &str| {
        out.push_str(text);
        out.push('\n');
    };
    for (dependency, from, to) in truth.faults.iter().filter(|(d, _, _)| d == name) {
        let (left, right) = (x(from.min(last)), x(to.min(last)));
        add(&format!(
            "<rect x=\"{left:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"#f6d5d5\">\
             <title>fault of {}</title></rect>",
            top + ABOVE,
            (right - left).max(1.0),
            HEIGHT - BELOW - ABOVE,
            escape(dependency)
        ));
    }
    add(&format!(
        "<text x=\"{LEFT}\" y=\"{:.1}\" font-size=\"14\">{}: {} (seed {})</text>",
        top + 20.0,
        escape(&truth.scenario),
        escape(name),
        truth.seed
    ));
    for share in [0.0, 0.5, 1.0] {
        let rate = f64::from(peak) * share;
        add(&format!(
            "<path d=\"M{LEFT} {0:.1}H{1}\" stroke=\"#ddd\"/>\
             <text x=\"{2}\" y=\"{3:.1}\" text-anchor=\"end\" fill=\"#555\">{rate:.0}/s</text>",
            y(rate),
            WIDTH - RIGHT,
            LEFT - 6.0,
            y(rate) + 4.0
        ));
    }
    for step in 0..=6 {
        let at = last * f64::from(step) / 6.0;
        let anchor = if step == 6 { "end" } else { "middle" };
        add(&format!(
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\" fill=\"#555\">{at:.0} s</text>",
            x(at),
            base + 16.0
        ));
    }
    let attempts = path(rows, |row| row.attempts, &x, &y);
    let served = path(rows, |row| row.served, &x, &y);
    add(&format!(
        "<path d=\"{attempts}\" fill=\"none\" stroke=\"#1f5fa8\"><title>attempts</title></path>"
    ));
    add(&format!(
        "<path d=\"{served}\" fill=\"none\" stroke=\"#2e8b57\"><title>good answers</title></path>"
    ));
    add(&format!(
        "<text x=\"{0}\" y=\"{1:.1}\" text-anchor=\"end\"><tspan fill=\"#1f5fa8\">attempts</tspan> \
         <tspan fill=\"#2e8b57\">good answers</tspan></text>",
        WIDTH - RIGHT,
        top + 20.0
    ));
}

fn path(
    rows: &[(usize, Second)],
    of: impl Fn(&Second) -> u32,
    x: &impl Fn(f64) -> f64,
    y: &impl Fn(f64) -> f64,
) -> String {
    let step = rows.len().div_ceil(POINTS_MAX).max(1);
    let mut path = String::new();
    for chunk in rows.chunks(step) {
        let most = chunk.iter().map(|(_, row)| of(row)).max().unwrap_or(0);
        let verb = if path.is_empty() { 'M' } else { 'L' };
        let at = chunk[0].0 as f64;
        // Writing into a string cannot fail.
        let _infallible = write!(path, "{verb}{:.1} {:.1}", x(at), y(f64::from(most)));
    }
    path
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::super::builtin;
    use super::super::scenario::Scenario;
    use super::*;
    use crate::rules::Rules;

    #[test]
    fn the_picture_shows_the_peak_the_fault_and_escaped_names() {
        let text = builtin::find("herd-none").expect("a built-in scenario");
        let mut scenario =
            Scenario::parse("herd <none>", text, &Rules::default()).expect("faultless");
        scenario.duration_seconds = 200.0;
        let picture = svg(&super::super::run(&scenario, 1).truth);
        assert!(picture.contains("herd &lt;none&gt;"), "{picture}");
        assert_eq!(picture.matches("fault of payments").count(), 1);
        assert!(picture.contains(">20"), "a peak above two thousand a second");
        assert!(!picture.contains("NaN"));
    }
}
