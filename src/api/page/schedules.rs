//! `GET /schedules`: the retry schedules of client libraries that squall can name.

use axum::extract::{Path, RawQuery, State};
use axum::response::Response;
use maud::{Markup, html};
use serde_json::Value;

use super::parts::{encoded, select, shortened};
use super::{Depth, Page, Place, fault};
use crate::api::Shared;
use crate::api::answer::ApiError;
use crate::api::parameters::Parameters;
use crate::classify::sentence::{seconds, significant};

/// The list.
pub(super) async fn list(State(shared): State<Shared>, RawQuery(query): RawQuery) -> Response {
    match listing(&shared, query.as_deref()) {
        Ok(response) => response,
        Err(error) => fault(&shared, Place::Schedules, Depth::Top, &error),
    }
}

fn text<'a>(rule: &'a Value, name: &str) -> &'a str {
    rule[name].as_str().unwrap_or_default()
}

/// The waits of a schedule, seconds.
fn waits(rule: &Value) -> Vec<f64> {
    rule["waits_seconds"].as_array().into_iter().flatten().filter_map(Value::as_f64).collect()
}

/// The first waits in words.
fn shown(waits: &[f64], max: usize) -> String {
    let list: Vec<String> = waits.iter().take(max).map(|wait| significant(*wait, 3)).collect();
    let more = if waits.len() > max { ", …" } else { "" };
    if list.is_empty() { "–".to_owned() } else { format!("{}{more} s", list.join(", ")) }
}

fn listing(shared: &Shared, query: Option<&str>) -> Result<Response, ApiError> {
    let mut parameters = Parameters::parse(query)?;
    let q = parameters.text("q").unwrap_or_default();
    let jitter = parameters.text("jitter").unwrap_or_default();
    parameters.finish()?;
    let rules = shared.rules.borrow().clone();
    let words = q.to_lowercase();
    let chosen: Vec<&Value> = rules
        .schedules
        .iter()
        .filter(|rule| {
            words.is_empty()
                || ["id", "name", "ecosystem", "kind"]
                    .iter()
                    .any(|field| text(rule, field).to_lowercase().contains(&words))
        })
        .filter(|rule| match jitter.as_str() {
            "step" => rule["in_step"] == Value::Bool(true),
            "spread" => rule["in_step"] == Value::Bool(false),
            _ => true,
        })
        .collect();
    let kinds = [("", "any"), ("step", "come back in step"), ("spread", "spread out")];
    let body = html! {
        h1 { "Schedules" }
        p.lead {
            "How client libraries wait between retries, read from their source. A storm whose waves \
             fit one of these is named after it."
        }
        form.filters method="get" action="schedules" role="search" aria-label="Filter the schedules" {
            label { "Search" input type="search" name="q" value=(q) placeholder="library, language"; }
            (select("jitter", "Clients", &jitter, &kinds))
            div.actions {
                button type="submit" { "Filter" }
                @if !q.is_empty() || !jitter.is_empty() { a href="schedules" { "Show all" } }
            }
        }
        @if chosen.is_empty() {
            p.empty { "No schedule fits these filters. " a href="schedules" { "Show all" } }
        } @else {
            p.soft { (chosen.len()) " of " (rules.schedules.len()) }
            table.rows {
                caption.sr-only { "Retry schedules" }
                thead {
                    tr {
                        th scope="col" { "Client" }
                        th scope="col" { "Waits" }
                        th scope="col" { "Many clients" }
                    }
                }
                tbody {
                    @for rule in chosen {
                        tr {
                            td.name data-label="Client" {
                                a href={ "schedules/" (encoded(text(rule, "id"))) } { (text(rule, "name")) }
                                " " span.soft { (text(rule, "ecosystem")) }
                            }
                            td data-label="Waits" { (shown(&waits(rule), 5)) }
                            td data-label="Many clients" { (step_chip(rule)) }
                        }
                    }
                }
            }
        }
    };
    Ok(Page::new("Schedules", Place::Schedules, Depth::Top).answer(shared, &body))
}

/// Whether many clients of it stay together.
fn step_chip(rule: &Value) -> Markup {
    html! {
        @match rule["in_step"].as_bool() {
            Some(true) => span.chip.critical { "come back in step" },
            Some(false) => span.chip.watched { "spread out" },
            None => "",
        }
    }
}

/// One schedule.
pub(super) async fn one(State(shared): State<Shared>, Path(id): Path<String>) -> Response {
    let rules = shared.rules.borrow().clone();
    let Some(rule) = rules.schedules.iter().find(|rule| text(rule, "id") == id) else {
        let error = ApiError::not_found("there is no schedule of this id");
        return fault(&shared, Place::Schedules, Depth::Below, &error);
    };
    let name = text(rule, "name");
    let all = waits(rule);
    let body = html! {
        p.crumbs { a href="../schedules" { "Schedules" } " / " (id) }
        h1.name { (name) }
        p.chips { (step_chip(rule)) }
        @if !text(rule, "says").is_empty() { p.lead { (text(rule, "says")) } }
        (strip(&all))
        @if !text(rule, "remedy").is_empty() {
            h2 { "What to change in it" }
            p { (text(rule, "remedy")) }
        }
        @if !text(rule, "note").is_empty() {
            h2 { "Good to know" }
            p { (text(rule, "note")) }
        }
        h2 { "Where that is from" }
        p { (text(rule, "reference")) @if !text(rule, "version").is_empty() { " (" (text(rule, "version")) ")" } }
        p { a href={ "../?schedule=" (encoded(&id)) } { "Incidents that fit this schedule" } }
    };
    let title = shortened(name, 60);
    Page::new(&title, Place::Schedules, Depth::Below).answer(&shared, &body)
}

/// The instants of the retries on a line of time, and the waits in words.
fn strip(waits: &[f64]) -> Markup {
    let mut at = 0.0;
    let mut instants = vec![0.0];
    for wait in waits.iter().take(8) {
        at += wait;
        instants.push(at);
    }
    let end = if at > 0.0 { at } else { 1.0 };
    html! {
        @if waits.is_empty() {
            p.empty { "It waits for a time that no list gives." }
        } @else {
            svg.strip viewBox="0 0 640 34" role="img" aria-label={ "Retries after " (shown(waits, 8)) } {
                line.axis x1="8" x2="632" y1="24" y2="24" {}
                @for instant in &instants {
                    @let x = format!("{:.1}", (instant / end).mul_add(620.0, 10.0));
                    line.mark x1=(x) x2=(x) y1="6" y2="24" {}
                }
            }
            p { "Waits " (shown(waits, 8)) "; retry " (instants.len() - 1) " comes " (seconds(end)) " after the failure." }
        }
    }
}
