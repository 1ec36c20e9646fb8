//! Which layout the next drive of a class gets, and what is said of it.

use uuid::Uuid;

use super::*;
use crate::{
    model::{
        Contents, Drive, samples,
        samples::{contents, drive},
    },
    state::KnownDrive,
};

fn class(layout: Option<Layout>) -> ClassConfig {
    ClassConfig {
        layout,
        ..samples::class("bulk")
    }
}

fn claimed(name: &str, layout: Layout) -> Drive {
    let contents = Contents {
        layout,
        ..contents(9, 1, Vec::new(), 1 << 30)
    };
    drive(name, DriveState::Claimed, Some(contents))
}

fn known(drives: Vec<Drive>) -> Known {
    Known {
        drives: drives
            .into_iter()
            .map(|drive| (drive.id.clone(), drive))
            .collect(),
        ready: true,
        ..Known::default()
    }
}

/// A drive that is missing, as an agent wrote it down that knew of its layout, or did not.
fn missing(known: &mut Known, class: &str, layout: Option<Layout>) {
    let facts = drive("away", DriveState::Missing, None).facts;
    let one = KnownDrive {
        facts: facts.clone(),
        class: class.to_owned(),
        usable_bytes: 1,
        layout,
        drive_uuid: Some(Uuid::from_u128(1)),
        volumes: Vec::new(),
        vanished: Vec::new(),
        last_seen: 0,
    };
    known.remembered.drives.insert(facts.id, one);
}

fn codes(known: &Known, class: &ClassConfig) -> Vec<String> {
    let all = findings(known, std::slice::from_ref(class));
    all.into_iter().map(|one| one.code).collect()
}

#[test]
fn a_class_without_a_layout_is_lvm_unless_all_its_drives_are_claimed_as_partitions() {
    use Layout::{Lvm, Partition};
    for (has, next) in [
        (vec![], Lvm),
        (vec![Partition], Partition),
        (vec![Partition, Partition], Partition),
        (vec![Partition, Lvm], Lvm),
        (vec![Lvm], Lvm),
    ] {
        let drives = has.iter().zip(["a", "b"]);
        let known = known(drives.map(|(of, name)| claimed(name, *of)).collect());
        assert_eq!(layout(&known, &class(None)), next, "{has:?}");
        let told = codes(&known, &class(None));
        assert_eq!(told.contains(&"LayoutNotSet".to_owned()), next == Partition);
        for given in [Lvm, Partition] {
            assert_eq!(layout(&known, &class(Some(given))), given);
            assert_eq!(codes(&known, &class(Some(given))), Vec::<String>::new());
        }
    }
}

#[test]
fn drives_of_other_classes_or_of_other_nodes_decide_nothing() {
    let mut other = claimed("a", Layout::Partition);
    other.contents.as_mut().unwrap().label.class = "other".into();
    let mut elsewhere = claimed("b", Layout::Partition);
    elsewhere.state = DriveState::Rejected;
    let mut known = known(vec![other, elsewhere]);
    missing(&mut known, "other", Some(Layout::Partition));
    assert_eq!(layout(&known, &class(None)), Layout::Lvm);
}

#[test]
fn a_missing_drive_counts_and_one_that_an_older_agent_knew_is_of_its_default() {
    for (written, next) in [
        (None, Layout::Partition),
        (Some(Layout::Partition), Layout::Partition),
        (Some(Layout::Lvm), Layout::Lvm),
    ] {
        let mut known = known(Vec::new());
        missing(&mut known, "bulk", written);
        assert_eq!(layout(&known, &class(None)), next, "{written:?}");
    }
}

#[test]
fn what_volumes_could_have_follows_the_layout_that_the_drive_would_get() {
    let size = |has: Vec<Drive>| {
        let mut known = known(has);
        let blank = drive("blank", DriveState::Available, None);
        let facts = blank.facts.clone();
        known.drives.insert(blank.id.clone(), blank);
        size_available(&mut known, &[class(None)]);
        (known.drives[&facts.id].claimable_bytes, facts)
    };
    for (has, layout) in [
        (vec![], Layout::Lvm),
        (vec![claimed("a", Layout::Partition)], Layout::Partition),
    ] {
        let (bytes, facts) = size(has);
        let sector = u64::from(facts.logical_sector);
        assert_eq!(bytes, claimable_bytes(layout, facts.size_bytes, sector));
    }
}

#[test]
fn a_host_without_lvm_is_told_what_is_missing_and_of_the_other_layout() {
    let mut without = known(vec![drive("a", DriveState::Available, None)]);
    without.lvm_unavailable = Some("the kernel has no device-mapper".into());
    let told = findings(&without, &[class(None), class(Some(Layout::Partition))]);
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].code, "LvmUnavailable");
    assert_eq!(
        told[0].message,
        "class \"bulk\" can claim no drive: the kernel has no device-mapper. Install what is missing on this host, or set \
         layout = \"partition\" in the class"
    );
    // Its drives are partitions: nothing is missing.
    let mut kept = known(vec![claimed("a", Layout::Partition)]);
    kept.lvm_unavailable.clone_from(&without.lvm_unavailable);
    assert_eq!(codes(&kept, &class(None)), ["LayoutNotSet"]);
    // Nothing was looked at yet.
    kept.ready = false;
    assert_eq!(codes(&kept, &class(None)), Vec::<String>::new());
}
