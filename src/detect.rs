//! The statistics, one a file, and the evidence they give.
//!
//! Each detector is a pure function over intervals and a baseline. None knows a class: what the
//! numbers mean is for `classify` to say.

pub mod baseline;
pub mod comb;
pub mod even;
pub mod flood;
pub mod onset;
pub mod period;
pub mod resolution;
pub mod schedule_fit;
pub mod spectrum;
pub mod wall_clock;
pub mod warped;
#[cfg(test)]
pub(crate) mod draws;

/// Which statistic a piece of evidence comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Test {
    /// Likelihood of the intervals under a retry schedule against its best alternative.
    ScheduleFit,
    /// Autocorrelation at the waits of a schedule and their differences, against control lags.
    LagComb,
    /// Power at one frequency against the red noise of the baseline.
    Periodogram,
    /// A lasting rise over the baseline.
    LevelShift,
    /// Errors over their floor.
    ErrorOnset,
    /// Attempts per request wanted.
    Amplification,
    /// Spread of the waves against the gap to the next.
    Jitter,
    /// Load that stays after its trigger ended.
    OutlivedTrigger,
    /// What this sampling can tell apart.
    Resolution,
    /// The even spacing of waves in warped time.
    WarpedSpectrum,
    /// Load on the wall clock or on healthy days.
    WallClock,
    /// Breaks in the data itself.
    DataQuality,
}

impl Test {
    /// Every statistic.
    pub const ALL: [Self; 12] = [
        Self::ScheduleFit,
        Self::LagComb,
        Self::Periodogram,
        Self::LevelShift,
        Self::ErrorOnset,
        Self::Amplification,
        Self::Jitter,
        Self::OutlivedTrigger,
        Self::Resolution,
        Self::WarpedSpectrum,
        Self::WallClock,
        Self::DataQuality,
    ];

    /// The statistic with this fixed name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|test| test.as_str() == name)
    }

    /// The fixed name used in JSON and the store.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ScheduleFit => "schedule-fit",
            Self::LagComb => "lag-comb",
            Self::Periodogram => "periodogram",
            Self::LevelShift => "level-shift",
            Self::ErrorOnset => "error-onset",
            Self::Amplification => "amplification",
            Self::Jitter => "jitter",
            Self::OutlivedTrigger => "outlived-trigger",
            Self::Resolution => "resolution",
            Self::WarpedSpectrum => "warped-spectrum",
            Self::WallClock => "wall-clock",
            Self::DataQuality => "data-quality",
        }
    }
}

/// What one statistic says about one dependency.
#[derive(Debug, Clone, PartialEq)]
pub struct Evidence {
    /// The statistic.
    pub test: Test,
    /// Its value, in the unit that `says` names.
    pub statistic: f64,
    /// The calibrated p-value, where the test has one.
    pub p_value: Option<f64>,
    /// Whether it speaks for the verdict's class (`true`) or against it.
    pub supports: bool,
    /// One sentence with numbers.
    pub says: String,
}

/// Too little data for a statistic: a result, not an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotEnough {
    /// What there is.
    pub have: usize,
    /// What it takes.
    pub need: usize,
}
