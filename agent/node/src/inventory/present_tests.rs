//! The judgement of a drive and the contents read from it do not override each other.

use super::*;
use drivebay_model::{
    DeletedStore, RecordState,
    samples::{contents, drive, placed},
    snapshot::Erasing,
};

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

fn labelled(label: u128, sequence: u64) -> Contents {
    contents(label, sequence, vec![placed(1, RecordState::New)], 0)
}

fn claimed(name: &str, label: u128) -> Drive {
    drive(name, DriveState::Claimed, Some(labelled(label, 1)))
}

fn with_reject(mut drive: Drive, code: RejectCode) -> Drive {
    drive.state = DriveState::Rejected;
    drive.rejects.push(Reject {
        code,
        detail: String::new(),
    });
    drive
}

fn states(inventory: &InventoryState) -> Vec<DriveState> {
    let drives = derive(inventory, &[]);
    drives.into_values().map(|drive| drive.state).collect()
}

#[test]
fn a_label_on_two_drives_makes_both_unusable() {
    let three = inventory_of(vec![
        claimed("sda", 1),
        claimed("sdb", 1),
        claimed("sdc", 2),
    ]);
    use DriveState::{Claimed, Rejected};
    assert_eq!(states(&three), [Rejected, Rejected, Claimed]);
    let first = derive(&three, &[]).into_values().next().unwrap();
    assert_eq!(first.rejects[0].code, RejectCode::DuplicateIdentity);
    assert!(first.rejects[0].detail.contains("wwn-sdb"));
}

#[test]
fn the_erase_progress_of_a_store_is_shown_in_whole_gib_as_of_the_last_step() {
    let mut on = claimed("sda", 1);
    let store = |n| DeletedStore {
        erase_guid: Uuid::from_u128(n),
        bytes: 9 * GIB,
        done_bytes: GIB,
    };
    let stores = vec![store(7), store(8)];
    on.contents.as_mut().unwrap().deleted_stores = stores;
    let mut inventory = inventory_of(vec![on]);
    let progress = Erasing {
        done_bytes: 4 * GIB + 7,
        eta_seconds: 1,
    };
    inventory.erasing.insert(Uuid::from_u128(7), progress);
    let drive = derive(&inventory, &[]).into_values().next().unwrap();
    let contents = drive.contents.unwrap();
    let done = contents.deleted_stores.iter().map(|store| store.done_bytes);
    assert_eq!(done.collect::<Vec<_>>(), [4 * GIB, GIB]);
    assert_eq!(contents.to_erase_bytes(), (5 + 8) * GIB);
}

#[test]
fn an_answer_of_a_job_does_not_make_a_copied_drive_usable() {
    let mut two = inventory_of(vec![claimed("sda", 1), claimed("sdb", 1)]);
    // An erase that had begun before the copy was plugged in ends.
    let original = two.drives.values_mut().next().unwrap();
    original.contents = Some(labelled(1, 2));
    assert_eq!(states(&two), [DriveState::Rejected; 2]);
}

#[test]
fn a_copy_that_gives_no_answer_is_still_a_copy() {
    let mut silent = claimed("sdb", 1);
    silent.trouble = Some("it hangs".into());
    let two = inventory_of(vec![claimed("sda", 1), silent]);
    assert_eq!(states(&two), [DriveState::Rejected, DriveState::Unprobed]);
    // Volumes of another node on a drive are no copies of ours.
    let elsewhere = with_reject(claimed("sdb", 1), RejectCode::OursElsewhere);
    let two = inventory_of(vec![claimed("sda", 1), elsewhere]);
    assert_eq!(states(&two), [DriveState::Claimed, DriveState::Rejected]);
}

#[test]
fn a_copy_that_is_scanned_before_its_original_is_not_believed() {
    use DriveState::{Claimed, NotScanned, Rejected, Unprobed};
    let original = claimed("sda", 1);
    let mut inventory = inventory_of(vec![original.clone()]);
    let none = Default::default();
    let merged =
        super::super::assemble::remember(&inventory, &derive(&inventory, &[]), 1, none, none);
    inventory.recall(merged.last_known);
    inventory.drives.clear();
    let copy = claimed("sdb", 1);
    inventory.drives.insert(copy.id.clone(), copy.into());
    assert_eq!(states(&inventory), [NotScanned]);
    // Also where the copy was used alone before, and both are in the persisted state.
    let before = inventory.remembered.drives.values().next().unwrap().clone();
    inventory
        .remembered
        .drives
        .insert(DriveId("wwn-sdb".into()), before);
    assert_eq!(states(&inventory), [NotScanned]);
    // The original is present, and gives no answer.
    let mut silent = drive("sda", Unprobed, None);
    silent.trouble = Some("it hangs".into());
    inventory.drives.insert(silent.id.clone(), silent.into());
    assert_eq!(states(&inventory), [Unprobed, NotScanned]);
    inventory.unscanned.clear();
    assert_eq!(states(&inventory), [Unprobed, Rejected]);
    // It is present, and was read.
    inventory
        .drives
        .insert(original.id.clone(), original.clone().into());
    assert_eq!(states(&inventory), [Rejected, Rejected]);
    // Observed to be missing: this is the drive itself, under another identity.
    inventory.drives.remove(&original.id);
    assert_eq!(states(&inventory), [Claimed]);
}

#[test]
fn a_job_takes_back_what_was_held_against_the_contents_and_nothing_else() {
    use DriveState::{Claimed, Rejected};
    for (code, state) in [
        (RejectCode::LvmPv, Claimed),
        (RejectCode::HasPartitions, Claimed),
        (RejectCode::Mounted, Claimed),
        (RejectCode::OursDamaged, Claimed),
        // Of an unlabelled twin; a copy of the label is refused whatever was read.
        (RejectCode::DuplicateIdentity, Claimed),
        (RejectCode::HiddenPath, Rejected),
        (RejectCode::ZeroSize, Rejected),
        (RejectCode::OursElsewhere, Rejected),
    ] {
        let mut one = inventory_of(vec![with_reject(
            drive("sda", DriveState::Rejected, None),
            code,
        )]);
        one.drives.values_mut().next().unwrap().contents = Some(labelled(1, 1));
        assert_eq!(states(&one), [state], "{code}");
    }
    // A scan that saw the same contents has judged them.
    let judged = with_reject(claimed("sda", 1), RejectCode::OursDamaged);
    assert_eq!(states(&inventory_of(vec![judged])), [Rejected]);
}
