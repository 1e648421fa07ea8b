//! OpenMetrics text with timestamps, as `promtool tsdb create-blocks-from openmetrics` takes it.

use super::SimulatedSeries;
use super::scraper::{CALLS, REQUESTS, RETRIES};
use crate::series::Labels;

/// Families in the order of the text, with their help.
const FAMILIES: [(&str, &str); 3] = [
    (REQUESTS, "Requests sent to a dependency."),
    (RETRIES, "Requests sent again after a failure."),
    (CALLS, "Requests wanted, retries not counted."),
];

/// Label names in the order in which they are written.
const LABEL_ORDER: [&str; 5] = ["job", "instance", "dependency", "code", "replica"];

/// The whole text, one series after the other.
#[must_use]
pub fn write(series: &[SimulatedSeries]) -> String {
    let mut text = String::new();
    for (name, help) in FAMILIES {
        let mut family =
            series.iter().filter(|s| s.labels.get("__name__") == Some(name)).peekable();
        if family.peek().is_none() {
            continue;
        }
        header(&mut text, name, help);
        for one in family {
            let head = format!("{name}{}", label_text(&one.labels));
            for sample in &one.samples {
                let millis = sample.at.millis();
                let (whole, part) = (millis.div_euclid(1000), millis.rem_euclid(1000));
                line(&mut text, &head, &format!("{} {whole}.{part:03}", sample.value));
            }
        }
    }
    text.push_str("# EOF\n");
    text
}

/// What one target shows, without timestamps.
#[must_use]
pub fn write_exposition(shown: &[(Labels, u64)]) -> String {
    let mut text = String::new();
    for (name, help) in FAMILIES {
        let mut family = shown.iter().filter(|(l, _)| l.get("__name__") == Some(name)).peekable();
        if family.peek().is_none() {
            continue;
        }
        header(&mut text, name, help);
        for (labels, value) in family {
            // Job and instance are the scraper's to add.
            let own = labels.project(&["dependency", "code"]);
            line(&mut text, &format!("{name}{}", label_text(&own)), &value.to_string());
        }
    }
    text.push_str("# EOF\n");
    text
}

fn header(text: &mut String, name: &str, help: &str) {
    let family = name.strip_suffix("_total").unwrap_or(name);
    line(text, &format!("# HELP {family}"), help);
    line(text, &format!("# TYPE {family}"), "counter");
}

fn line(text: &mut String, head: &str, tail: &str) {
    text.push_str(head);
    text.push(' ');
    text.push_str(tail);
    text.push('\n');
}

fn label_text(labels: &Labels) -> String {
    let mut text = String::from("{");
    for name in LABEL_ORDER {
        if let Some(value) = labels.get(name) {
            let comma = if text.len() > 1 { "," } else { "" };
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            text.push_str(&format!("{comma}{name}=\"{value}\""));
        }
    }
    text.push('}');
    text
}
