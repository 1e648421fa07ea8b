//! `GET /incidents/{id}`: what happened, what to do, why squall says so, and everything behind it.

use axum::extract::{Path, State};
use axum::response::Response;
use maud::{Markup, html};

use super::callers::{Caller, callers};
use super::parts::{
    class_chip, class_meaning, class_name, encoded, figure, lasting, severity_chip, shortened,
    state_chip, time,
};
use super::{Depth, Page, Place, fault};
use crate::api::Shared;
use crate::api::answer::ApiError;
use crate::api::dependencies::key_id;
use crate::api::incidents::found;
use crate::classify::matching::TIE;
use crate::classify::sentence::{OUTLIVED_SECONDS_MIN, describe, percent, seconds, significant};
use crate::classify::{Class, RuleMatch, Verdict};
use crate::detect::Evidence;
use crate::detect::schedule_fit::Channel;
use crate::incident::{Feedback, Incident, State as Standing};
use crate::plot::{Picture, pictures};
use crate::series::Timestamp;
use crate::store::{Reason, Revision};
use crate::wire::{IncidentJson, SeenBeforeJson};

/// Revisions shown, the newest; all are in the record.
const REVISIONS_SHOWN: usize = 40;
/// Callers shown, those who sent most.
const CALLERS_SHOWN: usize = 5;
/// Clients shown that fit.
const MATCHES_SHOWN: usize = 8;

/// The page of one incident.
pub(super) async fn one(State(shared): State<Shared>, Path(id): Path<String>) -> Response {
    match built(&shared, id).await {
        Ok(response) => response,
        Err(error) => fault(&shared, Place::Incidents, Depth::Below, &error),
    }
}

async fn built(shared: &Shared, id: String) -> Result<Response, ApiError> {
    let (incident, series) = found(shared, id).await?;
    let wire = IncidentJson::from(&incident);
    let drawn = pictures(&wire, &series);
    // What only adds to the page may be missing from it.
    let revisions = shared.store.revisions(&incident.id).await.unwrap_or_default();
    let said = shared.store.feedback(&incident.id).await.unwrap_or_default();
    let before = shared.store.seen_before(&incident).await.ok();
    let callers = callers(&incident, &series);
    let name = incident.dependency.name();
    let verdict = &incident.verdict;
    let body = html! {
        div #head data-live="" {
            div data-open[incident.state != Standing::Resolved] {}
            p.crumbs { a href="../" { "Incidents" } " / " (incident.id) }
            h1.name { a href={ "../dependencies/" (key_id(&incident.dependency)) } { (name) } }
            p.chips { (class_chip(verdict.class)) (severity_chip(verdict.severity)) (state_chip(incident.state)) }
            p.lead { (verdict.summary) "." }
            (facts(&incident, shared.clock.now()))
        }
        div #picture data-live="" {
            @if drawn.contains(&Picture::Incident) { (figure_of(&incident, Picture::Incident)) }
        }
        div.columns {
            div {
                section #advice data-live="" aria-labelledby="h-advice" { (advice(verdict)) }
                section #evidence data-live="" aria-labelledby="h-evidence" { (evidence(verdict)) }
            }
            div {
                section #matches data-live="" aria-labelledby="h-matches" { (matches(verdict, &name, &callers)) }
                section aria-labelledby="h-meaning" {
                    h2 #h-meaning { "What that is" }
                    p { (class_meaning(verdict.class)) }
                }
                section #before data-live="" aria-labelledby="h-before" { (seen_before(before.as_ref())) }
            }
        }
        section #more data-live="" aria-labelledby="h-more" {
            @if drawn.len() > 1 {
                h2 #h-more { "The same seen otherwise" }
                div.figures {
                    @for picture in drawn.iter().filter(|it| **it != Picture::Incident) { (figure_of(&incident, *picture)) }
                }
            }
        }
        section aria-labelledby="h-feedback" { (feedback(&incident, &said)) }
        section #timeline data-live="" aria-labelledby="h-timeline" { (timeline(&incident, &revisions)) }
        section #numbers data-live="" aria-labelledby="h-numbers" { (numbers(&incident)) }
    };
    let title = format!("{}: {}", shortened(&name, 60), class_name(verdict.class));
    Ok(Page::new(&title, Place::Incidents, Depth::Below).answer(shared, &body))
}

/// The few numbers that a person paged looks for first.
fn facts(incident: &Incident, now: Timestamp) -> Markup {
    let verdict = &incident.verdict;
    let impact = &verdict.impact;
    let end = incident.ended_at.unwrap_or_else(|| now.max(incident.updated_at));
    html! {
        dl.facts {
            div { dt { "First failure" } dd { (time(verdict.started_at)) } }
            div {
                dt { @if incident.ended_at.is_some() { "Lasted" } @else { "For" } }
                dd { (lasting(end.seconds_since(verdict.started_at))) }
            }
            @if let Some(next) = verdict.next_wave_at.filter(|_| incident.ended_at.is_none()) {
                div {
                    dt { "Next wave" }
                    // It is seen a scrape and a look later.
                    dd { @if next < now { "was due " } (time(next)) }
                }
            }
            div { dt { "Peak" } dd { (figure(impact.peak_rate)) "/s over one scrape, normal is " (figure(impact.baseline_rate)) "/s" } }
            div { dt { "Failing" } dd { (percent(impact.error_ratio)) " of the requests" } }
            @if impact.herd_size >= 1.0 {
                div { dt { "In the herd" } dd { "about " (figure(impact.herd_size)) " clients" } }
            } @else {
                div { dt { "Attempts for each request" } dd { (significant(impact.amplification, 2)) } }
            }
            @if impact.outlived_trigger_seconds >= OUTLIVED_SECONDS_MIN {
                div { dt { "Outlived its cause by" } dd { (lasting(impact.outlived_trigger_seconds)) } }
            }
            div { dt { "Sure of the kind" } dd { (sureness(verdict.confidence)) } }
        }
    }
}

/// One picture, in a narrow form for narrow screens.
fn figure_of(incident: &Incident, picture: Picture) -> Markup {
    let address = format!(
        "../api/v1/incidents/{}/plot.svg?picture={}&v={}",
        encoded(&incident.id.0),
        picture.as_str(),
        incident.updated_at.millis()
    );
    let alt = match picture {
        Picture::Incident => {
            format!("Load since the first failure. {}", shortened(&incident.verdict.summary, 300))
        }
        other => other.title().to_owned(),
    };
    // Sizes, so that nothing moves while a picture comes.
    let wide = if picture == Picture::Incident { 880 } else { 560 };
    let height = picture.height();
    html! {
        figure {
            picture {
                source media="(max-width: 640px)" srcset={ (address) "&width=380" } width="380" height=(height);
                img src={ (address) "&width=" (wide) } width=(wide) height=(height) alt=(alt) loading=[(picture != Picture::Incident).then_some("lazy")];
            }
            figcaption { strong { (picture.title()) ". " } (picture.caption()) }
        }
    }
}

fn advice(verdict: &Verdict) -> Markup {
    html! {
        h2 #h-advice { "What to do" }
        @if verdict.advice.is_empty() {
            p { "Nothing: these clients behave as they should." }
        } @else {
            ol.advice {
                @for advice in &verdict.advice {
                    li {
                        strong { (advice.title) } " " (advice.text)
                        @if !advice.effect.is_empty() {
                            " " em { (advice.effect) @if !advice.effect.ends_with('.') { "." } }
                        }
                    }
                }
            }
        }
    }
}

fn evidence(verdict: &Verdict) -> Markup {
    let (supporting, against): (Vec<_>, Vec<_>) =
        verdict.evidence.iter().partition(|evidence| evidence.supports);
    let list = |all: &[&Evidence]| {
        html! {
            ul.evidence {
                @for evidence in all {
                    li {
                        (evidence.says) " "
                        span.soft {
                            "(" (evidence.test.as_str())
                            @if let Some(p) = evidence.p_value { ", p " (significant(p, 2)) }
                            ")"
                        }
                    }
                }
            }
        }
    };
    html! {
        h2 #h-evidence { "Why squall says so" }
        @if verdict.evidence.is_empty() { p { "No evidence was recorded." } }
        @if !supporting.is_empty() { h3 { "For it" } (list(&supporting)) }
        @if !against.is_empty() { h3 { "Against it" } (list(&against)) }
    }
}

fn matches(verdict: &Verdict, name: &str, callers: &[Caller]) -> Markup {
    html! {
        h2 #h-matches { "Which client" }
        @if !callers.is_empty() {
            p { "Who sent what came above normal:" }
            ul {
                @for caller in callers.iter().take(CALLERS_SHOWN) {
                    li {
                        b { (shortened(&caller.name, 80)) } " " (percent(caller.share))
                        " " span.soft { "(" (figure(caller.excess)) " requests above normal)" }
                    }
                }
            }
            @if callers.len() > CALLERS_SHOWN { p.soft { "and " (callers.len() - CALLERS_SHOWN) " more" } }
        }
        @if let Some(schedule) = &verdict.schedule {
            p { "The clients come back " (describe(schedule)) "." }
        }
        @if verdict.matches.is_empty() {
            @if verdict.schedule.is_some() {
                p { "No client library that squall knows retries like this: look for a loop of your own. "
                    a href="../schedules" { "The schedules known" } }
            } @else {
                p { "There is no schedule in these retries that would name a client." }
            }
        } @else {
            @if verdict.class == Class::RetryStormWithoutBackoff {
                p { "Retries at once, or after waits too short to be seen at this sampling. What cannot be ruled out:" }
            } @else if verdict.schedule.is_none() {
                p { "No schedule can be told at this sampling. What cannot be ruled out:" }
            } @else if verdict.matches.len() == 1 {
                p { "One library that squall knows retries like this:" }
            } @else {
                p {
                    (verdict.matches.len()) " libraries retry like this"
                    @if is_tied(&verdict.matches) { ", and all of them alike" } @else { ", the closest first" }
                    ". Their waits do not tell them apart: look for the one that your callers of "
                    (shortened(name, 60)) " use."
                }
            }
            ul {
                @for found in verdict.matches.iter().take(MATCHES_SHOWN) {
                    li {
                        a href={ "../schedules/" (encoded(&found.rule)) } { (found.name) }
                        @if is_less_likely(found, &verdict.matches) { " " span.soft { "(less likely)" } }
                    }
                }
            }
            @if verdict.matches.len() > MATCHES_SHOWN {
                p.soft { "and " (verdict.matches.len() - MATCHES_SHOWN) " more" }
            }
        }
    }
}

/// Whether no match is nearer than another by more than the data tells.
fn is_tied(matches: &[RuleMatch]) -> bool {
    let nearest = matches.iter().map(|it| it.distance).fold(f64::INFINITY, f64::min);
    matches.iter().all(|it| it.distance - nearest <= TIE)
}

/// Whether a match is further behind the nearest than chance, where several are not all tied.
fn is_less_likely(found: &RuleMatch, matches: &[RuleMatch]) -> bool {
    let nearest = matches.iter().map(|it| it.distance).fold(f64::INFINITY, f64::min);
    found.distance - nearest > TIE
}

fn seen_before(before: Option<&SeenBeforeJson>) -> Markup {
    html! {
        h2 #h-before { "Seen before" }
        @match before.filter(|it| it.times > 0) {
            None => p { "Not with this dependency and this schedule." },
            Some(before) => {
                p {
                    (before.times) @if before.times == 1 { " time" } @else { " times" }
                    @if let Some(first) = before.first_at { ", first " (time(first.0)) }
                    @if let Some(last) = before.last_at.filter(|_| before.times > 1) { ", last " (time(last.0)) }
                    ":"
                }
                ul {
                    @for id in &before.incidents { li { a href=(encoded(id)) { (id) } } }
                }
            }
        }
    }
}

fn feedback(incident: &Incident, said: &[Feedback]) -> Markup {
    let classes = Class::ALL.into_iter().filter(|class| *class != Class::Inconclusive);
    html! {
        h2 #h-feedback { "Was this right?" }
        div #feedback-said data-live="" {
            @if incident.state == Standing::Pending {
                p.notice { "It is pending: what you say can be kept once it fires." }
            }
            @for it in said {
                p {
                    @if it.genuine { "Said to be right" } @else { "Said to be wrong" }
                    @if let Some(class) = it.class { ": " (class_name(class)) }
                    ", " (time(it.at))
                    @if !it.note.is_empty() { ": " q { (it.note) } }
                }
            }
        }
        form #feedback hidden action={ "../api/v1/incidents/" (encoded(&incident.id.0)) "/feedback" } method="post" {
            p { "What you say is kept with the incident and counts in how far squall can be trusted." }
            label { "What it really was"
                select name="class" {
                    option value="" { "as squall says, or nothing of the kind" }
                    @for class in classes { option value=(class.as_str()) { (class_name(class)) } }
                }
            }
            label { "Note" textarea name="note" rows="2" maxlength="4000" placeholder="what you found" {} }
            div.actions {
                button type="submit" name="verdict" value="true" { "It was right" }
                button type="submit" name="verdict" value="false" { "It was wrong" }
            }
        }
        p #feedback-outcome role="status" {}
        noscript {
            p { "Without a script: " code { "squall incidents feedback " (incident.id) " --verdict=true" } }
        }
    }
}

/// What happened and what was said of it, each at its own time.
fn timeline(incident: &Incident, revisions: &[Revision]) -> Markup {
    let mut rows: Vec<(Timestamp, Markup)> = Vec::new();
    let mut happened = |at: Timestamp, what: &str| {
        rows.push((at, html! { (time(at)) " " span.soft { "happened: " } strong { (what) } }));
    };
    happened(incident.verdict.started_at, "first failure (estimated)");
    if let Some(ended) = incident.ended_at {
        happened(ended, "nothing above normal from here on");
    }
    // What changes nothing that is shown here is left out.
    let told: Vec<&Revision> = revisions
        .iter()
        .enumerate()
        .filter(|(n, revision)| {
            let before = n.checked_sub(1).map(|n| &revisions[n].incident);
            let same = before.is_some_and(|it| {
                it.summary == revision.incident.summary
                    && it.classification == revision.incident.classification
            });
            revision.reason != Reason::Revised || !same
        })
        .map(|(_, revision)| revision)
        .collect();
    let skipped = told.len().saturating_sub(REVISIONS_SHOWN);
    if let Some(first) = told.get(skipped).filter(|_| skipped > 0) {
        rows.push((first.at, html! { span.soft { (skipped) " earlier revisions" } }));
    }
    for (n, revision) in told.iter().enumerate().skip(skipped) {
        let earlier = n.checked_sub(1).map(|n| &told[n].incident);
        rows.push((
            revision.at,
            html! {
                (time(revision.at)) " " span.soft { "squall: " } strong { (revision.reason.as_str()) }
                " · " (Class::parse(&revision.incident.classification).map_or("unknown", class_name))
                @if earlier.is_none_or(|it| it.summary != revision.incident.summary) {
                    br; span.soft { (shortened(&revision.incident.summary, 300)) }
                }
            },
        ));
    }
    rows.sort_by_key(|(at, _)| *at);
    html! {
        h2 #h-timeline { "What was believed when" }
        p.soft {
            "What happened stands at the time at which it happened; what squall made of it, at the poll \
             that did, which sees a thing a scrape or more later."
        }
        ol.timeline { @for (_, row) in &rows { li { (row) } } }
    }
}

fn numbers(incident: &Incident) -> Markup {
    let verdict = &incident.verdict;
    let row = |name: &str, value: String, interval: Option<&[f64; 2]>| {
        html! {
            tr {
                th scope="row" { (name) }
                td.num { (value) }
                td.soft { @if let Some([low, high]) = interval { (significant(*low, 3)) " to " (significant(*high, 3)) } }
            }
        }
    };
    html! {
        h2 #h-numbers { "Numbers" }
        @if let Some(schedule) = &verdict.schedule {
            @let interval = |name: &str| schedule.intervals.iter().find(|it| it.0 == name).map(|it| &it.1);
            div.scroll {
                table {
                    caption { "The fitted schedule, with 95 % intervals" }
                    tbody {
                        (row("Family", schedule.family.as_str().to_owned(), None))
                        (row("First wait", seconds(schedule.base_seconds), interval("base_seconds")))
                        (row("Factor", significant(schedule.factor, 3), interval("factor")))
                        @if let Some(cap) = schedule.cap_seconds { (row("Longest wait", seconds(cap), interval("cap_seconds"))) }
                        (row("Time to fail", seconds(schedule.attempt_latency_seconds), None))
                        (row("Jitter", schedule.jitter.as_str().to_owned(), None))
                        (row("Spread over gap", significant(schedule.jitter_fraction, 2), interval("jitter_fraction")))
                    }
                }
            }
        }
        @if let Some(wave) = verdict.waves.first() {
            @let counted = match wave.counts { Channel::Errors => "Failed requests", Channel::Requests => "Requests" };
            div.scroll {
                table {
                    caption { "Waves" }
                    thead { tr { th.num scope="col" { "After the first failure" } th scope="col" { "At" } th.num scope="col" { (counted) } } }
                    tbody {
                        @for wave in &verdict.waves {
                            tr {
                                td.num { (seconds(wave.expected_at.seconds_since(verdict.started_at).max(0.0))) }
                                td { (time(wave.expected_at)) }
                                td.num { (figure(wave.requests)) }
                            }
                        }
                    }
                }
            }
        }
        p {
            "Everything, with the counts of each target: "
            a href={ "../api/v1/incidents/" (encoded(&incident.id.0)) } { "as JSON" }
            ". Watch " code { (shortened(&incident.dependency.watch, 80)) }
            ", source " code { (shortened(&incident.dependency.source, 80)) } "."
        }
    }
}

/// A confidence in words: nothing is certain.
fn sureness(confidence: f64) -> String {
    if confidence > 0.99 { "over 99 %".to_owned() } else { percent(confidence) }
}
