//! Metadata and the kernel's devices put together: what is on an LVM drive of ours. Pure.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::{
    metadata::{Lv, Segment, Vg},
    name, plan,
    tags::{self, Read, VgMark},
};
use drivebay_model::{
    Contents, DeletedStore, ErasePolicy, Extent, Layout, Mode, Placed, PlacedSnapshot, Record,
    RecordState, SnapshotRecord, Space,
    units::{human_size, human_sizes},
};
use drivebay_sys::dm::{self, DmDevice};

/// A VG that is ours, understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// Contents of the VG's tags.
    pub mark: VgMark,
    /// Volumes, snapshots and free space of the VG, with the kernel's devices of them.
    pub contents: Contents,
    /// The LV of each volume in `contents`, by the volume's uuid; not there for a uuid that several LVs have.
    pub lvs: BTreeMap<Uuid, Lv>,
    /// Volumes whose device is smaller than the LV, or suspended, and otherwise right: a change that was
    /// interrupted, which `lvchange --refresh` completes. They are ambiguous until then.
    pub stale: Vec<Uuid>,
    /// Volumes whose device lies on the drive as it was before it was unplugged and came back: dead, and to be removed
    /// once no process has it open. They are ambiguous until then.
    pub orphaned: Vec<Uuid>,
    /// Snapshots by which volumes are checked, by the volume's uuid; and snapshots that were deleted or never completed, by the
    /// snapshot's uuid: attached to their volumes, or not marked for erasing yet. One of a group that is attached to its volume and not
    /// complete is in `snapshots`.
    pub checks: BTreeMap<Uuid, Lv>,
    /// LVs that stored a snapshot and are marked for erasing, by erase guid.
    pub deleted_stores: BTreeMap<Uuid, Lv>,
    /// The LV of each snapshot in `contents`, by the snapshot's uuid.
    pub snapshots: BTreeMap<Uuid, Lv>,
}

/// Puts them together. `kernel_name` is the drive's (`sda`) and `size` its bytes; `erased` how many bytes are durably zero
/// by erase guid. Err says why the VG as a whole cannot be believed (or is not ours).
pub fn view(
    vg: &Vg,
    devices: &[DmDevice],
    kernel_name: &str,
    erased: &BTreeMap<Uuid, u64>,
    size: u64,
) -> Result<View, String> {
    let mark = match tags::vg(&vg.tags) {
        Read::Ours(mark) => mark,
        Read::Stranger => return Err(format!("the VG {} is not ours", vg.name)),
        Read::Broken { why, .. } => return Err(format!("the VG {}: {why}", vg.name)),
    };
    if !vg.strange.is_empty() {
        return Err(format!("the VG {}: {}", vg.name, vg.strange.join("; ")));
    }
    if vg.extent_bytes != plan::EXTENT_BYTES || !vg.pv.pe_start.is_multiple_of(plan::EXTENT_BYTES) {
        return Err(format!(
            "the VG {} has extents of {} from byte {}, which we do not make",
            vg.name,
            human_size(vg.extent_bytes),
            vg.pv.pe_start
        ));
    }
    let extents = vg.pv.pe_count.saturating_mul(vg.extent_bytes);
    let end = vg.pv.pe_start.saturating_add(extents);
    if end > size.saturating_sub(plan::TAIL) {
        return Err(format!(
            "the VG {} reaches into the last MiB of the drive, where other programs look for partition tables and RAID \
             superblocks that a volume's user could write there: it was made by a build before 0.1.0, with which it can be emptied",
            vg.name
        ));
    }
    let mut volumes = Vec::new();
    let mut strangers = Vec::new();
    let mut notes = Vec::new();
    let mut stale = Vec::new();
    let mut orphaned = Vec::new();
    let mut uuids = BTreeSet::new();
    let mut twice = BTreeSet::new();
    let mut lvs = BTreeMap::new();
    let mut checks = BTreeMap::new();
    let mut marked = BTreeMap::new();
    let mut deleted_stores = Vec::new();
    let mut snapshots = Vec::new();
    for lv in &vg.lvs {
        if let Some(erase_guid) = name::store_guid(&lv.name) {
            let bytes = extent(vg, lv).len;
            deleted_stores.push(DeletedStore {
                erase_guid,
                bytes,
                done_bytes: done(erased, erase_guid, bytes),
            });
            marked.insert(erase_guid, lv.clone());
            continue;
        }
        if let Some(volume) = name::checked(&lv.name) {
            checks.insert(volume, lv.clone());
            continue;
        }
        if let Some(uuid) = name::snapshot_uuid(&lv.name) {
            match tags::snapshot(&lv.tags) {
                // Never acknowledged. For an attached member of a group the agent decides: the group may be about to be completed.
                Read::Ours(record)
                    if !record.is_complete
                        && (record.group.is_none() || lv.snapshot_of.is_none()) =>
                {
                    checks.insert(uuid, lv.clone());
                }
                record => snapshots.push((uuid, record, lv)),
            }
            continue;
        }
        let extent = extent(vg, lv);
        let (mut record, mut ambiguous) = match tags::record(&lv.tags, extent) {
            Read::Ours(record) => (record, None),
            Read::Stranger => {
                strangers.push((lv.name.clone(), extent));
                continue;
            }
            Read::Broken {
                why, uuid: None, ..
            } => {
                notes.push(format!("the LV {} is not to be believed: {why}", lv.name));
                strangers.push((lv.name.clone(), extent));
                continue;
            }
            Read::Broken {
                why,
                uuid: Some(uuid),
                name,
            } => (shown(uuid, name, lv, extent), Some(why)),
        };
        ambiguous = ambiguous.or_else(|| lv.strange.clone());
        if let Some(erase_guid) = name::erase_guid(&lv.name) {
            record.state = RecordState::Erasing {
                erase_guid,
                done_bytes: done(erased, erase_guid, extent.len),
            };
        }
        let dm_uuid = dm_uuid(vg, lv);
        let of_uuid = devices.iter().find(|device| device.uuid == dm_uuid);
        // One that stands on another drive is that one's, whose copy this one is.
        let device = of_uuid.filter(|device| device.stands_on(kernel_name));
        if let (None, Some(other), None) = (&ambiguous, of_uuid, device) {
            ambiguous = Some(format!(
                "the device of its uuid, {}, lies on {}, and the LV on {kernel_name}",
                other.kernel_name,
                other.slaves.join(", ")
            ));
        }
        if let (None, Some(device)) = (&ambiguous, device) {
            if device.orphaned {
                orphaned.push(record.uuid);
                ambiguous = Some(format!(
                    "its device {} is of before the drive was unplugged, and still in use; unmount the volume",
                    device.kernel_name
                ));
            } else if device.slaves != [kernel_name] {
                ambiguous = Some(format!(
                    "its device {} lies on {}, and the LV on {kernel_name}",
                    device.kernel_name,
                    device.slaves.join(", ")
                ));
            } else if device.size_bytes != extent.len || device.suspended {
                if device.size_bytes <= extent.len {
                    stale.push(record.uuid);
                }
                ambiguous = Some(if device.suspended {
                    format!("its device {} is suspended", device.kernel_name)
                } else {
                    let [of_device, of_lv] = human_sizes([device.size_bytes, extent.len]);
                    format!(
                        "its device {} has {of_device}, and the LV {of_lv}",
                        device.kernel_name
                    )
                });
            }
        }
        if !uuids.insert(record.uuid) {
            twice.insert(record.uuid);
        }
        lvs.insert(record.uuid, lv.clone());
        volumes.push(Placed {
            record,
            number: None,
            device: device.map(|device| device.kernel_name.clone()),
            dev: device.map(|device| device.dev),
            dm_uuid: Some(dm_uuid),
            pieces: runs(vg, lv),
            mapping: None,
            snapshots: Vec::new(),
            ambiguous,
        });
    }
    for placed in &mut volumes {
        if twice.contains(&placed.record.uuid) {
            placed.ambiguous = Some("several LVs of this VG have its uuid in their tags".into());
        }
    }
    lvs.retain(|uuid, _| !twice.contains(uuid));
    for (uuid, lv) in &lvs {
        // The kernel has it as the origin of snapshots, and LVM has none of it.
        let layer = format!("{}-real", dm_uuid(vg, lv));
        let has_snapshot = |one: &Lv| one.snapshot_of.as_ref() == Some(&lv.name);
        if devices.iter().any(|device| device.uuid == layer) && !vg.lvs.iter().any(has_snapshot) {
            stale.push(*uuid);
        }
    }
    stale.retain(|uuid| !twice.contains(uuid));
    orphaned.retain(|uuid| !twice.contains(uuid));
    let mut stores = BTreeMap::new();
    for (uuid, record, lv) in snapshots {
        let origin = lv.snapshot_of.as_deref();
        let origin = lvs.iter().find(|(_, of)| Some(of.name.as_str()) == origin);
        let placed = origin.and_then(|(origin, _)| {
            volumes
                .iter_mut()
                .find(|placed: &&mut Placed| placed.record.uuid == *origin)
        });
        let Some(placed) = placed else {
            notes.push(format!(
                "the LV {} is a snapshot of no volume that is known",
                lv.name
            ));
            strangers.push((lv.name.clone(), extent(vg, lv)));
            continue;
        };
        placed.snapshots.push(snapshot(
            vg,
            devices,
            kernel_name,
            lv,
            uuid,
            record,
            placed.record.uuid,
        ));
        stores.insert(uuid, lv.clone());
    }
    for placed in &mut volumes {
        placed
            .snapshots
            .sort_by_key(|one| (one.record.created_at, one.record.uuid));
    }
    volumes.sort_by_key(|placed| (placed.record.extent.start, placed.record.uuid));
    notes.extend(
        stale.iter().map(|uuid| {
            format!("a change of volume {uuid} was interrupted before the kernel had it")
        }),
    );
    notes.extend(
        orphaned
            .iter()
            .map(|uuid| format!("volume {uuid} has a device of before the drive was unplugged")),
    );
    if vg.autoactivation {
        notes.push(format!(
            "the host activates the LVs of {} by itself at boot; vgchange --setautoactivation n {} ends that",
            vg.name, vg.name
        ));
    }
    let unknown = unknown_devices(vg, devices, kernel_name);
    let free = if unknown.is_empty() {
        free(vg).into_iter().map(|run| bytes(vg, run)).collect()
    } else {
        // What they stand on is not known, so no space is known to be free.
        notes.push(format!(
            "devices that are no LV of {} stand on the drive: {}; no space of it is given out until they are gone",
            vg.name,
            unknown.join(", ")
        ));
        Vec::new()
    };
    let unmarked_bytes = checks.values().map(|lv| extent(vg, lv).len).sum();
    Ok(View {
        contents: Contents {
            label: mark.label.clone(),
            layout: Layout::Lvm,
            sequence: vg.seqno,
            read_at: Default::default(),
            volumes,
            free,
            space: Space::default(),
            usable_bytes: vg.pv.pe_count * vg.extent_bytes,
            extent_bytes: vg.extent_bytes,
            table_full: false,
            unmarked_bytes,
            deleted_stores,
            strangers,
            notes,
        },
        mark,
        lvs,
        stale,
        orphaned,
        checks,
        deleted_stores: marked,
        snapshots: stores,
    })
}

/// Returns the bytes of a deleted LV that are recorded as erased.
fn done(erased: &BTreeMap<Uuid, u64>, erase_guid: Uuid, bytes: u64) -> u64 {
    erased.get(&erase_guid).copied().unwrap_or(0).min(bytes)
}

/// Combines a snapshot's record with its kernel device. The caller applies the kernel's status, e.g. that it is lost, afterwards.
fn snapshot(
    vg: &Vg,
    devices: &[DmDevice],
    kernel_name: &str,
    lv: &Lv,
    uuid: Uuid,
    record: Read<SnapshotRecord>,
    volume: Uuid,
) -> PlacedSnapshot {
    let (record, ambiguous) = match record {
        Read::Ours(record) if record.uuid != uuid => {
            (record, Some(format!("its LV is called {}", lv.name)))
        }
        Read::Ours(record) if record.volume != volume => {
            let why = format!("it is recorded as one of volume {}", record.volume);
            (record, Some(why))
        }
        Read::Ours(record) => (record, None),
        Read::Stranger => (
            unknown_snapshot(uuid, None, volume),
            Some("its tags are gone".into()),
        ),
        Read::Broken { why, name, .. } => (unknown_snapshot(uuid, name, volume), Some(why)),
    };
    let dm_uuid = dm_uuid(vg, lv);
    let device = dm::on_drive(devices, kernel_name, &dm_uuid);
    let occupied: u64 = lv.occupies.iter().map(|run| bytes(vg, *run).len).sum();
    PlacedSnapshot {
        is_overflowed: record.is_lost,
        record,
        device: device.map(|device| device.kernel_name.clone()),
        dev: device.map(|device| device.dev),
        dm_uuid,
        reserve_bytes: occupied,
        ambiguous,
    }
}

/// Returns a placeholder record for a snapshot whose tags are not valid.
fn unknown_snapshot(uuid: Uuid, name: Option<String>, volume: Uuid) -> SnapshotRecord {
    SnapshotRecord {
        uuid,
        name: name.unwrap_or_default(),
        volume,
        created_at: 0,
        size_bytes: 0,
        mode: Mode::Mount,
        fs: None,
        expires_at: None,
        group: None,
        is_complete: true,
        is_lost: false,
    }
}

/// Returns a placeholder record for a volume whose tags are not valid, so that it is listed. The volume is ambiguous, so it is not changed.
fn shown(uuid: Uuid, name: Option<String>, lv: &Lv, extent: Extent) -> Record {
    Record {
        uuid,
        name: name.unwrap_or_else(|| lv.name.clone()),
        class: String::new(),
        mode: Mode::Mount,
        fs_type: None,
        mkfs_options: Vec::new(),
        mount_options: Vec::new(),
        parameters: BTreeMap::new(),
        erase: ErasePolicy::Zero,
        requested_bytes: extent.len,
        extent,
        growing_to: None,
        place: Default::default(),
        state: RecordState::New,
    }
}

/// Device-mapper devices on the drive that are no LV (or part of one) of this VG.
fn unknown_devices(vg: &Vg, devices: &[DmDevice], kernel_name: &str) -> Vec<String> {
    let prefixes: Vec<String> = vg.lvs.iter().map(|lv| dm_uuid(vg, lv)).collect();
    devices
        .iter()
        .filter(|device| device.slaves.iter().any(|slave| slave == kernel_name))
        .filter(|device| {
            !prefixes
                .iter()
                .any(|prefix| device.uuid.starts_with(prefix))
        })
        .map(|device| format!("{} ({})", device.kernel_name, device.name))
        .collect()
}

/// Returns the first byte and the total length of an LV. An LV of several runs is not contiguous: the end of the extent has no meaning
/// then.
fn extent(vg: &Vg, lv: &Lv) -> Extent {
    let places = if lv.segments.is_empty() {
        &lv.occupies
    } else {
        &lv.segments
    };
    let count = places
        .iter()
        .fold(0_u64, |sum, place| sum.saturating_add(place.count));
    let start = places.first().map_or(0, |place| place.start);
    bytes(vg, Segment { start, count })
}

/// PEs as bytes of the drive.
pub fn bytes(vg: &Vg, run: Segment) -> Extent {
    Extent {
        start: run
            .start
            .saturating_mul(vg.extent_bytes)
            .saturating_add(vg.pv.pe_start),
        len: run.count.saturating_mul(vg.extent_bytes),
    }
}

/// The runs of an LV in bytes of the drive, in its order.
pub fn runs(vg: &Vg, lv: &Lv) -> Vec<Extent> {
    lv.segments.iter().map(|run| bytes(vg, *run)).collect()
}

/// Free PEs, in order.
pub fn free(vg: &Vg) -> Vec<Segment> {
    let mut taken: Vec<Segment> = vg.lvs.iter().flat_map(|lv| lv.occupies.clone()).collect();
    taken.sort_unstable();
    let mut free = Vec::new();
    let mut at = 0;
    for run in taken {
        let start = run.start.min(vg.pv.pe_count);
        if start > at {
            free.push(Segment {
                start: at,
                count: start - at,
            });
        }
        at = at.max(run.start.saturating_add(run.count));
    }
    if vg.pv.pe_count > at {
        free.push(Segment {
            start: at,
            count: vg.pv.pe_count - at,
        });
    }
    free
}

/// The device-mapper uuid of an LV: `LVM-` and both uuids without hyphens.
pub fn dm_uuid(vg: &Vg, lv: &Lv) -> String {
    format!("LVM-{}", format!("{}{}", vg.uuid, lv.uuid).replace('-', ""))
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
