//! The page: what is firing, the record, what is watched, the schedules known.
//!
//! HTML written on the server, so that it reads without a script and on the first answer, at night,
//! on a phone. A small script adds what only a script can: it puts in what changed as events come,
//! shows times in another zone, and sends feedback. Nothing is built, nothing comes from another
//! host, and the policy that goes with every page lets neither inline script nor inline style run:
//! a name that slips through every escape is still only text.
//!
//! All links are relative, so that the page works under any path that a proxy puts before it.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use maud::{DOCTYPE, Markup, html};

use super::answer::ApiError;
use super::{Readiness, Shared};

mod assets;
mod callers;
mod dependencies;
mod incident;
mod now;
mod parts;
mod schedules;
#[cfg(test)]
mod tests;

pub(super) use now::index;

/// What a page may do. Pictures, styles and the script come from squall alone.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                      connect-src 'self'; form-action 'self'; base-uri 'none'; \
                      frame-ancestors 'none'";

/// The pages and what they need besides the one at `/`; no part of the API.
pub(super) fn routes() -> Vec<(&'static str, MethodRouter<Shared>)> {
    vec![
        ("/incidents/{id}", get(incident::one)),
        ("/dependencies", get(dependencies::list)),
        ("/dependencies/{id}", get(dependencies::one)),
        ("/schedules", get(schedules::list)),
        ("/schedules/{id}", get(schedules::one)),
        ("/assets/{name}", get(assets::one)),
    ]
}

/// Which entry of the navigation a page belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Incidents,
    Dependencies,
    Schedules,
}

/// How deep a page lies, for its relative links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Depth {
    Top,
    Below,
}

impl Depth {
    /// What leads from the page to the top.
    const fn root(self) -> &'static str {
        match self {
            Self::Top => "./",
            Self::Below => "../",
        }
    }
}

/// One page under way.
#[derive(Debug)]
struct Page<'a> {
    title: &'a str,
    place: Place,
    depth: Depth,
    status: StatusCode,
}

impl<'a> Page<'a> {
    const fn new(title: &'a str, place: Place, depth: Depth) -> Self {
        Self { title, place, depth, status: StatusCode::OK }
    }

    /// The whole answer. `body` stands in `main`; what in it has the attribute `data-live` and an
    /// id is put in anew when something changes.
    fn answer(&self, shared: &Shared, body: &Markup) -> Response {
        let root = self.depth.root();
        let nav = [
            (Place::Incidents, "", "Incidents"),
            (Place::Dependencies, "dependencies", "Dependencies"),
            (Place::Schedules, "schedules", "Schedules"),
        ];
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { (parts::shortened(self.title, 100)) " · squall" }
                    link rel="icon" type="image/svg+xml" href={ (root) "assets/icon.svg" };
                    link rel="stylesheet" href={ (root) (assets::address("style.css")) };
                    script src={ (root) (assets::address("theme.js")) } {}
                    script src={ (root) (assets::address("page.js")) } defer {}
                }
                body data-root=(root) {
                    a.skip href="#main" { "Skip to the content" }
                    header.top {
                        a.brand href=(root) { "squall" }
                        nav aria-label="Main" {
                            @for (place, path, name) in nav {
                                a href={ (root) (path) } aria-current=[(place == self.place).then_some("page")] { (name) }
                            }
                        }
                        div.controls {
                            span.live #live hidden role="status" { "not live" }
                            button type="button" #zone hidden { "UTC" }
                            button type="button" #theme hidden { "Theme: auto" }
                        }
                    }
                    div #notices data-live="" { (notices(shared)) }
                    main #main tabindex="-1" { (body) }
                    div.sr-only #said role="status" aria-live="polite" {}
                    footer {
                        p {
                            "Times are in " span #zonename { "UTC" } ". squall " (env!("CARGO_PKG_VERSION"))
                            " · " a href={ (root) "metrics" } { "metrics" }
                            " · " a href={ (root) "api/v1/openapi.json" } { "API" }
                        }
                    }
                }
            }
        };
        let headers = [
            (header::CONTENT_TYPE, "text/html; charset=utf-8"),
            (header::CONTENT_SECURITY_POLICY, POLICY),
            (header::REFERRER_POLICY, "no-referrer"),
        ];
        (self.status, headers, page.into_string()).into_response()
    }
}

/// What keeps squall from seeing or keeping anything, on every page.
fn notices(shared: &Shared) -> Markup {
    let board = shared.board.borrow().clone();
    let ready = shared.ready.borrow().clone();
    html! {
        @if let Readiness::NotReady(why) = ready {
            p.notice { "squall is not ready: " (why) "." }
        }
        @if let Some(why) = &board.storage_fault {
            p.notice.bad { "Nothing can be written: " (why) ". Detection and paging go on; feedback waits." }
        }
        @for source in &board.sources {
            @if let Some(fault) = &source.fault {
                p.notice.bad {
                    "Source " b { (parts::shortened(&source.name, 80)) } " does not answer in full: "
                    (parts::shortened(fault, 300)) ". What it watches neither opens nor closes meanwhile."
                }
            }
        }
    }
}

/// A page that says what is wrong.
fn fault(shared: &Shared, place: Place, depth: Depth, error: &ApiError) -> Response {
    let page = Page { status: error.kind.status(), ..Page::new("Not here", place, depth) };
    let body = html! {
        h1 { "That does not work" }
        p.lead { (parts::shortened(&error.message, 500)) "." }
        p { a href=(depth.root()) { "To what is firing now" } }
    };
    page.answer(shared, &body)
}
