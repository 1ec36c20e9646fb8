//! Names of VGs and LVs: what LVM takes, and what ours mean.

use uuid::Uuid;

/// Name of the VG on a drive of this uuid.
pub fn of_vg(drive_uuid: Uuid) -> String {
    format!("drivebay-{}", drive_uuid.simple())
}

/// Name of the LV for a volume: the CSI name when LVM takes it and nobody here has it, else `vol-<uuid>`.
pub fn of_lv(vg: &str, csi_name: &str, uuid: Uuid, taken: impl Fn(&str) -> bool) -> String {
    let _ = (vg, csi_name, taken);
    format!("vol-{uuid}")
}

/// Name of an LV that is being erased.
pub fn erasing(erase_guid: Uuid) -> String {
    format!("drivebay-erasing-{erase_guid}")
}

/// The erase guid in such a name.
pub fn erase_guid(name: &str) -> Option<Uuid> {
    name.strip_prefix("drivebay-erasing-")?.parse().ok()
}
