//! Resolves typed names of drives, volumes, snapshots and groups, in the same way for every command.

use drivebay_common::pick::{self, Kind, Names, Part, PickError, Typed, device_behind, select};
use drivebay_proto::agent::{Drive, InventoryUpdate, Volume};
use drivebay_view::{
    show::{claim, drive_names, volume_names},
    snapshots::{GroupEntry, SnapshotEntry, entries, groups},
};

const DRIVE: Kind = Kind {
    name: "drive",
    list: "drivebay-agent drives --all",
};
const VOLUME: Kind = Kind {
    name: "volume",
    list: "drivebay-agent volumes",
};
const SNAPSHOT: Kind = Kind {
    name: "snapshot",
    list: "drivebay-agent snapshots",
};

const SNAPSHOT_OR_GROUP: Kind = Kind {
    name: "snapshot or group",
    ..SNAPSHOT
};

/// A snapshot, or all of a group.
#[derive(Debug, Clone)]
pub enum SnapshotOrGroup<'a> {
    Snapshot(SnapshotEntry<'a>),
    Group(GroupEntry<'a>),
}

impl<'a> SnapshotOrGroup<'a> {
    pub fn names(&self) -> Names<'a> {
        match self {
            Self::Snapshot(entry) => entry.names(),
            Self::Group(entry) => entry.names(),
        }
    }
}

/// Returns the drive that `typed` names, e.g. by its identity, kernel name or a device path. Errs if there is none, or more than one.
/// `part`: whether a unique prefix is accepted.
pub fn drive<'a>(
    inventory: &'a InventoryUpdate,
    typed: &str,
    part: Part,
) -> Result<&'a Drive, PickError> {
    let device = device_behind(typed);
    let typed = Typed::new(typed, device.as_deref());
    pick::pick(&inventory.drives, typed, DRIVE, part, drive_names)
}

/// Returns the volume that `typed` names, e.g. by its name, uuid or a device path. Errs if there is none, or more than one. `part`: whether
/// a unique prefix is accepted.
pub fn volume<'a>(
    inventory: &'a InventoryUpdate,
    typed: &str,
    part: Part,
) -> Result<&'a Volume, PickError> {
    let device = device_behind(typed);
    let typed = Typed::new(typed, device.as_deref());
    let all = with_claims(&inventory.volumes);
    let picked = pick::pick(&all, typed, VOLUME, part, |(volume, claim)| {
        volume_names(volume, claim)
    });
    picked.map(|(volume, _)| *volume)
}

/// Returns the snapshot whose name, uuid or id is exactly `typed`. Errs if there is none, or more than one.
pub fn snapshot<'a>(
    inventory: &'a InventoryUpdate,
    typed: &str,
) -> Result<SnapshotEntry<'a>, PickError> {
    let all = entries(&inventory.volumes);
    let typed = Typed::new(typed, None);
    let picked = pick::pick(&all, typed, SNAPSHOT, Part::Whole, |entry| entry.names());
    picked.copied()
}

/// Returns the snapshot or group whose name, uuid or id is exactly `typed`. Errs if there is none, or more than one.
pub fn snapshot_or_group<'a>(
    inventory: &'a InventoryUpdate,
    typed: &str,
) -> Result<SnapshotOrGroup<'a>, PickError> {
    let snapshots = entries(&inventory.volumes);
    let groups = groups(&snapshots).into_iter().map(SnapshotOrGroup::Group);
    let snapshots = snapshots.iter().copied().map(SnapshotOrGroup::Snapshot);
    let all: Vec<SnapshotOrGroup<'a>> = groups.chain(snapshots).collect();
    let typed = Typed::new(typed, None);
    let kind = SNAPSHOT_OR_GROUP;
    let picked = pick::pick(&all, typed, kind, Part::Whole, |one| one.names());
    picked.cloned()
}

fn with_claims(volumes: &[Volume]) -> Vec<(&Volume, String)> {
    volumes
        .iter()
        .map(|volume| (volume, claim(volume)))
        .collect()
}

/// Returns the drives that any of the names selects, in the order of the inventory; all drives if `names` is empty.
pub fn drives<'a>(
    inventory: &'a InventoryUpdate,
    names: &[String],
) -> Result<Vec<&'a Drive>, PickError> {
    let all = &inventory.drives;
    chosen(all, names, |typed| select(all, typed, DRIVE, drive_names))
}

/// Returns the volumes that any of the names selects, in the order of the inventory; all volumes if `names` is empty.
pub fn volumes<'a>(
    inventory: &'a InventoryUpdate,
    names: &[String],
) -> Result<Vec<&'a Volume>, PickError> {
    let all = with_claims(&inventory.volumes);
    chosen(&inventory.volumes, names, |typed| {
        select(&all, typed, VOLUME, |(volume, claim)| {
            volume_names(volume, claim)
        })
    })
}

fn chosen<'a, T>(
    all: &'a [T],
    names: &[String],
    select: impl Fn(Typed<'_>) -> Result<Vec<usize>, PickError>,
) -> Result<Vec<&'a T>, PickError> {
    let mut chosen = std::collections::BTreeSet::new();
    for name in names {
        let device = device_behind(name);
        chosen.extend(select(Typed::new(name, device.as_deref()))?);
    }
    let all = all.iter().enumerate();
    let meant = all.filter(|(at, _)| names.is_empty() || chosen.contains(at));
    Ok(meant.map(|(_, one)| one).collect())
}
