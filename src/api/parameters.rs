//! The parameters of a query, each with its limit.
//!
//! They are read by hand and not through a derived type, because an error has to name the
//! parameter and say what it may be, and because a parameter given twice, or one that does not
//! exist, is a mistake to be told of: a filter with a typo that is ignored shows a full list where
//! an empty one is true.

use std::time::Duration;

use crate::api::answer::ApiError;
use crate::series::Timestamp;
use crate::series::selector::parse_duration;

/// The most parameters a query may have; each path takes fewer than this.
const PARAMETERS_MAX: usize = 32;
/// The longest value of a parameter, in bytes; a label value is rarely longer than a host's name.
const VALUE_BYTES_MAX: usize = 1024;

/// The parameters of one query, taken one by one.
#[derive(Debug)]
pub(crate) struct Parameters(Vec<(String, String)>);

impl Parameters {
    /// Parses the query string of an address.
    ///
    /// # Errors
    ///
    /// When there are too many parameters, one is too long, or one is given twice.
    pub(crate) fn parse(query: Option<&str>) -> Result<Self, ApiError> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for part in query.unwrap_or_default().split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let (name, value) = (unescaped(name)?, unescaped(value)?);
            if pairs.len() >= PARAMETERS_MAX {
                return Err(ApiError::bad_data(format!("more than {PARAMETERS_MAX} parameters")));
            }
            if value.len() > VALUE_BYTES_MAX {
                return Err(invalid(&name, &format!("longer than {VALUE_BYTES_MAX} bytes")));
            }
            if pairs.iter().any(|(known, _)| *known == name) {
                return Err(invalid(&name, "given twice"));
            }
            pairs.push((name, value));
        }
        Ok(Self(pairs))
    }

    /// Takes a parameter; an empty value is the same as none.
    pub(crate) fn text(&mut self, name: &str) -> Option<String> {
        let index = self.0.iter().position(|(known, _)| known == name)?;
        Some(self.0.swap_remove(index).1).filter(|value| !value.is_empty())
    }

    /// Takes a parameter that is one of a closed set.
    ///
    /// # Errors
    ///
    /// When it is none of them.
    pub(crate) fn one_of<T: Copy>(
        &mut self,
        name: &str,
        parse: impl Fn(&str) -> Option<T>,
        names: &str,
    ) -> Result<Option<T>, ApiError> {
        let Some(value) = self.text(name) else { return Ok(None) };
        match parse(&value) {
            Some(parsed) => Ok(Some(parsed)),
            None => Err(invalid(name, &format!("must be one of {names}, got `{value}`"))),
        }
    }

    /// Takes an instant: RFC 3339, Unix seconds, or a day.
    ///
    /// # Errors
    ///
    /// When it is neither.
    pub(crate) fn instant(&mut self, name: &str) -> Result<Option<Timestamp>, ApiError> {
        let Some(value) = self.text(name) else { return Ok(None) };
        if let Ok(seconds) = value.parse::<f64>()
            && seconds.is_finite()
        {
            return Ok(Some(Timestamp::from_seconds(seconds)));
        }
        // A day, as a field for dates gives it, begins at midnight in UTC.
        if value.len() == "2026-09-21".len()
            && let Ok(midnight) = format!("{value}T00:00:00Z").parse::<jiff::Timestamp>()
        {
            return Ok(Some(Timestamp::from_millis(midnight.as_millisecond())));
        }
        match value.parse::<jiff::Timestamp>() {
            Ok(instant) => Ok(Some(Timestamp::from_millis(instant.as_millisecond()))),
            Err(_) => {
                Err(invalid(name, &format!("must be RFC 3339 or Unix seconds, got `{value}`")))
            }
        }
    }

    /// Takes a duration as Prometheus writes it (`7d`), or whole seconds.
    ///
    /// # Errors
    ///
    /// When it is neither, or shorter than a second.
    pub(crate) fn duration(&mut self, name: &str) -> Result<Option<Duration>, ApiError> {
        let Some(value) = self.text(name) else { return Ok(None) };
        let read = parse_duration(&value).or_else(|| value.parse().ok().map(Duration::from_secs));
        match read.filter(|duration| duration.as_secs() > 0) {
            Some(duration) => Ok(Some(duration)),
            None => Err(invalid(name, &format!("must be a duration such as 7d, got `{value}`"))),
        }
    }

    /// Takes a count between 1 and `max`.
    ///
    /// # Errors
    ///
    /// When it is not.
    pub(crate) fn count(
        &mut self,
        name: &str,
        default: usize,
        max: usize,
    ) -> Result<usize, ApiError> {
        let Some(value) = self.text(name) else { return Ok(default) };
        value
            .parse()
            .ok()
            .filter(|count| (1..=max).contains(count))
            .ok_or_else(|| invalid(name, &format!("must be 1 to {max}, got `{value}`")))
    }

    /// Ends the reading.
    ///
    /// # Errors
    ///
    /// When a parameter is left that nothing took.
    pub(crate) fn finish(self) -> Result<(), ApiError> {
        match self.0.first() {
            None => Ok(()),
            Some((name, _)) => Err(invalid(name, "no such parameter here")),
        }
    }
}

/// The error for one parameter, in the words of Prometheus.
fn invalid(name: &str, why: &str) -> ApiError {
    ApiError::bad_data(format!("invalid parameter \"{name}\": {why}"))
}

/// Undoes the escapes of a query string: `+` is a space, `%XX` a byte.
fn unescaped(text: &str) -> Result<String, ApiError> {
    let broken = || ApiError::bad_data("the query string is not well formed");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || {
                    let digit = char::from(rest.next()?).to_digit(16)?;
                    u8::try_from(digit).ok()
                };
                let high = digit().ok_or_else(broken)?;
                let low = digit().ok_or_else(broken)?;
                high * 16 + low
            }
            other => other,
        });
    }
    String::from_utf8(bytes).map_err(|_broken| broken())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(outcome: Result<impl std::fmt::Debug, ApiError>) -> String {
        outcome.expect_err("an error").message
    }

    #[test]
    fn escapes_are_undone_and_bad_ones_are_refused() {
        let mut parameters = Parameters::parse(Some("q=a+b%2Fc&limit=3")).expect("well formed");
        assert_eq!(parameters.text("q").as_deref(), Some("a b/c"));
        assert_eq!(parameters.count("limit", 100, 1000), Ok(3));
        parameters.finish().expect("nothing left");
        assert_eq!(
            message(Parameters::parse(Some("q=%zz"))),
            "the query string is not well formed"
        );
        assert_eq!(
            message(Parameters::parse(Some("q=%ff"))),
            "the query string is not well formed"
        );
    }

    #[test]
    fn every_limit_is_kept_on_both_sides() {
        let limit = |text: &str| {
            Parameters::parse(Some(text)).and_then(|mut p| p.count("limit", 100, 1000))
        };
        assert_eq!(limit(""), Ok(100));
        assert_eq!(limit("limit=1000"), Ok(1000));
        assert_eq!(
            message(limit("limit=1001")),
            "invalid parameter \"limit\": must be 1 to 1000, got `1001`"
        );
        assert_eq!(
            message(limit("limit=0")),
            "invalid parameter \"limit\": must be 1 to 1000, got `0`"
        );
        let long = |length: usize| Parameters::parse(Some(&format!("q={}", "x".repeat(length))));
        assert!(long(VALUE_BYTES_MAX).is_ok());
        assert!(message(long(VALUE_BYTES_MAX + 1)).contains("longer than 1024 bytes"));
        let many = |count: usize| {
            let all: Vec<String> = (0..count).map(|index| format!("p{index}=1")).collect();
            Parameters::parse(Some(&all.join("&")))
        };
        assert!(many(PARAMETERS_MAX).is_ok());
        assert_eq!(message(many(PARAMETERS_MAX + 1)), "more than 32 parameters");
    }

    #[test]
    fn unknown_and_repeated_parameters_are_told() {
        let left = Parameters::parse(Some("dependancy=x")).and_then(Parameters::finish);
        assert_eq!(message(left), "invalid parameter \"dependancy\": no such parameter here");
        let twice = Parameters::parse(Some("q=1&q=2"));
        assert_eq!(message(twice), "invalid parameter \"q\": given twice");
    }

    #[test]
    fn durations_are_as_prometheus_writes_them_or_seconds() {
        let of = |text: &str| Parameters::parse(Some(text)).and_then(|mut p| p.duration("step"));
        assert_eq!(of("step=7d"), Ok(Some(Duration::from_secs(7 * 86_400))));
        assert_eq!(of("step=60"), Ok(Some(Duration::from_secs(60))));
        assert_eq!(of(""), Ok(None));
        assert!(message(of("step=0s")).contains("such as 7d, got `0s`"));
        assert!(message(of("step=week")).contains("such as 7d"));
    }

    #[test]
    fn instants_are_rfc_3339_or_unix_seconds() {
        let at = |text: &str| Parameters::parse(Some(text)).and_then(|mut p| p.instant("from"));
        let expected = Some(Timestamp::from_millis(1_767_225_660_500));
        assert_eq!(at("from=1767225660.5"), Ok(expected));
        assert_eq!(at("from=2026-01-01T00:01:00.5Z"), Ok(expected));
        assert_eq!(at("from=2026-01-01T01:01:00.5%2B01:00"), Ok(expected));
        assert!(message(at("from=yesterday")).contains("RFC 3339"));
        assert!(message(at("from=inf")).contains("RFC 3339"));
    }
}
