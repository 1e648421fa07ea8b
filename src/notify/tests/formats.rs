//! What is sent, against captures of what Alertmanager and Prometheus send.

use std::collections::BTreeMap;

use super::*;

fn links() -> Links {
    Links::new("http://squall.example:9797/")
}

fn http() -> Http {
    Http::plain().unwrap()
}

fn golden(name: &str) -> Value {
    let path = format!("tests/golden/notify/{name}.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Maps whose keys are data and not format.
const FREE: [&str; 6] =
    ["labels", "annotations", "groupLabels", "commonLabels", "commonAnnotations", "squall"];

/// Every path of a document with the type at its end.
fn shape(value: &Value) -> BTreeSet<String> {
    fn walk(value: &Value, path: &str, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(map) => {
                for (key, value) in map {
                    let path = format!("{path}.{key}");
                    if FREE.contains(&key.as_str()) {
                        found.insert(format!("{path}: map"));
                    } else {
                        walk(value, &path, found);
                    }
                }
            }
            Value::Array(items) => {
                items.iter().for_each(|item| walk(item, &format!("{path}[]"), found));
            }
            Value::String(_) => drop(found.insert(format!("{path}: text"))),
            Value::Number(_) => drop(found.insert(format!("{path}: number"))),
            other => drop(found.insert(format!("{path}: {other}"))),
        }
    }
    let mut found = BTreeSet::new();
    walk(value, "", &mut found);
    found
}

fn webhook() -> Webhook {
    Webhook {
        name: "hook".to_owned(),
        url: Secret::Inline("http://127.0.0.1:1/".to_owned()),
        secret: None,
        http: http(),
        links: links(),
    }
}

fn webhook_body(message: &Message) -> Value {
    serde_json::from_slice(&webhook().body(message)).unwrap()
}

#[test]
fn a_webhook_gets_the_body_of_alertmanager_and_the_incident() {
    let one = message(vec![told(Event::Firing, &incident())], Vec::new());
    let body = webhook_body(&one);
    let mut ours = shape(&body);
    assert!(ours.remove(".squall: map"));
    assert_eq!(ours, shape(&golden("am025-webhook-firing-2-alerts")));
    assert_eq!(body["squall"], serde_json::to_value(IncidentJson::from(&incident())).unwrap());
    assert_eq!(body["status"], "firing");
    assert_eq!(body["alerts"][0]["endsAt"], "0001-01-01T00:00:00Z");
    assert_eq!(body["groupLabels"]["alertname"], "BackoffWithoutJitter");
    assert_eq!(
        body["alerts"][0]["annotations"]["plot_url"],
        "http://squall.example:9797/api/v1/incidents/5f0c9e1b2a7d4c38/plot.svg"
    );
    assert!(webhook().body(&one).ends_with(b"\n"), "a newline ends the body, as Alertmanager's");
}

#[test]
fn a_resolved_webhook_says_when_it_ended() {
    let ended = over(incident());
    let body = webhook_body(&message(vec![told(Event::Resolved, &ended)], Vec::new()));
    assert_eq!(body["status"], "resolved");
    assert_eq!(body["alerts"][0]["status"], "resolved");
    assert_eq!(body["alerts"][0]["endsAt"], "2026-09-21T14:09:46.000Z");
    let firing = webhook_body(&message(vec![told(Event::Firing, &incident())], Vec::new()));
    let fingerprint = |body: &Value| body["alerts"][0]["fingerprint"].clone();
    assert_eq!(fingerprint(&body), fingerprint(&firing));
    assert_eq!(body["groupKey"], firing["groupKey"]);
}

#[test]
fn a_page_of_several_lists_them_and_fires_while_one_does() {
    let (a, b) = (incident_of("payments"), incident_of("ledger"));
    let page = message(vec![told(Event::Firing, &a), told(Event::Firing, &b)], Vec::new());
    let body = webhook_body(&page);
    assert_eq!(body["alerts"].as_array().unwrap().len(), 2);
    assert_eq!(body["alerts"][1]["squall"]["dependency"], "ledger");
    assert_eq!(body["commonLabels"].get("dependency"), None);
    assert_eq!(body["commonLabels"]["alertname"], "BackoffWithoutJitter");
    assert_eq!(page.headline(), "2 dependencies storm from one cause: payments, ledger");

    let half =
        message(vec![told(Event::Resolved, &over(b.clone()))], vec![told(Event::Firing, &a)]);
    assert_eq!(webhook_body(&half)["status"], "firing");
    assert_eq!(half.headline(), "1 of 2 dependencies still storm: payments");
    let done = message(vec![told(Event::Resolved, &over(a))], Vec::new());
    assert!(done.is_over());
}

#[test]
fn fingerprints_are_those_of_alertmanager() {
    let mut checked = 0;
    for name in [
        "am025-webhook-firing-1-resolved-1",
        "am025-webhook-firing-2-alerts",
        "am025-webhook-resolved",
        "am033-webhook-firing-1-resolved-1",
        "am033-webhook-firing-2-alerts",
        "am033-webhook-resolved",
    ] {
        for alert in golden(name)["alerts"].as_array().unwrap() {
            let labels: BTreeMap<String, String> =
                serde_json::from_value(alert["labels"].clone()).unwrap();
            assert_eq!(fingerprint(&labels), alert["fingerprint"], "{name}");
            checked += 1;
        }
    }
    assert_eq!(checked, 10);
}

#[test]
fn labels_are_an_identity_and_hold_no_number() {
    let labels = labels(&IncidentJson::from(&incident()));
    let expected = [
        ("alertname", "BackoffWithoutJitter"),
        ("classification", "backoff-without-jitter"),
        ("dependency", "payments"),
        ("severity", "critical"),
    ];
    let expected: BTreeMap<String, String> =
        expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    assert_eq!(labels, expected);
    assert_eq!(alert_name("retry-storm-without-backoff"), "RetryStorm");
    assert_eq!(alert_name("inconclusive"), "RetryStorm");
}

#[test]
fn a_signature_is_the_hmac_of_the_body() {
    // RFC 4231, test case 2.
    assert_eq!(
        signature(b"Jefe", b"what do ya want for nothing?"),
        "sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
    );
}

fn alertmanager() -> Alertmanager {
    Alertmanager {
        name: "am".to_owned(),
        urls: vec!["http://127.0.0.1:1".to_owned()],
        http: http(),
        links: links(),
    }
}

#[test]
fn alertmanager_gets_what_prometheus_posts() {
    let made = IncidentJson::from(&incident());
    let alert = alertmanager().alert(&made, false, incident().updated_at);
    let posted = serde_json::to_value([alert]).unwrap();
    assert_eq!(shape(&posted), shape(&golden("prom242-posts-alertmanager-v2-firing")));
}

#[test]
fn an_alert_outlives_its_posts_and_a_short_storm() {
    let check = |over: bool, ended: Option<f64>, now: f64, expected: f64| {
        let mut made = incident();
        let fired = made.detected_at.unwrap();
        made.ended_at = ended.map(|seconds| fired.plus_seconds(seconds));
        let ends = super::super::alertmanager::ends_at(
            &IncidentJson::from(&made),
            over,
            fired.plus_seconds(now),
        );
        let after = ends.seconds_since(fired);
        assert!((after - expected).abs() < 1e-9, "{after} for {expected}");
    };
    // While it fires: four resends ahead of every post.
    check(false, None, 0.0, 240.0);
    check(false, None, 600.0, 840.0);
    // A storm of 8 s keeps its alert past any default wait of Alertmanager.
    check(true, Some(8.0), 10.0, 330.0);
    check(true, Some(8.0), 400.0, 330.0);
    // A long one ends when it ended.
    check(true, Some(1000.0), 1010.0, 1000.0);
}

#[test]
fn the_end_is_stated_for_a_quarter_of_an_hour() {
    let active = ActiveAlerts::new(Route::default());
    let mut quiet = incident_of("quiet");
    quiet.verdict.class = Class::JitteredBackoff;
    active.observe(&[incident(), quiet]);
    let now = incident().updated_at;
    assert_eq!(active.at(now.plus_seconds(1e6)).len(), 1, "while it fires, without end");
    let ended = over(incident());
    active.observe(std::slice::from_ref(&ended));
    let alert_ends = ended.detected_at.unwrap().plus(HOLD);
    assert_eq!(active.at(alert_ends.plus(RESOLVED_FOR)).len(), 1);
    assert_eq!(active.at(alert_ends.plus(RESOLVED_FOR).plus_seconds(0.001)).len(), 0);
}

fn slack() -> Slack {
    Slack {
        name: "chat".to_owned(),
        webhook_url: Secret::Inline(String::new()),
        http: http(),
        links: links(),
    }
}

#[test]
fn slack_gets_a_message_that_a_person_reads() {
    let slack = slack();
    let mut made = incident();
    made.verdict.summary = "payments <b> & ledger".to_owned();
    let body = slack.body(&message(vec![told(Event::Firing, &made)], Vec::new()));
    assert_eq!(body["text"], "payments &lt;b&gt; &amp; ledger");
    let attachment = &body["attachments"][0];
    assert_eq!(attachment["color"], "danger");
    assert_eq!(attachment["title"], "payments is firing");
    let text = attachment["text"].as_str().unwrap();
    assert!(text.contains("5f0c9e1b2a7d4c38/plot.svg|Picture>"), "{text}");
    let end = slack.body(&message(vec![told(Event::Resolved, &over(made))], Vec::new()));
    assert_eq!(end["attachments"][0]["color"], "good");
}

#[test]
fn pagerduty_triggers_updates_and_resolves_one_page() {
    let pagerduty = Pagerduty {
        name: "pd".to_owned(),
        url: PAGERDUTY_URL.to_owned(),
        routing_key: Secret::Inline(String::new()),
        http: http(),
        links: links(),
    };
    let (a, b) = (incident_of("payments"), incident_of("ledger"));
    let mut page = message(vec![told(Event::Firing, &a), told(Event::Firing, &b)], Vec::new());
    let trigger = pagerduty.body("R", &page);
    assert_eq!(trigger["event_action"], "trigger");
    assert_eq!(trigger["dedup_key"], "squall-id-payments");
    assert_eq!(trigger["payload"]["severity"], "critical");
    assert_eq!(trigger["payload"]["custom_details"]["incidents"].as_array().unwrap().len(), 2);
    page.told = vec![told(Event::Resolved, &over(b))];
    page.others = vec![told(Event::Firing, &a)];
    let update = pagerduty.body("R", &page);
    assert_eq!(
        (&update["event_action"], &update["dedup_key"]),
        (&"trigger".into(), &trigger["dedup_key"])
    );
    page.told = vec![told(Event::Resolved, &over(a))];
    page.others.clear();
    let resolve = pagerduty.body("R", &page);
    let expected = serde_json::json!({
        "routing_key": "R", "event_action": "resolve", "dedup_key": "squall-id-payments",
    });
    assert_eq!(resolve, expected);
    let mut long = incident();
    long.verdict.summary = "ä".repeat(3000);
    let cut = pagerduty.body("R", &message(vec![told(Event::Firing, &long)], Vec::new()));
    assert_eq!(cut["payload"]["summary"].as_str().unwrap().chars().count(), 1024);
}

#[test]
fn opsgenie_opens_and_closes_by_alias_within_its_limits() {
    let opsgenie = Opsgenie {
        name: "og".to_owned(),
        url: OPSGENIE_URL.to_owned(),
        api_key: Secret::Inline(String::new()),
        http: http(),
        links: links(),
    };
    let mut made = incident();
    made.verdict.summary = "long ".repeat(100);
    let (path, body) = opsgenie.request(&message(vec![told(Event::Firing, &made)], Vec::new()));
    assert_eq!(path, "/v2/alerts");
    assert_eq!(body["alias"], "squall-5f0c9e1b2a7d4c38");
    assert_eq!(body["message"].as_str().unwrap().chars().count(), 130);
    assert_eq!(body["priority"], "P1");
    assert!(body["details"].as_object().unwrap().values().all(Value::is_string));
    let end = message(vec![told(Event::Resolved, &over(made))], Vec::new());
    let (path, _) = opsgenie.request(&end);
    assert_eq!(path, "/v2/alerts/squall-5f0c9e1b2a7d4c38/close?identifierType=alias");
}

#[test]
fn a_mail_has_its_key_and_its_thread() {
    let email = Email {
        name: "mail".to_owned(),
        settings: EmailSettings {
            host: "mail.example".to_owned(),
            port: 587,
            security: SmtpSecurity::StartTls,
            login: None,
            from: "squall <squall@shop.example>".to_owned(),
            to: vec!["oncall@shop.example".to_owned()],
        },
        links: links(),
    };
    let one = message(vec![told(Event::Firing, &incident())], Vec::new());
    let mail = String::from_utf8(email.mail(&one).unwrap().formatted()).unwrap();
    for expected in [
        "From: squall <squall@shop.example>",
        "To: oncall@shop.example",
        "Message-ID: <00112233445566778899aabbccddeeff@shop.example>",
        "References: <5f0c9e1b2a7d4c38@shop.example>",
        "X-Squall-Idempotency-Key: 00112233445566778899aabbccddeeff",
        "Subject: [critical] payments: 2,000 clients retry in step",
    ] {
        assert!(mail.contains(expected), "{expected} in\n{mail}");
    }
    let wrong = EmailSettings { to: vec!["nobody".to_owned()], ..email.settings.clone() };
    let wrong = Email { settings: wrong, name: "mail".to_owned(), links: links() };
    assert!(wrong.mail(&one).unwrap_err().is_final());
}

#[test]
fn a_secret_is_never_printed() {
    let secret = Secret::Inline("hunter2".to_owned());
    assert_eq!(format!("{secret:?}"), "<secret>");
    let webhook = Webhook { secret: Some(secret), ..webhook() };
    assert!(!format!("{webhook:?}").contains("hunter2"));
}

#[test]
fn what_is_final_and_what_is_tried_again() {
    let check = |status, last: bool, reason| {
        let error = NotifyError::Status {
            receiver: "r".to_owned(),
            status,
            body: String::new(),
            retry_after: None,
        };
        assert_eq!((error.is_final(), error.reason()), (last, reason), "{status}");
    };
    check(400, true, Reason::Refused);
    check(422, true, Reason::Refused);
    check(401, false, Reason::BadStatus);
    check(404, false, Reason::BadStatus);
    check(429, false, Reason::RateLimited);
    check(503, false, Reason::BadStatus);
}

#[test]
fn a_hostile_name_is_only_text_in_slack_and_no_longer_than_people_read() {
    for name in
        ["<script>alert(1)</script>\"'&{}", "<!channel> <@U1> <http://x|y>", &"🌩️".repeat(600)]
    {
        let mut made = incident();
        made.dependency.labels = crate::series::Labels::new([("dependency", name)]);
        made.verdict.summary = format!("{name}: about 1,220 clients retry in step");
        made.verdict.advice[0].text = name.repeat(3);
        made.verdict.matches[0].name = name.to_owned();
        let body = slack().body(&message(vec![told(Event::Firing, &made)], Vec::new()));
        // What is linked is squall's alone: `<` begins nothing else.
        let written = body.to_string();
        for (at, _) in written.match_indices('<') {
            assert!(written[at + 1..].starts_with("http://squall.example:9797/"), "{written}");
        }
        let attachment = &body["attachments"][0];
        assert!(body["text"].as_str().unwrap().chars().count() < 800, "{written}");
        assert!(attachment["title"].as_str().unwrap().chars().count() < 300, "{written}");
        assert!(attachment["text"].as_str().unwrap().chars().count() < 4000, "{written}");
    }
}

#[test]
fn a_client_is_named_only_beside_a_schedule() {
    let mut one = incident();
    assert!(!one.verdict.matches.is_empty());
    let name = one.verdict.matches[0].name.clone();
    let named = crate::notify::labels::description(&IncidentJson::from(&one));
    assert!(named.contains(&format!("The schedule is that of {name}.")), "{named}");
    // What cannot be ruled out accuses nobody.
    one.verdict.schedule = None;
    let open = crate::notify::labels::description(&IncidentJson::from(&one));
    assert!(!open.contains("The schedule is that of"), "{open}");
}
