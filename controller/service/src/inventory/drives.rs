//! A node's drives, kept encoded: they are rarely read, and decoded ones take several times as much memory, for thousands of nodes.

use std::collections::BTreeMap;

use drivebay_proto::agent::Drive;
use prost::Message;

use super::contents::replace;
use crate::bounds;

pub(super) type Drives = BTreeMap<String, PackedDrive>;

#[derive(Debug)]
pub(super) struct PackedDrive {
    encoded: Box<[u8]>,
    // Bytes that it counts against the node's bound.
    bytes: usize,
}

impl PackedDrive {
    fn of(drive: &Drive) -> Self {
        Self {
            encoded: drive.encode_to_vec().into(),
            bytes: bounds::drive_bytes(drive),
        }
    }

    pub(super) fn decode(&self) -> Drive {
        // The bytes come from encoding a drive, so decoding does not fail.
        Drive::decode(&*self.encoded).unwrap_or_default()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

pub(super) fn change_drives(
    drives: &mut Drives,
    bytes: &mut usize,
    removed: Vec<String>,
    put: Vec<Drive>,
) {
    for id in removed {
        let before = drives.remove(&id);
        replace(bytes, before.as_ref().map(PackedDrive::bytes), 0);
    }
    for drive in put {
        let packed = PackedDrive::of(&drive);
        let now = packed.bytes;
        let before = drives.insert(drive.id, packed);
        replace(bytes, before.as_ref().map(PackedDrive::bytes), now);
    }
}

#[cfg(test)]
mod tests {
    use drivebay_proto::agent::DriveHealth;

    use super::*;

    #[test]
    fn a_drive_comes_back_as_it_was_and_takes_little_more_than_its_encoding() {
        let drive = Drive {
            id: "wwn-0x5000c500a1b2c3d4".into(),
            state: "claimed".into(),
            rejects: vec![Default::default()],
            health: Some(DriveHealth::default()),
            ..Drive::default()
        };
        let (mut drives, mut bytes) = (Drives::new(), 0);
        change_drives(&mut drives, &mut bytes, Vec::new(), vec![drive.clone()]);
        let kept = &drives[&drive.id];
        assert_eq!(kept.decode(), drive);
        assert_eq!(kept.encoded.len(), drive.encoded_len());
        assert!(size_of::<PackedDrive>() <= 24);
        assert_eq!(bytes, bounds::drive_bytes(&drive));
        change_drives(&mut drives, &mut bytes, vec![drive.id], Vec::new());
        assert!(drives.is_empty());
        assert_eq!(bytes, 0);
    }
}
