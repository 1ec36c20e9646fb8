//! Durations of the configuration file.

use std::time::Duration;

use drivebay_common::durations::parse_duration;
use serde::{Deserialize, Deserializer, de::Error};

/// A duration of at least `LEAST` seconds.
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
