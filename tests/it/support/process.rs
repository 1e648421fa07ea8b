//! Programs that a test starts: ended with the test, whatever happens to it, and their output kept
//! for the moment when something goes wrong.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How often a condition is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A program under test; killed when dropped.
#[derive(Debug)]
pub(crate) struct Program {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Program {
    /// Starts a program whose output goes to `folder/name.log`.
    pub(crate) fn start(name: &str, folder: &Path, command: &mut Command) -> Self {
        let log = folder.join(format!("{name}.log"));
        // Appended, so that a program that is started again keeps its first story.
        let open = || File::options().create(true).append(true).open(&log).expect("a log file");
        let child = command
            .stdin(Stdio::null())
            .stdout(open())
            .stderr(open())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {name} ({command:?}): {error}"));
        Self { name: name.to_owned(), child, log }
    }

    /// What it has written so far.
    pub(crate) fn output(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Whether it has ended by itself.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("a child can be asked").is_some()
    }

    /// Kills it at once, as `kill -9` does, and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        let _already_gone = self.child.kill();
        self.child.wait().expect("a killed child ends");
    }

    /// Asks it to end, as an operator does, and gives its exit code.
    pub(crate) fn terminate(&mut self) -> Option<i32> {
        self.signal("TERM");
        let ended = wait_for(Duration::from_secs(30), || self.child.try_wait().ok().flatten());
        match ended {
            Some(status) => status.code(),
            None => panic!("{} does not end when told to\n{}", self.name, self.output()),
        }
    }

    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal by its name.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .arg(format!("-{name}"))
            .arg(self.child.id().to_string())
            .status()
            .expect("kill can be run");
        assert!(sent.success(), "cannot send {name} to {}", self.name);
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _already_gone = self.child.kill();
        let _nothing_to_wait_for = self.child.wait();
        if std::thread::panicking() {
            let output = self.output();
            let tail: Vec<&str> = output.lines().rev().take(60).collect();
            let tail: Vec<&str> = tail.into_iter().rev().collect();
            eprintln!("---- the last of {}\n{}", self.name, tail.join("\n"));
        }
    }
}

/// A port that is free now. Another process may take it before it is used, which is rare and then
/// shows as a program that cannot listen.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("a bound listener has an address").port()
}

/// Waits until `look` gives something, for at most `limit`.
pub(crate) fn wait_for<T>(limit: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let began = now();
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if began.elapsed() > limit {
            return None;
        }
        pause();
    }
}

/// Waits until `holds`, or fails saying what was waited for.
pub(crate) fn wait_until(what: &str, limit: Duration, mut holds: impl FnMut() -> bool) {
    let held = wait_for(limit, || holds().then_some(()));
    assert!(held.is_some(), "waited {limit:?} in vain until {what}");
}

#[expect(clippy::disallowed_methods, reason = "real programs run in real time")]
fn now() -> Instant {
    Instant::now()
}

/// The pause between two looks: the only one in the tests, and never long enough to rely on.
fn pause() {
    let (_kept, receiver) = std::sync::mpsc::channel::<()>();
    let _always_times_out = receiver.recv_timeout(LOOK_EVERY);
}

/// The binary under test.
pub(crate) fn squall() -> Command {
    Command::new(env!("CARGO_BIN_EXE_squall"))
}
