//! Reads the kernel log, record by record.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Seek, SeekFrom},
    os::unix::fs::OpenOptionsExt,
};

use nix::libc;
use tokio::io::{Interest, unix::AsyncFd};

/// Bytes of a record at most; the kernel cuts longer ones (CONSOLE_EXT_LOG_MAX).
const RECORD: usize = 8192;

/// Result of [`Kmsg::next`]: one record as lossy UTF-8, with the kernel's prefix and further lines, or a gap in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    Record(String),
    /// Records were overwritten before they were read.
    Lost,
}

/// First record to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// The oldest record that the kernel still has.
    Oldest,
    /// The first record that is logged after opening.
    Now,
}

/// Records that `Mark::texts` reads at most.
const MOST_RECORDS: usize = 2_000;

/// A position in the kernel log, for reading what is logged during one call.
#[derive(Debug)]
pub struct Mark(File);

impl Mark {
    /// Returns the current end of the log.
    ///
    /// # Errors
    /// The log cannot be read, as in a container without the device or CAP_SYSLOG.
    pub fn now() -> io::Result<Self> {
        open(From::Now).map(Self)
    }

    /// Returns the texts that were logged since then, without the kernel's prefixes and further lines. Does not wait.
    pub fn texts(mut self) -> Vec<String> {
        let mut texts = Vec::new();
        let mut buffer = [0u8; RECORD];
        for _ in 0..MOST_RECORDS {
            match self.0.read(&mut buffer) {
                Ok(length) => {
                    let record = buffer.get(..length).unwrap_or_default();
                    let record = String::from_utf8_lossy(record);
                    let text = record.split_once(';').map_or("", |(_, text)| text);
                    texts.extend(text.lines().next().map(str::to_owned));
                }
                // Records were overwritten before they were read.
                Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        texts
    }
}

fn open(from: From) -> io::Result<File> {
    let mut file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open("/dev/kmsg")?;
    file.seek(match from {
        From::Oldest => SeekFrom::Start(0),
        From::Now => SeekFrom::End(0),
    })?;
    Ok(file)
}

/// Reads /dev/kmsg, which never blocks on a drive.
#[derive(Debug)]
pub struct Kmsg(AsyncFd<File>);

impl Kmsg {
    /// Opens the log. In a container it needs the device, and CAP_SYSLOG where the host restricts the log.
    pub fn open(from: From) -> io::Result<Self> {
        let file = open(from)?;
        // SAFETY: the File owns its descriptor for as long as the AsyncFd owns the File, and nothing
        // replaces or closes it meanwhile.
        let registered = unsafe { AsyncFd::register_with_interest(file, Interest::READABLE) };
        Ok(Self(registered?))
    }

    /// Waits for the next record. One read returns exactly one.
    pub async fn next(&self) -> io::Result<Next> {
        let mut buffer = [0u8; RECORD];
        loop {
            let mut ready = self.0.readable().await?;
            let read = ready.try_io(|file| file.get_ref().read(&mut buffer));
            match read {
                Ok(Ok(length)) => {
                    let record = buffer.get(..length).unwrap_or_default();
                    return Ok(Next::Record(String::from_utf8_lossy(record).into_owned()));
                }
                Ok(Err(error)) if error.raw_os_error() == Some(libc::EPIPE) => {
                    return Ok(Next::Lost);
                }
                // Longer than the buffer: the kernel writes no such records, and skips this one.
                Ok(Err(error)) if error.raw_os_error() == Some(libc::EINVAL) => {
                    return Ok(Next::Lost);
                }
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(error)) => return Err(error),
                Err(_not_ready) => {}
            }
        }
    }
}
