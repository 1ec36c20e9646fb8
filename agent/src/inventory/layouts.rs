//! Layouts that this host cannot use, and the sizes of drives that are not claimed yet. Pure.

use super::Known;
use crate::{
    carve::claim::claimable_bytes,
    model::{ClassConfig, DriveState, Finding, Layout, finding::Code},
    sys::lvm::INSTEAD,
};

/// Writes down what volumes could have on the drives that are available.
pub fn size_available(known: &mut Known, classes: &[ClassConfig]) {
    for class in classes {
        let of_class = known.drives.values_mut().filter(|drive| {
            drive.state == DriveState::Available && drive.class.as_ref() == Some(&class.name)
        });
        for drive in of_class {
            let sector = u64::from(drive.facts.logical_sector);
            drive.claimable_bytes = claimable_bytes(class.layout, drive.facts.size_bytes, sector);
        }
    }
}

/// Whether drives of this layout cannot be claimed on this host, and why.
pub fn unavailable(known: &Known, layout: Layout) -> Option<&str> {
    let why = known.lvm_unavailable.as_deref();
    why.filter(|_| layout == Layout::Lvm)
}

/// Findings about the classes of a node; none before its first scan.
pub fn findings(known: &Known, classes: &[ClassConfig]) -> Vec<Finding> {
    let of = |class: &ClassConfig| {
        let why = unavailable(known, class.layout)?;
        let text = format!(
            "class {:?} can claim no drive: {why}. {INSTEAD}",
            class.name
        );
        Some(Finding::new(Code::LvmUnavailable, text))
    };
    let classes = classes.iter().filter(|_| known.ready);
    classes.filter_map(of).collect()
}

#[cfg(test)]
#[path = "layouts_tests.rs"]
mod tests;
