//! `GET /dependencies`: what is watched and how finely it can be seen.

use axum::extract::{Path, RawQuery, State};
use axum::response::Response;
use maud::{Markup, html};

use super::now::rows;
use super::parts::{NAME_SHOWN, encoded, figure, select, shortened, time};
use super::{Depth, Page, Place, fault};
use crate::api::answer::ApiError;
use crate::api::dependencies::{choose, dependency_id};
use crate::api::incidents::listed;
use crate::api::parameters::Parameters;
use crate::api::{Board, Shared};
use crate::classify::sentence::{seconds, significant};
use crate::incident::{Dependency, Visibility};
use crate::store::IncidentQuery;

/// Blind dependencies that are named before the list.
const BLIND_NAMED: usize = 12;
/// Incidents shown of one dependency.
const INCIDENTS_SHOWN: usize = 20;
/// The bar's ends, seconds: nothing that matters is quicker or slower.
const FINEST_SECONDS: f64 = 0.1;
const COARSEST_SECONDS: f64 = 300.0;
/// Waits that client libraries start with, seconds.
const COMMON_WAITS: [f64; 8] = [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0];

/// The list.
pub(super) async fn list(State(shared): State<Shared>, RawQuery(query): RawQuery) -> Response {
    match listing(&shared, query.as_deref()) {
        Ok(response) => response,
        Err(error) => fault(&shared, Place::Dependencies, Depth::Top, &error),
    }
}

fn listing(shared: &Shared, query: Option<&str>) -> Result<Response, ApiError> {
    let mut shown = Parameters::parse(query)?;
    let value = |shown: &mut Parameters, name| shown.text(name).unwrap_or_default();
    let (q, state) = (value(&mut shown, "q"), value(&mut shown, "state"));
    let board = shared.board.borrow().clone();
    let chosen = choose(&board, Parameters::parse(query)?)?;
    let states = [
        ("", "any"),
        ("watched", "watched"),
        ("blind", "blind"),
        ("learning", "learning"),
        ("stale", "stale"),
    ];
    let filtered = !q.is_empty() || !state.is_empty();
    let body = html! {
        h1 { "Dependencies" }
        p.lead {
            "How well each can be seen decides what squall can say of it. The bar is longer the \
             closer together two waves of retries may be and still be told apart."
        }
        (blind(&board))
        form.filters method="get" action="dependencies" role="search" aria-label="Filter the dependencies" {
            label { "Search" input type="search" name="q" value=(q) placeholder="part of the name"; }
            (select("state", "State", &state, &states))
            div.actions {
                button type="submit" { "Filter" }
                @if filtered { a href="dependencies" { "Show all" } }
            }
        }
        div #list data-live="" {
            @if chosen.page.is_empty() && filtered {
                p.empty { "No dependency fits these filters. " a href="dependencies" { "Show all" } }
            } @else if chosen.page.is_empty() {
                p.empty {
                    "Nothing is watched yet. Name request counters under " code { "watch" }
                    " in the configuration, or let " code { "squall doctor --write squall.yml" }
                    " find them in your Prometheus."
                }
            } @else {
                p.soft { (chosen.matching) @if chosen.matching == 1 { " dependency" } @else { " dependencies" } }
                (table(&chosen.page))
                @if let Some(cursor) = &chosen.next_cursor {
                    p { a rel="next" href={ "dependencies?q=" (encoded(&q)) "&state=" (encoded(&state)) "&cursor=" (cursor) } { "More" } }
                }
            }
        }
    };
    Ok(Page::new("Dependencies", Place::Dependencies, Depth::Top).answer(shared, &body))
}

/// Names those that nothing can be told of.
fn blind(board: &Board) -> Markup {
    let blind: Vec<&Dependency> =
        board.dependencies.iter().filter(|it| it.state == Visibility::Blind).collect();
    html! {
        @if !blind.is_empty() {
            p.notice {
                b { (blind.len()) @if blind.len() == 1 { " is blind" } @else { " are blind" } }
                ": too few scrapes to tell waves of retries from a flood, or from nothing. "
                @for (n, it) in blind.iter().take(BLIND_NAMED).enumerate() {
                    @if n > 0 { ", " }
                    a href={ "dependencies/" (dependency_id(it)) } { (shortened(&it.key.name(), 40)) }
                }
                @if blind.len() > BLIND_NAMED { ", " a href="dependencies?state=blind" { "and more" } }
                ". Shorter scrape intervals or more targets would help."
            }
        }
    }
}

fn table(dependencies: &[&Dependency]) -> Markup {
    html! {
        table.rows {
            caption.sr-only { "Dependencies, by name" }
            thead {
                tr {
                    th scope="col" { "Dependency" }
                    th scope="col" { "State" }
                    th scope="col" { "Tells apart" }
                    th.num scope="col" { "Targets" }
                    th.num scope="col" { "Scrape" }
                    th.num scope="col" { "Normal" }
                }
            }
            tbody {
                @for it in dependencies {
                    tr {
                        td.name data-label="Dependency" {
                            a href={ "dependencies/" (dependency_id(it)) } { (shortened(&it.key.name(), NAME_SHOWN)) }
                        }
                        td data-label="State" { (state(it.state)) }
                        td data-label="Tells apart" { (bar(it)) }
                        td.num data-label="Targets" { (it.targets) }
                        td.num data-label="Scrape" { (length(it.scrape_interval_seconds)) }
                        td.num data-label="Normal" { (figure(it.baseline_rate)) "/s" }
                    }
                }
            }
        }
    }
}

fn state(state: Visibility) -> Markup {
    html! { span class={ "chip " (state.as_str()) } { (state.as_str()) } }
}

/// A length of time, a dash before one is known.
fn length(value: f64) -> String {
    if value > 0.0 && value.is_finite() { seconds(value) } else { "–".to_owned() }
}

/// The share of the bar that is filled, by the logarithm of the gap.
fn filled(gap_seconds: f64) -> f64 {
    let position = (COARSEST_SECONDS / gap_seconds).log(COARSEST_SECONDS / FINEST_SECONDS);
    if position.is_finite() { position.clamp(0.02, 1.0) } else { 0.0 }
}

/// How finely a dependency is seen, as a bar and in words.
fn bar(dependency: &Dependency) -> Markup {
    let gap = dependency.resolvable_gap_seconds;
    let is_known = gap > 0.0 && dependency.state != Visibility::Learning;
    let share = if is_known { filled(gap) } else { 0.0 };
    html! {
        svg class={ "bar " (dependency.state.as_str()) } viewBox="0 0 100 8" width="100" height="8" aria-hidden="true" {
            rect.back width="100" height="8" rx="2" {}
            rect.front width=(format!("{:.1}", share * 100.0)) height="8" rx="2" {}
        }
        " "
        @if is_known { "waves " (length(gap)) " apart" } @else { "not known yet" }
    }
}

/// The page of one dependency.
pub(super) async fn one(State(shared): State<Shared>, Path(id): Path<String>) -> Response {
    match built(&shared, &id).await {
        Ok(response) => response,
        Err(error) => fault(&shared, Place::Dependencies, Depth::Below, &error),
    }
}

async fn built(shared: &Shared, id: &str) -> Result<Response, ApiError> {
    let board = shared.board.borrow().clone();
    let Some(it) = board.dependencies.iter().find(|it| dependency_id(it) == id) else {
        return Err(ApiError::not_found(
            "nothing of this name is watched now; its incidents are still in the record",
        ));
    };
    let name = it.key.name();
    let question = IncidentQuery { dependency: Some(name.clone()), ..IncidentQuery::default() };
    let question = question.with_limit(INCIDENTS_SHOWN).unwrap_or_default();
    let incidents = listed(shared, &question).await.map(|it| it.incidents).unwrap_or_default();
    let body = html! {
        div #head data-live="" {
            p.crumbs { a href="../dependencies" { "Dependencies" } " / " (shortened(&name, 40)) }
            h1.name { (name) }
            p.chips { (state(it.state)) }
            p.lead { (says(it)) }
            dl.facts {
                div { dt { "Tells apart" } dd { (bar(it)) } }
                div { dt { "Targets" } dd { (it.targets) } }
                div { dt { "Scraped every" } dd { (length(it.scrape_interval_seconds)) } }
                div { dt { "Some target every" } dd { (length(it.effective_step_seconds)) } }
                div { dt { "Normal traffic" } dd { (figure(it.baseline_rate)) "/s" } }
                div { dt { "Burstiness" } dd { (significant(it.dispersion, 2)) " (1 is random)" } }
                @if let Some(last) = it.last_sample_at { div { dt { "Last sample" } dd { (time(last)) } } }
            }
        }
        section aria-labelledby="h-waits" {
            h2 #h-waits { "Which first waits can be seen here" }
            (waits(it))
        }
        section #incidents data-live="" aria-labelledby="h-incidents" {
            h2 #h-incidents { "Incidents" }
            @if incidents.is_empty() { p.empty { "None in the record." } } @else { (rows(&incidents, "../")) }
        }
        section #observations data-live="" aria-labelledby="h-observations" {
            h2 #h-observations { "Looked like trouble and was none" }
            @if it.observations.is_empty() {
                p.empty { "Nothing lately. Surges that were served, load on the clock, outages whose clients do not retry and breaks in the data are listed here, with what ruled a storm out." }
            } @else {
                ol.timeline {
                    @for seen in it.observations.iter().rev() {
                        li { (time(seen.from)) " to " (time(seen.to)) " " strong { (seen.kind.as_str()) } br; (shortened(&seen.says, 400)) }
                    }
                }
            }
        }
        section aria-labelledby="h-labels" {
            h2 #h-labels { "Where it comes from" }
            p { "Watch " code { (it.key.watch) } " of source " code { (it.key.source) } "." }
            @if !it.key.labels.is_empty() {
                dl.labels { @for (label, value) in it.key.labels.iter() { div { dt { (label) } dd { (value) } } } }
            }
        }
    };
    let title = shortened(&name, 60);
    Ok(Page::new(&title, Place::Dependencies, Depth::Below).answer(shared, &body))
}

/// What its state means, in a sentence.
fn says(dependency: &Dependency) -> String {
    match dependency.state {
        Visibility::Learning => {
            "squall is learning what normal traffic is here; nothing can fire before it has.".to_owned()
        }
        Visibility::Watched => format!(
            "Waves of retries that are {} or more apart can be told from a flood here.",
            length(dependency.resolvable_gap_seconds)
        ),
        Visibility::Blind => "Blind: the scrapes are too few to tell waves of retries from a flood. \
                              A storm that is certain still pages, without its kind. Half the scrape \
                              interval or twice the targets would halve what can be told apart."
            .to_owned(),
        Visibility::Stale => "No fresh samples: the targets are gone, or their scrapes fail.".to_owned(),
    }
}

/// Whether each common first wait can be told apart.
fn waits(dependency: &Dependency) -> Markup {
    let gap = dependency.resolvable_gap_seconds;
    let is_known = gap > 0.0 && dependency.state != Visibility::Learning;
    html! {
        @if is_known {
            ul.waits {
                @for wait in COMMON_WAITS {
                    @let seen = wait >= gap;
                    li.(if seen { "yes" } else { "no" }) {
                        (seconds(wait)) " " span { @if seen { "seen" } @else { "too quick" } }
                    }
                }
            }
            p.soft { "Of a doubling schedule the later, longer waits may still be seen where the first is too quick." }
        } @else {
            p.empty { "Known when normal traffic has been learned." }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finer_view_has_a_longer_bar() {
        let shares = [0.1, 1.0, 15.0, 300.0, 3600.0].map(filled);
        assert!(shares.windows(2).all(|pair| pair[0] >= pair[1]), "{shares:?}");
        assert!((shares[0] - 1.0).abs() < 1e-9 && shares[4] > 0.0);
        assert!(filled(f64::NAN).abs() < 1e-9);
    }
}
