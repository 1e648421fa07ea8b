//! Random draws that are the same on every machine and for every release.
//!
//! A simulation that people argue over must be repeatable to the byte. So the stream is ChaCha
//! with a seed built by hand, and the logarithms come from a software library, since the platform's
//! own differ in the last digit. Each part of the world has its own stream: one more client changes
//! nobody else's luck.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// One stream of draws.
#[derive(Debug, Clone)]
pub struct Draws {
    stream: ChaCha8Rng,
}

/// `2^-53`, the spacing of the uniform draws.
const ULP: f64 = 1.0 / 9_007_199_254_740_992.0;

impl Draws {
    /// The stream number `stream` of `seed`.
    #[must_use]
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut key = [0_u8; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        key[8..16].copy_from_slice(&stream.to_le_bytes());
        Self { stream: ChaCha8Rng::from_seed(key) }
    }

    /// Any of the 2^64 numbers.
    pub fn bits(&mut self) -> u64 {
        self.stream.next_u64()
    }

    /// Uniform in `[0, 1)`.
    #[expect(clippy::cast_precision_loss, reason = "the 53 bits that are kept fit")]
    pub fn uniform(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * ULP
    }

    /// Uniform in `[low, high)`.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.uniform()
    }

    /// Uniform in the logarithm, in `[low, high)`, for parameters that span decades.
    pub fn log_between(&mut self, low: f64, high: f64) -> f64 {
        low * libm::exp(libm::log(high / low) * self.uniform())
    }

    /// True with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.uniform() < probability
    }

    /// Exponential with this mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * libm::log(1.0 - self.uniform())
    }

    /// Standard normal, by Box and Muller; the second of the pair is not used.
    pub fn normal(&mut self) -> f64 {
        let radius = libm::sqrt(-2.0 * libm::log(1.0 - self.uniform()));
        radius * libm::cos(std::f64::consts::TAU * self.uniform())
    }

    /// Uniform in `0..n`, `n > 0`; the bias is below 2^-32 for any `n` in use.
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.bits()) * n as u128) >> 64) as usize
    }

    /// One of the items, which must not be empty.
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }
}

/// A hash of text that never changes: FNV-1a, then a finaliser for well-mixed high bits.
#[must_use]
pub fn hash(text: &str, seed: u64) -> u64 {
    let mut state = 0xcbf2_9ce4_8422_2325_u64 ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for byte in text.bytes() {
        state = (state ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    state = (state ^ (state >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    state = (state ^ (state >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    state ^ (state >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_never_changes() {
        let mut draws = Draws::new(7, 3);
        // By a second implementation of ChaCha with eight rounds. A change here breaks "same seed,
        // same bytes" for every user.
        let first: Vec<usize> = (0..3).map(|_| draws.below(1_000_000)).collect();
        assert_eq!(first, [224_477, 146_706, 121_883]);
        assert_ne!(Draws::new(7, 3).bits(), Draws::new(7, 4).bits());
        assert_ne!(Draws::new(7, 3).bits(), Draws::new(8, 3).bits());
    }

    #[test]
    fn means_are_right() {
        let mut draws = Draws::new(1, 1);
        let n = 20_000;
        let mean =
            |draw: &mut dyn FnMut() -> f64| (0..n).map(|_| draw()).sum::<f64>() / f64::from(n);
        // Five standard errors of each mean at this n.
        assert!((mean(&mut || draws.uniform()) - 0.5).abs() < 0.011);
        assert!((mean(&mut || draws.exponential(2.0)) - 2.0).abs() < 0.071);
        assert!(mean(&mut || draws.normal()).abs() < 0.036);
    }
}
