//! The train of an incident in a few lines of Unicode blocks, for a terminal of 80 columns.

use super::incident::ABOVE_THE_PEAK;
use super::load::{Load, index, view};
use crate::classify::sentence::{number, seconds};
use crate::series::Timestamp;
use crate::wire::IncidentJson;
use crate::wire::around::SeriesJson;

/// Rows of blocks.
const ROWS: u32 = 5;
/// Columns kept for the scale at the left.
const MARGIN: usize = 9;
/// One eighth of a cell more each.
const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The picture as lines of at most `columns` characters; none where no counts were kept.
///
/// The load stands in blocks over its scale, the failures in one row below (the fuller, the larger
/// the share that failed), and `^` marks where the fitted schedule puts its waves.
#[must_use]
pub fn lines(incident: &IncidentJson, series: &SeriesJson, columns: usize) -> Option<Vec<String>> {
    let load = Load::of(series)?;
    let [from, to] = view(incident, Some(&load));
    let wide = columns.checked_sub(MARGIN).filter(|wide| *wide >= 20)?;
    let span = to.seconds_since(from);
    let column = |at: Timestamp| {
        let position = at.seconds_since(from) / span * wide as f64;
        (position >= 0.0 && position < wide as f64).then(|| index(position))
    };
    // The highest cell of each column; a cell wider than a column fills all that it covers.
    let mut cells: Vec<Option<(f64, f64)>> = vec![None; wide];
    for (start, cell) in load.within(from, to) {
        let Some((requests, errors)) = cell else { continue };
        let first = index((start.seconds_since(from) / span * wide as f64).max(0.0));
        let end = start.plus_seconds(load.cell_seconds).seconds_since(from) / span * wide as f64;
        let last = index(end.ceil().max(1.0)).min(wide);
        for slot in cells.iter_mut().take(last.max(first + 1)).skip(first) {
            let (most, failed) = slot.unwrap_or((0.0, 0.0));
            *slot = Some((most.max(requests), failed.max(errors)));
        }
    }
    let peak = cells.iter().flatten().map(|cell| cell.0).fold(1.0, f64::max);
    let mut out = Vec::new();
    for row in (0..ROWS).rev() {
        let label = match row {
            0 => "0/s".to_owned(),
            _ if row + 1 == ROWS => format!("{}/s", number(peak)),
            _ => String::new(),
        };
        let blocks: String = cells
            .iter()
            .map(|cell| {
                let filled = cell.map_or(0.0, |cell| cell.0 / peak * f64::from(ROWS));
                eighths(filled - f64::from(row))
            })
            .collect();
        out.push(row_of(&label, &blocks));
    }
    let failed: String = cells
        .iter()
        .map(|cell| cell.map_or(' ', |(requests, errors)| eighths(errors / requests.max(1e-9))))
        .collect();
    if failed.trim().is_empty() {
        out.push(row_of("failed", "none"));
    } else {
        out.push(row_of("failed", &failed));
    }
    if !incident.waves.is_empty() {
        let mut marks = vec![' '; wide];
        let mut labels = vec![' '; wide];
        let mut free_from = 0;
        for wave in &incident.waves {
            let Some(at) = column(wave.expected_at.0) else { continue };
            marks[at] = '^';
            let since = wave.expected_at.0.seconds_since(incident.started_at.0).max(0.0);
            let text = seconds(since).replace(' ', "");
            if at >= free_from && at + text.len() <= wide {
                labels.splice(at..at + text.len(), text.chars());
                free_from = at + text.len() + 1;
            }
        }
        if let Some(at) = incident.next_wave_at.and_then(|next| column(next.0))
            && incident.state != "resolved"
        {
            marks[at] = '?';
        }
        out.push(row_of("waves", &marks.into_iter().collect::<String>()));
        out.push(row_of("", &labels.into_iter().collect::<String>()));
    }
    let foot = format!(
        "{} in all, {} a column; {}/s is normal",
        seconds(span),
        seconds(span / wide as f64),
        number(incident.impact.baseline_rate.0)
    );
    out.push(row_of("", &foot));
    let measured = incident.impact.peak_rate.0;
    if measured.is_finite() && peak > ABOVE_THE_PEAK * measured {
        let foot = format!(
            "drawn finer than its peak of {}/s, the mean over a scrape of {}",
            number(measured),
            seconds(load.scrape_seconds)
        );
        out.push(row_of("", &foot));
    }
    Some(out)
}

fn eighths(filled: f64) -> char {
    // What is there at all shows at least a line.
    let eighths = (filled * 8.0).round().clamp(0.0, 8.0);
    let least = if filled > 0.01 { 1.0 } else { 0.0 };
    BLOCKS[index(eighths.max(least)).min(8)]
}

fn row_of(label: &str, text: &str) -> String {
    format!("{label:>width$} {text}", width = MARGIN - 1).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::tests::storm;
    use super::*;

    #[test]
    fn waves_stand_over_their_marks_within_80_columns() {
        let (incident, series) = storm();
        let lines = lines(&incident, &series, 80).unwrap();
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{lines:#?}");
        let top: Vec<char> = lines[usize::try_from(ROWS).unwrap() - 2].chars().collect();
        let marks: Vec<char> = lines.iter().find(|it| it.contains('^')).unwrap().chars().collect();
        for (at, _) in marks.iter().enumerate().filter(|(_, mark)| **mark == '^').skip(2) {
            let near = top[at.saturating_sub(1)..(at + 2).min(top.len())].iter();
            assert!(near.clone().any(|block| BLOCKS[1..].contains(block)), "{lines:#?}");
        }
        assert!(
            lines.iter().any(|line| line.contains("finer than its peak of 1,850/s")),
            "{lines:#?}"
        );
        let troughs = top.iter().filter(|block| **block == ' ').count();
        assert!(troughs > 30, "{lines:#?}");
    }

    #[test]
    fn a_terminal_too_narrow_gets_none() {
        let (incident, series) = storm();
        assert!(lines(&incident, &series, 25).is_none());
        assert!(lines(&incident, &SeriesJson::default(), 80).is_none());
    }
}
