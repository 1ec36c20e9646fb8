//! Releases a claimed drive without volumes, as blank as before the claim.
//!
//! A drive that cannot be read completely is not released: an unreadable record may be a volume's.
//! The end is zeroed first, then the start, which holds the label: an interruption leaves a claimed
//! drive, or one whose remains `drive wipe` removes.

use super::{
    claimable,
    claimed::ClaimedDrive,
    error::LayoutError,
    jobs::{Release, Released},
    layout, lvm, open, space, wipe,
};
use drivebay_model::{Contents, Extent, units::human_size};
use drivebay_worker::Context;

/// Runs `Release`: zeroes both ends of a drive without volumes. Errs with `Busy` if a volume or an
/// LV or partition without a record is on it, or its label is not the job's.
pub(super) fn release(job: &Release, context: &mut Context) -> Result<Released, LayoutError> {
    let drive = &job.drive;
    context.step("reading the drive");
    // With repairs: unfinished changes are finished or undone first; one that cannot be is an
    // error.
    let dev = open::locked(drive)?;
    may_go(job, &*layout::claimed(&dev, true)?)?;
    drop(dev);
    lvm::deactivate(drive)?;
    let dev = open::exclusive(drive)?;
    // A volume may have been created while the lock was free.
    let contents = may_go(job, &*layout::claimed(&dev, false)?)?;
    context.step("checking whether it is blank");
    let mut free = contents.free.iter();
    let blank = match free.try_for_each(|run| claimable::is_blank(&dev, &drive.id, *run)) {
        Ok(()) => true,
        Err(LayoutError::NotClaimable { .. }) => false,
        Err(error) => return Err(error),
    };
    wipe::take_partitions(&dev, drive)?;
    context.step("taking the label away");
    let [start, end] = ends(drive.size_bytes);
    for run in [end, start] {
        let what = "taking the label away";
        space::make_zeros(&dev, &drive.id, run, contents.space.zeroing, what)?;
    }
    wipe::forget_group(drive);
    Ok(Released { blank })
}

/// Returns the drive's contents if nothing is on it and its label is the one of the job; errs with
/// `Busy` otherwise.
fn may_go(job: &Release, session: &dyn ClaimedDrive) -> Result<Contents, LayoutError> {
    let contents = session.contents()?;
    match obstacle(job, &contents) {
        None => Ok(contents),
        Some(reason) => Err(LayoutError::Busy {
            drive: job.drive.id.to_string(),
            reason,
        }),
    }
}

/// Returns the reason for keeping a drive with these contents; None if it can be released. Pure.
fn obstacle(job: &Release, contents: &Contents) -> Option<String> {
    if contents.label != job.label {
        return Some("its label is not the one that was scanned; scan again".to_owned());
    }
    if let Some(placed) = contents.volumes.first() {
        let record = &placed.record;
        return Some(format!("volume {} ({}) is on it", record.name, record.uuid));
    }
    if let Some((name, _)) = contents.strangers.first() {
        return Some(format!("{name:?} is on it, which no record names"));
    }
    (contents.unerased_bytes() > 0).then(|| {
        format!(
            "{} of deleted snapshots are being erased; repeat it when they are, or use drive wipe",
            human_size(contents.unerased_bytes())
        )
    })
}

/// Returns the first and the last bytes of a drive, which hold all structures of Drivebay.
fn ends(size: u64) -> [Extent; 2] {
    let edge = wipe::edge_of(size);
    let at = |start| Extent { start, len: edge };
    [at(0), at(size - edge)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use drivebay_model::{DriveRef, MIB, RecordState, samples};

    #[test]
    fn only_a_drive_with_the_label_that_was_seen_and_nothing_on_it_goes() {
        let empty = samples::contents(1, 1, vec![], 0);
        let job = Release {
            drive: DriveRef::from(&samples::facts("sda")),
            label: empty.label.clone(),
        };
        assert_eq!(obstacle(&job, &empty), None);
        for state in [
            RecordState::New,
            RecordState::Erasing {
                erase_guid: uuid::Uuid::from_u128(3),
                done_bytes: 0,
            },
        ] {
            let used = samples::contents(1, 1, vec![samples::placed(7, state)], 0);
            let why = obstacle(&job, &used).unwrap_or_default();
            assert!(why.contains("pvc-7"), "{why}");
        }
        let mut strange = empty.clone();
        let extent = Extent {
            start: MIB,
            len: MIB,
        };
        strange.strangers.push(("swap".into(), extent));
        assert!(obstacle(&job, &strange).is_some());
        let mut unerased = empty.clone();
        unerased.unmarked_bytes = MIB;
        assert!(obstacle(&job, &unerased).is_some_and(|why| why.contains("1 MiB")));
        let mut other = empty;
        other.label.node = "n2".into();
        assert!(obstacle(&job, &other).is_some());
    }

    #[test]
    fn the_ends_lie_on_the_drive_and_do_not_meet() {
        for size in [4096 * 4, 7 * MIB, 32 * MIB, 100 * MIB + 4096] {
            let [start, end] = ends(size);
            assert!(start.end() <= end.start, "{size}");
            assert_eq!((start.start, end.end()), (0, size));
        }
        assert_eq!(ends(100 * MIB)[0].len, 16 * MIB);
    }
}
