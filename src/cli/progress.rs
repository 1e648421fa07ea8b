//! Progress of long work: a bar when standard error is a terminal, and nothing otherwise.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Redraws a second: enough to look alive, few enough to cost nothing.
const REDRAWS: u8 = 5;

/// A bar over `length` units; a length of 0 is one that is not known.
pub(crate) fn bar(length: u64, unit: &'static str) -> ProgressBar {
    // The target hides itself where standard error is no terminal.
    let bar = ProgressBar::with_draw_target(
        (length > 0).then_some(length),
        ProgressDrawTarget::stderr_with_hz(REDRAWS),
    );
    let template = match unit {
        "bytes" => "reading {wide_bar} {bytes}/{total_bytes} {eta}",
        "history" => "replaying {wide_bar} {percent}% {eta} {msg}",
        _ => "analysing {wide_bar} {human_pos}/{human_len} {eta}",
    };
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
