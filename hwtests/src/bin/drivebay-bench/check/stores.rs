//! Snapshot stores for a mounted volume that is checked: snapshots of LVM, and others of device-mapper.

use drivebay_hwtests::Trouble;

use super::volume::{POOL, SNAPSHOT, VOLUME, Volume, lvcreate, lvremove, used};

/// Sectors of 512 bytes in a KiB.
const SECTORS: u64 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Store {
    /// Snapshot of LVM, as the agent creates it, with chunks of this many KiB.
    Lvm(u64),
    /// The same with its exceptions not written to the drive, so that it is lost at a reboot. LVM has no option for it.
    Transient(u64),
    /// The same with its store on another drive.
    OtherDrive(u64),
    /// Thin snapshot of a thin volume, whose pool has blocks of 64 KiB.
    Thin,
    /// dm-era with blocks of this many KiB: no copy, only a record of the writes.
    Era(u64),
}

impl Store {
    pub(super) const ALL: [Self; 11] = [
        Self::Lvm(4),
        Self::Lvm(16),
        Self::Lvm(64),
        Self::Lvm(256),
        Self::Lvm(512),
        Self::Transient(4),
        Self::Transient(64),
        Self::OtherDrive(4),
        Self::Thin,
        Self::Era(64),
        Self::Era(4096),
    ];

    /// Subset for a drive that is too slow to measure all.
    pub(super) const FEW: [Self; 6] = [
        Self::Lvm(4),
        Self::Lvm(16),
        Self::Lvm(64),
        Self::Lvm(512),
        Self::Transient(4),
        Self::Era(4096),
    ];

    pub(super) fn name(self) -> String {
        match self {
            Self::Lvm(kib) => format!("LVM, {kib} KiB"),
            Self::Transient(kib) => format!("dm N, {kib} KiB"),
            Self::OtherDrive(kib) => format!("other drive, {kib}"),
            Self::Thin => "thin, 64 KiB".to_owned(),
            Self::Era(kib) => format!("dm-era, {kib} KiB"),
        }
    }

    /// Adds the store to a mounted volume, whose I/O is suspended meanwhile.
    pub(super) fn add(self, volume: &Volume) -> Result<Added<'_>, Trouble> {
        let over = match self {
            Self::Lvm(kib) => {
                let (chunk, room) = (format!("{kib}k"), format!("{}m", super::STORE));
                let origin = volume.lv(VOLUME);
                lvcreate(&["-s", "-c", &chunk, "-L", &room, "-n", SNAPSHOT, &origin])?;
                Over::Lvm
            }
            Self::Thin => {
                lvcreate(&["-s", "-n", SNAPSHOT, &volume.lv(VOLUME)])?;
                Over::Thin
            }
            Self::Transient(kib) => {
                volume.over(Some(&snapshot(&volume.store, "N", kib)), "snapshot-origin")?;
                Over::Dm
            }
            Self::OtherDrive(kib) => {
                volume.over(Some(&snapshot(&volume.other, "P", kib)), "snapshot-origin")?;
                Over::Dm
            }
            Self::Era(kib) => {
                let target = format!("era {} REAL {}", volume.store, kib * SECTORS);
                volume.over(None, &target)?;
                Over::Era
            }
        };
        Ok(Added { volume, over })
    }
}

/// Returns the table of a snapshot, without its size.
fn snapshot(store: &str, kind: &str, kib: u64) -> String {
    format!("snapshot REAL {store} {kind} {}", kib * SECTORS)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Over {
    Lvm,
    Thin,
    Dm,
    Era,
}

/// A store that was added to a mounted volume.
#[derive(Debug)]
pub(super) struct Added<'a> {
    volume: &'a Volume,
    over: Over,
}

impl Added<'_> {
    /// Returns the snapshot's device.
    pub(super) fn node(&self) -> String {
        match self.over {
            Over::Lvm | Over::Thin => format!("/dev/{}", self.volume.lv(SNAPSHOT)),
            Over::Dm | Over::Era => format!("/dev/mapper/{SNAPSHOT}"),
        }
    }

    /// Returns the bytes stored so far; None if it stores nothing.
    pub(super) fn stored(&self) -> Result<Option<u64>, Trouble> {
        // 0 4194304 snapshot 1234/3145728 16
        // 0 7340032 thin-pool 1 130/1024 5678/57344 - rw discard_passdown queue_if_no_space - 1024
        let (name, word, bytes) = match self.over {
            Over::Lvm => (self.volume.mapped(SNAPSHOT), 3, 512),
            Over::Dm => (SNAPSHOT.to_owned(), 3, 512),
            Over::Thin => (self.volume.mapped(&format!("{POOL}-tpool")), 5, 64 << 10),
            Over::Era => return Ok(None),
        };
        used(&name, word, bytes).map(Some)
    }

    pub(super) fn remove(self) -> Result<(), Trouble> {
        match self.over {
            Over::Lvm | Over::Thin => lvremove(&self.volume.lv(SNAPSHOT)),
            Over::Dm => self.volume.bare(true),
            Over::Era => self.volume.bare(false),
        }
    }
}
