//! Recorded answers of six server versions, and what must not be taken for an answer.

use std::fmt::Write as _;

use super::*;
use crate::series::Labels;
use crate::source::Collected;

/// Recorded bodies by file name.
macro_rules! recorded {
    ($($name:literal,)*) => {
        &[$(($name, include_bytes!(concat!("../../../tests/golden/source/", $name)))),*]
    };
}

const RECORDED: &[(&str, &[u8])] = recorded![
    "prom242-404.txt",
    "prom242-buildinfo.json",
    "prom242-error-bad-syntax.json",
    "prom242-error-not-ready.txt",
    "prom242-error-timeout-in-queue.json",
    "prom242-error-too-many-samples.json",
    "prom242-error-unauthorized.txt",
    "prom242-limit-1.json",
    "prom242-live-counter-reset.json",
    "prom242-live-failed-scrapes-stale-gap.json",
    "prom242-live-special-values.json",
    "prom242-query-empty.json",
    "prom242-query-range-selector-20s.json",
    "prom242-query-range-selector-special-values.json",
    "prom242-time-scalar.json",
    "prom242-warnings-rate-gauge.json",
    "prom253-404.txt",
    "prom253-buildinfo.json",
    "prom253-error-bad-syntax.json",
    "prom253-error-not-ready.txt",
    "prom253-error-timeout-in-queue.json",
    "prom253-error-timeout.json",
    "prom253-error-too-many-samples.json",
    "prom253-error-unauthorized.txt",
    "prom253-limit-1.json",
    "prom253-query-empty.json",
    "prom253-query-range-selector-20s.json",
    "prom253-query-range-selector-special-values.json",
    "prom253-warnings-rate-gauge.json",
    "prom35-404.txt",
    "prom35-buildinfo.json",
    "prom35-error-bad-syntax.json",
    "prom35-error-not-ready.txt",
    "prom35-error-timeout-in-queue.json",
    "prom35-error-timeout.json",
    "prom35-error-too-many-samples.json",
    "prom35-error-unauthorized.txt",
    "prom35-limit-1.json",
    "prom35-live-counter-reset.json",
    "prom35-live-failed-scrapes-stale-gap.json",
    "prom35-live-special-values.json",
    "prom35-native-histogram-range-selector.json",
    "prom35-query-empty.json",
    "prom35-query-range-selector-20s.json",
    "prom35-query-range-selector-special-values.json",
    "prom35-stats-all.json",
    "prom35-time-scalar.json",
    "prom35-warnings-rate-gauge.json",
    "vm112-error-bad-syntax.json",
    "vm112-limit-1.json",
    "vm112-query-empty.json",
    "vm112-query-range-selector-20s.json",
    "vm112-query-range-selector-special-values.json",
    "vm112-unknown-path.txt",
    "vm145-error-bad-syntax.json",
    "vm145-error-too-many-samples.json",
    "vm145-error-too-many-series.json",
    "vm145-error-unauthorized.txt",
    "vm145-last-scrape-times.json",
    "vm145-latency-offset-default.json",
    "vm145-limit-1.json",
    "vm145-live-counter-reset.json",
    "vm145-live-failed-scrapes-stale-gap.json",
    "vm145-live-special-values.json",
    "vm145-query-empty.json",
    "vm145-query-range-selector-20s.json",
    "vm145-query-range-selector-special-values.json",
    "vm145-time-scalar.json",
    "vm145-unknown-path.txt",
    "vm179-error-bad-syntax.json",
    "vm179-error-too-many-samples.json",
    "vm179-error-too-many-series.json",
    "vm179-error-unauthorized.txt",
    "vm179-limit-1.json",
    "vm179-live-counter-reset.json",
    "vm179-live-failed-scrapes-stale-gap.json",
    "vm179-live-special-values.json",
    "vm179-query-empty.json",
    "vm179-query-range-selector-20s.json",
    "vm179-query-range-selector-special-values.json",
    "vm179-unknown-path.txt",
];

#[test]
fn recorded_answers_decode_as_they_did() {
    let mut text = String::new();
    for (name, body) in RECORDED {
        writeln!(text, "== {name}").unwrap();
        if name.contains("buildinfo") {
            writeln!(text, "version {:?}", decode_version(body).unwrap()).unwrap();
            continue;
        }
        if let Some((error_type, message)) = decode_error(body) {
            writeln!(text, "error {error_type}: {message}").unwrap();
            continue;
        }
        let mut sink = Collected::default();
        match decode(body, &mut sink) {
            Ok(decoded) => {
                for (labels, samples) in sink.0 {
                    writeln!(text, "{labels}").unwrap();
                    for sample in samples {
                        writeln!(text, "  {} {:e}", sample.at.millis(), sample.value).unwrap();
                    }
                }
                if let Some(scalar) = decoded.scalar {
                    writeln!(text, "scalar {} {}", scalar.at.millis(), scalar.value).unwrap();
                }
                for warning in decoded.warnings {
                    writeln!(text, "warning {warning}").unwrap();
                }
            }
            Err(error) => writeln!(text, "refused: {error}").unwrap(),
        }
    }
    insta::with_settings!({
        snapshot_path => "../../../tests/golden/source",
        prepend_module_to_snapshot => false,
        omit_expression => true,
    }, { insta::assert_snapshot!("decoded", text) });
}

/// One recorded answer, decoded.
fn recorded(name: &str) -> Vec<(Labels, Vec<Sample>)> {
    let (_, body) = RECORDED.iter().find(|(candidate, _)| *candidate == name).unwrap();
    let mut sink = Collected::default();
    decode(body, &mut sink).unwrap();
    sink.0
}

#[test]
fn servers_agree_on_what_they_hold_but_for_the_boundary_and_order() {
    let old = recorded("prom242-query-range-selector-20s.json");
    let new = recorded("prom35-query-range-selector-20s.json");
    let other = recorded("vm145-query-range-selector-20s.json");
    assert_eq!(old[0].0, new[0].0);
    assert_eq!(old[0].1[1..], new[0].1[..]);
    let same = other.iter().find(|(labels, _)| *labels == new[0].0).unwrap();
    assert_eq!(same.1, new[0].1);
}

#[test]
fn the_count_of_a_native_histogram_is_the_counter() {
    let series = recorded("prom35-native-histogram-range-selector.json");
    let counts: Vec<f64> = series[0].1.iter().map(|sample| sample.value).collect();
    assert_eq!(counts, [20.0, 21.0, 22.0]);
}

fn refuse(body: &str, says: &str) {
    let error = decode(body.as_bytes(), &mut Collected::default()).expect_err(body);
    assert!(format!("{error:?}").contains(says), "{body}: {error:?}");
}

#[test]
fn what_is_no_answer_is_refused() {
    let whole = r#"{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"a":"b"},"values":[[1,"2"]]}]}}"#;
    assert!(decode(whole.as_bytes(), &mut Collected::default()).is_ok());
    for end in 0..whole.len() {
        refuse(&whole[..end], "");
    }
    refuse("<html>", "Json");
    refuse(&format!("{whole}x"), "Json");
    refuse(r#"{"status":"success"}"#, "Missing");
    refuse(r#"{"status":"success","data":null}"#, "Missing");
    refuse(r#"{"status":"error","errorType":"timeout","error":"late"}"#, "late");
    let odd = whole.replace("\"2\"", "\"two\"");
    refuse(&odd, "Json");
}

#[test]
fn keys_may_come_in_any_order_and_unwanted_series_are_skipped() {
    struct Choosy(Collected);
    impl SampleSink for Choosy {
        fn series(&mut self, labels: &mut LabelBuffer) -> bool {
            labels.value("a") == "b" && self.0.series(labels)
        }
        fn sample(&mut self, sample: Sample) {
            self.0.sample(sample);
        }
    }
    let body = r#"{"data":{"result":[{"values":[[1,"2"]],"extra":{},"metric":{"a":"b"}},
        {"metric":{"a":"c"},"values":[[1,"2"]]},{"values":[[1,"3"]],"metric":{"a":"c"}}],
        "resultType":"matrix"},"isPartial":true,"warnings":null,"status":"success"}"#;
    let mut sink = Choosy(Collected::default());
    let decoded = decode(body.as_bytes(), &mut sink).unwrap();
    assert_eq!((decoded.series, decoded.samples), (3, 3));
    assert_eq!(decoded.warnings, ["the answer is partial"]);
    assert_eq!(sink.0.0.len(), 1);
    assert_eq!(sink.0.0[0].1.len(), 1);
}
