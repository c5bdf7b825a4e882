//! Time, and statistics of few samples.

use anyhow::Result;
use std::time::{Duration, Instant};

/// Returns the duration of `work`.
pub(crate) fn time(work: impl FnOnce() -> Result<()>) -> Result<Duration> {
    let now = Instant::now;
    let start = now();
    work()?;
    Ok(now().duration_since(start))
}

/// The median; 0 of none.
pub(crate) fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        len if len % 2 == 1 => sorted[len / 2],
        len => f64::midpoint(sorted[len / 2 - 1], sorted[len / 2]),
    }
}

/// A ratio as text, two decimals, cut off and never rounded up.
pub(crate) fn ratio(value: f64) -> String {
    format!("{:.2}", (value * 100.0).floor() / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_or_between_the_two_middles() {
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!((median(&[4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-9);
    }

    #[test]
    fn a_ratio_is_never_rounded_up() {
        assert_eq!(ratio(0.8499), "0.84");
    }
}
