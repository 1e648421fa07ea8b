//! Selectors taken, and every refused form with its place and reason.

use std::time::Duration;

use proptest::prelude::*;

use super::*;

fn accept(text: &str, printed: &str) {
    let selector: Selector = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
    assert_eq!(selector.to_string(), printed);
    assert_eq!(printed.parse::<Selector>().as_ref(), Ok(&selector));
}

fn refuse(text: &str, position: usize, says: &str, window_seconds: Option<u64>) {
    let error = text.parse::<Selector>().expect_err(text);
    let full = error.to_string();
    assert!(full.contains(says), "{text}: {full}");
    assert_eq!(error.position, position, "{text}: {full}");
    assert_eq!(error.window, window_seconds.map(Duration::from_secs), "{text}");
}

#[test]
fn plain_selectors_are_taken_and_printed() {
    accept("up", "up");
    accept(" a:b_total { } ", "a:b_total");
    accept(r#"x{a="1",b!="2",c=~"5..",d!~'q|r',}"#, r#"x{a="1",b!="2",c=~"5..",d!~"q|r"}"#);
    accept(r#"{__name__=~"a|b"}"#, r#"{__name__=~"a|b"}"#);
    accept(r#"{"http.requests", "a.b"="x"}"#, r#"{"http.requests","a.b"="x"}"#);
    accept(r#"{"http_requests"}"#, "http_requests");
    accept("x{a=\"q\\\"\\\\\\n\"} # why", "x{a=\"q\\\"\\\\\\n\"}");
    accept("sum{a=`b\\d`}", "sum{a=\"b\\\\d\"}");
    accept("rate", "rate");
}

#[test]
fn everything_else_is_refused_where_it_stands() {
    refuse("rate(x_total[1m])", 1, "`rate` averages", Some(60));
    refuse("irate (x{a=\"[9s]\"}[30s])", 1, "`irate` averages", Some(30));
    refuse("increase(x[5m:15s])", 1, "`increase` averages", Some(300));
    refuse("delta(x[1h30m])", 1, "`delta` averages", Some(5400));
    refuse("sum(rate(x[2m]))", 1, "`sum` mixes", Some(120));
    refuse("sum by (job) (x)", 1, "`sum` mixes", None);
    refuse("absent(x)", 1, "is a function", None);
    refuse("x[5m]", 2, "is not wanted", Some(300));
    refuse("x{a=\"b\"}[5m:1m]", 9, "sub-query", Some(300));
    refuse("x offset 5m", 3, "shift", None);
    refuse("x @ 17", 3, "shift", None);
    refuse("x / y", 3, "operator", None);
    refuse("x or y", 3, "operator", None);
    refuse("1 - x", 1, "operator", None);
    refuse("(x)", 1, "operator", None);
    refuse("{a=~\".*\"}", 1, "must not match the empty", None);
    refuse("{}", 1, "must not match the empty", None);
    refuse("x{a=~\"(\"}", 6, "no regular expression", None);
    refuse("x{a}", 4, "expected `=`", None);
    refuse("x{a=b}", 5, "a quoted value", None);
    refuse("x{a=\"b\"", 8, "`,` or `}`", None);
    refuse("x{a=\"b", 7, "closing quote", None);
    refuse("", 1, "a metric name", None);
    refuse("x y", 3, "the end", None);
    refuse("x{\"y\"}", 3, "one metric name", None);
    refuse(&"x".repeat(SELECTOR_BYTES_MAX + 1), 1, "longer than", None);
}

#[test]
fn matching_is_anchored_and_absent_is_empty() {
    let labels = Labels::new([("__name__", "x"), ("code", "503"), ("text", "a\nb")]);
    let matches = |text: &str| text.parse::<Selector>().unwrap().matches(&labels);
    assert!(matches(r#"x{code=~"5.."}"#));
    assert!(!matches(r#"x{code=~"50"}"#));
    assert!(!matches(r#"x{code=~"03"}"#));
    assert!(matches(r#"x{text=~"a.b"}"#));
    assert!(matches(r#"x{absent=""}"#));
    assert!(matches(r#"x{absent!="y",absent!~"y+"}"#));
    assert!(!matches(r#"x{absent=~".+"}"#));
    assert!(!matches("y"));
    assert!(matches(r#"{__name__=~"x|y"}"#));
    // An alternation stays inside the anchors.
    assert!(!matches(r#"x{code=~"5|0"}"#));
}

#[test]
fn the_gain_falls_with_the_window() {
    let seconds = Duration::from_secs;
    assert!(window_gain(seconds(30), seconds(15), seconds(300)) > 0.99);
    assert!(window_gain(seconds(300), seconds(15), seconds(60)) < 0.08);
    assert!(window_gain(seconds(20), seconds(15), seconds(60)).abs() < f64::EPSILON);
}

proptest! {
    #[test]
    fn printing_and_parsing_round_trip(
        name in "[a-z_:][a-z0-9_:]{0,8}|[a-zé.\"\\\\ ]{1,8}",
        labels in proptest::collection::vec(("[a-z_][a-z0-9_]{0,5}|[a-z.é\n\"]{1,5}", 0_usize..2, "\\PC{0,8}"), 0..4),
    ) {
        let matchers = labels
            .into_iter()
            .map(|(label, op, value)| {
                Matcher::new(label, [MatchOp::Equal, MatchOp::NotEqual][op], value).unwrap()
            })
            .collect();
        let selector = Selector { name: Some(name), matchers };
        prop_assert_eq!(selector.to_string().parse::<Selector>(), Ok(selector));
    }
}
