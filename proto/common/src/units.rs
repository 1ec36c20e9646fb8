//! Formatting of sizes, durations and counts for people: the one formatter of messages, tables and documents. Pure.

use std::time::Duration;

const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
/// Largest number of decimals: shows single MiB of a TiB. Sizes that differ by less are shown in bytes.
const MOST_DECIMALS: u32 = 6;

/// A size in the largest unit of which it has at least one, truncated to some decimals.
#[derive(Clone, Copy)]
struct Cut {
    unit: usize,
    /// The size in the unit, times ten to the power of `decimals`.
    number: u128,
    decimals: u32,
}

impl Cut {
    fn of(bytes: u64, decimals: u32) -> Self {
        let unit = (bytes.checked_ilog2().unwrap_or(0) / 10) as usize;
        Self {
            unit,
            number: (u128::from(bytes) * 10_u128.pow(decimals)) >> (10 * unit),
            decimals,
        }
    }

    /// Returns the precision of [`human_size`].
    fn usual(bytes: u64) -> Self {
        let (whole, tenths) = (Self::of(bytes, 0), Self::of(bytes, 1));
        match whole.number >= 100 || (whole.number >= 10 && tenths.number == whole.number * 10) {
            true => whole,
            false => tenths,
        }
    }

    /// Returns a key that is equal if two texts show the same number.
    fn key(self) -> (usize, u128) {
        let missing = MOST_DECIMALS.saturating_sub(self.decimals);
        (self.unit, self.number * 10_u128.pow(missing))
    }

    fn text(self, bytes: u64) -> String {
        let scale = 10_u128.pow(self.decimals);
        let (whole, fraction) = (self.number / scale, self.number % scale);
        let unit = UNITS.get(self.unit).copied().unwrap_or_default();
        let is_whole = u128::from(bytes) == whole << (10 * self.unit);
        match self.decimals {
            0 => format!("{whole} {unit}"),
            _ if is_whole => format!("{whole} {unit}"),
            digits => format!(
                "{whole}.{fraction:0digits$} {unit}",
                digits = digits as usize
            ),
        }
    }
}

/// Returns bytes in binary units, with one decimal below 10. Truncated, not rounded up: free space that is shown exists, and a size that is
/// typed as shown fits.
pub fn human_size(bytes: u64) -> String {
    Cut::usual(bytes).text(bytes)
}

/// Returns sizes to be compared: like [`human_size`], with as many more decimals as distinguish different ones; in bytes if six do not
/// suffice.
pub fn human_sizes<const N: usize>(sizes: [u64; N]) -> [String; N] {
    let more = (1..=MOST_DECIMALS).map(|decimals| sizes.map(|bytes| Cut::of(bytes, decimals)));
    let are_distinct = |cuts: &[Cut; N]| {
        let shown = || sizes.iter().zip(cuts);
        shown().all(|(a, x)| shown().all(|(b, y)| a == b || x.key() != y.key()))
    };
    let mut cuts = std::iter::once(sizes.map(Cut::usual)).chain(more);
    let mut texts = sizes.map(|bytes| format!("{bytes} bytes"));
    if let Some(cuts) = cuts.find(are_distinct) {
        for ((text, bytes), cut) in texts.iter_mut().zip(sizes).zip(cuts) {
            *text = cut.text(bytes);
        }
    }
    texts
}

/// Returns a size to be shown beside another one, precise enough to distinguish the two; see [`human_sizes`].
pub fn size_beside(bytes: u64, other: u64) -> String {
    let [text, _] = human_sizes([bytes, other]);
    text
}

/// Returns a size to be typed elsewhere, with its exact bytes.
pub fn exact_size(bytes: u64) -> String {
    format!("{} ({bytes} bytes)", human_size(bytes))
}

/// Returns seconds in the two largest units; the second one is left out if it is zero.
pub fn human_seconds(seconds: u64) -> String {
    let parts = [
        (seconds / 86_400, "d"),
        (seconds / 3600 % 24, "h"),
        (seconds / 60 % 60, "m"),
        (seconds % 60, "s"),
    ];
    let first = parts
        .iter()
        .position(|(count, _)| *count > 0)
        .unwrap_or(parts.len() - 1);
    let shown = parts.iter().skip(first).take(2).enumerate();
    shown
        .filter(|(index, (count, _))| *index == 0 || *count > 0)
        .map(|(index, (count, unit))| {
            if index == 0 {
                format!("{count}{unit}")
            } else {
                format!("{count:02}{unit}")
            }
        })
        .collect()
}

/// Returns milliseconds in seconds and larger units if they are whole seconds or at least a minute.
pub fn human_millis(milliseconds: u64) -> String {
    match milliseconds % 1000 {
        0 => human_seconds(milliseconds / 1000),
        _ if milliseconds >= 60_000 => human_seconds(milliseconds / 1000),
        _ => format!("{milliseconds} ms"),
    }
}

/// Returns a duration, as [`human_millis`] does.
pub fn human_duration(duration: Duration) -> String {
    human_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

/// Returns a count with its noun: "1 drive", "2 drives", "0 entries". `noun`: singular, and regular.
pub fn count<N: Into<Number>>(number: N, noun: &str) -> String {
    let Number(number) = number.into();
    if number == 1 {
        return format!("1 {noun}");
    }
    let vowel = |before: char| "aeiou".contains(before);
    match noun.strip_suffix('y') {
        Some(stem) if !stem.ends_with(vowel) => format!("{number} {stem}ies"),
        _ if ["s", "x", "ch", "sh"].iter().any(|end| noun.ends_with(end)) => {
            format!("{number} {noun}es")
        }
        _ => format!("{number} {noun}s"),
    }
}

/// An unsigned integer of any width.
#[derive(Debug, Clone, Copy)]
pub struct Number(u64);

impl From<u64> for Number {
    fn from(number: u64) -> Self {
        Self(number)
    }
}

impl From<u32> for Number {
    fn from(number: u32) -> Self {
        Self(number.into())
    }
}

impl From<usize> for Number {
    fn from(number: usize) -> Self {
        Self(number as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_cut_never_rounded_up() {
        for (bytes, text) in [
            (0, "0 B"),
            (1, "1 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1536, "1.5 KiB"),
            ((1 << 20) - 1, "1023 KiB"),
            ((9 << 30) + 1, "9.0 GiB"),
            (10 << 30, "10 GiB"),
            ((10 << 30) + (1 << 20), "10 GiB"),
            ((10 << 30) + (1 << 29), "10.5 GiB"),
            ((2 << 40) - 1, "1.9 TiB"),
            (500_000_000_000, "465 GiB"),
            (u64::MAX, "15.9 EiB"),
        ] {
            assert_eq!(human_size(bytes), text);
        }
    }

    #[test]
    fn sizes_that_are_compared_have_the_digits_that_distinguish_them() {
        const GIB: u64 = 1 << 30;
        const MIB: u64 = 1 << 20;
        for (sizes, texts) in [
            ([100 * GIB, 10 * GIB], ["100 GiB", "10 GiB"]),
            ([100 * GIB, 100 * GIB], ["100 GiB", "100 GiB"]),
            ([100 * GIB, 100 * GIB - MIB], ["100 GiB", "99.9 GiB"]),
            (
                [100 * GIB + GIB / 2, 100 * GIB + GIB / 5],
                ["100.5 GiB", "100.1 GiB"],
            ),
            (
                [100 * GIB + 200 * MIB, 100 * GIB + 190 * MIB],
                ["100.19 GiB", "100.18 GiB"],
            ),
            ([9 * GIB, 9 * GIB + 90 * MIB], ["9 GiB", "9.08 GiB"]),
            (
                [20_000_000_704_512, 20_000_000_704_512 - MIB],
                ["18.189894 TiB", "18.189893 TiB"],
            ),
            (
                [465 * GIB + 1, 465 * GIB],
                ["499289948161 bytes", "499289948160 bytes"],
            ),
            ([1023, 1022], ["1023 B", "1022 B"]),
        ] {
            assert_eq!(human_sizes(sizes), texts);
            assert_eq!(size_beside(sizes[1], sizes[0]), texts[1]);
        }
        assert_eq!(
            human_sizes([GIB, 3 * GIB, GIB]),
            ["1 GiB", "3 GiB", "1 GiB"]
        );
    }

    proptest::proptest! {
        #[test]
        fn different_sizes_have_different_texts(a: u64, by in 0_u64..1 << 31) {
            let [one, other] = human_sizes([a, a.saturating_sub(by)]);
            proptest::prop_assert_eq!(one == other, by.min(a) == 0);
        }
    }

    #[test]
    fn durations_show_two_units_at_most() {
        for (seconds, text) in [
            (0, "0s"),
            (59, "59s"),
            (60, "1m"),
            (61, "1m01s"),
            (3661, "1h01m"),
            (3601, "1h"),
            (86_400, "1d"),
            (90_000, "1d01h"),
        ] {
            assert_eq!(human_seconds(seconds), text);
        }
        for (milliseconds, text) in [
            (0, "0s"),
            (300, "300 ms"),
            (2500, "2500 ms"),
            (30_000, "30s"),
            (90_500, "1m30s"),
            (21_600_000, "6h"),
        ] {
            assert_eq!(human_millis(milliseconds), text);
        }
    }

    #[test]
    fn one_thing_is_not_many() {
        for (text, expected) in [
            (count(0_usize, "volume"), "0 volumes"),
            (count(1_u64, "volume"), "1 volume"),
            (count(2_u32, "new volume"), "2 new volumes"),
            (count(2_u64, "entry"), "2 entries"),
            (count(2_u64, "day"), "2 days"),
            (count(2_u64, "class"), "2 classes"),
            (count(2_u64, "batch"), "2 batches"),
        ] {
            assert_eq!(text, expected);
        }
    }
}
