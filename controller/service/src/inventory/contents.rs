//! Contents of one node's inventory and their size, both while a snapshot is being received and when complete.

use std::{collections::BTreeMap, sync::Arc};

use drivebay_proto::agent::{Class, Finding, InventoryUpdate, Volume};
use uuid::Uuid;

use super::drives::{Drives, change_drives};
use crate::{
    bounds::{self, Held},
    catalog::{has_move, marks},
};

/// Classes of drives by name.
pub type Classes = Arc<BTreeMap<String, Class>>;

#[derive(Debug, Default)]
pub(super) struct InventoryBuilder {
    pub(super) classes: BTreeMap<String, Class>,
    pub(super) drives: Drives,
    pub(super) volumes: BTreeMap<Uuid, Volume>,
    pub(super) bytes: usize,
}

/// Size and marks of a volume, packed into one number, since there may be a million: the bytes that it counts against the
/// node's bound, far below 512 MiB, and three bits.
#[derive(Debug, Clone, Copy)]
pub(super) struct PackedVolume(u32);

impl PackedVolume {
    const EXISTS: u32 = 1 << 31;
    const TROUBLED: u32 = 1 << 30;
    const MOVE: u32 = 1 << 29;
    const BYTES: u32 = Self::MOVE - 1;

    pub(super) fn of(volume: &Volume) -> Self {
        let marks = marks(volume);
        let bytes = u32::try_from(bounds::volume_bytes(volume)).unwrap_or(u32::MAX);
        let mark = |is, bit| if is { bit } else { 0 };
        Self(
            bytes.min(Self::BYTES)
                | mark(marks.exists, Self::EXISTS)
                | mark(marks.troubled, Self::TROUBLED)
                | mark(has_move(volume), Self::MOVE),
        )
    }

    pub(super) fn exists(self) -> bool {
        self.0 & Self::EXISTS != 0
    }

    pub(super) fn troubled(self) -> bool {
        self.0 & Self::TROUBLED != 0
    }

    pub(super) fn has_move(self) -> bool {
        self.0 & Self::MOVE != 0
    }

    pub(super) fn bytes(self) -> usize {
        (self.0 & Self::BYTES) as usize
    }
}

#[derive(Debug, Default)]
pub(super) struct Shown {
    // Instance and revision of the agent process that reported this; older than the newest update while a snapshot is being received.
    pub(super) instance: String,
    pub(super) revision: u64,
    pub(super) classes: Classes,
    pub(super) drives: Drives,
    pub(super) volumes: BTreeMap<Uuid, PackedVolume>,
    // Findings about the host. At most [`MAX_FINDINGS_BYTES`](bounds::MAX_FINDINGS_BYTES); not counted in `bytes`.
    pub(super) findings: Vec<Finding>,
    pub(super) bytes: usize,
}

// Adjusts a total after an entry of size `now` took the place of one of size `before`.
pub(super) fn replace(bytes: &mut usize, before: Option<usize>, now: usize) {
    *bytes = (*bytes + now).saturating_sub(before.unwrap_or(0));
}

impl InventoryBuilder {
    pub(super) fn take_in(
        &mut self,
        update: InventoryUpdate,
        put: Vec<(Uuid, Volume)>,
        removed: &[Uuid],
    ) {
        let bytes = &mut self.bytes;
        for uuid in removed {
            let before = self.volumes.remove(uuid);
            replace(bytes, before.as_ref().map(bounds::volume_bytes), 0);
        }
        for (uuid, volume) in put {
            let now = bounds::volume_bytes(&volume);
            let before = self.volumes.insert(uuid, volume);
            replace(bytes, before.as_ref().map(bounds::volume_bytes), now);
        }
        change_drives(
            &mut self.drives,
            bytes,
            update.removed_drives,
            update.drives,
        );
        change_classes(&mut self.classes, bytes, update.classes);
    }

    pub(super) fn held(&self) -> Held {
        Held {
            volumes: self.volumes.len(),
            drives: self.drives.len(),
            classes: self.classes.len(),
            bytes: self.bytes,
        }
    }
}

impl Shown {
    pub(super) fn held(&self) -> Held {
        Held {
            volumes: self.volumes.len(),
            drives: self.drives.len(),
            classes: self.classes.len(),
            bytes: self.bytes,
        }
    }
}

pub(super) fn change_classes(
    classes: &mut BTreeMap<String, Class>,
    bytes: &mut usize,
    put: Vec<Class>,
) {
    for class in put {
        let now = bounds::class_bytes(&class);
        let before = classes.insert(class.name.clone(), class);
        replace(bytes, before.as_ref().map(bounds::class_bytes), now);
    }
}
