//! Bytes of a query's answer to samples, streaming, into the sink.
//!
//! Decoding into owned structures and walking them afterwards costs three times the time and ten
//! times the memory of a visitor that pushes each sample as it is read; at 100,000 series that is
//! the difference between a tenth of a core and a third.
//!
//! # Method
//!
//! A serde visitor over the envelope `{"status", "data": {"resultType", "result": […]}, …}`. Every
//! shape of the instant query API is taken: a matrix (`values`), a vector (`value`), a scalar, and
//! native histograms, of which the count is the request counter. Keys may come in any order.
//! Tolerated, since servers differ: labels in any order, `"NaN"` for stale markers, fractions of a
//! second with any number of digits, values as numbers or null, unknown keys.
//!
//! # Example
//!
//! ```
//! use squall::source::{Collected, decode::decode};
//!
//! let body = br#"{"status":"success","data":{"resultType":"matrix","result":[
//!   {"metric":{"__name__":"x"},"values":[[1767225605,"24"],[1767225610.5,"27"]]}]}}"#;
//! let mut sink = Collected::default();
//! let decoded = decode(body, &mut sink)?;
//! assert_eq!((decoded.series, decoded.samples), (1, 2));
//! assert_eq!(sink.0[0].1[1].at.millis(), 1_767_225_610_500);
//! # Ok::<(), squall::source::decode::DecodeError>(())
//! ```

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::SampleSink;
use crate::series::table::LabelBuffer;
use crate::series::{Sample, Timestamp};

/// An answer that makes no sense.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// Not the JSON expected; also an answer cut off on its way.
    #[error("not the JSON of a query's answer")]
    Json(#[source] serde_json::Error),
    /// A well-formed answer that is no success, under a status that is.
    #[error("the server says `{error_type}`: {message}")]
    Server {
        /// Prometheus' own name for the kind of error.
        error_type: String,
        /// The server's words.
        message: String,
    },
    /// A success without the data asked for.
    #[error("the answer holds no {expected}")]
    Missing {
        /// What was expected.
        expected: &'static str,
    },
    /// Something else than JSON, such as a proxy's error page.
    #[error("an answer of type `{content_type}` is no JSON")]
    ContentType {
        /// The type named by the server.
        content_type: String,
    },
}

/// What was decoded, beside the samples pushed.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Decoded {
    /// Series pushed.
    pub series: u64,
    /// Samples pushed.
    pub samples: u64,
    /// The server's warnings: parts of the data may be missing.
    pub warnings: Vec<String>,
    /// The value of a scalar answer.
    pub scalar: Option<Sample>,
}

/// Decodes a successful answer of `/api/v1/query` into the sink.
///
/// # Errors
///
/// When it is not one. The sink may have got some samples by then.
pub fn decode(body: &[u8], sink: &mut dyn SampleSink) -> Result<Decoded, DecodeError> {
    let mut state = State {
        sink,
        decoded: Decoded::default(),
        labels: LabelBuffer::default(),
        name: String::new(),
        early: Vec::new(),
    };
    let mut json = serde_json::Deserializer::from_slice(body);
    let envelope = Envelope(&mut state).deserialize(&mut json).map_err(DecodeError::Json)?;
    json.end().map_err(DecodeError::Json)?;
    if envelope.status != "success" {
        return Err(DecodeError::Server {
            error_type: envelope.error_type,
            message: envelope.message,
        });
    }
    if !envelope.has_result {
        return Err(DecodeError::Missing { expected: "result" });
    }
    Ok(state.decoded)
}

/// The error of an unsuccessful answer: its `errorType` and `error`, or none when the body is not
/// Prometheus' envelope.
#[must_use]
pub fn decode_error(body: &[u8]) -> Option<(String, String)> {
    #[derive(Deserialize)]
    struct ErrorBody {
        #[serde(rename = "errorType")]
        error_type: String,
        error: String,
    }
    let body: ErrorBody = serde_json::from_slice(body).ok()?;
    Some((body.error_type, body.error))
}

/// The version in an answer of `/api/v1/status/buildinfo`; some servers give none.
///
/// # Errors
///
/// When it is no success.
pub fn decode_version(body: &[u8]) -> Result<Option<String>, DecodeError> {
    #[derive(Deserialize)]
    struct Body {
        data: Data,
    }
    #[derive(Deserialize)]
    struct Data {
        version: Option<String>,
    }
    let body: Body = serde_json::from_slice(body).map_err(DecodeError::Json)?;
    Ok(body.data.version)
}

struct State<'s> {
    sink: &'s mut dyn SampleSink,
    decoded: Decoded,
    labels: LabelBuffer,
    name: String,
    // Samples that came before their labels.
    early: Vec<Sample>,
}

#[derive(Default)]
struct Header {
    status: String,
    error_type: String,
    message: String,
    has_result: bool,
}

struct Envelope<'a, 's>(&'a mut State<'s>);

impl<'de> DeserializeSeed<'de> for Envelope<'_, '_> {
    type Value = Header;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Header, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Envelope<'_, '_> {
    type Value = Header;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the envelope of an answer")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
        let mut header = Header::default();
        while let Some(key) = map.next_key::<Cow<'_, str>>()? {
            match key.as_ref() {
                "status" => header.status = map.next_value()?,
                "errorType" => header.error_type = map.next_value()?,
                "error" => header.message = map.next_value()?,
                "warnings" => {
                    let warnings: Option<Vec<String>> = map.next_value()?;
                    self.0.decoded.warnings.extend(warnings.unwrap_or_default());
                }
                // A cluster that misses one of its stores says so here.
                "isPartial" => {
                    if map.next_value::<bool>()? {
                        self.0.decoded.warnings.push("the answer is partial".to_owned());
                    }
                }
                "data" => header.has_result = map.next_value_seed(Data(&mut *self.0))?,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(header)
    }
}

/// `{"resultType": …, "result": …}`; whether there was a result.
struct Data<'a, 's>(&'a mut State<'s>);

impl<'de> DeserializeSeed<'de> for Data<'_, '_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Data<'_, '_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the data of an answer")
    }

    fn visit_unit<E>(self) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<bool, A::Error> {
        let mut has_result = false;
        while let Some(key) = map.next_key::<Cow<'_, str>>()? {
            if key == "result" {
                map.next_value_seed(ResultList(&mut *self.0))?;
                has_result = true;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(has_result)
    }
}

/// A list of series, or the two elements of a scalar.
struct ResultList<'a, 's>(&'a mut State<'s>);

impl<'de> DeserializeSeed<'de> for ResultList<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ResultList<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of series or a scalar")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let mut scalar_at = None;
        while let Some(element) = seq.next_element_seed(Element(&mut *self.0))? {
            match (element, scalar_at) {
                (Scalar::None, _) => {}
                (Scalar::Number(at), None) => scalar_at = Some(at),
                (Scalar::Number(value), Some(at)) => {
                    let at = Timestamp::from_seconds(at);
                    self.0.decoded.scalar = Some(Sample { at, value });
                }
            }
        }
        Ok(())
    }
}

enum Scalar {
    /// The element was a series, and has been pushed.
    None,
    Number(f64),
}

struct Element<'a, 's>(&'a mut State<'s>);

impl<'de> DeserializeSeed<'de> for Element<'_, '_> {
    type Value = Scalar;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Scalar, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Element<'_, '_> {
    type Value = Scalar;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a series")
    }

    fn visit_f64<E>(self, number: f64) -> Result<Scalar, E> {
        Ok(Scalar::Number(number))
    }

    #[expect(clippy::cast_precision_loss, reason = "seconds since the epoch")]
    fn visit_u64<E>(self, number: u64) -> Result<Scalar, E> {
        Ok(Scalar::Number(number as f64))
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Scalar, E> {
        parse_value(text).map(Scalar::Number)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Scalar, A::Error> {
        let state = self.0;
        state.labels.clear();
        state.early.clear();
        let mut begun = None;
        while let Some(key) = map.next_key::<Cow<'_, str>>()? {
            match key.as_ref() {
                "metric" => {
                    map.next_value_seed(Metric(&mut *state))?;
                    begun = Some(state.sink.series(&mut state.labels));
                }
                "values" | "histograms" => map.next_value_seed(Points(&mut *state, begun))?,
                "value" | "histogram" => {
                    let point = map.next_value::<Point>()?;
                    state.push(point, begun);
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        let wanted = match begun {
            Some(wanted) => wanted,
            None => state.sink.series(&mut state.labels),
        };
        if wanted {
            for sample in state.early.drain(..) {
                state.sink.sample(sample);
            }
        }
        state.decoded.series += 1;
        Ok(Scalar::None)
    }
}

impl State<'_> {
    fn push(&mut self, point: Point, begun: Option<bool>) {
        self.decoded.samples += 1;
        match begun {
            Some(true) => self.sink.sample(point.0),
            Some(false) => {}
            None => self.early.push(point.0),
        }
    }
}

/// The labels of a series.
struct Metric<'a, 's>(&'a mut State<'s>);

impl<'de> DeserializeSeed<'de> for Metric<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Metric<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("labels")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let State { labels, name, .. } = self.0;
        while map.next_key_seed(Name(&mut *name))?.is_some() {
            map.next_value_seed(Value(&mut *labels, name.as_str()))?;
        }
        Ok(())
    }
}

/// A label name, copied into memory that is used again.
struct Name<'a>(&'a mut String);

impl<'de> DeserializeSeed<'de> for Name<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Name<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a label name")
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.0.clear();
        self.0.push_str(text);
        Ok(())
    }
}

/// A label value, pushed with its name.
struct Value<'a>(&'a mut LabelBuffer, &'a str);

impl<'de> DeserializeSeed<'de> for Value<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Value<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a label value")
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.0.push(self.1, text);
        Ok(())
    }
}

/// A list of points, pushed one by one.
struct Points<'a, 's>(&'a mut State<'s>, Option<bool>);

impl<'de> DeserializeSeed<'de> for Points<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Points<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of points")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while let Some(point) = seq.next_element::<Point>()? {
            self.0.push(point, self.1);
        }
        Ok(())
    }
}

/// `[1767225605.123, "24"]`, or a histogram in the second place.
struct Point(Sample);

impl<'de> Deserialize<'de> for Point {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pair;
        impl<'de> Visitor<'de> for Pair {
            type Value = Point;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a pair of time and value")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Point, A::Error> {
                let missing = |index| serde::de::Error::invalid_length(index, &self);
                let seconds: f64 = seq.next_element()?.ok_or_else(|| missing(0))?;
                let value: Count = seq.next_element()?.ok_or_else(|| missing(1))?;
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Point(Sample { at: Timestamp::from_seconds(seconds), value: value.0 }))
            }
        }
        deserializer.deserialize_seq(Pair)
    }
}

/// A value as text, number or null, or a native histogram's count.
struct Count(f64);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(CountVisitor).map(Self)
    }
}

struct CountVisitor;

impl<'de> Visitor<'de> for CountVisitor {
    type Value = f64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value or a histogram")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<f64, E> {
        parse_value(text)
    }

    fn visit_f64<E>(self, value: f64) -> Result<f64, E> {
        Ok(value)
    }

    #[expect(clippy::cast_precision_loss, reason = "counters are floats")]
    fn visit_u64<E>(self, value: u64) -> Result<f64, E> {
        Ok(value as f64)
    }

    #[expect(clippy::cast_precision_loss, reason = "counters are floats")]
    fn visit_i64<E>(self, value: i64) -> Result<f64, E> {
        Ok(value as f64)
    }

    fn visit_unit<E>(self) -> Result<f64, E> {
        Ok(f64::NAN)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<f64, A::Error> {
        let mut count = f64::NAN;
        while let Some(key) = map.next_key::<Cow<'_, str>>()? {
            if key == "count" {
                count = map.next_value::<Count>()?.0;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(count)
    }
}

/// Reads `"NaN"`, `"+Inf"`, `"-Inf"`, `"1e+21"` and ordinary numbers.
fn parse_value<E: serde::de::Error>(text: &str) -> Result<f64, E> {
    text.parse().map_err(|_cause| {
        serde::de::Error::invalid_value(serde::de::Unexpected::Str(text), &"a number")
    })
}

#[cfg(test)]
mod tests;
