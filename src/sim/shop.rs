//! The shop of the demo: six dependencies, four kinds of retry trouble, two look-alikes, for ever.
//!
//! The troubles come again and again at periods that share no common measure, so that a visitor at
//! any time finds something new on the page, and each incident has ended before the next of its
//! kind begins. The first storm comes half a minute after the start.

use super::policy::{Jitter, RetryPolicy};
use super::scenario::{
    Calls, DependencyPlan, Fault, FaultKind, Guard, KnockDown, Population, Scenario, ScrapePlan,
};

/// Seconds until the first storm: enough quiet traffic for a first baseline at 1 s scrapes.
pub const FIRST_STORM_SECONDS: f64 = 30.0;

/// A year: longer than any demo.
const FOR_EVER_SECONDS: f64 = 31_536_000.0;

/// The shop, to be scraped every second at four targets of each caller. Its first storm comes half a minute after
/// `quiet_seconds` of history, from which a detector can have learnt what is normal.
#[must_use]
pub fn shop(quiet_seconds: f64) -> Scenario {
    let mut shop = Scenario::new("shop", FOR_EVER_SECONDS);
    shop.about = "A shop whose dependencies suffer several kinds of retry trouble.".to_owned();
    shop.scrape = ScrapePlan { interval_seconds: 1.0, targets: 4, ..ScrapePlan::default() };
    let herd = |jitter| RetryPolicy::exponential(1.0, 2.0, 32.0, 7, jitter);
    let at = |seconds: f64| quiet_seconds + seconds;
    let first = at(FIRST_STORM_SECONDS);
    let mut called = |caller, name, rate, size, policy, from, every| {
        trouble(&mut shop, [caller, name], rate, size, policy, from, every);
    };
    called("checkout", "payments", 40.0, 1_200, herd(Jitter::None), first, 420.0);
    called("mobile-app", "sessions", 25.0, 500, RetryPolicy::fixed(10.0, 12), at(150.0), 610.0);
    called("warehouse", "inventory", 40.0, 1_000, herd(Jitter::Full), at(95.0), 530.0);
    // Fails with the others, and does not retry: whom a storm is not to be blamed on.
    let billing = stream("billing", 0, 5.0);
    shop.population(Population { job: "billing".to_owned(), ..billing });
    flood(&mut shop, "search", 60.0, at(70.0), 470.0);
    let catalogue = shop.dependency(healthy("catalogue"));
    let mut visitors = Population::stream("catalogue visitors", catalogue, 60.0);
    visitors.calls = Calls::Stream {
        profile: sales(60.0, at(130.0), 560.0),
        dispersion: 2.0,
        correlation_seconds: 20.0,
        daily: 0.0,
    };
    visitors.job = "web-shop".to_owned();
    shop.population(visitors);
    let reports = shop.dependency(healthy("reports"));
    let job = "back-office".to_owned();
    shop.population(Population { job: job.clone(), ..stream("reports", reports, 20.0) });
    let mut cron = Population::burst("cron", reports, 300, 0.0, 2.0, RetryPolicy::none());
    if let Calls::Burst { every_seconds, times, .. } = &mut cron.calls {
        (*every_seconds, *times) = (60.0, u32::MAX);
    }
    cron.job = job;
    shop.population(cron);
    shop
}

fn healthy(name: &str) -> DependencyPlan {
    DependencyPlan { error_share: 0.0005, ..DependencyPlan::new(name) }
}

fn stream(name: &str, to: usize, rate: f64) -> Population {
    let mut population = Population::stream(&format!("{name} users"), to, rate);
    if let Calls::Stream { dispersion, correlation_seconds, .. } = &mut population.calls {
        (*dispersion, *correlation_seconds) = (1.5, 20.0);
    }
    population
}

/// A dependency that blips, and a herd that knocks it down at each return.
fn trouble(
    shop: &mut Scenario,
    [caller, name]: [&str; 2],
    rate: f64,
    size: usize,
    policy: RetryPolicy,
    at: f64,
    every: f64,
) {
    let burst = size as f64 * 0.12;
    let knock_down = KnockDown { rate: rate * 4.0, burst, down_seconds: 0.4 };
    let to = shop.dependency(DependencyPlan {
        knock_down: Some(knock_down),
        faults: vec![Fault { every_seconds: every, ..Fault::outage(at, 0.4) }],
        ..healthy(name)
    });
    let job = caller.to_owned();
    shop.population(Population { job: job.clone(), ..stream(name, to, rate) });
    let mut herd = Population::burst(&format!("{name} clients"), to, size, at, 0.35, policy);
    if let Calls::Burst { every_seconds, times, .. } = &mut herd.calls {
        (*every_seconds, *times) = (every, u32::MAX);
    }
    herd.job = job;
    shop.population(herd);
}

/// A dependency that slows down now and then, and users who try again at once.
fn flood(shop: &mut Scenario, name: &str, rate: f64, at: f64, every: f64) {
    let slow = Fault {
        kind: FaultKind::Slow { factor: 4.0 },
        every_seconds: every,
        ..Fault::outage(at, 40.0)
    };
    // Somebody sheds the queue two minutes later: all is refused for a moment, and it drains.
    let relief = Fault { every_seconds: every, ..Fault::outage(at + 150.0, 12.0) };
    let to = shop.dependency(DependencyPlan {
        capacity: rate * 2.2,
        queue_seconds: 3.0,
        faults: vec![relief, slow],
        ..healthy(name)
    });
    shop.population(Population {
        retry: RetryPolicy::fixed(0.02, 3),
        timeout_seconds: 1.0,
        guard: Guard::default(),
        job: "web-shop".to_owned(),
        ..stream(name, to, rate)
    });
}

/// A day of sales now and then: `rate`, and four times that for a minute and a half.
fn sales(rate: f64, first: f64, every: f64) -> Vec<(f64, f64)> {
    let mut profile = vec![(0.0, rate)];
    // A week of them; after that the shop is quiet, and its other troubles go on.
    let rounds = (7.0 * 86_400.0 / every) as u32;
    for round in 0..rounds {
        let at = first + every * f64::from(round);
        profile.extend([
            (at, rate),
            (at + 15.0, rate * 4.0),
            (at + 90.0, rate * 4.0),
            (at + 120.0, rate),
        ]);
    }
    profile
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::world::World;
    use super::*;

    #[test]
    fn the_first_storm_comes_after_half_a_minute_and_storms_come_back() {
        let shop = shop(0.0);
        assert!(shop.dependencies.len() >= 6);
        let mut world = World::new(&shop, 1);
        world.advance(900.0);
        let payments = world.truth().timeline("payments").cloned().unwrap_or_default();
        let attempts = |from, to| payments.sum(from, to, |row| row.attempts);
        assert!(attempts(0, 30) < 30 * 80);
        assert!(attempts(30, 32) > 2_000, "{}", attempts(30, 32));
        assert!(attempts(450, 452) > 2_000, "{}", attempts(450, 452));
    }

    #[test]
    fn the_flood_outlives_its_slowdown_and_ends_before_the_next() {
        let mut world = World::new(&shop(0.0), 2);
        world.advance(600.0);
        let search = world.truth().timeline("search").cloned().unwrap_or_default();
        let rate = |from, to| search.sum(from, to, |row| row.attempts) / (to - from) as u64;
        assert!(rate(0, 60) < 90);
        assert!(rate(90, 110) > 120, "{}", rate(90, 110));
        assert!(rate(300, 400) < 90, "{}", rate(300, 400));
    }

    #[test]
    fn every_trouble_shows_at_a_scrape_of_one_second() {
        let mut world = World::new(&shop(0.0), 3);
        world.advance(60.0);
        let callers: BTreeSet<&str> =
            world.series().iter().filter_map(|it| it.labels.get("job")).collect();
        assert_eq!(world.targets().len(), 4 * callers.len());
        // Six dependencies, each with its good and its failing code at each target of its caller.
        assert!(world.series().len() >= 6 * 2 * 4, "{}", world.series().len());
        let of_payments =
            world.series().iter().filter(|it| it.labels.get("dependency") == Some("payments"));
        let callers: BTreeSet<&str> = of_payments.filter_map(|it| it.labels.get("job")).collect();
        assert_eq!(callers, BTreeSet::from(["billing", "checkout"]));
    }
}
