//! Durations ("30s", "24h") as people write them. Pure.

use std::time::Duration;

/// Parsing a duration failed. The message gives the accepted forms.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// Not a duration at all.
    #[error("{0:?} is not a duration; write for example \"30s\", \"5m\", \"24h\" or \"1h30m\"")]
    NotADuration(String),
    /// More than 2^64 - 1 milliseconds.
    #[error("{0:?} is too large")]
    TooLarge(String),
}

/// Parses a duration of one or more whole numbers with the units `d`, `h`, `m`, `s` and `ms`: largest unit first, each at most once.
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    let wrong = || DurationError::NotADuration(text.to_owned());
    let too_large = || DurationError::TooLarge(text.to_owned());
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

#[cfg(test)]
mod tests {
    use super::*;

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
                matches!(parse_duration(text), Err(DurationError::NotADuration(_))),
                "{text}"
            );
        }
        assert!(matches!(
            parse_duration("99999999999999999999d"),
            Err(DurationError::TooLarge(_))
        ));
        assert!(matches!(
            parse_duration("18446744073709551615d"),
            Err(DurationError::TooLarge(_))
        ));
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in ".{0,24}") {
            let _ = parse_duration(&text);
        }
    }
}
