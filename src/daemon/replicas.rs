//! Which of several replicas watches what.
//!
//! Each says in the record that it lives, and reads who else does; from the same list everybody
//! computes the same owner of every dependency ([`owns`]). A replica that goes is missed after
//! [`MEMBER_TTL`], and what was its own is then read back for an hour and taken up by the others,
//! exactly as after a start. Handing over the state of a pipeline would be quicker and would need
//! the replica that has just died.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::clock::random_fraction;
use crate::incident::DependencyKey;
use crate::series::Labels;
use crate::series::selector::{MatchOp, Matcher, Selector};
use crate::series::table::LabelBuffer;
use crate::store::{MEMBER_TTL, Store, owns};
use crate::telemetry::Chain;

/// How often a replica says that it lives: three times within the time after which it is missed.
const BEAT_EVERY: Duration = Duration::from_secs(5);
/// Values left out of a question by name. More make the question long and save little: whoever has
/// thousands of dependencies has many of each value.
const EXCLUDED_MAX: usize = 1000;

/// The replicas that live, by name, sorted.
pub(crate) type Living = Arc<Vec<String>>;

/// This replica among those that live.
#[derive(Debug, Clone)]
pub(crate) struct Replicas {
    me: Arc<str>,
    living: watch::Receiver<Living>,
}

impl Replicas {
    pub(crate) fn new(me: &str, living: watch::Receiver<Living>) -> Self {
        Self { me: me.into(), living }
    }

    /// What is this replica's as things stand now.
    pub(crate) fn share(&mut self) -> Share {
        Share { me: Arc::clone(&self.me), living: Arc::clone(&self.living.borrow_and_update()) }
    }

    /// Waits until others live than when [`Self::share`] was asked. Cancel-safe.
    pub(crate) async fn changed(&mut self) {
        if self.living.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Says that this replica lives, until told to stop, and who else does.
pub(crate) async fn beat(
    store: Arc<dyn Store>,
    me: String,
    living: watch::Sender<Living>,
    stop: CancellationToken,
) {
    let mut heard = Instant::now();
    loop {
        match tokio::time::timeout(BEAT_EVERY, store.heartbeat(&me)).await {
            Ok(Ok(list)) => {
                // Who was missed has lost its share meanwhile, and may not know: the list is the
                // same again, and what it had open is another's by now.
                let was_missed = heard.elapsed() > MEMBER_TTL;
                heard = Instant::now();
                tell(&living, list, was_missed);
            }
            failed => {
                if let Ok(Err(error)) = failed {
                    tracing::warn!(error = %Chain(&error), "cannot say that this replica lives");
                }
                // The others miss it now. Watching twice is harmless, and watching never is not.
                if heard.elapsed() > MEMBER_TTL {
                    tell(&living, Vec::new(), false);
                }
            }
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            // Not all together: replicas that were started by one command stay apart.
            () = tokio::time::sleep(BEAT_EVERY.mul_f64(0.5f64.mul_add(random_fraction(), 0.5))) => {}
        }
    }
    if tokio::time::timeout(BEAT_EVERY, store.leave(&me)).await.is_err() {
        tracing::warn!("could not take this replica out of the list; it will be missed");
    }
}

/// Tells of a list that is new, or that must be taken as new.
fn tell(living: &watch::Sender<Living>, list: Vec<String>, anew: bool) {
    living.send_if_modified(|known| {
        let is_new = anew || **known != list;
        if is_new {
            tracing::info!(replicas = list.len(), "the work is divided anew");
            *known = Arc::new(list);
        }
        is_new
    });
}

/// What is one replica's among those that lived at one time.
#[derive(Debug, Clone)]
pub(crate) struct Share {
    me: Arc<str>,
    living: Living,
}

impl Share {
    pub(crate) fn owns(&self, dependency: &DependencyKey) -> bool {
        owns(&self.living, &self.me, dependency)
    }

    /// Whether nobody else lives.
    fn is_all(&self) -> bool {
        self.living.len() <= 1
    }
}

/// One watch, narrowed to what is this replica's.
///
/// What is known to be others' is left out of the questions, rather than what is ours asked for:
/// a dependency that nobody knows yet then comes to every replica, and its owner keeps it.
#[derive(Debug)]
pub(crate) struct Narrowed {
    share: Share,
    source: String,
    watch: String,
    by: Vec<String>,
    /// Whether it is ours, for each combination of values met.
    known: HashMap<String, bool>,
    /// For each value of the first label, whether any dependency with it is ours.
    first: BTreeMap<String, bool>,
    /// Leaves out what is known to be others'; none while that has to be found again.
    exclusion: Option<Option<Matcher>>,
    key: String,
}

impl Narrowed {
    pub(crate) fn new(share: Share, source: &str, watch: &str, by: &[String]) -> Self {
        Self {
            share,
            source: source.to_owned(),
            watch: watch.to_owned(),
            by: by.to_vec(),
            known: HashMap::new(),
            first: BTreeMap::new(),
            exclusion: None,
            key: String::new(),
        }
    }

    /// Whether a series belongs to a dependency of ours.
    pub(crate) fn is_ours(&mut self, labels: &LabelBuffer) -> bool {
        if self.share.is_all() {
            return true;
        }
        self.key.clear();
        for name in &self.by {
            self.key.push_str(labels.value(name));
            // No valid text holds it within a value that differs only there.
            self.key.push('\u{0}');
        }
        if let Some(is_ours) = self.known.get(&self.key) {
            return *is_ours;
        }
        let values = self.by.iter().map(|name| (name.as_str(), labels.value(name)));
        let dependency = DependencyKey {
            source: self.source.clone(),
            watch: self.watch.clone(),
            labels: Labels::new(values.filter(|(_, value)| !value.is_empty())),
        };
        let is_ours = self.share.owns(&dependency);
        self.known.insert(self.key.clone(), is_ours);
        if let Some(first) = self.by.first() {
            *self.first.entry(labels.value(first).to_owned()).or_insert(false) |= is_ours;
            self.exclusion = None;
        }
        is_ours
    }

    /// What to ask for instead of all that `whole` selects; none when nothing of it is ours.
    pub(crate) fn question(&mut self, whole: &Selector) -> Option<Selector> {
        if self.share.is_all() {
            return Some(whole.clone());
        }
        let Some(first) = self.by.first() else {
            return self.is_ours(&LabelBuffer::default()).then(|| whole.clone());
        };
        let exclusion = self.exclusion.get_or_insert_with(|| {
            let others: Vec<String> = self
                .first
                .iter()
                .filter(|(value, is_ours)| !**is_ours && !value.is_empty())
                .take(EXCLUDED_MAX)
                .map(|(value, _)| regex::escape(value))
                .collect();
            if others.is_empty() {
                return None;
            }
            Matcher::new(first, MatchOp::NotMatches, others.join("|")).ok()
        });
        Some(match exclusion {
            Some(others) => whole.clone().and(others.clone()),
            None => whole.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(me: &str, living: &[&str]) -> Share {
        Share {
            me: me.into(),
            living: Arc::new(living.iter().map(|name| (*name).to_owned()).collect()),
        }
    }

    fn labels(pairs: &[(&str, &str)]) -> LabelBuffer {
        let mut buffer = LabelBuffer::default();
        for (name, value) in pairs {
            buffer.push(name, value);
        }
        buffer
    }

    fn narrowed(me: &str, living: &[&str], by: &[&str]) -> Narrowed {
        let by: Vec<String> = by.iter().map(|name| (*name).to_owned()).collect();
        Narrowed::new(share(me, living), "main", "http", &by)
    }

    #[test]
    fn of_two_replicas_each_asks_for_its_own_and_for_what_is_new() {
        let both = ["a", "b"];
        let mut replicas = both.map(|me| narrowed(me, &both, &["dependency"]));
        let whole: Selector = "x_total{job=\"shop\"}".parse().unwrap();
        for one in &mut replicas {
            assert_eq!(one.question(&whole).unwrap().to_string(), whole.to_string());
        }
        for n in 0..50 {
            // Characters that mean something in a pattern must not.
            let name = format!("d.{n}|+(x)");
            let series = labels(&[("job", "shop"), ("dependency", &name), ("code", "200")]);
            let [a, b] = &mut replicas;
            assert!(a.is_ours(&series) != b.is_ours(&series), "{name}");
        }
        let asked = replicas.each_mut().map(|one| one.question(&whole).unwrap());
        let selects = |selector: &Selector, name: &str| {
            let labels =
                Labels::new([("__name__", "x_total"), ("job", "shop"), ("dependency", name)]);
            selector.matches(&labels)
        };
        let mut shares = [0, 0];
        for n in 0..50 {
            let name = format!("d.{n}|+(x)");
            let found = [selects(&asked[0], &name), selects(&asked[1], &name)];
            assert!(found[0] != found[1], "{name} is asked for once");
            shares[usize::from(found[1])] += 1;
        }
        assert!(shares.iter().all(|share| *share >= 10), "{shares:?}");
        assert!(asked.iter().all(|selector| selects(selector, "new")));
    }

    #[test]
    fn a_value_that_is_partly_ours_is_asked_for() {
        let both = ["a", "b"];
        let mut one = narrowed("a", &both, &["namespace", "service"]);
        let whole: Selector = "x_total".parse().unwrap();
        let mut ours = 0;
        for n in 0..50 {
            ours += u32::from(
                one.is_ours(&labels(&[("namespace", "shop"), ("service", &n.to_string())])),
            );
        }
        assert!((1..50).contains(&ours));
        assert_eq!(one.question(&whole).unwrap().to_string(), whole.to_string());
    }

    #[test]
    fn a_watch_of_one_dependency_is_asked_for_by_one_replica() {
        let both = ["a", "b"];
        let whole: Selector = "x_total".parse().unwrap();
        let asked = both.map(|me| narrowed(me, &both, &[]).question(&whole).is_some());
        assert!(asked[0] != asked[1], "{asked:?}");
    }

    #[test]
    fn whoever_is_alone_or_hears_of_nobody_watches_everything() {
        for living in [&["a"][..], &[]] {
            let mut one = narrowed("a", living, &["dependency"]);
            assert!((0..20).all(|n| one.is_ours(&labels(&[("dependency", &n.to_string())]))));
        }
    }
}
