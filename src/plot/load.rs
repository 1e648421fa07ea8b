//! The observed load on a grid as fine as the data's own resolution, and the view of an incident.

use super::sharpen::{Observed, sharpen};
use crate::series::Timestamp;
use crate::wire::IncidentJson;
use crate::wire::around::{IncrementsJson, SeriesJson};

/// A cell whose targets cover less than this share of the dependency shows a gap.
const COVERAGE_MIN: f64 = 0.2;
/// Share of the highest load over normal, or of the most failures, that is still activity.
const ACTIVE_SHARE: f64 = 0.15;
/// Most cells of a picture.
const CELLS_MAX: f64 = 4000.0;
/// Cells in a scrape interval from which on the overlaps are drawn, and not the counts as they are.
const SHARPER: f64 = 1.9;
/// Finest cell, seconds.
const CELL_SECONDS_MIN: f64 = 0.25;

/// Requests and failures per second in cells of one length.
#[derive(Debug, Clone)]
pub(super) struct Load {
    /// Where the first cell starts.
    pub(super) from: Timestamp,
    /// The length of a cell.
    pub(super) cell_seconds: f64,
    /// The length of the intervals that were counted, the median.
    pub(super) scrape_seconds: f64,
    /// Requests per second, failures per second; none where nothing was scraped.
    pub(super) cells: Vec<Option<(f64, f64)>>,
}

impl Load {
    /// The load of `series`; none where no counts were kept.
    pub(super) fn of(series: &SeriesJson) -> Option<Self> {
        let rows = series.increments.as_ref()?;
        let first = rows.from_seconds.iter().copied().fold(f64::INFINITY, f64::min);
        let last = rows.to_seconds.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let span = last - first;
        if !(span.is_finite() && span > 0.0) {
            return None;
        }
        let model = series.model.as_ref();
        let step = model.map_or(1.0, |model| model.effective_step_seconds.0);
        let step = if step.is_finite() { step } else { 1.0 };
        let cell = step.max(CELL_SECONDS_MIN).max(span / CELLS_MAX);
        let count = index(span / cell - 1e-9) + 1;
        let mut seen = vec![0.0; count];
        let (mut requests, mut errors) = (seen.clone(), seen.clone());
        let (mut all, mut failed) = (Vec::new(), Vec::new());
        let mut lengths = Vec::with_capacity(rows.target.len());
        let shares = shares(rows, series);
        for row in 0..rows.target.len() {
            let (from, to) = (rows.from_seconds[row] - first, rows.to_seconds[row] - first);
            let length = to - from;
            if length <= 0.0 {
                continue;
            }
            let share = shares.get(rows.target[row] as usize).copied().unwrap_or(0.0);
            lengths.push(length);
            let high = index(to / cell).min(count - 1);
            let low = index(from / cell).min(high);
            let mut parts = Vec::with_capacity(high - low + 1);
            for number in low..=high {
                let start = number as f64 * cell;
                let overlap = (to.min(start + cell) - from.max(start)).max(0.0);
                requests[number] += rows.requests[row] * overlap / length;
                errors[number] += rows.errors[row] * overlap / length;
                seen[number] += share * overlap;
                parts.push(share * overlap / cell);
            }
            failed.push(Observed { first: low, parts: parts.clone(), count: rows.errors[row] });
            all.push(Observed { first: low, parts, count: rows.requests[row] });
        }
        // Over the whole dependency, not over what was seen of it.
        let scale = |counts: &mut [f64]| {
            for (counted, seen) in counts.iter_mut().zip(&seen) {
                *counted = if *seen > 0.0 { *counted * cell / seen } else { 0.0 };
            }
        };
        scale(&mut requests);
        scale(&mut errors);
        lengths.sort_by(f64::total_cmp);
        let scrape_seconds = lengths.get(lengths.len() / 2).copied().unwrap_or(cell);
        let is_sharper = scrape_seconds > SHARPER * cell;
        if is_sharper {
            sharpen(&mut requests, &all);
            sharpen(&mut errors, &failed);
        }
        let cells = (0..count)
            .map(|n| {
                let is_seen = seen[n] >= COVERAGE_MIN * cell;
                is_seen.then(|| (requests[n] / cell, errors[n].min(requests[n]) / cell))
            })
            .collect();
        let from = rows.since.0.plus_seconds(first);
        Some(Self { from, cell_seconds: cell, scrape_seconds, cells })
    }

    /// Where the last cell ends.
    pub(super) fn until(&self) -> Timestamp {
        self.from.plus_seconds(self.cells.len() as f64 * self.cell_seconds)
    }

    /// The cells within a span: their start, requests per second, failures per second.
    pub(super) fn within(
        &self,
        from: Timestamp,
        to: Timestamp,
    ) -> impl Iterator<Item = (Timestamp, Option<(f64, f64)>)> {
        (0_u32..)
            .zip(&self.cells)
            .map(|(n, cell)| (self.from.plus_seconds(f64::from(n) * self.cell_seconds), *cell))
            .filter(move |(start, _)| {
                *start >= from.plus_seconds(-self.cell_seconds) && *start < to
            })
    }

    /// When the load was last away from `normal`, as far as was kept.
    pub(super) fn last_active(&self, normal: f64) -> Option<Timestamp> {
        let peak =
            |of: fn(&(f64, f64)) -> f64| self.cells.iter().flatten().map(of).fold(0.0, f64::max);
        let (requests, errors) = (peak(|cell| cell.0), peak(|cell| cell.1));
        let limit = ACTIVE_SHARE.mul_add(requests - normal, normal);
        let last = self.cells.iter().rposition(|cell| {
            cell.is_some_and(|(rate, failed)| rate > limit || failed > ACTIVE_SHARE * errors)
        })?;
        Some(self.from.plus_seconds((last + 1) as f64 * self.cell_seconds))
    }

    /// The highest requests per second within a span.
    pub(super) fn peak(&self, from: Timestamp, to: Timestamp) -> f64 {
        self.within(from, to).filter_map(|(_, cell)| cell).map(|cell| cell.0).fold(0.0, f64::max)
    }
}

/// The share of each target: as learned, or by its counts where it was not.
fn shares(rows: &IncrementsJson, series: &SeriesJson) -> Vec<f64> {
    let targets = rows.target.iter().map(|target| *target as usize + 1).max().unwrap_or(0);
    let learned = series.model.as_ref().map_or(&[][..], |model| &model.shares);
    let mut shares: Vec<f64> = (0..targets)
        .map(|target| learned.get(target).map_or(0.0, |share| share.0))
        .map(|share| if share.is_finite() { share } else { 0.0 })
        .collect();
    if shares.iter().any(|share| *share <= 0.0) {
        let mut seen = vec![false; targets];
        rows.target.iter().for_each(|target| seen[*target as usize] = true);
        let there = seen.iter().filter(|seen| **seen).count().max(1) as f64;
        for (share, seen) in shares.iter_mut().zip(seen) {
            if *share <= 0.0 && seen {
                *share = 1.0 / there;
            }
        }
    }
    let total: f64 = shares.iter().sum();
    shares.iter().map(|share| share / total.max(f64::MIN_POSITIVE)).collect()
}

/// The span that a picture of an incident shows.
pub(super) fn view(incident: &IncidentJson, load: Option<&Load>) -> [Timestamp; 2] {
    let start = incident.started_at.0;
    let open = incident.state != "resolved";
    let next = incident.next_wave_at.filter(|_| open).map(|at| at.0);
    let waves = incident.waves.iter().map(|wave| wave.expected_at.0);
    let mut end = waves.chain(next).max().unwrap_or(start);
    // An incident ends when its hold-off is over; the quiet time behind the last wave shows nothing.
    let quiet = incident.ended_at.map_or(incident.updated_at.0, |at| at.0);
    let active = load.and_then(|load| {
        if open { Some(load.until()) } else { load.last_active(incident.impact.baseline_rate.0) }
    });
    end = end.max(active.unwrap_or(quiet));
    let span = end.seconds_since(start).max(10.0);
    let mut lead = 0.12 * span;
    if let Some(load) = load {
        // Normal traffic must be seen, and a scrape interval of it is the least that can be.
        lead = lead.max(1.5 * load.scrape_seconds).min(start.seconds_since(load.from)).max(0.0);
    }
    [start.plus_seconds(-lead), start.plus_seconds(1.05 * span)]
}

/// A cell's number; negative positions are the first cell.
pub(super) fn index(position: f64) -> usize {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "positions on a bounded grid; the cast saturates"
    )]
    let index = position as usize;
    index
}

#[cfg(test)]
mod tests {
    use super::super::tests::storm;
    use super::*;

    #[test]
    fn the_load_is_what_was_counted() {
        let (_, series) = storm();
        let load = Load::of(&series).unwrap();
        let counted: f64 = series.increments.as_ref().unwrap().requests.iter().sum();
        let drawn: f64 = load.cells.iter().flatten().map(|cell| cell.0 * load.cell_seconds).sum();
        assert!((drawn - counted).abs() < 0.02 * counted, "{drawn} {counted}");
    }

    #[test]
    fn time_without_a_scrape_is_a_gap_and_not_zero() {
        let (_, mut series) = storm();
        let rows = series.increments.as_mut().unwrap();
        let keep: Vec<bool> = rows.to_seconds.iter().map(|to| !(12.0..20.0).contains(to)).collect();
        let mut flags = keep.iter();
        rows.target.retain(|_| *flags.next().unwrap());
        for column in
            [&mut rows.from_seconds, &mut rows.to_seconds, &mut rows.requests, &mut rows.errors]
        {
            let mut flags = keep.iter();
            column.retain(|_| *flags.next().unwrap());
        }
        let load = Load::of(&series).unwrap();
        assert!(load.cells.iter().any(Option::is_none));
        assert!(load.cells.first().unwrap().is_some());
    }
}
