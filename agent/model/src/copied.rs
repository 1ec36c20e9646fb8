//! Source of a volume that was made as a copy. Kept among the volume's parameters, which every release preserves with either layout.

use std::collections::BTreeMap;

use drivebay_proto::names;
use uuid::Uuid;

/// Source of the data of a new volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopySource {
    Snapshot(Uuid),
    Volume(Uuid),
}

impl CopySource {
    /// Returns the source by the parameters that are kept with a volume; None if the volume was made empty.
    pub fn of(kept: &BTreeMap<String, String>) -> Option<Self> {
        let uuid = |key: &str| kept.get(key)?.parse().ok();
        let snapshot = uuid(names::KEPT_SOURCE_SNAPSHOT).map(Self::Snapshot);
        snapshot.or_else(|| uuid(names::KEPT_SOURCE_VOLUME).map(Self::Volume))
    }

    /// Adds it to the parameters that are kept with the copy.
    pub fn keep(self, parameters: &mut BTreeMap<String, String>) {
        let (key, uuid) = match self {
            Self::Snapshot(uuid) => (names::KEPT_SOURCE_SNAPSHOT, uuid),
            Self::Volume(uuid) => (names::KEPT_SOURCE_VOLUME, uuid),
        };
        parameters.insert(key.to_owned(), uuid.to_string());
    }
}

/// Maximum of UUIDs that are kept for copies of copies none of which was ever staged.
const MOST: usize = 8;

/// What a copy has the source's UUID of, until its first stage gives it one of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Copied {
    /// Its filesystem.
    Fs,
    /// The header of an encrypted one.
    Header,
}

impl Copied {
    fn key(self) -> &'static str {
        match self {
            Self::Fs => names::KEPT_COPIED_FS,
            Self::Header => names::KEPT_COPIED_HEADER,
        }
    }

    /// Returns the UUIDs that it can have until the first stage, the latest first: that of the source, and if the source was a copy itself,
    /// those that it could have. Empty if the volume is no copy, or its source had none.
    pub fn of(self, kept: &BTreeMap<String, String>) -> Vec<Uuid> {
        let kept = kept.get(self.key()).map_or("", String::as_str);
        kept.split(',')
            .filter_map(|uuid| uuid.parse().ok())
            .collect()
    }

    /// Adds the UUIDs to the parameters that are kept with the copy: the `latest`, and the `earlier` ones that are kept with its source, at
    /// most `MOST` together.
    pub fn keep(self, latest: Uuid, earlier: &[Uuid], kept: &mut BTreeMap<String, String>) {
        let all = std::iter::once(&latest).chain(earlier).take(MOST);
        let all: Vec<String> = all.map(Uuid::to_string).collect();
        kept.insert(self.key().to_owned(), all.join(","));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_of_a_copy_knows_each_uuid_that_it_can_have() {
        for copied in [Copied::Fs, Copied::Header] {
            let mut kept = BTreeMap::new();
            assert!(copied.of(&kept).is_empty());
            for number in 1..=9 {
                let earlier = copied.of(&kept);
                copied.keep(Uuid::from_u128(number), &earlier, &mut kept);
            }
            let all = copied.of(&kept).into_iter().map(|uuid| uuid.as_u128());
            assert_eq!(all.collect::<Vec<_>>(), [9, 8, 7, 6, 5, 4, 3, 2]);
            assert!(crate::created_for::requested(&kept).is_empty());
        }
    }

    #[test]
    fn what_was_copied_is_read_as_it_was_kept() {
        for source in [
            CopySource::Snapshot(Uuid::from_u128(7)),
            CopySource::Volume(Uuid::from_u128(8)),
        ] {
            let mut kept = BTreeMap::new();
            assert_eq!(CopySource::of(&kept), None);
            source.keep(&mut kept);
            assert_eq!(CopySource::of(&kept), Some(source));
            // The source is no parameter of a request.
            assert!(crate::created_for::requested(&kept).is_empty());
        }
    }
}
