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

/// Returns the UUIDs that the filesystem of a copy can have until its first stage, the latest first: that of the source, and if the source
/// was a copy itself, those that it could have. Empty if the volume is no copy with a filesystem.
pub fn copied_fs(kept: &BTreeMap<String, String>) -> Vec<Uuid> {
    let kept = kept.get(names::KEPT_COPIED_FS).map_or("", String::as_str);
    kept.split(',')
        .filter_map(|uuid| uuid.parse().ok())
        .collect()
}

/// Adds the UUIDs to the parameters that are kept with the copy of a filesystem: its UUID, and the `earlier` ones that are kept with its
/// volume, at most `MOST` together.
pub fn keep_copied_fs(fs_uuid: Uuid, earlier: &[Uuid], kept: &mut BTreeMap<String, String>) {
    let all = std::iter::once(&fs_uuid).chain(earlier).take(MOST);
    let all: Vec<String> = all.map(Uuid::to_string).collect();
    kept.insert(names::KEPT_COPIED_FS.to_owned(), all.join(","));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_of_a_copy_knows_each_uuid_that_its_filesystem_can_have() {
        let mut kept = BTreeMap::new();
        assert!(copied_fs(&kept).is_empty());
        for number in 1..=9 {
            let earlier = copied_fs(&kept);
            keep_copied_fs(Uuid::from_u128(number), &earlier, &mut kept);
        }
        let all = copied_fs(&kept).into_iter().map(|uuid| uuid.as_u128());
        assert_eq!(all.collect::<Vec<_>>(), [9, 8, 7, 6, 5, 4, 3, 2]);
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
