//! Selection of the original and of the copy's place.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::FakeDrive;
use crate::{
    claimed::ClaimedDrive,
    copy::{Original, copy, original, parameters::set, snapshot_device},
    device::Device,
    error::LayoutError,
    jobs::{Claim, CopyOf, CopyStep, SetParameters, SettleLost},
    lost::settle,
    partition::{Session, claim},
};
use drivebay_model::{
    ClaimPolicy, DriveId, DriveRef, ErasePolicy, Extent, Label, Layout, MIB, Mode, Peer,
    PlaceState, PlacedSnapshot, Placement, RawSpace, Record, RecordState, lost, samples,
    volume_snapshot::SnapshotGroup,
};

fn id() -> DriveId {
    DriveId("wwn-0xfa4e".into())
}

fn a() -> Uuid {
    Uuid::from_u128(0xa)
}

fn session(drive: &FakeDrive) -> Session<'_, FakeDrive> {
    Session::open(drive, &id(), true).unwrap()
}

fn peer(label: u128) -> Peer {
    Peer {
        label: Uuid::from_u128(label),
        drive: id(),
    }
}

fn incoming(generation: u64) -> PlaceState {
    PlaceState::Incoming {
        generation,
        from: peer(0xd15c),
    }
}

/// Returns a drive with one volume of 4 MiB.
fn drive(place: PlaceState) -> FakeDrive {
    let drive = FakeDrive::new(48 * MIB, 512);
    let label = Label {
        drive_uuid: Uuid::from_u128(0xd15c),
        cluster: "c".into(),
        node: "n".into(),
        class: "fast".into(),
        drive_id: id(),
        cordon: None,
    };
    let how = Claim {
        layout: Layout::Partition,
        label,
        policy: ClaimPolicy::Blank,
    };
    claim::begin(&drive, &id(), &how).unwrap();
    let record = Record {
        uuid: a(),
        name: "a".into(),
        class: "fast".into(),
        mode: Mode::Mount,
        fs_type: None,
        mkfs_options: vec![],
        mount_options: vec![],
        requested_bytes: 4 * MIB,
        parameters: Default::default(),
        erase: ErasePolicy::Zero,
        extent: Extent {
            start: 0,
            len: 4 * MIB,
        },
        growing_to: None,
        place,
        // A copy gets the state of its original.
        state: RecordState::New,
    };
    let mut claimed = session(&drive);
    let made = claimed.create(&record, RawSpace::default(), Placement::Pack, &[]);
    made.unwrap();
    drop(claimed);
    drive
}

fn of(mib: u64, label: u128) -> Original {
    Original {
        volume: None,
        label: Uuid::from_u128(label),
        runs: vec![Extent {
            start: 0,
            len: mib * MIB,
        }],
        device: None,
    }
}

/// Returns a step of moving this volume to this generation.
fn job(uuid: Uuid, generation: u64) -> CopyStep {
    let drive = DriveRef {
        id: id(),
        kernel_name: "sda".into(),
        major: 8,
        minor: 0,
        diskseq: 1,
        size_bytes: 48 * MIB,
    };
    CopyStep {
        of: CopyOf::Itself,
        source: drive.clone(),
        target: drive,
        uuid,
        generation,
        from_bytes: 0,
        source_writes: None,
        may_match: false,
        holds_nothing: Vec::new(),
        lost: Vec::new(),
        bytes_per_second: None,
        budget_ms: 1000,
    }
}

fn is_not_there<T: std::fmt::Debug>(answer: Result<T, LayoutError>) {
    assert!(
        matches!(answer, Err(LayoutError::NotThere { .. })),
        "{answer:?}"
    );
}

#[test]
fn the_original_is_live_at_the_generation_before() {
    let drive = drive(PlaceState::default());
    let source = original(&session(&drive), &job(a(), 2)).unwrap();
    let extent = session(&drive)
        .contents()
        .unwrap()
        .volume(a())
        .unwrap()
        .record
        .extent;
    assert_eq!(source.label, Uuid::from_u128(0xd15c));
    assert_eq!(source.runs, [extent]);
    for generation in [0, 1, 3] {
        is_not_there(original(&session(&drive), &job(a(), generation)));
    }
    let other = Uuid::from_u128(0xb);
    let unknown = original(&session(&drive), &job(other, 2));
    assert!(matches!(unknown, Err(LayoutError::NoSuchVolume { .. })));
    let leaving = PlaceState::Leaving {
        generation: 2,
        to: peer(9),
    };
    let live = PlaceState::default();
    session(&drive)
        .set_place(a(), &live, &leaving, None)
        .unwrap();
    is_not_there(original(&session(&drive), &job(a(), 2)));
    is_not_there(original(&session(&drive), &job(a(), 3)));
    session(&drive)
        .set_place(a(), &leaving, &live, None)
        .unwrap();
    session(&drive).delete(a()).unwrap();
    let deleted = original(&session(&drive), &job(a(), 2));
    assert!(matches!(deleted, Err(LayoutError::NoSuchVolume { .. })));
}

#[test]
fn the_copy_is_incoming_from_that_drive_and_as_large() {
    let drive = drive(incoming(2));
    let runs = copy(&session(&drive), &job(a(), 2), &of(4, 0xd15c)).unwrap();
    let extent = session(&drive)
        .contents()
        .unwrap()
        .volume(a())
        .unwrap()
        .record
        .extent;
    assert_eq!(runs, [extent]);
    is_not_there(copy(&session(&drive), &job(a(), 3), &of(4, 0xd15c)));
    is_not_there(copy(&session(&drive), &job(a(), 2), &of(4, 0xd15d)));
    is_not_there(copy(&session(&drive), &job(a(), 2), &of(5, 0xd15c)));
    is_not_there(original(&session(&drive), &job(a(), 3)));
    let unknown = copy(
        &session(&drive),
        &job(Uuid::from_u128(0xb), 2),
        &of(4, 0xd15c),
    );
    assert!(matches!(unknown, Err(LayoutError::NoSuchVolume { .. })));
    session(&drive).drop_place(a(), &incoming(2)).unwrap();
    is_not_there(copy(&session(&drive), &job(a(), 2), &of(4, 0xd15c)));
}

#[test]
fn a_place_that_is_live_is_never_written_to() {
    let drive = drive(PlaceState::default());
    for generation in [1, 2] {
        is_not_there(copy(
            &session(&drive),
            &job(a(), generation),
            &of(4, 0xd15c),
        ));
    }
    // A copy that became live after the step was planned.
    let drive = self::drive(incoming(2));
    let live = PlaceState::Live {
        generation: 2,
        from: Some(peer(0xd15c)),
    };
    let state = Some(&RecordState::Block);
    session(&drive)
        .set_place(a(), &incoming(2), &live, state)
        .unwrap();
    is_not_there(copy(&session(&drive), &job(a(), 2), &of(4, 0xd15c)));
}

#[test]
fn a_volume_that_is_filled_may_be_larger_than_what_it_gets_and_not_smaller() {
    let drive = drive(incoming(1));
    let fill = |of| CopyStep { of, ..job(a(), 1) };
    let other = CopyOf::Volume(Uuid::from_u128(0xb));
    for mib in [1, 4] {
        assert!(copy(&session(&drive), &fill(other), &of(mib, 0xd15c)).is_ok());
    }
    is_not_there(copy(&session(&drive), &fill(other), &of(5, 0xd15c)));
    // The copy of a move must not be filled from another original.
    let drive = self::drive(incoming(2));
    is_not_there(copy(&session(&drive), &fill(other), &of(4, 0xd15c)));
}

#[test]
fn a_snapshot_that_is_not_there_is_not_copied() {
    let drive = drive(PlaceState::default());
    let step = CopyStep {
        of: CopyOf::Snapshot(Uuid::from_u128(0xc)),
        ..job(a(), 1)
    };
    let result = original(&session(&drive), &step);
    assert!(
        matches!(result, Err(LayoutError::NoSnapshot { .. })),
        "{result:?}"
    );
}

#[test]
fn a_snapshot_that_is_lost_is_not_tried_again_and_one_without_a_device_is() {
    let answer = |change: fn(&mut PlacedSnapshot)| {
        let mut snapshot = samples::snapshot(0xc, 0xa);
        change(&mut snapshot);
        let mut placed = samples::placed(0xa, RecordState::Block);
        placed.snapshots = vec![snapshot];
        let contents = samples::contents(1, 1, vec![placed], 0);
        snapshot_device(&id(), &contents, Uuid::from_u128(0xc)).unwrap_err()
    };
    let lost = answer(|one| one.is_overflowed = true);
    assert!(matches!(lost, LayoutError::NoSnapshot { .. }), "{lost:?}");
    let inactive = answer(|one| one.device = None);
    assert!(matches!(inactive, LayoutError::Io { .. }), "{inactive:?}");
    let unclear = answer(|one| one.ambiguous = Some("?".into()));
    assert!(
        matches!(unclear, LayoutError::Ambiguous { .. }),
        "{unclear:?}"
    );
}

#[test]
fn a_snapshot_that_is_not_complete_is_not_copied_nor_is_any_of_its_group() {
    let why = |members: &[(u128, u128, bool)], uuid| {
        let mut placed = samples::placed(0xa, RecordState::Block);
        for (uuid, group, is_complete) in members {
            let mut one = samples::snapshot(*uuid, 0xa);
            one.record.is_complete = *is_complete;
            one.record.group = Some(SnapshotGroup {
                uuid: Uuid::from_u128(*group),
                name: "group".into(),
                members: 2,
            });
            one.device = None;
            placed.snapshots.push(one);
        }
        let contents = samples::contents(1, 1, vec![placed], 0);
        snapshot_device(&id(), &contents, Uuid::from_u128(uuid)).unwrap_err()
    };
    let is_refused = |error: &LayoutError| matches!(error, LayoutError::NoSnapshot { why, .. } if why.contains("not complete"));
    for (members, uuid) in [
        (&[(1, 9, false)][..], 1),
        (&[(1, 9, true), (2, 9, false)], 1),
        (&[(1, 9, true), (2, 9, false)], 2),
    ] {
        let error = why(members, uuid);
        assert!(is_refused(&error), "{members:?}: {error:?}");
    }
    let error = why(&[(1, 9, true), (2, 9, true), (3, 8, false)], 1);
    assert!(matches!(error, LayoutError::Io { .. }), "{error:?}");
}

#[test]
fn what_is_kept_with_a_copy_is_replaced_while_it_is_incomplete_and_never_afterwards() {
    let drive = drive(incoming(1));
    let kept = |drive: &FakeDrive| {
        let contents = session(drive).contents().unwrap();
        let record = contents.volume(a()).unwrap().record.clone();
        (record.parameters, record.place, record.state)
    };
    let job = |parameters: &[(&str, &str)]| SetParameters {
        drive: job(a(), 1).target,
        uuid: a(),
        place: incoming(1),
        parameters: parameters
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect(),
    };
    let (_, place, state) = kept(&drive);
    for (parameters, is_changed) in [
        (&[("a", "1"), ("b", "2")][..], true),
        (&[("a", "1"), ("b", "2")], false),
        (&[("a", "3")], true),
        (&[], true),
    ] {
        let job = job(parameters);
        let done = set(&mut session(&drive), &job).unwrap();
        assert_eq!(done.changed, is_changed, "{parameters:?}");
        assert_eq!(kept(&drive), (job.parameters, place.clone(), state.clone()));
    }
    let elsewhere = SetParameters {
        place: incoming(2),
        ..job(&[("a", "1")])
    };
    is_not_there(set(&mut session(&drive), &elsewhere));
    session(&drive)
        .set_place(a(), &incoming(1), &PlaceState::default(), None)
        .unwrap();
    is_not_there(set(&mut session(&drive), &job(&[("a", "1")])));
    // A move's copy gets the lost sectors of its source.
    let drive = self::drive(incoming(2));
    assert!(set(&mut session(&drive), &elsewhere).unwrap().changed);
}

/// Sets the parameters of the incomplete copy.
fn record(drive: &FakeDrive, parameters: BTreeMap<String, String>) {
    let job = SetParameters {
        drive: job(a(), 1).target,
        uuid: a(),
        place: incoming(2),
        parameters,
    };
    set(&mut session(drive), &job).unwrap();
}

/// Makes the copy the volume.
fn complete(drive: &FakeDrive) {
    let live = PlaceState::Live {
        generation: 2,
        from: Some(peer(0xd15c)),
    };
    session(drive)
        .set_place(a(), &incoming(2), &live, None)
        .unwrap();
}

fn settling(may_end: bool) -> SettleLost {
    SettleLost {
        drive: job(a(), 1).target,
        uuid: a(),
        may_end,
    }
}

#[test]
fn a_lost_sector_is_recorded_until_it_is_written_and_the_device_ends_with_the_last_one() {
    let drive = drive(incoming(2));
    let range = |start, len| Extent { start, len };
    let recorded = [range(4096, 4096), range(MIB, 1024)];
    let mut parameters = Default::default();
    lost::keep(Some(&recorded), &mut parameters);
    record(&drive, parameters);
    let settle = |drive: &FakeDrive, may_end| {
        let done = settle(&mut session(drive), &settling(may_end))?;
        let record = &done.contents.volume(a()).unwrap().record;
        Ok((done.changed, record.lost()))
    };
    // Not of a copy that is no volume yet.
    is_not_there(settle(&drive, true).map(drop));
    complete(&drive);
    let contents = session(&drive).contents().unwrap();
    let runs = session(&drive).runs(contents.volume(a()).unwrap()).unwrap();
    let begin = runs[0].start;
    for at in (4096..8192).step_by(512).chain([MIB, MIB + 512]) {
        drive.write_at(begin + at, &lost::mark(a(), at)).unwrap();
    }
    assert_eq!(
        settle(&drive, true).unwrap(),
        (false, Some(recorded.to_vec()))
    );
    // What does not read is not known to be written.
    drive.unreadable.set(Some(range(begin + MIB, 512)));
    assert_eq!(
        settle(&drive, true).unwrap(),
        (false, Some(recorded.to_vec()))
    );
    drive.unreadable.set(None);
    // One block of the first range is written, and then all others.
    drive.write_at(begin + 4096 + 1024, &[7; 512]).unwrap();
    let left = vec![range(4096, 1024), range(5632, 2560), recorded[1]];
    assert_eq!(settle(&drive, false).unwrap(), (true, Some(left)));
    drive.write_at(begin + 4096, &[7; 4096]).unwrap();
    drive.write_at(begin + MIB, &[0; 1024]).unwrap();
    assert_eq!(settle(&drive, false).unwrap(), (true, Some(Vec::new())));
    assert_eq!(settle(&drive, true).unwrap(), (true, None));
    assert_eq!(settle(&drive, true).unwrap(), (false, None));
}

#[test]
fn writes_that_leave_more_ranges_than_a_record_has_keep_the_record_and_are_found_all_the_same() {
    let drive = drive(incoming(2));
    let whole = [Extent { start: 0, len: MIB }];
    let mut parameters = Default::default();
    lost::keep(Some(&whole), &mut parameters);
    record(&drive, parameters);
    complete(&drive);
    let contents = session(&drive).contents().unwrap();
    let begin = session(&drive).runs(contents.volume(a()).unwrap()).unwrap()[0].start;
    let fill = |every: usize| {
        for at in (0..MIB).step_by(512 * every) {
            drive.write_at(begin + at, &[7; 512]).unwrap();
        }
    };
    for at in (0..MIB).step_by(512) {
        drive.write_at(begin + at, &lost::mark(a(), at)).unwrap();
    }
    let settle = || {
        let done = settle(&mut session(&drive), &settling(true)).unwrap();
        done.contents.volume(a()).unwrap().record.lost()
    };
    // 1,024 ranges.
    fill(2);
    assert_eq!(settle(), Some(whole.to_vec()));
    fill(1);
    assert_eq!(settle(), None);
}

#[test]
fn lost_sectors_that_are_not_understood_stay_as_they_are_recorded() {
    let drive = drive(incoming(2));
    let unknown = BTreeMap::from([("lostSectors".to_owned(), "v2:?".to_owned())]);
    record(&drive, unknown.clone());
    complete(&drive);
    let done = settle(&mut session(&drive), &settling(true)).unwrap();
    let record = &done.contents.volume(a()).unwrap().record;
    assert_eq!((done.changed, &record.parameters), (false, &unknown));
}
