//! FUSE server behind a drive that can hang: leaves requests unanswered, fails them, and records them.

use std::{
    ffi::OsStr,
    fs::File,
    io,
    ops::Range,
    os::unix::fs::FileExt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, UNIX_EPOCH},
};

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner,
    OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request,
    WriteFlags,
};

const DISK: INodeNo = INodeNo(2);
/// Name of its only file.
pub(super) const NAME: &str = "disk";

/// Requests that are not answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hang {
    /// Reads, writes and flushes.
    All,
    /// Writes and flushes; reads are answered.
    Writes,
    /// Flushes; reads and writes are answered.
    Flushes,
    /// All requests after this many more.
    After(u64),
    /// All requests after this many more flushes.
    Flushed(u64),
    /// Writes to these bytes.
    WritesTo(Range<u64>),
}

impl Hang {
    /// True if a request is not answered. Counts the requests that are.
    fn takes(&mut self, request: &DriveRequest) -> bool {
        match self {
            Self::All => true,
            Self::Writes => request.kind != Kind::Read,
            Self::Flushes => request.kind == Kind::Flush,
            Self::After(0) => true,
            Self::After(left) => {
                *left -= 1;
                false
            }
            Self::Flushed(0) => true,
            Self::Flushed(left) => {
                *left -= u64::from(request.kind == Kind::Flush);
                false
            }
            Self::WritesTo(range) => request.kind == Kind::Write && request.touches(range),
        }
    }
}

/// Type of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Read of `DriveRequest::bytes`.
    Read,
    /// Write to `DriveRequest::bytes`.
    Write,
    /// Flush: makes earlier writes durable.
    Flush,
}

/// A request to the drive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriveRequest {
    /// Type of the request.
    pub kind: Kind,
    /// Bytes of the request; empty for a flush.
    pub bytes: Range<u64>,
}

impl DriveRequest {
    fn covers(&self, range: &Range<u64>) -> bool {
        self.bytes.start <= range.start && range.end <= self.bytes.end
    }

    fn touches(&self, range: &Range<u64>) -> bool {
        self.bytes.start < range.end && range.start < self.bytes.end
    }
}

#[derive(Debug)]
pub(super) struct Disk {
    backing: File,
    size_bytes: u64,
    gate: Mutex<Gate>,
}

#[derive(Debug, Default)]
pub(super) struct Gate {
    pub(super) hung: Option<Hang>,
    pub(super) unreadable: Vec<Range<u64>>,
    pub(super) unwritable: Range<u64>,
    pub(super) aside: Vec<Work>,
    pub(super) noted: Option<Vec<DriveRequest>>,
    /// Delay of reads, and of writes and flushes.
    pub(super) late: (Duration, Duration),
    /// Requests that are being delayed.
    pub(super) delayed: usize,
}

#[derive(Debug)]
pub(super) enum Work {
    Read(u64, u32, ReplyData),
    Write(u64, Vec<u8>, ReplyWrite),
    Flush(ReplyEmpty),
}

impl Work {
    pub(super) fn request(&self) -> DriveRequest {
        let (kind, offset, len) = match self {
            Self::Read(offset, len, _) => (Kind::Read, *offset, u64::from(*len)),
            Self::Write(offset, data, _) => (Kind::Write, *offset, data.len() as u64),
            Self::Flush(_) => (Kind::Flush, 0, 0),
        };
        let bytes = offset..offset + len;
        DriveRequest { kind, bytes }
    }
}

impl Disk {
    pub(super) fn new(backing: File, size_bytes: u64) -> Self {
        Self {
            backing,
            size_bytes,
            gate: Mutex::default(),
        }
    }

    pub(super) fn gate(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn alter(
        &self,
        offset: u64,
        bytes: usize,
        how: impl FnOnce(&mut [u8]),
    ) -> io::Result<()> {
        let mut data = vec![0; bytes];
        self.backing.read_exact_at(&mut data, offset)?;
        how(&mut data);
        self.backing.write_all_at(&data, offset)
    }

    /// Returns the offset of a 4096-byte block that begins with these bytes.
    pub(super) fn find(&self, bytes: &[u8]) -> io::Result<Option<u64>> {
        const PIECE: u64 = 4 << 20;
        let mut data = vec![0; PIECE as usize];
        let mut at = 0;
        while at < self.size_bytes {
            let len = (self.size_bytes - at).min(PIECE);
            let piece = &mut data[..usize::try_from(len).unwrap_or_default()];
            self.backing.read_exact_at(piece, at)?;
            let mut blocks = piece.chunks(4096);
            if let Some(block) = blocks.position(|block| block.starts_with(bytes)) {
                return Ok(Some(at + block as u64 * 4096));
            }
            at += len;
        }
        Ok(None)
    }

    fn take(self: &Arc<Self>, work: Work) {
        let mut gate = self.gate();
        let request = work.request();
        let late = match request.kind {
            Kind::Read => gate.late.0,
            Kind::Write | Kind::Flush => gate.late.1,
        };
        let hangs = gate.hung.as_mut().is_some_and(|hung| hung.takes(&request));
        if let Some(noted) = &mut gate.noted {
            noted.push(request);
        }
        if hangs {
            gate.aside.push(work);
        } else if late > Duration::ZERO {
            gate.delayed += 1;
            drop(gate);
            let disk = Arc::clone(self);
            // In a thread, so that other requests are answered meanwhile.
            thread::spawn(move || {
                thread::sleep(late);
                disk.gate().delayed -= 1;
                disk.answer(work);
            });
        } else {
            drop(gate);
            self.answer(work);
        }
    }

    pub(super) fn answer(&self, work: Work) {
        let request = work.request();
        match work {
            Work::Read(offset, len, reply) => {
                let len = u64::from(len).min(self.size_bytes.saturating_sub(offset));
                let touches = |range: &Range<u64>| request.touches(range);
                if self.gate().unreadable.iter().any(touches) {
                    return reply.error(Errno::EIO);
                }
                let mut data = vec![0; usize::try_from(len).unwrap_or_default()];
                match self.backing.read_exact_at(&mut data, offset) {
                    Ok(()) => reply.data(&data),
                    Err(_) => reply.error(Errno::EIO),
                }
            }
            Work::Write(offset, data, reply) => {
                let mut gate = self.gate();
                if request.touches(&gate.unwritable) {
                    return reply.error(Errno::EIO);
                }
                // Like a drive that remaps sectors when they are written.
                gate.unreadable.retain(|range| !request.covers(range));
                drop(gate);
                match self.backing.write_all_at(&data, offset) {
                    Ok(()) => reply.written(data.len() as u32),
                    Err(_) => reply.error(Errno::EIO),
                }
            }
            Work::Flush(reply) => match self.backing.sync_data() {
                Ok(()) => reply.ok(),
                Err(_) => reply.error(Errno::EIO),
            },
        }
    }

    fn attr(&self, ino: INodeNo) -> FileAttr {
        let directory = ino == INodeNo::ROOT;
        FileAttr {
            ino,
            size: if directory { 0 } else { self.size_bytes },
            blocks: if directory { 0 } else { self.size_bytes / 512 },
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if directory {
                FileType::Directory
            } else {
                FileType::RegularFile
            },
            perm: 0o700,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            flags: 0,
            blksize: 4096,
        }
    }
}

const TTL: Duration = Duration::from_secs(3600);

pub(super) struct Server(pub(super) Arc<Disk>);

impl Filesystem for Server {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if parent == INodeNo::ROOT && name == NAME {
            reply.entry(&TTL, &self.0.attr(DISK), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&TTL, &self.0.attr(ino));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // Without the page cache, since the kernel would answer reads from it while the drive hangs.
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.0.take(Work::Read(offset, size, reply));
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        self.0.take(Work::Write(offset, data.to_owned(), reply));
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.0.take(Work::Flush(reply));
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }
}
