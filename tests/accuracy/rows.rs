//! The rows of a long run on disk, one line of JSON a draw: a run that was broken off goes on.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use squall::sim::random::hash;

/// One line: which sources made it, which draw it is, and what came of it.
#[derive(Serialize, Deserialize)]
struct Line<R> {
    version: String,
    seed: u64,
    #[serde(flatten)]
    row: R,
}

/// The rows of one kind of work that these sources made.
pub(crate) struct Rows<R> {
    path: PathBuf,
    version: String,
    done: BTreeMap<u64, R>,
}

impl<R: Serialize + DeserializeOwned + Send + Sync> Rows<R> {
    /// The rows in `target/accuracy/` of the work of this name; those that other `sources` made, and a
    /// last line that was cut short, are left alone and not counted.
    pub(crate) fn open(name: &str, sources: &[&str]) -> Self {
        let path = Path::new("target/accuracy").join(name).with_extension("jsonl");
        let version = version(sources);
        let text = fs::read_to_string(&path).unwrap_or_default();
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Line<R>>(line).ok());
        let done = lines
            .filter(|line| line.version == version)
            .map(|line| (line.seed, line.row))
            .collect();
        Self { path, version, done }
    }

    /// Starts over, where that was asked for.
    pub(crate) fn renew(&mut self, fresh: bool) {
        if fresh && self.path.exists() {
            fs::remove_file(&self.path).unwrap();
        }
        if fresh {
            self.done.clear();
        }
    }

    /// Makes the rows of the seeds below `count` that are not there yet, on all processors.
    pub(crate) fn work(&mut self, count: u64, make: impl Fn(u64) -> R + Sync) {
        let file = Mutex::new(append(&self.path));
        let made = Mutex::new(Vec::new());
        let next = AtomicU64::new(0);
        let workers = thread::available_parallelism().map_or(1, usize::from);
        thread::scope(|scope| {
            for _ in 0..workers {
                scope.spawn(|| {
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= count {
                            break;
                        }
                        if self.done.contains_key(&seed) {
                            continue;
                        }
                        let line = Line { version: self.version.clone(), seed, row: make(seed) };
                        let text = serde_json::to_string(&line).unwrap() + "\n";
                        file.lock().unwrap().write_all(text.as_bytes()).unwrap();
                        made.lock().unwrap().push((seed, line.row));
                    }
                });
            }
        });
        self.done.extend(made.into_inner().unwrap());
    }

    /// Every row, in the order of the seeds.
    pub(crate) fn sorted(&self) -> Vec<(u64, &R)> {
        self.done.iter().map(|(seed, row)| (*seed, row)).collect()
    }

    /// What the sources are known by.
    pub(crate) fn version(&self) -> &str {
        &self.version
    }
}

/// The file, open for more lines; one that was cut short is ended first.
fn append(path: &Path) -> File {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let cut_short = fs::read(path).is_ok_and(|bytes| bytes.last().is_some_and(|it| *it != b'\n'));
    let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
    if cut_short {
        file.write_all(b"\n").unwrap();
    }
    file
}

/// A hash over the files that decide a row, and over those below the folders among them.
fn version(sources: &[&str]) -> String {
    let mut files = Vec::new();
    for source in sources {
        collect(Path::new(source), &mut files);
    }
    files.sort();
    let state = files.iter().fold(0, |state, file| {
        let text = fs::read_to_string(file).unwrap();
        hash(&text, hash(&file.to_string_lossy(), state))
    });
    format!("{state:016x}")
}

fn collect(path: &Path, files: &mut Vec<PathBuf>) {
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            collect(&entry.unwrap().path(), files);
        }
    } else {
        files.push(path.to_owned());
    }
}

/// The sources of the simulator and of everything from samples to incidents.
macro_rules! core_and {
    ($($own:literal),* $(,)?) => {
        &[
            "Cargo.lock", "rules", "src/classify", "src/classify.rs", "src/detect", "src/detect.rs",
            "src/incident", "src/incident.rs", "src/pipeline", "src/pipeline.rs", "src/rules",
            "src/rules.rs", "src/series", "src/series.rs", "src/sim", "src/sim.rs",
            "tests/it/support/replay.rs", $($own),*
        ]
    };
}
pub(crate) use core_and;

/// Seconds of processor time that this thread has used, where the system says it.
pub(crate) fn cpu_seconds() -> Option<f64> {
    let text = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanoseconds: f64 = text.split_whitespace().next()?.parse().ok()?;
    Some(nanoseconds / 1e9)
}
