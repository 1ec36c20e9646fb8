//! What was typed as the name of a drive or volume, and which one is meant: the same for every command.

use drivebay_common::pick::{self, Kind, Part, PickError, Typed, device_behind, select};
use drivebay_proto::agent::{Drive, InventoryUpdate, Volume};
use drivebay_view::{
    show::{claim, drive_names, volume_names},
    snapshots::{SnapshotEntry, entries},
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

/// The drive that is meant.
pub fn drive<'a>(
    inventory: &'a InventoryUpdate,
    typed: &str,
    part: Part,
) -> Result<&'a Drive, PickError> {
    let device = device_behind(typed);
    let typed = Typed::new(typed, device.as_deref());
    pick::pick(&inventory.drives, typed, DRIVE, part, drive_names)
}

/// The volume that is meant.
pub fn volume<'a>(
    inventory: &'a InventoryUpdate,
    typed: &str,
    part: Part,
) -> Result<&'a Volume, PickError> {
    let device = device_behind(typed);
    let typed = Typed::new(typed, device.as_deref());
    let all = with_claims(&inventory.volumes);
    let found = pick::pick(&all, typed, VOLUME, part, |(volume, claim)| {
        volume_names(volume, claim)
    });
    found.map(|(volume, _)| *volume)
}

/// The snapshot that is meant by its whole name, uuid or id.
pub fn snapshot<'a>(
    inventory: &'a InventoryUpdate,
    typed: &str,
) -> Result<SnapshotEntry<'a>, PickError> {
    let all = entries(&inventory.volumes);
    let typed = Typed::new(typed, None);
    let found = pick::pick(&all, typed, SNAPSHOT, Part::Whole, |entry| entry.names());
    found.copied()
}

fn with_claims(volumes: &[Volume]) -> Vec<(&Volume, String)> {
    volumes
        .iter()
        .map(|volume| (volume, claim(volume)))
        .collect()
}

/// The drives that a list is asked for; None named: all.
pub fn drives<'a>(
    inventory: &'a InventoryUpdate,
    names: &[String],
) -> Result<Vec<&'a Drive>, PickError> {
    let all = &inventory.drives;
    chosen(all, names, |typed| select(all, typed, DRIVE, drive_names))
}

/// The volumes that a list is asked for; None named: all.
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
