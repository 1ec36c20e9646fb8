//! Metadata and the kernel's devices put together: what is on an LVM drive of ours.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::{
    metadata::{Lv, Vg},
    tags::VgMark,
};
use crate::{
    model::{Contents, Extent},
    sys::dm::DmDevice,
};

/// A VG that is ours, understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// What its tags say.
    pub mark: VgMark,
    /// Everything on it. `notes` is empty.
    pub contents: Contents,
    /// The LV of each volume in `contents`, by the volume's uuid; not there for a uuid that several LVs have.
    pub lvs: BTreeMap<Uuid, Lv>,
}

/// Puts them together. `kernel_name` is the drive's (`sda`), `erased` how many bytes are durably zero
/// by erase guid. Err says why the VG as a whole cannot be believed (or is not ours).
pub fn view(
    vg: &Vg,
    dm: &[DmDevice],
    kernel_name: &str,
    erased: &BTreeMap<Uuid, u64>,
) -> Result<View, String> {
    let _ = (vg, dm, kernel_name, erased);
    Err("not yet".into())
}

/// The runs of an LV in bytes of the drive, in its order.
pub fn runs(vg: &Vg, lv: &Lv) -> Vec<Extent> {
    lv.segments
        .iter()
        .map(|segment| Extent {
            start: vg.pv.pe_start + segment.start * vg.extent_bytes,
            len: segment.count * vg.extent_bytes,
        })
        .collect()
}

/// The device-mapper uuid of an LV: `LVM-` and both uuids without hyphens.
pub fn dm_uuid(vg: &Vg, lv: &Lv) -> String {
    format!("LVM-{}{}", vg.uuid, lv.uuid)
        .replace('-', "")
        .replacen("LVM", "LVM-", 1)
}
