//! Layouts that this host cannot use, and the sizes of drives that are not claimed yet. Pure.

use std::collections::BTreeMap;

use super::InventoryState;
use drivebay_layout::claim::claimable_bytes;
use drivebay_model::{ClassConfig, Drive, DriveId, DriveState, Finding, Layout, finding::Code};
use drivebay_sys::lvm::INSTEAD;

/// Sets the bytes that volumes could have on each available drive.
pub fn size_available(drives: &mut BTreeMap<DriveId, Drive>, classes: &[ClassConfig]) {
    for class in classes {
        let of_class = drives.values_mut().filter(|drive| {
            drive.state == DriveState::Available && drive.class.as_ref() == Some(&class.name)
        });
        for drive in of_class {
            let sector = u64::from(drive.facts.logical_sector);
            drive.claimable_bytes = claimable_bytes(class.layout, drive.facts.size_bytes, sector);
        }
    }
}

/// Returns why drives of this layout cannot be claimed on this host; None: they can.
pub fn unavailable(inventory: &InventoryState, layout: Layout) -> Option<&str> {
    let why = inventory.lvm_unavailable.as_deref();
    why.filter(|_| layout == Layout::Lvm)
}

/// Returns findings about the host, once for all classes and drives that need what it lacks; none before its first
/// scan.
pub fn findings(
    inventory: &InventoryState,
    drives: &BTreeMap<DriveId, Drive>,
    classes: &[ClassConfig],
) -> Vec<Finding> {
    if !inventory.ready {
        return Vec::new();
    }
    let lacks_lvm = |why: &String| {
        let needs = |class: &&ClassConfig| class.layout == Layout::Lvm;
        let names: Vec<_> = classes.iter().filter(needs).collect();
        let names: Vec<_> = names
            .iter()
            .map(|class| format!("{:?}", class.name))
            .collect();
        let drives = drives.values().filter(|drive| {
            let contents = drive.contents.as_ref();
            contents.is_some_and(|contents| contents.layout == Layout::Lvm)
        });
        let (classes, drives) = (names.join(", "), drives.count());
        let text = match (names.len(), drives) {
            (0, 0) => return None,
            (_, 0) => format!("class {classes} can claim no drive: {why}. {INSTEAD}"),
            (0, _) => format!(
                "volumes of {drives} claimed drives cannot be mounted, and are not damaged: {why}. Install what is missing on this host, then restart the agent"
            ),
            _ => format!(
                "class {classes} can claim no drive, and volumes of {drives} claimed drives cannot be mounted, and are not damaged: {why}. {INSTEAD}"
            ),
        };
        Some(Finding::new(Code::LvmUnavailable, text))
    };
    let unread = inventory.host_trouble.as_ref().map(|why| {
        let text = format!("drives that are claimed cannot be read by this host, and are shown as last known: {why}");
        Finding::new(Code::HostCannotRead, text)
    });
    let lvm = inventory.lvm_unavailable.as_ref().and_then(lacks_lvm);
    lvm.into_iter().chain(unread).collect()
}

#[cfg(test)]
#[path = "layouts_tests.rs"]
mod tests;
