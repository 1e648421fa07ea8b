//! The `rules` section: schedules and presets of the user's own.

use std::path::{Path, PathBuf};

use crate::rules::spanned::{Faults, Fields, Node, Value};
use crate::rules::{Rule, Rules};

use super::effective::quoted;
use super::{ConfigError, text_of};

/// Rules of your own, which join those that come with squall; one with the id of a known rule takes
/// its place. An entry is a `path`, or a rule as it stands in a file: a client of your own is
/// `{id: checkout, name: Our client, policy: {family: exponential, base: 200ms, factor: 2}}`.
/// `squall rules show ID` shows how the known ones are written.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct OwnRules {
    /// A rule file, or a folder of `.yaml` and `.yml` files.
    pub path: Vec<PathBuf>,
    /// The rules that stand in the configuration itself, as they were written.
    pub inline: Vec<Node>,
    /// All rules known: these, and those that come with squall.
    pub known: Rules,
}

impl OwnRules {
    /// The section as YAML, empty without rules of the user's own; reads back to the same.
    #[must_use]
    pub fn section(&self) -> String {
        if self.path.is_empty() && self.inline.is_empty() {
            return String::new();
        }
        let mut text = "rules:\n".to_owned();
        for path in &self.path {
            text.push_str(&format!("  - path: {}\n", quoted(&path.to_string_lossy())));
        }
        for rule in &self.inline {
            text.push_str("  -\n");
            for line in yaml(rule, 4) {
                text.push_str(&line);
                text.push('\n');
            }
        }
        text
    }
}

/// Reads the section; `rules` are those known without it.
pub(crate) fn read(nodes: &[Node], folder: &Path, rules: &Rules, faults: &Faults) -> OwnRules {
    let mut own = OwnRules { known: rules.clone(), ..OwnRules::default() };
    let mut given: Vec<Rule> = Vec::new();
    for (index, node) in nodes.iter().enumerate() {
        let path = format!("rules[{index}]");
        if !has(node, "path") {
            if let Some(rule) = Rule::read(node, &path, faults) {
                if given.iter().any(|other| other.has_id_of(&rule)) {
                    let says = format!("`{}` is given twice", rule.id());
                    faults.add(node.line, &format!("{path}.id"), says);
                }
                given.push(rule.clone());
                own.known = own.known.with([rule]);
                own.inline.push(node.clone());
            }
            continue;
        }
        let Some(mut fields) = Fields::open(node, &path, faults) else { continue };
        let file = fields.required_text("path");
        fields.finish();
        let Some(file) = file.map(|file| folder.join(file)) else { continue };
        let (texts, unreadable) = rule_files(&file);
        for error in &unreadable {
            faults.add(node.line, &format!("{path}.path"), says(error));
        }
        let named = texts.iter().map(|(name, text)| (name.as_str(), text.as_str()));
        match own.known.with_files(named) {
            Ok(known) => {
                for (name, text) in &texts {
                    for rule in crate::rules::parse_file(text).unwrap_or_default() {
                        if given.iter().any(|other| other.has_id_of(&rule)) {
                            let says = format!("`{}` is given twice, again in `{name}`", rule.id());
                            faults.add(node.line, &format!("{path}.path"), says);
                        }
                        given.push(rule);
                    }
                }
                own.known = known;
                own.path.push(file);
            }
            Err(found) => {
                for fault in found {
                    faults.add(node.line, &format!("{path}.path"), fault.to_string());
                }
            }
        }
    }
    own
}

fn has(node: &Node, key: &str) -> bool {
    matches!(&node.value, Value::Mapping(entries) if entries.iter().any(|entry| entry.key == key))
}

fn says(error: &ConfigError) -> String {
    crate::telemetry::Chain(error).to_string()
}

/// The rule files at `path`, by name: the file itself, or those of a folder in the order of their
/// names; beside them why others cannot be read, so that one of these hides no fault of the rest.
#[must_use]
pub fn rule_files(path: &Path) -> (Vec<(String, String)>, Vec<ConfigError>) {
    let mut files = vec![path.to_owned()];
    if path.is_dir() {
        files = match files_of(path) {
            Ok(files) => files,
            Err(cause) => {
                let unreadable = ConfigError::Unreadable { file: path.to_owned(), cause };
                return (Vec::new(), vec![unreadable]);
            }
        };
    }
    let (mut texts, mut unreadable) = (Vec::new(), Vec::new());
    for file in files {
        match text_of(&file) {
            Ok(text) => texts.push((file.display().to_string(), text)),
            Err(error) => unreadable.push(error),
        }
    }
    (texts, unreadable)
}

/// The `.yaml` and `.yml` files of a folder, in the order of their names.
fn files_of(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let file = entry?.path();
        if file.extension().is_some_and(|kind| kind == "yaml" || kind == "yml") {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
}

/// Writes a node as lines of YAML, each indented by `indent` spaces; reads back to the same.
fn yaml(node: &Node, indent: usize) -> Vec<String> {
    let pad = " ".repeat(indent);
    let block = |head: String, child: &Node, deeper: usize| -> Vec<String> {
        match &child.value {
            Value::Scalar { .. } => vec![format!("{pad}{head} {}", scalar(child))],
            Value::Sequence(items) if items.is_empty() => vec![format!("{pad}{head} []")],
            Value::Mapping(entries) if entries.is_empty() => vec![format!("{pad}{head} {{}}")],
            _ => {
                let mut lines = vec![format!("{pad}{head}")];
                lines.extend(yaml(child, indent + deeper));
                lines
            }
        }
    };
    match &node.value {
        Value::Scalar { .. } => vec![format!("{pad}{}", scalar(node))],
        Value::Sequence(items) => {
            items.iter().flat_map(|item| block("-".to_owned(), item, 2)).collect()
        }
        Value::Mapping(entries) => entries
            .iter()
            .flat_map(|entry| block(format!("{}:", quoted(&entry.key)), &entry.node, 2))
            .collect(),
    }
}

fn scalar(node: &Node) -> String {
    match &node.value {
        Value::Scalar { text, quoted: false } => text.clone(),
        Value::Scalar { text, quoted: true } => {
            // A number in quotes is a text and must stay one.
            let plain = quoted(text);
            if plain == *text { format!("\"{text}\"") } else { plain }
        }
        _ => String::new(),
    }
}
