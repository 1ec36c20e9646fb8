//! A volume of layout partition on one of two drives that can fail, and a file whose blocks can be located on the drive.

use std::collections::HashMap;

use drivebay_hwtests::{MIB, Rig, csi, hang::HungDrive, rig::Placed};
use drivebay_proto::csi::CreateVolumeRequest;

use super::moves::use_volume;

/// Size of each of the two drives, bytes.
pub(crate) const SIZE: u64 = 512 * MIB;
pub(crate) const SECTOR: u64 = 512;
pub(crate) const BLOCK: usize = 4096;
/// The class of both drives.
pub(crate) const CLASS: &str = "failing";

pub(crate) struct Failing {
    // Dropped before the drives.
    pub(crate) rig: Rig,
    pub(crate) volume: Placed,
    /// The drive that holds the volume.
    pub(crate) from: HungDrive,
    pub(crate) to: HungDrive,
}

impl Failing {
    /// Creates the volume, ext4 with blocks of 4 KiB, in use. `more`: further sections of the configuration file.
    pub(crate) async fn new(name: &str, more: &str) -> Self {
        Self::of("ext4", name, more).await
    }

    /// Creates the volume with this filesystem, of blocks of 4 KiB, in use.
    pub(crate) async fn of(fs_type: &str, name: &str, more: &str) -> Self {
        let (bytes, options) = match fs_type {
            "xfs" => (320 * MIB, ""),
            "btrfs" => (160 * MIB, ""),
            _ => (64 * MIB, "-b 4096"),
        };
        let mut drives = [HungDrive::new(SIZE).unwrap(), HungDrive::new(SIZE).unwrap()];
        let paths: Vec<String> = drives
            .iter()
            .map(|drive| drive.file().display().to_string())
            .collect();
        let class = format!(
            "[[class]]\nname = \"{CLASS}\"\nlayout = \"partition\"\nplacement = \"spread\"\n[class.select]\npath = {paths:?}\n"
        );
        let rig = Rig::tuned(Vec::new(), |settings| {
            settings.more = format!("{more}{class}");
        })
        .await;
        for drive in &drives {
            rig.is_available(drive).await;
        }
        let how = csi::mount(fs_type);
        let made = rig.csi.create_with(CreateVolumeRequest {
            name: name.to_owned(),
            capacity_range: Some(csi::bytes(bytes)),
            volume_capabilities: vec![how.clone()],
            parameters: HashMap::from([
                ("class".to_owned(), CLASS.to_owned()),
                ("mkfsOptions".to_owned(), options.to_owned()),
            ]),
            ..Default::default()
        });
        let volume = rig.place(&made.await.unwrap(), name, &how);
        let on = rig.volume_of(&volume.id).await.unwrap().drive;
        if id(&drives[1]) == on {
            drives.swap(0, 1);
        }
        let [from, to] = drives;
        use_volume(&rig, &volume).await;
        Self {
            rig,
            volume,
            from,
            to,
        }
    }

    /// Returns the place on the volume's drive of this block of the file with [`text`] of this word.
    pub(crate) fn place_of(&self, word: &str, number: usize) -> u64 {
        let beginning = &block(word, number)[..16];
        self.from.find(beginning).unwrap().unwrap()
    }
}

pub(crate) fn id(drive: &HungDrive) -> String {
    drive.drive_ref().unwrap().id.0
}

/// Returns a block whose contents are unique to its word and number.
fn block(word: &str, number: usize) -> Vec<u8> {
    let mut block = format!("{word} {number:05}\n").into_bytes();
    block.resize(BLOCK, b'.');
    block
}

/// Returns the contents of a file whose blocks [`place_of`](Failing::place_of) finds by this word.
pub(crate) fn text(word: &str) -> Vec<u8> {
    (0..64).flat_map(|number| block(word, number)).collect()
}
