//! Asking for incidents: filters, pages, and the cursor that joins them.
//!
//! A page is cut by the key (start as first estimated, id), which never changes for a stored
//! incident. So rows that arrive meanwhile neither shift a page nor repeat a row, which an offset
//! would do at the first new incident.

use std::fmt::{self, Write as _};

use thiserror::Error;

use super::StoreError;
use super::record::{COLUMNS, incident_of};
use super::sql::{SqlStore, Value};
use crate::classify::{Class, Severity};
use crate::incident::{Incident, State};
use crate::series::Timestamp;

/// Incidents on a page when the caller does not say.
pub const LIMIT_DEFAULT: usize = 100;

/// The most incidents on a page.
pub const LIMIT_MAX: usize = 1000;

/// A question that cannot be asked.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidQuery {
    /// The limit is out of range.
    #[error("`limit` must be from 1 to {LIMIT_MAX}, got {0}")]
    Limit(usize),
    /// The cursor did not come from a page.
    #[error("`cursor` is not one that a page gave, got `{0}`")]
    Cursor(String),
}

/// A place between two incidents in the order of pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    opened_at: i64,
    id: String,
}

impl Cursor {
    /// Reads the text that [`Page::next`] printed.
    ///
    /// # Errors
    ///
    /// When the text is no cursor.
    pub fn parse(text: &str) -> Result<Self, InvalidQuery> {
        let wrong = || InvalidQuery::Cursor(text.to_owned());
        let (opened_at, id) = text.split_once('_').ok_or_else(wrong)?;
        let opened_at = opened_at.parse().ok().ok_or_else(wrong)?;
        if id.is_empty() {
            return Err(wrong());
        }
        Ok(Self { opened_at, id: id.to_owned() })
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}", self.opened_at, self.id)
    }
}

/// A number of incidents that a page may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
// Invariant: from 1 to `LIMIT_MAX`.
pub struct Limit(usize);

impl Limit {
    /// At most `limit` incidents.
    ///
    /// # Errors
    ///
    /// When the limit is 0 or above [`LIMIT_MAX`].
    pub fn new(limit: usize) -> Result<Self, InvalidQuery> {
        if (1..=LIMIT_MAX).contains(&limit) {
            Ok(Self(limit))
        } else {
            Err(InvalidQuery::Limit(limit))
        }
    }
}

/// Which incidents; an absent filter lets all pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IncidentQuery {
    /// The dependency's name, exactly.
    pub dependency: Option<String>,
    /// The class.
    pub class: Option<Class>,
    /// The state.
    pub state: Option<State>,
    /// The severity.
    pub severity: Option<Severity>,
    /// Started at or after this.
    pub from: Option<Timestamp>,
    /// Started before this.
    pub to: Option<Timestamp>,
    /// A rule id among the matches.
    pub schedule: Option<String>,
    /// A part of the dependency's name or of the summary, whatever the case of its letters.
    pub text: Option<String>,
    /// The most incidents on the page.
    pub limit: Limit,
    /// Where the page before ended.
    pub after: Option<Cursor>,
}

impl Default for IncidentQuery {
    fn default() -> Self {
        Self {
            dependency: None,
            class: None,
            state: None,
            severity: None,
            from: None,
            to: None,
            schedule: None,
            text: None,
            limit: Limit(LIMIT_DEFAULT),
            after: None,
        }
    }
}

impl IncidentQuery {
    /// The most incidents on the page.
    #[must_use]
    pub const fn limit(&self) -> usize {
        self.limit.0
    }

    /// Asks for at most `limit` incidents.
    ///
    /// # Errors
    ///
    /// When the limit is 0 or above [`LIMIT_MAX`].
    pub fn with_limit(mut self, limit: usize) -> Result<Self, InvalidQuery> {
        self.limit = Limit::new(limit)?;
        Ok(self)
    }
}

/// Some incidents, newest first.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// The incidents.
    pub incidents: Vec<Incident>,
    /// Where the next page starts; none on the last one.
    pub next: Option<Cursor>,
}

/// The statement of a question and its parameters.
fn statement(query: &IncidentQuery) -> (String, Vec<Value>) {
    let mut values: Vec<Value> = Vec::new();
    // Driven by the rule's own index where a rule is asked for: walking all incidents newest first
    // and testing each for a rare rule would read the whole table.
    let (from, key) = match &query.schedule {
        Some(rule) => {
            values.push(rule.as_str().into());
            (
                "incident_rules r JOIN incidents i ON i.id = r.incident WHERE r.rule = $1",
                ["r.opened_at", "r.incident"],
            )
        }
        None => ("incidents i WHERE 1 = 1", ["i.opened_at", "i.id"]),
    };
    let [opened_at, id] = key;
    let mut sql = format!("SELECT {COLUMNS}, i.opened_at FROM {from}");
    let mut filter = |condition: &str, value: Value| {
        values.push(value);
        let place = format!("${}", values.len());
        sql.push_str(" AND ");
        sql.push_str(&condition.replace('?', &place));
    };
    if let Some(dependency) = &query.dependency {
        filter("i.dependency = ?", dependency.as_str().into());
    }
    if let Some(class) = query.class {
        filter("i.class = ?", class.as_str().into());
    }
    if let Some(state) = query.state {
        filter("i.state = ?", state.as_str().into());
    }
    if let Some(severity) = query.severity {
        filter("i.severity = ?", severity.as_str().into());
    }
    if let Some(from) = query.from {
        filter(&format!("{opened_at} >= ?"), from.millis().into());
    }
    if let Some(to) = query.to {
        filter(&format!("{opened_at} < ?"), to.millis().into());
    }
    if let Some(text) = &query.text {
        let escaped = text.to_lowercase().replace('!', "!!").replace('%', "!%").replace('_', "!_");
        filter(
            "(lower(i.dependency) LIKE ? ESCAPE '!' OR lower(i.summary) LIKE ? ESCAPE '!')",
            format!("%{escaped}%").into(),
        );
    }
    if let Some(after) = &query.after {
        filter(&format!("{opened_at} <= ?"), after.opened_at.into());
        filter(&format!("({opened_at}, {id}) < (?, "), after.opened_at.into());
        values.push(after.id.as_str().into());
        write!(sql, "${})", values.len()).ok();
    }
    // One more than asked for tells whether there is a next page.
    write!(sql, " ORDER BY {opened_at} DESC, {id} DESC LIMIT {}", query.limit() + 1).ok();
    (sql, values)
}

impl SqlStore {
    pub(super) async fn read_page(&self, query: &IncidentQuery) -> Result<Page, StoreError> {
        let (sql, values) = statement(query);
        let rows = self.database.read("read a page of incidents", &sql, &values).await?;
        let failed = self.database.error("read a page of incidents");
        let mut incidents = Vec::with_capacity(rows.len().min(query.limit()));
        let mut next = None;
        for (index, row) in rows.iter().enumerate() {
            if index == query.limit() {
                let last: &super::sql::Row = &rows[index - 1];
                next = Some(Cursor {
                    id: last.text(0).map_err(&failed)?,
                    opened_at: last.int(6).map_err(&failed)?,
                });
                break;
            }
            incidents.push(incident_of(&self.database, row)?);
        }
        Ok(Page { incidents, next })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_survives_its_text_and_nothing_else_is_one() {
        let cursor = Cursor { opened_at: -5, id: "a_b".to_owned() };
        assert_eq!(Cursor::parse(&cursor.to_string()).unwrap(), cursor);
        for text in ["", "_", "12_", "x_y", "12"] {
            assert_eq!(Cursor::parse(text), Err(InvalidQuery::Cursor(text.to_owned())));
        }
    }

    #[test]
    fn a_limit_has_both_bounds() {
        let query = IncidentQuery::default();
        assert!(query.clone().with_limit(1).is_ok());
        assert!(query.clone().with_limit(LIMIT_MAX).is_ok());
        assert_eq!(query.clone().with_limit(0).unwrap_err(), InvalidQuery::Limit(0));
        assert_eq!(
            query.with_limit(1001).unwrap_err().to_string(),
            "`limit` must be from 1 to 1000, got 1001"
        );
    }

    #[test]
    fn what_a_user_writes_is_a_parameter_and_never_text_of_the_statement() {
        let hostile = "x'; DROP TABLE incidents; --";
        let query = IncidentQuery {
            dependency: Some(hostile.to_owned()),
            schedule: Some(hostile.to_owned()),
            text: Some(hostile.to_owned()),
            after: Some(Cursor { opened_at: 1, id: hostile.to_owned() }),
            ..IncidentQuery::default()
        };
        let (sql, values) = statement(&query);
        assert!(!sql.contains("DROP"), "{sql}");
        assert_eq!(values.len(), 6);
    }
}
