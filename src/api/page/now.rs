//! `GET /`: what is firing now, and the record with its filters.

use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};

use super::parts::{
    NAME_SHOWN, class_chip, class_name, encoded, figure, select, severity_chip, shortened,
    state_chip, time,
};
use super::{Depth, Page, Place, fault};
use crate::api::answer::ApiError;
use crate::api::dependencies::key_id;
use crate::api::incidents::{ListedIncidents, fires, listed, query_of};
use crate::api::parameters::Parameters;
use crate::api::{Board, Shared};
use crate::classify::Class;
use crate::classify::sentence::MATCHES_NAMED;
use crate::incident::{Incident, State as Standing, Visibility};
use crate::series::Timestamp;
use crate::store::IncidentQuery;

/// Incidents on a page of the list: what fits a few screens.
const ROWS: usize = 50;
/// Incidents shown large; in a wide outage the list below has the others.
const CARDS_MAX: usize = 8;
/// Longest summary in a list, in characters.
const SUMMARY_SHOWN: usize = 400;

/// The page.
pub(in crate::api) async fn index(
    State(shared): State<Shared>,
    RawQuery(query): RawQuery,
) -> Response {
    match built(&shared, query.as_deref()).await {
        Ok(response) => response,
        Err(error) => fault(&shared, Place::Incidents, Depth::Top, &error),
    }
}

async fn built(shared: &Shared, query: Option<&str>) -> Result<Response, ApiError> {
    let mut parameters = Parameters::parse(query)?;
    // Where the links of notifications lead.
    if let Some(id) = parameters.text("incident") {
        return Ok(Redirect::to(&format!("./incidents/{}", encoded(&id))).into_response());
    }
    let shown = Shown::of(query)?;
    let mut question = query_of(parameters)?;
    if !shown.has_limit {
        question = question.with_limit(ROWS).unwrap_or_default();
    }
    let listed = listed(shared, &question).await?;
    let board = shared.board.borrow().clone();
    let body = html! {
        div #now data-live="" { (now(&board, shared.clock.now())) }
        section aria-labelledby="record" {
            h2 #record { "Incidents" }
            (filters(&shown))
            div #list data-live="" { (list(&listed, &question, &shown)) }
        }
    };
    Ok(Page::new("Now", Place::Incidents, Depth::Top).answer(shared, &body))
}

/// What the address asks for, as the form shows it again.
#[derive(Debug, Default)]
struct Shown {
    pairs: Vec<(&'static str, String)>,
    has_limit: bool,
}

/// The filters, in the order of the form.
const FILTERS: [&str; 8] =
    ["q", "classification", "state", "severity", "dependency", "schedule", "from", "to"];

impl Shown {
    fn of(query: Option<&str>) -> Result<Self, ApiError> {
        let mut parameters = Parameters::parse(query)?;
        let has_limit = parameters.text("limit").is_some();
        let pairs =
            FILTERS.into_iter().filter_map(|name| Some((name, parameters.text(name)?))).collect();
        Ok(Self { pairs, has_limit })
    }

    fn value(&self, name: &str) -> &str {
        self.pairs.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value)
    }

    /// The address of the page behind a cursor.
    fn next(&self, cursor: &str) -> String {
        let filters = self.pairs.iter().map(|(name, value)| format!("{name}={}&", encoded(value)));
        format!("./?{}cursor={}", filters.collect::<String>(), encoded(cursor))
    }
}

/// What is firing, in cards, and how the rest is.
fn now(board: &Board, at: Timestamp) -> Markup {
    let mut open: Vec<&Incident> =
        board.incidents.iter().filter(|it| it.state != Standing::Resolved).collect();
    // What pages first, then the newest.
    open.sort_by_key(|it| (!fires(it), std::cmp::Reverse(it.verdict.started_at)));
    let paging = open.iter().filter(|it| fires(it)).count();
    let count = |state| board.dependencies.iter().filter(|it| it.state == state).count();
    let (watched, blind) = (board.dependencies.len(), count(Visibility::Blind));
    html! {
        h1 {
            @match paging {
                0 => "Nothing is firing",
                1 => "1 storm is firing",
                many => { (many) " storms are firing" },
            }
        }
        @if open.is_empty() {
            (quiet(board))
        } @else {
            div.cards {
                @for incident in open.iter().take(CARDS_MAX) { (card(incident, at)) }
            }
            @if open.len() > CARDS_MAX {
                p { a href="./?state=firing" { "All " (open.len()) " that are open" } }
            }
        }
        p.soft {
            a href="dependencies" { (watched) @if watched == 1 { " dependency" } @else { " dependencies" } }
            " watched"
            @if blind > 0 {
                ", " a href="dependencies?state=blind" { (blind) " of them blind" }
                ": sampled too coarsely to tell anything there"
            }
            "."
        }
    }
}

/// What to make of a page without incidents.
fn quiet(board: &Board) -> Markup {
    let learning = board.dependencies.iter().filter(|it| it.state == Visibility::Learning).count();
    html! {
        @if board.dependencies.is_empty() {
            p.lead {
                "squall has not seen a dependency yet. It asks its Prometheus for the request \
                 counters that the configuration watches; run " code { "squall doctor" }
                " to see which of yours it could."
            }
        } @else if learning == board.dependencies.len() {
            p.lead { "squall is learning what normal traffic is; that takes a few minutes of scrapes." }
        } @else {
            p.lead {
                "Retries that come in waves, or hold load up, show here while they last. \
                 What was is in the list below."
            }
        }
    }
}

fn card(incident: &Incident, at: Timestamp) -> Markup {
    let verdict = &incident.verdict;
    let href = address(incident);
    let version = incident.updated_at.millis();
    let picture =
        format!("api/v1/incidents/{}/plot.svg?width=420&v={version}", encoded(&incident.id.0));
    html! {
        article.card.(verdict.severity.as_str()) {
            h2 { a href=(href) { (shortened(&incident.dependency.name(), NAME_SHOWN)) } }
            p.chips { (class_chip(verdict.class)) (severity_chip(verdict.severity)) (state_chip(incident.state)) }
            p { (shortened(&verdict.summary, SUMMARY_SHOWN)) }
            img src=(picture) width="420" height="340" loading="lazy"
                alt={ "The load of " (shortened(&incident.dependency.name(), NAME_SHOWN)) " since the first failure" };
            p.soft {
                "Since " (time(verdict.started_at))
                @if let Some(next) = verdict.next_wave_at.filter(|next| *next > at) { " · next wave " (time(next)) }
            }
        }
    }
}

/// The address of an incident's page, from the top.
fn address(incident: &Incident) -> String {
    format!("incidents/{}", encoded(&incident.id.0))
}

fn filters(shown: &Shown) -> Markup {
    let mut classes = vec![("", "any kind")];
    classes.extend(Class::ALL.map(|class| (class.as_str(), class_name(class))));
    let field = |name: &'static str, label: &str, kind: &str, hint: &str| {
        html! {
            label { (label)
                input type=(kind) name=(name) value=(shown.value(name)) placeholder=(hint);
            }
        }
    };
    let dated = |name: &str| {
        let value = shown.value(name);
        if value.is_empty() || value.len() == "2026-09-21".len() { "date" } else { "text" }
    };
    let open = shown.pairs.iter().any(|(name, _)| !["q", "classification", "state"].contains(name));
    html! {
        form.filters method="get" action="./" role="search" aria-label="Filter the incidents" {
            (field("q", "Search", "search", "name or words"))
            (select("classification", "Kind", shown.value("classification"), &classes))
            (select("state", "State", shown.value("state"), &[("", "any"), ("pending", "pending"), ("firing", "firing"), ("resolved", "resolved")]))
            details open[open] {
                summary { "More filters" }
                div {
                    (select("severity", "Severity", shown.value("severity"), &[("", "any"), ("critical", "critical"), ("warning", "warning"), ("info", "info")]))
                    (field("dependency", "Dependency", "text", "its exact name"))
                    (field("schedule", "Client", "text", "a schedule's id"))
                    (field("from", "Started from", dated("from"), ""))
                    (field("to", "Started before", dated("to"), ""))
                }
            }
            div.actions {
                button type="submit" { "Filter" }
                @if !shown.pairs.is_empty() { a href="./" { "Show all" } }
            }
        }
    }
}

fn list(listed: &ListedIncidents, question: &IncidentQuery, shown: &Shown) -> Markup {
    html! {
        @for warning in &listed.warnings { p.notice.bad { (warning) ". This is what is live." } }
        @if listed.incidents.is_empty() {
            @if !shown.pairs.is_empty() {
                p.empty { "No incident fits these filters. " a href="./" { "Show all" } }
            } @else if question.after.is_some() {
                p.empty { "There are no older incidents. " a href="./" { "To the newest" } }
            } @else {
                p.empty {
                    "No incident yet. One is opened when a dependency fails and its clients come \
                     back in step, or keep its load up by retrying. To see what that looks like, run "
                    code { "squall demo" } "."
                }
            }
        } @else {
            (rows(&listed.incidents, ""))
            @if let Some(cursor) = &listed.next_cursor {
                p { a href=(shown.next(cursor)) rel="next" { "Older incidents" } }
            }
        }
    }
}

/// Incidents as a table; `root` leads to the top.
pub(super) fn rows(incidents: &[Incident], root: &str) -> Markup {
    html! {
        table.rows {
            caption.sr-only { "Incidents, newest first" }
            thead {
                tr {
                    th scope="col" { "Started" }
                    th scope="col" { "Dependency" }
                    th scope="col" { "What" }
                    th scope="col" { "State" }
                    th.num scope="col" { "Peak" }
                }
            }
            tbody {
                @for incident in incidents {
                    @let verdict = &incident.verdict;
                    @let name = incident.dependency.name();
                    tr {
                        td data-label="Started" { a href={ (root) (address(incident)) } { (time(verdict.started_at)) } }
                        td.name data-label="Dependency" {
                            a href={ (root) "dependencies/" (key_id(&incident.dependency)) } { (shortened(&name, NAME_SHOWN)) }
                        }
                        td data-label="What" {
                            (class_chip(verdict.class)) " "
                            // One name among many that wait alike would read as an accusation.
                            @if verdict.schedule.is_none() {}
                            @else if verdict.matches.len() > MATCHES_NAMED { span.soft { (verdict.matches.len()) " known clients wait like this" } }
                            @else if let Some(found) = verdict.matches.first() { span.soft { "fits " (shortened(&found.name, NAME_SHOWN)) } }
                            @else if let Some(schedule) = &verdict.schedule { span.soft { (crate::classify::sentence::describe(schedule)) } }
                        }
                        td data-label="State" {
                            (state_chip(incident.state)) " " (severity_chip(verdict.severity))
                            @if incident.feedback.as_ref().is_some_and(|it| !it.genuine) { " " span.chip.resolved { "said to be none" } }
                        }
                        td.num data-label="Peak" { (figure(verdict.impact.peak_rate)) "/s" }
                    }
                }
            }
        }
    }
}
