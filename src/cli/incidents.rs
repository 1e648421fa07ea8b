//! `squall incidents`: reads a running daemon over HTTP.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use crate::clock::{Clock, SystemClock};
use crate::incident::Incident;
use crate::store::{csv_header, csv_row, labels_json};
use crate::wire::around::SeriesJson;
use crate::wire::{IncidentJson, rfc3339};

use super::{Failure, Format, report};

mod history;

/// Arguments of `squall incidents`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Example:
  squall incidents list --url=http://127.0.0.1:9797 --state=firing")]
pub struct Args {
    /// Where the daemon listens.
    #[arg(long, global = true, value_name = "URL", default_value = "http://127.0.0.1:9797")]
    pub url: String,
    /// A file that holds `user:password` for a daemon behind basic authentication.
    #[arg(long = "basic-auth-file", global = true, value_name = "FILE")]
    pub basic_auth_file: Option<PathBuf>,
    /// What to do.
    #[command(subcommand)]
    pub action: Action,
}

/// What to do with the incidents.
#[derive(Debug, Clone, clap::Subcommand)]
pub enum Action {
    /// List incidents, newest first.
    #[command(after_help = "Example:\n  squall incidents list --dependency=payments --since=90d")]
    List(Filter),
    /// Show one incident.
    #[command(after_help = "Example:\n  squall incidents show 3f9c2ab1d0e47586")]
    Show {
        /// The incident's id.
        id: String,
        /// How to write it.
        #[arg(long, value_enum, default_value = "table")]
        format: Format,
    },
    /// Write every incident that matches: as one JSON object a line, as CSV, or what people said
    /// of them as labelled cases.
    #[command(after_help = "Example:\n  squall incidents export --since=30d > incidents.jsonl")]
    Export {
        /// Which incidents.
        #[command(flatten)]
        filter: Filter,
        /// The form of the export; `labels` holds those with feedback alone.
        #[arg(long = "as", value_enum, default_value = "jsonl")]
        form: Form,
    },
    /// Count who has the most incidents, worst first.
    #[command(after_help = "Example:\n  squall incidents offenders --by=client --since=90d")]
    Offenders(history::Offenders),
    /// Show how often each class was right, by the feedback of people.
    #[command(after_help = "Example:\n  squall incidents precision --since=90d --step=30d")]
    Precision(history::Precision),
    /// Say whether an incident was right.
    #[command(after_help = "Example:
  squall incidents feedback 3f9c2ab1d0e47586 --verdict=false --note='load test'")]
    Feedback {
        /// The incident's id.
        id: String,
        /// Whether it was a storm at all.
        #[arg(long, value_parser = ["true", "false"])]
        verdict: String,
        /// The class it really was.
        #[arg(long, value_name = "CLASS")]
        class: Option<String>,
        /// In your words.
        #[arg(long, default_value = "")]
        note: String,
    },
}

/// The forms of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Form {
    /// One JSON object a line.
    Jsonl,
    /// CSV with a header.
    Csv,
    /// A JSON list of labels, as a scorer of cases reads it.
    Labels,
}

/// Which incidents.
#[derive(Debug, Clone, clap::Args)]
pub struct Filter {
    /// Only of this dependency.
    #[arg(long)]
    pub dependency: Option<String>,
    /// Only of this class.
    #[arg(long, value_name = "CLASS")]
    pub classification: Option<String>,
    /// Only in this state: pending, firing or resolved.
    #[arg(long)]
    pub state: Option<String>,
    /// Only of this severity: critical, warning or info.
    #[arg(long)]
    pub severity: Option<String>,
    /// Only those whose best match is this rule.
    #[arg(long, value_name = "RULE")]
    pub schedule: Option<String>,
    /// Only those that hold these words.
    #[arg(long, value_name = "WORDS")]
    pub q: Option<String>,
    /// Only those that started at or after this: RFC 3339, or a duration back from now (`-7d`).
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub from: Option<String>,
    /// Only those that started within this long before now: the same as `--from` with a minus.
    #[arg(long, value_name = "DURATION", conflicts_with = "from")]
    pub since: Option<String>,
    /// Only those that started before this.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub to: Option<String>,
    /// At most this many; `export` writes all without it.
    #[arg(long)]
    pub limit: Option<usize>,
    /// How to write them; `export` has `--as` instead.
    #[arg(long, value_enum, default_value = "table")]
    pub format: Format,
}

/// Time the daemon gets for one answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);
/// Incidents asked for at once by `export`.
const PAGE: usize = 500;

/// Asks the daemon.
///
/// # Errors
///
/// When the daemon does not answer or refuses.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    let client = Client::new(args)?;
    super::runtime()?.block_on(async {
        match &args.action {
            Action::List(filter) => client.list(filter, out).await,
            Action::Show { id, format } => client.show(id, *format, out).await,
            Action::Export { filter, form } => client.export(filter, *form, out).await,
            Action::Offenders(asked) => asked.answer(&client, out).await,
            Action::Precision(asked) => asked.answer(&client, out).await,
            Action::Feedback { id, verdict, class, note } => {
                client.feedback(id, verdict, class.as_deref(), note, out).await
            }
        }
    })
}

/// A running daemon, as it is asked.
struct Client {
    http: reqwest::Client,
    url: String,
    credentials: Option<(String, String)>,
}

impl Client {
    fn new(args: &Args) -> Result<Self, Failure> {
        // Chosen once for the program; a second choice is of the same one.
        drop(rustls::crypto::ring::default_provider().install_default());
        let http = reqwest::Client::builder()
            .timeout(ANSWER_TIMEOUT)
            .build()
            .map_err(|cause| Failure::running("cannot set up HTTP", cause))?;
        let credentials = match &args.basic_auth_file {
            None => None,
            Some(file) => {
                let shown = file.display();
                let text = std::fs::read_to_string(file)
                    .map_err(|cause| Failure::running(format!("cannot read `{shown}`"), cause))?;
                let (user, password) =
                    text.trim_end_matches(['\r', '\n']).split_once(':').ok_or_else(|| {
                        Failure::Usage(format!("`{shown}` does not hold `user:password`"))
                    })?;
                Some((user.to_owned(), password.to_owned()))
            }
        };
        Ok(Self { http, url: args.url.trim_end_matches('/').to_owned(), credentials })
    }

    /// Sends a request and gives `data` of its answer.
    async fn ask(&self, request: reqwest::RequestBuilder) -> Result<Value, Failure> {
        let request = match &self.credentials {
            Some((user, password)) => request.basic_auth(user, Some(password)),
            None => request,
        };
        let asking = || format!("cannot ask the daemon at `{}`", self.url);
        let answer = request.send().await.map_err(|cause| Failure::running(asking(), cause))?;
        let status = answer.status();
        let body = answer.text().await.map_err(|cause| Failure::running(asking(), cause))?;
        let mut body: Value = serde_json::from_str(&body).map_err(|cause| {
            Failure::running(format!("the answer of `{}` ({status}) is no JSON", self.url), cause)
        })?;
        if body["status"] == "success" {
            for warning in body["warnings"].as_array().into_iter().flatten() {
                // Standard error may be closed; the answer is what counts.
                drop(writeln!(std::io::stderr(), "squall: warning: {}", text(warning)));
            }
            return Ok(body["data"].take());
        }
        Err(Failure::plain(format!("the daemon refused ({status}): {}", text(&body["error"]))))
    }

    /// `data` of a path of the API.
    async fn get(&self, path: &str, query: &[(&str, String)]) -> Result<Value, Failure> {
        self.ask(self.http.get(format!("{}/api/v1/{path}", self.url)).query(query)).await
    }

    /// One page of incidents and the cursor of the next.
    async fn page(
        &self,
        filter: &Filter,
        limit: usize,
        cursor: Option<&str>,
    ) -> Result<(Vec<Value>, Option<String>), Failure> {
        let mut query = filter.query()?;
        query.push(("limit", limit.to_string()));
        query.extend(cursor.map(|cursor| ("cursor", cursor.to_owned())));
        let mut data = self.get("incidents", &query).await?;
        let next = data["next_cursor"].as_str().map(str::to_owned);
        match data["incidents"].take() {
            Value::Array(incidents) => Ok((incidents, next)),
            _ => Err(Failure::plain("the answer holds no incidents")),
        }
    }

    async fn list(&self, filter: &Filter, out: &mut dyn Write) -> Result<(), Failure> {
        let (incidents, next) = self.page(filter, filter.limit.unwrap_or(100), None).await?;
        if filter.format == Format::Json {
            return json(&serde_json::json!({"incidents": incidents, "next_cursor": next}), out);
        }
        let incidents: Vec<Incident> =
            incidents.into_iter().map(incident_of).collect::<Result<_, _>>()?;
        report::incidents(&incidents, &BTreeMap::new(), out)?;
        if next.is_some() {
            writeln!(out, "\nThere are more: give --limit, or use `squall incidents export`.")?;
        }
        Ok(())
    }

    async fn show(&self, id: &str, format: Format, out: &mut dyn Write) -> Result<(), Failure> {
        let mut data = self.ask(self.http.get(self.incident(id, ""))).await?;
        if format == Format::Json {
            return json(&data, out);
        }
        let series = super::draws().then(|| SeriesJson::deserialize(&data["series"]).ok());
        let seen_before = data["seen_before"].take();
        report::incident(&incident_of(data)?, series.flatten(), out)?;
        history::seen_before(seen_before, out)
    }

    async fn export(
        &self,
        filter: &Filter,
        form: Form,
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        let mut left = filter.limit.unwrap_or(usize::MAX);
        let mut cursor: Option<String> = None;
        let mut judged = Vec::new();
        if form == Form::Csv {
            out.write_all(csv_header().as_bytes())?;
        }
        while left > 0 {
            let (incidents, next) = self.page(filter, PAGE.min(left), cursor.as_deref()).await?;
            left = left.saturating_sub(incidents.len());
            for incident in incidents {
                match form {
                    Form::Jsonl => {
                        serde_json::to_writer(&mut *out, &incident)
                            .map_err(std::io::Error::from)?;
                        writeln!(out)?;
                    }
                    Form::Csv => out.write_all(csv_row(&incident_of(incident)?).as_bytes())?,
                    Form::Labels if incident["feedback"].is_null() => {}
                    Form::Labels => judged.push(incident_of(incident)?),
                }
            }
            match next {
                Some(next) => cursor = Some(next),
                None => break,
            }
        }
        if form == Form::Labels {
            out.write_all(labels_json(&judged).as_bytes())?;
        }
        Ok(())
    }

    async fn feedback(
        &self,
        id: &str,
        verdict: &str,
        class: Option<&str>,
        note: &str,
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        let body = serde_json::json!({"verdict": verdict, "class": class, "note": note});
        self.ask(self.http.post(self.incident(id, "/feedback")).json(&body)).await?;
        writeln!(out, "noted")?;
        Ok(())
    }

    /// The address of an incident; an id holds hexadecimal digits, and anything else is escaped.
    fn incident(&self, id: &str, path: &str) -> String {
        let mut escaped = String::new();
        for byte in id.bytes() {
            if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
                escaped.push(char::from(byte));
            } else {
                escaped.push_str(&format!("%{byte:02X}"));
            }
        }
        format!("{}/api/v1/incidents/{escaped}{path}", self.url)
    }
}

impl Filter {
    /// The parameters of the query.
    fn query(&self) -> Result<Vec<(&'static str, String)>, Failure> {
        let texts = [
            ("dependency", &self.dependency),
            ("classification", &self.classification),
            ("state", &self.state),
            ("severity", &self.severity),
            ("schedule", &self.schedule),
            ("q", &self.q),
        ];
        let mut query: Vec<(&'static str, String)> =
            texts.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))).collect();
        query.extend(history::since(self.since.as_deref())?);
        for (name, value) in [("from", &self.from), ("to", &self.to)] {
            if let Some(text) = value {
                let at = super::instant(text, SystemClock.now()).ok_or_else(|| {
                    Failure::Usage(format!(
                        "--{name} must be RFC 3339 or a duration back from now such as -7d, got `{text}`"
                    ))
                })?;
                query.push((name, rfc3339(at)));
            }
        }
        Ok(query)
    }
}

/// The text of a JSON value, without quotes.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn json(value: &Value, out: &mut dyn Write) -> Result<(), Failure> {
    serde_json::to_writer_pretty(&mut *out, value).map_err(std::io::Error::from)?;
    writeln!(out)?;
    Ok(())
}

fn incident_of(value: Value) -> Result<Incident, Failure> {
    let failed = || "cannot read an incident of the answer".to_owned();
    let wire: IncidentJson =
        serde_json::from_value(value).map_err(|cause| Failure::running(failed(), cause))?;
    Incident::try_from(wire).map_err(|cause| Failure::running(failed(), cause))
}
