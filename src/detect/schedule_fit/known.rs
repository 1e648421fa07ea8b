//! Known clients against the same counts: which of their schedules explain the storm as well.
//!
//! The parameters of the best train with their intervals say little of what else fits: where the
//! first waves share a scrape, trains of other waits stand far off in every parameter and lose
//! nothing in likelihood. A known client needs no search over its waits: they are fixed, and what
//! is free is when the failure was, how long it lasted, and how long an attempt takes to fail. So each
//! known schedule is fitted by itself, and those that lose little against the best are the honest
//! ties.
//!
//! ```text
//! loss = (cost of the known train - cost of the train that is told) / misfit
//! ```
//!
//! with the cost of search.rs without its prices for unusual waits: being known is the price.

use super::alternatives::smooth_columns;
use super::heights::Columns;
use super::polish::Held;
use super::search::{Scored, Search, height_price};
use super::train::{Growth, Train};
use super::window::Window;
use super::{FINAL_ITERATIONS, FitInput, FitReport};

/// How well the waits of a known client explain the same counts.
#[derive(Debug, Clone, PartialEq)]
pub struct KnownWaits {
    /// Its waits.
    pub waits_seconds: Vec<f64>,
    /// Deviance that they lose against the train that is told, over what that one leaves.
    pub loss: f64,
}

/// What known clients are held against.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Asked {
    /// The train that is told.
    pub(super) told: Train,
    /// Onset and unit of the decay under it, where there is one.
    pub(super) decay: Option<(f64, f64)>,
    /// Deviance per interval of the best train.
    pub(super) misfit: f64,
    /// The shares of the herd, where they are not those of the traffic.
    pub(super) shares: Option<Vec<f64>>,
}

impl FitReport {
    /// Holds the waits of known clients, in seconds, against the counts of the same `input` that was
    /// fitted: [`FitReport::known`] then has those that lose little. Asked again, it keeps its answer.
    pub fn ask_known(&mut self, input: &FitInput<'_>, known: &[Vec<f64>]) {
        let Some(asked) = self.asked.take() else { return };
        let shares = asked.shares.as_deref().unwrap_or(input.shares);
        let window = Window::new(&FitInput { shares, ..*input }, self.channel);
        let mut search = Search::new(&window, input.lists);
        search.misfit = asked.misfit;
        search.extra = asked.decay.map(|(onset, unit)| {
            let mut decay = Columns::default();
            smooth_columns(&window, onset, unit, &mut decay);
            decay
        });
        self.known = search.known(asked.told, known);
    }
}

/// Onsets from which each schedule is tried, over the bracket of the first failure.
const ONSETS: usize = 5;
/// Latencies from which each is tried, seconds.
const LATENCIES: [f64; 2] = [0.0, 0.1];
/// Length of a short failure, seconds, which is tried beside the one that was found.
const SHORT: f64 = 0.12;
/// How many schedules go on to each further stage of refinement, and how far over the best.
const FIELD: [(usize, f64); 2] = [(48, 150.0), (40, 30.0)];
/// Rounds and iterations for those that were as near and not among these: a tie of everybody, as of a
/// single burst, needs no likelihood to the last digit.
const TIED: (usize, usize) = (1, 13);
/// Schedules that are polished at the end.
const POLISHED: usize = 16;
/// Rounds of each refinement, and iterations of its fits.
const ROUNDS: [(usize, usize); 3] = [(2, 7), (3, 13), (2, 22)];
/// Loss that is reported at most: past it no interval would hold the schedule.
pub(super) const LOSS_MAX: f64 = 40.0;
/// What it costs a schedule that goes on if its clients all stopped while the dependency still failed.
const GAVE_UP: f64 = 6.0;
/// Part of the highest wave under which nobody came.
const GONE: f64 = 0.02;
/// How far a timer may be off, as a share of the time since the failure, in the first stage.
const TIMER: f64 = 0.02;

impl<'a> Search<'a> {
    /// How much each of the known schedules loses against `told`, the least first.
    pub(super) fn known(&mut self, told: Train, known: &'a [Vec<f64>]) -> Vec<KnownWaits> {
        // A train at the edge of its bounds may be past them in a window laid out anew.
        if !self.cost(&told, FINAL_ITERATIONS).is_finite() {
            return Vec::new();
        }
        let reference = self.bare_cost();
        let lists = std::mem::replace(&mut self.lists, known);
        let mut field: Vec<Scored> =
            (0..known.len()).filter_map(|list| self.screened_list(list, &told)).collect();
        let mut tied = Vec::new();
        for (stage, (rounds, iterations)) in ROUNDS.into_iter().enumerate() {
            for scored in &mut field {
                *scored = self.seated_list(scored.train, rounds, iterations);
                if stage == 1 && scored.train.width > SHORT {
                    let short = Train { width: SHORT, ..scored.train };
                    let short = self.seated_list(short, rounds, iterations);
                    if short.cost < scored.cost {
                        *scored = short;
                    }
                }
            }
            field.sort_by(|a, b| a.cost.total_cmp(&b.cost));
            if let (Some(&(keep, most)), Some(best)) = (FIELD.get(stage), field.first()) {
                let limit = best.cost + most * self.misfit;
                field.retain(|scored| scored.cost <= limit);
                tied.extend(field.drain(keep.min(field.len())..));
            }
        }
        let (rounds, iterations) = TIED;
        for scored in &mut tied {
            *scored = self.seated_list(scored.train, rounds, iterations);
        }
        // Onset and latency trade against each other, which no walk along single parameters follows.
        for scored in field.iter_mut().take(POLISHED) {
            let cost = self.cost(&scored.train, ROUNDS[2].1);
            scored.train = self.polish(Scored { cost, ..*scored }, Held::Waits).train;
        }
        let mut losses = Vec::with_capacity(field.len() + tied.len());
        for scored in field.into_iter().chain(tied) {
            if !self.list_cost(&scored.train, FINAL_ITERATIONS).is_finite() {
                continue;
            }
            let mut loss = (self.bare_cost() - reference) / self.misfit;
            if self.gave_up_early(&scored.train) {
                loss += GAVE_UP;
            }
            if let Growth::List(list) = scored.train.growth
                && loss <= LOSS_MAX
            {
                losses.push(KnownWaits { waits_seconds: known[list].clone(), loss });
            }
        }
        self.lists = lists;
        losses.sort_by(|a, b| a.loss.total_cmp(&b.loss));
        losses
    }

    /// Whether a further wave was due while everything went on failing, and nobody came.
    fn gave_up_early(&self, train: &Train) -> bool {
        if self.window.outage.is_empty() {
            return false;
        }
        let heights = &self.solver.heights[..self.columns.waves];
        let least = GONE * heights.iter().copied().fold(0.0, f64::max);
        let last = heights.iter().rposition(|height| *height > least).unwrap_or(0);
        let until = self.window.failing_until.min(self.window.horizon) - train.width;
        let mut due = false;
        train.waves(self.window.horizon, self.lists, |wave, start, _, _| {
            due |= wave == last + 1 && start < until;
        });
        due
    }

    /// Deviance and what implausible heights cost, of the last fit.
    fn bare_cost(&self) -> f64 {
        let waves = self.columns.waves.min(self.solver.heights.len());
        self.deviance() + height_price(&self.solver.heights[..waves])
    }

    /// The likeliest start for one schedule.
    fn screened_list(&mut self, list: usize, told: &Train) -> Option<Scored> {
        let first = self.lists[list].first()?;
        let step = self.window.effective_step();
        let mut onsets: Vec<f64> =
            (0..ONSETS).map(|n| self.window.onset_max * (n as f64 + 0.5) / ONSETS as f64).collect();
        onsets.extend([told.onset, told.onset - 0.5 * step, told.onset + 0.5 * step]);
        let mut best: Option<Scored> = None;
        for onset in onsets {
            for latency in LATENCIES.into_iter().chain([told.latency]) {
                let train = Train {
                    growth: Growth::List(list),
                    onset,
                    width: told.width.min(1.0),
                    // Bounds rest on the base; a list has none.
                    base: first.max(1.0),
                    factor: 1.0,
                    cap: f64::INFINITY,
                    latency,
                    spread: 0.0,
                    drain: told.drain,
                };
                let width = train.width.min(self.width_max(&train));
                let train = Train { width, ..train };
                train.screen_columns(
                    self.window,
                    self.lists,
                    [2.0 * TIMER, 1.0, 0.25 * step],
                    &mut self.columns,
                );
                self.evaluations += 1;
                let deviance = self.solver.screen(self.window, &self.columns, ROUNDS[0].1);
                let cost = deviance + height_price(&self.solver.heights);
                if best.is_none_or(|best| cost < best.cost) {
                    best = Some(Scored { train, cost });
                }
            }
        }
        best
    }

    /// Cost of a train of known waits.
    fn list_cost(&mut self, train: &Train, iterations: usize) -> f64 {
        let cost = self.cost(train, iterations);
        if cost.is_finite() { self.bare_cost() } else { cost }
    }

    /// The train with the onset, width, latency and drain that explain most.
    fn seated_list(&mut self, train: Train, rounds: usize, iterations: usize) -> Scored {
        self.walk(train, rounds, |search, next| search.list_cost(next, iterations))
    }
}
