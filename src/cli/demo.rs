//! `squall demo`: a simulated shop, the daemon beside it, and the story told on the terminal.

use std::io::Write;

use super::Failure;

/// Arguments of `squall demo`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Example:
  squall demo --duration=2m")]
pub struct Args {
    /// End after this long, as Prometheus writes durations; without it, run until ctrl-c.
    #[arg(long, value_name = "DURATION")]
    pub duration: Option<String>,
    /// The seed of the simulated shop.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Address of the page and the API; port 0 takes a free one.
    #[arg(long = "web.listen-address", value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub listen_address: String,
}

/// Runs the demo.
///
/// # Errors
///
/// When the daemon or the simulated shop cannot start.
pub fn run(_args: &Args, _out: &mut dyn Write) -> Result<(), Failure> {
    Err(Failure::not_in_this_build("demo"))
}
