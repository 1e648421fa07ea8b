//! Where the herd is, if it is not where the traffic is: one caller of several storms.

use super::FINAL_ITERATIONS;
use super::search::Search;
use super::train::Train;

/// Failures of one target that its share of the traffic is worth against what is seen.
const SHARE_PRIOR: f64 = 5.0;
/// Squared deviations of the targets' sums over their variance, a target, past which the herd is
/// not where the traffic is: far past what a wave that some scrapes have not seen yet makes.
const SHARES_DIFFER: f64 = 6.0;

/// The shares of the herd, where they are not those of the traffic: each target's share times what
/// was seen there over what the train expects, shrunk towards one as a gamma prior would.
pub(super) fn shares_of(search: &mut Search<'_>, train: Train, shares: &[f64]) -> Option<Vec<f64>> {
    search.cost(&train, FINAL_ITERATIONS);
    let window = search.window;
    let mut sums = vec![[0.0_f64; 2]; shares.len()];
    for (i, &target) in window.target.iter().enumerate() {
        let [seen, expected] = sums.get_mut(target as usize)?;
        *seen += window.count[i];
        *expected += search.solver.mu[i];
    }
    let (mut chi_squared, mut targets) = (0.0, 0.0);
    for [seen, expected] in sums.iter().filter(|[_, expected]| *expected > SHARE_PRIOR) {
        let variance = window.dispersion * (expected + expected * expected / window.size);
        chi_squared += (seen - expected) * (seen - expected) / variance;
        targets += 1.0;
    }
    if targets < 2.0 || chi_squared < SHARES_DIFFER * targets {
        return None;
    }
    let ratio = |[seen, expected]: &[f64; 2]| (seen + SHARE_PRIOR) / (expected + SHARE_PRIOR);
    // A target that is counted with others of its phase moves with them.
    let moved: Vec<f64> = (0..)
        .zip(shares)
        .map(|(target, share)| {
            let group = window.group_of.get(&target).copied().unwrap_or(target) as usize;
            (share * sums.get(group).map_or(1.0, ratio)).max(1e-9)
        })
        .collect();
    let total: f64 = moved.iter().sum();
    Some(moved.into_iter().map(|share| share / total).collect())
}
