//! Values of one counter over the last week, on which growth is measured.

use serde::{Deserialize, Serialize};

const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;
const WEEK: u64 = 7 * DAY;

/// A counter's values over the last seven days. Kept by the hour and only when they changed, the lowest of each hour: at most 169 points,
/// usually one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Series {
    value: u64,
    /// Time at which the last value was read, seconds since 1970.
    at: u64,
    /// Number of polls in a row in which it grew.
    #[serde(default)]
    polls: u32,
    /// Start of an hour, seconds since 1970, and the lowest value from then on.
    #[serde(default)]
    points: Vec<(u64, u64)>,
}

/// Growth of a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trend {
    pub value: u64,
    /// Growth over the lowest value of the last 24 hours; None if there is no value to compare with.
    pub day: Option<u64>,
    /// Growth over the lowest value of the last seven days; None if there is no value to compare with.
    pub week: Option<u64>,
    /// Number of polls in a row in which it grew.
    pub polls: u32,
}

impl Series {
    /// Begins with this value: growth counts from here on.
    pub(super) fn new(value: u64, now: u64) -> Self {
        Self {
            value,
            at: now,
            polls: 0,
            points: vec![(now - now % HOUR, value)],
        }
    }

    /// Records a new value and returns its growth.
    pub(super) fn observe(&mut self, value: u64, now: u64) -> Trend {
        // The clock was set back: values in the future are moved to now.
        let hour = now - now % HOUR;
        for point in &mut self.points {
            point.0 = point.0.min(hour);
        }
        self.at = self.at.min(now);
        let day = self.lowest(now, DAY);
        let week = self.lowest(now, WEEK);
        self.polls = if value > self.value {
            self.polls.saturating_add(1)
        } else {
            0
        };
        self.value = value;
        self.at = now;
        match self.points.last_mut() {
            Some(last) if last.1 == value => {}
            Some(last) if last.0 == hour => last.1 = last.1.min(value),
            _ => self.points.push((hour, value)),
        }
        self.forget(now.saturating_sub(WEEK));
        Trend {
            value,
            day: day.map(|lowest| value.saturating_sub(lowest)),
            week: week.map(|lowest| value.saturating_sub(lowest)),
            polls: self.polls,
        }
    }

    /// Returns the growth as of the last value.
    pub(super) fn last_trend(&self) -> Trend {
        let grown = |span| {
            let lowest = self.lowest(self.at, span)?;
            Some(self.value.saturating_sub(lowest))
        };
        Trend {
            value: self.value,
            day: grown(DAY),
            week: grown(WEEK),
            polls: self.polls,
        }
    }

    /// Returns times (seconds since 1970) and values, oldest first, in the seven days before the last value was read: at most 171. A value
    /// holds until the next point; the last point is the last value that was read. The value of an hour is its lowest.
    pub(super) fn points(&self) -> Vec<(u64, u64)> {
        let start = self.at.saturating_sub(WEEK);
        let points = self.points.iter();
        let mut points: Vec<_> = points
            .map(|(at, value)| (*at.max(&start), *value))
            .collect();
        if points.last() != Some(&(self.at, self.value)) {
            points.push((self.at, self.value));
        }
        points
    }

    pub(super) fn value(&self) -> u64 {
        self.value
    }

    /// Returns the lowest value in the last `span` seconds. A value holds from its point to the next one, the last one until it was last
    /// read; a time without polls has no value. Rounded up to the hour: it is not recorded when within the next point's hour a value ended.
    fn lowest(&self, now: u64, span: u64) -> Option<u64> {
        let from = now.saturating_sub(span);
        let ends = self
            .points
            .iter()
            .skip(1)
            .map(|point| point.0.saturating_add(HOUR));
        let ends = ends.chain([self.at]);
        let inside = self
            .points
            .iter()
            .zip(ends)
            .filter(|(_, end)| *end >= from)
            .map(|((_, value), _)| *value);
        // Within one hour the last value may be higher than the hour's lowest, and the only one in the span.
        inside.chain((self.at >= from).then_some(self.value)).min()
    }

    /// Drops the points before a time, except the one whose value held then.
    fn forget(&mut self, before: u64) {
        let old = self.points.iter().filter(|point| point.0 < before).count();
        if old > 1 {
            self.points.drain(..old - 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 1_700_000_000;

    #[test]
    fn the_first_value_shows_no_growth() {
        let mut series = Series::new(5, START);
        let trend = series.observe(5, START + 600);
        assert_eq!((trend.day, trend.week, trend.polls), (Some(0), Some(0), 0));
    }

    #[test]
    fn growth_is_measured_over_its_own_time() {
        let mut series = Series::new(0, START);
        for day in 1..=3 {
            series.observe(0, START + day * DAY);
        }
        assert_eq!(series.observe(9, START + 3 * DAY + 600).day, Some(9));
        let mut trend = series.observe(9, START + 4 * DAY);
        assert_eq!((trend.day, trend.week), (Some(9), Some(9)));
        for hour in 1..=48 {
            trend = series.observe(9, START + 4 * DAY + hour * HOUR);
        }
        assert_eq!((trend.day, trend.week), (Some(0), Some(9)));
        for hour in 49..=24 * 8 {
            trend = series.observe(9, START + 4 * DAY + hour * HOUR);
        }
        assert_eq!((trend.day, trend.week), (Some(0), Some(0)));
    }

    #[test]
    fn growth_without_polls_is_not_taken_for_growth_today() {
        let mut series = Series::new(0, START);
        let trend = series.observe(50, START + 30 * DAY);
        assert_eq!((trend.day, trend.week), (None, None));
        assert_eq!(trend.polls, 1);
    }

    #[test]
    fn growth_within_one_hour_is_seen() {
        let mut series = Series::new(0, START);
        for step in 1..=5 {
            let trend = series.observe(step, START + step * 60);
            assert_eq!((trend.day, trend.polls), (Some(step), step as u32));
        }
    }

    #[test]
    fn a_value_that_fell_and_rises_again_has_grown() {
        let mut series = Series::new(5, START);
        series.observe(0, START + 2 * HOUR);
        let trend = series.observe(3, START + 4 * HOUR);
        assert_eq!((trend.day, trend.polls), (Some(3), 1));
    }

    #[test]
    fn a_clock_put_back_loses_no_growth() {
        let mut series = Series::new(0, START);
        let trend = series.observe(4, START - 100 * DAY);
        assert_eq!(trend.day, Some(4));
    }

    #[test]
    fn points_are_the_changes_of_a_week_and_the_last_value() {
        const HOUR_START: u64 = START - START % HOUR;
        let mut series = Series::new(3, HOUR_START + 60);
        assert_eq!(series.points(), [(HOUR_START, 3), (HOUR_START + 60, 3)]);
        series.observe(3, HOUR_START + DAY);
        series.observe(5, HOUR_START + 2 * DAY);
        // Within an hour the lowest value is kept, and the last one.
        series.observe(48, HOUR_START + 2 * DAY + 600);
        let days = |days: u64| HOUR_START + days * DAY;
        let expected = [(days(0), 3), (days(2), 5), (days(2) + 600, 48)];
        assert_eq!(series.points(), expected);
        // The value that held when the week began is its first one.
        series.observe(48, days(8));
        series.observe(48, days(8) + HOUR);
        let expected = [
            (days(1) + HOUR, 3),
            (days(2), 5),
            (days(2) + HOUR, 48),
            (days(8) + HOUR, 48),
        ];
        let points = series.points();
        assert_eq!(points.first(), expected.first());
        assert_eq!(points.last(), expected.last());
        assert!(points.is_sorted(), "{points:?}");
    }

    #[test]
    fn it_stays_small() {
        let mut series = Series::new(0, START);
        for poll in 1..10_000_u64 {
            series.observe(poll, START + poll * 600);
        }
        assert!(series.points.len() <= 170, "{}", series.points.len());
        assert!(series.points().len() <= 171);
    }
}
