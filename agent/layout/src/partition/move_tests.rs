//! Moves between two drives in memory, with a power failure of both, or of one, after every write;
//! a target that loses confirmed writes; and drives of which only one is present.

use uuid::Uuid;

use super::{
    Session,
    tests::{a, claimed, contents_of, create, id, session, spec},
};
use crate::{
    claimed::ClaimedDrive,
    device::{Device, Medium},
    error::LayoutError,
    fake::FakeDrive,
};
use drivebay_model::{
    ClaimPolicy, CommitNote, DriveId, Extent, FsType, MIB, Peer, PlaceState, Placed, Placement,
    RawSpace, Record, RecordState,
    place::{Doubt, Judgement, ObservedPlace, judge},
};

const BYTES: u64 = 2 * MIB;
const SOURCE: u128 = 0x50;
const TARGET: u128 = 0x7a;

fn peer(label: u128) -> Peer {
    Peer {
        label: Uuid::from_u128(label),
        drive: DriveId(format!("{label:x}")),
    }
}

fn live(generation: u64, from: Option<Peer>) -> PlaceState {
    PlaceState::Live { generation, from }
}

fn incoming() -> PlaceState {
    PlaceState::Incoming {
        generation: 2,
        from: peer(SOURCE),
    }
}

fn leaving() -> PlaceState {
    PlaceState::Leaving {
        generation: 2,
        to: peer(TARGET),
    }
}

fn moved() -> PlaceState {
    PlaceState::Moved {
        generation: 2,
        to: peer(TARGET),
    }
}

fn note() -> CommitNote {
    CommitNote {
        generation: 2,
        from: peer(SOURCE),
        to: peer(TARGET),
        unfenced: false,
    }
}

fn placed(drive: &FakeDrive) -> Option<Placed> {
    let contents = Session::open(drive, &id(), true)
        .unwrap()
        .contents()
        .unwrap();
    contents.volume(a()).cloned()
}

fn placed_without_repair(drive: &FakeDrive) -> Placed {
    let session = Session::open(drive, &id(), false).unwrap();
    session.contents().unwrap().volume(a()).unwrap().clone()
}

fn bytes(drive: &FakeDrive, placed: &Placed) -> Vec<u8> {
    let mut bytes = vec![0; BYTES as usize];
    drive
        .read_at(placed.record.extent.start, &mut bytes)
        .unwrap();
    bytes
}

/// Returns a drive whose volume has a filesystem and data.
fn source() -> FakeDrive {
    let drive = claimed(512, ClaimPolicy::Blank);
    create(&drive, &spec(0xa, "a", BYTES / MIB)).unwrap();
    let state = RecordState::Fs {
        fs_type: FsType::Ext4,
        fs_uuid: Uuid::from_u128(0xf5),
        mounted: false,
    };
    session(&drive).advance(a(), &state).unwrap();
    let extent = placed(&drive).unwrap().record.extent;
    for (n, at) in (extent.start..extent.end()).step_by(64 * 1024).enumerate() {
        let run = Extent {
            start: at,
            len: 64 * 1024,
        };
        drive.fill(run, n as u8 + 1);
    }
    drive.settle();
    drive
}

fn target() -> FakeDrive {
    let drive = claimed(512, ClaimPolicy::Blank);
    drive.settle();
    drive
}

fn make_room(source: &FakeDrive, target: &FakeDrive) -> Result<(), LayoutError> {
    let record = Record {
        place: incoming(),
        ..placed(source).unwrap().record
    };
    let mut to = session(target);
    to.create(&record, RawSpace::default(), Placement::Pack, &[])
        .map(drop)
}

fn copy(source: &FakeDrive, target: &FakeDrive) {
    let data = bytes(source, &placed(source).unwrap());
    let at = placed(target).unwrap().record.extent.start;
    target.write_at(at, &data).unwrap();
    target.flush().unwrap();
}

fn set(drive: &FakeDrive, from: &PlaceState, to: &PlaceState) -> Result<(), LayoutError> {
    session(drive).set_place(a(), from, to, None).map(drop)
}

/// The steps of a move, and whether the record of the commit is durable after each.
type Step = (&'static str, bool, fn(&FakeDrive, &FakeDrive));

const STEPS: &[Step] = &[
    ("room", false, |s, t| make_room(s, t).unwrap()),
    ("copy", false, copy),
    ("leaving", false, |s, _| {
        set(s, &live(1, None), &leaving()).unwrap()
    }),
    ("note", true, |_, _| {}),
    ("commit", true, |_, t| {
        set(t, &incoming(), &live(2, Some(peer(SOURCE)))).unwrap();
    }),
    ("moved", true, |s, _| set(s, &leaving(), &moved()).unwrap()),
    ("drop", true, |s, _| {
        session(s).drop_place(a(), &moved()).map(drop).unwrap();
    }),
];

/// Returns the judgement about both drives, and whether the served volume has the right data.
fn judged(
    s: Option<&FakeDrive>,
    t: Option<&FakeDrive>,
    note: Option<&CommitNote>,
) -> (Judgement, Option<bool>) {
    let data = bytes(&source(), &placed(&source()).unwrap());
    let places: Vec<(u128, Placed, Vec<u8>)> = [(SOURCE, s), (TARGET, t)]
        .into_iter()
        .filter_map(|(label, drive)| {
            let drive = drive?;
            let placed = placed(drive)?;
            let bytes = bytes(drive, &placed);
            Some((label, placed, bytes))
        })
        .filter(|(_, placed, _)| !matches!(placed.record.state, RecordState::Erasing { .. }))
        .collect();
    for (label, placed, _) in &places {
        assert_eq!(placed.ambiguous, None, "{label:x}");
        // A copy that is not live cannot be mounted.
        assert_eq!(
            placed.device.is_some(),
            placed.record.place.is_live(),
            "{label:x}"
        );
    }
    let observed: Vec<ObservedPlace<'_>> = places
        .iter()
        .map(|(label, placed, _)| ObservedPlace {
            label: Uuid::from_u128(*label),
            state: &placed.record.place,
        })
        .collect();
    let judgement = judge(&observed, note, None);
    let whole = match judgement {
        Judgement::Serve { index, .. } => Some(places[index].2 == data),
        _ => None,
    };
    (judgement, whole)
}

/// Returns the index of the drive that is served: 0 the source, 1 the target.
fn served(judgement: &Judgement, s: Option<&FakeDrive>) -> Option<usize> {
    match judgement {
        Judgement::Serve { index, .. } => {
            let has_source = s
                .and_then(placed)
                .is_some_and(|placed| !matches!(placed.record.state, RecordState::Erasing { .. }));
            Some(if has_source { *index } else { 1 })
        }
        _ => None,
    }
}

/// Runs the move; returns the lengths of both logs before and after each step.
fn whole_move(s: &FakeDrive, t: &FakeDrive) -> Vec<[(usize, usize); 2]> {
    let mut ranges = Vec::new();
    for (_, _, step) in STEPS {
        let before = (s.log_len(), t.log_len());
        step(s, t);
        assert!(!s.is_dirty() && !t.is_dirty());
        ranges.push([(before.0, s.log_len()), (before.1, t.log_len())]);
    }
    ranges
}

fn coins() -> [fn() -> bool; 2] {
    [|| true, || false]
}

#[test]
fn after_a_power_cut_of_both_drives_one_place_is_served_or_none() {
    let (s, t) = (source(), target());
    let ranges = whole_move(&s, &t);
    let commit = STEPS
        .iter()
        .position(|(name, ..)| *name == "commit")
        .unwrap();
    let mut outcomes = std::collections::BTreeMap::new();
    for (n, ((name, _, _), [of_s, of_t])) in STEPS.iter().zip(&ranges).enumerate() {
        // The record is durable when the commit begins, and not before.
        let note = (n >= commit).then(note);
        // Each step writes to one drive; the other one is as the step before left it.
        let cuts = (of_s.0..=of_s.1).map(|at| (at, of_t.0));
        let cuts = cuts.chain((of_t.0..=of_t.1).map(|at| (of_s.1, at)));
        for (at_s, at_t) in cuts {
            for kept in coins() {
                let (cut_s, _) = s.after_cut(at_s, kept);
                let (cut_t, _) = t.after_cut(at_t, kept);
                let what = format!("{name}: source {at_s}, target {at_t}");
                let (judgement, whole) = judged(Some(&cut_s), Some(&cut_t), note.as_ref());
                let on = served(&judgement, Some(&cut_s));
                assert_ne!(whole, Some(false), "{what}: incomplete data is served");
                match n.cmp(&commit) {
                    std::cmp::Ordering::Less => assert_eq!(on, Some(0), "{what}: {judgement:?}"),
                    std::cmp::Ordering::Equal => assert!(
                        on == Some(1)
                            || judgement == Judgement::InDoubt(Doubt::CommitIssued(peer(TARGET))),
                        "{what}: {judgement:?}"
                    ),
                    std::cmp::Ordering::Greater => assert_eq!(on, Some(1), "{what}: {judgement:?}"),
                }
                *outcomes.entry((*name, on)).or_insert(0) += 1;
            }
        }
    }
    // Both outcomes of the commit were reached.
    assert!(
        outcomes.contains_key(&("commit", None)) && outcomes.contains_key(&("commit", Some(1)))
    );
}

#[test]
fn a_drive_that_is_seen_alone_is_never_served_where_the_other_may_be_newer() {
    let (s, t) = (source(), target());
    let ranges = whole_move(&s, &t);
    let [room, leaving, commit] = ["room", "leaving", "commit"]
        .map(|step| STEPS.iter().position(|(name, ..)| *name == step).unwrap());
    for (n, ((name, ..), [of_s, of_t])) in STEPS.iter().zip(&ranges).enumerate() {
        for note in [None, (n >= commit).then(note)] {
            for at in of_s.0..=of_s.1 {
                let (alone, _) = s.after_cut(at, || true);
                let (judgement, _) = judged(Some(&alone), None, note.as_ref());
                // Only the source is present: it is served only before it has the state `leaving`.
                let is_served = matches!(judgement, Judgement::Serve { .. });
                assert!(
                    !is_served || n <= leaving,
                    "{name}, source at {at}: {judgement:?}"
                );
            }
            for at in of_t.0..=of_t.1 {
                let (alone, _) = t.after_cut(at, || true);
                let (judgement, whole) = judged(None, Some(&alone), note.as_ref());
                let is_served = matches!(judgement, Judgement::Serve { .. });
                assert!(
                    !is_served || n >= commit,
                    "{name}, target at {at}: {judgement:?}"
                );
                assert_ne!(whole, Some(false), "{name}, target at {at}");
                assert!(n == room || judgement != Judgement::Nowhere);
            }
        }
    }
}

#[test]
fn a_target_that_loses_what_it_had_confirmed_is_in_doubt_and_the_old_place_is_not_served() {
    let (s, t) = (source(), target());
    let ranges = whole_move(&s, &t);
    let commit = STEPS
        .iter()
        .position(|(name, ..)| *name == "commit")
        .unwrap();
    let begin = ranges[commit][1].0;
    let mut in_doubt = 0;
    // Source and record are as after the commit; the target is as at any moment before.
    for at in 0..ranges[commit][1].1 {
        let (lost, _) = t.after_cut(at, || true);
        let (before_moved, _) = s.after_cut(ranges[commit][0].1, || true);
        let (after_moved, _) = s.after_cut(ranges[commit + 1][0].1, || true);
        for s in [before_moved, after_moved] {
            let (judgement, whole) = judged(Some(&s), Some(&lost), Some(&note()));
            match served(&judgement, Some(&s)) {
                Some(on) => assert!(on == 1 && at >= begin && whole == Some(true), "{at}"),
                None => in_doubt += 1,
            }
        }
    }
    assert!(in_doubt > 2 * begin - 1, "{in_doubt} of {begin}");
}

#[test]
fn an_interrupted_move_goes_back_and_can_be_made_again() {
    let (s, t) = (source(), target());
    let ranges = whole_move(&s, &t);
    let commit = STEPS
        .iter()
        .position(|(name, ..)| *name == "commit")
        .unwrap();
    let (s, _) = s.after_cut(ranges[commit][0].0, || true);
    let (t, _) = t.after_cut(ranges[commit][1].0, || true);
    let (judgement, _) = judged(Some(&s), Some(&t), None);
    let expected = Judgement::Serve {
        index: 0,
        revert: true,
    };
    assert_eq!(judgement, expected);
    set(&s, &leaving(), &live(1, None)).unwrap();
    assert!(
        placed(&s).unwrap().device.is_some(),
        "the kernel has it again"
    );
    // A copy that is not needed any more is erased, and its space is freed.
    session(&t).drop_place(a(), &incoming()).unwrap();
    t.zero(placed(&t).unwrap().record.extent).unwrap();
    t.flush().unwrap();
    super::tests::free(&t, a()).unwrap();
    assert_eq!(placed(&t), None);
    s.settle();
    t.settle();
    whole_move(&s, &t);
    let (judgement, whole) = judged(Some(&s), Some(&t), Some(&note()));
    assert_eq!((served(&judgement, Some(&s)), whole), (Some(1), Some(true)));
}

#[test]
fn what_is_mounted_is_not_taken_away_and_stays_live() {
    let s = source();
    let number = placed(&s).unwrap().number.unwrap();
    s.in_use.borrow_mut().push(number);
    let refused = set(&s, &live(1, None), &leaving());
    assert!(
        matches!(refused, Err(LayoutError::InUse { .. })),
        "{refused:?}"
    );
    let now = placed(&s).unwrap();
    assert_eq!(now.record.place, live(1, None));
    assert!(now.device.is_some());
}

#[test]
fn a_source_that_cannot_be_written_is_reported_and_nobody_has_it_open_until_the_next_repair() {
    let s = source();
    s.fail_after.set(Some(s.writes()));
    let failed = set(&s, &live(1, None), &leaving());
    assert!(
        matches!(failed, Err(LayoutError::NotWritten { .. })),
        "{failed:?}"
    );
    s.fail_after.set(None);
    let number = placed_without_repair(&s).number.unwrap();
    assert!(!s.kernel.borrow().contains_key(&number));
    let now = placed(&s).unwrap();
    assert_eq!(now.record.place, live(1, None));
    assert!(now.device.is_some());
}

#[test]
fn only_what_is_expected_of_a_place_is_changed() {
    let (s, t) = (source(), target());
    make_room(&s, &t).unwrap();
    // A repetition uses the same place.
    make_room(&s, &t).unwrap();
    assert_eq!(contents_of(&t).volumes.len(), 1);
    let refused = |result: Result<(), LayoutError>| {
        assert!(
            matches!(result, Err(LayoutError::NotThere { .. })),
            "{result:?}"
        );
    };
    refused(set(&t, &live(1, None), &leaving()));
    refused(set(&s, &leaving(), &moved()));
    let wrong = set(&t, &incoming(), &live(2, None));
    assert!(
        matches!(wrong, Err(LayoutError::BadTransition { .. })),
        "{wrong:?}"
    );
    refused(session(&s).drop_place(a(), &moved()).map(drop));
    let live_one = session(&s).drop_place(a(), &live(1, None)).map(drop);
    refused(live_one);
    // A copy is not a volume: it cannot be expanded, and a creation does not find it by its name.
    refused(
        session(&t)
            .expand(a(), 4 * MIB, RawSpace::default())
            .map(drop),
    );
    let made = create(&t, &spec(0xb, "a", 1)).unwrap();
    assert!(made.changed && made.contents.volume(Uuid::from_u128(0xb)).is_some());
}
