//! A drive that can stop answering, answer late or have unreadable ranges, and can recover: a loop device over a file that a FUSE server in
//! this process serves. A process that reads it past the cache while it hangs is in D state and cannot be killed, as with an unresponsive
//! real drive.
//!
//! Precautions against deadlocks: the server runs on a thread that uses nothing but the backing file, which is on another filesystem; it
//! never blocks on a hung request but sets it aside, so that everything else is still answered; this process must not access the device
//! while it hangs (use a worker), since even its death would not close the server's descriptor then. Dropping a `HungDrive` answers all
//! hung requests, detaches, and aborts the connection (MNT_FORCE) in any case.

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

pub use self::server::{DriveRequest, Hang, Kind};

/// Longest time of detaching and ending the server.
const END: Duration = Duration::from_secs(5);

/// A loop device over a file; detached on drop.
#[derive(Debug)]
pub struct LoopDrive {
    kernel_name: String,
    // Agents of other tests would scan the drive, and hang with it.
    _turn: Turn,
}

impl LoopDrive {
    /// Attaches a file to a free loop device. Waits while another process has a shelf on this machine.
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

    /// Returns the reference with which a worker finds the drive. Reads sysfs only.
    pub fn drive_ref(&self) -> io::Result<DriveRef> {
        let facts = sysfs::read(Path::new("/sys"), &self.kernel_name)?;
        Ok(DriveRef::from(&facts))
    }

    /// Returns the device node.
    pub fn node(&self) -> PathBuf {
        Path::new("/dev").join(&self.kernel_name)
    }
}

impl Drop for LoopDrive {
    fn drop(&mut self) {
        // Partitions that were added individually would outlive the file, and appear on the next device with this number. They may be in
        // use for a moment longer.
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
        // Not `wait`, which has no limit on a drive that hangs.
        while matches!(child.try_wait(), Ok(None)) && Instant::now() < end {
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A drive that can hang.
#[derive(Debug)]
pub struct HungDrive {
    // Fields in the order in which they must be dropped.
    drive: Option<LoopDrive>,
    session: Option<BackgroundSession>,
    disk: Arc<Disk>,
    mount: PathBuf,
    _dir: TempDir,
}

/// Returns the section of an agent's configuration for a class of these drives. Of a raw volume's space only samples are read: few requests.
pub fn class_of<'a>(
    name: &str,
    layout: &str,
    drives: impl IntoIterator<Item = &'a HungDrive>,
) -> String {
    let paths: Vec<_> = drives.into_iter().map(HungDrive::file).collect();
    format!(
        "[[class]]\nname = \"{name}\"\nlayout = \"{layout}\"\nraw-space = \"sampled\"\n[class.select]\npath = {paths:?}\n"
    )
}

impl HungDrive {
    /// Creates a drive of this many bytes that answers.
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

    /// Passes on requests of any size as one. Otherwise Linux 6.1's loop driver splits them into pages, which takes an emulated machine
    /// half of its time, and sends one at a time, which some tests rely on.
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

    /// Returns the reference with which a worker finds the drive.
    pub fn drive_ref(&self) -> io::Result<DriveRef> {
        match &self.drive {
            Some(drive) => drive.drive_ref(),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Returns the backing file's path as the kernel reports it, for a class selector.
    pub fn file(&self) -> PathBuf {
        self.mount.join(NAME)
    }

    /// Returns the section of an agent's configuration for a class that has this drive alone.
    pub fn class(&self, name: &str, layout: &str) -> String {
        class_of(name, layout, [self])
    }

    /// Stops answering reads, writes and flushes.
    pub fn hang(&self) {
        self.hang_on(Hang::All);
    }

    /// Stops answering writes and flushes; reads are answered.
    pub fn hang_writes(&self) {
        self.hang_on(Hang::Writes);
    }

    /// Stops answering these requests.
    pub fn hang_on(&self, which: Hang) {
        self.disk.gate().hung = Some(which);
    }

    /// Answers all hung requests and all further ones.
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

    /// Delays each read, and each write and flush, from now on.
    pub fn answer_late(&self, reads: Duration, writes: Duration) {
        self.disk.gate().late = (reads, writes);
    }

    /// Returns the number of requests that are being delayed.
    pub fn delayed(&self) -> usize {
        self.disk.gate().delayed
    }

    /// Makes this range of bytes unreadable, instead of an earlier one, until all of it is written in one request.
    pub fn spoil(&self, range: Range<u64>) {
        self.disk.gate().unreadable = vec![range];
    }

    /// Makes a further range unreadable.
    pub fn spoil_also(&self, range: Range<u64>) {
        self.disk.gate().unreadable.push(range);
    }

    /// Returns the offset of a block of 4096 bytes that begins with these bytes, if there is one.
    ///
    /// # Errors
    /// The file behind the drive cannot be read.
    pub fn find(&self, bytes: &[u8]) -> io::Result<Option<u64>> {
        self.disk.find(bytes)
    }

    /// Makes writes to this range of bytes fail.
    pub fn refuse_writes(&self, range: Range<u64>) {
        self.disk.gate().unwritable = range;
    }

    /// Changes bytes on the medium below every cache, like silent corruption.
    ///
    /// # Errors
    /// The file behind the drive cannot be read or written.
    pub fn alter(&self, offset: u64, bytes: usize, how: impl FnOnce(&mut [u8])) -> io::Result<()> {
        self.disk.alter(offset, bytes, how)
    }

    /// Returns the number of hung requests.
    pub fn hanging(&self) -> usize {
        self.disk.gate().aside.len()
    }

    /// Returns the request that has hung for the longest time.
    pub fn first_hanging(&self) -> Option<DriveRequest> {
        self.disk.gate().aside.first().map(server::Work::request)
    }

    /// Starts recording requests, and drops those recorded before.
    pub fn watch(&self) {
        self.disk.gate().noted = Some(Vec::new());
    }

    /// Returns the requests since `watch`.
    pub fn requests(&self) -> Vec<DriveRequest> {
        self.disk.gate().noted.clone().unwrap_or_default()
    }
}

impl Drop for HungDrive {
    fn drop(&mut self) {
        self.resume();
        drop(self.drive.take());
        // Aborts the connection, so that everything that still waits gets an error.
        let _ = umount2(&self.mount, MntFlags::MNT_FORCE | MntFlags::MNT_DETACH);
        if let Some(session) = self.session.take() {
            let end = Instant::now() + END;
            while !session.guard.is_finished() && Instant::now() < end {
                thread::sleep(Duration::from_millis(5));
            }
        }
    }
}
