//! Whether all requests stand in the waves that the failures stand in.
//!
//! A dependency that flaps fails in waves of its own, whatever the schedule of those who ask. Then
//! failures come and go while requests come evenly. So the train that was fitted to the failures is
//! held against all requests, with nothing fitted anew: the same heights with their gaps, and the
//! same heights with every wave spread to half-way to its neighbours.

use super::alternatives::smooth_columns;
use super::heights::Columns;
use super::search::Search;
use super::train::Train;
use super::window::Window;
use super::{Channel, FINAL_ITERATIONS, FitInput};

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
