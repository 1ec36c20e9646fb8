//! Errors that filesystems report (fanotify, FAN_FS_ERROR).
//!
//! A mark holds no reference to the filesystem: it is removed with the superblock and keeps nothing mounted. Setting one resolves cached
//! names and calls statfs, neither of which waits for a drive (linux.md, "Hung disk").

use std::{
    ffi::CString,
    fs::File,
    io::{self, Read},
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
};

use tokio::io::{Interest, unix::AsyncFd};

/// Bytes of one read. Events have a few hundred bytes; one read returns as many as fit.
const BUFFER: usize = 16 * 1024;
/// `struct fanotify_event_metadata`: length 4, version 1, reserved 1, metadata length 2, mask 8, fd 4, pid 4.
const METADATA: usize = 24;
/// `struct fanotify_event_info_header`: type 1, padding 1, length 2.
const HEADER: usize = 4;

/// The two words of a filesystem's id from statfs.
pub type FsId = [u32; 2];

/// An event of the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A filesystem reported an error.
    Error {
        fsid: FsId,
        /// Error as a positive errno (the kernel's sign varies between versions).
        errno: i32,
    },
    /// The queue overflowed, and events were lost.
    Overflow,
}

/// A fanotify group, and its events.
#[derive(Debug)]
pub struct FsErrors(AsyncFd<File>);

impl FsErrors {
    /// Creates a group without marks. Needs Linux 5.16 and CAP_SYS_ADMIN in the initial user namespace.
    pub fn new() -> io::Result<Self> {
        let flags =
            libc::FAN_CLASS_NOTIF | libc::FAN_REPORT_FID | libc::FAN_CLOEXEC | libc::FAN_NONBLOCK;
        // SAFETY: no pointers; the result is checked before it is used.
        let fd = unsafe { libc::fanotify_init(flags, libc::O_RDONLY as libc::c_uint) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just returned this descriptor, and it is owned only here.
        let file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
        // SAFETY: the File owns its descriptor for as long as the AsyncFd owns the File, and nothing
        // replaces or closes it meanwhile.
        let registered = unsafe { AsyncFd::register_with_interest(file, Interest::READABLE) };
        Ok(Self(registered?))
    }

    /// Returns another handle of the group, for setting marks from another thread.
    pub fn marker(&self) -> io::Result<Marker> {
        self.0.get_ref().try_clone().map(Marker)
    }

    /// Waits for events and returns at least one.
    pub async fn next(&self) -> io::Result<Vec<Event>> {
        let mut buffer = vec![0u8; BUFFER];
        loop {
            let mut ready = self.0.readable().await?;
            match ready.try_io(|file| file.get_ref().read(&mut buffer)) {
                Ok(Ok(length)) => {
                    let events = parse(buffer.get(..length).unwrap_or_default())?;
                    if !events.is_empty() {
                        return Ok(events);
                    }
                }
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(error)) => return Err(error),
                Err(_not_ready) => {}
            }
        }
    }
}

/// Sets the marks of a group.
#[derive(Debug)]
pub struct Marker(File);

impl Marker {
    /// Marks the filesystem that is mounted at the path. Repeating it has no effect.
    pub fn mark(&self, path: &Path) -> io::Result<()> {
        let path = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
        let flags = libc::FAN_MARK_ADD
            | libc::FAN_MARK_FILESYSTEM
            | libc::FAN_MARK_DONT_FOLLOW
            | libc::FAN_MARK_ONLYDIR;
        // SAFETY: the descriptor is open for as long as `self` is, and the path is NUL-terminated.
        let result = unsafe {
            libc::fanotify_mark(
                self.0.as_raw_fd(),
                flags,
                libc::FAN_FS_ERROR,
                libc::AT_FDCWD,
                path.as_ptr(),
            )
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }
}

fn part<const N: usize>(bytes: &[u8], at: usize) -> io::Result<[u8; N]> {
    bytes
        .get(at..at + N)
        .and_then(|part| part.try_into().ok())
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a fanotify event is cut off"))
}

/// Parses events with their information records, as the kernel writes them. Errs if one is malformed.
pub fn parse(mut bytes: &[u8]) -> io::Result<Vec<Event>> {
    let mut events = Vec::new();
    while !bytes.is_empty() {
        let length = u32::from_ne_bytes(part(bytes, 0)?) as usize;
        let head = usize::from(u16::from_ne_bytes(part(bytes, 6)?));
        let mask = u64::from_ne_bytes(part(bytes, 8)?);
        let event = bytes
            .get(..length)
            .filter(|_| (METADATA..=length).contains(&head));
        let Some(event) = event else {
            let why = format!("a fanotify event of {length} bytes with a head of {head}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        };
        if mask & libc::FAN_Q_OVERFLOW != 0 {
            events.push(Event::Overflow);
        } else if mask & libc::FAN_FS_ERROR != 0
            && let Some(error) = error(event.get(head..).unwrap_or_default())?
        {
            events.push(error);
        }
        bytes = bytes.get(length..).unwrap_or_default();
    }
    Ok(events)
}

fn error(mut infos: &[u8]) -> io::Result<Option<Event>> {
    let (mut fsid, mut errno) = (None, 0);
    while infos.len() >= HEADER {
        let [kind] = part(infos, 0)?;
        let length = usize::from(u16::from_ne_bytes(part(infos, 2)?));
        if length < HEADER {
            break;
        }
        match kind {
            libc::FAN_EVENT_INFO_TYPE_FID => {
                let (first, second) = (part(infos, HEADER)?, part(infos, HEADER + 4)?);
                fsid = Some([u32::from_ne_bytes(first), u32::from_ne_bytes(second)]);
            }
            libc::FAN_EVENT_INFO_TYPE_ERROR => {
                errno = i32::from_ne_bytes(part(infos, HEADER)?).saturating_abs();
            }
            _ => {}
        }
        infos = infos.get(length..).unwrap_or_default();
    }
    Ok(fsid.map(|fsid| Event::Error { fsid, errno }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(mask: u64, infos: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(((METADATA + infos.len()) as u32).to_ne_bytes());
        bytes.extend([3, 0]);
        bytes.extend((METADATA as u16).to_ne_bytes());
        bytes.extend(mask.to_ne_bytes());
        bytes.extend((-1i32).to_ne_bytes());
        bytes.extend(0i32.to_ne_bytes());
        bytes.extend(infos);
        bytes
    }

    fn info(kind: u8, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![kind, 0];
        bytes.extend(((HEADER + body.len()) as u16).to_ne_bytes());
        bytes.extend(body);
        bytes
    }

    fn fid() -> Vec<u8> {
        let mut body = Vec::new();
        body.extend(7u32.to_ne_bytes());
        body.extend(9u32.to_ne_bytes());
        // A file handle of 8 bytes after its header.
        body.extend([8, 0, 0, 0, 1, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
        info(libc::FAN_EVENT_INFO_TYPE_FID, &body)
    }

    fn failed(errno: i32) -> Vec<u8> {
        let mut body = Vec::from(errno.to_ne_bytes());
        body.extend(1u32.to_ne_bytes());
        info(libc::FAN_EVENT_INFO_TYPE_ERROR, &body)
    }

    #[test]
    fn errors_are_read_whatever_their_sign_and_order_and_others_are_not() {
        let fsid = [7, 9];
        for (errno, first, second) in [
            (117, fid(), failed(117)),
            (30, fid(), failed(-30)),
            (5, failed(5), fid()),
        ] {
            let bytes = event(libc::FAN_FS_ERROR, &[first, second].concat());
            let two = [bytes.clone(), event(libc::FAN_Q_OVERFLOW, &[])].concat();
            let error = Event::Error { fsid, errno };
            assert_eq!(parse(&bytes).unwrap(), [error]);
            assert_eq!(parse(&two).unwrap(), [error, Event::Overflow]);
        }
        assert_eq!(parse(&event(libc::FAN_CREATE, &fid())).unwrap(), []);
        assert_eq!(parse(&event(libc::FAN_FS_ERROR, &failed(5))).unwrap(), []);
    }

    #[test]
    fn what_is_cut_off_or_makes_no_sense_is_an_error_and_never_a_panic() {
        let whole = event(libc::FAN_FS_ERROR, &[fid(), failed(5)].concat());
        for length in 1..whole.len() {
            assert!(parse(&whole[..length]).is_err(), "{length}");
        }
        for length in [0u32, 5, 23, u32::MAX] {
            let mut bytes = whole.clone();
            bytes[..4].copy_from_slice(&length.to_ne_bytes());
            assert!(parse(&bytes).is_err(), "{length}");
        }
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] = 0xff;
            let _ = parse(&bytes);
        }
    }
}
