//! The kernel log, record by record.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Seek, SeekFrom},
    os::unix::fs::OpenOptionsExt,
};

use nix::libc;
use tokio::io::{Interest, unix::AsyncFd};

/// The kernel cuts records at this many bytes (CONSOLE_EXT_LOG_MAX).
const RECORD: usize = 8192;

/// What came of waiting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// A record.
    Record(String),
    /// Records were overwritten before they were read.
    Lost,
}

/// Where reading begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// With the oldest record that the kernel still has.
    Oldest,
    /// With what is said from now on.
    Now,
}

/// Records that are read of what was logged during one call.
const MOST_RECORDS: usize = 2_000;

/// A place in the kernel log, for what is logged during one call.
#[derive(Debug)]
pub struct Mark(File);

impl Mark {
    /// The end of the log as it is now.
    ///
    /// # Errors
    /// The log cannot be read, as in a container without the device or CAP_SYSLOG.
    pub fn now() -> io::Result<Self> {
        open(From::Now).map(Self)
    }

    /// The texts logged since then, without what the kernel adds to each. Waits for none.
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
                // Some were overwritten before they were read.
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

/// Reads /dev/kmsg. It holds nothing of any drive, so it blocks on none.
#[derive(Debug)]
pub struct Kmsg(AsyncFd<File>);

impl Kmsg {
    /// In a container it needs the device, and CAP_SYSLOG where the host restricts the log.
    pub fn open(from: From) -> io::Result<Self> {
        let file = open(from)?;
        // SAFETY: the File owns its descriptor for as long as the AsyncFd owns the File, and nothing
        // replaces or closes it meanwhile.
        let registered = unsafe { AsyncFd::register_with_interest(file, Interest::READABLE) };
        Ok(Self(registered?))
    }

    /// The next record. One read takes exactly one.
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
                // Longer than the buffer: the kernel does not make such, and skips it.
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
