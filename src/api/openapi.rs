//! `GET /api/v1/openapi.json`: the description of every path, in OpenAPI 3.1.
//!
//! Written as data beside the handlers and not derived from them: a test holds that it names
//! exactly the paths that the router has, and a derivation would need a macro on every type.

use axum::Json;
use serde_json::{Map, Value, json};

/// A parameter: its name, its JSON schema as text, and what it does.
type Parameter = (&'static str, &'static str, &'static str);

/// One operation.
struct Operation {
    path: &'static str,
    method: &'static str,
    summary: &'static str,
    parameters: &'static [Parameter],
    /// What `data` holds, as a schema; none for plain text.
    data: Option<&'static str>,
}

const INSTANT: &str = r#"{"type": "string", "description": "RFC 3339 or Unix seconds"}"#;
const TEXT: &str = r#"{"type": "string", "maxLength": 1024}"#;
const LIMIT: &str = r#"{"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}"#;
const CLASS: &str = r#"{"type": "string", "enum": ["backoff-without-jitter",
    "retry-storm-without-backoff", "partial-jitter", "jittered-backoff", "inconclusive"]}"#;

const OPERATIONS: &[Operation] = &[
    Operation {
        path: "/api/v1/incidents",
        method: "get",
        summary: "Incidents, newest first.",
        parameters: &[
            ("dependency", TEXT, "the dependency's name, exactly"),
            ("classification", CLASS, "the class"),
            (
                "state",
                r#"{"type": "string", "enum": ["pending", "firing", "resolved"]}"#,
                "the state",
            ),
            (
                "severity",
                r#"{"type": "string", "enum": ["critical", "warning", "info"]}"#,
                "the severity",
            ),
            ("from", INSTANT, "started at or after this"),
            ("to", INSTANT, "started before this"),
            ("schedule", TEXT, "the id of a rule among the matches"),
            ("q", TEXT, "a part of the dependency's name or of the summary"),
            ("limit", LIMIT, "at most this many"),
            ("cursor", TEXT, "`next_cursor` of the page before"),
        ],
        data: Some(
            r##"{"type": "object", "required": ["incidents", "next_cursor"], "properties": {
            "incidents": {"type": "array", "items": {"$ref": "#/components/schemas/Incident"}},
            "next_cursor": {"type": ["string", "null"]}}}"##,
        ),
    },
    Operation {
        path: "/api/v1/incidents/{id}",
        method: "get",
        summary: "One incident, with the series around it.",
        parameters: &[],
        data: Some(
            r##"{"allOf": [{"$ref": "#/components/schemas/Incident"},
            {"type": "object", "properties": {"series": {"type": "object"}}}]}"##,
        ),
    },
    Operation {
        path: "/api/v1/incidents/{id}/feedback",
        method: "post",
        summary: "Says whether an incident was right.",
        parameters: &[],
        data: Some(r#"{"type": "null"}"#),
    },
    Operation {
        path: "/api/v1/incidents/{id}/plot.svg",
        method: "get",
        summary: "A picture of an incident.",
        parameters: &[
            (
                "picture",
                r#"{"type": "string", "enum": ["incident", "warped", "cohorts", "counterfactual",
                    "correlogram", "spectrum"], "default": "incident"}"#,
                "what is drawn; 404 where the incident has not what it shows",
            ),
            (
                "width",
                r#"{"type": "integer", "minimum": 320, "maximum": 2000, "default": 880}"#,
                "in pixels",
            ),
            (
                "theme",
                r#"{"type": "string", "enum": ["auto", "light", "dark"], "default": "auto"}"#,
                "the colours; auto are those that the viewer prefers",
            ),
            (
                "utc_offset",
                r#"{"type": "integer", "minimum": -840, "maximum": 840, "default": 0}"#,
                "minutes that the times in it are ahead of UTC",
            ),
            ("v", TEXT, "ignored: another value makes a browser ask again"),
        ],
        data: None,
    },
    Operation {
        path: "/api/v1/alerts",
        method: "get",
        summary: "What is firing, in the shape of Prometheus' own alerts.",
        parameters: &[],
        data: Some(
            r#"{"type": "object", "required": ["alerts"], "properties": {"alerts":
            {"type": "array", "items": {"type": "object"}}}}"#,
        ),
    },
    Operation {
        path: "/api/v1/offenders",
        method: "get",
        summary: "Who suffered or caused the most incidents, worst first.",
        parameters: &[
            (
                "by",
                r#"{"type": "string", "enum": ["dependency", "client"], "default": "dependency"}"#,
                "the dependencies that suffered, or the clients whose schedule fitted best",
            ),
            ("from", INSTANT, "started at or after this; 90 days ago without it"),
            ("to", INSTANT, "started before this; now without it"),
            ("limit", LIMIT, "at most this many"),
        ],
        data: Some(
            r#"{"type": "object", "required": ["offenders"], "properties": {"offenders":
            {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"},
            "incidents": {"type": "integer"}, "excess_requests": {"type": "number"},
            "last_at": {"type": "string"}}}}}}"#,
        ),
    },
    Operation {
        path: "/api/v1/precision",
        method: "get",
        summary: "How often each class was right, by the feedback of people, over time.",
        parameters: &[
            ("from", INSTANT, "started at or after this; 90 days ago without it"),
            ("to", INSTANT, "started before this; now without it"),
            ("step", TEXT, "the length of a span, as Prometheus writes durations; 7d without it"),
        ],
        data: Some(
            r#"{"type": "object", "required": ["precision"], "properties": {"precision":
            {"type": "array", "items": {"type": "object", "properties":
            {"classification": {"type": "string"}, "from": {"type": "string"},
            "right": {"type": "integer"}, "judged": {"type": "integer"},
            "precision": {"type": "number"}}}}}}"#,
        ),
    },
    Operation {
        path: "/api/v1/dependencies",
        method: "get",
        summary: "What is watched, and how well it can be seen.",
        parameters: &[
            (
                "state",
                r#"{"type": "string", "enum": ["learning", "watched", "blind", "stale"]}"#,
                "the state",
            ),
            ("watch", TEXT, "the watch's name"),
            ("source", TEXT, "the source's name"),
            ("q", TEXT, "a part of the name"),
            ("limit", LIMIT, "at most this many"),
            ("cursor", TEXT, "`next_cursor` of the page before"),
        ],
        data: Some(
            r##"{"type": "object", "required": ["dependencies", "next_cursor"], "properties": {
            "dependencies": {"type": "array", "items": {"$ref": "#/components/schemas/Dependency"}},
            "next_cursor": {"type": ["string", "null"]}}}"##,
        ),
    },
    Operation {
        path: "/api/v1/dependencies/{id}",
        method: "get",
        summary: "One dependency.",
        parameters: &[],
        data: Some(r##"{"$ref": "#/components/schemas/Dependency"}"##),
    },
    Operation {
        path: "/api/v1/schedules",
        method: "get",
        summary: "The retry schedules known.",
        parameters: &[],
        data: Some(r#"{"type": "object", "properties": {"schedules": {"type": "array"}}}"#),
    },
    Operation {
        path: "/api/v1/presets",
        method: "get",
        summary: "The telemetry conventions known.",
        parameters: &[],
        data: Some(r#"{"type": "object", "properties": {"presets": {"type": "array"}}}"#),
    },
    Operation {
        path: "/api/v1/events",
        method: "get",
        summary: "Incidents opened, revised and resolved, as server-sent events.",
        parameters: &[],
        data: None,
    },
    Operation {
        path: "/api/v1/openapi.json",
        method: "get",
        summary: "This description.",
        parameters: &[],
        data: None,
    },
    Operation {
        path: "/metrics",
        method: "get",
        summary: "squall's own metrics, in the text format of Prometheus.",
        parameters: &[],
        data: None,
    },
    Operation {
        path: "/-/healthy",
        method: "get",
        summary: "200 as long as anything is answered.",
        parameters: &[],
        data: None,
    },
    Operation {
        path: "/-/ready",
        method: "get",
        summary: "200 when the daemon can do its work, else 503.",
        parameters: &[],
        data: None,
    },
    Operation {
        path: "/-/reload",
        method: "post",
        summary: "Reads the configuration again; a bad one keeps the old.",
        parameters: &[],
        data: None,
    },
    Operation { path: "/", method: "get", summary: "The page.", parameters: &[], data: None },
];

/// Schemas of what is named above. Fields may be added; none is taken away.
const SCHEMAS: &str = r##"{
 "Incident": {"type": "object",
  "required": ["id", "dependency", "labels", "watch", "source", "state", "classification", "severity",
   "started_at", "detected_at", "updated_at", "ended_at", "confidence", "summary", "schedule", "waves",
   "next_wave_at", "impact", "evidence", "matches", "advice", "feedback"],
  "properties": {
   "id": {"type": "string"}, "dependency": {"type": "string"},
   "labels": {"type": "object", "additionalProperties": {"type": "string"}},
   "watch": {"type": "string"}, "source": {"type": "string"},
   "state": {"enum": ["pending", "firing", "resolved"]},
   "classification": {"enum": ["backoff-without-jitter", "retry-storm-without-backoff",
    "partial-jitter", "jittered-backoff", "inconclusive"]},
   "severity": {"enum": ["critical", "warning", "info"]},
   "started_at": {"type": "string", "format": "date-time"},
   "detected_at": {"type": ["string", "null"], "format": "date-time"},
   "updated_at": {"type": "string", "format": "date-time"},
   "ended_at": {"type": ["string", "null"], "format": "date-time"},
   "confidence": {"type": "number", "minimum": 0, "maximum": 1},
   "summary": {"type": "string"},
   "schedule": {"type": ["object", "null"]},
   "waves": {"type": "array", "items": {"type": "object"}},
   "next_wave_at": {"type": ["string", "null"], "format": "date-time"},
   "impact": {"type": "object"},
   "evidence": {"type": "array", "items": {"type": "object"}},
   "matches": {"type": "array", "items": {"type": "object"}},
   "advice": {"type": "array", "items": {"type": "object"}},
   "feedback": {"type": ["object", "null"]}}},
 "Dependency": {"type": "object",
  "required": ["id", "name", "labels", "watch", "source", "state", "targets",
   "scrape_interval_seconds", "effective_step_seconds", "resolvable_gap_seconds", "baseline_rate",
   "dispersion", "last_sample_at", "observations"],
  "properties": {
   "id": {"type": "string"}, "name": {"type": "string"},
   "labels": {"type": "object", "additionalProperties": {"type": "string"}},
   "watch": {"type": "string"}, "source": {"type": "string"},
   "state": {"enum": ["learning", "watched", "blind", "stale"]},
   "targets": {"type": "integer"},
   "scrape_interval_seconds": {"type": ["number", "null"]},
   "effective_step_seconds": {"type": ["number", "null"]},
   "resolvable_gap_seconds": {"type": ["number", "null"]},
   "baseline_rate": {"type": ["number", "null"]},
   "dispersion": {"type": ["number", "null"]},
   "last_sample_at": {"type": ["string", "null"], "format": "date-time"},
   "observations": {"type": "array", "items": {"type": "object"}}}},
 "Feedback": {"type": "object", "additionalProperties": false, "required": ["verdict"],
  "properties": {"verdict": {"enum": ["true", "false"]}, "class": {"type": "string"},
   "note": {"type": "string", "maxLength": 4000}}},
 "Error": {"type": "object", "required": ["status", "errorType", "error"],
  "properties": {"status": {"const": "error"}, "errorType": {"enum": ["bad_data", "not_found",
   "unavailable", "timeout"]}, "error": {"type": "string"}}}
}"##;

/// `GET /api/v1/openapi.json`
pub(super) async fn document() -> Json<Value> {
    Json(describe())
}

/// The whole description.
fn describe() -> Value {
    let mut paths = Map::new();
    for operation in OPERATIONS {
        let path = paths.entry(operation.path).or_insert_with(|| json!({}));
        path[operation.method] = describe_one(operation);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "squall",
            "version": env!("CARGO_PKG_VERSION"),
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {"schemas": schema(SCHEMAS)},
    })
}

fn describe_one(operation: &Operation) -> Value {
    let mut parameters: Vec<Value> = operation
        .parameters
        .iter()
        .map(|(name, text, says)| {
            json!({"name": name, "in": "query", "description": says, "schema": schema(text)})
        })
        .collect();
    if operation.path.contains("{id}") {
        parameters.push(json!({
            "name": "id", "in": "path", "required": true, "schema": {"type": "string"},
        }));
    }
    let content = match operation.data {
        Some(data) => json!({"application/json": {"schema": {
            "type": "object",
            "required": ["status", "data"],
            "properties": {"status": {"const": "success"}, "data": schema(data)},
        }}}),
        None => json!({content_type(operation.path): {}}),
    };
    let error = json!({"description": "refused", "content": {"application/json": {
        "schema": {"$ref": "#/components/schemas/Error"},
    }}});
    let mut described = json!({
        "summary": operation.summary,
        "parameters": parameters,
        "responses": {
            "200": {"description": "as asked", "content": content},
            "default": error,
        },
    });
    if operation.path.ends_with("/feedback") {
        described["requestBody"] = json!({"required": true, "content": {"application/json": {
            "schema": {"$ref": "#/components/schemas/Feedback"},
        }}});
    }
    described
}

fn content_type(path: &str) -> &'static str {
    match path {
        "/" => "text/html",
        "/api/v1/events" => "text/event-stream",
        "/api/v1/incidents/{id}/plot.svg" => "image/svg+xml",
        "/api/v1/openapi.json" => "application/json",
        _ => "text/plain",
    }
}

/// A schema kept as text above.
fn schema(text: &str) -> Value {
    serde_json::from_str(text).expect("the schemas are constants, and a test reads them all")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::api::{EVENTS_PATH, routes};

    #[test]
    fn the_description_names_exactly_the_paths_there_are() {
        let described = describe();
        let paths = described["paths"].as_object().expect("an object");
        let described: BTreeSet<&str> = paths.keys().map(String::as_str).collect();
        let mut routed: BTreeSet<&str> = routes().iter().map(|(path, _)| *path).collect();
        routed.insert(EVENTS_PATH);
        assert_eq!(described, routed);
    }
}
