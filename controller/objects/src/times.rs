//! Times in objects.

use time::{OffsetDateTime, format_description::well_known::Rfc3339};

/// Returns the current time, in seconds since 1970.
pub fn now() -> i64 {
    OffsetDateTime::now_utc().unix_timestamp()
}

/// Formats seconds since 1970 as RFC 3339. Empty for 0, negative values and years after 9999.
pub fn format_time(seconds: i64) -> String {
    let time = Some(seconds).filter(|seconds| *seconds > 0);
    let time = time.and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok());
    time.and_then(|time| time.format(&Rfc3339).ok())
        .unwrap_or_default()
}

/// Parses RFC 3339 as seconds since 1970.
pub fn parse_time(text: &str) -> Option<i64> {
    let time = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    Some(time.unix_timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_formatted_time_parses_to_the_same_seconds() {
        assert_eq!(format_time(1_764_288_000), "2025-11-28T00:00:00Z");
        assert_eq!(parse_time(&format_time(1_764_288_000)), Some(1_764_288_000));
        assert_eq!(
            (format_time(0), format_time(i64::MAX)),
            (String::new(), String::new())
        );
        assert_eq!(parse_time("yesterday"), None);
    }
}
