//! Days on which nothing happens: nobody is woken.

use squall::incident::Incident;

use crate::support::quiet::{INTERVAL_SECONDS, Law, day};
use crate::support::replay::{pages, replay};

/// The days: plain failures on some, failures in clumps on others; `make accuracy-null` draws ten
/// thousand.
const SEEDS: std::ops::Range<u64> = 0..3;

/// Incidents that wake a person on the day of this seed.
fn paging(seed: u64) -> Vec<Incident> {
    let found = replay(&day(seed), INTERVAL_SECONDS);
    found.into_iter().filter(pages).collect()
}

#[test]
fn nobody_is_woken_on_a_day_of_noise_gaps_resets_and_plain_failures() {
    let told = |seed| paging(seed).into_iter().map(move |it| it.verdict.summary);
    let woken: Vec<(u64, Law, String)> =
        SEEDS.flat_map(|seed| told(seed).map(move |says| (seed, Law::of(seed), says))).collect();
    assert!(woken.is_empty(), "seeds, what they are like, and what they page for: {woken:#?}");
}
