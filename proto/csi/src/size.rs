//! Exact sizes of volumes, computed from requests. Pure.

use drivebay_common::units::{human_size, human_sizes, size_beside};
use drivebay_proto::names;

use crate::validate::SizeRange;

/// Largest accepted size: 1 EiB. No drive comes near it, and sums of such sizes fit in 64 bits.
pub const MAX_VOLUME_BYTES: u64 = 1 << 60;
/// Extent of a class that sets none, bytes.
pub const DEFAULT_EXTENT_BYTES: u64 = 1 << 20;

/// No size satisfies the request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    #[error(
        "capacity_range asks for {}; a volume has at most {}",
        size_beside(*required, MAX_VOLUME_BYTES),
        size_beside(MAX_VOLUME_BYTES, *required)
    )]
    TooLarge {
        /// Requested size, or that of the source of a copy if none is requested, bytes; more than [`MAX_VOLUME_BYTES`].
        required: u64,
    },
    #[error(
        "capacity_range.limit_bytes {} is less than the smallest volume, {} for {what}",
        size_beside(*limit, *smallest),
        size_beside(*smallest, *limit)
    )]
    LimitBelowSmallest {
        /// limit_bytes of the request.
        limit: u64,
        /// Result of [`SizeRules::smallest_volume`], bytes; more than `limit`.
        smallest: u64,
        /// Filesystem of the volume; `block` if the rules name none.
        what: String,
    },
    #[error(
        "capacity_range.required_bytes {} rounds up to {}, a multiple of {}, which exceeds limit_bytes {}",
        human_sizes([*required, *rounded, *limit])[0],
        human_sizes([*required, *rounded, *limit])[1],
        human_size(*extent),
        human_sizes([*required, *rounded, *limit])[2]
    )]
    RoundingExceedsLimit {
        /// required_bytes of the request.
        required: u64,
        /// `required` rounded up to the extent, and for a new volume to the smallest one, bytes; more than `limit`.
        rounded: u64,
        /// Extent of the class, bytes.
        extent: u64,
        /// limit_bytes of the request.
        limit: u64,
    },
    #[error(
        "capacity_range.limit_bytes {} is less than the volume has already, {}; volumes do not shrink",
        size_beside(*limit, *size),
        size_beside(*size, *limit)
    )]
    LimitBelowCurrent {
        /// limit_bytes of the request.
        limit: u64,
        /// Current size of the volume, bytes.
        size: u64,
    },
    #[error(
        "capacity_range.{field} {} is less than the source has, {}; a copy is at least as large as its source",
        size_beside(*size, *source_size),
        size_beside(*source_size, *size)
    )]
    BelowSource {
        /// Name of the field: required_bytes or limit_bytes.
        field: &'static str,
        /// Value of the field, bytes.
        size: u64,
        /// Size of the source, bytes.
        source_size: u64,
    },
}

/// Rules of a class for sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizeRules {
    /// Sizes are multiples of this, bytes; 0 means 1 MiB.
    pub extent: u64,
    /// Smallest volume of the class, bytes.
    pub smallest: u64,
    /// Filesystem of the volume; None for block.
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

    /// Returns the size of the smallest volume that these rules allow, bytes; a multiple of the extent.
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

/// Returns the size of a new volume, bytes.
///
/// The default is 1 GiB, or the limit if that is less. A required size is raised to the smallest volume and rounded up to the extent. Errs
/// if the result exceeds the limit or [`MAX_VOLUME_BYTES`].
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

/// Returns the size of a new volume that is a copy of `source_size` bytes. The default is the source's size; a required size is rounded as
/// for any volume. Errs if the result is less than the source's size.
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

/// Returns the size to which an existing volume of `current` bytes is expanded, bytes; `current` if that is large enough.
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
    fn a_new_volume_gets_exactly_the_size_of_the_rules() {
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
    fn each_kind_of_impossible_size_has_its_error() {
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
    fn a_copy_is_never_smaller_than_its_source_and_as_large_by_default() {
        for (required, limit, fs, expected) in [
            (0, 0, None, Ok(5 * MIB)),
            (0, 5 * MIB, None, Ok(5 * MIB)),
            (5 * MIB, 0, None, Ok(5 * MIB)),
            // The size that was requested for its source, which was rounded as well.
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
