//! Cases without a storm: whatever looks like one and must not page.

use super::super::scenario::{Calls, Fault, FaultKind, Population, Replicas, Restart};
use super::{CaseKind, Draft};

/// Draws a look-alike; kinds that are storms are left as plain traffic.
pub(super) fn draw(kind: CaseKind, draft: &mut Draft) {
    let (at, interval) = (draft.onset, draft.sampling.interval_seconds);
    match kind {
        CaseKind::OutageWithoutRetries => {
            let long = draft.draws.between(20.0, 180.0).max(2.0 * interval);
            draft.plan().faults.push(Fault::outage(at, long));
            draft.watch_until(at + long);
        }
        CaseKind::Surge => surge(draft, false),
        CaseKind::SurgeWithErrors => surge(draft, true),
        CaseKind::Cron => {
            let every = draft.draws.pick(&[30.0, 60.0, 60.0, 120.0, 300.0]);
            let size = (draft.background * draft.draws.between(1.0, 10.0)).max(20.0) as usize;
            // On the clock's own marks.
            let first = every - draft.scenario.start_unix_seconds % every;
            let within = draft.draws.pick(&[0.5, 2.0, 5.0]);
            pulses(draft, "cron", size, first, within, every);
        }
        CaseKind::Noise => {
            let dispersion = draft.draws.pick(&[10.0, 20.0, 20.0, 40.0]);
            draft.traffic(dispersion);
            let errors = draft.draws.pick(&[0.0, 0.005, 0.02]);
            draft.plan().error_share = errors;
        }
        CaseKind::Resets => {
            draft.scenario.scrape.missed = draft.draws.pick(&[0.02, 0.05, 0.1]);
            for _ in 0..3 {
                let when = draft.draws.between(100.0, draft.scenario.duration_seconds);
                restart(draft, when, 0.0, 0.5, false);
            }
        }
        CaseKind::Deploy => {
            let stagger = draft.draws.between(2.0, 20.0);
            restart(draft, at, stagger, 1.0, true);
            let share = draft.draws.between(0.0, 0.02);
            let long = stagger * draft.sampling.targets as f64 + 5.0;
            let fault = Fault { share, share_end: share, ..Fault::outage(at, long) };
            draft.plan().faults.push(fault);
            draft.scenario.scrape.lazy = draft.draws.chance(0.5);
            draft.watch_until(at + long);
        }
        CaseKind::Autoscaling => {
            let few = draft.sampling.targets.max(1);
            let many = few + few.div_ceil(2);
            let (up, down) = (draft.draws.between(60.0, 180.0), draft.draws.between(200.0, 400.0));
            let mut when = 60.0;
            while when < draft.scenario.duration_seconds {
                draft.scenario.scrape.scale.extend([(when, many), (when + down, few)]);
                when += up + down;
            }
        }
        CaseKind::Staircase => {
            draft.scenario.scrape.flush_seconds = draft.draws.pick(&[5.0, 10.0, 10.0, 30.0, 60.0]);
        }
        CaseKind::PollingInStep => polling(draft),
        CaseKind::Pauses => {
            let every = draft.draws.between(20.0, 90.0);
            let long = draft.draws.between(0.3, 3.0);
            let hold = Fault {
                kind: FaultKind::Hold,
                every_seconds: every,
                ..Fault::outage(draft.draws.between(1.0, 30.0), long)
            };
            draft.plan().faults.push(hold);
        }
        CaseKind::HealthChecks => {
            let every = draft.draws.pick(&[1.0, 5.0, 10.0, 10.0, 30.0]);
            let size = (draft.background * draft.draws.between(0.3, 3.0)).max(10.0) as usize;
            let first = draft.draws.uniform() * every;
            pulses(draft, "health checks", size, first, 0.1, every);
        }
        CaseKind::TokenExpiry => {
            let every = draft.draws.pick(&[240.0, 300.0, 600.0]);
            let size = (draft.background * draft.draws.between(5.0, 40.0)).max(100.0) as usize;
            let first = draft.draws.between(5.0, every);
            pulses(draft, "tokens", size, first, 10.0, every);
        }
        CaseKind::Diurnal => {
            let daily = draft.draws.between(0.5, 0.95);
            draft.scenario.duration_seconds = 7_200.0;
            if let Calls::Stream { daily: depth, .. } = &mut draft.others().calls {
                *depth = daily;
            }
        }
        CaseKind::ReplicaFlips => {
            let every_seconds = draft.draws.between(30.0, 300.0);
            draft.scenario.scrape.replicas = Replicas::Flipping { every_seconds };
            draft.scenario.scrape.duplicated = 0.02;
        }
        CaseKind::ClockJumps => {
            let by = draft.draws.between(-20.0, 40.0);
            draft.scenario.scrape.clock_jumps.push((at, by));
            let hole = draft.draws.between(1.0, 6.0) * interval;
            draft.scenario.scrape.holes.push((at - 200.0, hole));
            draft.scenario.scrape.out_of_order = 0.01;
            draft.scenario.scrape.late = 0.05;
        }
        CaseKind::FlashCrowd => {
            let size = (draft.background * draft.draws.between(10.0, 60.0)) as usize;
            let within = draft.draws.between(1.0, 20.0);
            let crowd = Population::burst(
                "crowd",
                draft.to,
                size,
                at,
                within,
                super::super::policy::RetryPolicy::none(),
            );
            draft.scenario.population(crowd);
            draft.watch_until(at + within);
        }
        _ => {}
    }
}

/// Load that rises by itself; with `errors`, past what the dependency can serve.
fn surge(draft: &mut Draft, errors: bool) {
    let at = draft.onset;
    let times = draft.draws.between(2.0, 8.0);
    let (ramp, hold) = (draft.draws.between(3.0, 60.0), draft.draws.between(60.0, 400.0));
    let calm = draft.background;
    if let Calls::Stream { profile, .. } = &mut draft.others().calls {
        *profile = vec![
            (0.0, calm),
            (at, calm),
            (at + ramp, calm * times),
            (at + ramp + hold, calm * times),
            (at + 2.0 * ramp + hold, calm),
        ];
    }
    if errors {
        // The last tenth or so of the rise is turned away.
        let share = draft.draws.between(0.8, 0.98);
        draft.plan().capacity = calm * times * share;
        draft.plan().queue_seconds = 0.3;
    }
    draft.watch_until(at + 2.0 * ramp + hold);
}

fn pulses(draft: &mut Draft, name: &str, size: usize, first: f64, within: f64, every: f64) {
    let none = super::super::policy::RetryPolicy::none();
    let mut population = Population::burst(name, draft.to, size, first, within, none);
    if let Calls::Burst { every_seconds, times, .. } = &mut population.calls {
        (*every_seconds, *times) = (every, u32::MAX);
    }
    draft.scenario.population(population);
}

fn restart(draft: &mut Draft, at: f64, stagger: f64, share: f64, renamed: bool) {
    let down_seconds = draft.draws.between(0.0, 10.0);
    draft.scenario.scrape.restarts.push(Restart {
        at_seconds: at,
        stagger_seconds: stagger,
        share,
        down_seconds,
        renamed,
        every_seconds: f64::INFINITY,
    });
}

/// Pollers at their own phases whose requests hang in an outage: they are let go together, and stay
/// in step. The excess is zero and every answer is a success.
fn polling(draft: &mut Draft) {
    let at = draft.onset;
    let period = draft.draws.pick(&[10.0, 15.0, 30.0, 60.0]);
    let size = (draft.background * period * draft.draws.between(0.3, 1.0)).max(30.0) as usize;
    let mut pollers = Population::stream("pollers", draft.to, 0.0);
    pollers.calls = Calls::Loop {
        size,
        from_seconds: 0.0,
        until_seconds: f64::INFINITY,
        within_seconds: period,
        pause_seconds: period,
        pause_spread: 0.0,
    };
    let pollers = draft.scenario.population(pollers);
    let hold = Fault {
        kind: FaultKind::Hold,
        hits: vec![pollers],
        ..Fault::outage(at, draft.draws.between(0.8, 1.5) * period)
    };
    draft.plan().faults.push(hold);
    draft.watch_until(at + 6.0 * period);
}
