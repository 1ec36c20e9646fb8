//! Sizes ("10GiB", "500GB") as people write them. Pure.

use crate::units::count;

const MIB: u64 = 1 << 20;

/// Parsing a size failed. The message gives the accepted forms.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// An ambiguous unit: "10G" can be decimal or binary.
    #[error(
        "{text:?} does not say which unit: write {number}{binary} (binary, 1024) or {number}{decimal} (decimal, 1000)"
    )]
    Undecided {
        /// The size as given, with the ambiguous unit.
        text: String,
        number: String,
        /// Unit to write if powers of 1024 are meant, e.g. `GiB`.
        binary: &'static str,
        /// Unit to write if powers of 1000 are meant, e.g. `GB`.
        decimal: &'static str,
    },
    /// A number without a unit, below 1 MiB and not 0: the unit is probably missing.
    #[error(
        "{number:?} has no unit and would be {}; write {number}GiB or {number}MiB, or {number}B if bytes are meant",
        count(*bytes, "byte")
    )]
    NoUnit {
        number: String,
        /// The number, read as bytes.
        bytes: u64,
    },
    /// Not a size at all.
    #[error(
        "{0:?} is not a size; write for example \"10GiB\" (binary), \"500GB\" (decimal), or a number of bytes of at least 1 MiB"
    )]
    NotASize(String),
    /// More than 2^64 - 1 bytes.
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

/// Parses a size to bytes, rounding fractions ("1.5TiB") down. Refuses a unit that can be decimal or binary ("10G": the difference is
/// 7 %), and a number without a unit that is below 1 MiB and not 0: its unit is probably missing. Larger ones are bytes, as programs
/// write them.
pub fn parse_size(text: &str) -> Result<u64, SizeError> {
    let trimmed = text.trim();
    let split = trimmed
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(split);
    let unit = unit.trim_start();
    let undecided = |binary, decimal| SizeError::Undecided {
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
    let not_a_size = || SizeError::NotASize(text.to_owned());
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
    let too_large = || SizeError::TooLarge(text.to_owned());
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
        return Err(SizeError::NoUnit {
            number: number.to_owned(),
            bytes,
        });
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_and_binary_sizes_are_distinguished() {
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
    fn a_bare_letter_is_an_error_that_names_the_units() {
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
                matches!(parse_size(text), Err(SizeError::NotASize(_))),
                "{text}"
            );
        }
        for text in [
            "16384PiB",
            "18446744073709551616",
            "99999999999999999999999999999999999999999PiB",
        ] {
            assert!(
                matches!(parse_size(text), Err(SizeError::TooLarge(_))),
                "{text}"
            );
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in ".{0,24}") {
            let _ = parse_size(&text);
        }
    }
}
