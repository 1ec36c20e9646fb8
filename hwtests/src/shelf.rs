//! A shelf of drives: loop devices over sparse files in its own directory, all removed on drop. It never touches other loop devices.

use std::{
    cell::RefCell,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{Arc, Weak},
    time::Duration,
};

use nix::fcntl::{Flock, FlockArg};

use crate::{Trouble, digest, tools, tree, wait};

/// Contents written to a drive before it is plugged in.
type Contents = Box<dyn FnOnce(&Path) -> Result<(), Trouble>>;

/// Specification of a drive.
pub struct DriveSpec {
    name: String,
    bytes: u64,
    sector: Option<u32>,
    read_only: bool,
    contents: Option<Contents>,
}

impl DriveSpec {
    /// Specifies a blank drive; its file is `<name>.img`.
    pub fn blank(name: &str, bytes: u64) -> Self {
        Self {
            name: name.to_owned(),
            bytes,
            sector: None,
            read_only: false,
            contents: None,
        }
    }

    /// Sets the logical sector size, bytes.
    #[must_use]
    pub fn sector(mut self, bytes: u32) -> Self {
        self.sector = Some(bytes);
        self
    }

    /// Attaches it read-only; its contents are written before. A later `plug` attaches it writable.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.read_only = true;
        self
    }

    /// Sets the contents: the closure gets the backing file before the drive is attached.
    #[must_use]
    pub fn holding(
        mut self,
        contents: impl FnOnce(&Path) -> Result<(), Trouble> + 'static,
    ) -> Self {
        self.contents = Some(Box::new(contents));
        self
    }
}

/// A drive on the shelf.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drive {
    /// Name on the shelf.
    pub name: String,
    /// Backing file: `<name>.img` in the directory `shelf` of the shelf.
    pub file: PathBuf,
    /// Device node, e.g. "/dev/loop7"; the drive's until it is detached.
    pub device: PathBuf,
    /// Kernel name, e.g. "loop7".
    pub kernel_name: String,
    /// Size of the backing file when it was attached, bytes.
    pub bytes: u64,
}

/// Loop drives over files in a directory of their own, and the turn that excludes drives of other tests on this machine. Drop detaches the
/// drives and removes the directory, unless `keep` was called or something is still in use.
#[derive(Debug)]
pub struct Shelf {
    dir: PathBuf,
    drives: Vec<Drive>,
    /// Kernel names of drives that were unplugged, possibly while in use.
    unplugged: Vec<String>,
    keep: bool,
    // Agents scan every loop device, also those of another shelf, so there is one shelf at a time.
    _turn: Turn,
}

thread_local! {
    /// Turn of this test, shared by all of its drives.
    static TURN: RefCell<Weak<Flock<File>>> = const { RefCell::new(Weak::new()) };
}

/// Exclusive right to have shelves and other loop drives on this machine. Clones share it.
#[derive(Debug, Clone)]
pub struct Turn(#[allow(dead_code, reason = "held, not read")] Arc<Flock<File>>);

impl Turn {
    /// Waits while another process has the turn; everything that this thread creates meanwhile shares it.
    ///
    /// # Errors
    /// The lock cannot be taken.
    pub fn wait() -> Result<Self, Trouble> {
        take_turn(FlockArg::LockExclusiveNonblock).or_else(|_| {
            let _ = io::stderr()
                .write_all(b"waiting for another shelf of drives on this machine to go\n");
            take_turn(FlockArg::LockExclusive)
        })
    }
}

impl Shelf {
    /// Creates an empty shelf, below DRIVEBAY_SHELF_DIR or /var/tmp (/tmp may be in memory). Waits while another process has a shelf on
    /// this machine.
    ///
    /// # Errors
    /// The directory cannot be created.
    pub fn new() -> Result<Self, Trouble> {
        Self::on(Turn::wait()?)
    }

    /// Like `new`, in a turn that the caller has already.
    ///
    /// # Errors
    /// The directory cannot be created.
    pub fn during(turn: &Turn) -> Result<Self, Trouble> {
        Self::on(turn.clone())
    }

    /// Like `new`, without waiting.
    ///
    /// # Errors
    /// Another process has a shelf on this machine, or the directory cannot be created.
    pub fn at_once() -> Result<Self, Trouble> {
        Self::on(take_turn(FlockArg::LockExclusiveNonblock)?)
    }

    fn on(turn: Turn) -> Result<Self, Trouble> {
        let base = std::env::var_os("DRIVEBAY_SHELF_DIR").unwrap_or_else(|| "/var/tmp".into());
        let dir = tempfile::Builder::new()
            .prefix("drivebay-")
            .tempdir_in(&base)
            .map_err(|error| Trouble::doing(format!("making a directory in {base:?}"), &error))?
            .keep();
        let dir = dir.canonicalize()?;
        fs::create_dir(dir.join("shelf"))?;
        Ok(Self {
            dir,
            drives: Vec::new(),
            unplugged: Vec::new(),
            keep: false,
            _turn: turn,
        })
    }

    /// Returns the directory of all its files.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the pattern of the drives' files, for a class selector.
    pub fn pattern(&self) -> String {
        self.dir.join("shelf/*.img").display().to_string()
    }

    /// Returns the drives, in the order in which they were added.
    pub fn drives(&self) -> &[Drive] {
        &self.drives
    }

    /// Returns the drives' files.
    pub fn files(&self) -> Vec<PathBuf> {
        self.drives.iter().map(|drive| drive.file.clone()).collect()
    }

    /// Creates a drive and attaches it.
    ///
    /// # Errors
    /// The file or the loop device cannot be created, or its contents cannot be written.
    pub fn add(&mut self, spec: DriveSpec) -> Result<Drive, Trouble> {
        let file = self.dir.join("shelf").join(format!("{}.img", spec.name));
        File::create_new(&file)?.set_len(spec.bytes)?;
        if let Some(contents) = spec.contents {
            contents(&file)?;
        }
        let mut options = Vec::new();
        if let Some(bytes) = spec.sector {
            options.push(format!("--sector-size={bytes}"));
        }
        if spec.read_only {
            options.push("--read-only".to_owned());
        }
        self.attach(spec.name, file, options)
    }

    /// Attaches a drive that was pulled, or a copy of one that a test made, by its file's name.
    ///
    /// # Errors
    /// The file does not exist, or the loop device cannot be created.
    pub fn plug(&mut self, name: &str) -> Result<Drive, Trouble> {
        let file = self.file(name);
        self.attach(name.to_owned(), file, Vec::new())
    }

    /// The same with this logical sector size, as with another adapter.
    ///
    /// # Errors
    /// As `plug`.
    pub fn plug_with_sector(&mut self, name: &str, bytes: u32) -> Result<Drive, Trouble> {
        let file = self.file(name);
        let options = vec![format!("--sector-size={bytes}")];
        self.attach(name.to_owned(), file, options)
    }

    /// Returns the backing file of a drive of this name, attached or not.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.join("shelf").join(format!("{name}.img"))
    }

    fn attach(
        &mut self,
        name: String,
        file: PathBuf,
        options: Vec<String>,
    ) -> Result<Drive, Trouble> {
        let bytes = fs::metadata(&file)?.len();
        let mut args = vec!["--find".to_owned(), "--show".to_owned()];
        args.extend(options);
        args.push(file.display().to_string());
        let device = PathBuf::from(tools::run("losetup", &args)?.trim());
        let kernel_name = device
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        // Leftovers of a killed run on this device number would appear on the drive, with the kernel's cached contents.
        tree::release(&kernel_name);
        let left = tree::partitions(&kernel_name);
        if !left.is_empty() {
            tree::detach(&kernel_name);
            return Err(Trouble::new(format!(
                "{} has partitions of a drive that is gone, and something still uses them: {left:?}",
                device.display()
            )));
        }
        let drive = Drive {
            name,
            file,
            device,
            kernel_name,
            bytes,
        };
        self.drives.push(drive.clone());
        Ok(drive)
    }

    /// Detaches a drive that is not in use: when this returns, it and its partitions no longer exist.
    ///
    /// # Panics
    /// When it still exists after a while, since something holds it open.
    pub fn pull(&mut self, name: &str) {
        let at = self.drives.iter().position(|drive| drive.name == name);
        let drive = self.drives.remove(at.expect("a drive of this shelf"));
        let what = format!("{} is gone", drive.kernel_name);
        wait::until(Duration::from_secs(20), &what, || {
            let here = tree::loops_below(&self.dir)
                .iter()
                .any(|of| of.name == drive.kernel_name && of.file == drive.file);
            let left = !tree::partitions(&drive.kernel_name).is_empty()
                || !tree::mapped(&drive.kernel_name).is_empty();
            if here || left {
                // Again, since an agent that scans it at this moment makes the kernel restore its partitions and LVs.
                tree::detach(&drive.kernel_name);
                return None;
            }
            Some(())
        });
    }

    /// Detaches a drive; while it is in use the kernel keeps it until its last user closes it.
    pub fn unplug(&mut self, name: &str) {
        if let Some(at) = self.drives.iter().position(|drive| drive.name == name) {
            let drive = self.drives.remove(at);
            tree::detach(&drive.kernel_name);
            self.unplugged.push(drive.kernel_name);
        }
    }

    /// Returns fingerprints of all drives, after flushing everything written through their devices.
    ///
    /// # Errors
    /// A drive cannot be read.
    pub fn digests(&self) -> io::Result<Vec<(PathBuf, u64)>> {
        self.flush()?;
        digest::of_all(&self.files())
    }

    /// Flushes the drives, their partitions and LVs (each has its own cache) into the files.
    ///
    /// # Errors
    /// A device cannot be flushed.
    pub fn flush(&self) -> io::Result<()> {
        for drive in &self.drives {
            let partitions = tree::partitions(&drive.kernel_name);
            let partitions = partitions.into_iter().map(|(name, _)| name);
            for part in partitions.chain(tree::mapped(&drive.kernel_name)) {
                match File::open(Path::new("/dev").join(part)) {
                    Ok(node) => node.sync_all()?,
                    // It has disappeared since the listing: the kernel has flushed it.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(error),
                }
            }
            File::open(&drive.device)?.sync_all()?;
        }
        Ok(())
    }

    /// Keeps everything on drop.
    pub fn keep(&mut self) {
        self.keep = true;
    }
}

impl Drop for Shelf {
    fn drop(&mut self) {
        if self.keep {
            return;
        }
        let mut left = tree::sweep(&self.dir);
        if left.is_empty() {
            let _ = fs::remove_dir_all(&self.dir);
        }
        left.extend(tree::sweep_detached(&self.unplugged));
        if !left.is_empty() {
            // The files of mounted or attached devices stay, so that these can be found by name.
            eprintln!("left behind: {}", left.join("; "));
        }
    }
}

/// Takes the lock that allows one shelf at a time on a machine.
fn take_turn(how: FlockArg) -> Result<Turn, Trouble> {
    if let Some(turn) = TURN.with_borrow(Weak::upgrade) {
        return Ok(Turn(turn));
    }
    let path = "/run/drivebay-hwtests.lock";
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .map_err(|error| Trouble::doing(format!("opening {path} (root is needed)"), &error))?;
    let turn = Flock::lock(file, how).map_err(|(_, error)| match error {
        nix::Error::EWOULDBLOCK => Trouble::new(
            "another shelf of drives stands on this machine (a test or a demo runs); try again when it is gone",
        ),
        error => Trouble::doing(format!("locking {path}"), &error),
    })?;
    let turn = Arc::new(turn);
    TURN.set(Arc::downgrade(&turn));
    Ok(Turn(turn))
}

/// Fills a drive's file with bytes that look like user data and have no signature.
///
/// # Errors
/// The file cannot be written.
pub fn raw_data(file: &Path) -> Result<(), Trouble> {
    use std::os::unix::fs::FileExt;
    let target = File::options().write(true).open(file)?;
    let bytes = target.metadata()?.len();
    let row: Vec<u8> = (0..4096u32)
        .map(|at| u8::try_from(at.wrapping_mul(2_654_435_761) >> 24).unwrap_or(1) | 1)
        .collect();
    // The first and last 4 MiB, and a row every 16 MiB between.
    let edge = 4 * crate::MIB;
    let mut at = 0;
    while at + 4096 <= bytes {
        target.write_all_at(&row, at)?;
        let near = at < edge || at + edge >= bytes;
        at += if near { 4096 } else { 16 * crate::MIB };
    }
    Ok(())
}
