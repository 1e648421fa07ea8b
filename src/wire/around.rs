//! The JSON form of what is kept around an incident: the `series` of its detail.
//!
//! Columns and not rows, since the names of the fields would be most of the text. Instants are
//! seconds after `since`, to the millisecond.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Instant3339, Number};
use crate::detect::even::Count;
use crate::pipeline::around::{Around, Correlogram, Model, PowerCurve};
use crate::series::Timestamp;

/// What is kept around an incident; each part may be missing.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SeriesJson {
    /// Per-target counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub increments: Option<IncrementsJson>,
    /// Normal traffic and the sampling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelJson>,
    /// The autocorrelation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlogram: Option<CorrelogramJson>,
    /// The spectrum.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spectrum: Option<SpectrumJson>,
}

/// Per-target increments of the counters: one observation an index, in the order of their ends.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct IncrementsJson {
    /// What the seconds below count from.
    pub since: Instant3339,
    /// The target's number.
    pub target: Vec<u32>,
    /// The sample before.
    pub from_seconds: Vec<f64>,
    /// The sample at the end.
    pub to_seconds: Vec<f64>,
    /// Requests that arrived between the two.
    pub requests: Vec<f64>,
    /// Those of them that failed.
    pub errors: Vec<f64>,
}

/// Normal traffic as it was learned before the incident, and the sampling.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelJson {
    /// Requests per second.
    pub baseline_rate: Number,
    /// Variance-to-mean ratio of the counts.
    pub dispersion: Number,
    /// Share of requests that fail.
    pub error_ratio: Number,
    /// Each target's share of the traffic, by its number.
    pub shares: Vec<Number>,
    /// Who calls, by the target's number; none where the watch names no label of the caller.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<String>,
    /// Seconds between two scrapes of one target.
    pub scrape_interval_seconds: Number,
    /// Seconds between two scrapes of any target.
    pub effective_step_seconds: Number,
    /// The shortest wait between two waves that can be told apart.
    pub resolvable_gap_seconds: Number,
}

/// The autocorrelation of what is above the trend.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CorrelogramJson {
    /// `requests` or `errors`.
    pub count: String,
    /// The lags.
    pub lag_seconds: Vec<f64>,
    /// The autocorrelation at each.
    pub autocorrelation: Vec<Number>,
    /// Half the width of the band that 95 % of the lags stay in.
    pub band: Number,
}

/// The power at each frequency, and the level of the red noise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SpectrumJson {
    /// `requests` or `errors`.
    pub count: String,
    /// The frequencies.
    pub hertz: Vec<f64>,
    /// The power at each.
    pub power: Vec<Number>,
    /// The noise level at each.
    pub background: Vec<Number>,
}

impl SeriesJson {
    /// The parts by their kind, as the store keeps them.
    #[must_use]
    pub fn by_kind(&self) -> Vec<(&'static str, Vec<u8>)> {
        let all = [
            ("increments", self.increments.as_ref().map(serde_json::to_vec)),
            ("model", self.model.as_ref().map(serde_json::to_vec)),
            ("correlogram", self.correlogram.as_ref().map(serde_json::to_vec)),
            ("spectrum", self.spectrum.as_ref().map(serde_json::to_vec)),
        ];
        // Numbers, texts and lists of them: there is nothing in it that JSON cannot say.
        all.into_iter().filter_map(|(kind, body)| Some((kind, body?.ok()?))).collect()
    }

    /// The parts that can be read of what the store kept, by kind; others are left out.
    #[must_use]
    pub fn of_kinds<'a>(kinds: impl IntoIterator<Item = (&'a str, &'a Value)>) -> Self {
        let mut series = Self::default();
        for (kind, body) in kinds {
            match kind {
                "increments" => series.increments = IncrementsJson::deserialize(body).ok(),
                "model" => series.model = ModelJson::deserialize(body).ok(),
                "correlogram" => series.correlogram = CorrelogramJson::deserialize(body).ok(),
                "spectrum" => series.spectrum = SpectrumJson::deserialize(body).ok(),
                _ => {}
            }
        }
        // Columns of different lengths are no table.
        series.increments = series.increments.filter(|it| {
            let rows = it.target.len();
            [&it.from_seconds, &it.to_seconds, &it.requests, &it.errors]
                .iter()
                .all(|column| column.len() == rows)
        });
        series
    }
}

impl From<&Around> for SeriesJson {
    fn from(around: &Around) -> Self {
        Self {
            increments: Some(increments(around)),
            model: Some(ModelJson::from(&around.model)),
            correlogram: around.correlogram.as_ref().map(CorrelogramJson::from),
            spectrum: around.spectrum.as_ref().map(SpectrumJson::from),
        }
    }
}

fn increments(around: &Around) -> IncrementsJson {
    let rows = &around.increments;
    let since = rows.iter().map(|it| it.from).min().unwrap_or(around.at);
    // Whole milliseconds, so that the text is short and the same on every machine.
    let seconds = |at: Timestamp| (at.seconds_since(since) * 1000.0).round() / 1000.0;
    IncrementsJson {
        since: Instant3339(since),
        target: rows.iter().map(|it| it.target.0).collect(),
        from_seconds: rows.iter().map(|it| seconds(it.from)).collect(),
        to_seconds: rows.iter().map(|it| seconds(it.to)).collect(),
        requests: rows.iter().map(|it| it.requests).collect(),
        errors: rows.iter().map(|it| it.errors).collect(),
    }
}

impl From<&Model> for ModelJson {
    fn from(model: &Model) -> Self {
        Self {
            baseline_rate: Number(model.rate),
            dispersion: Number(model.dispersion),
            error_ratio: Number(model.error_ratio),
            shares: model.shares.iter().copied().map(Number).collect(),
            clients: model.clients.clone(),
            scrape_interval_seconds: Number(model.scrape_seconds),
            effective_step_seconds: Number(model.step_seconds),
            resolvable_gap_seconds: Number(model.gap_seconds),
        }
    }
}

impl From<&Correlogram> for CorrelogramJson {
    fn from(correlogram: &Correlogram) -> Self {
        Self {
            count: name(correlogram.count).to_owned(),
            lag_seconds: correlogram.points.iter().map(|(lag, _)| short(*lag)).collect(),
            autocorrelation: correlogram.points.iter().map(|(_, y)| Number(short(*y))).collect(),
            band: Number(short(correlogram.band)),
        }
    }
}

impl From<&PowerCurve> for SpectrumJson {
    fn from(curve: &PowerCurve) -> Self {
        Self {
            count: name(curve.count).to_owned(),
            hertz: curve.points.iter().map(|(hertz, ..)| short(*hertz)).collect(),
            power: curve.points.iter().map(|(_, power, _)| Number(short(*power))).collect(),
            background: curve.points.iter().map(|(.., level)| Number(short(*level))).collect(),
        }
    }
}

const fn name(count: Count) -> &'static str {
    match count {
        Count::Requests => "requests",
        Count::Errors => "errors",
    }
}

/// Five significant digits: what a picture shows.
fn short(value: f64) -> f64 {
    format!("{value:.4e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::incident::IncidentId;
    use crate::series::{Interval, TargetId};

    #[test]
    fn what_is_kept_survives_the_store() {
        let at = Timestamp::from_millis(1_790_000_000_123);
        let around = Around {
            incident: IncidentId("a".to_owned()),
            at,
            increments: vec![Interval {
                target: TargetId(3),
                from: at,
                to: at.plus_seconds(15.001),
                requests: 17.0,
                errors: 4.0,
            }],
            model: Model {
                rate: 50.0,
                dispersion: 1.2,
                error_ratio: 0.01,
                shares: vec![0.5, 0.5],
                clients: vec!["till".to_owned()],
                scrape_seconds: 15.0,
                step_seconds: 7.5,
                gap_seconds: 15.0,
            },
            correlogram: Some(Correlogram {
                count: Count::Errors,
                points: vec![(15.0, 0.123_456_789)],
                band: 0.2,
            }),
            spectrum: None,
        };
        let wire = SeriesJson::from(&around);
        let kept: Vec<(&str, Value)> = wire
            .by_kind()
            .into_iter()
            .map(|(kind, body)| (kind, serde_json::from_slice(&body).unwrap()))
            .collect();
        assert_eq!(
            kept.iter().map(|it| it.0).collect::<Vec<_>>(),
            ["increments", "model", "correlogram"]
        );
        let read = SeriesJson::of_kinds(kept.iter().map(|(kind, body)| (*kind, body)));
        assert_eq!(read, wire);
        let correlogram = read.correlogram.unwrap();
        assert_eq!(correlogram.autocorrelation[0], Number(0.12346));
        assert_eq!(read.increments.unwrap().to_seconds, [15.001]);
    }

    #[test]
    fn columns_of_different_lengths_are_left_out() {
        let body = serde_json::json!({"since": "2026-09-21T14:08:25Z", "target": [0, 1],
            "from_seconds": [0.0], "to_seconds": [1.0], "requests": [1.0], "errors": [0.0]});
        assert_eq!(SeriesJson::of_kinds([("increments", &body)]), SeriesJson::default());
    }
}
