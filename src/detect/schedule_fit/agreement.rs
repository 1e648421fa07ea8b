//! Whether all requests stand in the waves that the failures stand in, and as closely.
//!
//! A dependency that flaps fails in waves of its own, whatever the schedule of those who ask. Then
//! failures come and go while requests come evenly. So the train that was fitted to the failures is
//! held against all requests, with nothing fitted anew: the same heights with their gaps, and the
//! same heights with every wave spread to half-way to its neighbours.
//!
//! And a dependency at its limit fails only the middle of each wave: with equal jitter the failures
//! come out narrow where the requests are wide. So a train of narrow waves and one of waves as wide
//! as they like are fitted to all requests as well.

use super::alternatives::smooth_columns;
use super::heights::Columns;
use super::search::{SPREAD_MAX, Search};
use super::train::Train;
use super::window::Window;
use super::{Channel, FINAL_ITERATIONS, FitInput, Smear};

/// Deviance of all requests under the train without its gaps, less that under the train: positive
/// where requests stand in the waves too. `decay` is the onset and unit of the decay under the
/// train, which the search then has as its extra columns.
pub(super) fn agreement(
    search: &mut Search<'_>,
    train: &Train,
    decay: Option<(f64, f64)>,
    input: &FitInput<'_>,
) -> Option<f64> {
    search.cost(train, FINAL_ITERATIONS);
    let heights = search.solver.heights.clone();
    let requests = Window::new(input, Channel::Requests);
    let (mut waves, mut envelope) = (Columns::default(), Columns::default());
    train.columns(&requests, search.lists, &mut waves);
    train.envelope_columns(&requests, search.lists, &mut envelope);
    if waves.len() != envelope.len() {
        return None;
    }
    if let Some((onset, unit)) = decay {
        let mut smooth = Columns::default();
        smooth_columns(&requests, onset, unit, &mut smooth);
        waves.append(&smooth);
        envelope.append(&smooth);
    }
    Some(requests.deviance_of(&envelope, &heights) - requests.deviance_of(&waves, &heights))
}

/// Spread of one wait up to which its wave is narrow: between the 0.115 of twenty per cent either
/// way and the 0.19 of equal jitter.
const NARROW: f64 = 0.14;
/// Where the search for wide waves starts: equal jitter.
const WIDE: f64 = 0.19;

/// How wide the waves of all requests are; without gain where no wider than a herd's.
pub(super) fn smear(train: &Train, decay: Option<(f64, f64)>, input: &FitInput<'_>) -> Smear {
    let requests = Window::new(input, Channel::Requests);
    let mut search = Search::new(&requests, input.lists);
    if let Some((onset, unit)) = decay {
        let mut smooth = Columns::default();
        smooth_columns(&requests, onset, unit, &mut smooth);
        search.extra = Some(smooth);
    }
    search.spread_max = NARROW;
    let narrow = search.refine(Train { spread: train.spread.min(NARROW), ..*train }, 3, 13).train;
    search.spread_max = SPREAD_MAX;
    let wide = search.refine(Train { spread: WIDE, ..narrow }, 3, 13).train;
    let narrow_cost = search.cost(&narrow, FINAL_ITERATIONS);
    let wide_cost = search.cost(&wide, FINAL_ITERATIONS);
    // The requests may end sooner than the failures, and leave no room for waves so long.
    let both = narrow_cost.is_finite() && wide_cost.is_finite();
    if !both || wide.spread <= NARROW {
        return Smear { gain: 0.0, spread: wide.spread };
    }
    let left = search.deviance() / requests.len().max(1) as f64;
    Smear { gain: ((narrow_cost - wide_cost) / left.max(1.0)).max(0.0), spread: wide.spread }
}

impl Window {
    /// The deviance under columns of given heights over the background.
    fn deviance_of(&self, columns: &Columns, heights: &[f64]) -> f64 {
        let mut mu: Vec<f64> = self.exposure.iter().map(|it| it * self.background).collect();
        for (column, height) in heights.iter().enumerate().take(columns.len()) {
            for (i, value) in columns.column(column) {
                mu[i] += height * value;
            }
        }
        self.count.iter().zip(&mu).map(|(&count, &mu)| self.deviance(count, mu)).sum()
    }
}
