//! Every trap that real data sets, and the three properties: batches, shifts, no false increase.

use proptest::prelude::*;

use super::*;

const REQUESTS: Role = Role::Requests;
const ERRORS: Role = Role::Errors;

/// One series: its role, its number, and its values at 0, 15, 30 … s; `None` where it is absent.
type Series<'a> = (Role, u32, &'a [Option<f64>]);

fn observe(series: &[Series<'_>]) -> Closed {
    let mut observer = Observer::default();
    let mut last = 0;
    for (role, number, values) in series {
        for (index, value) in (0_i64..).zip(*values) {
            let at = Timestamp::from_millis(1_000_000 + index * 15_000);
            last = last.max(at.millis());
            if let Some(value) = value {
                observer.push(*role, TargetId(0), SeriesId(*number), Sample { at, value: *value });
            }
        }
    }
    observer.close(Timestamp::from_millis(last))
}

/// The intervals as (from, to, requests, errors), the times in scrapes.
fn cells(intervals: &[Interval]) -> Vec<(i64, i64, f64, f64)> {
    let index = |at: Timestamp| (at.millis() - 1_000_000) / 15_000;
    intervals.iter().map(|i| (index(i.from), index(i.to), i.requests, i.errors)).collect()
}

fn check(series: &[Series<'_>], expected: &[(i64, i64, f64, f64)]) -> DataQuality {
    let closed = observe(series);
    assert_eq!(cells(&closed.requests), expected);
    closed.quality
}

fn values(list: &[f64]) -> Vec<Option<f64>> {
    list.iter().map(|v| (*v >= 0.0).then_some(*v)).collect()
}

/// Stands for an absent sample in `values`.
const NONE: f64 = -1.0;

#[test]
fn the_series_of_a_target_are_summed_by_scrape() {
    let quality = check(
        &[
            (REQUESTS, 0, &values(&[100.0, 110.0, 130.0])),
            (REQUESTS, 1, &values(&[5.0, 6.0, 9.0])),
            (ERRORS, 2, &values(&[5.0, 6.0, 9.0])),
        ],
        &[(0, 1, 11.0, 1.0), (1, 2, 23.0, 3.0)],
    );
    assert_eq!(quality, DataQuality::default());
}

#[test]
fn the_first_failures_are_counted_although_their_series_is_new() {
    check(
        &[
            (REQUESTS, 0, &values(&[100.0, 110.0, 120.0])),
            (REQUESTS, 1, &values(&[NONE, 40.0, 90.0])),
            (ERRORS, 2, &values(&[NONE, 40.0, 90.0])),
        ],
        &[(0, 1, 50.0, 40.0), (1, 2, 60.0, 50.0)],
    );
}

#[test]
fn an_old_error_counter_that_appears_late_is_no_failure() {
    // The errors were asked for over a shorter window than the requests.
    let quality = check(
        &[
            (REQUESTS, 0, &values(&[9000.0, 9010.0, 9020.0])),
            (ERRORS, 1, &values(&[NONE, 700.0, 701.0])),
        ],
        &[(0, 1, 10.0, 0.0), (1, 2, 10.0, 1.0)],
    );
    assert_eq!(quality.implausible, 1);
}

#[test]
fn a_huge_new_request_series_is_a_baseline() {
    let quality = check(
        &[
            (REQUESTS, 0, &values(&[0.0, 10.0, 20.0])),
            (REQUESTS, 1, &values(&[NONE, NONE, 5_000_000.0])),
        ],
        &[(0, 1, 10.0, 0.0), (1, 2, 10.0, 0.0)],
    );
    assert_eq!(quality.implausible, 1);
}

#[test]
fn a_missed_scrape_gives_one_longer_interval() {
    let quality = check(
        &[(REQUESTS, 0, &values(&[0.0, 10.0, 20.0, NONE, NONE, 50.0]))],
        &[(0, 1, 10.0, 0.0), (1, 2, 10.0, 0.0), (2, 5, 30.0, 0.0)],
    );
    assert_eq!(quality.missed_scrapes, 2);
}

#[test]
fn stale_markers_and_special_values_are_missing_scrapes() {
    let quality = check(
        &[(REQUESTS, 0, &[Some(0.0), Some(10.0), Some(f64::NAN), Some(f64::INFINITY), Some(50.0)])],
        &[(0, 1, 10.0, 0.0), (1, 4, 40.0, 0.0)],
    );
    assert_eq!(quality.invalid, 2);
}

#[test]
fn a_series_missing_from_one_scrape_is_waited_for() {
    check(
        &[
            (REQUESTS, 0, &values(&[0.0, 10.0, 20.0, 30.0])),
            (REQUESTS, 1, &values(&[0.0, 5.0, NONE, 15.0])),
        ],
        &[(0, 1, 15.0, 0.0), (1, 3, 30.0, 0.0)],
    );
}

#[test]
fn a_series_that_is_gone_goes_on_from_its_last_value() {
    check(
        &[
            (REQUESTS, 0, &values(&[0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0])),
            (REQUESTS, 1, &values(&[500.0, 505.0, NONE, NONE, NONE, NONE, 507.0])),
        ],
        &[(0, 1, 15.0, 0.0), (1, 4, 30.0, 0.0), (4, 5, 10.0, 0.0), (5, 6, 12.0, 0.0)],
    );
}

#[test]
fn a_restart_counts_from_zero_and_forgets_what_vanished_with_it() {
    let quality = check(
        &[
            (REQUESTS, 0, &values(&[900.0, 910.0, 4.0, 14.0, 24.0])),
            (REQUESTS, 1, &values(&[50.0, 51.0, NONE, NONE, 60.0])),
        ],
        &[(0, 1, 11.0, 0.0), (1, 2, 4.0, 0.0), (2, 3, 10.0, 0.0), (3, 4, 70.0, 0.0)],
    );
    assert_eq!(quality.resets, 1);
}

#[test]
fn a_flip_to_a_lagging_replica_invents_nothing() {
    let quality = check(
        &[
            (REQUESTS, 0, &values(&[1000.0, 1010.0, 1008.0, 1030.0])),
            // Small enough to look like a reset by itself.
            (REQUESTS, 1, &values(&[0.0, 1.0, 0.0, 1.0])),
        ],
        &[(0, 1, 11.0, 0.0), (1, 3, 21.0, 0.0)],
    );
    assert_eq!(quality.rollbacks, 1);
}

#[test]
fn scrapes_of_another_replica_close_by_are_dropped() {
    let mut observer = Observer::default();
    let mut push = |millis, value| {
        let sample = Sample { at: Timestamp::from_millis(millis), value };
        observer.push(REQUESTS, TargetId(0), SeriesId(0), sample);
    };
    for n in 0..6_i32 {
        push(i64::from(n) * 15_000, f64::from(n) * 10.0);
    }
    push(76_000, 49.0);
    push(90_000, 60.0);
    let closed = observer.close(Timestamp::from_millis(90_000));
    assert_eq!(closed.requests.len(), 6);
    assert!(closed.requests.iter().all(|i| (i.requests - 10.0).abs() < 1e-9));
    assert_eq!(closed.quality.replica_noise, 1);
}

#[test]
fn a_new_target_and_one_back_after_long_give_no_interval() {
    let mut observer = Observer::default();
    let mut push = |target, seconds, value| {
        let sample = Sample { at: Timestamp::from_seconds(seconds), value };
        observer.push(REQUESTS, TargetId(target), SeriesId(target), sample);
    };
    push(0, 0.0, 100.0);
    push(0, 15.0, 110.0);
    push(1, 20.0, 70_000.0);
    push(0, 1000.0, 90_000.0);
    push(0, 1015.0, 90_010.0);
    let closed = observer.close(Timestamp::from_seconds(2000.0));
    assert_eq!(closed.requests.iter().map(|i| i.requests).collect::<Vec<_>>(), [10.0, 10.0]);
    assert_eq!(closed.quality.breaks, 1);
}

#[test]
fn errors_of_a_target_without_requests_are_requests_too() {
    check(&[(ERRORS, 0, &values(&[1.0, 3.0]))], &[(0, 1, 2.0, 2.0)]);
}

#[test]
fn errors_never_exceed_requests() {
    let quality = check(
        &[(REQUESTS, 0, &values(&[10.0, 11.0])), (ERRORS, 1, &values(&[10.0, 15.0]))],
        &[(0, 1, 5.0, 5.0)],
    );
    assert_eq!(quality.errors_over_requests, 1);
}

#[test]
fn only_what_is_under_the_watermark_is_closed_and_late_samples_are_baselines() {
    let mut observer = Observer::default();
    let at = |seconds| Timestamp::from_seconds(seconds);
    let sample = |seconds, value| Sample { at: at(seconds), value };
    let target = TargetId(0);
    for (seconds, value) in [(0.0, 0.0), (15.0, 10.0), (30.0, 20.0)] {
        observer.push(REQUESTS, target, SeriesId(0), sample(seconds, value));
    }
    assert_eq!(observer.close(at(29.0)).requests.len(), 1);
    assert_eq!(observer.close(at(30.0)).requests.len(), 1);
    // The overlap of the next poll, with a series that was not visible before.
    observer.push(REQUESTS, target, SeriesId(0), sample(30.0, 20.0));
    observer.push(REQUESTS, target, SeriesId(1), sample(30.0, 800.0));
    observer.push(REQUESTS, target, SeriesId(0), sample(45.0, 30.0));
    observer.push(REQUESTS, target, SeriesId(1), sample(45.0, 803.0));
    let closed = observer.close(at(45.0));
    assert_eq!(closed.requests.iter().map(|i| i.requests).collect::<Vec<_>>(), [13.0]);
    assert_eq!((closed.quality.repeated, closed.quality.late), (1, 1));
}

#[test]
fn retries_and_calls_are_kept_apart() {
    let closed = observe(&[
        (Role::Retries, 0, &values(&[1.0, 4.0])),
        (Role::Calls, 1, &values(&[10.0, 30.0])),
    ]);
    assert!(closed.requests.is_empty());
    assert_eq!(cells(&closed.retries), [(0, 1, 3.0, 0.0)]);
    assert_eq!(cells(&closed.calls), [(0, 1, 20.0, 0.0)]);
}

/// What one generated series does at one scrape.
#[derive(Debug, Clone)]
enum Step {
    Grow(u16),
    Absent,
    Stale,
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Vec<Step>>> {
    let step = prop_oneof![
        8 => (0_u16..50).prop_map(Step::Grow),
        1 => Just(Step::Absent),
        1 => Just(Step::Stale),
        1 => Just(Step::Restart),
    ];
    proptest::collection::vec(proptest::collection::vec(step, 1..25), 1..5)
}

/// The samples of all series, by time; series 0 and 1 are requests, the rest errors.
fn samples(series: &[Vec<Step>], shift: i64) -> Vec<(Role, u32, Sample)> {
    let mut all = Vec::new();
    for (number, steps) in (0_u32..).zip(series) {
        let mut total = 0.0;
        for (index, step) in (0_i64..).zip(steps) {
            let at = Timestamp::from_millis(shift + index * 15_000);
            match step {
                Step::Grow(by) => total += f64::from(*by),
                Step::Restart => total = 0.0,
                Step::Absent => continue,
                Step::Stale => {}
            }
            let value = if matches!(step, Step::Stale) { f64::NAN } else { total };
            let role = if number < 2 { REQUESTS } else { ERRORS };
            all.push((role, number, Sample { at, value }));
        }
    }
    all.sort_by_key(|(_, number, sample)| (sample.at, *number));
    all
}

/// Pushes in batches that overlap by `overlap` samples, closing after each.
fn run(all: &[(Role, u32, Sample)], batch: usize, overlap: usize) -> Vec<Interval> {
    let mut observer = Observer::default();
    let mut intervals = Vec::new();
    let mut start = 0;
    while start < all.len() {
        let end = (start + batch).min(all.len());
        for (role, number, sample) in &all[start.saturating_sub(overlap)..end] {
            observer.push(*role, TargetId(0), SeriesId(*number), *sample);
        }
        // Everything strictly before the next sample has been pushed.
        let watermark = all.get(end).map_or(Timestamp::from_millis(i64::MAX / 2), |next| next.2.at);
        intervals.extend(observer.close(watermark.minus(Duration::from_millis(1))).requests);
        start = end;
    }
    intervals
}

proptest! {
    #[test]
    fn cutting_the_input_into_batches_changes_nothing(
        series in steps(), batch in 1_usize..30, overlap in 0_usize..20,
    ) {
        let all = samples(&series, 1_000_000);
        prop_assert_eq!(run(&all, usize::MAX / 2, 0), run(&all, batch, overlap));
    }

    #[test]
    fn shifting_time_shifts_the_intervals_and_nothing_else(
        series in steps(), shift in -1_000_000_000_i64..1_000_000_000_000,
    ) {
        let moved = |interval: &Interval| Interval {
            from: Timestamp::from_millis(interval.from.millis() + shift),
            to: Timestamp::from_millis(interval.to.millis() + shift),
            ..*interval
        };
        let here: Vec<Interval> = run(&samples(&series, 0), 7, 3).iter().map(moved).collect();
        prop_assert_eq!(here, run(&samples(&series, shift), 7, 3));
    }

    #[test]
    fn nothing_is_negative_and_nothing_is_invented(
        mut series in steps(), restarts in proptest::collection::vec(0_usize..25, 0..3),
    ) {
        // A process restarts as a whole.
        for steps in &mut series {
            for (index, step) in steps.iter_mut().enumerate() {
                match step {
                    _ if restarts.contains(&index) => *step = Step::Restart,
                    Step::Restart => *step = Step::Grow(1),
                    _ => {}
                }
            }
        }
        let all = samples(&series, 0);
        let intervals = run(&all, 10, 5);
        let mut last = Timestamp::from_millis(i64::MIN);
        for interval in &intervals {
            prop_assert!(interval.errors >= 0.0 && interval.requests >= interval.errors);
            prop_assert!(interval.from < interval.to && interval.from >= last);
            last = interval.to;
        }
        // All growth there was; rewinds can hide some of it and never add to it.
        let grown = |roles: std::ops::Range<usize>| -> f64 {
            let chosen = series.iter().take(roles.end).skip(roles.start).flatten();
            chosen.map(|s| if let Step::Grow(by) = s { f64::from(*by) } else { 0.0 }).sum()
        };
        let errors: f64 = intervals.iter().map(|i| i.errors).sum();
        prop_assert!(errors <= grown(2..5) + 1e-9);
        let requests: f64 = intervals.iter().map(|i| i.requests).sum();
        prop_assert!(requests <= grown(0..5) + 1e-9);
    }
}
