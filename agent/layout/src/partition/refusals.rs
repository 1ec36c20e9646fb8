//! Changes that are refused because the drive differs from what the caller expects: incomplete
//! creations and deletions, changed labels and tables. On a drive in memory.

use uuid::Uuid;

use super::Session;
use super::tests::{a, b, contents_of, cordon, create, free, furnished, id, session, spec};
use crate::{
    claimed::{ClaimedDrive, Erasable},
    device::Device,
    erase,
    error::LayoutError,
    fake::FakeDrive,
    gpt::{self, Entry},
};
use drivebay_model::{Cordon, FsType, Label, MIB, Mode, RawSpace, RecordState};

/// Reads the drive without repairs.
fn unrepaired(drive: &FakeDrive) -> Session<'_, FakeDrive> {
    Session::open(drive, &id(), false).unwrap()
}

fn table(drive: &FakeDrive) -> gpt::Table {
    match gpt::read(drive).unwrap() {
        gpt::GptCopies::Whole(table) => table,
        other => panic!("{other:?}"),
    }
}

fn is_erasing(drive: &FakeDrive, uuid: Uuid) -> bool {
    let contents = unrepaired(drive).contents().unwrap();
    let state = &contents.volume(uuid).unwrap().record.state;
    matches!(state, RecordState::Erasing { .. })
}

#[test]
fn a_volume_whose_creation_is_not_settled_is_in_use() {
    let drive = furnished(512);
    let mut opened = session(&drive);
    let content = &opened.label.content;
    let content = content.with(b(), |record| record.state = RecordState::Creating);
    opened.commit_label(content).unwrap();
    let deleted = unrepaired(&drive).delete(b());
    assert!(
        matches!(deleted, Err(LayoutError::InUse { .. })),
        "{deleted:?}"
    );
    assert!(!is_erasing(&drive, b()));
    let grown = unrepaired(&drive).expand(b(), 4 * MIB, Default::default());
    assert!(
        matches!(grown, Err(LayoutError::NoSuchVolume { .. })),
        "{grown:?}"
    );
}

#[test]
fn a_delete_that_was_cut_off_is_in_use_until_it_is_completed() {
    let drive = furnished(512);
    let live = table(&drive);
    session(&drive).delete(b()).unwrap();
    // As after a power failure in between: the entry has its old identity.
    gpt::write(&drive, &live).unwrap();
    let again = unrepaired(&drive).delete(b());
    assert!(matches!(again, Err(LayoutError::InUse { .. })), "{again:?}");
    // A `ReadDrive` with repair completes it.
    assert!(!session(&drive).delete(b()).unwrap().changed);
}

#[test]
fn a_deleted_volume_is_neither_grown_nor_formatted() {
    let drive = furnished(512);
    session(&drive).delete(b()).unwrap();
    let grown = session(&drive).expand(b(), 4 * MIB, Default::default());
    let formatted = session(&drive).advance(b(), &RecordState::Block);
    for refused in [grown, formatted] {
        assert!(
            matches!(refused, Err(LayoutError::NoSuchVolume { .. })),
            "{refused:?}"
        );
    }
}

#[test]
fn a_record_that_does_not_read_back_beside_its_volume_is_damage() {
    let drive = furnished(512);
    let mut opened = session(&drive);
    let number = opened
        .contents()
        .unwrap()
        .volume(b())
        .unwrap()
        .number
        .unwrap();
    // Another program removes the volume from the table meanwhile.
    gpt::write(&drive, &table(&drive).with(number, Entry::UNUSED)).unwrap();
    let to = RecordState::Fs {
        fs_type: FsType::Ext4,
        fs_uuid: Uuid::from_u128(1),
        mounted: false,
    };
    let advanced = opened.advance(b(), &to);
    assert!(
        matches!(advanced, Err(LayoutError::Damaged { .. })),
        "{advanced:?}"
    );
}

#[test]
fn a_drive_is_adopted_from_the_label_that_was_seen_only() {
    let drive = furnished(512);
    let ours = session(&drive).label().clone();
    let to = Label {
        node: "other".into(),
        ..ours.clone()
    };
    let stale = Label {
        node: "third".into(),
        ..ours.clone()
    };
    let refused = session(&drive).adopt(&stale, &to);
    assert!(
        matches!(refused, Err(LayoutError::NotClaimable { .. })),
        "{refused:?}"
    );
    assert_eq!(session(&drive).label(), &ours);
    let adopted = session(&drive).adopt(&ours, &to).unwrap();
    assert!(adopted.changed && adopted.contents.label == to);
    // A repetition, with the label from before.
    drive.settle();
    assert!(!session(&drive).adopt(&ours, &to).unwrap().changed);
    assert_eq!(drive.writes(), 0);
}

#[test]
fn a_cordoned_drive_takes_no_new_volume_and_serves_those_it_has() {
    let drive = furnished(512);
    let cordoned = session(&drive).set_cordon(Some(&cordon())).unwrap();
    assert!(cordoned.changed && cordoned.contents.label.cordon == Some(cordon()));
    let refused = create(&drive, &spec(0xd, "d", 1));
    assert!(
        matches!(&refused, Err(LayoutError::Cordoned { by, .. }) if by == "ann"),
        "{refused:?}"
    );
    // Repeating a creation that succeeded before creates no volume.
    let repeat = create(&drive, &spec(0xe, "a", 4)).unwrap();
    assert!(!repeat.changed && repeat.contents.volume(a()).is_some());
    let grown = session(&drive).expand(a(), 5 * MIB, RawSpace::default());
    assert!(grown.unwrap().changed);
    session(&drive).delete(b()).unwrap();
    free(&drive, b()).unwrap();
    // The first reason is kept if another one is given; nothing is written.
    drive.settle();
    let other = Cordon {
        by: "bob".into(),
        ..cordon()
    };
    let again = session(&drive).set_cordon(Some(&other)).unwrap();
    assert!(!again.changed && again.contents.label.cordon == Some(cordon()));
    assert_eq!(drive.writes(), 0);
    assert!(session(&drive).set_cordon(None).unwrap().changed);
    assert!(!session(&drive).set_cordon(None).unwrap().changed);
    assert!(create(&drive, &spec(0xd, "d", 1)).unwrap().changed);
}

#[test]
fn the_space_of_another_deletion_of_the_volume_is_not_freed() {
    let drive = furnished(512);
    session(&drive).delete(b()).unwrap();
    let erasable = session(&drive).erasable(b()).unwrap().unwrap();
    let extent = erasable.runs[0];
    assert_eq!(erasable.total(), extent.len);
    drive.zero(extent).unwrap();
    drive.flush().unwrap();
    let another = Erasable {
        guid: Uuid::from_u128(1),
        ..erasable.clone()
    };
    let elsewhere = Erasable {
        runs: vec![session(&drive).erasable(b()).unwrap().unwrap().runs[0]; 2],
        ..erasable.clone()
    };
    for stale in [another, elsewhere] {
        let left = erase::free(&mut session(&drive), &stale).unwrap();
        assert!(left.volume(b()).is_some(), "{stale:?}");
    }
    let freed = erase::free(&mut session(&drive), &erasable).unwrap();
    assert!(freed.volume(b()).is_none() && freed.volume(a()).is_some());
}

#[test]
fn only_a_volume_that_was_never_mounted_and_is_all_zeros_is_deleted_as_unused() {
    let formatted = |mounted| RecordState::Fs {
        fs_type: FsType::Ext4,
        fs_uuid: Uuid::from_u128(0xf5),
        mounted,
    };
    let with = |state: RecordState, mode: Mode| {
        let drive = furnished(512);
        let mut opened = session(&drive);
        let content = opened.label.content.with(b(), |record| {
            (record.state, record.mode) = (state.clone(), mode);
            record.fs_type = (mode == Mode::Mount).then_some(FsType::Ext4);
        });
        opened.commit_label(content).unwrap();
        drive.settle();
        drive
    };
    for state in [RecordState::New, formatted(false)] {
        let drive = with(state, Mode::Mount);
        assert!(session(&drive).delete_unused(b()).unwrap().changed);
        assert!(is_erasing(&drive, b()));
        // A repetition, and a volume that does not exist.
        assert!(!session(&drive).delete_unused(b()).unwrap().changed);
        let none = Uuid::from_u128(0x77);
        assert!(!session(&drive).delete_unused(none).unwrap().changed);
    }
    let is_refused = |drive: &FakeDrive, why: &str| {
        let refused = session(drive).delete_unused(b());
        assert!(
            matches!(&refused, Err(LayoutError::Used { why: reason, .. }) if reason.contains(why)),
            "{refused:?}"
        );
        assert!(drive.writes() == 0 && !is_erasing(drive, b()));
    };
    is_refused(&with(formatted(true), Mode::Mount), "mounted once");
    // A raw volume's record does not change when it is published.
    is_refused(&with(RecordState::Block, Mode::Block), "block");
    is_refused(&with(RecordState::New, Mode::Block), "new");
    // The record was rolled back: the drive's contents take precedence.
    let extent = contents_of(&furnished(512))
        .volume(b())
        .unwrap()
        .record
        .extent;
    for at in [extent.start, extent.start + MIB - 512, extent.end() - 512] {
        let drive = with(formatted(false), Mode::Mount);
        let mut sector = vec![0; 512];
        sector[511] = 1;
        drive.write_at(at, &sector).unwrap();
        drive.flush().unwrap();
        drive.settle();
        is_refused(&drive, "holds data");
    }
    let drive = with(formatted(false), Mode::Mount);
    drive.unreadable.set(Some(extent));
    let refused = session(&drive).delete_unused(b());
    assert!(
        matches!(refused, Err(LayoutError::Io { .. })),
        "{refused:?}"
    );
}
