//! Each key of a scenario's `scrape` does what it says to the samples, and that alone.

use super::super::{SimulatedSeries, run};
use super::*;
use crate::rules::Rules;

/// Sixty requests a second for ten minutes, scraped as `scrape` says.
fn scraped(scrape: &str) -> Vec<SimulatedSeries> {
    let text = format!(
        "about: A steady stream.\nduration: 10m\ndependencies:\n- {{name: payments}}\nclients:\n\
         - {{name: others, calls: payments, rate: 60}}\nscrape: {scrape}\n"
    );
    let scenario = Scenario::parse("scraped", &text, &Rules::builtin()).expect("a scenario");
    let series = run(&scenario, 1).series;
    series.into_iter().filter(|it| it.labels.get("code") == Some("200")).collect()
}

/// Seconds from each sample to the one that arrived after it.
fn gaps(series: &SimulatedSeries) -> Vec<f64> {
    series.samples.windows(2).map(|pair| pair[1].at.seconds_since(pair[0].at)).collect()
}

/// How many gaps of all series are like this.
fn count(series: &[SimulatedSeries], like: impl Fn(f64) -> bool) -> usize {
    series.iter().flat_map(gaps).filter(|gap| like(*gap)).count()
}

fn near(gap: f64, seconds: f64) -> bool {
    (gap - seconds).abs() < 0.01
}

/// Falls of a counter.
fn falls(series: &[SimulatedSeries]) -> usize {
    let falls = |it: &SimulatedSeries| {
        it.samples.windows(2).filter(|pair| pair[1].value < pair[0].value).count()
    };
    series.iter().map(falls).sum()
}

#[test]
fn each_target_is_scraped_at_its_interval_in_a_phase_of_its_own() {
    let series = scraped("{interval: 15s, targets: 8}");
    assert_eq!(series.len(), 8);
    assert_eq!(count(&series, |gap| !near(gap, 15.0)), 0);
    let mut phases: Vec<i64> =
        series.iter().map(|it| it.samples[0].at.millis().rem_euclid(15_000)).collect();
    phases.sort_unstable();
    phases.dedup();
    assert_eq!(phases.len(), 8, "{phases:?}");
    // They stay the same when it is restarted with other targets beside them.
    assert_eq!(series[0].samples[0].at, scraped("{interval: 15s, targets: 3}")[0].samples[0].at);
}

#[test]
fn missed_scrapes_leave_longer_gaps_with_the_whole_count() {
    let series = scraped("{interval: 5s, targets: 4, wobble: 0s, missed: 0.1}");
    // Of 480 scrapes some 48 are missed: 1 in 10, within four standard deviations.
    let longer = count(&series, |gap| gap > 5.01);
    assert!((22..=70).contains(&longer), "{longer}");
    assert_eq!(count(&series, |gap| !near(gap % 5.0, 0.0) && !near(gap % 5.0, 5.0)), 0);
    let whole = scraped("{interval: 5s, targets: 4, wobble: 0s}");
    for (with, without) in series.iter().zip(&whole) {
        let known = |at| without.samples.iter().find(|sample| sample.at == at);
        assert!(with.samples.iter().all(|sample| known(sample.at) == Some(sample)));
    }
}

#[test]
fn late_scrapes_come_up_to_half_an_interval_late_and_those_past_the_timeout_never() {
    let late = scraped("{interval: 10s, targets: 4, late: 0.3}");
    let odd = count(&late, |gap| !near(gap, 10.0));
    assert!(odd > 50, "{odd}");
    assert_eq!(count(&late, |gap| !(4.99..=15.01).contains(&gap)), 0);
    let bounded = scraped("{interval: 10s, targets: 4, late: 0.3, timeout: 1s}");
    assert!(count(&bounded, |gap| gap > 15.01) > 20);
    assert_eq!(count(&bounded, |gap| (1.01..8.99).contains(&(gap % 10.0))), 0);
}

#[test]
fn scrapes_wobble_by_the_deviation_asked_for() {
    let series = scraped("{interval: 10s, targets: 8, wobble: 100ms}");
    let gaps: Vec<f64> = series.iter().flat_map(gaps).map(|gap| gap - 10.0).collect();
    let variance = gaps.iter().map(|gap| gap * gap).sum::<f64>() / gaps.len() as f64;
    // A gap has the wobble of both its ends.
    assert!((variance.sqrt() / (0.1 * f64::sqrt(2.0)) - 1.0).abs() < 0.15, "{variance}");
}

#[test]
fn in_a_hole_nothing_is_scraped_and_nothing_is_lost() {
    let series = scraped("{interval: 10s, targets: 4, holes: [{at: 200s, for: 60s}]}");
    assert_eq!(count(&series, |gap| near(gap, 70.0)), 4);
    assert_eq!(count(&series, |gap| !near(gap, 10.0) && !near(gap, 70.0)), 0);
    let last = |series: &[SimulatedSeries]| -> f64 {
        series.iter().filter_map(|it| it.samples.last()).map(|sample| sample.value).sum()
    };
    assert!((last(&series) - last(&scraped("{interval: 10s, targets: 4}"))).abs() < 0.5);
}

#[test]
fn a_restart_begins_at_zero_under_the_old_name_or_a_new_one() {
    let same = scraped("{interval: 5s, targets: 4, restarts: [{at: 300s, down: 8s}]}");
    assert_eq!((same.len(), falls(&same)), (4, 4));
    assert_eq!(count(&same, |gap| gap > 7.9), 4);
    let renamed =
        scraped("{interval: 5s, targets: 4, restarts: [{at: 300s, down: 8s, renamed: true}]}");
    assert_eq!((renamed.len(), falls(&renamed)), (8, 0));
    let some = scraped("{interval: 5s, targets: 40, restarts: [{at: 300s, share: 0.5}]}");
    assert!((8..=32).contains(&falls(&some)), "{}", falls(&some));
    // One after the other.
    let rolling = scraped("{interval: 1s, targets: 4, restarts: [{at: 300s, stagger: 30s}]}");
    let mut fell: Vec<i64> = rolling
        .iter()
        .filter_map(|it| it.samples.windows(2).find(|pair| pair[1].value < pair[0].value))
        .map(|pair| pair[1].at.millis())
        .collect();
    fell.sort_unstable();
    assert!(fell.windows(2).all(|pair| (28_000..=32_000).contains(&(pair[1] - pair[0]))));
}

#[test]
fn targets_come_and_go_with_the_scale() {
    let series = scraped("{interval: 5s, targets: 2, scale: [[0s, 2], [200s, 6], [400s, 3]]}");
    let alive = |second: i64| {
        let origin = series[0].samples[0].at.millis() - 5_000;
        let near = |it: &&SimulatedSeries| {
            it.samples.iter().any(|s| (0..=10_000).contains(&(s.at.millis() - origin - second)))
        };
        series.iter().filter(near).count()
    };
    assert_eq!([100_000, 300_000, 500_000].map(alive), [2, 6, 3]);
}

#[test]
fn twins_are_told_apart_by_a_label_and_scrape_in_their_own_phase() {
    let series = scraped("{interval: 15s, targets: 2, twin: true}");
    let of = |name| series.iter().filter(|it| it.labels.get("replica") == Some(name)).count();
    assert_eq!([of("a"), of("b"), series.len()], [2, 2, 4]);
    let first = series[0].samples[0].at;
    let same = |it: &&SimulatedSeries| it.samples[0].at == first;
    assert_eq!(series.iter().filter(same).count(), 1);
}

#[test]
fn flips_between_two_scrapers_change_the_phase_and_may_fall_a_little() {
    let series = scraped("{interval: 15s, targets: 4, flips: 1m}");
    assert_eq!(series.len(), 4);
    assert!(count(&series, |gap| !near(gap, 15.0)) > 8);
    assert!(falls(&series) > 0);
    // Never to anything near zero, as a restart does.
    for it in &series {
        for pair in it.samples.windows(2) {
            assert!(pair[1].value > 0.5 * pair[0].value || pair[0].value < 1000.0);
        }
    }
}

#[test]
fn samples_come_twice_or_after_their_successor() {
    let twice = scraped("{interval: 1s, targets: 4, duplicated: 0.05}");
    let doubled = count(&twice, |gap| near(gap, 0.0));
    // 5 % of 2,400, within four standard deviations.
    assert!((78..=162).contains(&doubled), "{doubled}");
    let swapped = scraped("{interval: 1s, targets: 4, wobble: 0s, out_of_order: 0.05}");
    let back = count(&swapped, |gap| gap < 0.0);
    assert!((70..=162).contains(&back), "{back}");
    let mut sorted = swapped[0].samples.clone();
    sorted.sort_by_key(|sample| sample.at);
    let plain = scraped("{interval: 1s, targets: 4, wobble: 0s}");
    assert!(sorted.iter().all(|sample| plain[0].samples.contains(sample)));
}

#[test]
fn a_clock_that_jumps_stamps_all_later_samples_with_its_time() {
    let series = scraped("{interval: 10s, targets: 4, clock_jumps: [{at: 300s, by_seconds: 40}]}");
    assert_eq!(count(&series, |gap| near(gap, 50.0)), 4);
    assert_eq!(count(&series, |gap| !near(gap, 10.0) && !near(gap, 50.0)), 0);
    let back = scraped("{interval: 10s, targets: 4, clock_jumps: [{at: 300s, by_seconds: -40}]}");
    assert_eq!(count(&back, |gap| near(gap, -30.0)), 4);
}

#[test]
fn an_exporter_that_gathers_shows_stairs() {
    let series = scraped("{interval: 2s, targets: 4, flush: 10s}");
    for it in &series {
        let flat = it.samples.windows(2).filter(|pair| (pair[1].value - pair[0].value).abs() < 0.5);
        let share = flat.count() as f64 / (it.samples.len() - 1) as f64;
        assert!((share - 0.8).abs() < 0.05, "{share}");
    }
}

#[test]
fn a_lazy_series_is_there_from_its_first_request_on() {
    let codes = |lazy: &str| {
        let text = format!(
            "about: No failure.\nduration: 2m\ndependencies:\n- {{name: payments}}\nclients:\n\
             - {{name: others, calls: payments, rate: 60}}\nscrape: {{targets: 1, lazy: {lazy}}}\n"
        );
        let scenario = Scenario::parse("lazy", &text, &Rules::builtin()).expect("a scenario");
        run(&scenario, 1).series.len()
    };
    assert_eq!([codes("false"), codes("true")], [2, 1]);
}

#[test]
fn retries_and_calls_are_counted_where_clients_count_them() {
    let text = "about: A blip.\nduration: 2m\ndependencies:\n\
                - {name: payments, faults: [{at: 60s, for: 2s}]}\nclients:\n\
                - {name: users, calls: payments, rate: 60, retry: {schedule: fixed, base: 5s, retries: 2}}\n\
                scrape: {interval: 1s, targets: 1, retry_counters: true}\n";
    let scenario = Scenario::parse("counted", text, &Rules::builtin()).expect("a scenario");
    let series = run(&scenario, 1).series;
    let total = |name: &str| -> f64 {
        let of = series.iter().filter(|it| it.labels.get("__name__") == Some(name));
        of.filter_map(|it| it.samples.last()).map(|sample| sample.value).sum()
    };
    let [requests, retries, calls] = [REQUESTS, RETRIES, CALLS].map(total);
    assert!(retries > 60.0, "{retries}");
    // Each attempt is a first one or a retry; what is under way at the end is not counted yet.
    assert!((requests - retries - calls).abs() <= 3.0, "{requests} {retries} {calls}");
}

#[test]
fn uneven_targets_share_the_traffic_by_their_weights() {
    let ends = |spread: &str| -> Vec<f64> {
        let series = scraped(&format!("{{interval: 15s, targets: 8, uneven: {spread}}}"));
        series.iter().filter_map(|it| it.samples.last()).map(|sample| sample.value).collect()
    };
    let ratio = |values: &[f64]| {
        let of = |least: bool| {
            values.iter().copied().fold(values[0], if least { f64::min } else { f64::max })
        };
        of(false) / of(true)
    };
    assert!(ratio(&ends("0")) < 1.15);
    assert!(ratio(&ends("0.5")) > 1.5);
}
