//! Sizes ("10GiB", "500GB") and durations ("30s", "24h") as people write them. Pure.

use std::time::Duration;

use drivebay_common::units::count;
use drivebay_model::MIB;
use serde::{Deserialize, Deserializer, de::Error};

/// Why a size or a duration cannot be read. Says what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// "10G": decimal or binary?
    #[error(
        "{text:?} does not say which unit: write {number}{binary} (binary, 1024) or {number}{decimal} (decimal, 1000)"
    )]
    Undecided {
        /// As written.
        text: String,
        number: String,
        /// Binary spelling.
        binary: &'static str,
        /// Decimal spelling.
        decimal: &'static str,
    },
    /// "2": nobody means so few bytes.
    #[error(
        "{number:?} has no unit and would be {}; write {number}GiB or {number}MiB, or {number}B if bytes are meant",
        count(*bytes, "byte")
    )]
    NoUnit {
        number: String,
        /// What it would be.
        bytes: u64,
    },
    /// Not a size at all.
    #[error(
        "{0:?} is not a size; write for example \"10GiB\" (binary), \"500GB\" (decimal), or a number of bytes of at least 1 MiB"
    )]
    NotASize(String),
    /// Not a duration at all.
    #[error("{0:?} is not a duration; write for example \"30s\", \"5m\", \"24h\" or \"1h30m\"")]
    NotADuration(String),
    /// Larger than 2^64 - 1.
    #[error("{0:?} is too large")]
    TooLarge(String),
}

const SIZES: [(&str, u64); 13] = [
    ("", 1),
    ("B", 1),
    ("kB", 1000),
    ("KB", 1000),
    ("KiB", 1 << 10),
    ("MB", 1_000_000),
    ("MiB", 1 << 20),
    ("GB", 1_000_000_000),
    ("GiB", 1 << 30),
    ("TB", 1_000_000_000_000),
    ("TiB", 1 << 40),
    ("PB", 1_000_000_000_000_000),
    ("PiB", 1 << 50),
];

/// Bytes. Decimal and binary units are told apart, and a bare "G" is refused: the difference is 7 %
/// of a drive. So is a number without a unit that is below 1 MiB and not 0: its unit was forgotten. Larger ones are bytes, as
/// programs write them. Fractions ("1.5TiB") are cut to whole bytes.
pub fn parse_size(text: &str) -> Result<u64, UnitError> {
    let trimmed = text.trim();
    let split = trimmed
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(split);
    let unit = unit.trim_start();
    let undecided = |binary, decimal| UnitError::Undecided {
        text: text.to_owned(),
        number: number.to_owned(),
        binary,
        decimal,
    };
    match unit {
        "k" | "K" => return Err(undecided("KiB", "kB")),
        "M" => return Err(undecided("MiB", "MB")),
        "G" => return Err(undecided("GiB", "GB")),
        "T" => return Err(undecided("TiB", "TB")),
        "P" => return Err(undecided("PiB", "PB")),
        _ => {}
    }
    let not_a_size = || UnitError::NotASize(text.to_owned());
    let (_, factor) = SIZES
        .iter()
        .find(|(name, _)| *name == unit)
        .ok_or_else(not_a_size)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    // A fraction needs a unit: half a byte is a mistake.
    if whole.is_empty()
        || fraction.len() > 9
        || (number.contains('.') && (fraction.is_empty() || *factor == 1))
    {
        return Err(not_a_size());
    }
    let too_large = || UnitError::TooLarge(text.to_owned());
    let whole: u128 = whole.parse().map_err(|_| too_large())?;
    let mut bytes = whole
        .checked_mul(u128::from(*factor))
        .ok_or_else(too_large)?;
    if !fraction.is_empty() {
        let part: u128 = fraction.parse().map_err(|_| not_a_size())?;
        let scale = u32::try_from(fraction.len()).map_err(|_| not_a_size())?;
        bytes = bytes
            .checked_add(part * u128::from(*factor) / 10_u128.pow(scale))
            .ok_or_else(too_large)?;
    }
    let bytes = u64::try_from(bytes).map_err(|_| too_large())?;
    if unit.is_empty() && (1..MIB).contains(&bytes) {
        return Err(UnitError::NoUnit {
            number: number.to_owned(),
            bytes,
        });
    }
    Ok(bytes)
}

/// A duration of one or more parts, largest unit first: `ms`, `s`, `m`, `h`, `d`.
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    let wrong = || UnitError::NotADuration(text.to_owned());
    let too_large = || UnitError::TooLarge(text.to_owned());
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(wrong());
    }
    let mut total_ms: u64 = 0;
    let mut last = u64::MAX;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let (number, tail) = rest.split_at(digits);
        let end = tail
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(end);
        let factor: u64 = match unit {
            "ms" => 1,
            "s" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(wrong()),
        };
        if number.is_empty() || factor >= last {
            return Err(wrong());
        }
        last = factor;
        let number: u64 = number.parse().map_err(|_| too_large())?;
        total_ms = number
            .checked_mul(factor)
            .and_then(|ms| total_ms.checked_add(ms))
            .ok_or_else(too_large)?;
        rest = tail;
    }
    Ok(Duration::from_millis(total_ms))
}

/// A duration of at least so many seconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Period<const LEAST: u64>(pub(super) Duration);

impl<'de, const LEAST: u64> Deserialize<'de> for Period<LEAST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let period = parse_duration(&text).map_err(D::Error::custom)?;
        if period < Duration::from_secs(LEAST) {
            let least = match LEAST % 60 {
                0 => format!("{}m", LEAST / 60),
                _ => format!("{LEAST}s"),
            };
            let short = format!("{text:?} is too short; at least {least:?}");
            return Err(D::Error::custom(short));
        }
        Ok(Self(period))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_and_binary_sizes_are_told_apart() {
        for (text, bytes) in [
            ("0", 0),
            ("1048576", 1 << 20),
            ("512B", 512),
            ("1kB", 1000),
            ("1KiB", 1024),
            ("500GB", 500_000_000_000),
            ("10GiB", 10 << 30),
            ("10 GiB", 10 << 30),
            (" 4TiB ", 4 << 40),
            ("1.5TiB", 3 << 39),
            ("1.92TB", 1_920_000_000_000),
            ("0.5KiB", 512),
            ("16383PiB", 16383 << 50),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn a_bare_letter_is_asked_back() {
        let error = parse_size("10G").unwrap_err();
        assert_eq!(
            error.to_string(),
            "\"10G\" does not say which unit: write 10GiB (binary, 1024) or 10GB (decimal, 1000)"
        );
    }

    #[test]
    fn a_number_without_a_unit_that_nobody_means_is_refused_with_what_to_write() {
        for (number, bytes) in [
            ("1", "1 byte"),
            ("2", "2 bytes"),
            ("1048575", "1048575 bytes"),
        ] {
            assert_eq!(
                parse_size(number).unwrap_err().to_string(),
                format!(
                    "{number:?} has no unit and would be {bytes}; write {number}GiB or {number}MiB, or {number}B if bytes are meant"
                )
            );
        }
        assert_eq!(parse_size("2B"), Ok(2));
    }

    #[test]
    fn nonsense_sizes_are_refused() {
        for text in [
            "", "GiB", "-1GiB", "1e9", "10gib", "1.GiB", ".5GiB", "1.5", "1.5.2GiB", "1GiB2", "∞",
            "１GiB",
        ] {
            assert!(
                matches!(parse_size(text), Err(UnitError::NotASize(_))),
                "{text}"
            );
        }
        for text in [
            "16384PiB",
            "18446744073709551616",
            "99999999999999999999999999999999999999999PiB",
        ] {
            assert!(
                matches!(parse_size(text), Err(UnitError::TooLarge(_))),
                "{text}"
            );
        }
    }

    #[test]
    fn durations_are_read_largest_unit_first() {
        for (text, ms) in [
            ("0s", 0),
            ("500ms", 500),
            ("30s", 30_000),
            ("5m", 300_000),
            ("24h", 86_400_000),
            ("7d", 604_800_000),
            ("1h30m", 5_400_000),
        ] {
            assert_eq!(
                parse_duration(text),
                Ok(Duration::from_millis(ms)),
                "{text}"
            );
        }
        for text in [
            "", "5", "m", "5 m", "30m1h", "1h1h", "-5m", "5min", "1.5h", "5µs",
        ] {
            assert!(
                matches!(parse_duration(text), Err(UnitError::NotADuration(_))),
                "{text}"
            );
        }
        assert!(matches!(
            parse_duration("99999999999999999999d"),
            Err(UnitError::TooLarge(_))
        ));
        assert!(matches!(
            parse_duration("18446744073709551615d"),
            Err(UnitError::TooLarge(_))
        ));
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_the_parsers_panic(text in ".{0,24}") {
            let _ = parse_size(&text);
            let _ = parse_duration(&text);
        }
    }
}
