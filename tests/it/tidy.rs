//! The project's rules about its own source, held as tests.
//!
//! They read text and not meaning: a macro or `use super::super::x` gets past them. They stop the
//! honest mistake, which is all they are for.

use std::fs;
use std::path::{Path, PathBuf};

/// What each module may import from this crate, in the order of the data.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("series", &[]),
    ("clock", &["series"]),
    ("telemetry", &["series"]),
    ("http", &[]),
    ("rules", &["series"]),
    ("source", &["series", "clock", "telemetry", "http"]),
    ("detect", &["series"]),
    ("classify", &["series", "detect", "rules"]),
    ("incident", &["series", "detect", "classify"]),
    ("pipeline", &["series", "detect", "classify", "incident", "rules"]),
    ("wire", &["series", "detect", "classify", "incident", "pipeline"]),
    ("plot", &["series", "classify", "wire"]),
    ("store", &["series", "classify", "incident", "wire", "clock", "telemetry"]),
    ("notify", &["series", "classify", "incident", "wire", "store", "clock", "telemetry", "http"]),
    (
        "api",
        &[
            "series",
            "detect",
            "classify",
            "incident",
            "wire",
            "plot",
            "store",
            "clock",
            "telemetry",
        ],
    ),
    ("sim", &["series", "clock", "rules"]),
];

/// Modules that only `daemon` and `cli` may use: they hold everything together.
const ON_TOP: &[&str] = &["config", "daemon", "cli"];

/// Modules that compute and do nothing else.
const PURE: &[&str] =
    &["series", "rules", "source/decode", "detect", "classify", "incident", "pipeline", "plot"];

/// What a pure module has no use for.
const IMPURE: &[&str] = &[
    "async ",
    ".await",
    "tokio::",
    "reqwest::",
    "sqlx::",
    "axum::",
    "tracing::",
    "SystemTime",
    "Instant",
    "std::fs",
    "std::env",
    "std::net",
    "std::thread",
    "Serialize",
];

/// One door each: the token, and the only places it may stand.
const DOORS: &[(&str, &[&str])] = &[
    ("SystemTime", &["src/clock"]),
    ("std::env", &["src/config", "src/main.rs"]),
    ("axum", &["src/api", "src/sim/serve"]),
    ("sqlx::", &["src/store"]),
    ("reqwest", &["src/http", "src/source/prometheus", "src/notify", "src/cli/incidents"]),
    ("std::process::Command", &[]),
];

/// Longest file, tests included. A longer one hides two subjects.
const LINES_MAX: usize = 600;

#[test]
fn modules_import_only_what_they_may() {
    let mut faults = Vec::new();
    for (module, allowed) in MAY_IMPORT {
        for (path, text) in sources_of(module) {
            for (number, code) in code_lines(&text) {
                for name in crate_names(code) {
                    // `crate::{a, b}` gives an empty name: write one `use` a module.
                    if name != *module && !allowed.contains(&name) {
                        faults.push(format!("{path:?}:{number}: `{module}` uses `crate::{name}`"));
                    }
                }
            }
        }
    }
    report(&faults);
}

#[test]
fn every_module_is_in_the_table_or_on_top() {
    let lib = fs::read_to_string("src/lib.rs").expect("the crate's root");
    let mut faults = Vec::new();
    for line in lib.lines() {
        let Some(name) = line.trim().strip_prefix("pub mod ") else { continue };
        let name = name.trim_end_matches(';');
        if !ON_TOP.contains(&name) && !MAY_IMPORT.iter().any(|(module, _)| *module == name) {
            faults.push(format!("`{name}` has no line in MAY_IMPORT"));
        }
    }
    report(&faults);
}

#[test]
fn pure_modules_are_pure() {
    let mut faults = Vec::new();
    for module in PURE {
        for (path, text) in sources_of(module) {
            for (number, code) in code_lines(without_tests(&path, &text)) {
                if let Some(token) = IMPURE.iter().find(|token| code.contains(**token)) {
                    faults.push(format!("{path:?}:{number}: `{token}` in a pure module"));
                }
            }
        }
    }
    report(&faults);
}

#[test]
fn everything_outside_has_one_door() {
    let mut faults = Vec::new();
    for (path, text) in rust_files(Path::new("src")) {
        let shown = path.to_string_lossy().replace('\\', "/");
        for (number, code) in code_lines(without_tests(&path, &text)) {
            for (token, doors) in DOORS {
                if code.contains(token) && !doors.iter().any(|door| shown.starts_with(door)) {
                    faults.push(format!("{shown}:{number}: `{token}` belongs in {doors:?}"));
                }
            }
        }
    }
    report(&faults);
}

#[test]
fn files_are_short_and_say_what_they_are() {
    let mut faults = Vec::new();
    for root in ["src", "tests", "benches"] {
        for (path, text) in rust_files(Path::new(root)) {
            if !text.starts_with("//! ") {
                faults.push(format!("{path:?}: does not start with a module header"));
            }
            if text.lines().count() > LINES_MAX {
                faults.push(format!("{path:?}: more than {LINES_MAX} lines"));
            }
        }
    }
    report(&faults);
}

#[test]
fn no_test_sleeps_or_is_switched_off() {
    let mut faults = Vec::new();
    for (path, text) in
        rust_files(Path::new("src")).into_iter().chain(rust_files(Path::new("tests")))
    {
        if path.ends_with("tidy.rs") {
            continue;
        }
        for (number, code) in code_lines(&text) {
            for token in ["#[ignore", "#[should_panic", "thread::sleep"] {
                if code.contains(token) {
                    faults.push(format!("{path:?}:{number}: `{token}`"));
                }
            }
        }
    }
    report(&faults);
}

#[test]
fn the_changelog_has_its_format() {
    let text = fs::read_to_string("CHANGELOG.md").expect("a changelog");
    let mut faults = Vec::new();
    if !text.starts_with("# Changelog\n") || !text.contains("\n## [Unreleased]\n") {
        faults.push("CHANGELOG.md: wants `# Changelog` and `## [Unreleased]`".to_owned());
    }
    let kinds = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"];
    for (number, line) in (1..).zip(text.lines()) {
        if let Some(kind) = line.strip_prefix("### ")
            && !kinds.contains(&kind)
        {
            faults.push(format!("CHANGELOG.md:{number}: `{kind}` is none of {kinds:?}"));
        }
    }
    report(&faults);
}

#[test]
fn the_architecture_is_short_and_names_every_module() {
    let text = fs::read_to_string("ARCHITECTURE.md").expect("the architecture");
    let mut faults = Vec::new();
    if text.lines().count() > 200 {
        faults.push("ARCHITECTURE.md: more than 200 lines".to_owned());
    }
    for (module, _) in MAY_IMPORT {
        if !text.contains(&format!("`{module}`")) {
            faults.push(format!("ARCHITECTURE.md: does not name `{module}`"));
        }
    }
    report(&faults);
}

fn report(faults: &[String]) {
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

/// The names after `crate::` in one line of code.
fn crate_names(code: &str) -> impl Iterator<Item = &str> {
    code.split("crate::").skip(1).map(|rest| {
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
        &rest[..end.unwrap_or(rest.len())]
    })
}

/// Numbered lines that are not comments.
fn code_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    (1..).zip(text.lines()).filter(|(_, line)| !line.trim_start().starts_with("//"))
}

/// The part of a file above its inline tests, which may read golden files and wait for things;
/// nothing of a file that is all tests.
fn without_tests<'a>(path: &Path, text: &'a str) -> &'a str {
    if path.file_name().is_some_and(|name| name == "tests.rs") {
        return "";
    }
    text.split("#[cfg(test)]\nmod ").next().unwrap_or(text)
}

/// `src/module.rs` and everything under `src/module/`.
fn sources_of(module: &str) -> Vec<(PathBuf, String)> {
    let stem = Path::new("src").join(module);
    let mut files = rust_files(Path::new("src"));
    files.retain(|(path, _)| path.starts_with(&stem) || *path == stem.with_extension("rs"));
    assert!(!files.is_empty(), "`{module}` is listed here and has no source");
    files
}

fn rust_files(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("a readable entry").path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("a readable file");
            files.push((path, text));
        }
    }
    files.sort();
    files
}
