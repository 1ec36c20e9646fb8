//! The layout of the next drive of each class, and the node's findings about it. Pure.

use super::Known;
use crate::{
    carve::claim::claimable_bytes,
    model::{ClassConfig, DriveState, Finding, Layout, finding::Code},
    sys::lvm::INSTEAD,
};

/// The layouts of the drives that are claimed for this class, here or missing.
fn claimed(known: &Known, class: &str) -> Vec<Layout> {
    let here = known.drives.values().filter_map(|drive| {
        let contents = drive.contents.as_ref()?;
        let ours = matches!(drive.state, DriveState::Claimed | DriveState::Unprobed);
        (ours && contents.label.class == class).then_some(contents.layout)
    });
    let unseen = known.remembered.drives.iter().filter(|(id, drive)| {
        let seen = known.drives.get(*id);
        drive.class == class && seen.is_none_or(|drive| drive.contents.is_none())
    });
    // An agent that did not write it down had no other default.
    let unseen = unseen.map(|(_, drive)| drive.layout.unwrap_or(Layout::Partition));
    here.chain(unseen).collect()
}

/// How the next drive of a class is carved.
pub fn layout(known: &Known, class: &ClassConfig) -> Layout {
    class.layout_beside(claimed(known, &class.name))
}

/// Writes down what volumes could have on the drives that are available.
pub fn size_available(known: &mut Known, classes: &[ClassConfig]) {
    for class in classes {
        let layout = layout(known, class);
        let of_class = known.drives.values_mut().filter(|drive| {
            drive.state == DriveState::Available && drive.class.as_ref() == Some(&class.name)
        });
        for drive in of_class {
            let sector = u64::from(drive.facts.logical_sector);
            drive.claimable_bytes = claimable_bytes(layout, drive.facts.size_bytes, sector);
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
        let (name, layout) = (&class.name, layout(known, class));
        if let Some(why) = unavailable(known, layout) {
            let text = format!("class {name:?} can claim no drive: {why}. {INSTEAD}");
            return Some(Finding::new(Code::LvmUnavailable, text));
        }
        (class.layout.is_none() && layout != Layout::default()).then(|| {
            let (kept, default) = (layout.as_str(), Layout::default().as_str());
            let text = format!(
                "class {name:?} has no layout, and its drives are claimed with layout {kept}, which the next ones get too; \
                 the default is {default}. Set layout = \"{kept}\" in the class to keep it, or \"{default}\" for further drives"
            );
            Finding::new(Code::LayoutNotSet, text)
        })
    };
    let classes = classes.iter().filter(|_| known.ready);
    classes.filter_map(of).collect()
}

#[cfg(test)]
#[path = "layouts_tests.rs"]
mod tests;
