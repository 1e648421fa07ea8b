//! What several pages show alike: chips, times, numbers, links.

use maud::{Markup, html};

use crate::classify::sentence::number;
use crate::classify::{Class, Severity};
use crate::incident::State;
use crate::series::Timestamp;
use crate::wire::rfc3339;

/// Longest name in a list, in characters; the page of the thing itself shows all of it.
pub(super) const NAME_SHOWN: usize = 80;

/// At most `max` characters; the end is replaced by an ellipsis where there are more.
pub(super) fn shortened(text: &str, max: usize) -> String {
    let mut chars = text.chars();
    let head: String = chars.by_ref().take(max).collect();
    if chars.next().is_none() { head } else { format!("{head}…") }
}

/// A text as one part of a path or one value of a query.
pub(super) fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// What a class is called.
pub(super) const fn class_name(class: Class) -> &'static str {
    match class {
        Class::BackoffWithoutJitter => "Backoff without jitter",
        Class::RetryStormWithoutBackoff => "Retry storm without backoff",
        Class::PartialJitter => "Partial jitter",
        Class::JitteredBackoff => "Jittered backoff",
        Class::Inconclusive => "Retries of unknown kind",
    }
}

/// What a class means, for somebody who has never heard of it.
pub(super) const fn class_meaning(class: Class) -> &'static str {
    match class {
        Class::BackoffWithoutJitter => {
            "Many clients failed at the same moment and all wait the same times before they try \
             again, so they come back together, wave after wave, and can knock the service down \
             each time. Waiting longer does not break the herd up; only a random part in each wait \
             (jitter) does."
        }
        Class::RetryStormWithoutBackoff => {
            "Clients try again at once, or nearly so, while the service fails. Each request becomes \
             several, and the load can stay up after its cause is gone, because by then the retries \
             are the cause. What helps is fewer retries: budgets, circuit breakers, shedding load."
        }
        Class::PartialJitter => {
            "Clients come back in waves that are smeared but still there: their waits have a random \
             part, and a fixed part that is too large. No page is sent for it."
        }
        Class::JitteredBackoff => {
            "Clients retry with waits that are random enough: the load decays smoothly. Nothing is \
             wrong with it; it is kept for the record."
        }
        Class::Inconclusive => {
            "There are retries, and the sampling here is too coarse to tell waves in step from a \
             flood. The evidence says what it would take to see it."
        }
    }
}

/// A class, a severity or a state as a small label; the word says all, the colour repeats it.
pub(super) fn class_chip(class: Class) -> Markup {
    html! { span class={ "chip " (class.as_str()) } { (class_name(class)) } }
}

pub(super) fn severity_chip(severity: Severity) -> Markup {
    html! { span class={ "chip " (severity.as_str()) } { (severity.as_str()) } }
}

pub(super) fn state_chip(state: State) -> Markup {
    html! { span class={ "chip " (state.as_str()) } { (state.as_str()) } }
}

/// An instant, in UTC until the script is told otherwise.
pub(super) fn time(at: Timestamp) -> Markup {
    let full = rfc3339(at);
    let day = full.get(..10).unwrap_or_default();
    let clock = full.get(11..19).unwrap_or_default();
    html! { time datetime=(full) { (day) " " (clock) " UTC" } }
}

/// A length of time in the two units that matter.
pub(super) fn lasting(seconds: f64) -> String {
    let whole = seconds.max(0.0);
    if whole < 60.0 {
        return crate::classify::sentence::seconds(whole);
    }
    let minutes = (whole / 60.0).floor();
    if minutes < 60.0 {
        return format!("{minutes:.0} min {:.0} s", 60.0_f64.mul_add(-minutes, whole).floor());
    }
    let hours = (minutes / 60.0).floor();
    if hours < 48.0 {
        return format!("{hours:.0} h {:.0} min", 60.0_f64.mul_add(-hours, minutes));
    }
    format!("{:.0} days", hours / 24.0)
}

/// A number for people, a dash where there is none.
pub(super) fn figure(value: f64) -> String {
    if value.is_finite() { number(value) } else { "–".to_owned() }
}

/// A `select` of a filter.
pub(super) fn select(name: &str, label: &str, chosen: &str, options: &[(&str, &str)]) -> Markup {
    html! {
        label { (label)
            select name=(name) {
                @for (value, text) in options {
                    option value=(value) selected[*value == chosen] { (text) }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(shortened("🌩🌩🌩", 3), "🌩🌩🌩");
        assert_eq!(shortened("🌩🌩🌩🌩", 3), "🌩🌩🌩…");
        assert_eq!(encoded("a/b?\"é"), "a%2Fb%3F%22%C3%A9");
    }

    #[test]
    fn lengths_have_two_units() {
        assert_eq!(lasting(7.25), "7.2 s");
        assert_eq!(lasting(125.0), "2 min 5 s");
        assert_eq!(lasting(7320.0), "2 h 2 min");
        assert_eq!(lasting(300_000.0), "3 days");
        assert_eq!(figure(f64::NAN), "–");
    }

    #[test]
    fn an_instant_names_its_zone() {
        let shown = time(Timestamp::from_millis(1_790_000_000_123)).into_string();
        assert_eq!(
            shown,
            "<time datetime=\"2026-09-21T14:13:20.123Z\">2026-09-21 14:13:20 UTC</time>"
        );
    }
}
