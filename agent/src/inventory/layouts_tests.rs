use super::*;
use crate::model::{
    Contents, Drive, samples,
    samples::{contents, drive},
};

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
    // Once for the node, also of volumes that are there already.
    let of_drive = |names: [&str; 2], layout: Layout| {
        let drives = names.map(|name| {
            let contents = Contents {
                layout,
                ..contents(9, 1, Vec::new(), 1 << 30)
            };
            let drive = drive(name, DriveState::Claimed, Some(contents));
            (drive.id.clone(), drive)
        });
        Known {
            drives: drives.into(),
            ready: true,
            ..Known::default()
        }
    };
    let mut both = of_drive(["a", "b"], Layout::Lvm);
    both.lvm_unavailable.clone_from(&without.lvm_unavailable);
    let found = findings(&both, &[class(Layout::Lvm), class(Layout::Lvm)]);
    assert_eq!(found.len(), 1);
    for part in ["of 2 claimed drives", "are not damaged", "no device-mapper"] {
        assert!(found[0].message.contains(part), "{}", found[0].message);
    }
    assert!(!found[0].message.contains("wipe"), "{}", found[0].message);
    let only = findings(&both, &[class(Layout::Partition)]);
    assert_eq!(only.len(), 1);
    assert!(!only[0].message.contains("layout ="), "{}", only[0].message);
    both.lvm_unavailable = None;
    both.host_trouble = Some("asking device-mapper failed".into());
    let found = findings(&both, &[class(Layout::Lvm)]);
    assert!(found.len() == 1 && found[0].is(Code::HostCannotRead));
    // Its drives are partitions: nothing is missing.
    let mut kept = of_drive(["a", "b"], Layout::Partition);
    kept.lvm_unavailable.clone_from(&without.lvm_unavailable);
    assert_eq!(findings(&kept, &[class(Layout::Partition)]), []);
    // Before the first scan.
    without.ready = false;
    assert_eq!(findings(&without, &classes), []);
}
