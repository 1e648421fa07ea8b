//! The load at the resolution of all targets together, finer than one scrape interval.
//!
//! Twenty targets scraped every 15 s give a count that ends somewhere every 0.75 s, but each count
//! covers 15 s. Spread evenly over its interval it smears a wave of one second over fifteen; the
//! waves that the fit sees in the overlaps cannot be seen in such a picture. What is drawn is the
//! load that makes the counts most likely, and it is never negative.
//!
//! # Method
//!
//! With `l_c` the requests in cell `c`, `w_i` the share of the target and `a_ic` the part of the
//! cell that interval `i` covers, `count_i` is Poisson with mean `sum_c w_i a_ic l_c`. The
//! multiplicative step
//!
//! ```text
//! l_c <- l_c * ( sum_i w_i a_ic count_i / mean_i ) / ( sum_i w_i a_ic )
//! ```
//!
//! never lowers the likelihood \[Shepp and Vardi 1982\]. It starts at the smeared load and stops
//! after [`STEPS`]: run to its end it would draw single cells out of the noise.
//!
//! # References
//!
//! * L. A. Shepp, Y. Vardi. Maximum likelihood reconstruction for emission tomography. *IEEE
//!   Transactions on Medical Imaging* 1(2), 113-122, 1982. <https://doi.org/10.1109/TMI.1982.4307558>

/// Steps taken: waves stand apart after some twenty, and noise begins to after some hundred.
const STEPS: usize = 40;
/// Most products of intervals and cells in one step: some milliseconds in all.
const WORK_MAX: usize = 60_000;

/// One count and the cells it covers.
#[derive(Debug, Clone)]
pub(super) struct Observed {
    /// The first cell.
    pub(super) first: usize,
    /// The share of the target times the covered part, for each cell from the first on.
    pub(super) parts: Vec<f64>,
    /// What was counted.
    pub(super) count: f64,
}

/// Makes `cells`, the counts as they are smeared, sharper.
pub(super) fn sharpen(cells: &mut [f64], observed: &[Observed]) {
    let work: usize = observed.iter().map(|it| it.parts.len()).sum();
    if work > WORK_MAX {
        return;
    }
    let mut weights = vec![0.0; cells.len()];
    for it in observed {
        for (weight, part) in weights[it.first..].iter_mut().zip(&it.parts) {
            *weight += part;
        }
    }
    // A cell at nothing would stay there.
    let floor = cells.iter().copied().fold(0.0, f64::max) * 1e-6;
    for cell in cells.iter_mut() {
        *cell = cell.max(floor);
    }
    let mut factors = vec![0.0; cells.len()];
    for _ in 0..STEPS {
        factors.fill(0.0);
        for it in observed {
            let covered = cells[it.first..].iter().zip(&it.parts);
            let mean: f64 = covered.map(|(cell, part)| cell * part).sum();
            if mean > 0.0 {
                let ratio = it.count / mean;
                for (factor, part) in factors[it.first..].iter_mut().zip(&it.parts) {
                    *factor += part * ratio;
                }
            }
        }
        for ((cell, factor), weight) in cells.iter_mut().zip(&factors).zip(&weights) {
            if *weight > 0.0 {
                *cell *= factor / weight;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten targets scraped every ten cells, one cell after another.
    fn overlapping(truth: &[f64]) -> Vec<Observed> {
        let starts = (0..truth.len() - 9).map(|first| {
            let count: f64 = truth[first..first + 10].iter().sum();
            Observed { first, parts: vec![0.1; 10], count: count * 0.1 }
        });
        starts.collect()
    }

    #[test]
    fn waves_within_one_interval_stand_apart_and_no_count_is_lost() {
        let mut truth = vec![5.0; 100];
        (truth[40], truth[46]) = (200.0, 150.0);
        let mut cells = vec![8.4; 100];
        sharpen(&mut cells, &overlapping(&truth));
        let near = |at: usize| cells[at - 1..=at + 1].iter().sum::<f64>();
        assert!(near(40) > 120.0 && near(46) > 90.0, "{cells:.0?}");
        assert!(cells[43] < 25.0, "{cells:.0?}");
        let (found, all) = (cells[20..80].iter().sum::<f64>(), truth[20..80].iter().sum::<f64>());
        assert!((found - all).abs() < 0.05 * all, "{found} {all}");
    }

    #[test]
    fn a_level_stays_a_level() {
        let truth = vec![7.0; 60];
        let mut cells = vec![7.0; 60];
        sharpen(&mut cells, &overlapping(&truth));
        assert!(cells.iter().all(|cell| (cell - 7.0).abs() < 1e-9));
    }
}
