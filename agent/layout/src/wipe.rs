//! Makes a used drive blank, at the operator's explicit command only. The start and the end, where
//! tables and signatures are, are zeroed first: an interrupted wipe leaves nothing that could be
//! mistaken for a valid drive.

use super::{
    claimable::EDGE,
    device::{self, Medium},
    error::{Fault, LayoutError, io_error},
    jobs::{WipeProgress, WipeStep},
    layout, lvm, open,
    pace::Pace,
};
use drivebay_model::{Contents, DriveRef, Extent, RecordState, Zeroing};
use drivebay_sys as sys;
use drivebay_sys::{self, blockdev::BlockDev};
use drivebay_worker::Context;

/// Returns the bytes at each end of a drive of this size that are zeroed first: those that claiming
/// reads completely, in whole sectors of any size.
pub(super) fn edge_of(size: u64) -> u64 {
    EDGE.min(size / 2 / 4096 * 4096)
}

/// Returns the run that follows after `done` bytes, in the order of wiping: start, end, all
/// between.
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

/// Wipes for about `budget_ms`. The progress that it returns is durable. At the end the drive must
/// read back as zeros.
pub(super) fn step(job: &WipeStep, context: &mut Context) -> Result<WipeProgress, LayoutError> {
    let drive = &job.drive;
    refuse_news(job, layout::read_contents(drive, false))?;
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

/// Fails if a volume was created since the operator's command, or between two steps: it need not be
/// open, so O_EXCL does not detect it. Pure.
fn refuse_news(job: &WipeStep, result: Result<Contents, LayoutError>) -> Result<(), LayoutError> {
    let busy = |reason: String| {
        Err(LayoutError::Busy {
            drive: job.drive.id.to_string(),
            reason,
        })
    };
    match result {
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
        Err(error) if matches!(error, LayoutError::Io { .. }) || error.fault() != Fault::Drive => {
            Err(error)
        }
        // The drive has no readable label of Drivebay: it can be wiped.
        Err(_) => Ok(()),
    }
}

/// Removes all partitions from the kernel; errs with `Busy` if one is in use. O_EXCL has excluded
/// mounted ones already; this detects those that are only open.
pub(super) fn take_partitions(dev: &BlockDev, drive: &DriveRef) -> Result<(), LayoutError> {
    let all = dev
        .partitions()
        .map_err(io_error(&drive.id, "reading the kernel's partitions"))?;
    for facts in all {
        match dev.del_partition(facts.number) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                return Err(LayoutError::Busy {
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

/// Fails if a byte that is not zero is found in those parts of `run` that claiming reads: its ends
/// and samples between.
pub(super) fn reads_zeros<D: Medium + ?Sized>(
    dev: &D,
    drive: &DriveRef,
    run: Extent,
) -> Result<(), LayoutError> {
    let nonzero = device::sample_nonzero(dev, run, EDGE.min(run.len))
        .map_err(io_error(&drive.id, "checking that it is blank"))?;
    match nonzero {
        None => Ok(()),
        Some(offset) => Err(LayoutError::NotErased {
            drive: drive.id.to_string(),
            offset,
        }),
    }
}

/// Makes the host's LVM commands forget the volume group of the drive. A failure is logged only.
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
                // As if the time ended in the middle of a run.
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
