//! Durations, and the table in which they are printed, at most 100 columns wide.

use std::{
    future::Future,
    time::{Duration, Instant},
};

/// Durations of one measurement.
#[derive(Debug, Clone, Default)]
pub(crate) struct Times(Vec<Duration>);

impl Times {
    pub(crate) fn push(&mut self, time: Duration) {
        self.0.push(time);
    }

    pub(crate) fn extend(&mut self, times: Self) {
        self.0.extend(times.0);
    }

    pub(crate) fn at(&self, percent: usize) -> Duration {
        let mut times = self.0.clone();
        times.sort_unstable();
        // Smallest value that this percentage of values does not exceed.
        let rank = (times.len() * percent).div_ceil(100).max(1);
        times.get(rank - 1).copied().unwrap_or_default()
    }

    fn median(&self) -> Duration {
        self.at(50)
    }
}

/// Durations of Drivebay and of the equivalent command.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pair {
    pub(crate) ours: Times,
    pub(crate) bare: Times,
}

impl Pair {
    pub(crate) fn push(&mut self, ours: Duration, bare: Duration) {
        self.ours.push(ours);
        self.bare.push(bare);
    }

    pub(crate) fn extend(&mut self, other: Self) {
        self.ours.extend(other.ours);
        self.bare.extend(other.bare);
    }
}

/// Returns the answer of a call and its duration.
pub(crate) async fn timed<T>(call: impl Future<Output = T>) -> (T, Duration) {
    let begin = Instant::now();
    let answer = call.await;
    (answer, begin.elapsed())
}

/// Returns the result of a command and its duration.
pub(crate) fn clocked<T>(command: impl FnOnce() -> T) -> (T, Duration) {
    let begin = Instant::now();
    let answer = command();
    (answer, begin.elapsed())
}

/// A table that is printed line by line.
pub(crate) struct Table {
    /// Name and median of the line above.
    above: (String, Duration),
}

impl Table {
    pub(crate) fn begin(head: &[String]) -> Self {
        for line in head {
            println!("{line}");
        }
        println!();
        println!(
            "{:<30} {:<13} {:>5} {:>8} {:>8} {:>8} {:>8} {:>6} {:>6}",
            "what", "size", "n", "median", "p99", "beside", "p99", "ratio", "growth"
        );
        Self {
            above: Default::default(),
        }
    }

    /// Starts a section; its first line has no growth.
    pub(crate) fn section(&mut self, about: &str) {
        println!("\n{about}");
        self.above = Default::default();
    }

    /// Prints a line without figures.
    pub(crate) fn note(&mut self, text: &str) {
        println!("{text}");
    }

    pub(crate) fn pair(&mut self, what: &str, size: &str, pair: &Pair) {
        self.line(what, size, &pair.ours, Some(&pair.bare));
    }

    pub(crate) fn alone(&mut self, what: &str, size: &str, ours: &Times) {
        self.line(what, size, ours, None);
    }

    fn line(&mut self, what: &str, size: &str, ours: &Times, bare: Option<&Times>) {
        let median = ours.median();
        let growth = match &self.above {
            (above, before) if above == what => quotient(median, *before),
            _ => String::new(),
        };
        let [beside, beside_p99, ratio] = match bare {
            Some(bare) => [
                millis(bare.median()),
                millis(bare.at(99)),
                quotient(median, bare.median()),
            ],
            None => Default::default(),
        };
        let line = format!(
            "{what:<30} {size:<13} {:>5} {:>8} {:>8} {beside:>8} {beside_p99:>8} {ratio:>6} {growth:>6}",
            ours.0.len(),
            millis(median),
            millis(ours.at(99)),
        );
        println!("{}", line.trim_end());
        self.above = (what.to_owned(), median);
    }
}

fn quotient(of: Duration, by: Duration) -> String {
    let quotient = of.as_secs_f64() / by.as_secs_f64().max(1e-9);
    significant(quotient)
}

fn millis(time: Duration) -> String {
    significant(time.as_secs_f64() * 1000.0)
}

/// Returns three significant digits, or all digits before the point if there are more.
pub(crate) fn significant(value: f64) -> String {
    let digits = match value {
        value if value >= 99.95 => 0,
        value if value >= 9.995 => 1,
        value if value >= 0.0995 => 2,
        _ => 4,
    };
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_and_the_99th_percentile_are_measured_times() {
        let mut times = Times::default();
        for millis in (1..=200).rev() {
            times.push(Duration::from_millis(millis));
        }
        assert_eq!(times.median(), Duration::from_millis(100));
        assert_eq!(times.at(99), Duration::from_millis(198));
        assert_eq!(Times(vec![Duration::from_millis(7)]).at(99).as_millis(), 7);
        assert_eq!(Times::default().median(), Duration::ZERO);
    }

    #[test]
    fn figures_have_three_digits() {
        let written = [0.0021, 0.256, 9.996, 64.31, 1284.4].map(significant);
        assert_eq!(written, ["0.0021", "0.26", "10.0", "64.3", "1284"]);
    }
}
