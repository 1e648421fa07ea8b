//! The pictures of an incident, as SVG text: pure functions from its JSON and the series kept
//! around it.
//!
//! They are written by hand and not through a plotting library: such a library wants the measures
//! of a font that the server does not have, and draws one fixed palette, while these must be read in
//! the light and in the dark, on a phone, and aloud. Nothing in them is fetched, no script runs, and
//! every name in them is escaped.
//!
//! # Example
//!
//! ```
//! use squall::plot::{Look, Picture, draw};
//! use squall::wire::{IncidentJson, around::SeriesJson};
//!
//! let text = include_str!("../tests/golden/record/incident.json");
//! let incident: IncidentJson = serde_json::from_str(text).unwrap();
//! let svg = draw(Picture::Cohorts, &incident, &SeriesJson::default(), &Look::default()).unwrap();
//! assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
//! ```

mod clients;
mod curves;
mod incident;
mod load;
mod sharpen;
mod svg;
pub mod terminal;
#[cfg(test)]
pub(crate) mod tests;
mod warped;

use crate::series::Timestamp;
use crate::wire::IncidentJson;
use crate::wire::around::SeriesJson;

/// What can be drawn of an incident.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Picture {
    /// The load, the failures, the waves.
    Incident,
    /// The load in time counted by the retries of the schedule.
    Warped,
    /// How many clients made so many retries.
    Cohorts,
    /// The load as it was and as it would have been with full jitter.
    Counterfactual,
    /// The autocorrelation.
    Correlogram,
    /// The spectrum.
    Spectrum,
}

impl Picture {
    /// Every picture, in the order in which they are read.
    pub const ALL: [Self; 6] = [
        Self::Incident,
        Self::Warped,
        Self::Cohorts,
        Self::Counterfactual,
        Self::Correlogram,
        Self::Spectrum,
    ];

    /// The fixed name used in addresses and file names.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Incident => "incident",
            Self::Warped => "warped",
            Self::Cohorts => "cohorts",
            Self::Counterfactual => "counterfactual",
            Self::Correlogram => "correlogram",
            Self::Spectrum => "spectrum",
        }
    }

    /// The picture with this fixed name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|picture| picture.as_str() == name)
    }

    /// What it is, in a few words.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Incident => "What arrived",
            Self::Warped => "The same, with time counted in retries",
            Self::Cohorts => "How many came again, retry by retry",
            Self::Counterfactual => "What full jitter would have done",
            Self::Correlogram => "What repeats after how long",
            Self::Spectrum => "What repeats how often",
        }
    }

    /// Its height in pixels, whatever its width.
    #[must_use]
    pub const fn height(self) -> f64 {
        match self {
            Self::Incident => incident::HEIGHT,
            Self::Warped => warped::HEIGHT,
            Self::Cohorts => clients::COHORTS_HEIGHT,
            Self::Counterfactual => clients::COUNTERFACTUAL_HEIGHT,
            Self::Correlogram | Self::Spectrum => curves::HEIGHT,
        }
    }

    /// How to read it.
    #[must_use]
    pub const fn caption(self) -> &'static str {
        match self {
            Self::Incident => {
                "The line is every request that arrived, the filled part those that failed, in \
                 requests per second. Each marker stands where the fitted schedule puts a wave, with \
                 the time since the first failure and the requests counted in the whole wave: load \
                 that stands under the markers and is back at normal between them is a herd in step. \
                 A flat block of load without markers is a flood. The line is drawn as finely as the \
                 scrapes of all targets together tell, so that its tips can stand above the peak, \
                 which is the mean over one scrape."
            }
            Self::Warped => {
                "Requests above normal, failed or not, with the clock replaced by the fitted \
                 schedule: 1 is when the first retry is due, 2 the second, and each bar is a tenth of \
                 the way between them. Clients that follow the schedule without jitter make bars that \
                 stand on the whole numbers; jitter fills the space between."
            }
            Self::Cohorts => {
                "A whole bar is one wave, as counted over its marker above. The dark part came again \
                 in the next wave; the pale part, with its number, did not, since they were served or \
                 gave up. Much pale at the left: the dependency was back quickly. Dark nearly to the \
                 top, bar after bar: it kept failing, and the herd kept its size."
            }
            Self::Counterfactual => {
                "The grey line is what arrived. The other is the same number of retries, each \
                 waiting a random time between nothing and the wait it had (full jitter). The first \
                 failure itself is the same in both, so the two are compared from the second retry on."
            }
            Self::Correlogram => {
                "How alike the counts are to themselves some seconds later. The marked lags are the \
                 waits of the schedule and their differences: peaks there and nowhere else are \
                 clients in step. The grey band holds 95 % of the lags of noise like this."
            }
            Self::Spectrum => {
                "The power at each period, with the level of the noise under it (slow periods are \
                 noisier than quick ones). A peak far above the line is a true period: a fixed \
                 delay, or a schedule at its cap. A schedule that still doubles makes none."
            }
        }
    }
}

/// Which colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Theme {
    /// Those that the viewer prefers.
    #[default]
    Auto,
    /// Dark on light.
    Light,
    /// Light on dark.
    Dark,
}

impl Theme {
    /// The theme with this fixed name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "auto" => Some(Self::Auto),
            "light" => Some(Self::Light),
            "dark" => Some(Self::Dark),
            _ => None,
        }
    }
}

/// How a picture looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    // Invariant: within `WIDTHS`.
    width: u32,
    theme: Theme,
    // Invariant: within `OFFSET_MINUTES_MAX` of 0.
    offset_minutes: i32,
}

/// The zones of the world lie within 14 hours of UTC.
pub const OFFSET_MINUTES_MAX: i32 = 14 * 60;

/// Narrowest and widest picture, in pixels.
pub const WIDTHS: [u32; 2] = [320, 2000];
/// A column of text on a large screen.
const WIDTH_DEFAULT: u32 = 880;

impl Default for Look {
    fn default() -> Self {
        Self { width: WIDTH_DEFAULT, theme: Theme::Auto, offset_minutes: 0 }
    }
}

impl Look {
    /// The same in another width, kept within [`WIDTHS`].
    #[must_use]
    pub fn with_width(self, width: u32) -> Self {
        Self { width: width.clamp(WIDTHS[0], WIDTHS[1]), ..self }
    }

    /// The same in other colours.
    #[must_use]
    pub const fn with_theme(self, theme: Theme) -> Self {
        Self { theme, ..self }
    }

    /// The same with its times so many minutes ahead of UTC, kept within [`OFFSET_MINUTES_MAX`].
    #[must_use]
    pub fn with_offset_minutes(self, offset_minutes: i32) -> Self {
        let kept = offset_minutes.clamp(-OFFSET_MINUTES_MAX, OFFSET_MINUTES_MAX);
        Self { offset_minutes: kept, ..self }
    }

    /// An instant as the clocks of its zone show it, as if that were UTC.
    pub(crate) fn local(&self, at: Timestamp) -> Timestamp {
        at.plus_seconds(f64::from(self.offset_minutes) * 60.0)
    }

    /// What its times are in: `UTC`, `UTC+05:30`.
    pub(crate) fn zone(&self) -> String {
        let (sign, minutes) = match self.offset_minutes {
            0 => return "UTC".to_owned(),
            ahead @ 1.. => ('+', ahead),
            behind => ('-', -behind),
        };
        format!("UTC{sign}{:02}:{:02}", minutes / 60, minutes % 60)
    }

    pub(crate) const fn theme(&self) -> Theme {
        self.theme
    }

    pub(crate) fn width(&self) -> f64 {
        f64::from(self.width)
    }

    /// Whether there is room for few labels only.
    pub(crate) const fn is_narrow(&self) -> bool {
        self.width < 600
    }
}

/// Why a picture cannot be drawn: a result, since most incidents lack some of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there is no such picture of this incident: {0}")]
pub struct NotDrawn(&'static str);

/// Draws one picture.
///
/// # Errors
///
/// [`NotDrawn`] where the incident has not what the picture shows.
pub fn draw(
    picture: Picture,
    incident: &IncidentJson,
    series: &SeriesJson,
    look: &Look,
) -> Result<String, NotDrawn> {
    match picture {
        Picture::Incident => Ok(incident::draw(incident, series, look)),
        Picture::Warped => warped::draw(incident, series, look),
        Picture::Cohorts => clients::cohorts(incident, look),
        Picture::Counterfactual => clients::counterfactual(incident, series, look),
        Picture::Correlogram => curves::correlogram(incident, series, look),
        Picture::Spectrum => curves::spectrum(incident, series, look),
    }
}

/// The pictures that there are of an incident.
#[must_use]
pub fn pictures(incident: &IncidentJson, series: &SeriesJson) -> Vec<Picture> {
    let look = Look::default();
    let drawn = |picture: &Picture| draw(*picture, incident, series, &look).is_ok();
    Picture::ALL.into_iter().filter(drawn).collect()
}
