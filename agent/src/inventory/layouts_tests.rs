use super::*;
use crate::model::{Drive, samples, samples::drive};

fn class(layout: Layout) -> ClassConfig {
    ClassConfig {
        layout,
        ..samples::class("bulk")
    }
}

fn known(drive: Drive) -> Known {
    Known {
        drives: [(drive.id.clone(), drive)].into(),
        ready: true,
        ..Known::default()
    }
}

#[test]
fn claimable_bytes_follow_the_layout_of_the_class() {
    for layout in [Layout::Lvm, Layout::Partition] {
        let blank = drive("blank", DriveState::Available, None);
        let mut known = known(blank.clone());
        size_available(&mut known, &[class(layout)]);
        let sector = u64::from(blank.facts.logical_sector);
        assert_eq!(
            known.drives[&blank.id].claimable_bytes,
            claimable_bytes(layout, blank.facts.size_bytes, sector)
        );
    }
}

#[test]
fn a_host_without_lvm_has_a_finding_for_each_class_that_needs_it() {
    let mut without = known(drive("a", DriveState::Available, None));
    without.lvm_unavailable = Some("the kernel has no device-mapper".into());
    let classes = [class(Layout::Lvm), class(Layout::Partition)];
    let found = findings(&without, &classes);
    assert_eq!(found.len(), 1);
    assert!(found[0].is(Code::LvmUnavailable));
    assert_eq!(
        found[0].message,
        "class \"bulk\" can claim no drive: the kernel has no device-mapper. Install what is missing on this host, or set \
         layout = \"partition\" in the class"
    );
    // Before the first scan.
    without.ready = false;
    assert_eq!(findings(&without, &classes), []);
}
