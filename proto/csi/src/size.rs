//! From what a request says about size to the exact bytes a volume gets. Pure.

use drivebay_common::units::{human_size, human_sizes, size_beside};
use drivebay_proto::names;

use crate::validate::SizeRange;

/// The largest size that is taken seriously: 1 EiB. No drive comes near it, and sums of such sizes stay within 64 bits.
pub const MAX_VOLUME_BYTES: u64 = 1 << 60;
/// Extent of a class that does not say its own, bytes.
pub const DEFAULT_EXTENT_BYTES: u64 = 1 << 20;

/// No size satisfies the request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// Beyond anything that exists.
    #[error(
        "capacity_range asks for {}; a volume has at most {}",
        size_beside(*required, MAX_VOLUME_BYTES),
        size_beside(MAX_VOLUME_BYTES, *required)
    )]
    TooLarge {
        /// What was asked for, bytes.
        required: u64,
    },
    /// The smallest possible volume is over the limit.
    #[error(
        "capacity_range.limit_bytes {} is less than the smallest volume, {} for {what}",
        size_beside(*limit, *smallest),
        size_beside(*smallest, *limit)
    )]
    LimitBelowSmallest {
        /// limit_bytes.
        limit: u64,
        /// The smallest volume, bytes.
        smallest: u64,
        /// A filesystem, or `block`.
        what: String,
    },
    /// Sizes are multiples of the extent, and the next one is over the limit.
    #[error(
        "capacity_range.required_bytes {} rounds up to {}, a multiple of {}, which exceeds limit_bytes {}",
        human_sizes([*required, *rounded, *limit])[0],
        human_sizes([*required, *rounded, *limit])[1],
        human_size(*extent),
        human_sizes([*required, *rounded, *limit])[2]
    )]
    RoundingExceedsLimit {
        /// required_bytes.
        required: u64,
        /// After rounding.
        rounded: u64,
        /// The class's extent, bytes.
        extent: u64,
        /// limit_bytes.
        limit: u64,
    },
    /// A volume does not shrink.
    #[error(
        "capacity_range.limit_bytes {} is less than the volume has already, {}; volumes do not shrink",
        size_beside(*limit, *size),
        size_beside(*size, *limit)
    )]
    LimitBelowCurrent {
        /// limit_bytes.
        limit: u64,
        /// What it has, bytes.
        size: u64,
    },
    /// A copy has room for all of its source.
    #[error(
        "capacity_range.{field} {} is less than the source has, {}; a copy is at least as large as its source",
        size_beside(*size, *source_size),
        size_beside(*source_size, *size)
    )]
    BelowSource {
        /// required_bytes or limit_bytes.
        field: &'static str,
        /// What it says, bytes.
        size: u64,
        /// Bytes of the source.
        source_size: u64,
    },
}

/// What a class says about sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizeRules {
    /// Sizes are multiples of this, bytes; 0 counts as 1 MiB.
    pub extent: u64,
    /// The class's smallest volume, bytes.
    pub smallest: u64,
    /// The volume's filesystem; None for block.
    pub fs_type: Option<&'static str>,
}

impl SizeRules {
    fn extent(&self) -> u64 {
        if self.extent == 0 {
            DEFAULT_EXTENT_BYTES
        } else {
            self.extent
        }
    }

    /// The smallest volume these rules allow, bytes; a multiple of the extent.
    pub fn smallest_volume(&self) -> u64 {
        let filesystem = self
            .fs_type
            .and_then(names::smallest_filesystem)
            .unwrap_or(0);
        round_up(self.smallest.max(filesystem).max(1), self.extent())
    }
}

fn round_up(bytes: u64, extent: u64) -> u64 {
    bytes.checked_next_multiple_of(extent).unwrap_or(u64::MAX)
}

/// The size a new volume gets, bytes.
///
/// Nothing asked for is 1 GiB, or the limit if that is less. What is asked for is raised to
/// the smallest volume and rounded up to the extent, as far as the limit allows.
pub fn new_volume(range: SizeRange, rules: SizeRules) -> Result<u64, SizeError> {
    let SizeRange { required, limit } = range;
    if required > MAX_VOLUME_BYTES {
        return Err(SizeError::TooLarge { required });
    }
    let smallest = rules.smallest_volume();
    if let Some(limit) = limit.filter(|limit| *limit < smallest) {
        return Err(SizeError::LimitBelowSmallest {
            limit,
            smallest,
            what: rules.fs_type.unwrap_or("block").to_owned(),
        });
    }
    let extent = rules.extent();
    if required == 0 {
        let most = limit.map_or(u64::MAX, |limit| limit - limit % extent);
        return Ok(round_up(names::DEFAULT_VOLUME_BYTES, extent)
            .min(most)
            .max(smallest));
    }
    let rounded = round_up(required, extent).max(smallest);
    within(required, rounded, extent, limit)
}

/// The size a new volume gets that is a copy of `source_size` bytes. Nothing asked for is the source's size; what is asked for is
/// rounded as for any volume, and must not come to less than the source has.
pub fn copied_volume(
    range: SizeRange,
    rules: SizeRules,
    source_size: u64,
) -> Result<u64, SizeError> {
    let below = |field, size| SizeError::BelowSource {
        field,
        size,
        source_size,
    };
    if let Some(limit) = range.limit.filter(|limit| *limit < source_size) {
        return Err(below("limit_bytes", limit));
    }
    let required = match range.required {
        0 => source_size,
        required => required,
    };
    let bytes = new_volume(SizeRange { required, ..range }, rules)?;
    if bytes < source_size {
        return Err(below("required_bytes", required));
    }
    Ok(bytes)
}

/// The size an existing volume of `current` bytes is grown to, bytes; `current` when it is large enough.
pub fn grown_volume(range: SizeRange, current: u64, extent: u64) -> Result<u64, SizeError> {
    let SizeRange { required, limit } = range;
    if required > MAX_VOLUME_BYTES {
        return Err(SizeError::TooLarge { required });
    }
    if let Some(limit) = limit.filter(|limit| *limit < current) {
        return Err(SizeError::LimitBelowCurrent {
            limit,
            size: current,
        });
    }
    if required <= current {
        return Ok(current);
    }
    let extent = if extent == 0 {
        DEFAULT_EXTENT_BYTES
    } else {
        extent
    };
    within(required, round_up(required, extent), extent, limit)
}

fn within(required: u64, rounded: u64, extent: u64, limit: Option<u64>) -> Result<u64, SizeError> {
    match limit {
        Some(limit) if rounded > limit => Err(SizeError::RoundingExceedsLimit {
            required,
            rounded,
            extent,
            limit,
        }),
        _ => Ok(rounded),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn rules(fs_type: Option<&'static str>) -> SizeRules {
        SizeRules {
            extent: MIB,
            smallest: MIB,
            fs_type,
        }
    }

    fn range(required: u64, limit: u64) -> SizeRange {
        SizeRange {
            required,
            limit: (limit != 0).then_some(limit),
        }
    }

    #[test]
    fn a_new_volume_gets_exactly_what_the_rules_say() {
        for (required, limit, fs, expected) in [
            (0, 0, None, 1024 * MIB),
            (0, 100 * MIB + 5, None, 100 * MIB),
            (1, 0, None, MIB),
            (MIB, MIB, None, MIB),
            (MIB + 1, 0, None, 2 * MIB),
            (1, 0, Some("xfs"), 300 * MIB),
            (1, 0, Some("btrfs"), 256 * MIB),
            (1, 0, Some("ext4"), 16 * MIB),
            (500 * MIB, 500 * MIB, Some("xfs"), 500 * MIB),
        ] {
            assert_eq!(
                new_volume(range(required, limit), rules(fs)),
                Ok(expected),
                "{required} {limit} {fs:?}"
            );
        }
    }

    #[test]
    fn a_size_that_cannot_be_is_told_apart() {
        assert!(matches!(
            new_volume(range(MIB + 1, MIB + 2), rules(None)),
            Err(SizeError::RoundingExceedsLimit { rounded, .. }) if rounded == 2 * MIB
        ));
        assert!(matches!(
            new_volume(range(1, 200 * MIB), rules(Some("xfs"))),
            Err(SizeError::LimitBelowSmallest { .. })
        ));
        assert!(matches!(
            new_volume(range(i64::MAX as u64, 0), rules(None)),
            Err(SizeError::TooLarge { .. })
        ));
        assert!(matches!(
            grown_volume(range(0, MIB), 2 * MIB, MIB),
            Err(SizeError::LimitBelowCurrent { .. })
        ));
        assert_eq!(grown_volume(range(MIB, 0), 2 * MIB, MIB), Ok(2 * MIB));
        let rounded = new_volume(range(MIB + 1, MIB + 2), rules(None)).unwrap_err();
        assert_eq!(
            rounded.to_string(),
            "capacity_range.required_bytes 1.000000 MiB rounds up to 2 MiB, a multiple of 1 MiB, which exceeds limit_bytes 1.000001 MiB"
        );
        let shrunk = grown_volume(range(0, 20 << 30), 30 << 30, MIB).unwrap_err();
        assert_eq!(
            shrunk.to_string(),
            "capacity_range.limit_bytes 20 GiB is less than the volume has already, 30 GiB; volumes do not shrink"
        );
    }

    #[test]
    fn a_copy_is_never_smaller_than_its_source_and_as_large_where_nothing_is_asked_for() {
        for (required, limit, fs, expected) in [
            (0, 0, None, Ok(5 * MIB)),
            (0, 5 * MIB, None, Ok(5 * MIB)),
            (5 * MIB, 0, None, Ok(5 * MIB)),
            // As its source was asked for, which was rounded, too.
            (5 * MIB - 1, 0, None, Ok(5 * MIB)),
            (1, 0, Some("ext4"), Ok(16 * MIB)),
            (7 * MIB, 0, None, Ok(7 * MIB)),
            (4 * MIB, 0, None, Err("required_bytes 4 MiB")),
            (4 * MIB, 8 * MIB, None, Err("required_bytes 4 MiB")),
            (0, 4 * MIB, None, Err("limit_bytes 4 MiB")),
            (1, 4 * MIB, None, Err("limit_bytes 4 MiB")),
        ] {
            let got = copied_volume(range(required, limit), rules(fs), 5 * MIB);
            let got = got.map_err(|error| error.to_string());
            match expected {
                Ok(bytes) => assert_eq!(got, Ok(bytes), "{required} {limit}"),
                Err(field) => assert_eq!(
                    got,
                    Err(format!(
                        "capacity_range.{field} is less than the source has, 5 MiB; a copy is at least as large as its source"
                    ))
                ),
            }
        }
    }

    proptest! {
        #[test]
        fn a_size_is_a_multiple_of_the_extent_and_within_the_range(
            required in 0u64..1 << 50,
            room in 0u64..1 << 40,
            limited: bool,
            extent_mib in 1u64..64,
            fs in prop::sample::select(vec![None, Some("ext4"), Some("xfs"), Some("btrfs")]),
        ) {
            let rules = SizeRules { extent: extent_mib * MIB, smallest: MIB, fs_type: fs };
            let range = SizeRange { required, limit: limited.then_some(required + room + 1) };
            if let Ok(size) = new_volume(range, rules) {
                prop_assert_eq!(size % rules.extent, 0);
                prop_assert!(size >= required && size >= rules.smallest_volume());
                prop_assert!(range.limit.is_none_or(|limit| size <= limit));
            } else {
                prop_assert!(limited);
            }
        }
    }
}
