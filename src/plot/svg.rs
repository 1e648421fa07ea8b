//! Writing SVG: one palette in the light and one in the dark, axes, ticks, escaped text.

use std::fmt::Write;

use super::{Look, Theme};
use crate::series::Timestamp;

/// The palette as it is written into each picture: class, property, light, dark. Text has a contrast
/// of at least 4.5 to its background in both, and no two lines differ in colour alone.
const PALETTE: &[(&str, &str, &str, &str)] = &[
    (".bg", "fill", "#ffffff", "#14181d"),
    (".ink", "fill", "#1b2128", "#e8ecf0"),
    (".soft", "fill", "#555f6b", "#a3aebb"),
    (".grid", "stroke", "#e3e6ea", "#2b323a"),
    (".axis", "stroke", "#8b95a1", "#6b7682"),
    (".load", "stroke", "#1f5fa8", "#7ab7ff"),
    (".loadfill", "fill", "#1f5fa8", "#7ab7ff"),
    (".palefill", "fill", "#a9c8ec", "#34506f"),
    (".errors", "fill", "#d9480f", "#ff8a4c"),
    (".normal", "stroke", "#2b7a3d", "#63c57a"),
    (".better", "stroke", "#2b7a3d", "#63c57a"),
    (".wave", "stroke", "#7b2cbf", "#c79bff"),
    (".wavefill", "fill", "#7b2cbf", "#c79bff"),
    (".trigger", "fill", "#ffe3a6", "#4a3a12"),
    (".past", "stroke", "#a7b0ba", "#66717d"),
    (".band", "fill", "#e9ecef", "#242b33"),
];

/// A picture under way.
#[derive(Debug)]
pub(super) struct Canvas {
    out: String,
    look: Look,
}

/// Where text is anchored.
#[derive(Debug, Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Canvas {
    /// An empty picture, `title` being its name and `about` what a screen reader says of it.
    pub(super) fn new(look: &Look, height: f64, title: &str, about: &str) -> Self {
        let width = look.width();
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" width=\"{width}\" \
             height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
             font-family=\"system-ui, sans-serif\" font-size=\"12\">\n\
             <title>{}</title>\n<desc>{}</desc>\n<style>\n",
            escape(title),
            escape(about)
        );
        let light = look.theme() != Theme::Dark;
        for (class, property, in_light, in_dark) in PALETTE {
            let colour = if light { in_light } else { in_dark };
            writeln!(out, "{class}{{{property}:{colour}}}").ok();
        }
        if look.theme() == Theme::Auto {
            out.push_str("@media (prefers-color-scheme: dark){\n");
            for (class, property, _, in_dark) in PALETTE {
                writeln!(out, "{class}{{{property}:{in_dark}}}").ok();
            }
            out.push_str("}\n");
        }
        out.push_str("</style>\n<rect class=\"bg\" width=\"100%\" height=\"100%\"/>\n");
        Self { out, look: *look }
    }

    pub(super) fn finish(mut self) -> String {
        self.out.push_str("</svg>\n");
        self.out
    }

    /// Text that is escaped here.
    pub(super) fn text(&mut self, (x, y): (f64, f64), class: &str, anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        writeln!(
            self.out,
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>",
            escape(text)
        )
        .ok();
    }

    /// The picture's headline, cut to what fits.
    pub(super) fn headline(&mut self, text: &str) {
        // Bold letters of this size are some 7.6 pixels wide.
        let room = (self.look.width() - 24.0) / 7.6;
        let shown = shortened(text, room);
        writeln!(
            self.out,
            "<text class=\"ink\" x=\"12\" y=\"20\" font-size=\"14\" font-weight=\"600\">{}</text>",
            escape(&shown)
        )
        .ok();
    }

    /// A straight line; `extra` holds further attributes.
    pub(super) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64), extra: &str) {
        writeln!(
            self.out,
            "<path class=\"{class}\" d=\"M{:.1} {:.1}L{:.1} {:.1}\" {extra}/>",
            from.0, from.1, to.0, to.1
        )
        .ok();
    }

    pub(super) fn path(&mut self, class: &str, d: &str, extra: &str) {
        writeln!(self.out, "<path class=\"{class}\" d=\"{d}\" {extra}/>").ok();
    }

    pub(super) fn rect(&mut self, class: &str, at: (f64, f64), size: (f64, f64), extra: &str) {
        writeln!(
            self.out,
            "<rect class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" {extra}/>",
            at.0,
            at.1,
            size.0.max(0.0),
            size.1.max(0.0)
        )
        .ok();
    }

    /// A small triangle that points down to `at`.
    pub(super) fn marker(&mut self, class: &str, (x, y): (f64, f64)) {
        let d = format!("M{:.1} {:.1}h8l-4 6z", x - 4.0, y - 6.0);
        self.path(class, &d, "");
    }

    /// What each line is, in a row that wraps.
    pub(super) fn legend(&mut self, top: f64, entries: &[(&str, &str)]) {
        let mut x = 12.0;
        let mut y = top;
        for (class, name) in entries {
            let wide = (name.chars().count() as f64).mul_add(6.6, 34.0);
            if x + wide > self.look.width() && x > 12.0 {
                x = 12.0;
                y += 18.0;
            }
            let at = (x, y - 9.0);
            if class.ends_with("fill") || ["errors", "trigger", "band"].contains(class) {
                self.rect(class, at, (14.0, 10.0), "");
            } else {
                let dash = if *class == "normal" { "stroke-dasharray=\"5 3\"" } else { "" };
                let middle = y - 4.0;
                let extra = format!("stroke-width=\"2\" {dash}");
                self.line(class, (x, middle), (x + 14.0, middle), &extra);
            }
            self.text((x + 19.0, y), "soft", Anchor::Start, name);
            x += wide;
        }
    }
}

/// A rectangle with two linear axes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame {
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
    pub(super) x: [f64; 2],
    pub(super) y: [f64; 2],
}

impl Frame {
    pub(super) fn at_x(&self, value: f64) -> f64 {
        let share = (value - self.x[0]) / (self.x[1] - self.x[0]).max(f64::MIN_POSITIVE);
        share.clamp(0.0, 1.0).mul_add(self.right - self.left, self.left)
    }

    pub(super) fn at_y(&self, value: f64) -> f64 {
        let share = (value - self.y[0]) / (self.y[1] - self.y[0]).max(f64::MIN_POSITIVE);
        share.clamp(0.0, 1.0).mul_add(self.top - self.bottom, self.bottom)
    }

    /// Horizontal lines with their numbers, and the axis at the bottom.
    pub(super) fn draw(&self, canvas: &mut Canvas, unit: &str, label: impl Fn(f64) -> String) {
        for value in ticks(self.y[0], self.y[1], 4) {
            let y = self.at_y(value);
            canvas.line("grid", (self.left, y), (self.right, y), "fill=\"none\"");
            canvas.text((self.left - 6.0, y + 4.0), "soft", Anchor::End, &label(value));
        }
        canvas.text((self.left - 6.0, self.top - 8.0), "soft", Anchor::End, unit);
        let (from, to) = ((self.left, self.bottom), (self.right, self.bottom));
        canvas.line("axis", from, to, "fill=\"none\"");
    }

    /// A number under the bottom axis.
    pub(super) fn x_label(&self, canvas: &mut Canvas, value: f64, text: &str) {
        let x = self.at_x(value);
        canvas.line("axis", (x, self.bottom), (x, self.bottom + 4.0), "");
        canvas.text((x, self.bottom + 17.0), "soft", Anchor::Middle, text);
    }
}

/// Round numbers between two values, about `count` of them.
pub(super) fn ticks(low: f64, high: f64, count: u32) -> Vec<f64> {
    let span = high - low;
    if !(span.is_finite() && span > 0.0) {
        return Vec::new();
    }
    let rough = span / f64::from(count);
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|step| *step >= rough * 0.999)
        .unwrap_or(10.0 * power);
    multiples(low, high, step)
}

/// Multiples of `step` within two values.
fn multiples(low: f64, high: f64, step: f64) -> Vec<f64> {
    let first = (low / step - 1e-9).ceil();
    (0..200)
        .map(|k| (first + f64::from(k)) * step)
        .take_while(|value| *value <= step.mul_add(1e-9, high))
        .collect()
}

/// Instants on round seconds, minutes or hours of the look's zone between two, about `count` of them.
pub(super) fn time_ticks(
    from: Timestamp,
    to: Timestamp,
    count: u32,
    look: &Look,
) -> Vec<Timestamp> {
    const STEPS: [f64; 16] = [
        1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0,
        21_600.0, 86_400.0,
    ];
    let span = to.seconds_since(from);
    let wanted = span / f64::from(count.max(1));
    let step = STEPS.into_iter().find(|step| *step >= wanted).unwrap_or(86_400.0);
    let ahead = look.local(from).seconds_since(from);
    multiples(from.seconds() + ahead, to.seconds() + ahead, step)
        .into_iter()
        .map(|seconds| Timestamp::from_seconds(seconds - ahead))
        .collect()
}

/// The time of day in the look's zone.
pub(super) fn clock(at: Timestamp, look: &Look) -> String {
    let seconds = look.local(at).millis().div_euclid(1000).rem_euclid(86_400);
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// At most so many characters, the end replaced by an ellipsis where there are more.
pub(super) fn shortened(text: &str, room: f64) -> String {
    let shown: String = (0_u32..)
        .zip(text.chars())
        .take_while(|(n, _)| f64::from(*n) < room)
        .map(|(_, c)| c)
        .collect();
    if shown.len() == text.len() {
        return shown;
    }
    let mut head: Vec<char> = shown.chars().collect();
    head.pop();
    head.into_iter().chain(['…']).collect()
}

/// Text for XML: markup is escaped, and characters that XML has no place for are replaced.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\r' | '\t' => out.push(' '),
            // Marks of direction would turn the text around them about.
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' => {}
            '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{fffe}' | '\u{ffff}' => {
                out.push('\u{fffd}');
            }
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within() {
        assert_eq!(ticks(0.0, 1850.0, 4), [0.0, 500.0, 1000.0, 1500.0]);
        assert_eq!(ticks(0.0, 0.5, 5).len(), 6);
        assert!(ticks(3.0, 3.0, 4).is_empty() && ticks(0.0, f64::NAN, 4).is_empty());
    }

    #[test]
    fn instants_are_on_round_times() {
        let from = Timestamp::from_seconds(1_790_000_003.0);
        let shown = |seconds: f64, offset: i32| -> Vec<String> {
            let look = Look::default().with_offset_minutes(offset);
            let found = time_ticks(from, from.plus_seconds(seconds), 6, &look);
            found.into_iter().map(|at| clock(at, &look)).collect()
        };
        let wanted = ["14:13:30", "14:13:40", "14:13:50", "14:14:00", "14:14:10", "14:14:20"];
        assert_eq!(shown(60.0, 0), wanted);
        // Round in the zone that is shown, and not in UTC.
        assert_eq!(shown(6.0 * 3600.0, 330)[..2], ["20:00:00", "21:00:00"]);
    }

    #[test]
    fn hostile_text_is_only_text() {
        assert_eq!(
            escape("<script>\"'&\u{202e}\u{0}</script>"),
            "&lt;script&gt;&quot;&#39;&amp;\u{fffd}&lt;/script&gt;"
        );
        assert_eq!(shortened("abcdef", 3.0), "ab…");
        assert_eq!(shortened("abc", 3.0), "abc");
    }

    /// The relative luminance of `#rrggbb`, by WCAG 2.
    fn luminance(colour: &str) -> f64 {
        let channel = |at: usize| {
            let value = f64::from(u8::from_str_radix(&colour[at..at + 2], 16).unwrap()) / 255.0;
            if value <= 0.03928 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        [(0.2126, 1), (0.7152, 3), (0.0722, 5)].map(|(share, at)| share * channel(at)).iter().sum()
    }

    #[test]
    fn text_and_lines_stand_out_from_the_background_in_both_themes() {
        let colour = |class: &str| *PALETTE.iter().find(|it| it.0 == class).unwrap();
        let contrast = |a: &str, b: &str| {
            let (a, b) = (luminance(a), luminance(b));
            (a.max(b) + 0.05) / (a.min(b) + 0.05)
        };
        let (_, _, light, dark) = colour(".bg");
        for (class, least) in [
            (".ink", 4.5),
            (".soft", 4.5),
            (".wavefill", 4.5),
            (".load", 3.0),
            (".errors", 3.0),
            (".normal", 3.0),
            (".better", 3.0),
            (".wave", 3.0),
        ] {
            let (_, _, in_light, in_dark) = colour(class);
            assert!(contrast(in_light, light) >= least, "{class} in the light");
            assert!(contrast(in_dark, dark) >= least, "{class} in the dark");
        }
    }
}
