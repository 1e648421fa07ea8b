//! `squall rules`: the retry schedules and presets known.

use std::io::Write;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::{Failure, Format};
use crate::classify::matching::{match_waits, says};
use crate::classify::{RuleMatch, advice};
use crate::config;
use crate::rules::Rules;
use crate::rules::policy::seconds;
use crate::rules::preset::Preset;
use crate::rules::schedule::ScheduleRule;

/// Width of a table, the narrowest terminal in use.
const WIDTH: usize = 80;

/// Waits shown of one schedule: enough for every cap of the rules that come with squall.
const WAITS_SHOWN: u32 = 10;

/// Arguments of `squall rules`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Example:
  squall rules match --waits 1,2,4,8")]
pub struct Args {
    /// A rule file, or a folder of them, that joins the rules known. May be repeated.
    #[arg(long = "rules.path", global = true, value_name = "PATH")]
    pub rules_path: Vec<PathBuf>,
    /// What to do.
    #[command(subcommand)]
    pub action: Action,
}

/// What to do with the rules.
#[derive(Debug, Clone, clap::Subcommand)]
pub enum Action {
    /// List the schedules and presets.
    #[command(after_help = "Example:\n  squall rules list --format=json")]
    List {
        /// How to write them.
        #[arg(long, value_enum, default_value = "table")]
        format: Format,
    },
    /// Show one of them.
    #[command(after_help = "Example:\n  squall rules show resilience4j-exponential")]
    Show {
        /// The rule's id.
        id: String,
        /// How to write it.
        #[arg(long, value_enum, default_value = "table")]
        format: Format,
    },
    /// Name the clients whose schedule fits some waits.
    #[command(after_help = "Example:\n  squall rules match --waits 1,2,4,8")]
    Match {
        /// The waits between successive attempts in seconds, separated by commas; a 0 first for an
        /// immediate retry.
        #[arg(long, value_name = "SECONDS", value_delimiter = ',', required = true)]
        waits: Vec<f64>,
        /// How to write them.
        #[arg(long, value_enum, default_value = "table")]
        format: Format,
    },
}

/// Looks the rules up.
///
/// # Errors
///
/// When there is no such rule, or a file of the user's is faulty.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    let rules = load(&args.rules_path)?;
    match &args.action {
        Action::List { format: Format::Json } => {
            let schedules: Vec<Value> =
                rules.schedules().iter().map(|r| schedule_json(r)).collect();
            let presets: Vec<Value> = rules.presets().iter().map(|p| preset_json(p)).collect();
            print_json(out, &json!({"schedules": schedules, "presets": presets}))
        }
        Action::List { format: Format::Table } => list(&rules, out),
        Action::Show { id, format } => show(&rules, id, *format, out),
        Action::Match { waits, format } => matches(&rules, waits, *format, out),
    }
}

/// The rules that come with squall and those under `paths`: files, or folders of `.yaml` and
/// `.yml` files.
///
/// # Errors
///
/// When a path cannot be read, and with every fault of every file.
pub fn load(paths: &[PathBuf]) -> Result<Rules, Failure> {
    let (mut texts, mut faults) = (Vec::new(), Vec::new());
    for path in paths {
        let (found, unreadable) = config::rule_files(path);
        texts.extend(found);
        faults.extend(unreadable.iter().map(|error| super::with_causes(error)));
    }
    let texts = texts.iter().map(|(name, text)| (name.as_str(), text.as_str()));
    match Rules::builtin().with_files(texts) {
        Ok(rules) if faults.is_empty() => return Ok(rules),
        Ok(_) => {}
        Err(found) => faults.extend(found.iter().map(ToString::to_string)),
    }
    Err(Failure::Usage(faults.join("\n")))
}

fn print_json(out: &mut dyn Write, value: &Value) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|cause| Failure::running("cannot write JSON", cause))?;
    Ok(writeln!(out, "{text}")?)
}

fn list(rules: &Rules, out: &mut dyn Write) -> Result<(), Failure> {
    let longest = |ids: &mut dyn Iterator<Item = &str>| ids.map(str::len).max().unwrap_or(0);
    let width = longest(&mut rules.schedules().iter().map(|rule| rule.id.as_str()));
    writeln!(out, "{:width$}  SCHEDULE", "ID")?;
    for rule in rules.schedules() {
        row(out, &rule.id, width, &rule.policy.says())?;
    }
    let width = longest(&mut rules.presets().iter().map(|preset| preset.id.as_str()));
    writeln!(out, "\n{:width$}  PRESET", "ID")?;
    for preset in rules.presets() {
        row(out, &preset.id, width, &preset.name)?;
    }
    writeln!(out, "\n{} schedules, {} presets", rules.schedules().len(), rules.presets().len())?;
    Ok(())
}

fn row(out: &mut dyn Write, id: &str, width: usize, text: &str) -> Result<(), Failure> {
    Ok(writeln!(out, "{id:width$}  {}", cut(text, WIDTH.saturating_sub(width + 2)))?)
}

/// A text in at most `width` characters.
fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(3)).collect();
    format!("{}...", kept.trim_end())
}

fn show(rules: &Rules, id: &str, format: Format, out: &mut dyn Write) -> Result<(), Failure> {
    let schedule = rules.schedule(id);
    let preset = rules.preset(id);
    if schedule.is_none() && preset.is_none() {
        let says = format!("there is no rule `{id}`; `squall rules list` names them all");
        return Err(Failure::plain(says));
    }
    if matches!(format, Format::Json) {
        let value = json!({
            "schedule": schedule.map(|rule| schedule_json(rule)),
            "preset": preset.map(|preset| preset_json(preset)),
        });
        return print_json(out, &value);
    }
    if let Some(rule) = schedule {
        show_schedule(rule, out)?;
    }
    if let Some(preset) = preset {
        if schedule.is_some() {
            writeln!(out)?;
        }
        show_preset(preset, out)?;
    }
    Ok(())
}

fn show_schedule(rule: &ScheduleRule, out: &mut dyn Write) -> Result<(), Failure> {
    writeln!(out, "{} ({}, {})", rule.name, rule.ecosystem, rule.kind.as_str())?;
    field(out, "schedule", &rule.policy.says())?;
    let waits = rule.policy.waits(WAITS_SHOWN);
    let shown: Vec<String> = waits.iter().map(|wait| seconds(*wait)).collect();
    field(out, "waits", &shown.join(", "))?;
    if !rule.policy.is_synchronised() {
        let mut previous = None;
        let mut ranges = Vec::new();
        for (retry, wait) in (1..=5).zip(&waits) {
            if let Some([low, high]) = rule.policy.range(retry, previous) {
                ranges.push(format!("{}..{}", seconds(low), seconds(high)));
            }
            previous = Some(*wait);
        }
        field(out, "drawn from", &ranges.join(", "))?;
        let spread = format!("{:.2} of the gap", rule.policy.jitter_fraction(WAITS_SHOWN));
        let place = advice::where_jitter_is_missing(&rule.policy);
        let place = if place.is_empty() { String::new() } else { format!("; {place}") };
        field(out, "spread", &format!("{spread}{place}"))?;
    }
    field(out, "note", &rule.note)?;
    field(out, "remedy", &rule.remedy)?;
    field(out, "version", &rule.version)?;
    field(out, "reference", &format!("{} ({})", rule.reference, rule.confidence.as_str()))
}

fn show_preset(preset: &Preset, out: &mut dyn Write) -> Result<(), Failure> {
    writeln!(out, "{} (preset, tier {}, {})", preset.name, preset.tier, preset.side.as_str())?;
    field(out, "requests", &preset.requests)?;
    field(out, "errors", preset.errors.as_deref().unwrap_or("none: a flood is never told"))?;
    field(out, "retries", &preset.retries.join(", "))?;
    field(out, "calls", preset.calls.as_deref().unwrap_or_default())?;
    field(out, "breakers", &preset.breakers.join(", "))?;
    field(out, "by", &preset.by.join(", "))?;
    field(out, "client", &preset.client.join(", "))?;
    field(out, "counts", &format!("{}. {}", preset.counts.as_str(), preset.counts_note))?;
    let flush: Vec<String> = preset.flush_seconds.iter().map(|period| seconds(*period)).collect();
    field(out, "flush", &flush.join(", "))?;
    for pitfall in &preset.pitfalls {
        field(out, "pitfall", pitfall)?;
    }
    field(out, "version", &preset.version)?;
    field(out, "reference", &format!("{} ({})", preset.reference, preset.confidence.as_str()))
}

/// A named value, wrapped under itself; nothing where it is empty.
fn field(out: &mut dyn Write, name: &str, text: &str) -> Result<(), Failure> {
    const INDENT: usize = 12;
    if text.is_empty() {
        return Ok(());
    }
    let mut line = format!("{name:INDENT$}");
    let mut empty = true;
    for word in text.split_whitespace() {
        if !empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            writeln!(out, "{line}")?;
            line = " ".repeat(INDENT);
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }
    Ok(writeln!(out, "{line}")?)
}

fn matches(
    rules: &Rules,
    waits: &[f64],
    format: Format,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    if let Some(bad) = waits.iter().find(|wait| !wait.is_finite() || **wait < 0.0) {
        return Err(Failure::Usage(format!("a wait is a number of seconds from 0, got {bad}")));
    }
    let found = match_waits(waits, rules);
    if matches!(format, Format::Json) {
        let matches: Vec<Value> = found.iter().map(|found| match_json(found, rules)).collect();
        return print_json(out, &json!({"matches": matches, "says": says(&found)}));
    }
    let width = found.iter().map(|found| found.rule.len()).max().unwrap_or(0).max(4);
    if !found.is_empty() {
        writeln!(out, "{:width$}  DISTANCE  SCHEDULE", "RULE")?;
    }
    for one in &found {
        let schedule = rules.policy(&one.rule).map(|policy| policy.says()).unwrap_or_default();
        let text = format!("{:8.3}  {schedule}", one.distance);
        row(out, &one.rule, width, &text)?;
    }
    let mut line = String::new();
    for word in says(&found).split_whitespace() {
        if line.chars().count() + 1 + word.chars().count() > WIDTH {
            writeln!(out, "{line}")?;
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    Ok(writeln!(out, "{line}")?)
}

fn match_json(found: &RuleMatch, rules: &Rules) -> Value {
    json!({
        "rule": found.rule,
        "name": found.name,
        "distance": found.distance,
        "schedule": rules.policy(&found.rule).map(|policy| policy.says()),
        "remedy": rules.schedule(&found.rule).map(|rule| rule.remedy.clone()),
    })
}

/// One schedule as the command line writes it.
#[must_use]
pub fn schedule_json(rule: &ScheduleRule) -> Value {
    let policy = &rule.policy;
    json!({
        "id": rule.id,
        "name": rule.name,
        "ecosystem": rule.ecosystem,
        "kind": rule.kind.as_str(),
        "version": rule.version,
        "reference": rule.reference,
        "confidence": rule.confidence.as_str(),
        "note": rule.note,
        "remedy": rule.remedy,
        "schedule": policy.says(),
        "family": policy.family().as_str(),
        "immediate_first_retry": policy.first_retry_is_immediate(),
        "cap_seconds": policy.cap_seconds,
        "attempts_max": policy.attempts_max,
        "jitter": policy.jitter.spread.as_str(),
        "jitter_fraction": policy.jitter_fraction(WAITS_SHOWN),
        "waits_seconds": policy.waits(WAITS_SHOWN),
    })
}

/// One preset as the command line writes it.
#[must_use]
pub fn preset_json(preset: &Preset) -> Value {
    json!({
        "id": preset.id,
        "name": preset.name,
        "tier": preset.tier,
        "side": preset.side.as_str(),
        "version": preset.version,
        "reference": preset.reference,
        "confidence": preset.confidence.as_str(),
        "requests": preset.requests,
        "errors": preset.errors,
        "retries": preset.retries,
        "calls": preset.calls,
        "breakers": preset.breakers,
        "by": preset.by,
        "client": preset.client,
        "counts": preset.counts.as_str(),
        "counts_note": preset.counts_note,
        "counted_at": preset.counted_at.as_str(),
        "probe": preset.probe,
        "flush_seconds": preset.flush_seconds,
        "pitfalls": preset.pitfalls,
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn output(action: Action) -> String {
        let mut out = Vec::new();
        run(&Args { rules_path: Vec::new(), action }, &mut out).expect("a good command");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn tables_fit_eighty_columns() {
        let list = output(Action::List { format: Format::Table });
        let found = output(Action::Match { waits: vec![1.0, 2.0, 4.0], format: Format::Table });
        for line in list.lines().chain(found.lines()) {
            assert!(line.chars().count() <= WIDTH, "{line}");
        }
        assert!(found.contains("node-retry") && found.contains("cannot be told apart"), "{found}");
    }

    #[test]
    fn every_rule_can_be_shown() {
        let rules = Rules::builtin();
        let ids = rules.schedules().iter().map(|rule| rule.id.clone());
        for id in ids.chain(rules.presets().iter().map(|preset| preset.id.clone())) {
            let text = output(Action::Show { id: id.clone(), format: Format::Table });
            assert!(text.contains("reference"), "{id}: {text}");
        }
    }

    #[test]
    fn an_unknown_rule_and_a_bad_wait_are_refused() {
        let mut out = Vec::new();
        let action = Action::Show { id: "nobody".to_owned(), format: Format::Table };
        let failure = run(&Args { rules_path: Vec::new(), action }, &mut out).unwrap_err();
        assert_eq!(failure.exit_code(), 1);
        let action = Action::Match { waits: vec![-1.0], format: Format::Table };
        let failure = run(&Args { rules_path: Vec::new(), action }, &mut out).unwrap_err();
        assert_eq!(failure.exit_code(), 2);
    }

    #[test]
    fn a_folder_of_rules_joins_and_all_its_faults_are_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let own = "id: checkout\nname: Checkout\npolicy: {family: fixed, base: 250ms}\n";
        fs::write(folder.path().join("a.yaml"), own).expect("written");
        let rules = load(&[folder.path().to_owned()]).expect("good rules");
        assert!(rules.schedule("checkout").is_some());
        fs::write(folder.path().join("b.yml"), "id: x\n").expect("written");
        fs::write(folder.path().join("c.yml"), "id: y\n").expect("written");
        let Err(Failure::Usage(told)) = load(&[folder.path().to_owned()]) else { panic!("taken") };
        assert!(told.contains("b.yml") && told.contains("c.yml"), "{told}");
        // A file that cannot be read hides none of them.
        fs::write(folder.path().join("d.yml"), b"\xff").expect("written");
        let Err(Failure::Usage(told)) = load(&[folder.path().to_owned()]) else { panic!("taken") };
        assert!(["b.yml", "c.yml", "d.yml"].iter().all(|it| told.contains(it)), "{told}");
    }
}
