//! The history of one source, part by part, each small enough for both sides.
//!
//! A window is asked for whole, by every question, before the next one. Its length follows from the
//! number of samples in the one before, and from nothing else: were it the time that an answer took,
//! two runs would cut the history differently. A server that refuses a window gets it in smaller
//! pieces from the source itself.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::clock::random_fraction;
use crate::config::WatchConfig;
use crate::pipeline::WatchId;
use crate::series::selector::Selector;
use crate::series::table::LabelBuffer;
use crate::series::{Labels, Role, Sample};
use crate::source::{SampleSink, Source, SourceError, Window, retry_wait};
use crate::telemetry::Chain;

/// The first window: short, since nothing is known of the number of series.
const WINDOW_FIRST: Duration = Duration::from_secs(300);
/// Bounds of a window: two scrapes at the longest usual interval, and what a source asks at once.
const WINDOW_RANGE: [Duration; 2] = [Duration::from_secs(120), Duration::from_secs(3600)];
/// How much longer than the one before a window may be: the next hour may hold more series.
const GROWTH_MAX: f64 = 4.0;
/// Samples aimed at in one part, sixteen bytes each.
const SAMPLES_WANTED: f64 = 1_000_000.0;
/// How long a server may be away: time for a restart that replays its log.
const PATIENCE: Duration = Duration::from_secs(600);
/// How long a server may take to answer for the first time: one that never did is more likely to
/// be the wrong address than to be starting.
const FIRST_PATIENCE: Duration = Duration::from_secs(10);
/// Time for one first question, which reads no samples: short, so that a person soon hears of it.
pub(super) const GREETING_TIMEOUT: Duration = Duration::from_secs(2);

/// Tells the person who waits what is under way.
pub(super) type Say = Box<dyn Fn(&str) + Send + Sync>;

/// One series in one part.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Series {
    pub(super) labels: Labels,
    /// What it is in each watch that asked for it.
    pub(super) uses: Vec<(WatchId, Role)>,
    /// Ascending in time.
    pub(super) samples: Vec<Sample>,
}

/// All samples of one window.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) window: Window,
    /// In the order of their labels, whatever the order of the server.
    pub(super) series: Vec<Series>,
    pub(super) warnings: Vec<String>,
}

/// Why the history stops before its end.
#[derive(Debug, thiserror::Error)]
pub(super) enum Stopped {
    /// Somebody said so.
    #[error("told to stop")]
    Told,
    /// The source does not answer.
    #[error("the history cannot be read on")]
    Source(#[source] SourceError),
}

/// One selector to ask for, and what its series are.
#[derive(Debug, Clone)]
pub(super) struct Question {
    selector: Selector,
    watch: WatchId,
    // Each role with the part of the series that has it; none is all of them.
    roles: Vec<(Role, Option<Selector>)>,
}

impl Question {
    /// The questions of a watch. Errors are mostly some of the requests, and then come with them.
    pub(super) fn of_watch(watch: WatchId, config: &WatchConfig) -> Vec<Self> {
        let mut questions: Vec<Self> = Vec::new();
        for (role, selector) in config.selectors() {
            match questions.iter_mut().find(|known| covers(&known.selector, &selector)) {
                Some(known) => known.roles.push((role, Some(selector))),
                None => questions.push(Self { selector, watch, roles: vec![(role, None)] }),
            }
        }
        questions
    }
}

/// Whether every series of `part` is one of `whole`, as far as the text tells.
fn covers(whole: &Selector, part: &Selector) -> bool {
    whole.name() == part.name()
        && whole.matchers().iter().all(|matcher| part.matchers().contains(matcher))
}

/// Takes one answer.
struct Taker<'a> {
    question: &'a Question,
    window: Window,
    series: &'a mut Vec<Series>,
}

impl SampleSink for Taker<'_> {
    fn series(&mut self, labels: &mut LabelBuffer) -> bool {
        labels.sort();
        let has = |part: &Option<Selector>| {
            part.as_ref().is_none_or(|part| part.matches_by(|name| labels.value(name)))
        };
        let uses = self.question.roles.iter().filter(|(_, part)| has(part));
        let uses = uses.map(|(role, _)| (self.question.watch, *role)).collect();
        self.series.push(Series { labels: labels.to_labels(), uses, samples: Vec::new() });
        true
    }

    fn sample(&mut self, sample: Sample) {
        // A server may count the left end in, where the window before has had it.
        if sample.at > self.window.after
            && sample.at <= self.window.until
            && let Some(one) = self.series.last_mut()
        {
            one.samples.push(sample);
        }
    }
}

/// Reads the whole history and sends it on; ends early when nobody takes it. `greeted` is the same
/// source with less patience, for the first question.
pub(super) async fn read(
    greeted: Box<dyn Source>,
    source: Box<dyn Source>,
    questions: Vec<Question>,
    whole: Window,
    say: Say,
    parts: mpsc::Sender<Result<Part, Stopped>>,
) {
    let told = async {
        // Without a handler for the signal the process ends by it all the same.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    let reading = async {
        if let Err(error) = first_answer(greeted.as_ref(), &say).await {
            drop(parts.send(Err(Stopped::Source(error))).await);
            return;
        }
        let mut after = whole.after;
        let mut length = WINDOW_FIRST;
        while after < whole.until {
            let window = Window { after, until: after.plus(length).min(whole.until) };
            let part = match ask(source.as_ref(), &questions, window, &say).await {
                Ok(part) => part,
                Err(error) => {
                    drop(parts.send(Err(Stopped::Source(error))).await);
                    return;
                }
            };
            length = next_length(window, &part);
            after = window.until;
            if parts.send(Ok(part)).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        biased;
        () = told => drop(parts.send(Err(Stopped::Told)).await),
        () = reading => {}
    }
}

/// The length of the window after one that held so many samples.
fn next_length(window: Window, part: &Part) -> Duration {
    let samples: usize = part.series.iter().map(|one| one.samples.len()).sum();
    #[expect(clippy::cast_precision_loss, reason = "a part holds some millions at the most")]
    let fits = SAMPLES_WANTED / samples.max(1) as f64;
    window.length().mul_f64(fits.min(GROWTH_MAX)).clamp(WINDOW_RANGE[0], WINDOW_RANGE[1])
}

/// Waits for a sign of life.
async fn first_answer(source: &dyn Source, say: &Say) -> Result<(), SourceError> {
    let until = Instant::now() + FIRST_PATIENCE;
    let silent =
        || SourceError::Timeout { source_name: source.name().to_owned(), limit: FIRST_PATIENCE };
    let mut retry = 0;
    // What it said last tells more than that the time is over.
    let mut last = None;
    loop {
        let error = match tokio::time::timeout_at(until, source.now()).await {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(error)) => error,
            Err(_) => return Err(last.unwrap_or_else(silent)),
        };
        let wait = retry_wait(retry, random_fraction(), error.retry_after());
        if !error.is_transient() || Instant::now() + wait >= until {
            return Err(error);
        }
        if retry == 0 {
            say(&again(&error, FIRST_PATIENCE));
        }
        last = Some(error);
        tokio::time::sleep(wait).await;
        retry += 1;
    }
}

/// What is said when a server does not answer.
fn again(error: &SourceError, patience: Duration) -> String {
    format!("{}; trying again for up to {} s", Chain(error), patience.as_secs())
}

/// Asks everything for one window.
async fn ask(
    source: &dyn Source,
    questions: &[Question],
    window: Window,
    say: &Say,
) -> Result<Part, SourceError> {
    let mut part = Part { window, series: Vec::new(), warnings: Vec::new() };
    for question in questions {
        let begun = Instant::now();
        let mut retry = 0;
        loop {
            // What a failed try has brought is in the way of the next.
            let mut series = Vec::new();
            let mut taker = Taker { question, window, series: &mut series };
            match source.samples(&question.selector, window, &mut taker).await {
                Ok(answer) => {
                    part.warnings.extend(answer.warnings);
                    part.series.append(&mut series);
                    break;
                }
                Err(error) if error.is_transient() && begun.elapsed() < PATIENCE => {
                    if retry == 0 {
                        say(&again(&error, PATIENCE));
                    }
                    let wait = retry_wait(retry, random_fraction(), error.retry_after());
                    tokio::time::sleep(wait).await;
                    retry += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }
    part.series = in_order(part.series);
    Ok(part)
}

/// The series by their labels, each once, with its samples in order: a question that had to be cut
/// brings a series in pieces.
fn in_order(mut series: Vec<Series>) -> Vec<Series> {
    series.retain(|one| !one.samples.is_empty());
    series.sort_by(|a, b| (&a.labels, &a.uses).cmp(&(&b.labels, &b.uses)));
    let mut whole: Vec<Series> = Vec::with_capacity(series.len());
    for mut one in series {
        match whole.last_mut() {
            Some(last) if last.labels == one.labels && last.uses == one.uses => {
                last.samples.append(&mut one.samples);
            }
            _ => whole.push(one),
        }
    }
    for one in &mut whole {
        one.samples.sort_by_key(|sample| sample.at);
        one.samples.dedup_by_key(|sample| sample.at);
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::Timestamp;

    fn watch(requests: &str, errors: &str) -> WatchConfig {
        let selector = |text: &str| text.parse::<Selector>().unwrap();
        WatchConfig::plain("http", selector(requests), Some(selector(errors)), Vec::new())
    }

    #[test]
    fn errors_that_are_some_of_the_requests_are_not_asked_for_again() {
        let ask = |requests, errors| Question::of_watch(WatchId(0), &watch(requests, errors)).len();
        assert_eq!(ask("x_total{job=\"shop\"}", "x_total{job=\"shop\",code=~\"5..\"}"), 1);
        assert_eq!(ask("x_total", "x_total{code=~\"5..\"}"), 1);
        assert_eq!(ask("x_total{job=\"shop\"}", "x_total{code=~\"5..\"}"), 2);
        assert_eq!(ask("x_total", "x_errors_total"), 2);
    }

    fn series(code: &str, seconds: &[i64]) -> Series {
        Series {
            labels: Labels::new([("code", code)]),
            uses: vec![(WatchId(0), Role::Requests)],
            samples: seconds
                .iter()
                .map(|at| Sample { at: Timestamp::from_millis(at * 1000), value: 1.0 })
                .collect(),
        }
    }

    #[test]
    fn pieces_come_together_in_the_order_of_labels_and_time() {
        let pieces = vec![series("500", &[1, 2]), series("200", &[3, 4]), series("500", &[2, 3])];
        let expected = vec![series("200", &[3, 4]), series("500", &[1, 2, 3])];
        assert_eq!(in_order(pieces), expected);
    }

    #[test]
    fn windows_follow_the_number_of_samples_within_bounds() {
        let window = |seconds: i64| Window {
            after: Timestamp::from_millis(0),
            until: Timestamp::from_millis(seconds * 1000),
        };
        let next = |seconds, samples: i64| {
            let all: Vec<i64> = (0..samples).collect();
            let series = vec![series("200", &all)];
            let part = Part { window: window(seconds), series, warnings: Vec::new() };
            next_length(window(seconds), &part).as_secs()
        };
        assert_eq!(next(300, 0), 1200, "an empty part says little");
        assert_eq!(next(3600, 10), 3600);
        assert_eq!(next(1000, 2_000_000), 500);
        assert_eq!(next(130, 2_000_000), 120);
    }
}
