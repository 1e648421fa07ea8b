//! From the text of a file to the running form, all faults gathered.

use std::path::Path;

use crate::rules::Rules;
use crate::rules::spanned::{Fault, Faults, Fields, Node, Value, parse};

use super::watch::FromPreset;
use super::{Config, notify, prometheus, rules, storage, watch};

/// What kind of file a text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A configuration of squall.
    Config,
    /// A rule: a schedule or a preset.
    Rule,
    /// A web configuration.
    Web,
}

/// Tells a file's kind by its top-level keys, so that `squall check` needs no flag for it.
#[must_use]
pub fn kind_of(text: &str) -> FileKind {
    let entries = match parse(text) {
        Ok(Node { value: Value::Mapping(entries), .. }) => entries,
        // Several rules in one file are a list; nothing else is one.
        Ok(Node { value: Value::Sequence(_), .. }) => return FileKind::Rule,
        _ => return FileKind::Config,
    };
    let has = |keys: &[&str]| entries.iter().any(|entry| keys.contains(&entry.key.as_str()));
    if has(&["prometheus", "watch", "notify", "storage", "rules"]) {
        FileKind::Config
    } else if has(&["tls_server_config", "http_server_config", "basic_auth_users", "rate_limit"]) {
        FileKind::Web
    } else if has(&["id", "cases", "policy", "requests", "by", "reference"]) {
        FileKind::Rule
    } else {
        FileKind::Config
    }
}

/// Reads and resolves the text of a configuration; relative paths start from `folder`.
///
/// # Errors
///
/// Every fault, in the order of the file.
pub fn read(text: &str, folder: &Path, rules: &Rules) -> Result<Config, Vec<Fault>> {
    let node = parse(text).map_err(|fault| vec![fault])?;
    let faults = Faults::default();
    let config = if node.is_null() {
        Some(Config {
            prometheus: Vec::new(),
            watch: Vec::new(),
            notify: Vec::new(),
            storage: storage::StorageConfig::default(),
            rules: super::OwnRules { known: rules.clone(), ..super::OwnRules::default() },
        })
    } else {
        read_file(&node, folder, rules, &faults)
    };
    match config {
        Some(config) if faults.is_empty() => Ok(config),
        _ => Err(faults.into_sorted()),
    }
}

fn read_file(node: &Node, folder: &Path, known: &Rules, faults: &Faults) -> Option<Config> {
    let mut fields = Fields::open(node, "", faults)?;
    let own = rules::read(fields.list("rules").unwrap_or_default(), folder, known, faults);
    let mut sources: Vec<prometheus::PrometheusConfig> = Vec::new();
    // Names are checked even where another part of the section is wrong.
    let mut source_names: Vec<String> = Vec::new();
    for (index, item) in fields.list("prometheus").unwrap_or_default().iter().enumerate() {
        let path = format!("prometheus[{index}]");
        let Some(source) = prometheus::read(item, &path, folder, faults) else {
            source_names.extend(text_at(item, "name"));
            continue;
        };
        if source_names.contains(&source.name) {
            let says = format!("`{}` is taken: sources need different names", source.name);
            faults.add(line_of(item, "name"), &format!("{path}.name"), says);
        }
        source_names.push(source.name.clone());
        sources.push(source);
    }
    let mut watches: Vec<watch::WatchConfig> = Vec::new();
    for (index, item) in fields.list("watch").unwrap_or_default().iter().enumerate() {
        let path = format!("watch[{index}]");
        let Some(read) = watch::read(item, &path, faults, |id| preset(&own.known, id)) else {
            continue;
        };
        if watches.iter().any(|other| other.name == read.name) {
            let says = format!("`{}` is taken: watches need different names", read.name);
            faults.add(line_of(item, "name"), &format!("{path}.name"), says);
        }
        for source in &read.sources {
            if !source_names.contains(source) {
                let says = format!("there is no source `{source}` under `prometheus`");
                faults.add(line_of(item, "sources"), &format!("{path}.sources"), says);
            }
        }
        watches.push(read);
    }
    let receivers = notify::read(fields.list("notify").unwrap_or_default(), folder, faults);
    let storage = match fields.node("storage") {
        Some(node) => storage::read(node, folder, faults),
        None => storage::StorageConfig::default(),
    };
    fields.finish();
    Some(Config { prometheus: sources, watch: watches, notify: receivers, storage, rules: own })
}

/// What the preset `id` gives, or what to say when there is none.
fn preset(rules: &Rules, id: &str) -> Result<FromPreset, String> {
    match rules.preset(id) {
        Some(preset) => Ok(FromPreset::from(preset.as_ref())),
        None => Err(format!("there is no preset `{id}`; `squall rules list` shows them all")),
    }
}

/// The line of a key of a mapping, or of the mapping.
fn line_of(node: &Node, key: &str) -> usize {
    match &node.value {
        Value::Mapping(entries) => {
            entries.iter().find(|entry| entry.key == key).map_or(node.line, |entry| entry.line)
        }
        _ => node.line,
    }
}

/// The text of a key of a mapping.
fn text_at(node: &Node, key: &str) -> Option<String> {
    match &node.value {
        Value::Mapping(entries) => {
            let entry = entries.iter().find(|entry| entry.key == key)?;
            entry.node.scalar().map(str::to_owned)
        }
        _ => None,
    }
}
