//! One group for each promise of speed.

fn main() {}
