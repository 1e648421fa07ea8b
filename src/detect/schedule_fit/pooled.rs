//! Targets of nearly one phase as one, where there are more than a fit has room for.
//!
//! Sixty targets scraped each second fill a fit within ten seconds, and the storm goes on. Intervals of
//! two targets whose scrapes fall together say what one interval of their sum says, so targets are
//! put in the order of their phases and cut into groups: what is lost is the time between the first and
//! the last scrape of a group, which is a fraction of the scrape interval and no more.
//!
//! # Assumptions, and what happens when they fail
//!
//! * A target keeps its phase. Intervals that do not fall together with the others of their group (after
//!   a missed scrape, or of another length) stay as they are.

use std::collections::BTreeMap;

/// Fewest groups: with fewer the phases that tell waves apart are gone.
const GROUPS_MIN: usize = 4;
/// Part of the scrape interval, over the number of groups, by which an interval's ends may be off its
/// group's.
const OFF_MAX: f64 = 1.5;

/// What one target counted between two scrapes; seconds from the window's origin.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Row {
    pub(super) target: u32,
    pub(super) from: f64,
    pub(super) to: f64,
    pub(super) count: f64,
    /// The target's part of the traffic.
    pub(super) share: f64,
}

/// The rows with targets of nearly one phase put together until there are at most `most`, as far as that
/// is possible; and the target that each one is now counted under, by its number.
pub(super) fn pooled(rows: Vec<Row>, most: usize) -> (Vec<Row>, BTreeMap<u32, u32>) {
    let mut phases: BTreeMap<u32, f64> = BTreeMap::new();
    let mut lengths: Vec<f64> = rows.iter().map(|row| row.to - row.from).collect();
    lengths.sort_by(f64::total_cmp);
    let Some(&length) = lengths.get(lengths.len() / 2) else { return (rows, BTreeMap::new()) };
    for row in &rows {
        phases.insert(row.target, row.to.rem_euclid(length));
    }
    let each = rows.len().div_ceil(phases.len());
    let mut groups = phases.len();
    while groups > GROUPS_MIN && groups * each > most {
        groups = groups.div_ceil(2).max(GROUPS_MIN);
    }
    if groups >= phases.len() {
        return (rows, phases.keys().map(|target| (*target, *target)).collect());
    }
    let mut order: Vec<(f64, u32)> =
        phases.iter().map(|(target, phase)| (*phase, *target)).collect();
    order.sort_by(|a, b| a.0.total_cmp(&b.0));
    let size = order.len().div_ceil(groups);
    // Each target's group, known by its first member, and the phase in the middle of it.
    let mut group_of: BTreeMap<u32, (u32, f64)> = BTreeMap::new();
    for group in order.chunks(size) {
        let middle = 0.5 * (group[0].0 + group[group.len() - 1].0);
        group_of.extend(group.iter().map(|(_, target)| (*target, (group[0].1, middle))));
    }
    let mut merged: BTreeMap<(u32, i64, i64), Row> = BTreeMap::new();
    let mut apart = Vec::new();
    let off_max = OFF_MAX * length / groups as f64;
    for row in rows {
        let (target, middle) = group_of[&row.target];
        let places = [row.from, row.to].map(|at| (at - middle) / length);
        let [from, to] = places.map(f64::round);
        let row = Row { target, ..row };
        if places.iter().any(|place| (place - place.round()).abs() * length > off_max) {
            apart.push(row);
            continue;
        }
        merged
            .entry((target, from as i64, to as i64))
            .and_modify(|sum| {
                let share = sum.share + row.share;
                let part = if share > 0.0 { row.share / share } else { 0.5 };
                sum.from += part * (row.from - sum.from);
                sum.to += part * (row.to - sum.to);
                sum.count += row.count;
                sum.share = share;
            })
            .or_insert(row);
    }
    apart.extend(merged.into_values());
    (apart, group_of.into_iter().map(|(target, (group, _))| (target, group)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sixty seconds of `targets` scraped each second at their own phases, ten counts in each.
    fn rows(targets: u32) -> Vec<Row> {
        let row = |target: u32, second: u32| {
            let from = f64::from(second) + f64::from(target * 37 % targets) / f64::from(targets);
            Row { target, from, to: from + 1.0, count: 10.0, share: 1.0 / f64::from(targets) }
        };
        (0..targets).flat_map(|target| (0..60).map(move |second| row(target, second))).collect()
    }

    #[test]
    fn few_targets_are_left_alone() {
        let (all, group_of) = pooled(rows(4), 100);
        assert_eq!(all, rows(4));
        assert_eq!(group_of.get(&3), Some(&3));
    }

    #[test]
    fn targets_of_one_phase_are_put_together_and_nothing_is_lost() {
        let (all, group_of) = pooled(rows(60), 600);
        assert!(all.len() <= 600 && all.len() >= 480, "{}", all.len());
        let sum: f64 = all.iter().map(|row| row.count).sum();
        assert!((sum - 36_000.0).abs() < 1e-6);
        let seconds: f64 = all.iter().map(|row| row.share * (row.to - row.from)).sum();
        assert!((seconds - 60.0).abs() < 1e-6, "{seconds}");
        assert_eq!(group_of.len(), 60);
        let groups: std::collections::BTreeSet<u32> = all.iter().map(|row| row.target).collect();
        assert_eq!(groups.len(), 8);
    }

    #[test]
    fn an_interval_after_a_missed_scrape_stays_whole() {
        let mut some = rows(60);
        // Target 7 missed the scrape at the end of second 20.
        let second = some.remove(7 * 60 + 21);
        let first = &mut some[7 * 60 + 20];
        (first.to, first.count) = (second.to, 20.0);
        let (all, _) = pooled(some, 600);
        let long: Vec<&Row> = all.iter().filter(|row| row.to - row.from > 1.5).collect();
        assert_eq!(long.len(), 1, "{long:?}");
        assert!((long[0].count - 20.0).abs() < 1e-9);
    }
}
