//! A bounded read past the page cache, which tests whether a drive still reads.

use std::{fs::File, io, os::unix::fs::FileExt};

use serde::{Deserialize, Serialize};

use super::{Context, Job};
use drivebay_model::{Cause, DriveRef, MIB, units::size_beside};
use drivebay_sys::{
    direct::{ALIGN, Aligned},
    drive::{self, OpenError},
};

/// The longest sample, in bytes.
pub const MAX_SAMPLE: u32 = MIB as u32;

/// Reads a piece of a drive past the page cache (O_DIRECT). Answers how many bytes were read.
///
/// The piece is widened to whole 4 KiB blocks and cut at the end of the drive.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReadSample {
    pub drive: DriveRef,
    /// Bytes from its start.
    pub offset: u64,
    /// Bytes, from 1 to `MAX_SAMPLE`.
    pub len: u32,
}

/// Error of reading a sample.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum ReadError {
    /// The device at this name is not the expected drive any more.
    #[error("drive {drive} is not at /dev/{kernel_name} any more ({seen}); rescan")]
    NotThisDrive {
        /// Id of the drive that was expected at `kernel_name`.
        drive: String,
        /// Kernel name at which the drive was expected.
        kernel_name: String,
        /// Device that has this name now.
        seen: String,
    },
    /// The range is not within the drive, or longer than `MAX_SAMPLE`.
    #[error(
        "a sample of {} at byte {offset} is not within drive {drive} ({size} bytes) or not within the limit of {}",
        size_beside((*len).into(), MAX_SAMPLE.into()),
        size_beside(MAX_SAMPLE.into(), (*len).into())
    )]
    Outside {
        drive: String,
        offset: u64,
        /// Requested length, bytes.
        len: u32,
        /// Size of the drive, bytes.
        size: u64,
    },
    /// The device could not be opened with O_DIRECT or not be verified, or does not exist any more.
    #[error("cannot open /dev/{kernel_name}")]
    Open {
        kernel_name: String,
        #[source]
        source: Cause,
    },
    /// Reading the device failed.
    #[error("cannot read /dev/{kernel_name} at byte {offset}")]
    Read {
        kernel_name: String,
        offset: u64,
        #[source]
        source: Cause,
    },
    /// The drive ended before its size was reached.
    #[error("/dev/{kernel_name} ended at byte {offset}, before its size of {size} bytes")]
    Short {
        kernel_name: String,
        offset: u64,
        /// Bytes of the drive.
        size: u64,
    },
}

/// Returns start and length, in bytes, of the aligned piece to read; None if `len` is 0 or above
/// `MAX_SAMPLE`, or `offset` is behind the end.
fn piece(offset: u64, len: u32, size: u64) -> Option<(u64, u64)> {
    if len == 0 || len > MAX_SAMPLE || offset >= size {
        return None;
    }
    let start = offset - offset % ALIGN;
    let end = offset
        .checked_add(u64::from(len))?
        .checked_next_multiple_of(ALIGN)?;
    Some((start, end.min(size) - start))
}

impl ReadSample {
    fn open(&self) -> Result<File, ReadError> {
        let kernel_name = self.drive.kernel_name.clone();
        drive::open(&self.drive, false, libc::O_DIRECT).map_err(|error| match error {
            OpenError::NotThisDrive { seen: device, .. } => ReadError::NotThisDrive {
                drive: self.drive.id.to_string(),
                kernel_name,
                seen: device,
            },
            OpenError::Gone { source, .. } | OpenError::Io { source, .. } => ReadError::Open {
                kernel_name,
                source: source.into(),
            },
            OpenError::Busy(_) => ReadError::Open {
                kernel_name,
                source: io::Error::from_raw_os_error(libc::EBUSY).into(),
            },
        })
    }
}

impl Job for ReadSample {
    const NAME: &'static str = "read-sample";
    const COMES_AGAIN: bool = true;
    type Answer = u64;
    type Error = ReadError;

    fn run(self, context: &mut Context) -> Result<u64, ReadError> {
        let size = self.drive.size_bytes;
        let Some((start, len)) = piece(self.offset, self.len, size) else {
            return Err(ReadError::Outside {
                drive: self.drive.id.to_string(),
                offset: self.offset,
                len: self.len,
                size,
            });
        };
        context.step("opening the drive");
        let file = self.open()?;
        context.step("reading past the cache");
        let mut buffer = Aligned::new(len as usize);
        let mut done = 0;
        while done < len {
            let offset = start + done;
            let kernel_name = || self.drive.kernel_name.clone();
            let rest = buffer.bytes_mut().get_mut(done as usize..);
            match file.read_at(rest.unwrap_or_default(), offset) {
                Ok(0) => {
                    return Err(ReadError::Short {
                        kernel_name: kernel_name(),
                        offset,
                        size,
                    });
                }
                Ok(count) => done += count as u64,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    return Err(ReadError::Read {
                        kernel_name: kernel_name(),
                        offset,
                        source: error.into(),
                    });
                }
            }
        }
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_widened_to_blocks_and_cut_at_the_end_of_the_drive() {
        assert_eq!(piece(0, 1, 1 << 20), Some((0, 4096)));
        assert_eq!(piece(4095, 2, 1 << 20), Some((0, 8192)));
        assert_eq!(piece(8192, 4096, 1 << 20), Some((8192, 4096)));
        assert_eq!(piece(8192, MAX_SAMPLE, 8192 + 512), Some((8192, 512)));
        let (_, longest) = piece(4095, MAX_SAMPLE, u64::MAX).unwrap();
        assert!(longest <= u64::from(MAX_SAMPLE) + 2 * ALIGN);
    }

    #[test]
    fn a_piece_outside_the_drive_or_the_limit_is_refused() {
        for (offset, len, size) in [
            (0, 0, 4096),
            (4096, 1, 4096),
            (u64::MAX - 1, 4096, u64::MAX),
            (0, MAX_SAMPLE + 1, 1 << 30),
        ] {
            assert_eq!(piece(offset, len, size), None, "{offset} {len} {size}");
        }
    }

    #[test]
    fn something_that_is_no_drive_is_not_read() {
        let sample = ReadSample {
            drive: DriveRef {
                id: drivebay_model::DriveId("path-null".into()),
                kernel_name: "null".into(),
                major: 1,
                minor: 3,
                diskseq: 0,
                size_bytes: 4096,
            },
            offset: 0,
            len: 4096,
        };
        let error = sample.run(&mut Context::silent()).unwrap_err();
        assert!(matches!(
            error,
            ReadError::NotThisDrive { .. } | ReadError::Open { .. }
        ));
    }
}
