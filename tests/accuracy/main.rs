//! How often squall is right, over cases drawn by the simulator: `make accuracy`.
//!
//! ```text
//! accuracy [draws] [N]     cases of every storm and look-alike at every sampling (3,900)
//! accuracy noise [N]       windows of coloured noise, for the p-values (24,000)
//! accuracy null [DAYS]     days without a storm, through the whole pipeline (10,000)
//! accuracy names [N]       a herd for every rule without jitter, at two samplings (each once)
//!   --fresh                forgets the rows of earlier runs of this work
//!   --report FILE          writes the report there as well
//! ```
//!
//! Each draw becomes one line of JSON in `target/accuracy/`, so that a run that was broken off goes
//! on where it stopped: a row counts as long as the sources that decide it are unchanged. The report
//! is over all such rows of all four.
#![expect(clippy::print_stdout, reason = "the figures are what this program is for")]
#![expect(clippy::unwrap_used, reason = "a fault of the program ends it")]
#![expect(clippy::cast_precision_loss, reason = "counts here are far below 2^53")]
#![expect(
    clippy::suboptimal_flops,
    reason = "a fused multiply-add is a library call on the default target"
)]

use std::fmt::Write as _;
use std::fs;

mod cases;
mod names;
mod noise;
mod null;
mod plain;
#[path = "../it/support/quiet.rs"]
mod quiet;
#[path = "../it/support/replay.rs"]
mod replay;
mod report;
mod rows;
mod shares;

use rows::Rows;

/// What a run is asked for.
struct Asked {
    work: String,
    count: Option<u64>,
    fresh: bool,
    report: Option<String>,
}

impl Asked {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut asked = Self { work: "draws".to_owned(), count: None, fresh: false, report: None };
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "draws" | "noise" | "null" | "names" => asked.work = argument,
                "--fresh" => asked.fresh = true,
                "--report" => asked.report = Some(arguments.next().ok_or("--report wants a FILE")?),
                _ => {
                    let count = argument.parse();
                    asked.count = Some(count.map_err(|fault| format!("`{argument}`: {fault}"))?);
                }
            }
        }
        Ok(asked)
    }
}

fn main() {
    let asked = Asked::parse(std::env::args().skip(1)).unwrap();
    let mut cases = Rows::open("rows", cases::SOURCES);
    let mut noises = Rows::open("noise", noise::SOURCES);
    let mut days = Rows::open("null", null::SOURCES);
    let mut named = Rows::open("names", names::SOURCES);
    match asked.work.as_str() {
        "noise" => {
            noises.renew(asked.fresh);
            noises.work(asked.count.unwrap_or(noise::DRAWS), noise::draw);
        }
        "null" => {
            days.renew(asked.fresh);
            days.work(asked.count.unwrap_or(null::DAYS), null::day);
        }
        "names" => {
            named.renew(asked.fresh);
            named.work(asked.count.unwrap_or_else(names::rows), names::draw);
        }
        _ => {
            cases.renew(asked.fresh);
            cases.work(asked.count.unwrap_or(cases::DRAWS), cases::draw);
        }
    }
    let mut text = String::from("# How often squall is right\n\n");
    let sections = [
        report::cases(&cases.sorted(), cases.version()),
        noise::report(&noises.sorted(), noises.version()),
        null::report(&days.sorted(), days.version()),
        names::report(&named.sorted(), named.version()),
    ];
    for section in sections {
        write!(text, "{section}").unwrap();
    }
    print!("{text}");
    if let Some(file) = asked.report {
        fs::write(file, text).unwrap();
    }
}
