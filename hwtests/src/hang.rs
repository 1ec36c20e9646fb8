//! A drive that stops answering, or stops reading in places, and can be made to do so again: a loop device over a file that a
//! FUSE server of our own serves. What reads it past the cache while it hangs is in D state and
//! cannot be killed, as with a real drive that went silent.
//!
//! The traps, and how they are kept shut: the server runs on a thread that touches nothing but
//! the backing file, which is elsewhere; it never blocks on a hung request but puts it aside, so
//! that everything else is still answered; nobody in this process may touch the device while it
//! hangs (use a worker), or even its death would not close the server's descriptor. Dropping a
//! `HungDrive` answers what hangs, detaches, and cuts the connection (MNT_FORCE) in any case.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io,
    ops::Range,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant, UNIX_EPOCH},
};

use drivebay_agent::{discovery::sysfs, model::DriveRef};
use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyWrite, Request, WriteFlags,
};
use nix::mount::{MntFlags, umount2};
use tempfile::TempDir;

use crate::{tools, tree};

const DISK: INodeNo = INodeNo(2);
const NAME: &str = "disk";
/// How long detaching and ending the server may take before it is given up.
const END: Duration = Duration::from_secs(5);

/// A loop device over a file; detached when dropped.
#[derive(Debug)]
pub struct LoopDrive {
    kernel_name: String,
}

impl LoopDrive {
    /// Attaches a file to a free loop device.
    pub fn attach(file: &Path) -> io::Result<Self> {
        let output = Command::new("losetup")
            .args(["-f", "--show"])
            .arg(file)
            .output()?;
        let node = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        match node.strip_prefix("/dev/") {
            Some(name) if output.status.success() => Ok(Self {
                kernel_name: name.to_owned(),
            }),
            _ => Err(io::Error::other(format!(
                "losetup failed: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            ))),
        }
    }

    /// How a worker finds it. Reads sysfs only.
    pub fn drive_ref(&self) -> io::Result<DriveRef> {
        let facts = sysfs::read(Path::new("/sys"), &self.kernel_name)?;
        Ok(DriveRef::from(&facts))
    }

    /// Device node.
    pub fn node(&self) -> PathBuf {
        Path::new("/dev").join(&self.kernel_name)
    }
}

impl Drop for LoopDrive {
    fn drop(&mut self) {
        // Partitions that were added one by one would outlive the file, and be found by whoever gets the number next. One may
        // be in use for a moment more.
        let node = self.node().display().to_string();
        let end = Instant::now() + END;
        loop {
            for (_, number) in tree::partitions(&self.kernel_name) {
                let _ = tools::run("delpart", &[&node, &number.to_string()]);
            }
            if tree::partitions(&self.kernel_name).is_empty() || Instant::now() >= end {
                break;
            }
            thread::sleep(Duration::from_millis(5));
        }
        let child = Command::new("losetup")
            .arg("-d")
            .arg(self.node())
            .stdin(Stdio::null())
            .spawn();
        let Ok(mut child) = child else { return };
        let end = Instant::now() + END;
        // Not `wait`: on a drive that hangs it has no bound.
        while matches!(child.try_wait(), Ok(None)) && Instant::now() < end {
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A drive that can hang.
#[derive(Debug)]
pub struct HungDrive {
    // In the order in which they must go.
    drive: Option<LoopDrive>,
    session: Option<BackgroundSession>,
    disk: Arc<Disk>,
    mount: PathBuf,
    _dir: TempDir,
}

impl HungDrive {
    /// A drive of so many bytes, answering.
    pub fn new(size_bytes: u64) -> io::Result<Self> {
        let dir = tempfile::tempdir()?;
        let backing = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(dir.path().join("backing"))?;
        backing.set_len(size_bytes)?;
        let mount = dir.path().join("mount");
        fs::create_dir(&mount)?;
        let disk = Arc::new(Disk {
            backing,
            size_bytes,
            gate: Mutex::default(),
        });
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("drivebay-hang".to_owned())];
        let session = fuser::spawn_mount(Server(Arc::clone(&disk)), &mount, &config)?;
        let mut hung = Self {
            drive: None,
            session: Some(session),
            disk,
            mount,
            _dir: dir,
        };
        hung.drive = Some(LoopDrive::attach(&hung.mount.join(NAME))?);
        Ok(hung)
    }

    /// How a worker finds it.
    pub fn drive_ref(&self) -> io::Result<DriveRef> {
        match &self.drive {
            Some(drive) => drive.drive_ref(),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// The file behind it, as the kernel says it: for a class selector.
    pub fn file(&self) -> PathBuf {
        self.mount.join(NAME)
    }

    /// From now on reads, writes and flushes get no answer.
    pub fn hang(&self) {
        self.disk.gate().hung = Some(Hung::All);
    }

    /// From now on writes and flushes get no answer; what is read does.
    pub fn hang_writes(&self) {
        self.disk.gate().hung = Some(Hung::Writes);
    }

    /// Answers everything that hangs, and all that comes.
    pub fn resume(&self) {
        let aside = {
            let mut gate = self.disk.gate();
            gate.hung = None;
            std::mem::take(&mut gate.aside)
        };
        for work in aside {
            self.disk.answer(work);
        }
    }

    /// From now on nothing in this range of bytes reads.
    pub fn spoil(&self, range: Range<u64>) {
        self.disk.gate().bad = range;
    }

    /// How many requests hang.
    pub fn hanging(&self) -> usize {
        self.disk.gate().aside.len()
    }
}

impl Drop for HungDrive {
    fn drop(&mut self) {
        self.resume();
        drop(self.drive.take());
        // Aborts the connection, so whatever still waits gets an error.
        let _ = umount2(&self.mount, MntFlags::MNT_FORCE | MntFlags::MNT_DETACH);
        if let Some(session) = self.session.take() {
            let end = Instant::now() + END;
            while !session.guard.is_finished() && Instant::now() < end {
                thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

#[derive(Debug)]
struct Disk {
    backing: File,
    size_bytes: u64,
    gate: Mutex<Gate>,
}

#[derive(Debug, Default)]
struct Gate {
    hung: Option<Hung>,
    bad: Range<u64>,
    aside: Vec<Work>,
}

/// What gets no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hung {
    All,
    Writes,
}

#[derive(Debug)]
enum Work {
    Read(u64, u32, ReplyData),
    Write(u64, Vec<u8>, ReplyWrite),
    Flush(ReplyEmpty),
}

impl Disk {
    fn gate(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, work: Work) {
        let mut gate = self.gate();
        let hangs = match gate.hung {
            None => false,
            Some(Hung::All) => true,
            Some(Hung::Writes) => !matches!(work, Work::Read(..)),
        };
        if hangs {
            gate.aside.push(work);
        } else {
            drop(gate);
            self.answer(work);
        }
    }

    fn answer(&self, work: Work) {
        match work {
            Work::Read(offset, len, reply) => {
                let len = u64::from(len).min(self.size_bytes.saturating_sub(offset));
                let bad = self.gate().bad.clone();
                if offset < bad.end && bad.start < offset + len {
                    return reply.error(Errno::EIO);
                }
                let mut data = vec![0; usize::try_from(len).unwrap_or_default()];
                match self.backing.read_exact_at(&mut data, offset) {
                    Ok(()) => reply.data(&data),
                    Err(_) => reply.error(Errno::EIO),
                }
            }
            Work::Write(offset, data, reply) => match self.backing.write_all_at(&data, offset) {
                Ok(()) => reply.written(data.len() as u32),
                Err(_) => reply.error(Errno::EIO),
            },
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

struct Server(Arc<Disk>);

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
        // Past the cache, or the kernel would answer for a drive that does not.
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
