//! Finds the source of a copy in the inventory, and decides whether it can be copied. Pure.

use uuid::Uuid;

use crate::{
    inventory::is_reachable,
    volumes::{VolumeError, snapshots},
};
use drivebay_csi::new_volume::unreadable_bytes;
use drivebay_model::{
    CopySource, DriveId, FsType, Layout, Mode, Peer, PlaceState, Record, RecordState, Snapshot,
    SnapshotState, Volume, VolumeState, copied::Copied,
};

/// Source of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::volumes) struct Original {
    pub(in crate::volumes) source: CopySource,
    /// The source volume, or the volume of the source snapshot.
    pub(in crate::volumes) volume: Uuid,
    pub(in crate::volumes) drive: DriveId,
    pub(in crate::volumes) layout: Layout,
    pub(super) peer: Peer,
    pub(in crate::volumes) size_bytes: u64,
    pub(in crate::volumes) mode: Mode,
    /// Type and UUID of its filesystem; None: raw, or never mounted.
    fs: Option<(FsType, Uuid)>,
    /// UUIDs that the filesystem may have instead, because the volume was created as a copy itself.
    copied: Vec<Uuid>,
    /// UUIDs that the header of an encrypted volume can have, the latest first; empty: the volume is not encrypted.
    headers: Vec<Uuid>,
    /// False for a volume that was never mounted, or was encrypted and never staged.
    holds_data: bool,
    /// Bytes of it that are zeros because they could not be read when it was created as a copy itself.
    pub(super) unreadable_bytes: u64,
    /// Type of the filesystem that it has or will get; None: raw, or not decided.
    pub(in crate::volumes) fs_type: Option<FsType>,
}

impl Original {
    /// True if the volume is encrypted.
    pub(in crate::volumes) fn is_encrypted(&self) -> bool {
        !self.headers.is_empty()
    }

    /// Changes the record of a new volume into that of an incomplete copy. If the source holds no data, only records the source.
    pub(in crate::volumes) fn apply(&self, record: &mut Record) {
        self.source.keep(&mut record.parameters);
        if !self.holds_data {
            return;
        }
        record.place = PlaceState::Incoming {
            generation: 1,
            from: self.peer.clone(),
        };
        record.state = RecordState::Block;
        if let [latest, earlier @ ..] = self.headers.as_slice() {
            Copied::Header.keep(*latest, earlier, &mut record.parameters);
        }
        if let Some((fs_type, fs_uuid)) = self.fs {
            record.fs_type = Some(fs_type);
            // Never formatted: the copied bytes contain a filesystem.
            record.state = RecordState::Fs {
                fs_type,
                fs_uuid: Uuid::new_v4(),
                mounted: true,
            };
            Copied::Fs.keep(fs_uuid, &self.copied, &mut record.parameters);
        }
    }
}

/// Returns the source if it can be copied now.
///
/// # Errors
/// `NoSource`: it is not in the inventory, or is a volume that is not live. `NotCopied`: it exists, and cannot be copied now or at all.
pub(in crate::volumes) fn original(
    snapshot: &Snapshot,
    source: CopySource,
) -> Result<Original, VolumeError> {
    match source {
        CopySource::Snapshot(uuid) => {
            let entry = snapshots::find(snapshot, |record| record.uuid == uuid);
            let (volume, taken) = entry.ok_or_else(|| VolumeError::NoSource {
                what: format!("snapshot {uuid}"),
            })?;
            let record = &taken.record;
            let refused = |why: String| VolumeError::NotCopied {
                name: record.name.clone(),
                why,
            };
            match taken.state() {
                SnapshotState::Ready => {}
                SnapshotState::Overflowed => {
                    return Err(refused(
                        "the snapshot is lost: its reserve was full, or its store could not be written"
                            .to_owned(),
                    ));
                }
                other => return Err(refused(format!("the snapshot is {other}"))),
            }
            let original = of(snapshot, volume, source).map_err(refused)?;
            Ok(Original {
                size_bytes: record.size_bytes,
                fs: record.fs,
                holds_data: record.holds_data(),
                ..original
            })
        }
        CopySource::Volume(uuid) => {
            let volume = snapshot.volumes.get(&uuid);
            let volume = volume.filter(|volume| crate::inventory::assemble::is_live(volume.state));
            let volume = volume.ok_or_else(|| VolumeError::NoSource {
                what: format!("volume {uuid}"),
            })?;
            if !matches!(volume.state, VolumeState::New | VolumeState::Ready) {
                return Err(VolumeError::NotCopied {
                    name: volume.placed.record.name.clone(),
                    why: format!("the volume is {}", volume.state),
                });
            }
            of(snapshot, volume, source).map_err(|why| VolumeError::NotCopied {
                name: volume.placed.record.name.clone(),
                why,
            })
        }
    }
}

/// Returns why the source may exist although it was not found: the drive on which it was recorded is in `unread`
/// (`Inventory::unread_snapshots`). None if that drive was read. Pure.
pub(super) fn unread_source(unread: &[Peer], recorded: &Peer) -> Option<String> {
    let is_unread = unread.iter().any(|one| one.label == recorded.label);
    is_unread.then(|| {
        format!(
            "drive {} with what is copied is missing or cannot be read; plug it in again",
            recorded.drive
        )
    })
}

fn of(snapshot: &Snapshot, volume: &Volume, source: CopySource) -> Result<Original, String> {
    let drive = snapshot.drives.get(&volume.drive);
    let drive = drive.filter(|drive| is_reachable(drive));
    let contents = drive.and_then(|drive| drive.contents.as_ref());
    let contents = contents.ok_or_else(|| format!("drive {} cannot be read now", volume.drive))?;
    let record = &volume.placed.record;
    let fs = match record.state {
        RecordState::Fs {
            fs_type,
            fs_uuid,
            mounted: true,
        } => Some((fs_type, fs_uuid)),
        _ => None,
    };
    let fs_type = match record.state {
        RecordState::Fs { fs_type, .. } => Some(fs_type),
        _ => record.fs_type,
    };
    let encryption = record.encryption();
    let mut headers: Vec<Uuid> = encryption.iter().map(|one| one.header).collect();
    if encryption.is_some() {
        headers.extend(Copied::Header.of(&record.parameters));
    }
    Ok(Original {
        source,
        volume: volume.uuid,
        drive: volume.drive.clone(),
        layout: contents.layout,
        peer: Peer {
            label: contents.label.drive_uuid,
            drive: volume.drive.clone(),
        },
        size_bytes: record.size_bytes(),
        mode: record.mode,
        fs,
        copied: Copied::Fs.of(&record.parameters),
        headers,
        holds_data: match record.mode {
            Mode::Block => record.state != RecordState::New,
            Mode::Mount => fs.is_some(),
        },
        unreadable_bytes: unreadable_bytes(&record.parameters),
        fs_type,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use drivebay_model::{DriveState, Encryption, encryption::HEADER_BYTES, samples};

    fn node(mounted: bool) -> Snapshot {
        let state = RecordState::Fs {
            fs_type: FsType::Xfs,
            fs_uuid: Uuid::from_u128(50),
            mounted,
        };
        let mut placed = samples::placed(2, state);
        placed.snapshots = vec![samples::snapshot(1, 2)];
        let contents = samples::contents(9, 1, vec![placed.clone()], 0);
        let drive = samples::drive("sda", DriveState::Claimed, Some(contents));
        let volume = Volume {
            state: VolumeState::Ready,
            ..samples::volume(&drive, placed)
        };
        let mut snapshot = Snapshot::default();
        snapshot.volumes.insert(volume.uuid, volume);
        snapshot.drives.insert(drive.id.clone(), drive);
        snapshot
    }

    const SNAPSHOT: CopySource = CopySource::Snapshot(Uuid::from_u128(1));
    const VOLUME: CopySource = CopySource::Volume(Uuid::from_u128(2));

    #[test]
    fn a_copy_never_formats_what_it_gets_and_keeps_the_uuid_that_it_has_until_it_gets_its_own() {
        let source = original(&node(true), VOLUME).unwrap();
        let mut record = samples::placed(3, RecordState::Creating).record;
        source.apply(&mut record);
        assert!(record.place.is_filling());
        let RecordState::Fs {
            fs_type: FsType::Xfs,
            fs_uuid,
            mounted: true,
        } = record.state
        else {
            panic!("{record:?}");
        };
        assert_ne!(fs_uuid, Uuid::from_u128(50));
        assert_eq!(Copied::Fs.of(&record.parameters), [Uuid::from_u128(50)]);
        assert_eq!(source.unreadable_bytes, 0);
        // State at the time of the snapshot.
        let source = original(&node(false), SNAPSHOT).unwrap();
        assert_eq!(source.fs, Some((FsType::Ext4, Uuid::from_u128(99))));
    }

    #[test]
    fn a_copy_of_an_encrypted_volume_has_its_headers_uuid_until_it_gets_its_own() {
        let (own, earlier) = (Uuid::from_u128(7), Uuid::from_u128(6));
        let mut node = node(true);
        let bytes = original(&node, VOLUME).unwrap().size_bytes;
        for volume in node.volumes.values_mut() {
            let kept = &mut volume.placed.record.parameters;
            Encryption { header: own }.keep(kept);
            Copied::Header.keep(earlier, &[], kept);
        }
        let source = original(&node, VOLUME).unwrap();
        assert!(source.is_encrypted());
        assert_eq!(source.size_bytes, bytes - HEADER_BYTES);
        let mut record = samples::placed(3, RecordState::Creating).record;
        source.apply(&mut record);
        assert_eq!(Copied::Header.of(&record.parameters), [own, earlier]);

        // A raw one without a header yet: its copy gets a new one.
        for volume in node.volumes.values_mut() {
            volume.placed.record.mode = Mode::Block;
            volume.placed.record.state = RecordState::New;
        }
        let mut record = samples::placed(3, RecordState::Creating).record;
        original(&node, VOLUME).unwrap().apply(&mut record);
        assert!(record.place.is_first());
        assert!(Copied::Header.of(&record.parameters).is_empty());
    }

    #[test]
    fn what_a_volume_lacks_its_copy_lacks_too() {
        let mut node = node(true);
        for volume in node.volumes.values_mut() {
            let kept = &mut volume.placed.record.parameters;
            kept.insert("copyUnreadableBytes".into(), "8192".into());
        }
        for source in [SNAPSHOT, VOLUME] {
            assert_eq!(original(&node, source).unwrap().unreadable_bytes, 8192);
        }
    }

    #[test]
    fn what_was_never_mounted_is_not_copied() {
        let source = original(&node(false), VOLUME).unwrap();
        assert!(!source.holds_data);
        let mut record = samples::placed(3, RecordState::Creating).record;
        source.apply(&mut record);
        assert!(record.place.is_first());
        assert_eq!(record.state, RecordState::Creating);
        assert_eq!(CopySource::of(&record.parameters), Some(VOLUME));
    }

    #[test]
    fn what_is_lost_unreachable_or_unknown_is_not_copied() {
        let refused = |change: fn(&mut Snapshot), source| {
            let mut node = node(true);
            change(&mut node);
            original(&node, source).unwrap_err().to_string()
        };
        let overflows = |node: &mut Snapshot| {
            for volume in node.volumes.values_mut() {
                volume.placed.snapshots[0].is_overflowed = true;
            }
        };
        assert!(refused(overflows, SNAPSHOT).contains("lost"));
        let hangs = |node: &mut Snapshot| {
            for drive in node.drives.values_mut() {
                drive.trouble = Some("it hangs".into());
            }
        };
        for source in [SNAPSHOT, VOLUME] {
            assert!(refused(hangs, source).contains("cannot be read now"));
            assert!(refused(|node| node.volumes.clear(), source).contains("does not exist"));
        }
        let deleted = |node: &mut Snapshot| {
            for volume in node.volumes.values_mut() {
                volume.state = VolumeState::Erasing;
            }
        };
        assert!(refused(deleted, VOLUME).contains("does not exist"));
    }
}
