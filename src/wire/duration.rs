//! Durations as Prometheus writes them: `15s`, `1h30m`, `400d`.

use std::time::Duration;

/// The units, from the longest, with their milliseconds; each may stand once, in this order.
const UNITS: [(&str, u64); 7] = [
    ("y", 365 * 86_400_000),
    ("w", 7 * 86_400_000),
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1000),
    ("ms", 1),
];

/// The duration that text such as `1h30m` names; none for anything else.
#[must_use]
pub fn parse_duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text;
    let mut units = UNITS.as_slice();
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let (number, tail) = rest.split_at(digits);
        let letters = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        let place = units.iter().position(|(name, _)| *name == unit)?;
        let millis = number.parse::<u64>().ok()?.checked_mul(units.get(place)?.1)?;
        total = total.checked_add(millis)?;
        units = units.get(place + 1..)?;
        rest = tail;
    }
    (!text.is_empty()).then_some(Duration::from_millis(total))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_those_of_prometheus() {
        let check = |text, seconds: Option<f64>| {
            assert_eq!(parse_duration(text), seconds.map(Duration::from_secs_f64), "{text}");
        };
        check("15s", Some(15.0));
        check("1h30m", Some(5400.0));
        check("400d", Some(400.0 * 86_400.0));
        check("1500ms", Some(1.5));
        check("0", Some(0.0));
        for wrong in ["", "15", "s", "30m1h", "1s1s", "-1s", "1.5s", "1 s"] {
            check(wrong, None);
        }
    }
}
