//! Reads ranges that are or may be unreadable, past the cache, as a job of the drive's worker.

use std::{
    io,
    os::unix::fs::FileExt,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use super::bisect::{CHUNK, Reader};
use drivebay_model::{Cause, DriveRef, Extent, unreadable::WindowRead};
use drivebay_sys::{
    direct::{ALIGN, Aligned, is_of_medium},
    drive,
};
use drivebay_worker::{Context, Job};

/// Limit of failing reads per job.
const FAILURES: u32 = 64;
/// Time after which no further window is begun, and failed pieces are not read in smaller ones.
const LIMIT: Duration = Duration::from_secs(20);

/// Reads windows of a drive, in this order. Writes nothing.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReadWindows {
    pub drive: DriveRef,
    pub windows: Vec<Extent>,
    /// Bytes of the smallest piece that is read: the drive's physical sector, at most 4096.
    pub unit: u32,
}

/// Error of [ReadWindows]: it is not known which sectors are unreadable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum ReadWindowsError {
    /// The device is another drive by now, or cannot be opened.
    #[error("cannot open /dev/{kernel_name}")]
    Open {
        kernel_name: String,
        #[source]
        source: Cause,
    },
    /// A read failed with an error that is not of the medium.
    #[error("cannot read /dev/{kernel_name} at byte {offset}")]
    Read {
        kernel_name: String,
        offset: u64,
        #[source]
        source: Cause,
    },
    /// No place of the drive can be read: the fault is not in its medium.
    #[error("/dev/{kernel_name} reads nowhere; its unreadable sectors are not looked for")]
    Nowhere { kernel_name: String },
}

/// Returns the window extended to whole blocks, within the drive of this size in bytes; None if nothing is left of it.
fn aligned(window: Extent, size: u64) -> Option<Extent> {
    let start = window.start - window.start % ALIGN;
    let end = window.end().checked_next_multiple_of(ALIGN)?.min(size);
    (start < end).then(|| Extent {
        start,
        len: end - start,
    })
}

impl Job for ReadWindows {
    const NAME: &'static str = "read-windows";
    const READ_ONLY: bool = true;
    type Answer = WindowRead;
    type Error = ReadWindowsError;

    fn run(self, context: &mut Context) -> Result<WindowRead, ReadWindowsError> {
        let kernel_name = self.drive.kernel_name.clone();
        let size = self.drive.size_bytes;
        context.step("opening the drive");
        let file = drive::open(&self.drive, false, libc::O_DIRECT | libc::O_NONBLOCK).map_err(
            |error| ReadWindowsError::Open {
                kernel_name: kernel_name.clone(),
                source: Cause::new(&error),
            },
        )?;
        let mut buffer = Aligned::new(CHUNK as usize);
        let mut read = |piece: Extent, context: &mut Context| {
            context.step("reading past the cache");
            let room = buffer.bytes_mut().get_mut(..piece.len as usize);
            let read = match room {
                Some(room) => file.read_exact_at(room, piece.start),
                None => Err(io::ErrorKind::InvalidInput.into()),
            };
            match read {
                Ok(()) => Ok(true),
                Err(error) if is_of_medium(&error) => Ok(false),
                Err(error) => Err(ReadWindowsError::Read {
                    kernel_name: kernel_name.clone(),
                    offset: piece.start,
                    source: error.into(),
                }),
            }
        };
        let began = Instant::now();
        let mut all = WindowRead::default();
        let mut failures = FAILURES;
        for window in &self.windows {
            let Some(window) = aligned(*window, size) else {
                continue;
            };
            if failures == 0 || began.elapsed() >= LIMIT || context.is_alone() {
                break;
            }
            let mut reader = Reader {
                read: |piece| read(piece, context),
                // At the end of the drive there may be less than a block.
                unit: u64::from(self.unit).clamp(512, ALIGN),
                failures,
                until: began + LIMIT,
            };
            let result = reader.window(window)?;
            failures = reader.failures;
            all.done.extend(result.done);
            all.failed.extend(result.failed);
        }
        // If the link is lost, reads fail everywhere.
        if !all.failed.is_empty() {
            let places = [0, size / 2, size.saturating_sub(ALIGN)];
            let places = places.map(|at| Extent {
                start: at - at % ALIGN,
                len: ALIGN,
            });
            let mut somewhere = all.done.len() > all.failed.len();
            for place in places {
                somewhere = somewhere || read(place, context)?;
            }
            if !somewhere {
                return Err(ReadWindowsError::Nowhere { kernel_name });
            }
        }
        Ok(all)
    }
}
