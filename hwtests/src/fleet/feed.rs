//! Inventory updates of a simulated node: a full snapshot, then deltas, as an agent sends them.

use std::sync::Arc;

use drivebay_proto::{
    VolumeId,
    agent::{Class, Drive, DriveHealth, Finding, InventoryUpdate, Volume},
};
use uuid::Uuid;

use super::contents::{CLASS, Contents, DRIVE_BYTES, SimVolume};
use crate::MIB;

/// The contents at one revision.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// Increases with each change.
    pub revision: u64,
    /// Contents at this revision.
    pub contents: Arc<Contents>,
}

/// Sender of all updates of one agent process.
#[derive(Debug, Clone)]
pub struct Sender {
    /// Node id, also a part of the ids of its volumes.
    pub node: String,
    /// Random id of this process of the agent.
    pub instance: String,
}

impl Sender {
    /// Returns the id of a volume of this node.
    pub fn id(&self, uuid: Uuid) -> String {
        VolumeId {
            uuid,
            node: self.node.clone(),
        }
        .to_string()
    }

    /// Returns the full snapshot.
    pub fn full(&self, now: &Snapshot) -> InventoryUpdate {
        let contents = &now.contents;
        InventoryUpdate {
            full: true,
            drives: self.drives(contents, |_| true),
            volumes: contents
                .volumes
                .iter()
                .map(|(uuid, volume)| self.volume(*uuid, volume))
                .collect(),
            ..self.frame(now)
        }
    }

    /// Returns the changes between two revisions.
    pub fn changes(&self, before: &Snapshot, now: &Snapshot) -> InventoryUpdate {
        let (old, new) = (&before.contents, &now.contents);
        let changed = |uuid: &Uuid, volume: &Arc<SimVolume>| {
            let previous = old.volumes.get(uuid);
            previous.is_none_or(|previous| !Arc::ptr_eq(previous, volume) && previous != volume)
        };
        let (was, is) = (old.free(), new.free());
        InventoryUpdate {
            since_revision: before.revision,
            drives: self.drives(new, |number| {
                let turned = old.suspect.contains(&number) != new.suspect.contains(&number);
                turned || was.get(number) != is.get(number)
            }),
            volumes: new
                .volumes
                .iter()
                .filter(|(uuid, volume)| changed(uuid, volume))
                .map(|(uuid, volume)| self.volume(*uuid, volume))
                .collect(),
            removed_volumes: old
                .volumes
                .keys()
                .filter(|uuid| !new.volumes.contains_key(*uuid))
                .map(|uuid| self.id(*uuid))
                .collect(),
            ..self.frame(now)
        }
    }

    fn frame(&self, now: &Snapshot) -> InventoryUpdate {
        InventoryUpdate {
            instance: self.instance.clone(),
            revision: now.revision,
            node_id: self.node.clone(),
            ready: true,
            classes: vec![class(&now.contents)],
            ..InventoryUpdate::default()
        }
    }

    fn drives(&self, contents: &Contents, wanted: impl Fn(usize) -> bool) -> Vec<Drive> {
        let free = contents.free().into_iter().enumerate();
        free.filter(|(number, _)| wanted(*number))
            .map(|(number, free)| match contents.suspect.contains(&number) {
                true => suspect(drive(&self.node, number, free)),
                false => drive(&self.node, number, free),
            })
            .collect()
    }

    /// Returns the message of one volume.
    pub fn volume(&self, uuid: Uuid, volume: &SimVolume) -> Volume {
        Volume {
            id: self.id(uuid),
            name: volume.name.clone(),
            class: CLASS.to_owned(),
            drive: drive_id(&self.node, volume.drive),
            size_bytes: volume.bytes,
            mode: if volume.block { "block" } else { "mount" }.to_owned(),
            fs_type: volume.fs_type.clone(),
            state: if volume.erasing { "erasing" } else { "ready" }.to_owned(),
            published: volume.published,
            device: format!("nvme{}n1p2", volume.drive),
            parameters: volume.parameters.clone().into_iter().collect(),
            ..Volume::default()
        }
    }
}

fn class(contents: &Contents) -> Class {
    let free = contents.free();
    Class {
        name: CLASS.to_owned(),
        layout: "partition".to_owned(),
        total_bytes: DRIVE_BYTES * contents.drives as u64,
        free_bytes: free.iter().sum(),
        largest_volume_bytes: free.iter().copied().max().unwrap_or(0),
        smallest_volume_bytes: 16 * MIB,
        fs_type: "ext4".to_owned(),
        extent_bytes: MIB,
    }
}

/// Returns the identity of a drive in the form of an EUI-64 WWN; stable across restarts.
fn drive_id(node: &str, number: usize) -> String {
    let hash = node.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("eui.{hash:016x}0025{number:012x}")
}

/// Returns the drive with a finding that makes it SUSPECT.
fn suspect(drive: Drive) -> Drive {
    let finding = Finding {
        code: "PendingSectors".to_owned(),
        message: "8 pending sectors".to_owned(),
        since: 1_700_000_000,
        acknowledged: false,
    };
    Drive {
        verdict: "SUSPECT".to_owned(),
        health: Some(DriveHealth {
            findings: vec![finding],
            ..DriveHealth::default()
        }),
        ..drive
    }
}

fn drive(node: &str, number: usize, free: u64) -> Drive {
    let id = drive_id(node, number);
    Drive {
        kernel_name: format!("nvme{number}n1"),
        model: "SAMSUNG MZQL23T8HCLS-00A07".to_owned(),
        serial: format!("S64HNE0R{number:06}"),
        wwn: id.clone(),
        firmware: "GDC5602Q".to_owned(),
        size_bytes: 3_840_755_982_336,
        logical_sector_bytes: 512,
        physical_sector_bytes: 4096,
        media: "nvme".to_owned(),
        transport: "nvme".to_owned(),
        state: "claimed".to_owned(),
        class: CLASS.to_owned(),
        free_bytes: free,
        largest_free_bytes: free,
        usable_bytes: DRIVE_BYTES,
        verdict: "GOOD".to_owned(),
        id,
        ..Drive::default()
    }
}
