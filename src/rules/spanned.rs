//! YAML that remembers where each value stood, and a reader that gathers every fault.
//!
//! A deserialiser derived by serde stops at the first mistake and knows only its place in the
//! type. A person who repairs a file wants all mistakes at once, each with its line and the key
//! path they would type into a search box. So the text is parsed into nodes that keep their line,
//! and the few shapes squall reads are taken from those nodes by hand.
//!
//! # Method
//!
//! [`parse`] builds the tree; [`Fields`] opens one mapping, hands out its values by key, and on
//! [`Fields::finish`] reports the keys that nobody asked for, with the nearest known one. Faults go
//! to one [`Faults`], in the order of the file.
//!
//! # Example
//!
//! ```
//! use squall::rules::spanned::{Faults, Fields, parse};
//!
//! let node = parse("name: shop\nbase: 2 parsecs\nfator: 2\n")?;
//! let faults = Faults::default();
//! let mut fields = Fields::open(&node, "", &faults).expect("a mapping");
//! assert_eq!(fields.text("name").as_deref(), Some("shop"));
//! assert_eq!(fields.seconds("base"), None);
//! assert_eq!(fields.number("factor"), None);
//! fields.finish();
//! let lines: Vec<String> = faults.into_sorted().iter().map(|fault| fault.to_string()).collect();
//! assert_eq!(
//!     lines,
//!     [
//!         "line 2: base: must be a duration such as 200ms, 1.5s or 1m30s, got `2 parsecs`",
//!         "line 3: fator: unknown key, did you mean `factor`?",
//!     ]
//! );
//! # Ok::<(), squall::rules::spanned::Fault>(())
//! ```

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;

use granit_parser::{Event, Parser, ScalarStyle};

/// Most nodes of one document, aliases expanded: a larger file is a mistake or an attack.
const NODES_MAX: usize = 200_000;

/// One mistake in a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Fault {
    /// The line, from 1.
    pub line: usize,
    /// The path of keys, `policy.base`, empty for the document itself.
    pub path: String,
    /// What is wrong, and where it helps, what would be right.
    pub says: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: ", self.line)?;
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.says)
    }
}

/// The mistakes found so far. Shared by reference, so that nested readers add to one list.
#[derive(Debug, Default)]
pub struct Faults(RefCell<Vec<Fault>>);

impl Faults {
    /// Adds one.
    pub fn add(&self, line: usize, path: &str, says: impl Into<String>) {
        self.0.borrow_mut().push(Fault { line, path: path.to_owned(), says: says.into() });
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// All of them, by line.
    #[must_use]
    pub fn into_sorted(self) -> Vec<Fault> {
        let mut faults = self.0.into_inner();
        faults.sort_by_key(|fault| fault.line);
        faults
    }
}

/// A value and where it stood.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// The line, from 1.
    pub line: usize,
    /// What it is.
    pub value: Value,
}

/// The shapes of YAML.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A number, text, flag or nothing, as written. `quoted` text is never a number or null.
    Scalar {
        /// The text, escapes resolved.
        text: String,
        /// Whether it stood in quotes or in a block.
        quoted: bool,
    },
    /// A list.
    Sequence(Vec<Node>),
    /// Pairs in the order of the file.
    Mapping(Vec<Entry>),
}

/// One pair of a mapping.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// The line of the key, from 1.
    pub line: usize,
    /// Its value.
    pub node: Node,
}

impl Node {
    /// Whether this is an empty value or a written `null`.
    #[must_use]
    pub fn is_null(&self) -> bool {
        matches!(&self.value, Value::Scalar { text, quoted: false }
            if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
    }

    /// The text of a scalar that is not null.
    #[must_use]
    pub fn scalar(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar { text, .. } if !self.is_null() => Some(text),
            _ => None,
        }
    }

    /// What this is, for a message.
    fn kind(&self) -> &'static str {
        match &self.value {
            Value::Scalar { .. } if self.is_null() => "nothing",
            Value::Scalar { .. } => "a plain value",
            Value::Sequence(_) => "a list",
            Value::Mapping(_) => "a mapping",
        }
    }

    fn size(&self) -> usize {
        1 + match &self.value {
            Value::Scalar { .. } => 0,
            Value::Sequence(items) => items.iter().map(Self::size).sum(),
            Value::Mapping(entries) => entries.iter().map(|entry| entry.node.size()).sum(),
        }
    }
}

/// Parses the one document of a text. An empty text is an empty value.
///
/// # Errors
///
/// The first syntax error, a second document, a key that is not plain text, or a text whose
/// aliases expand without bound.
pub fn parse(text: &str) -> Result<Node, Fault> {
    let mut builder = Builder { anchors: HashMap::new(), open: Vec::new(), done: None, nodes: 0 };
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| Fault {
            line: error.marker().line(),
            path: String::new(),
            says: format!("not valid YAML: {}", error.info()),
        })?;
        builder.take(event, span.start.line())?;
    }
    let empty = Node { line: 1, value: Value::Scalar { text: String::new(), quoted: false } };
    Ok(builder.done.unwrap_or(empty))
}

enum Open {
    Sequence { items: Vec<Node> },
    Mapping { entries: Vec<Entry>, key: Option<(String, usize)> },
}

struct Builder {
    anchors: HashMap<usize, Node>,
    open: Vec<(Open, usize, usize)>,
    done: Option<Node>,
    nodes: usize,
}

impl Builder {
    fn take(&mut self, event: Event<'_>, line: usize) -> Result<(), Fault> {
        match event {
            Event::Scalar(text, style, anchor, _) => {
                let quoted = !matches!(style, ScalarStyle::Plain);
                let value = Value::Scalar { text: text.into_owned(), quoted };
                self.close(Node { line, value }, anchor)
            }
            Event::SequenceStart(_, anchor, _) => {
                self.open.push((Open::Sequence { items: Vec::new() }, line, anchor));
                Ok(())
            }
            Event::MappingStart(_, anchor, _) => {
                let mapping = Open::Mapping { entries: Vec::new(), key: None };
                self.open.push((mapping, line, anchor));
                Ok(())
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some((open, line, anchor)) = self.open.pop() else { return Ok(()) };
                let value = match open {
                    Open::Sequence { items } => Value::Sequence(items),
                    Open::Mapping { entries, .. } => Value::Mapping(entries),
                };
                self.close(Node { line, value }, anchor)
            }
            Event::Alias(anchor) => match self.anchors.get(&anchor) {
                Some(node) => {
                    let node = node.clone();
                    self.close(node, 0)
                }
                None => Err(fault(line, "an alias to an anchor that is not defined before it")),
            },
            _ => Ok(()),
        }
    }

    fn close(&mut self, node: Node, anchor: usize) -> Result<(), Fault> {
        self.nodes += node.size();
        if self.nodes > NODES_MAX {
            return Err(fault(node.line, "the file is too large once its aliases are expanded"));
        }
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        match self.open.last_mut() {
            None if self.done.is_some() => {
                return Err(fault(node.line, "a second document: one file holds one"));
            }
            None => self.done = Some(node),
            Some((Open::Sequence { items }, _, _)) => items.push(node),
            Some((Open::Mapping { entries, key }, _, _)) => match (key.take(), node) {
                (Some((key, line)), node) => entries.push(Entry { key, line, node }),
                (None, Node { line, value: Value::Scalar { text, .. } }) => {
                    *key = Some((text, line));
                }
                (None, node) => return Err(fault(node.line, "a key must be plain text")),
            },
        }
        Ok(())
    }
}

fn fault(line: usize, says: &str) -> Fault {
    Fault { line, path: String::new(), says: says.to_owned() }
}

/// One mapping being read: every key taken by name, the rest reported as unknown.
#[derive(Debug)]
pub struct Fields<'a> {
    entries: &'a [Entry],
    line: usize,
    path: String,
    faults: &'a Faults,
    known: Vec<&'static str>,
}

impl<'a> Fields<'a> {
    /// Opens the mapping `node` at `path`; reports it when it is something else.
    #[must_use]
    pub fn open(node: &'a Node, path: &str, faults: &'a Faults) -> Option<Self> {
        let Value::Mapping(entries) = &node.value else {
            faults.add(node.line, path, format!("must be a mapping, got {}", node.kind()));
            return None;
        };
        let fields =
            Self { entries, line: node.line, path: path.to_owned(), faults, known: Vec::new() };
        for (index, entry) in entries.iter().enumerate() {
            if entries[..index].iter().any(|earlier| earlier.key == entry.key) {
                faults.add(entry.line, &fields.path_of(&entry.key), "given twice");
            }
        }
        Some(fields)
    }

    /// The line where the mapping begins.
    #[must_use]
    pub const fn line(&self) -> usize {
        self.line
    }

    /// The path of `key` in this mapping.
    #[must_use]
    pub fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// Adds a fault at `key`, at its line where it is given, else at the mapping's.
    pub fn fault(&self, key: &str, says: impl Into<String>) {
        let entry = self.entries.iter().find(|entry| entry.key == key);
        self.faults.add(entry.map_or(self.line, |e| e.line), &self.path_of(key), says);
    }

    /// The value of `key`, none when it is absent or null. Marks the key as known.
    pub fn node(&mut self, key: &'static str) -> Option<&'a Node> {
        if !self.known.contains(&key) {
            self.known.push(key);
        }
        self.entries.iter().find(|entry| entry.key == key).map(|e| &e.node).filter(|n| !n.is_null())
    }

    /// Whether `key` is given and not null. Marks it as known.
    pub fn has(&mut self, key: &'static str) -> bool {
        self.node(key).is_some()
    }

    /// Text.
    pub fn text(&mut self, key: &'static str) -> Option<String> {
        let node = self.node(key)?;
        let text = node.scalar().map(|text| text.trim().to_owned());
        if text.is_none() {
            self.faults.add(
                node.line,
                &self.path_of(key),
                format!("must be text, got {}", node.kind()),
            );
        }
        text
    }

    /// Text that must be there.
    pub fn required_text(&mut self, key: &'static str) -> Option<String> {
        if !self.has(key) {
            self.fault(key, "is missing");
            return None;
        }
        let text = self.text(key)?;
        if text.is_empty() {
            self.fault(key, "must not be empty");
            return None;
        }
        Some(text)
    }

    /// A finite number.
    pub fn number(&mut self, key: &'static str) -> Option<f64> {
        let node = self.node(key)?;
        let number = node.scalar().and_then(parse_number);
        if number.is_none() {
            self.faults.add(
                node.line,
                &self.path_of(key),
                format!("must be a number{}", got(node)),
            );
        }
        number
    }

    /// A whole number from 0.
    pub fn count(&mut self, key: &'static str) -> Option<u32> {
        let node = self.node(key)?;
        let count = node.scalar().and_then(|text| text.parse().ok());
        if count.is_none() {
            let says = format!("must be a whole number from 0{}", got(node));
            self.faults.add(node.line, &self.path_of(key), says);
        }
        count
    }

    /// `true` or `false`.
    pub fn flag(&mut self, key: &'static str) -> Option<bool> {
        let node = self.node(key)?;
        let flag = match node.scalar() {
            Some("true") => Some(true),
            Some("false") => Some(false),
            _ => None,
        };
        if flag.is_none() {
            self.faults.add(
                node.line,
                &self.path_of(key),
                format!("must be true or false{}", got(node)),
            );
        }
        flag
    }

    /// A duration in seconds: `200ms`, `1.5s`, `1m30s`, or a bare number of seconds.
    pub fn seconds(&mut self, key: &'static str) -> Option<f64> {
        let node = self.node(key)?;
        seconds_of(node, &self.path_of(key), self.faults)
    }

    /// A list of durations in seconds.
    pub fn seconds_list(&mut self, key: &'static str) -> Option<Vec<f64>> {
        let path = self.path_of(key);
        let items = self.list(key)?;
        let read: Vec<Option<f64>> = (0..)
            .zip(items)
            .map(|(index, node): (usize, &Node)| {
                seconds_of(node, &format!("{path}[{index}]"), self.faults)
            })
            .collect();
        read.into_iter().collect()
    }

    /// A list of numbers.
    pub fn number_list(&mut self, key: &'static str) -> Option<Vec<f64>> {
        let path = self.path_of(key);
        let items = self.list(key)?;
        let mut numbers = Vec::with_capacity(items.len());
        for (index, node) in items.iter().enumerate() {
            match node.scalar().and_then(parse_number) {
                Some(number) => numbers.push(number),
                None => self.faults.add(
                    node.line,
                    &format!("{path}[{index}]"),
                    format!("must be a number{}", got(node)),
                ),
            }
        }
        (numbers.len() == items.len()).then_some(numbers)
    }

    /// A list of texts. One text stands for a list of one.
    pub fn text_list(&mut self, key: &'static str) -> Option<Vec<String>> {
        let node = self.node(key)?;
        if let Some(text) = node.scalar() {
            return Some(vec![text.to_owned()]);
        }
        let path = self.path_of(key);
        let items = self.list(key)?;
        let mut texts = Vec::with_capacity(items.len());
        for (index, node) in items.iter().enumerate() {
            match node.scalar() {
                Some(text) => texts.push(text.trim().to_owned()),
                None => self.faults.add(
                    node.line,
                    &format!("{path}[{index}]"),
                    format!("must be text, got {}", node.kind()),
                ),
            }
        }
        (texts.len() == items.len()).then_some(texts)
    }

    /// The items of a list.
    pub fn list(&mut self, key: &'static str) -> Option<&'a [Node]> {
        let node = self.node(key)?;
        if let Value::Sequence(items) = &node.value {
            return Some(items);
        }
        self.faults.add(
            node.line,
            &self.path_of(key),
            format!("must be a list, got {}", node.kind()),
        );
        None
    }

    /// One of a closed set of words.
    pub fn one_of<T: Copy>(&mut self, key: &'static str, words: &[(&str, T)]) -> Option<T> {
        let node = self.node(key)?;
        let found = node.scalar().and_then(|text| words.iter().find(|(word, _)| *word == text));
        if found.is_none() {
            let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            let says = format!("must be one of {}{}", known.join(", "), got(node));
            self.faults.add(node.line, &self.path_of(key), says);
        }
        found.map(|(_, value)| *value)
    }

    /// Reports the keys that were never asked for.
    pub fn finish(self) {
        for entry in self.entries {
            if !self.known.contains(&entry.key.as_str()) {
                let says = match nearest(&entry.key, &self.known) {
                    Some(known) => format!("unknown key, did you mean `{known}`?"),
                    None => format!("unknown key; known here: {}", self.known.join(", ")),
                };
                self.faults.add(entry.line, &self.path_of(&entry.key), says);
            }
        }
    }
}

fn got(node: &Node) -> String {
    match node.scalar() {
        Some(text) => format!(", got `{text}`"),
        None => format!(", got {}", node.kind()),
    }
}

fn parse_number(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

fn seconds_of(node: &Node, path: &str, faults: &Faults) -> Option<f64> {
    let seconds = node.scalar().and_then(parse_seconds);
    if seconds.is_none() {
        let says = format!("must be a duration such as 200ms, 1.5s or 1m30s{}", got(node));
        faults.add(node.line, path, says);
    }
    seconds
}

/// Seconds in a duration as Prometheus writes it, decimals allowed, or in a bare number of seconds.
///
/// ```
/// use squall::rules::spanned::parse_seconds;
///
/// assert_eq!(parse_seconds("1m30s"), Some(90.0));
/// assert_eq!(parse_seconds("337.5ms"), Some(0.3375));
/// assert_eq!(parse_seconds("0.25"), Some(0.25));
/// assert_eq!(parse_seconds("-1s"), None);
/// assert_eq!(parse_seconds("5 s"), None);
/// ```
#[must_use]
pub fn parse_seconds(text: &str) -> Option<f64> {
    if let Some(number) = parse_number(text) {
        return (number >= 0.0).then_some(number);
    }
    // Units from the largest: Prometheus wants them in this order and each at most once.
    const UNITS: [(&str, f64); 7] = [
        ("y", 31_536_000.0),
        ("w", 604_800.0),
        ("d", 86_400.0),
        ("h", 3600.0),
        ("m", 60.0),
        ("s", 1.0),
        ("ms", 0.001),
    ];
    let mut rest = text;
    let mut total = 0.0;
    let mut next_unit = 0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let letters = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        let unit = &rest[..letters];
        let index = next_unit + UNITS[next_unit..].iter().position(|(name, _)| *name == unit)?;
        // Division keeps 337.5ms exact where a product with 0.001 would not.
        total += if unit == "ms" { number / 1000.0 } else { number * UNITS[index].1 };
        next_unit = index + 1;
        rest = &rest[letters..];
    }
    (!text.is_empty()).then_some(total)
}

/// The known key nearest to a mistyped one, when it is near enough to be meant.
fn nearest<'k>(key: &str, known: &[&'k str]) -> Option<&'k str> {
    let scored = known.iter().map(|candidate| (edits(key, candidate), *candidate));
    scored.min().filter(|(distance, _)| *distance <= 1 + key.len() / 4).map(|(_, found)| found)
}

/// Levenshtein distance.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests;
