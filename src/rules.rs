//! The known retry schedules and telemetry conventions, as data.
//!
//! squall names the client behind a train of waves because it knows what each client would do. That
//! knowledge is data, one small file for each library under `rules/schedules/` and each telemetry
//! convention under `rules/presets/`, compiled into the binary and open to the user's own files.
//! Code would be shorter to write; data can be read, checked and corrected by the people who know
//! the library, and carries its own cases.
//!
//! # Example
//!
//! ```
//! use squall::rules::Rules;
//!
//! let rules = Rules::builtin();
//! let rule = rules.schedule("prometheus-remote-write").expect("a known rule");
//! assert_eq!(rule.policy.waits(4), [0.03, 0.06, 0.12, 0.24]);
//! ```

pub mod policy;
pub mod preset;
pub mod schedule;
pub mod spanned;

use std::fmt;
use std::sync::{Arc, OnceLock};

use policy::Policy;
use preset::Preset;
use schedule::ScheduleRule;
use spanned::{Fault, Faults, Node, Value};

/// The rule files, compiled in by `build.rs`: file name below `rules/`, and text.
mod embedded {
    include!(concat!(env!("OUT_DIR"), "/embedded_rules.rs"));
}

/// One mistake in one rule file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct FileFault {
    /// The file, as it was named.
    pub file: String,
    /// The mistake.
    pub fault: Fault,
}

impl fmt::Display for FileFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file, self.fault)
    }
}

/// One rule of either kind.
#[derive(Debug, Clone, PartialEq)]
pub enum Rule {
    /// A client's retry schedule.
    Schedule(ScheduleRule),
    /// A telemetry convention.
    Preset(Preset),
}

/// The rules known to this process, sorted by id. Cheap to clone.
#[derive(Clone, Default, PartialEq)]
pub struct Rules {
    schedules: Vec<Arc<ScheduleRule>>,
    presets: Vec<Arc<Preset>>,
}

impl fmt::Debug for Rules {
    // Hundreds of rules would bury whatever they are printed with.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules")
            .field("schedules", &self.schedules.len())
            .field("presets", &self.presets.len())
            .finish()
    }
}

/// Waits of a list that a fit is told of.
const LISTED_MAX: u32 = 24;
/// Waits of a known client that are followed: a train of more has long been named.
pub(crate) const FOLLOWED_MAX: u32 = 48;

impl Rules {
    /// The rules that come with squall.
    ///
    /// # Panics
    ///
    /// When one of them is faulty, which a test rules out.
    #[must_use]
    pub fn builtin() -> Self {
        static BUILTIN: OnceLock<Rules> = OnceLock::new();
        BUILTIN
            .get_or_init(|| match Self::default().with_files(embedded_files()) {
                Ok(rules) => rules,
                Err(faults) => panic!("a rule that comes with squall is faulty: {}", faults[0]),
            })
            .clone()
    }

    /// These rules and those of `files` (name and text). A file's rule replaces one of the same id
    /// that was known before.
    ///
    /// # Errors
    ///
    /// Every fault of every file; the rules are then left as they were.
    pub fn with_files<'t>(
        &self,
        files: impl IntoIterator<Item = (&'t str, &'t str)>,
    ) -> Result<Self, Vec<FileFault>> {
        let mut faults = Vec::new();
        let mut added: Vec<Rule> = Vec::new();
        for (file, text) in files {
            let found = read_file(text, &mut added);
            faults
                .extend(found.into_iter().map(|fault| FileFault { file: file.to_owned(), fault }));
        }
        if faults.is_empty() { Ok(self.with(added)) } else { Err(faults) }
    }

    /// These rules and `added`, which replace those of the same id.
    #[must_use]
    pub fn with(&self, added: impl IntoIterator<Item = Rule>) -> Self {
        let mut all = self.clone();
        for rule in added {
            match rule {
                Rule::Schedule(rule) => {
                    all.schedules.retain(|known| known.id != rule.id);
                    all.schedules.push(Arc::new(rule));
                }
                Rule::Preset(preset) => {
                    all.presets.retain(|known| known.id != preset.id);
                    all.presets.push(Arc::new(preset));
                }
            }
        }
        all.schedules.sort_by(|a, b| a.id.cmp(&b.id));
        all.presets.sort_by(|a, b| a.id.cmp(&b.id));
        all
    }

    /// Every schedule, by id.
    #[must_use]
    pub fn schedules(&self) -> &[Arc<ScheduleRule>] {
        &self.schedules
    }

    /// Every preset, by id.
    #[must_use]
    pub fn presets(&self) -> &[Arc<Preset>] {
        &self.presets
    }

    /// The schedule with this id.
    #[must_use]
    pub fn schedule(&self, id: &str) -> Option<&Arc<ScheduleRule>> {
        self.schedules.iter().find(|rule| rule.id == id)
    }

    /// The preset with this id.
    #[must_use]
    pub fn preset(&self, id: &str) -> Option<&Arc<Preset>> {
        self.presets.iter().find(|preset| preset.id == id)
    }

    /// The policy of the schedule with this id.
    #[must_use]
    pub fn policy(&self, id: &str) -> Option<&Policy> {
        self.schedule(id).map(|rule| &rule.policy)
    }

    /// The waits, in seconds, of the schedules without jitter that no formula gives: a fit has to be
    /// told of them. Immediate retries are left out, as they melt into the failure.
    #[must_use]
    pub fn lists(&self) -> Vec<Vec<f64>> {
        let unruly = |family: policy::Family| {
            matches!(family, policy::Family::List | policy::Family::Custom)
        };
        let mut lists = self.timed_waits(LISTED_MAX, |policy| unruly(policy.family()));
        lists.retain(|waits| waits.len() > 1);
        lists
    }

    /// The waits, in seconds, of every schedule without jitter, each once. Immediate retries are left
    /// out, as they melt into the failure.
    #[must_use]
    pub fn waits_in_step(&self) -> Vec<Vec<f64>> {
        let mut waits = self.timed_waits(FOLLOWED_MAX, |_| true);
        waits.retain(|waits| !waits.is_empty());
        waits
    }

    fn timed_waits(&self, most: u32, wanted: impl Fn(&Policy) -> bool) -> Vec<Vec<f64>> {
        let mut lists: Vec<Vec<f64>> = self
            .schedules
            .iter()
            .map(|rule| &rule.policy)
            .filter(|policy| policy.is_synchronised() && wanted(policy))
            .map(|policy| policy.timed_waits(most))
            .collect();
        lists.sort_by(|a, b| {
            a.iter()
                .zip(b)
                .map(|(a, b)| a.total_cmp(b))
                .find(|o| o.is_ne())
                .unwrap_or_else(|| a.len().cmp(&b.len()))
        });
        lists.dedup();
        lists
    }
}

impl Rule {
    /// Its id.
    #[must_use]
    pub fn id(&self) -> &str {
        match self {
            Self::Schedule(rule) => &rule.id,
            Self::Preset(preset) => &preset.id,
        }
    }

    /// Reads a rule from a node: a schedule where it has a `policy`, else a preset.
    #[must_use]
    pub fn read(node: &Node, path: &str, faults: &Faults) -> Option<Self> {
        let keys: &[spanned::Entry] = match &node.value {
            Value::Mapping(entries) => entries,
            _ => &[],
        };
        let has = |key: &str| keys.iter().any(|entry| entry.key == key);
        if !has("policy") && (has("requests") || has("by")) {
            Preset::read(node, path, faults).map(Self::Preset)
        } else {
            ScheduleRule::read(node, path, faults).map(Self::Schedule)
        }
    }

    /// Whether both are of one kind and have one id: then one takes the other's place.
    #[must_use]
    pub fn has_id_of(&self, other: &Self) -> bool {
        let same_kind = matches!(
            (self, other),
            (Self::Schedule(_), Self::Schedule(_)) | (Self::Preset(_), Self::Preset(_))
        );
        same_kind && self.id() == other.id()
    }
}

/// The rule files compiled in: name below `rules/`, and text.
pub fn embedded_files() -> impl Iterator<Item = (&'static str, &'static str)> {
    embedded::FILES.iter().copied()
}

/// The rules of one file: a rule, or a list of rules.
///
/// # Errors
///
/// Every fault of the file, by line.
pub fn parse_file(text: &str) -> Result<Vec<Rule>, Vec<Fault>> {
    let mut rules = Vec::new();
    let faults = read_file(text, &mut rules);
    if faults.is_empty() { Ok(rules) } else { Err(faults) }
}

/// Adds the rules of one file to those of the files before it, faulty ones too where their id can
/// be read, so that an id that is given twice is told together with everything else.
fn read_file(text: &str, rules: &mut Vec<Rule>) -> Vec<Fault> {
    let node = match spanned::parse(text) {
        Ok(node) => node,
        Err(fault) => return vec![fault],
    };
    let faults = Faults::default();
    let mut add = |node: &Node, path: &str| {
        let Some(rule) = Rule::read(node, path, &faults) else { return };
        if rules.iter().any(|other| other.has_id_of(&rule)) {
            let path = if path.is_empty() { "id".to_owned() } else { format!("{path}.id") };
            faults.add(node.line, &path, format!("`{}` is given twice", rule.id()));
        }
        rules.push(rule);
    };
    match &node.value {
        Value::Sequence(items) => {
            for (index, item) in items.iter().enumerate() {
                add(item, &format!("[{index}]"));
            }
        }
        _ => add(&node, ""),
    }
    faults.into_sorted()
}

#[cfg(test)]
mod tests;
