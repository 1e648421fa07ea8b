//! A retry policy in its running form: from the retry's number to how long a client waits.
//!
//! A rule file says which law the waits follow; everything that uses a rule (the matcher, the
//! simulator, the listing) needs the waits themselves. They are worked out here and nowhere else,
//! so a client that the simulator plays and a client that the matcher looks for are the same one.
//!
//! # Method
//!
//! Retries are numbered from `n = 1`. With `b` the base, `f` the factor:
//!
//! ```text
//! immediate     w_n = 0
//! fixed         w_n = b
//! exponential   w_n = b * f^(n-1)
//! linear        w_n = b + step * (n-1)
//! polynomial    w_n = offset + b * (start + n - 1)^power
//! list, custom  w_n = the n-th entry, then the last one for ever
//! ```
//!
//! `immediate_retries` shifts this: so many retries come at once, and the law begins after them.
//! The nominal wait is `w_n` held at the cap. A jittered wait is drawn from
//!
//! ```text
//! U(max(lower, s_low * w), max(lower, s_high * w)) + U(seconds) + n * U(seconds_per_retry)
//! ```
//!
//! rounded down to the grid, raised to the floor, and held at the cap again where the library does
//! so after its jitter. Where a library does that, its clients meet again at the cap.
//! `decorrelated` is `min(cap, U(b, 3 * previous))`.

/// Largest number of waits ever listed at once: beyond it a schedule is a period.
const WAITS_MAX: u32 = 10_000;

/// The law of the waits.
#[derive(Debug, Clone, PartialEq)]
pub enum Growth {
    /// No wait at all.
    Immediate,
    /// The same wait every time.
    Fixed {
        /// The wait.
        base_seconds: f64,
    },
    /// Each wait a factor longer.
    Exponential {
        /// The first wait.
        base_seconds: f64,
        /// The growth.
        factor: f64,
    },
    /// Each wait a step longer.
    Linear {
        /// The first wait.
        base_seconds: f64,
        /// What each further wait adds.
        step_seconds: f64,
    },
    /// A power of the retry's number.
    Polynomial {
        /// Added to every wait.
        offset_seconds: f64,
        /// Multiplies the power.
        base_seconds: f64,
        /// The power.
        power: f64,
        /// The number that the first retry counts as.
        start: f64,
    },
    /// Waits one by one, the last of them repeated.
    List {
        /// The waits, at least one.
        waits_seconds: Vec<f64>,
        /// The law in words, where there is one that no other family expresses.
        formula: Option<String>,
    },
    /// The server names the wait (`Retry-After`), the client obeys.
    ServerSent,
}

/// The families a rule file may name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Family {
    /// [`Growth::Immediate`].
    Immediate,
    /// [`Growth::Fixed`].
    Fixed,
    /// [`Growth::Exponential`].
    Exponential,
    /// [`Growth::Linear`].
    Linear,
    /// [`Growth::Polynomial`].
    Polynomial,
    /// [`Growth::List`] that follows no formula.
    List,
    /// [`Growth::List`] that follows a formula of its own.
    Custom,
    /// [`Growth::ServerSent`].
    ServerSent,
}

impl Family {
    /// Every family with its fixed name.
    pub const WORDS: [(&'static str, Self); 8] = [
        ("immediate", Self::Immediate),
        ("fixed", Self::Fixed),
        ("exponential", Self::Exponential),
        ("linear", Self::Linear),
        ("polynomial", Self::Polynomial),
        ("list", Self::List),
        ("custom", Self::Custom),
        ("server-sent", Self::ServerSent),
    ];

    /// The fixed name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        Self::WORDS.iter().find(|(_, family)| *family == self).map_or("", |(word, _)| word)
    }
}

/// Where the cap acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CapOrder {
    /// On the nominal wait; the jitter may go above it.
    BeforeJitter,
    /// On the drawn wait only: clients meet again at the cap.
    AfterJitter,
    /// On both.
    Both,
}

impl CapOrder {
    /// Every order with its fixed name.
    pub const WORDS: [(&'static str, Self); 3] = [
        ("before-jitter", Self::BeforeJitter),
        ("after-jitter", Self::AfterJitter),
        ("both", Self::Both),
    ];
}

/// How the library spreads its clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Spread {
    /// Not at all.
    None,
    /// A factor around 1.
    Proportional,
    /// Half the wait, and up to as much again.
    Equal,
    /// Anywhere from nothing to the whole wait.
    Full,
    /// From the base to three times the previous wait.
    Decorrelated,
    /// A span of seconds on top, whatever the wait.
    Additive,
    /// Some other law; the numbers say which.
    Other,
}

impl Spread {
    /// Every kind with its fixed name.
    pub const WORDS: [(&'static str, Self); 7] = [
        ("none", Self::None),
        ("proportional", Self::Proportional),
        ("equal", Self::Equal),
        ("full", Self::Full),
        ("decorrelated", Self::Decorrelated),
        ("additive", Self::Additive),
        ("other", Self::Other),
    ];

    /// The fixed name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        Self::WORDS.iter().find(|(_, spread)| *spread == self).map_or("", |(word, _)| word)
    }
}

/// The random part of a policy.
#[derive(Debug, Clone, PartialEq)]
pub struct Jitter {
    /// Its kind, for people and for the matcher.
    pub spread: Spread,
    /// Lowest and highest multiple of the wait.
    pub scale: [f64; 2],
    /// Lowest and highest number of seconds added.
    pub seconds: [f64; 2],
    /// The same, times the retry's number.
    pub seconds_per_retry: [f64; 2],
    /// The bottom of the span is never below this.
    pub lower_seconds: f64,
    /// A drawn wait is raised to this: clients that drew less meet here.
    pub floor_seconds: f64,
    /// Drawn waits are rounded down to multiples of this; 0 for no grid.
    pub grid_seconds: f64,
    /// The first retry that has any jitter.
    pub first_retry: u32,
    /// Whether the jitter is gone once the nominal wait stands at the cap.
    pub none_at_cap: bool,
    /// Whether the previous wait as drawn, not as planned, is what grows.
    pub compounds: bool,
    /// Whether a client draws once and keeps its draw.
    pub drawn_once: bool,
}

impl Jitter {
    /// No jitter.
    pub const NONE: Self = Self {
        spread: Spread::None,
        scale: [1.0, 1.0],
        seconds: [0.0, 0.0],
        seconds_per_retry: [0.0, 0.0],
        lower_seconds: 0.0,
        floor_seconds: 0.0,
        grid_seconds: 0.0,
        first_retry: 1,
        none_at_cap: false,
        compounds: false,
        drawn_once: false,
    };

    /// The jitter with a multiple of the wait in `scale`.
    #[must_use]
    pub const fn scaled(spread: Spread, scale: [f64; 2]) -> Self {
        Self { spread, scale, ..Self::NONE }
    }
}

/// What one client does after a failure.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// Retries made at once before the law begins.
    pub immediate_retries: u32,
    /// The law.
    pub growth: Growth,
    /// The longest wait.
    pub cap_seconds: Option<f64>,
    /// Where the cap acts.
    pub cap_order: CapOrder,
    /// Attempts in all, the first included; none for no limit of the library's own.
    pub attempts_max: Option<u32>,
    /// The random part.
    pub jitter: Jitter,
}

impl Policy {
    /// The policy of a growth alone: no cap, no limit, no jitter.
    #[must_use]
    pub const fn new(growth: Growth) -> Self {
        Self {
            immediate_retries: 0,
            growth,
            cap_seconds: None,
            cap_order: CapOrder::BeforeJitter,
            attempts_max: None,
            jitter: Jitter::NONE,
        }
    }

    /// The family of its law.
    #[must_use]
    pub const fn family(&self) -> Family {
        match &self.growth {
            Growth::Immediate => Family::Immediate,
            Growth::Fixed { .. } => Family::Fixed,
            Growth::Exponential { .. } => Family::Exponential,
            Growth::Linear { .. } => Family::Linear,
            Growth::Polynomial { .. } => Family::Polynomial,
            Growth::List { formula: None, .. } => Family::List,
            Growth::List { .. } => Family::Custom,
            Growth::ServerSent => Family::ServerSent,
        }
    }

    /// Retries before it gives up; none for no limit.
    #[must_use]
    pub fn retries_max(&self) -> Option<u32> {
        self.attempts_max.map(|attempts| attempts.saturating_sub(1))
    }

    /// Whether its clients wait at all, on a schedule of their own.
    #[must_use]
    pub fn is_timed(&self) -> bool {
        (1..=self.immediate_retries + 3)
            .any(|retry| self.nominal_wait(retry).is_some_and(|wait| wait > 0.0))
    }

    /// Whether nothing spreads its clients.
    #[must_use]
    pub fn is_synchronised(&self) -> bool {
        self.jitter.spread == Spread::None
    }

    /// Whether the first retry comes at once.
    #[must_use]
    pub fn first_retry_is_immediate(&self) -> bool {
        self.nominal_wait(1).is_some_and(|wait| wait <= 0.0)
    }

    /// The planned wait before retry `retry`, counted from 1; none once it has given up, or where
    /// the server decides.
    #[must_use]
    pub fn nominal_wait(&self, retry: u32) -> Option<f64> {
        if retry == 0 || self.retries_max().is_some_and(|retries| retry > retries) {
            return None;
        }
        if matches!(self.growth, Growth::ServerSent) {
            return None;
        }
        if retry <= self.immediate_retries {
            return Some(0.0);
        }
        let wait = self.law(retry - self.immediate_retries).min(self.cap());
        Some(wait.max(self.jitter.lower_seconds).max(self.jitter.floor_seconds))
    }

    /// The planned waits of the first `count` retries, fewer when it gives up before.
    ///
    /// ```
    /// use squall::rules::policy::{Growth, Policy};
    ///
    /// let mut policy = Policy::new(Growth::Exponential { base_seconds: 1.0, factor: 2.0 });
    /// policy.cap_seconds = Some(5.0);
    /// policy.attempts_max = Some(6);
    /// assert_eq!(policy.waits(3), [1.0, 2.0, 4.0]);
    /// assert_eq!(policy.waits(100), [1.0, 2.0, 4.0, 5.0, 5.0]);
    /// ```
    #[must_use]
    pub fn waits(&self, count: u32) -> Vec<f64> {
        (1..=count.min(WAITS_MAX)).map_while(|retry| self.nominal_wait(retry)).collect()
    }

    /// As [`Policy::waits`], without those of no length: immediate retries melt into the attempt
    /// before.
    #[must_use]
    pub fn timed_waits(&self, count: u32) -> Vec<f64> {
        self.waits(count).into_iter().filter(|wait| *wait > 0.0).collect()
    }

    /// The shortest and the longest wait that a client may draw before retry `retry`, when its
    /// previous wait was `previous_seconds` (the base, before the first).
    #[must_use]
    pub fn range(&self, retry: u32, previous_seconds: Option<f64>) -> Option<[f64; 2]> {
        Some([
            self.draw(retry, previous_seconds, 0.0)?,
            // The open end: a draw of 1 itself never happens, and on a grid it would count double.
            self.draw(retry, previous_seconds, 1.0 - 1e-9)?,
        ])
    }

    /// The wait before retry `retry` for a uniform draw `unit` in [0, 1); none when it has given up.
    ///
    /// A client whose jitter is drawn once passes the same `unit` for every retry.
    #[must_use]
    pub fn draw(&self, retry: u32, previous_seconds: Option<f64>, unit: f64) -> Option<f64> {
        let nominal = self.nominal_wait(retry)?;
        let jitter = &self.jitter;
        if retry <= self.immediate_retries
            || retry < jitter.first_retry
            || (jitter.spread == Spread::None)
        {
            return Some(nominal);
        }
        let timed = retry - self.immediate_retries;
        let cap = self.cap();
        if jitter.none_at_cap && self.law(timed) >= cap {
            return Some(cap);
        }
        let between = |[low, high]: [f64; 2]| (high - low).mul_add(unit, low);
        if jitter.spread == Spread::Decorrelated {
            let base = self.law(1);
            let previous = previous_seconds.unwrap_or(base).max(base);
            return Some(between([base, 3.0 * previous]).min(cap));
        }
        let mut planned = self.law(timed);
        if jitter.compounds
            && timed > 1
            && let (Some(previous), Growth::Exponential { factor, .. }) =
                (previous_seconds, &self.growth)
        {
            planned = previous * factor;
        }
        if self.cap_order != CapOrder::AfterJitter {
            planned = planned.min(cap);
        }
        let low = (jitter.scale[0] * planned).max(jitter.lower_seconds);
        let high = (jitter.scale[1] * planned).max(low);
        let mut wait = f64::from(timed).mul_add(
            between(jitter.seconds_per_retry),
            between([low, high]) + between(jitter.seconds),
        );
        if jitter.grid_seconds > 0.0 {
            // A hair above, so that a whole multiple stays itself in binary fractions.
            wait = (wait / jitter.grid_seconds + 1e-9).floor() * jitter.grid_seconds;
        }
        if self.cap_order != CapOrder::BeforeJitter {
            wait = wait.min(cap);
        }
        Some(wait.max(jitter.floor_seconds).max(0.0))
    }

    /// The spread of its waves against the gap before them, standard deviation over mean, the
    /// median over the first `waves` timed retries. 0 none, 0.13 at +-20 %, 0.22 equal, 0.67 full
    /// for a doubling schedule.
    #[must_use]
    pub fn jitter_fraction(&self, waves: u32) -> f64 {
        let mut variance = 0.0;
        let mut previous = None;
        let mut fractions = Vec::new();
        for retry in 1..=waves.saturating_add(self.immediate_retries).min(WAITS_MAX) {
            let Some([low, high]) = self.range(retry, previous) else { break };
            let middle = f64::midpoint(low, high);
            previous = Some(middle);
            // Variance of a uniform distribution; what was drawn before is carried along.
            let here = (high - low).powi(2) / 12.0;
            variance = if self.jitter.drawn_once { here.max(variance) } else { variance + here };
            if middle > 0.0 {
                fractions.push(variance.sqrt() / middle);
            }
        }
        fractions.sort_by(f64::total_cmp);
        fractions.get(fractions.len() / 2).copied().unwrap_or(0.0)
    }

    /// The policy in one line for people: `30ms x2 up to 5s, no limit, no jitter`.
    #[must_use]
    pub fn says(&self) -> String {
        let at_once = match self.immediate_retries {
            0 => String::new(),
            1 => "at once, then ".to_owned(),
            many => format!("{many} times at once, then "),
        };
        let law = match &self.growth {
            Growth::Immediate => "no wait".to_owned(),
            Growth::Fixed { base_seconds } => format!("{} fixed", seconds(*base_seconds)),
            Growth::Exponential { base_seconds, factor } => {
                format!("{} x{factor}", seconds(*base_seconds))
            }
            Growth::Linear { base_seconds, step_seconds } => {
                format!("{} +{}", seconds(*base_seconds), seconds(*step_seconds))
            }
            Growth::Polynomial { offset_seconds, base_seconds, power, start } => {
                let number = if *start > 0.5 { "n" } else { "(n-1)" };
                let power = format!("{} * {number}^{power}", seconds(*base_seconds));
                match *offset_seconds {
                    offset if offset > 0.0 => format!("{} + {power}", seconds(offset)),
                    _ => power,
                }
            }
            Growth::List { waits_seconds, .. } => {
                let shown: Vec<String> =
                    waits_seconds.iter().take(6).map(|w| seconds(*w)).collect();
                let more = if waits_seconds.len() > 6 { ", ..." } else { "" };
                format!("{}{more}", shown.join(", "))
            }
            Growth::ServerSent => "as long as the server says".to_owned(),
        };
        let cap = match self.cap_seconds {
            Some(cap) if !matches!(self.growth, Growth::Fixed { .. }) => {
                format!(" up to {}", seconds(cap))
            }
            _ => String::new(),
        };
        let limit = match self.retries_max() {
            None => "no limit".to_owned(),
            Some(1) => "1 retry".to_owned(),
            Some(retries) => format!("{retries} retries"),
        };
        let jitter = match self.jitter.spread {
            Spread::None => "no",
            spread => spread.as_str(),
        };
        format!("{at_once}{law}{cap}, {limit}, {jitter} jitter")
    }

    fn cap(&self) -> f64 {
        self.cap_seconds.unwrap_or(f64::INFINITY)
    }

    /// The law at its own retry `n`, from 1, before the cap. Finite: growth stops at a year.
    fn law(&self, n: u32) -> f64 {
        const LONGEST_SECONDS: f64 = 31_536_000.0;
        let index = f64::from(n.max(1) - 1);
        let wait = match &self.growth {
            Growth::Immediate | Growth::ServerSent => 0.0,
            Growth::Fixed { base_seconds } => *base_seconds,
            Growth::Exponential { base_seconds, factor } => base_seconds * factor.powf(index),
            Growth::Linear { base_seconds, step_seconds } => {
                step_seconds.mul_add(index, *base_seconds)
            }
            Growth::Polynomial { offset_seconds, base_seconds, power, start } => {
                base_seconds.mul_add((start + index).powf(*power), *offset_seconds)
            }
            Growth::List { waits_seconds, .. } => {
                let last = waits_seconds.len().saturating_sub(1);
                let at = usize::try_from(n.max(1) - 1).unwrap_or(last).min(last);
                waits_seconds.get(at).copied().unwrap_or(0.0)
            }
        };
        wait.min(LONGEST_SECONDS)
    }
}

/// Seconds for people: `30ms`, `1.5s`, `2m`, `3h`.
#[must_use]
pub fn seconds(value: f64) -> String {
    let round = |value: f64| {
        let text = format!("{value:.3}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    // A whole number of the larger unit reads better; 90 s does not become 1.5 m.
    let whole = |unit: f64| value >= 2.0 * unit && (value / unit).fract() < 1e-9;
    if value > 0.0 && value < 1.0 {
        format!("{}ms", round(value * 1000.0))
    } else if whole(3600.0) {
        format!("{}h", round(value / 3600.0))
    } else if whole(60.0) {
        format!("{}m", round(value / 60.0))
    } else {
        format!("{}s", round(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exponential(base_seconds: f64, factor: f64) -> Policy {
        Policy::new(Growth::Exponential { base_seconds, factor })
    }

    fn close(got: f64, want: f64) {
        assert!((got - want).abs() <= 1e-6 * want.abs().max(1.0), "got {got}, want {want}");
    }

    #[test]
    fn immediate_retries_shift_the_law_and_count_as_attempts() {
        let mut policy = exponential(1.6, 2.0);
        policy.immediate_retries = 1;
        policy.attempts_max = Some(4);
        assert_eq!(policy.waits(9), [0.0, 1.6, 3.2]);
        assert!(policy.first_retry_is_immediate() && policy.is_timed());
    }

    #[test]
    fn the_spread_is_what_the_textbook_says_for_a_doubling_schedule() {
        for (spread, scale, want) in [
            (Spread::None, [1.0, 1.0], 0.0),
            (Spread::Proportional, [0.8, 1.2], 0.13),
            (Spread::Equal, [0.5, 1.0], 0.22),
            (Spread::Full, [0.0, 1.0], 0.67),
        ] {
            let mut policy = exponential(1.0, 2.0);
            policy.jitter = Jitter::scaled(spread, scale);
            let got = policy.jitter_fraction(8);
            assert!((got - want).abs() < 0.01, "{spread:?}: {got}");
        }
    }

    #[test]
    fn a_cap_after_the_jitter_brings_clients_together() {
        let mut policy = exponential(1.0, 2.0);
        policy.cap_seconds = Some(5.0);
        policy.cap_order = CapOrder::AfterJitter;
        policy.jitter = Jitter::scaled(Spread::Proportional, [0.5, 1.5]);
        let [low, high] = policy.range(5, None).unwrap();
        close(low, 5.0);
        close(high, 5.0);
        policy.cap_order = CapOrder::BeforeJitter;
        let [low, high] = policy.range(5, None).unwrap();
        close(low, 2.5);
        close(high, 7.5);
    }

    #[test]
    fn a_floor_swallows_the_jitter_of_the_first_wait() {
        let mut policy = exponential(0.5, 2.0);
        policy.jitter = Jitter { floor_seconds: 0.5, ..Jitter::scaled(Spread::Other, [0.5, 1.0]) };
        assert_eq!(policy.range(1, None), Some([0.5, 0.5]));
        close(policy.range(2, None).unwrap()[0], 0.5);
    }

    #[test]
    fn waits_never_overflow() {
        let policy = exponential(1.0, 10.0);
        assert!(policy.nominal_wait(10_000).unwrap().is_finite());
    }

    #[test]
    fn people_read_units() {
        let read = [0.0, 0.0005, 0.03, 1.5, 90.0, 120.0, 10_800.0].map(seconds);
        assert_eq!(read, ["0s", "0.5ms", "30ms", "1.5s", "90s", "2m", "3h"]);
    }
}
