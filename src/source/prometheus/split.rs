//! Cutting a question in two when the server says that it is too much.
//!
//! By time while the window is long. A poll's window is short already, so there the series are
//! cut: by one bit of a character near the end of the instance's host, where replicas differ. The
//! two halves are a pattern and its negation, so that no series is in neither, whatever its labels.

use std::time::Duration;

use crate::series::selector::{MatchOp, Matcher, Selector};
use crate::source::{SourceError, Window};

/// Windows shorter than this are not cut by time: they hold a few samples of each series.
const WINDOW_MIN: Duration = Duration::from_secs(120);

/// Characters of a host that a cut looks at, by the bit that tells them apart.
const CHARACTERS: &str = "0123456789abcdefghijklmnopqrstuvwxyz";

/// Bits of a character's index: 36 characters are told apart by six.
const BITS: u32 = 6;

/// Cuts of the series: both of the last two characters, each by all bits.
const CUTS_MAX: u32 = 2 * BITS;

/// One question to the server.
#[derive(Debug, Clone)]
pub(super) struct Question {
    pub(super) selector: Selector,
    pub(super) window: Window,
    /// How often its series have been cut already.
    pub(super) cuts: u32,
}

impl Question {
    /// Two questions that together ask the same, the earlier one first; none when it is as small
    /// as it gets.
    pub(super) fn split(&self, error: &SourceError) -> Option<(Self, Self)> {
        let says_series = match error {
            SourceError::TooExpensive { message, .. } => message.contains("series"),
            _ => false,
        };
        if self.window.length() >= WINDOW_MIN && !says_series {
            let (first, second) = self.window.split();
            let with = |window| Self { window, ..self.clone() };
            return Some((with(first), with(second)));
        }
        if self.cuts >= CUTS_MAX {
            return None;
        }
        let pattern = pattern(self.cuts);
        let with = |op| {
            let matcher = Matcher::new("instance", op, pattern.clone()).ok()?;
            let selector = self.selector.clone().and(matcher);
            Some(Self { selector, window: self.window, cuts: self.cuts + 1 })
        };
        Some((with(MatchOp::Matches)?, with(MatchOp::NotMatches)?))
    }
}

/// Instances whose host has one of half of the characters at its end, or just before it.
fn pattern(cut: u32) -> String {
    let class: String = (0_u32..)
        .zip(CHARACTERS.chars())
        .filter(|(index, _)| index >> (cut % BITS) & 1 == 1)
        .map(|(_, character)| character)
        .collect();
    let after = if cut < BITS { "" } else { "." };
    format!(".*[{class}]{after}(:[0-9]+)?")
}

/// Windows of at most `longest` that meet and together are `window`, the earliest first.
pub(super) fn windows(window: Window, longest: Duration) -> impl Iterator<Item = Window> {
    let mut after = window.after;
    std::iter::from_fn(move || {
        if after >= window.until {
            return None;
        }
        let until = after.plus(longest).min(window.until);
        let part = Window { after, until };
        after = until;
        Some(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::{Labels, Timestamp};

    fn window(seconds: i64) -> Window {
        Window { after: Timestamp::from_millis(0), until: Timestamp::from_millis(seconds * 1000) }
    }

    fn too_much(message: &str) -> SourceError {
        SourceError::TooExpensive { source_name: "main".to_owned(), message: message.to_owned() }
    }

    #[test]
    fn long_windows_are_cut_by_time() {
        let selector: Selector = "x".parse().unwrap();
        let question = Question { selector, window: window(600), cuts: 0 };
        let (first, second) = question.split(&too_much("too many samples")).unwrap();
        assert_eq!(first.window, window(300));
        assert_eq!(second.window.after, first.window.until);
    }

    #[test]
    fn every_series_is_in_exactly_one_part() {
        let selector: Selector = "x".parse().unwrap();
        let mut parts = vec![Question { selector, window: window(30), cuts: 0 }];
        for _ in 0..4 {
            let cut = |part: Question| {
                let (a, b) = part.split(&too_much("too many series")).unwrap();
                [a, b]
            };
            parts = parts.into_iter().flat_map(cut).collect();
        }
        let mut sizes = vec![0; parts.len()];
        for host in 0..256 {
            let instance = format!("10.0.{}.{}:9100", host / 16, host % 16);
            let labels = Labels::new([("__name__", "x"), ("instance", instance.as_str())]);
            let found: Vec<usize> =
                (0..parts.len()).filter(|n| parts[*n].selector.matches(&labels)).collect();
            assert_eq!(found.len(), 1, "{instance}");
            sizes[found[0]] += 1;
        }
        assert!(sizes.iter().filter(|size| **size > 0).count() >= 8, "{sizes:?}");
        let bare = Labels::new([("__name__", "x")]);
        assert_eq!(parts.iter().filter(|part| part.selector.matches(&bare)).count(), 1);
    }

    #[test]
    fn a_question_gets_no_smaller_than_it_can() {
        let selector: Selector = "x".parse().unwrap();
        let question = Question { selector, window: window(30), cuts: CUTS_MAX };
        assert!(question.split(&too_much("too many series")).is_none());
    }

    #[test]
    fn windows_meet_and_cover() {
        let parts: Vec<Window> = windows(window(150), Duration::from_secs(60)).collect();
        assert_eq!(parts.len(), 3);
        assert_eq!(parts[0].after, window(150).after);
        assert!(parts.windows(2).all(|pair| pair[0].until == pair[1].after));
        assert_eq!(parts[2].until, window(150).until);
        assert_eq!(windows(window(0), Duration::from_secs(60)).count(), 0);
    }
}
