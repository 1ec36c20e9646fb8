//! A drive that stops answering, answers late, or stops reading in places, and can be made to do so again: a loop device over a file that a
//! FUSE server of our own serves. What reads it past the cache while it hangs is in D state and
//! cannot be killed, as with a real drive that went silent.
//!
//! The traps, and how they are kept shut: the server runs on a thread that touches nothing but
//! the backing file, which is elsewhere; it never blocks on a hung request but puts it aside, so
//! that everything else is still answered; nobody in this process may touch the device while it
//! hangs (use a worker), or even its death would not close the server's descriptor. Dropping a
//! `HungDrive` answers what hangs, detaches, and cuts the connection (MNT_FORCE) in any case.

mod server;

use std::{
    fs::{self, File},
    io,
    ops::Range,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use drivebay_model::DriveRef;
use drivebay_sys::sysfs;
use fuser::{BackgroundSession, Config, MountOption};
use nix::mount::{MntFlags, umount2};
use tempfile::TempDir;

use self::server::{Disk, NAME, Server};
use crate::{shelf::Turn, tree, wait};

pub use self::server::{Asked, Hang, Kind};

/// How long detaching and ending the server may take before it is given up.
const END: Duration = Duration::from_secs(5);

/// A loop device over a file; detached when dropped.
#[derive(Debug)]
pub struct LoopDrive {
    kernel_name: String,
    // Other tests' agents look at it, and hang with it.
    _turn: Turn,
}

impl LoopDrive {
    /// Attaches a file to a free loop device. Waits while a shelf of somebody else's stands on this machine.
    pub fn attach(file: &Path) -> io::Result<Self> {
        let turn = Turn::wait().map_err(io::Error::other)?;
        let output = Command::new("losetup")
            .args(["-f", "--show"])
            .arg(file)
            .output()?;
        let node = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        match node.strip_prefix("/dev/") {
            Some(name) if output.status.success() => Ok(Self {
                kernel_name: name.to_owned(),
                _turn: turn,
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
        let name = &self.kernel_name;
        wait::poll(END, || {
            tree::release(name);
            let left = !tree::partitions(name).is_empty() || !tree::mapped(name).is_empty();
            (!left).then_some(())
        });
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
        let disk = Arc::new(Disk::new(backing, size_bytes));
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

    /// Has requests of any size come as one. Linux 6.1's loop driver passes them on page by page otherwise, which takes
    /// an emulated machine half of its time; and one at a time, which some tests rely on.
    ///
    /// # Errors
    /// losetup's.
    pub fn large_requests(self) -> io::Result<Self> {
        let node = self.drive.as_ref().map(LoopDrive::node);
        let done = Command::new("losetup")
            .arg("--direct-io=on")
            .args(node)
            .output()?;
        match done.status.success() {
            true => Ok(self),
            false => Err(io::Error::other(format!(
                "losetup failed: {}",
                String::from_utf8_lossy(&done.stderr).trim()
            ))),
        }
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
        self.hang_on(Hang::All);
    }

    /// From now on writes and flushes get no answer; what is read does.
    pub fn hang_writes(&self) {
        self.hang_on(Hang::Writes);
    }

    /// From now on these requests get no answer.
    pub fn hang_on(&self, which: Hang) {
        self.disk.gate().hung = Some(which);
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

    /// From now on each read takes so long, and each write and flush.
    pub fn answer_late(&self, reads: Duration, writes: Duration) {
        self.disk.gate().late = (reads, writes);
    }

    /// How many requests are being answered late.
    pub fn delayed(&self) -> usize {
        self.disk.gate().delayed
    }

    /// From now on nothing in this range of bytes reads, until all of it is written at once.
    pub fn spoil(&self, range: Range<u64>) {
        self.disk.gate().unreadable = vec![range];
    }

    /// The same of a further range.
    pub fn spoil_also(&self, range: Range<u64>) {
        self.disk.gate().unreadable.push(range);
    }

    /// Where on the drive a block of 4096 bytes begins with these, if one does.
    ///
    /// # Errors
    /// The file behind the drive cannot be read.
    pub fn find(&self, bytes: &[u8]) -> io::Result<Option<u64>> {
        self.disk.find(bytes)
    }

    /// From now on nothing in this range of bytes can be written.
    pub fn refuse_writes(&self, range: Range<u64>) {
        self.disk.gate().unwritable = range;
    }

    /// Changes bytes below every cache, as a drive that rots does.
    ///
    /// # Errors
    /// The file behind the drive cannot be read or written.
    pub fn alter(&self, offset: u64, bytes: usize, how: impl FnOnce(&mut [u8])) -> io::Result<()> {
        self.disk.alter(offset, bytes, how)
    }

    /// How many requests hang.
    pub fn hanging(&self) -> usize {
        self.disk.gate().aside.len()
    }

    /// The request that hangs for the longest time.
    pub fn first_hanging(&self) -> Option<Asked> {
        self.disk.gate().aside.first().map(server::Work::asked)
    }

    /// Notes the requests that come from now on, and forgets those noted before.
    pub fn watch(&self) {
        self.disk.gate().noted = Some(Vec::new());
    }

    /// The requests that came since `watch`.
    pub fn seen(&self) -> Vec<Asked> {
        self.disk.gate().noted.clone().unwrap_or_default()
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
