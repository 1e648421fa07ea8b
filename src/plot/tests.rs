//! What every picture has, whatever the incident is called.

use super::*;
use crate::series::Timestamp;
use crate::wire::around::{CorrelogramJson, IncrementsJson, ModelJson, SpectrumJson};
use crate::wire::{Instant3339, Number, WaveJson};

/// A storm on 1, 2, 4, 8 s with the counts of two targets at one second.
pub(crate) fn storm() -> (IncidentJson, SeriesJson) {
    let text = include_str!("../../tests/golden/record/incident.json");
    let mut incident: IncidentJson = serde_json::from_str(text).unwrap();
    let start = incident.started_at.0;
    let schedule = incident.schedule.as_mut().unwrap();
    schedule.attempt_latency_seconds = Number(0.0);
    let instants = [0.0, 1.0, 3.0, 7.0, 15.0];
    let sizes = [2000.0, 2000.0, 1850.0, 1500.0, 900.0];
    incident.waves = instants
        .iter()
        .zip(sizes)
        .map(|(at, size)| WaveJson {
            expected_at: Instant3339(start.plus_seconds(*at)),
            requests: Number(size),
            counts: "requests".to_owned(),
        })
        .collect();
    incident.next_wave_at = Some(Instant3339(start.plus_seconds(31.0)));
    (incident, series(start, &instants, &sizes))
}

fn series(start: Timestamp, instants: &[f64], sizes: &[f64]) -> SeriesJson {
    let since = start.plus_seconds(-10.25);
    let mut rows = IncrementsJson {
        since: Instant3339(since),
        target: Vec::new(),
        from_seconds: Vec::new(),
        to_seconds: Vec::new(),
        requests: Vec::new(),
        errors: Vec::new(),
    };
    for second in 0..40_u32 {
        for target in 0..2_u32 {
            let from = f64::from(target).mul_add(0.5, f64::from(second));
            let holds = |at: &f64| (from..from + 1.0).contains(&(at + 10.25));
            let herd: f64 =
                instants.iter().zip(sizes).filter(|(at, _)| holds(at)).map(|(_, size)| size).sum();
            rows.target.push(target);
            rows.from_seconds.push(from);
            rows.to_seconds.push(from + 1.0);
            rows.requests.push(25.0 + herd / 2.0);
            rows.errors.push(herd / 2.0);
        }
    }
    SeriesJson {
        increments: Some(rows),
        model: Some(ModelJson {
            baseline_rate: Number(50.0),
            dispersion: Number(1.2),
            error_ratio: Number(0.0),
            shares: vec![Number(0.5), Number(0.5)],
            clients: Vec::new(),
            scrape_interval_seconds: Number(1.0),
            effective_step_seconds: Number(0.5),
            resolvable_gap_seconds: Number(1.0),
        }),
        correlogram: Some(CorrelogramJson {
            count: "errors".to_owned(),
            lag_seconds: (1..40).map(f64::from).collect(),
            autocorrelation: (1..40).map(|lag| Number(f64::from(lag % 7) / 10.0 - 0.2)).collect(),
            band: Number(0.2),
        }),
        spectrum: Some(SpectrumJson {
            count: "errors".to_owned(),
            hertz: (1..50).map(|bin| f64::from(bin) / 100.0).collect(),
            power: (1..50).map(|bin| Number(if bin == 10 { 900.0 } else { 20.0 })).collect(),
            background: (1..50).map(|bin| Number(30.0 / f64::from(bin).sqrt())).collect(),
        }),
    }
}

/// A small reader of XML: elements open and close in order, attributes are quoted and unique, and
/// every `&` begins a known entity. Gives the text of the elements.
pub(crate) fn text_of(svg: &str) -> String {
    let mut open: Vec<&str> = Vec::new();
    let mut text = String::new();
    let mut rest = svg;
    while let Some(at) = rest.find('<') {
        text.push_str(&rest[..at]);
        let end = rest.find('>').expect("a tag ends");
        let tag = &rest[at + 1..end];
        rest = &rest[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "elements close in order");
            text.push('\n');
            continue;
        }
        let name = tag.split([' ', '/']).next().unwrap_or_default();
        assert!(name.chars().all(|c| c.is_ascii_alphabetic()), "`{name}`");
        let quotes = tag.matches('"').count();
        assert!(quotes.is_multiple_of(2), "quotes are paired in `{tag}`");
        let mut names: Vec<&str> =
            tag.split('"').step_by(2).filter_map(|part| part.trim().strip_suffix('=')).collect();
        names.sort_unstable();
        names.windows(2).for_each(|pair| assert_ne!(pair[0], pair[1], "twice in `{tag}`"));
        if !tag.ends_with('/') {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "everything is closed: {open:?}");
    for after in svg.split('&').skip(1) {
        let known = ["amp;", "lt;", "gt;", "quot;", "#39;"];
        assert!(known.iter().any(|entity| after.starts_with(entity)), "&{:.9}", after);
    }
    text
}

#[test]
fn every_picture_of_a_storm_is_drawn_and_is_whole() {
    let (incident, series) = storm();
    assert_eq!(pictures(&incident, &series), Picture::ALL);
    for picture in Picture::ALL {
        for width in [320, 880, 2000] {
            for theme in [Theme::Auto, Theme::Light, Theme::Dark] {
                let look = Look::default().with_width(width).with_theme(theme);
                let svg = draw(picture, &incident, &series, &look).unwrap();
                let text = text_of(&svg);
                assert!(text.contains("payments"), "{picture:?}: {text}");
                assert!(!svg.contains("NaN") && !svg.contains("inf"), "{picture:?}");
                let size = format!("width=\"{width}\" height=\"{}\"", picture.height());
                assert!(svg.contains(&size), "{picture:?} is not {size}");
                let adapts = svg.contains("prefers-color-scheme");
                assert_eq!(adapts, theme == Theme::Auto, "{picture:?}");
            }
        }
    }
}

#[test]
fn the_waves_are_marked_with_their_time_and_size() {
    let (incident, series) = storm();
    let text = text_of(&draw(Picture::Incident, &incident, &series, &Look::default()).unwrap());
    for label in ["+3 s", "+7 s", "+15 s", "1,850", "1,500", "900", "next wave 14:08:56"] {
        assert!(text.lines().any(|line| line.trim() == label), "{label} in {text}");
    }
    assert!(text.contains("2026-09-21 UTC"));
    // The number over a wave is no rate, and says what it counts.
    // In the legend of the line, and at the head of the numbers.
    assert_eq!(text.lines().filter(|line| line.trim() == "requests").count(), 2, "{text}");
    assert!(text.contains("waves, and how many requests came in each"), "{text}");
    assert!(text.lines().any(|line| line.trim() == "2,000/s"), "{text}");
    let mut failing = incident;
    for wave in &mut failing.waves {
        wave.counts = "failures".to_owned();
    }
    let text = text_of(&draw(Picture::Incident, &failing, &series, &Look::default()).unwrap());
    assert!(text.contains("waves, and how many requests failed in each"), "{text}");
}

#[test]
fn an_incident_has_one_peak_and_a_finer_line_says_that_it_is_finer() {
    let (mut incident, series) = storm();
    for width in [380, 880] {
        let look = Look::default().with_width(width);
        let foot = |incident: &IncidentJson| {
            let text = text_of(&draw(Picture::Incident, incident, &series, &look).unwrap());
            text.lines().find(|line| line.contains("2026-09-21")).expect("a foot").to_owned()
        };
        incident.impact.peak_rate = Number(1204.0);
        let says = foot(&incident);
        assert!(says.contains("finer") || says.contains("above the peak of 1,204/s"), "{says}");
        // Nothing to explain where the line is no higher.
        incident.impact.peak_rate = Number(100_000.0);
        let says = foot(&incident);
        assert!(!says.contains("peak") && says.contains("scraped every 1 s"), "{says}");
    }
    // The comparison tells a share, and no rate of its own.
    let text =
        text_of(&draw(Picture::Counterfactual, &incident, &series, &Look::default()).unwrap());
    let share = text.lines().find(|line| line.contains("full jitter brings")).expect("a share");
    assert!(share.trim().ends_with('%') && !share.contains("/s"), "{share}");
}

#[test]
fn every_time_says_its_zone_and_follows_the_one_asked_for() {
    let (incident, series) = storm();
    for picture in [Picture::Incident, Picture::Counterfactual] {
        let text = |look: &Look| text_of(&draw(picture, &incident, &series, look).unwrap());
        let utc = text(&Look::default());
        assert!(utc.contains("UTC") && utc.contains("14:08:30"), "{utc}");
        let ahead = text(&Look::default().with_offset_minutes(330));
        assert!(ahead.contains("UTC+05:30") && ahead.contains("19:38:30"), "{ahead}");
        assert!(!ahead.lines().any(|line| line.trim() == "14:08:30"), "{ahead}");
        let behind = text(&Look::default().with_offset_minutes(-15 * 60));
        assert!(behind.contains("UTC-14:00") && behind.contains("00:08:30"), "{behind}");
    }
}

#[test]
fn the_first_cause_is_shown_where_the_load_outlived_it() {
    let (mut incident, series) = storm();
    let shown = |incident: &IncidentJson| {
        let svg = draw(Picture::Incident, incident, &series, &Look::default()).unwrap();
        svg.contains("the first cause")
    };
    incident.impact.outlived_trigger_seconds = Number(20.5);
    assert!(shown(&incident));
    incident.impact.outlived_trigger_seconds = Number(1.6);
    assert!(!shown(&incident));
}

#[test]
fn the_label_of_the_next_wave_stays_within_the_picture() {
    let (incident, series) = storm();
    for width in [320, 420, 880, 2000] {
        let look = Look::default().with_width(width);
        let svg = draw(Picture::Incident, &incident, &series, &look).unwrap();
        let label = svg.lines().find(|line| line.contains(">next wave ")).expect("a label");
        let part = |name: &str| {
            let after = label.split_once(&format!("{name}=\"")).expect("an attribute").1;
            after.split('"').next().expect("a value").to_owned()
        };
        let x: f64 = part("x").parse().expect("a number");
        let reaches = if part("text-anchor") == "end" { x } else { 7.0_f64.mul_add(18.0, x) };
        assert!(reaches <= f64::from(width), "{width}: {label}");
    }
}

#[test]
fn a_hostile_name_changes_no_element() {
    let (mut incident, series) = storm();
    let plain = draw(Picture::Incident, &incident, &series, &Look::default()).unwrap();
    let tags = |svg: &str| svg.matches('<').count();
    for name in ["<script>alert(1)</script>\"'&{}", &"🌩️".repeat(512), "\u{202e}\u{0}]]>"] {
        incident.dependency = name.to_owned();
        incident.summary = name.to_owned();
        for picture in Picture::ALL {
            let svg = draw(picture, &incident, &series, &Look::default()).unwrap();
            text_of(&svg);
            assert!(!svg.contains("<script") && !svg.contains('\u{0}'), "{picture:?}");
        }
        let svg = draw(Picture::Incident, &incident, &series, &Look::default()).unwrap();
        assert_eq!(tags(&svg), tags(&plain));
    }
}

#[test]
fn what_was_not_kept_is_not_made_up() {
    let (mut incident, series) = storm();
    let none = SeriesJson::default();
    assert_eq!(pictures(&incident, &none), [Picture::Incident, Picture::Cohorts]);
    let svg = draw(Picture::Incident, &incident, &none, &Look::default()).unwrap();
    assert!(text_of(&svg).contains("were not kept"));
    incident.schedule = None;
    incident.waves.clear();
    let left = [Picture::Incident, Picture::Correlogram, Picture::Spectrum];
    assert_eq!(pictures(&incident, &series), left);
}

#[test]
fn numbers_that_are_none_do_no_harm() {
    let (mut incident, mut series) = storm();
    incident.impact.baseline_rate = Number(f64::NAN);
    incident.impact.peak_rate = Number(f64::INFINITY);
    incident.waves[0].requests = Number(f64::NAN);
    series.correlogram.as_mut().unwrap().band = Number(f64::NAN);
    series.model.as_mut().unwrap().effective_step_seconds = Number(0.0);
    series.increments.as_mut().unwrap().requests[3] = f64::MAX;
    for picture in Picture::ALL {
        if let Ok(svg) = draw(picture, &incident, &series, &Look::default()) {
            text_of(&svg);
            assert!(!svg.contains("NaN"), "{picture:?}");
        }
    }
}

#[test]
fn names_of_pictures_are_read_back() {
    for picture in Picture::ALL {
        assert_eq!(Picture::parse(picture.as_str()), Some(picture));
        assert!(picture.caption().len() > 80 && !picture.title().is_empty());
    }
    assert_eq!(Picture::parse("cake"), None);
}
