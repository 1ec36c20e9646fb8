//! Complete changes on a drive in memory, with a power failure after every write.

use std::cell::Cell;

use uuid::Uuid;

use super::{Session, claim};
use crate::{
    claimable,
    claimed::ClaimedDrive,
    device::{Device, Medium},
    erase,
    error::LayoutError,
    fake::FakeDrive,
    gpt,
    jobs::{Changed, Claim},
    lvm::{label, metadata::PvHeader},
};
use drivebay_model::{
    ClaimPolicy, Contents, Cordon, DriveId, Encryption, ErasePolicy, Extent, FsType, Label, MIB,
    Mode, RawSpace, Record, RecordState, encryption::HEADER_BYTES,
};

pub(super) const SIZE: u64 = 48 * MIB;

pub(super) fn id() -> DriveId {
    DriveId("wwn-0xfa4e".into())
}

fn how(policy: ClaimPolicy) -> Claim {
    let label = Label {
        drive_uuid: Uuid::from_u128(0xd15c),
        cluster: "c".into(),
        node: "n".into(),
        class: "fast".into(),
        drive_id: id(),
        cordon: None,
    };
    Claim {
        layout: drivebay_model::Layout::Partition,
        label,
        policy,
    }
}

pub(super) fn spec(n: u128, name: &str, mib: u64) -> Record {
    Record {
        uuid: Uuid::from_u128(n),
        name: name.into(),
        class: "fast".into(),
        mode: Mode::Mount,
        // A test that needs a planned filesystem sets it.
        fs_type: None,
        mkfs_options: vec![],
        mount_options: vec![],
        requested_bytes: mib * MIB,
        parameters: Default::default(),
        erase: ErasePolicy::Zero,
        extent: Extent {
            start: 0,
            len: mib * MIB,
        },
        growing_to: None,
        place: Default::default(),
        state: RecordState::Creating,
    }
}

pub(super) fn claimed(sector: u64, policy: ClaimPolicy) -> FakeDrive {
    let drive = FakeDrive::new(SIZE, sector);
    claim::begin(&drive, &id(), &how(policy)).unwrap();
    drive.settle();
    drive
}

pub(super) fn session(drive: &FakeDrive) -> Session<'_, FakeDrive> {
    Session::open(drive, &id(), true).unwrap()
}

/// Creates a volume; no other volume was deleted while the drive was missing.
pub(super) fn create(drive: &FakeDrive, record: &Record) -> Result<Changed, LayoutError> {
    create_of(drive, record, RawSpace::default(), &[])
}

pub(super) fn create_of(
    drive: &FakeDrive,
    record: &Record,
    raw_space: RawSpace,
    deleted: &[Uuid],
) -> Result<Changed, LayoutError> {
    session(drive).create(record, raw_space, drivebay_model::Placement::Pack, deleted)
}

/// Frees the space of a deleted volume, as the last step of erasing does. The volume must be on the
/// drive.
pub(super) fn free(drive: &FakeDrive, uuid: Uuid) -> Result<Contents, LayoutError> {
    let erasable = session(drive).erasable(uuid)?.unwrap();
    erase::free(&mut session(drive), &erasable)
}

pub(super) fn contents_of(drive: &FakeDrive) -> Contents {
    session(drive).contents().unwrap()
}

pub(super) fn a() -> Uuid {
    Uuid::from_u128(0xa)
}

pub(super) fn b() -> Uuid {
    Uuid::from_u128(0xb)
}

#[test]
fn the_header_of_a_deleted_volume_is_destroyed_also_when_the_call_before_did_not_come_to_that() {
    for mode in [Mode::Mount, Mode::Block] {
        let drive = claimed(512, ClaimPolicy::Blank);
        let mut record = spec(0xd, "d", 4);
        record.mode = mode;
        let header = Uuid::from_u128(7);
        Encryption { header }.keep(&mut record.parameters);
        create(&drive, &record).unwrap();
        let placed = contents_of(&drive).volume(record.uuid).unwrap().clone();
        // A raw one too has no header before its first stage.
        assert_eq!(placed.record.state, RecordState::New);
        let extent = placed.record.extent;
        assert_eq!(extent.len, HEADER_BYTES + 4 * MIB);
        let places = [0, HEADER_BYTES - 4096, HEADER_BYTES].map(|at| extent.start + at);
        for at in places {
            drive.write_at(at, &[7; 4096]).unwrap();
        }
        let first_bytes = || {
            places.map(|at| {
                let mut bytes = [0; 512];
                drive.read_at(at, &mut bytes).unwrap();
                bytes[0]
            })
        };
        assert!(session(&drive).delete(record.uuid).unwrap().changed);
        assert_eq!(first_bytes(), [0, 0, 7], "{mode}");
        drive.rot(places[0], 9);
        assert!(!session(&drive).delete(record.uuid).unwrap().changed);
        assert_eq!(first_bytes(), [0, 0, 7], "{mode}");
    }
}

fn formatted(mounted: bool) -> RecordState {
    RecordState::Fs {
        fs_type: FsType::Ext4,
        fs_uuid: Uuid::from_u128(0xf5),
        mounted,
    }
}

/// Returns a drive with two volumes: `a` of 4 MiB, formatted, with room behind it; `b` of 3 MiB
/// behind a gap.
pub(super) fn furnished(sector: u64) -> FakeDrive {
    let drive = claimed(sector, ClaimPolicy::Blank);
    create(&drive, &spec(0xa, "a", 4)).unwrap();
    create(&drive, &spec(0xc, "gap", 8)).unwrap();
    create(&drive, &spec(0xb, "b", 3)).unwrap();
    session(&drive).advance(a(), &formatted(false)).unwrap();
    session(&drive).delete(Uuid::from_u128(0xc)).unwrap();
    free(&drive, Uuid::from_u128(0xc)).unwrap();
    drive.settle();
    drive
}

/// Returns the records without the random identity of deletions.
pub(super) fn shape(contents: &Contents) -> Vec<Record> {
    let mut records: Vec<Record> = contents
        .volumes
        .iter()
        .map(|placed| placed.record.clone())
        .collect();
    for record in &mut records {
        if let RecordState::Erasing { erase_guid, .. } = &mut record.state {
            *erase_guid = Uuid::nil();
        }
    }
    records
}

pub(super) fn cordon() -> Cordon {
    Cordon {
        at: 1_700_000_000,
        by: "ann".into(),
        reason: "returned to the vendor".into(),
    }
}

type Change = fn(&FakeDrive) -> Result<(), LayoutError>;

const CHANGES: &[(&str, Change)] = &[
    ("create", |drive| {
        create(drive, &spec(0xd, "d", 5)).map(|_| ())
    }),
    ("expand", |drive| {
        session(drive)
            .expand(a(), 9 * MIB, RawSpace::Zeroed)
            .map(|_| ())
    }),
    ("advance", |drive| {
        session(drive).advance(a(), &formatted(true)).map(|_| ())
    }),
    ("delete", |drive| session(drive).delete(b()).map(|_| ())),
    ("delete and erase", |drive| {
        session(drive).delete(b())?;
        drive.mark(1);
        drive
            .zero(Extent {
                start: 17 * MIB,
                len: 3 * MIB,
            })
            .unwrap();
        free(drive, b()).map(|_| ())
    }),
    ("cordon", |drive| {
        session(drive).set_cordon(Some(&cordon())).map(|_| ())
    }),
];

#[test]
fn the_kernels_partitions_are_listed_once_for_a_call_also_when_it_changes_one_of_them() {
    type Call = fn(&FakeDrive);
    let calls: [(&str, Call); 6] = [
        ("look", |drive| {
            drop(Session::open(drive, &id(), false).unwrap().contents());
        }),
        ("look and repair", |drive| drop(contents_of(drive))),
        ("advance", |drive| CHANGES[2].1(drive).unwrap()),
        ("create", |drive| CHANGES[0].1(drive).unwrap()),
        ("expand", |drive| CHANGES[1].1(drive).unwrap()),
        ("delete", |drive| CHANGES[3].1(drive).unwrap()),
    ];
    for (name, call) in calls {
        let drive = furnished(512);
        drive.listings.set(0);
        call(&drive);
        assert_eq!(drive.listings.get(), 1, "{name}");
    }
}

/// Asserts everything that must hold after any interruption.
fn holds(drive: &FakeDrive, what: &str, allowed: &[&Contents]) -> Contents {
    let contents = match Session::open(drive, &id(), true) {
        Ok(session) => session.contents().unwrap(),
        Err(error) => panic!("{what}: {error:?}"),
    };
    for placed in &contents.volumes {
        assert_eq!(placed.ambiguous, None, "{what}");
        let live = !matches!(placed.record.state, RecordState::Erasing { .. });
        assert_eq!(placed.device.is_some(), live, "{what}: {placed:?}");
    }
    assert!(
        contents.strangers.is_empty(),
        "{what}: {:?}",
        contents.strangers
    );
    assert!(
        allowed
            .iter()
            .any(|allowed| shape(allowed) == shape(&contents) && allowed.label == contents.label),
        "{what}: {contents:?}"
    );
    let used: u64 = contents
        .volumes
        .iter()
        .map(|placed| placed.record.extent.len)
        .sum();
    assert_eq!(
        used + contents.free_bytes(),
        contents.usable_bytes,
        "{what}"
    );
    assert!(!drive.is_dirty(), "{what}: a repair left unflushed sectors");
    let again = Session::open(drive, &id(), false).unwrap();
    assert_eq!(
        (again.view().unwrap().steps, again.contents().unwrap().notes),
        (vec![], vec![]),
        "{what}"
    );
    contents
}

/// Decides for each unflushed sector at random; the modes 0 and 1 lose all and none.
pub(crate) fn coin(mode: u64, seed: &Cell<u64>) -> impl FnMut() -> bool + '_ {
    move || {
        seed.set(
            seed.get()
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407),
        );
        match mode {
            0 => false,
            1 => true,
            _ => seed.get() >> 63 == 1,
        }
    }
}

#[test]
fn a_power_cut_at_any_moment_leaves_the_drive_before_or_after_the_change() {
    let seed = Cell::new(7);
    for sector in [512, 4096] {
        for (name, change) in CHANGES {
            let drive = furnished(sector);
            drive.fill(
                Extent {
                    start: 17 * MIB,
                    len: MIB,
                },
                0x5a,
            );
            let before = contents_of(&drive);
            drive.settle();
            change(&drive).unwrap();
            assert!(!drive.is_dirty(), "{name} ends with unflushed sectors");
            let after = contents_of(&drive);
            // Deleting and erasing have one more state in between.
            let middle = Session::open(&furnished(sector), &id(), true)
                .unwrap()
                .delete(b())
                .unwrap()
                .contents;
            let mut erased = middle.clone();
            for placed in &mut erased.volumes {
                if let RecordState::Erasing { done_bytes, .. } = &mut placed.record.state {
                    *done_bytes = 3 * MIB;
                }
            }
            let end = drive.log_len();
            for at in 0..=end {
                for mode in 0..6 {
                    let (cut, mark) = drive.after_cut(at, coin(mode, &seed));
                    let what = format!("{name} on {sector}, event {at} of {end}, mode {mode}");
                    if at == end {
                        holds(&cut, &what, &[&after]);
                    } else if mark.is_some() {
                        holds(&cut, &what, &[&middle, &erased, &after]);
                    } else if *name == "delete and erase" {
                        holds(&cut, &what, &[&before, &middle]);
                    } else {
                        holds(&cut, &what, &[&before, &after]);
                    }
                }
            }
        }
    }
}

#[test]
fn a_power_cut_during_the_repair_after_a_power_cut_is_repaired_too() {
    let seed = Cell::new(99);
    for (name, change) in CHANGES {
        let drive = furnished(512);
        let before = contents_of(&drive);
        drive.settle();
        change(&drive).unwrap();
        let after = contents_of(&drive);
        let middle = Session::open(&furnished(512), &id(), true)
            .unwrap()
            .delete(b())
            .unwrap()
            .contents;
        for at in 0..=drive.log_len() {
            let (first, _) = drive.after_cut(at, coin(2, &seed));
            Session::open(&first, &id(), true).unwrap();
            for then in 0..=first.log_len() {
                let (second, _) = first.after_cut(then, coin(2, &seed));
                let what = format!("{name}, event {at}, then {then}");
                let mut allowed = vec![&before, &after];
                if *name == "delete and erase" {
                    allowed.push(&middle);
                }
                let done = Contents {
                    volumes: middle
                        .volumes
                        .iter()
                        .cloned()
                        .map(|mut placed| {
                            if let RecordState::Erasing { done_bytes, .. } =
                                &mut placed.record.state
                            {
                                *done_bytes = 3 * MIB;
                            }
                            placed
                        })
                        .collect(),
                    ..middle.clone()
                };
                allowed.push(&done);
                holds(&second, &what, &allowed);
            }
        }
    }
}

#[test]
fn a_write_that_fails_leaves_the_drive_before_or_after_the_change() {
    for (name, change) in CHANGES {
        if *name == "delete and erase" {
            continue;
        }
        for limit in 0.. {
            let drive = furnished(512);
            let before = contents_of(&drive);
            drive.settle();
            drive.fail_after.set(Some(limit));
            let result = change(&drive);
            drive.fail_after.set(None);
            if result.is_ok() {
                break;
            }
            assert!(matches!(result, Err(LayoutError::Io { .. })), "{result:?}");
            let kernel = drive.kernel.borrow().len();
            let other = furnished(512);
            change(&other).unwrap();
            let after = holds(
                &drive,
                &format!("{name}, {limit} writes"),
                &[&before, &contents_of(&other)],
            );
            // If the delete did not become durable, the partition is given back at once.
            if *name == "delete" && shape(&after) == shape(&before) {
                assert_eq!(kernel, 2, "{limit} writes");
            }
        }
    }
}

/// A blank drive, or one with old data where a claim of a drive that is free of signatures may find
/// it: in both slots of the label, at both ends, and between them.
fn unclaimed(sector: u64, policy: ClaimPolicy) -> FakeDrive {
    let drive = FakeDrive::new(SIZE, sector);
    if policy == ClaimPolicy::SignatureFree {
        let label = gpt::LABEL_EXTENT;
        let array = SIZE - sector - gpt::ARRAY_BYTES;
        let last = SIZE - 8192;
        for start in [
            8192,
            label.start,
            label.start + 2 * MIB,
            24 * MIB,
            array,
            last,
        ] {
            drive.fill(Extent { start, len: sector }, 0x5a);
        }
    }
    drive
}

#[test]
fn a_claim_that_was_interrupted_is_finished_or_taken_back() {
    let seed = Cell::new(3);
    let policies = [ClaimPolicy::Blank, ClaimPolicy::SignatureFree];
    let cases = policies
        .into_iter()
        .flat_map(|policy| [(512, policy), (4096, policy)]);
    for (sector, policy) in cases {
        let drive = unclaimed(sector, policy);
        let is_as_before = |drive: &FakeDrive| {
            policy != ClaimPolicy::Blank || drive.same_bytes(&FakeDrive::new(SIZE, sector))
        };
        let how = how(policy);
        claim::begin(&drive, &id(), &how).unwrap();
        assert!(!drive.is_dirty());
        let mut stages = [0; 4];
        for at in 0..=drive.log_len() {
            for mode in 0..12 {
                let (cut, _) = drive.after_cut(at, coin(mode, &seed));
                let what = format!("{policy:?} on {sector}, event {at}, mode {mode}");
                match claim::stage(&cut, &id()).expect(&what) {
                    claim::Stage::NotBegun => {
                        stages[0] += 1;
                        let mut first = vec![0; sector as usize];
                        cut.read_at(0, &mut first).unwrap();
                        assert!(!gpt::is_our_mbr(&first), "{what}");
                        assert!(is_as_before(&cut), "{what}");
                    }
                    claim::Stage::BeforeTable(table) => {
                        stages[1] += 1;
                        // The error by which discovery offers the drive as blank.
                        let error = Session::open(&cut, &id(), false).unwrap_err();
                        assert!(matches!(error, LayoutError::Unlabelled { .. }), "{error:?}");
                        claim::undo(&cut, &table).unwrap();
                        assert!(is_as_before(&cut), "{what}");
                    }
                    claim::Stage::BeforeLabel(table, missing) => {
                        stages[2] += 1;
                        let error = Session::open(&cut, &id(), true).unwrap_err();
                        assert!(matches!(error, LayoutError::Unlabelled { .. }), "{error:?}");
                        claim::finish(&cut, &id(), &how, table, missing).unwrap();
                    }
                    claim::Stage::Labelled(_) => stages[3] += 1,
                }
                if matches!(claim::stage(&cut, &id()).unwrap(), claim::Stage::NotBegun) {
                    claim::begin(&cut, &id(), &how).unwrap();
                }
                create(&cut, &spec(0xa, "a", 1)).unwrap();
            }
        }
        assert!(stages.iter().all(|&count| count > 0), "{stages:?}");
    }
}

#[test]
fn somebody_elses_wiped_table_is_not_an_interrupted_claim() {
    let drive = claimed(512, ClaimPolicy::Blank);
    let mut mbr = vec![0; 512];
    drive.read_at(0, &mut mbr).unwrap();
    let other = FakeDrive::new(SIZE, 512);
    other.write_at(0, &mbr).unwrap();
    assert!(matches!(
        claim::stage(&other, &id()).unwrap(),
        claim::Stage::BeforeTable(_)
    ));
    // Other bytes in the boot code area, or any bytes behind it.
    other.rot(405, 1);
    assert_eq!(claim::stage(&other, &id()).unwrap(), claim::Stage::NotBegun);
    other.rot(405, 1);
    other.rot(3 * MIB, 1);
    assert_eq!(claim::stage(&other, &id()).unwrap(), claim::Stage::NotBegun);
}

#[test]
fn a_read_without_repair_writes_nothing_and_reports_the_damage() {
    let drive = furnished(512);
    drive.rot(512 + 24, 1);
    drive.rot(gpt::LABEL_EXTENT.start + 30, 1);
    drive.fail_after.set(Some(0));
    drive.kernel.borrow_mut().clear();
    let contents = Session::open(&drive, &id(), false)
        .unwrap()
        .contents()
        .unwrap();
    assert_eq!(contents.volumes.len(), 2);
    assert!(
        contents
            .volumes
            .iter()
            .all(|placed| placed.device.is_none())
    );
    assert_eq!(contents.notes.len(), 2, "{:?}", contents.notes);
    assert_eq!((drive.log_len(), drive.kernel.borrow().len()), (0, 0));
    // With repair the reason is shown once.
    drive.fail_after.set(None);
    let contents = contents_of(&drive);
    assert!(
        contents
            .notes
            .iter()
            .all(|note| note.contains("damaged") && note.ends_with("it was written again"))
    );
    assert_eq!(contents_of(&drive).notes, Vec::<String>::new());
    assert_eq!(drive.kernel.borrow().len(), 2);
}

#[test]
fn copies_that_differ_without_an_intent_are_left_alone() {
    let drive = furnished(512);
    let gpt::GptCopies::Whole(table) = gpt::read(&drive).unwrap() else {
        panic!()
    };
    let entry = gpt::Entry::new(
        Uuid::from_u128(5),
        Uuid::from_u128(6),
        Extent {
            start: 30 * MIB,
            len: MIB,
        },
        512,
    );
    gpt::write_copy(&drive, &table.with(9, entry), gpt::Which::Primary).unwrap();
    drive.settle();
    for repair in [false, true] {
        let error = Session::open(&drive, &id(), repair).unwrap_err();
        assert!(matches!(error, LayoutError::Damaged { .. }), "{error:?}");
    }
    assert_eq!(drive.log_len(), 0);
}

#[test]
fn a_label_without_a_table_is_damage_and_is_never_claimed_over() {
    let drive = furnished(512);
    let gpt::GptCopies::Whole(table) = gpt::read(&drive).unwrap() else {
        panic!()
    };
    for at in [0, 512, table.last_lba * 512] {
        drive
            .zero(Extent {
                start: at,
                len: 512,
            })
            .unwrap();
    }
    drive.settle();
    assert_eq!(gpt::read(&drive).unwrap(), gpt::GptCopies::None);
    let error = Session::open(&drive, &id(), true).unwrap_err();
    assert!(matches!(error, LayoutError::Damaged { .. }), "{error:?}");
    assert!(matches!(
        claim::stage(&drive, &id()),
        Err(LayoutError::Damaged { .. })
    ));
    assert_eq!(drive.log_len(), 0);
}

#[test]
fn an_empty_label_beside_volumes_is_damage() {
    let drive = furnished(512);
    drive.zero(gpt::LABEL_EXTENT).unwrap();
    drive.settle();
    let error = Session::open(&drive, &id(), true).unwrap_err();
    assert!(matches!(error, LayoutError::Damaged { .. }), "{error:?}");
    assert!(matches!(
        claim::stage(&drive, &id()),
        Err(LayoutError::Damaged { .. })
    ));
    assert_eq!(drive.log_len(), 0);
}

#[test]
fn the_same_name_is_the_same_volume_until_it_is_deleted() {
    let drive = furnished(512);
    let again = create(&drive, &spec(0x99, "b", 30)).unwrap();
    assert!(!again.changed);
    assert!(again.contents.volume(Uuid::from_u128(0x99)).is_none());
    session(&drive).delete(b()).unwrap();
    assert!(create(&drive, &spec(0x99, "b", 3)).unwrap().changed);
    // The uuid of a volume that is being erased is still taken.
    let error = create(&drive, &spec(0xb, "z", 3)).unwrap_err();
    assert!(matches!(error, LayoutError::Ambiguous { .. }));
}

#[test]
fn a_volume_in_use_is_not_deleted_and_nothing_changes() {
    let drive = furnished(512);
    let number = contents_of(&drive).volume(b()).unwrap().number.unwrap();
    drive.in_use.borrow_mut().push(number);
    drive.settle();
    let refused = session(&drive).delete(b()).unwrap_err();
    assert!(matches!(refused, LayoutError::InUse { .. }));
    let text = refused.to_string();
    assert!(
        text.contains("held by postgres (pid 12); end them"),
        "{text}"
    );
    assert_eq!(drive.writes(), 0);
    drive.in_use.borrow_mut().clear();
    assert!(session(&drive).delete(b()).unwrap().changed);
    assert!(!session(&drive).delete(b()).unwrap().changed);
    assert!(
        !session(&drive)
            .delete(Uuid::from_u128(0x77))
            .unwrap()
            .changed
    );
}

#[test]
fn the_kernel_refusing_a_change_undoes_it() {
    let drive = furnished(512);
    let before = contents_of(&drive);
    drive.kernel_refuses.set(true);
    assert!(matches!(
        create(&drive, &spec(0xd, "d", 5)),
        Err(LayoutError::Io { .. })
    ));
    assert!(matches!(
        session(&drive).expand(a(), 9 * MIB, RawSpace::Zeroed),
        Err(LayoutError::Io { .. })
    ));
    drive.kernel_refuses.set(false);
    let after = contents_of(&drive);
    assert_eq!((after.volumes, after.free), (before.volumes, before.free));
}

#[test]
fn a_volume_grows_only_into_free_space() {
    let drive = furnished(512);
    match session(&drive).expand(a(), 13 * MIB, RawSpace::Zeroed) {
        Err(LayoutError::CannotGrow {
            needed, possible, ..
        }) => {
            assert_eq!((needed, possible), (13 * MIB, 12 * MIB));
        }
        other => panic!("{other:?}"),
    }
    assert!(
        !session(&drive)
            .expand(a(), 4 * MIB, RawSpace::Zeroed)
            .unwrap()
            .changed
    );
    let grown = session(&drive)
        .expand(a(), 12 * MIB - 5, RawSpace::Zeroed)
        .unwrap();
    assert_eq!(
        grown.contents.volume(a()).unwrap().record.extent.len,
        12 * MIB
    );
    assert!(matches!(
        session(&drive).expand(Uuid::nil(), MIB, RawSpace::Zeroed),
        Err(LayoutError::NoSuchVolume { .. })
    ));
}

#[test]
fn what_a_new_volume_will_be_is_planned_when_it_is_made() {
    let drive = claimed(512, ClaimPolicy::Blank);
    let made = |n, mode, fs_type| {
        let spec = Record {
            mode,
            fs_type,
            ..spec(n, &n.to_string(), 1)
        };
        create(&drive, &spec).unwrap();
        let placed = contents_of(&drive).volume(spec.uuid).cloned();
        placed.unwrap().record.state
    };
    let planned = made(1, Mode::Mount, Some(FsType::Xfs));
    let RecordState::Fs {
        fs_type: FsType::Xfs,
        fs_uuid,
        mounted: false,
    } = planned
    else {
        panic!("{planned:?}")
    };
    assert_eq!(made(2, Mode::Mount, None), RecordState::New);
    assert_eq!(made(3, Mode::Block, None), RecordState::Block);
    // A volume is only ever formatted with the planned filesystem.
    let to = |fs_type, n| RecordState::Fs {
        fs_type,
        fs_uuid: n,
        mounted: true,
    };
    let first = Uuid::from_u128(1);
    for wrong in [
        to(FsType::Ext4, fs_uuid),
        to(FsType::Xfs, Uuid::from_u128(9)),
    ] {
        let refused = session(&drive).advance(first, &wrong);
        assert!(
            matches!(refused, Err(LayoutError::BadTransition { .. })),
            "{refused:?}"
        );
    }
    let mounted = session(&drive).advance(first, &to(FsType::Xfs, fs_uuid));
    assert!(mounted.unwrap().changed);
}

#[test]
fn a_record_only_moves_forward() {
    let drive = furnished(512);
    let fs = |mounted, n| RecordState::Fs {
        fs_type: FsType::Ext4,
        fs_uuid: Uuid::from_u128(n),
        mounted,
    };
    let refused = |uuid, to: &RecordState| match session(&drive).advance(uuid, to) {
        Err(LayoutError::BadTransition { .. }) => {}
        other => panic!("{to:?}: {other:?}"),
    };
    for to in [
        RecordState::Creating,
        RecordState::Block,
        fs(true, 1),
        RecordState::Erasing {
            erase_guid: Uuid::nil(),
            done_bytes: 0,
        },
    ] {
        refused(b(), &to);
    }
    for to in [
        RecordState::New,
        fs(false, 1),
        fs(true, 1),
        RecordState::Block,
    ] {
        refused(a(), &to);
    }
    assert!(
        !session(&drive)
            .advance(a(), &fs(false, 0xf5))
            .unwrap()
            .changed
    );
    assert!(
        session(&drive)
            .advance(a(), &fs(true, 0xf5))
            .unwrap()
            .changed
    );
    refused(a(), &fs(false, 0xf5));
    let block = Record {
        mode: Mode::Block,
        fs_type: None,
        ..spec(0xd, "d", 1)
    };
    create(&drive, &block).unwrap();
    refused(block.uuid, &fs(false, 1));
    assert!(
        !session(&drive)
            .advance(block.uuid, &RecordState::Block)
            .unwrap()
            .changed
    );
}

#[test]
fn a_signature_free_drive_gives_out_space_with_zeroed_ends() {
    let drive = claimed(512, ClaimPolicy::SignatureFree);
    drive.fill(
        Extent {
            start: 5 * MIB,
            len: 20 * MIB,
        },
        1,
    );
    let contents = create(&drive, &spec(0xa, "a", 8)).unwrap().contents;
    let extent = contents.volume(a()).unwrap().record.extent;
    for start in [extent.start, extent.end() - MIB] {
        let run = Extent { start, len: MIB };
        assert_eq!(crate::device::first_nonzero(&drive, run).unwrap(), None);
    }
}

#[test]
fn erasing_is_checked_before_the_space_is_free() {
    let drive = furnished(512);
    let extent = contents_of(&drive).volume(b()).unwrap().record.extent;
    assert!(matches!(
        free(&drive, b()),
        Err(LayoutError::BadTransition { .. })
    ));
    session(&drive).delete(b()).unwrap();
    drive.fill(
        Extent {
            start: extent.end() - 512,
            len: 512,
        },
        7,
    );
    let error = free(&drive, b()).unwrap_err();
    assert!(matches!(error, LayoutError::NotErased { offset, .. } if offset == extent.end() - 512));
    assert!(contents_of(&drive).volume(b()).is_some());
    drive.zero(extent).unwrap();
    drive.flush().unwrap();
    assert!(free(&drive, b()).unwrap().volume(b()).is_none());
}

#[test]
fn space_is_not_freed_while_somebody_has_the_deleted_volume_open() {
    let drive = furnished(512);
    let before = contents_of(&drive).volume(b()).cloned().unwrap();
    let (number, extent) = (before.number.unwrap(), before.record.extent);
    session(&drive).delete(b()).unwrap();
    drive.zero(extent).unwrap();
    drive.flush().unwrap();
    // An administrator gave it back to the kernel, and opened it.
    drive.kernel.borrow_mut().insert(number, extent);
    drive.in_use.borrow_mut().push(number);
    let refused = free(&drive, b());
    assert!(
        matches!(refused, Err(LayoutError::InUse { .. })),
        "{refused:?}"
    );
    assert!(contents_of(&drive).volume(b()).is_some());
    drive.in_use.borrow_mut().clear();
    let freed = free(&drive, b()).unwrap();
    assert!(freed.volume(b()).is_none());
    assert!(!drive.kernel.borrow().contains_key(&number));
}

#[test]
fn space_is_not_freed_before_the_table_has_the_volume_as_deleted() {
    let drive = furnished(512);
    let before = contents_of(&drive).volume(b()).cloned().unwrap();
    let (number, extent) = (before.number.unwrap(), before.record.extent);
    let gpt::GptCopies::Whole(live) = gpt::read(&drive).unwrap() else {
        panic!()
    };
    session(&drive).delete(b()).unwrap();
    drive.zero(extent).unwrap();
    drive.flush().unwrap();
    // As after a power failure in between: the entry has its old identity.
    gpt::write(&drive, &live).unwrap();
    let mut unrepaired = Session::open(&drive, &id(), false).unwrap();
    let erasable = unrepaired.erasable(b()).unwrap().unwrap();
    let refused = erase::free(&mut unrepaired, &erasable);
    assert!(
        matches!(refused, Err(LayoutError::InUse { .. })),
        "{refused:?}"
    );
    let gpt::GptCopies::Whole(table) = gpt::read(&drive).unwrap() else {
        panic!()
    };
    assert_eq!(table.entry(number), live.entry(number));
    // A `ReadDrive` with repair marks it, and then it is freed.
    let freed = free(&drive, b()).unwrap();
    assert!(freed.volume(b()).is_none());
}

#[test]
fn after_erasing_signatures_only_nobody_believes_that_free_space_is_zeros() {
    let drive = claimed(512, ClaimPolicy::Blank);
    create(
        &drive,
        &Record {
            erase: ErasePolicy::Signatures,
            ..spec(0xa, "a", 8)
        },
    )
    .unwrap();
    drive.fill(
        Extent {
            start: 5 * MIB,
            len: 8 * MIB,
        },
        9,
    );
    session(&drive).delete(a()).unwrap();
    free(&drive, a()).unwrap();
    assert_eq!(contents_of(&drive).space.zeroed, []);
    assert!(create(&drive, &spec(0xb, "b", 8)).unwrap().changed);
}

#[test]
fn a_full_table_and_a_full_drive_are_reported() {
    let drive = FakeDrive::new(200 * MIB, 512);
    claim::begin(&drive, &id(), &how(ClaimPolicy::Blank)).unwrap();
    for n in 0..127 {
        create(&drive, &spec(n + 1, &format!("v{n}"), 1)).unwrap();
        drive.settle();
    }
    assert!(matches!(
        create(&drive, &spec(999, "one more", 1)),
        Err(LayoutError::TableFull { entries: 128, .. })
    ));
    match create(&drive, &spec(999, "too large", 100)) {
        Err(LayoutError::NoSpace {
            needed, largest, ..
        }) => {
            // Nothing fits while the table is full.
            assert_eq!((needed, largest), (100 * MIB, 0));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_volume_deleted_while_its_drive_was_away_is_not_taken_for_a_new_one_of_its_name() {
    let drive = furnished(512);
    // Found by its name while it is live; a new one is created once it counts as deleted.
    let same = create(&drive, &spec(0xd, "a", 4)).unwrap();
    assert!(!same.changed);
    let beside = create_of(&drive, &spec(0xd, "a", 4), RawSpace::default(), &[a()]).unwrap();
    assert!(beside.changed);
    let contents = contents_of(&drive);
    let named = |placed: &&drivebay_model::Placed| placed.record.name == "a";
    let uuids: Vec<Uuid> = contents
        .volumes
        .iter()
        .filter(named)
        .map(|placed| placed.record.uuid)
        .collect();
    assert_eq!(uuids.len(), 2);
    assert!(uuids.contains(&a()) && uuids.contains(&Uuid::from_u128(0xd)));
}

#[test]
fn no_claim_is_resumed_on_a_drive_of_the_other_layout_whatever_its_tenants_wrote() {
    // The copy of a table of Drivebay, as at the end of a drive whose last volume contains it.
    let drive = FakeDrive::new(SIZE, 512);
    let guid = Uuid::from_u128(7);
    let table = gpt::Table::fresh(guid, guid, SIZE, 512).unwrap();
    gpt::write_copy(&drive, &table, gpt::Which::Backup).unwrap();
    drive.settle();
    assert!(matches!(
        claim::begun(&drive, &id()),
        Ok(claim::Stage::BeforeLabel(..))
    ));
    let pv = PvHeader {
        uuid: "DrvBay-0000-0000-0000-0000-0000-000001".into(),
        device_bytes: SIZE,
        metadata: vec![label::AREA],
        data_start: 4 * MIB,
        bootloader: None,
        used: false,
    };
    label::write(&drive, &pv).unwrap();
    drive.settle();
    let refused = |result: Result<(), LayoutError>| result.unwrap_err().to_string();
    let partition = refused(claim::begun(&drive, &id()).map(drop));
    assert!(partition.contains("LvmPv"), "{partition}");
    let lvm = refused(claimable::no_table(&drive, &id()));
    assert!(lvm.contains("GptDamaged"), "{lvm}");
}
