//! The pages without a socket: what is on them, that they read without a script, and that a name
//! is never more than text.

use axum::body::Body;
use axum::http::{Request, StatusCode};
use serde_json::json;

use crate::api::tests::{Fixture, dependency, fixture, incident};
use crate::api::{Board, SourceHealth};
use crate::incident::Incident;
use crate::plot::tests::storm;
use crate::series::Labels;
use crate::store::{Batch, Reason, Saved, SeriesAround};

const HOSTILE: &str = "<script>alert(1)</script>\"'&{}";

async fn page(fixture: &Fixture, path: &str) -> (StatusCode, String) {
    let response = fixture.send(Request::get(path).body(Body::empty()).unwrap()).await;
    let status = response.status();
    let header = |name: &str| {
        response.headers().get(name).map_or("", |value| value.to_str().unwrap()).to_owned()
    };
    let (kind, policy) = (header("content-type"), header("content-security-policy"));
    let bytes = axum::body::to_bytes(response.into_body(), 1 << 22).await.unwrap();
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    if kind.starts_with("text/html") {
        assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        nothing_runs(path, &text);
    }
    (status, text)
}

/// No script, style or handler stands in the page, and every script is one of ours.
fn nothing_runs(path: &str, html: &str) {
    for tag in html.split('<').skip(1).map(|rest| rest.split('>').next().unwrap_or_default()) {
        let name = tag.split(' ').next().unwrap_or_default();
        if name == "script" {
            assert!(
                tag.contains("src=\"./assets/") || tag.contains("src=\"../assets/"),
                "{path}: {tag}"
            );
        }
        assert_ne!(name, "style", "{path}");
        for attribute in tag.split(' ').skip(1).filter_map(|part| part.split_once('=')) {
            assert!(!attribute.0.starts_with("on") && attribute.0 != "style", "{path}: {tag}");
            assert!(!attribute.1.starts_with("\"javascript:"), "{path}: {tag}");
            assert!(!attribute.1.starts_with("\"http"), "{path}: another host in {tag}");
        }
    }
}

async fn keep_drawn(fixture: &Fixture, incident: &Incident) {
    let (_, series) = storm();
    let around = series.by_kind().into_iter().map(|(kind, body)| SeriesAround {
        incident: incident.id.clone(),
        kind: kind.to_owned(),
        at: incident.updated_at,
        body,
    });
    let saved = Saved { reason: Reason::Fired, incident: incident.clone() };
    let batch = Batch { incidents: vec![saved], series: around.collect(), ..Batch::default() };
    fixture.store.save(&batch).await.unwrap();
}

#[tokio::test]
async fn an_empty_page_teaches() {
    let fixture = fixture().await;
    let (status, html) = page(&fixture, "/").await;
    assert_eq!(status, 200);
    for words in ["Nothing is firing", "squall doctor", "No incident yet", "squall demo"] {
        assert!(html.contains(words), "{words}");
    }
    let (_, html) = page(&fixture, "/dependencies").await;
    assert!(html.contains("Nothing is watched yet"));
    let (_, html) = page(&fixture, "/?state=resolved").await;
    assert!(html.contains("No incident fits these filters"));
}

#[tokio::test]
async fn what_fires_is_first_and_links_to_its_page() {
    let fixture = fixture().await;
    let firing = incident("a");
    keep_drawn(&fixture, &firing).await;
    let sources =
        vec![SourceHealth { name: "main".to_owned(), fault: Some("timed out".to_owned()) }];
    fixture.board.send_replace(std::sync::Arc::new(Board {
        incidents: vec![firing],
        dependencies: vec![dependency("payments")],
        sources,
        ..Board::default()
    }));
    let (_, html) = page(&fixture, "/").await;
    let at = |words: &str| html.find(words).unwrap_or_else(|| panic!("{words} in {html}"));
    assert!(at("1 storm is firing") < at("href=\"incidents/a\""));
    assert!(at("2,000 clients retry in step") < at("id=\"record\""));
    assert!(at("does not answer in full: timed out") < at("1 storm"));
    assert!(html.contains("api/v1/incidents/a/plot.svg?width=420"));
}

#[tokio::test]
async fn filters_live_in_the_address_and_pages_keep_them() {
    let fixture = fixture().await;
    for n in 0..60 {
        let mut one = incident(&format!("i{n:02}"));
        one.state = crate::incident::State::Resolved;
        one.ended_at = Some(one.updated_at);
        fixture.keep(&one).await;
    }
    let (_, html) = page(&fixture, "/?classification=backoff-without-jitter&q=pay").await;
    assert!(html.contains("<option value=\"backoff-without-jitter\" selected"));
    assert!(html.contains("value=\"pay\""));
    assert_eq!(html.matches("<tr>").count(), 51, "a head and fifty rows");
    let next = html.split("href=\"./?q=pay&amp;classification=backoff-without-jitter&amp;cursor=");
    let cursor = next.clone().nth(1).expect("a next page").split('"').next().unwrap();
    let (_, rest) = page(&fixture, &format!("/?q=pay&cursor={cursor}")).await;
    assert_eq!(rest.matches("<tr>").count(), 11);
    let (_, none) = page(&fixture, "/?from=2027-01-01").await;
    assert!(none.contains("No incident fits") && none.contains("value=\"2027-01-01\""));
    let (status, html) = page(&fixture, "/?state=open").await;
    assert_eq!(status, 400);
    assert!(html.contains("pending, firing, resolved"));
}

#[tokio::test]
async fn an_incident_is_told_whole() {
    let fixture = fixture().await;
    keep_drawn(&fixture, &incident("a")).await;
    let given = json!({"verdict": "false", "note": "a load test"});
    assert_eq!(fixture.post("/api/v1/incidents/a/feedback", &given).await.0, 200);
    let (status, html) = page(&fixture, "/incidents/a").await;
    assert_eq!(status, 200);
    for words in [
        "2,000 clients retry in step",
        "Add full jitter",
        "waves at 1, 3, 7, 15 s fit far better",
        "no period over the red noise",
        "href=\"../schedules/resilience4j-exponential\"",
        "Said to be wrong",
        "a load test",
        "What was believed when",
        "picture=incident",
        "picture=correlogram",
        "squall incidents feedback a",
        "<time datetime=\"2026-09-21T14:08:25.086Z\">2026-09-21 14:08:25 UTC</time>",
        "1,850/s over one scrape",
        "Failed requests",
    ] {
        assert!(html.contains(words), "{words} in {html}");
    }
    let moved = fixture.send(Request::get("/?incident=a").body(Body::empty()).unwrap()).await;
    assert_eq!(
        (moved.status().as_u16(), &moved.headers()["location"]),
        (303, &"./incidents/a".parse().unwrap())
    );
    let (status, html) = page(&fixture, "/incidents/none").await;
    assert_eq!(status, 404);
    assert!(html.contains("there is no incident of this id"));
}

#[tokio::test]
async fn clients_that_wait_alike_are_tied_and_not_ranked_by_noise() {
    let fixture = fixture().await;
    let mut one = incident("tied");
    let mut other = one.verdict.matches[0].clone();
    (one.verdict.matches[0].distance, other.distance) = (0.0020, 0.0022);
    other.name = "another".to_owned();
    one.verdict.matches.push(other);
    keep_drawn(&fixture, &one).await;
    let (_, html) = page(&fixture, "/incidents/tied").await;
    assert!(html.contains("2 libraries retry like this, and all of them alike"), "{html}");
    assert!(!html.contains("less likely"), "{html}");
    let many = one.verdict.matches.clone();
    one.verdict.matches.extend([many.clone(), many].concat());
    one.updated_at = one.updated_at.plus_seconds(1.0);
    keep_drawn(&fixture, &one).await;
    let (_, html) = page(&fixture, "/").await;
    assert!(html.contains("6 known clients wait like this") && !html.contains(">fits "), "{html}");
    one.verdict.matches.truncate(2);
    one.updated_at = one.updated_at.plus_seconds(1.0);
    one.verdict.matches[1].distance = 0.0522;
    keep_drawn(&fixture, &one).await;
    let (_, html) = page(&fixture, "/incidents/tied").await;
    assert!(html.contains("the closest first"), "{html}");
    assert_eq!(html.matches("(less likely)").count(), 1, "{html}");
    // What cannot be ruled out accuses nobody.
    one.verdict.schedule = None;
    one.updated_at = one.updated_at.plus_seconds(1.0);
    keep_drawn(&fixture, &one).await;
    let (_, html) = page(&fixture, "/incidents/tied").await;
    assert!(html.contains("What cannot be ruled out:"), "{html}");
    assert!(!html.contains("retry like this"), "{html}");
}

#[tokio::test]
async fn what_happened_stands_at_its_own_time_and_what_was_said_at_the_poll() {
    let fixture = fixture().await;
    let mut one = incident("a");
    keep_drawn(&fixture, &one).await;
    // Said again without news: nothing to read.
    one.updated_at = one.updated_at.plus_seconds(30.0);
    let revised = |incident: &Incident, reason| {
        let saved = Saved { reason, incident: incident.clone() };
        Batch { incidents: vec![saved], ..Batch::default() }
    };
    fixture.store.save(&revised(&one, Reason::Revised)).await.unwrap();
    one.ended_at = Some(one.updated_at);
    one.state = crate::incident::State::Resolved;
    one.updated_at = one.updated_at.plus_seconds(80.0);
    fixture.store.save(&revised(&one, Reason::Resolved)).await.unwrap();
    let (_, html) = page(&fixture, "/incidents/a").await;
    let timeline =
        html.split("id=\"timeline\"").nth(1).unwrap().split("</section>").next().unwrap();
    let at = |words: &str| timeline.find(words).unwrap_or_else(|| panic!("{words} in {timeline}"));
    assert!(at("first failure") < at("fired"));
    assert!(at("fired") < at("nothing above normal from here on"));
    assert!(at("nothing above normal from here on") < at("resolved"));
    assert_eq!(timeline.matches("happened: ").count(), 2, "{timeline}");
    assert_eq!(timeline.matches("squall: ").count(), 2, "{timeline}");
}

#[tokio::test]
async fn pictures_are_drawn_of_what_was_kept() {
    let fixture = fixture().await;
    keep_drawn(&fixture, &incident("a")).await;
    let request = Request::get("/api/v1/incidents/a/plot.svg").body(Body::empty()).unwrap();
    let response = fixture.send(request).await;
    assert_eq!(response.headers()["content-type"], "image/svg+xml; charset=utf-8");
    let (status, svg) =
        page(&fixture, "/api/v1/incidents/a/plot.svg?picture=warped&theme=dark&width=400").await;
    assert!(status == 200 && svg.starts_with("<svg ") && svg.contains("width=\"400\""), "{svg}");
    let (status, _) = page(&fixture, "/api/v1/incidents/a/plot.svg?picture=cake").await;
    assert_eq!(status, 400);
    let (_, svg) = page(&fixture, "/api/v1/incidents/a/plot.svg?utc_offset=-90").await;
    assert!(svg.contains("UTC-01:30") && svg.contains("12:38:30"), "{svg}");
    for wrong in ["841", "-841", "noon", ""] {
        let path = format!("/api/v1/incidents/a/plot.svg?utc_offset={wrong}");
        assert_eq!(
            page(&fixture, &path).await.0,
            if wrong.is_empty() { 200 } else { 400 },
            "{path}"
        );
    }
    fixture.keep(&incident("bare")).await;
    let (status, _) = page(&fixture, "/api/v1/incidents/bare/plot.svg").await;
    assert_eq!(status, 200);
    let (status, text) = page(&fixture, "/api/v1/incidents/bare/plot.svg?picture=spectrum").await;
    assert!(status == 404 && text.contains("too short"), "{text}");
    let (_, detail) = fixture.get("/api/v1/incidents/a").await;
    assert!(detail["data"]["series"]["increments"]["requests"].as_array().unwrap().len() > 50);
}

#[tokio::test]
async fn hostile_names_are_only_text() {
    let fixture = fixture().await;
    let emoji = "🌩️".repeat(600);
    for (n, name) in [HOSTILE, emoji.as_str()].into_iter().enumerate() {
        let mut one = incident(&format!("hostile{n}"));
        one.dependency.labels = Labels::new([("dependency", name)]);
        one.verdict.summary = format!("{name}: retries in step");
        one.verdict.advice[0].text = name.to_owned();
        one.verdict.matches[0].rule = name.to_owned();
        keep_drawn(&fixture, &one).await;
        let watched = dependency(name);
        let id = crate::api::dependencies::dependency_id(&watched);
        fixture.board.send_replace(std::sync::Arc::new(Board {
            incidents: vec![one],
            dependencies: vec![watched],
            ..Board::default()
        }));
        let paths = [
            "/".to_owned(),
            format!("/incidents/hostile{n}"),
            "/dependencies".to_owned(),
            format!("/dependencies/{id}"),
            format!("/api/v1/incidents/hostile{n}/plot.svg"),
            "/?q=%3Cscript%3Ealert(1)%3C%2Fscript%3E%22".to_owned(),
            "/dependencies?q=%22%3E%3Cscript%3Ealert(1)".to_owned(),
        ];
        for path in paths {
            let (status, text) = page(&fixture, &path).await;
            assert_eq!(status, 200, "{path}");
            assert!(!text.contains("<script>"), "{path}: {text}");
            assert!(text.len() < 120_000, "{path}: {} bytes", text.len());
        }
    }
}

#[tokio::test]
async fn dependencies_say_how_well_they_are_seen() {
    let fixture = fixture().await;
    let mut blind = dependency("legacy");
    blind.state = crate::incident::Visibility::Blind;
    blind.resolvable_gap_seconds = 120.0;
    let dependencies = vec![dependency("payments"), blind];
    fixture.board.send_replace(std::sync::Arc::new(Board { dependencies, ..Board::default() }));
    let (_, html) = page(&fixture, "/dependencies").await;
    assert!(html.contains("1 is blind") || html.contains("<b>1 is blind</b>"), "{html}");
    assert!(html.contains("waves 1.5 s apart"));
    let (_, html) = page(&fixture, "/dependencies?state=blind").await;
    assert!(html.contains("legacy") && !html.contains("waves 1.5 s apart"));
    let id = crate::api::dependencies::dependency_id(&dependency("payments"));
    let (_, html) = page(&fixture, &format!("/dependencies/{id}")).await;
    assert!(
        html.contains("1.5 s or more apart") && html.contains("too quick") && html.contains("seen")
    );
    assert_eq!(page(&fixture, "/dependencies/0").await.0, 404);
}

#[tokio::test]
async fn schedules_are_listed_and_read_one_by_one() {
    let fixture = fixture().await;
    let (_, html) = page(&fixture, "/schedules").await;
    assert!(html.contains("href=\"schedules/a-schedule\""));
    assert_eq!(page(&fixture, "/schedules/a-schedule").await.0, 200);
    assert_eq!(page(&fixture, "/schedules/none").await.0, 404);
    for name in ["style.css", "page.js", "theme.js", "icon.svg"] {
        assert_eq!(page(&fixture, &format!("/assets/{name}")).await.0, 200, "{name}");
    }
    assert_eq!(page(&fixture, "/assets/../Cargo.toml").await.0, 404);
}
