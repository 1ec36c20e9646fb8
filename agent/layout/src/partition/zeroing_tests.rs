//! Raw volumes on a drive in memory that is full of a former owner's data, with different
//! behaviours on a command to zero.

use std::cell::Cell;

use uuid::Uuid;

use super::tests::{a, claimed, coin, contents_of, create, create_of, free, session, spec};
use crate::{
    claimed::ClaimedDrive,
    device::{self, Device},
    error::LayoutError,
    fake::{FakeDrive, Zeroes},
    pace::Pace,
    plan, zero_free,
};
use drivebay_model::{
    ClaimPolicy, Extent, MIB, Mode, RawSpace, Record, RecordState, Zeroing, runs,
};

/// Returns a claimed drive with another owner's data in all free space.
fn used(zeroes: Zeroes) -> FakeDrive {
    let drive = claimed(4096, ClaimPolicy::SignatureFree);
    for run in contents_of(&drive).free {
        for block in blocks(run) {
            drive.fill(block, 0x5a);
        }
    }
    drive.zeroes.set(zeroes);
    drive.settle();
    drive
}

/// Returns a few blocks of a run: tests write only to these, and read all.
fn blocks(run: Extent) -> impl Iterator<Item = Extent> {
    let starts = (run.start..run.end()).step_by(256 << 10);
    starts.map(|start| Extent { start, len: 4096 })
}

fn raw(n: u128, mib: u64) -> Record {
    Record {
        mode: Mode::Block,
        ..spec(n, &format!("raw-{n}"), mib)
    }
}

/// Returns the first foreign byte that the volume shows.
fn shows(drive: &FakeDrive, uuid: Uuid) -> Option<u64> {
    let extent = contents_of(drive).volume(uuid).unwrap().record.extent;
    device::first_nonzero(drive, extent).unwrap()
}

/// Runs one step in the background.
fn zero(drive: &FakeDrive, first: &[Extent], may_write: bool) -> bool {
    let done = zero_free::zero(&session(drive), first, may_write, 0).unwrap();
    done.ended.is_some()
}

/// Repeats the call until it succeeds, as a sidecar does, with background steps in between.
fn patiently(
    drive: &FakeDrive,
    mut call: impl FnMut() -> Result<(), LayoutError>,
) -> Vec<(u64, u64)> {
    let mut progress = Vec::new();
    for _ in 0..100 {
        match call() {
            Ok(()) => return progress,
            Err(LayoutError::NotZeroed {
                zeroed,
                needed,
                runs,
                ..
            }) => {
                progress.push((zeroed, needed));
                zero(drive, &runs, true);
            }
            Err(error) => panic!("{error}"),
        }
    }
    panic!("it never ends: {progress:?}")
}

fn erase(drive: &FakeDrive, uuid: Uuid) -> Result<(), LayoutError> {
    let session = session(drive);
    let erasable = session.erasable(uuid)?.unwrap();
    let mut pace = Pace::new(0);
    let mut done = 0;
    while let Some(left) = plan::at(&erasable.runs, done) {
        done += pace.zero(drive, left, session.space().zeroing).unwrap();
    }
    free(drive, uuid).map(|_| ())
}

#[test]
fn a_raw_volume_and_its_growth_cost_one_command_each_and_show_nothing_where_the_drive_zeroes_on_command()
 {
    let drive = used(Zeroes::OnCommand);
    for raw_space in [RawSpace::Zeroed, RawSpace::Sampled] {
        let uuid = Uuid::from_u128(raw_space as u128 + 1);
        drive.commands.set(0);
        create_of(&drive, &raw(raw_space as u128 + 1, 8), raw_space, &[]).unwrap();
        assert_eq!((drive.commands.get(), drive.zeros_written.get()), (1, 0));
        assert_eq!(shows(&drive, uuid), None);
        drive.commands.set(0);
        let grown = session(&drive).expand(uuid, 11 * MIB, raw_space);
        grown.unwrap();
        assert_eq!((drive.commands.get(), drive.zeros_written.get()), (1, 0));
        assert_eq!(shows(&drive, uuid), None);
    }
    // The rest was zeroed in the background: no further command is needed.
    while !zero(&drive, &[], false) {}
    drive.commands.set(0);
    create(&drive, &raw(9, 4)).unwrap();
    assert_eq!(drive.commands.get(), 0);
    assert_eq!(shows(&drive, Uuid::from_u128(9)), None);
}

#[test]
fn a_raw_volume_waits_with_progress_where_zeros_must_be_written() {
    for zeroes in [Zeroes::Written, Zeroes::NotOnCommand] {
        let drive = used(zeroes);
        let progress = patiently(&drive, || create(&drive, &raw(0xa, 24)).map(|_| ()));
        assert_eq!(progress[0], (0, 24 * MIB), "{zeroes:?}");
        assert!(progress.is_sorted() && progress.len() > 1, "{progress:?}");
        assert_eq!(shows(&drive, a()), None, "{zeroes:?}");
        let progress = patiently(&drive, || {
            let grown = session(&drive).expand(a(), 28 * MIB, RawSpace::Zeroed);
            grown.map(|_| ())
        });
        assert!(progress.len() <= 3, "{progress:?}");
        assert_eq!(shows(&drive, a()), None, "{zeroes:?}");
    }
}

#[test]
fn sampled_space_is_handed_out_at_once_and_shows_what_was_there() {
    let drive = used(Zeroes::Written);
    create_of(&drive, &raw(0xa, 8), RawSpace::Sampled, &[]).unwrap();
    assert!(shows(&drive, a()).is_some());
    // No zeros are written to such a drive in the background.
    drive.zeros_written.set(0);
    assert!(zero(&drive, &[], false));
    assert_eq!(drive.zeros_written.get(), 0);
}

#[test]
fn deleted_space_is_zeroed_only_where_it_was_erased_and_read_back() {
    let drive = used(Zeroes::OnCommand);
    create(&drive, &raw(0xa, 8)).unwrap();
    let extent = contents_of(&drive).volume(a()).unwrap().record.extent;
    drive.fill(extent, 0x77);
    session(&drive).delete(a()).unwrap();
    erase(&drive, a()).unwrap();
    assert_eq!(contents_of(&drive).space.zeroed, [extent]);
    // A volume that gets a part of it removes that part from the record.
    create(&drive, &spec(0xb, "b", 2)).unwrap();
    let left = contents_of(&drive).space.zeroed;
    assert_eq!(runs::bytes(&left), 6 * MIB);
}

#[test]
fn a_drive_that_ignores_commands_to_zero_is_written_to_and_one_that_keeps_no_zeros_gets_no_more() {
    for zeroes in [Zeroes::NotOnCommand, Zeroes::Never] {
        let drive = claimed(512, ClaimPolicy::Blank);
        create(&drive, &spec(0xa, "a", 8)).unwrap();
        let extent = contents_of(&drive).volume(a()).unwrap().record.extent;
        drive.fill(extent, 0x77);
        session(&drive).delete(a()).unwrap();
        drive.zeroes.set(zeroes);
        let error = erase(&drive, a()).unwrap_err();
        assert!(matches!(error, LayoutError::NotErased { .. }), "{error}");
        let now = contents_of(&drive);
        assert_eq!(now.space.zeroing, Zeroing::Written);
        let state = now.volume(a()).unwrap().record.state.clone();
        assert!(matches!(state, RecordState::Erasing { done_bytes: 0, .. }));
        let again = erase(&drive, a());
        if zeroes == Zeroes::NotOnCommand {
            again.unwrap();
            assert_eq!(device::first_nonzero(&drive, extent).unwrap(), None);
            assert_eq!(contents_of(&drive).space.zeroing, Zeroing::Written);
        } else {
            assert!(again.is_err());
            assert_eq!(contents_of(&drive).space.zeroing, Zeroing::Fails);
            assert!(contents_of(&drive).volume(a()).is_some());
            assert!(zero(&drive, &[], true));
        }
    }
}

#[test]
fn zeroed_space_that_something_wrote_to_is_not_given_out_and_is_zeroed_again() {
    let drive = used(Zeroes::OnCommand);
    while !zero(&drive, &[], false) {}
    let first = contents_of(&drive).free[0];
    drive.fill(Extent { len: 4096, ..first }, 1);
    match create(&drive, &raw(0xa, 8)) {
        Err(LayoutError::NotErased { offset, .. }) => assert_eq!(offset, first.start),
        other => panic!("{other:?}"),
    }
    assert_eq!(contents_of(&drive).volumes, []);
    create(&drive, &raw(0xa, 36)).unwrap();
    assert_eq!(shows(&drive, a()), None);
}

/// Writes data of the volume's user.
fn writes(drive: &FakeDrive, uuid: Uuid) {
    let extent = contents_of(drive).volume(uuid).unwrap().record.extent;
    for block in blocks(extent) {
        drive.write_at(block.start, &[0x77; 4096]).unwrap();
    }
    drive.flush().unwrap();
}

#[test]
fn a_power_cut_at_any_moment_lets_no_raw_volume_show_what_was_there() {
    let seed = Cell::new(5);
    for zeroes in [Zeroes::OnCommand, Zeroes::Written] {
        let drive = used(zeroes);
        zero(&drive, &[], true);
        patiently(&drive, || create(&drive, &raw(0xa, 5)).map(|_| ()));
        let grown = || session(&drive).expand(a(), 7 * MIB, RawSpace::Zeroed);
        patiently(&drive, || grown().map(|_| ()));
        writes(&drive, a());
        session(&drive).delete(a()).unwrap();
        erase(&drive, a()).unwrap();
        patiently(&drive, || create(&drive, &raw(0xb, 6)).map(|_| ()));
        let end = drive.log_len();
        for at in (0..=end).filter(|at| at % (end / 80 + 1) == 0) {
            for mode in [0, 2] {
                let (cut, _) = drive.after_cut(at, coin(mode, &seed));
                cut.zeroes.set(zeroes);
                let contents = contents_of(&cut);
                for run in runs::within(&contents.free, &contents.space.zeroed) {
                    let nonzero = device::first_nonzero(&cut, run).unwrap();
                    assert_eq!(nonzero, None, "{zeroes:?}, event {at} of {end}");
                }
                patiently(&cut, || create(&cut, &raw(0xc, 12)).map(|_| ()));
                let nonzero = shows(&cut, Uuid::from_u128(0xc));
                assert_eq!(
                    nonzero, None,
                    "{zeroes:?}, event {at} of {end}, mode {mode}"
                );
            }
        }
    }
}
