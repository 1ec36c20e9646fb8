//! Making a used drive blank, on the operator's explicit command only. The start and the end go
//! first, since that is where tables and signatures are: a wipe that is interrupted leaves
//! nothing that could be mistaken for what was there.

use super::{
    claimable::EDGE,
    device::{self, Medium},
    error::{CarveError, Fault, io_error},
    jobs::{WipeProgress, WipeStep},
    layout, lvm, open,
    pace::Pace,
};
use drivebay_model::{Contents, DriveRef, Extent, RecordState, Zeroing};
use drivebay_sys as sys;
use drivebay_sys::{self, blockdev::BlockDev};
use drivebay_worker::Context;

/// Zeroed first at each end of a drive of this size, bytes: what claiming looks at in full, in whole sectors of any size.
pub(super) fn edge_of(size: u64) -> u64 {
    EDGE.min(size / 2 / 4096 * 4096)
}

/// Where the bytes from `done` on are, in the order of wiping: start, end, all between.
fn next(size: u64, done: u64) -> Extent {
    let edge = edge_of(size);
    if done < edge {
        Extent {
            start: done,
            len: edge - done,
        }
    } else if done < 2 * edge {
        Extent {
            start: size - edge + (done - edge),
            len: 2 * edge - done,
        }
    } else {
        Extent {
            start: done - edge,
            len: size - done,
        }
    }
}

/// Wipes for about `budget_ms`. Everything it answers for is durable.
pub(super) fn step(job: &WipeStep, context: &mut Context) -> Result<WipeProgress, CarveError> {
    let drive = &job.drive;
    refuse_news(job, layout::look(drive, false))?;
    lvm::deactivate(drive)?;
    let dev = open::exclusive(drive)?;
    refuse_news(job, layout::read(&dev))?;
    take_partitions(&dev, drive)?;
    let size = drive.size_bytes;
    let sector = u64::from(dev.sector());
    let mut done = job.from_bytes.min(size) / sector * sector;
    let how = match job.written {
        true => Zeroing::Written,
        false => Zeroing::Command,
    };
    let mut pace = Pace::new(job.budget_ms);
    while done < size && !pace.is_over() {
        context.step("wipe");
        done += pace
            .zero(&dev, next(size, done), how)
            .map_err(io_error(&drive.id, "wiping"))?;
    }
    if done == size {
        reads_zeros(
            &dev,
            drive,
            Extent {
                start: 0,
                len: size,
            },
        )?;
        forget_group(drive);
    }
    Ok(WipeProgress {
        done_bytes: done,
        total_bytes: size,
    })
}

/// Between what the operator saw and now, and between two steps, a volume may have been carved: it is not
/// open, so O_EXCL does not tell. Pure.
fn refuse_news(job: &WipeStep, look: Result<Contents, CarveError>) -> Result<(), CarveError> {
    let busy = |reason: String| {
        Err(CarveError::Busy {
            drive: job.drive.id.to_string(),
            reason,
        })
    };
    match look {
        Ok(_) if job.from_bytes > 0 => busy("it was claimed while it was being wiped".to_owned()),
        Ok(contents) => {
            let new = contents.volumes.iter().find(|placed| {
                !matches!(placed.record.state, RecordState::Erasing { .. })
                    && !job.going.contains(&placed.record.uuid)
            });
            match new {
                Some(placed) => busy(format!("volume {} was made on it", placed.record.uuid)),
                None => Ok(()),
            }
        }
        Err(error) if matches!(error, CarveError::Io { .. }) || error.fault() != Fault::Drive => {
            Err(error)
        }
        // No label of ours that reads: that is what wiping is for.
        Err(_) => Ok(()),
    }
}

/// Takes every partition from the kernel, which refuses while one is in use. O_EXCL has refused
/// mounted ones already; this finds those that are only open.
pub(super) fn take_partitions(dev: &BlockDev, drive: &DriveRef) -> Result<(), CarveError> {
    let all = dev
        .partitions()
        .map_err(io_error(&drive.id, "reading the kernel's partitions"))?;
    for facts in all {
        match dev.del_partition(facts.number) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                return Err(CarveError::Busy {
                    drive: drive.id.to_string(),
                    reason: format!("{} is in use", facts.kernel_name),
                });
            }
            Err(error) => {
                return Err(io_error(&drive.id, "taking a partition from the kernel")(
                    error,
                ));
            }
        }
    }
    Ok(())
}

/// Fails if a part of `run` that claiming reads, its ends and samples between, is not zeros.
pub(super) fn reads_zeros<D: Medium + ?Sized>(
    dev: &D,
    drive: &DriveRef,
    run: Extent,
) -> Result<(), CarveError> {
    let found = device::sample_nonzero(dev, run, EDGE.min(run.len))
        .map_err(io_error(&drive.id, "checking that it is blank"))?;
    match found {
        None => Ok(()),
        Some(offset) => Err(CarveError::NotErased {
            drive: drive.id.to_string(),
            offset,
        }),
    }
}

/// LVM's commands on the host forget the volume group that was on the drive.
pub(super) fn forget_group(drive: &DriveRef) {
    if let Err(error) = sys::lvm::forget_hints() {
        tracing::warn!(drive = %drive.id, %error, "host LVM commands may still expect the volume group of a drive that was given back");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drivebay_model::MIB;

    #[test]
    fn every_byte_is_wiped_once_and_the_ends_first() {
        for size in [4096, 7 * MIB, 32 * MIB, 33 * MIB, 100 * MIB + 4096] {
            let mut runs = Vec::new();
            let mut done = 0;
            while done < size {
                let run = next(size, done);
                assert!(run.len > 0 && run.end() <= size, "{size}: {run:?}");
                // As if the budget ended in the middle of a run.
                let len = run.len.div_ceil(2).max(512).min(run.len);
                runs.push(Extent {
                    start: run.start,
                    len,
                });
                done += len;
            }
            assert_eq!(runs[0].start, 0);
            runs.sort_unstable();
            let mut at = 0;
            for run in runs {
                assert_eq!(run.start, at, "{size}");
                at = run.end();
            }
            assert_eq!(at, size);
        }
        assert_eq!(
            next(100 * MIB, 16 * MIB),
            Extent {
                start: 84 * MIB,
                len: 16 * MIB
            }
        );
    }
}
