//! The `watch` section: what to watch, by a preset or by hand.

use std::time::Duration;

use crate::pipeline::Watch;
use crate::rules::preset::{Counts, Preset};
use crate::rules::spanned::{Faults, Fields, Node};
use crate::series::selector::{
    InvalidSelector, MatchOp, Matcher, Selector, SelectorFault, parse_duration, window_gain,
};

use crate::series::Role;

use super::http::text_map;
use super::written;

/// One thing to watch.
#[derive(Debug, Clone, PartialEq)]
pub struct WatchConfig {
    /// A name of your choice, unique; incidents carry it. Default: the preset's id, else the name
    /// of the `requests` metric.
    pub name: String,
    /// The preset it comes from (`squall rules list` shows them all). Everything below then has
    /// its value from the preset, and what is given here wins.
    pub preset: Option<String>,
    /// Label values that every selector of the preset must have as well.
    pub r#match: Vec<(String, String)>,
    /// The names of the servers to ask for it. Default: all of them.
    pub sources: Vec<String>,
    /// A plain counter selector of every attempt, never `rate(…)`.
    pub requests: Selector,
    /// A counter selector of the attempts that failed. Without it a flood cannot be told from a
    /// surge.
    pub errors: Option<Selector>,
    /// Counter selectors of the retries, where the clients count them; they corroborate.
    pub retries: Vec<Selector>,
    /// A counter selector of the requests wanted, retries not counted; corroborates.
    pub calls: Option<Selector>,
    /// One dependency for each distinct value of these labels. Default: one for the whole watch.
    pub by: Vec<String>,
    /// Labels that name the caller.
    pub client: Vec<String>,
    /// Whether `requests` counts calls, whatever the attempts each of them takes: their retries are
    /// then counted on top. Default: false, each attempt is counted.
    pub counts_calls: bool,
    /// Periods of the exporter's own, such as the one at which it refreshes its counters: a period
    /// of such a length is then no evidence.
    pub flush_intervals: Vec<Duration>,
}

impl WatchConfig {
    /// A watch of the command line.
    #[must_use]
    pub fn plain(
        name: &str,
        requests: Selector,
        errors: Option<Selector>,
        by: Vec<String>,
    ) -> Self {
        Self {
            name: name.to_owned(),
            preset: None,
            r#match: Vec::new(),
            sources: Vec::new(),
            requests,
            errors,
            retries: Vec::new(),
            calls: None,
            by,
            client: Vec::new(),
            counts_calls: false,
            flush_intervals: Vec::new(),
        }
    }

    /// The watch of a preset, as it is.
    ///
    /// # Errors
    ///
    /// When one of its selectors is wrong; says why.
    pub fn from_preset(preset: &Preset) -> Result<Self, String> {
        let list = |texts: &[String]| -> Result<Vec<Selector>, String> {
            texts.iter().map(|text| selector(text)).collect()
        };
        let given = FromPreset::from(preset);
        Ok(Self {
            preset: Some(preset.id.clone()),
            retries: list(&given.retries)?,
            calls: given.calls.as_deref().map(selector).transpose()?,
            client: given.client,
            counts_calls: given.counts_calls,
            flush_intervals: given.flush_intervals,
            ..Self::plain(
                &preset.id,
                selector(&preset.requests)?,
                given.errors.as_deref().map(selector).transpose()?,
                given.by,
            )
        })
    }

    /// What the pipeline is told of it, asked from `source`.
    #[must_use]
    pub fn watch(&self, source: &str) -> Watch {
        Watch {
            source: source.to_owned(),
            name: self.name.clone(),
            by: self.by.clone(),
            client: self.client.clone(),
            requests_hold_retries: !self.counts_calls,
            has_errors: self.errors.is_some(),
            flush_seconds: self.flush_intervals.iter().map(Duration::as_secs_f64).collect(),
        }
    }

    /// Its selectors and what each counts.
    #[must_use]
    pub fn selectors(&self) -> Vec<(Role, Selector)> {
        let one = |role, selector: &Selector| (role, selector.clone());
        let mut all = vec![one(Role::Requests, &self.requests)];
        all.extend(self.errors.iter().map(|it| one(Role::Errors, it)));
        all.extend(self.retries.iter().map(|it| one(Role::Retries, it)));
        all.extend(self.calls.iter().map(|it| one(Role::Calls, it)));
        all
    }
}

impl From<&Preset> for FromPreset {
    fn from(preset: &Preset) -> Self {
        Self {
            requests: Some(preset.requests.clone()),
            errors: preset.errors.clone(),
            retries: preset.retries.clone(),
            calls: preset.calls.clone(),
            by: preset.by.clone(),
            client: preset.client.clone(),
            counts_calls: preset.counts == Counts::Calls,
            flush_intervals: preset
                .flush_seconds
                .iter()
                .filter_map(|seconds| Duration::try_from_secs_f64(*seconds).ok())
                .collect(),
        }
    }
}

/// The interval that a refusal of `rate(…)` assumes when it tells the gain: the one most
/// configurations in the field use.
const SCRAPE_ASSUMED: Duration = Duration::from_secs(15);
/// The waits whose gain is told: those of the common retry schedules.
const WAITS_TOLD: [u64; 5] = [4, 8, 15, 30, 60];

/// What a preset gives to a watch.
#[derive(Debug, Clone, Default)]
pub(crate) struct FromPreset {
    pub(crate) requests: Option<String>,
    pub(crate) errors: Option<String>,
    pub(crate) retries: Vec<String>,
    pub(crate) calls: Option<String>,
    pub(crate) by: Vec<String>,
    pub(crate) client: Vec<String>,
    pub(crate) counts_calls: bool,
    pub(crate) flush_intervals: Vec<Duration>,
}

/// Reads one watch; `preset` looks one up by its id.
pub(crate) fn read(
    node: &Node,
    path: &str,
    faults: &Faults,
    preset: impl Fn(&str) -> Result<FromPreset, String>,
) -> Option<WatchConfig> {
    let mut fields = Fields::open(node, path, faults)?;
    let preset_id = fields.text("preset");
    let mut given = FromPreset::default();
    let mut preset_known = true;
    if let Some(id) = &preset_id {
        match preset(id) {
            Ok(found) => given = found,
            Err(says) => {
                preset_known = false;
                fields.fault("preset", says);
            }
        }
    }
    let narrowed: Vec<(String, String)> =
        text_map(&mut fields, "match", faults).into_iter().collect();
    if preset_id.is_none() && !narrowed.is_empty() {
        fields.fault("match", "only narrows a preset; write the matchers into the selectors");
    }
    let requests = take(&mut fields, "requests", given.requests.as_slice(), &narrowed).pop();
    let errors = take(&mut fields, "errors", given.errors.as_slice(), &narrowed).pop();
    let retries = take(&mut fields, "retries", &given.retries, &narrowed);
    let calls = take(&mut fields, "calls", given.calls.as_slice(), &narrowed).pop();
    if preset_known && given.requests.is_none() && !fields.has("requests") {
        fields.fault("requests", "is missing: give a counter selector, or a `preset`");
    }
    let by = fields.text_list("by").unwrap_or(given.by);
    let client = fields.text_list("client").unwrap_or(given.client);
    for (key, names) in [("by", &by), ("client", &client)] {
        if let Some(name) = names.iter().find(|name| !is_label_name(name)) {
            fields.fault(key, format!("`{name}` is no name of a label"));
        }
    }
    let sources = fields.text_list("sources").unwrap_or_default();
    let flush_intervals = match fields.text_list("flush_intervals") {
        Some(texts) => texts.iter().filter_map(|text| flush_interval(&fields, text)).collect(),
        None => given.flush_intervals,
    };
    let counts_calls = fields.flag("counts_calls").unwrap_or(given.counts_calls);
    let name = fields.text("name");
    fields.finish();
    let requests = requests?;
    let name = name
        .or_else(|| preset_id.clone())
        .or_else(|| requests.name().map(str::to_owned))
        .unwrap_or_else(|| "watch".to_owned());
    Some(WatchConfig {
        name,
        preset: preset_id,
        r#match: narrowed,
        sources,
        requests,
        errors,
        retries,
        calls,
        by,
        client,
        counts_calls,
        flush_intervals,
    })
}

/// Takes the selectors at `key`, one text or a list; without it, those of the preset.
fn take(
    fields: &mut Fields<'_>,
    key: &'static str,
    preset: &[String],
    narrowed: &[(String, String)],
) -> Vec<Selector> {
    let given = match key {
        "retries" => fields.text_list(key),
        _ => fields.text(key).map(|text| vec![text]),
    };
    let (texts, key_told, narrowed) = match &given {
        Some(texts) => (texts.as_slice(), key, &[][..]),
        None => (preset, "match", narrowed),
    };
    let mut selectors = Vec::with_capacity(texts.len());
    for text in texts {
        match narrowed_selector(text, narrowed) {
            Ok(selector) => selectors.push(selector),
            Err(says) => fields.fault(key_told, says),
        }
    }
    selectors
}

/// Reads one interval of the exporter's own.
fn flush_interval(fields: &Fields<'_>, text: &str) -> Option<Duration> {
    let read = parse_duration(text).filter(|interval| !interval.is_zero());
    if read.is_none() {
        fields.fault("flush_intervals", format!("must be durations such as 30s, got `{text}`"));
    }
    read
}

/// Parses a counter selector, or says why not, and for a rate how much of a wave it leaves.
///
/// # Errors
///
/// The sentence to show.
pub fn selector(text: &str) -> Result<Selector, String> {
    text.parse().map_err(|invalid: InvalidSelector| refusal(&invalid))
}

/// A preset's selector with the label values that the configuration adds.
fn narrowed_selector(text: &str, narrowed: &[(String, String)]) -> Result<Selector, String> {
    let mut selector = selector(text)?;
    for (name, value) in narrowed {
        let matcher = Matcher::new(name.clone(), MatchOp::Equal, value.clone())
            .map_err(|cause| cause.to_string())?;
        selector = selector.and(matcher);
    }
    Ok(selector)
}

/// Why a selector is refused, with the gain that the window of a rate leaves.
fn refusal(invalid: &InvalidSelector) -> String {
    let mut says = invalid.to_string();
    if let (SelectorFault::Rate(_), Some(window)) = (&invalid.fault, invalid.window) {
        let gains: Vec<String> = WAITS_TOLD
            .iter()
            .map(|&wait| {
                let gain = window_gain(window, SCRAPE_ASSUMED, Duration::from_secs(wait));
                format!("{gain:.2} of a {wait} s wave")
            })
            .collect();
        says.push_str(&format!(
            "; at {} scrapes a window of {} leaves {}; give the counter itself",
            written(SCRAPE_ASSUMED),
            written(window),
            gains.join(", "),
        ));
    }
    says
}

/// Whether a text may name a label; the quoted names of Prometheus 3 may hold anything.
fn is_label_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(['{', '}', '"', ',', '\n']) && name != "__name__"
}
