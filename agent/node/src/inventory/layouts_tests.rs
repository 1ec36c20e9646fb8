use super::*;
use crate::inventory::present::derive;
use drivebay_model::{
    Contents, Drive, samples,
    samples::{contents, drive},
};

fn class(layout: Layout) -> ClassConfig {
    ClassConfig {
        layout,
        ..samples::class("bulk")
    }
}

fn claimed(name: &str, layout: Layout) -> Drive {
    let contents = Contents {
        layout,
        ..contents(u128::from(name.as_bytes()[0]), 1, Vec::new(), 1 << 30)
    };
    drive(name, DriveState::Claimed, Some(contents))
}

fn inventory_of(drives: Vec<Drive>) -> InventoryState {
    InventoryState {
        drives: drives
            .into_iter()
            .map(|drive| (drive.id.clone(), drive.into()))
            .collect(),
        ready: true,
        ..InventoryState::default()
    }
}

fn findings(inventory: &InventoryState, classes: &[ClassConfig]) -> Vec<Finding> {
    super::findings(inventory, &derive(inventory, classes), classes)
}

#[test]
fn claimable_bytes_follow_the_layout_of_the_class() {
    for layout in [Layout::Lvm, Layout::Partition] {
        let blank = drive("blank", DriveState::Available, None);
        let sector = u64::from(blank.facts.logical_sector);
        let drives = derive(&inventory_of(vec![blank.clone()]), &[class(layout)]);
        assert_eq!(
            drives[&blank.id].claimable_bytes,
            claimable_bytes(layout, blank.facts.size_bytes, sector)
        );
    }
}

#[test]
fn a_host_without_lvm_has_one_finding_for_all_that_need_it() {
    let mut without = inventory_of(vec![drive("a", DriveState::Available, None)]);
    without.lvm_unavailable = Some("the kernel has no device-mapper".into());
    let classes = [class(Layout::Lvm), class(Layout::Partition)];
    let reported = findings(&without, &classes);
    assert_eq!(reported.len(), 1);
    assert!(reported[0].is(Code::LvmUnavailable));
    assert_eq!(
        reported[0].message,
        "class \"bulk\" can claim no drive: the kernel has no device-mapper. Install what is missing on this host, or set \
         layout = \"partition\" in the class; then restart the agent"
    );
    // Once for the node, also of volumes that are there already.
    let mut both = inventory_of(vec![claimed("a", Layout::Lvm), claimed("b", Layout::Lvm)]);
    both.lvm_unavailable.clone_from(&without.lvm_unavailable);
    let reported = findings(&both, &[class(Layout::Lvm), class(Layout::Lvm)]);
    assert_eq!(reported.len(), 1);
    for part in ["of 2 claimed drives", "are not damaged", "no device-mapper"] {
        assert!(
            reported[0].message.contains(part),
            "{}",
            reported[0].message
        );
    }
    assert!(
        !reported[0].message.contains("wipe"),
        "{}",
        reported[0].message
    );
    let only = findings(&both, &[class(Layout::Partition)]);
    assert_eq!(only.len(), 1);
    assert!(!only[0].message.contains("layout ="), "{}", only[0].message);
    both.lvm_unavailable = None;
    both.host_trouble = Some("asking device-mapper failed".into());
    let reported = findings(&both, &[class(Layout::Lvm)]);
    assert!(reported.len() == 1 && reported[0].is(Code::HostCannotRead));
    // Its drives are partitions: nothing is missing.
    let mut kept = inventory_of(vec![claimed("a", Layout::Partition)]);
    kept.lvm_unavailable.clone_from(&without.lvm_unavailable);
    assert_eq!(findings(&kept, &[class(Layout::Partition)]), []);
    // Before the first scan.
    without.ready = false;
    assert_eq!(findings(&without, &classes), []);
}
