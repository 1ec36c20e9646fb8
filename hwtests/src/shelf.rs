//! A shelf of drives: loop devices over sparse files in a directory of its own, all gone
//! when it is dropped. It never touches a loop device that is not its own.

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

/// A drive to be made.
pub struct DriveSpec {
    name: String,
    bytes: u64,
    sector: Option<u32>,
    read_only: bool,
    contents: Option<Contents>,
}

impl DriveSpec {
    /// A blank drive; its file is `<name>.img`.
    pub fn blank(name: &str, bytes: u64) -> Self {
        Self {
            name: name.to_owned(),
            bytes,
            sector: None,
            read_only: false,
            contents: None,
        }
    }

    /// With this logical sector size.
    #[must_use]
    pub fn sector(mut self, bytes: u32) -> Self {
        self.sector = Some(bytes);
        self
    }

    /// Refusing writes.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.read_only = true;
        self
    }

    /// With contents: the closure is given the backing file.
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
    /// Its name on the shelf.
    pub name: String,
    /// The file behind it.
    pub file: PathBuf,
    /// Its device node.
    pub device: PathBuf,
    /// Its kernel name, e.g. "loop7".
    pub kernel_name: String,
    /// Its size.
    pub bytes: u64,
}

/// The shelf.
#[derive(Debug)]
pub struct Shelf {
    dir: PathBuf,
    drives: Vec<Drive>,
    /// Kernel names of drives that were unplugged, perhaps in use.
    unplugged: Vec<String>,
    keep: bool,
    // Agents look at every loop device there is, also at another shelf's: one shelf at a time.
    _turn: Turn,
}

thread_local! {
    /// The turn of this test: its other drives are in it, too.
    static TURN: RefCell<Weak<Flock<File>>> = const { RefCell::new(Weak::new()) };
}

/// The right to have shelves, and other loop drives, on this machine without anybody else's between them.
#[derive(Debug, Clone)]
pub struct Turn(#[allow(dead_code, reason = "held, not read")] Arc<Flock<File>>);

impl Turn {
    /// Waits while somebody else has it; whatever this thread makes meanwhile is in the same turn.
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
    /// An empty shelf, below DRIVEBAY_SHELF_DIR or /var/tmp (/tmp may be memory). Waits while another one stands on this machine.
    ///
    /// # Errors
    /// The directory cannot be made.
    pub fn new() -> Result<Self, Trouble> {
        Self::on(Turn::wait()?)
    }

    /// As `new`, in a turn that the caller has already.
    ///
    /// # Errors
    /// The directory cannot be made.
    pub fn during(turn: &Turn) -> Result<Self, Trouble> {
        Self::on(turn.clone())
    }

    /// As `new`, but does not wait.
    ///
    /// # Errors
    /// Another shelf stands on this machine, or the directory cannot be made.
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

    /// The directory everything lies in.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The pattern of the drives' files, for a class selector.
    pub fn pattern(&self) -> String {
        self.dir.join("shelf/*.img").display().to_string()
    }

    /// The drives, in the order they were added.
    pub fn drives(&self) -> &[Drive] {
        &self.drives
    }

    /// The drives' files.
    pub fn files(&self) -> Vec<PathBuf> {
        self.drives.iter().map(|drive| drive.file.clone()).collect()
    }

    /// Makes a drive and plugs it in.
    ///
    /// # Errors
    /// The file or the loop device cannot be made, or its contents cannot be written.
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

    /// Plugs in a drive that was pulled, or a copy that a test made of one, by its file's name.
    ///
    /// # Errors
    /// The file is not there, or the loop device cannot be made.
    pub fn plug(&mut self, name: &str) -> Result<Drive, Trouble> {
        let file = self.file(name);
        self.attach(name.to_owned(), file, Vec::new())
    }

    /// The same with this logical sector size, as another adapter may show it.
    ///
    /// # Errors
    /// As `plug`.
    pub fn plug_with_sector(&mut self, name: &str, bytes: u32) -> Result<Drive, Trouble> {
        let file = self.file(name);
        let options = vec![format!("--sector-size={bytes}")];
        self.attach(name.to_owned(), file, options)
    }

    /// The file behind a drive of this name, plugged in or not.
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
        // What a killed run left on this number would be found on the drive, with what the kernel kept of it in memory.
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

    /// Pulls a drive that nothing uses: when this returns it is gone, with its partitions.
    ///
    /// # Panics
    /// When it is still there after a while: something holds it open.
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
                // Again: an agent that looks at it just now gives the kernel its partitions and LVs back.
                tree::detach(&drive.kernel_name);
                return None;
            }
            Some(())
        });
    }

    /// Unplugs a drive; while it is in use the kernel keeps it until its last user has gone.
    pub fn unplug(&mut self, name: &str) {
        if let Some(at) = self.drives.iter().position(|drive| drive.name == name) {
            let drive = self.drives.remove(at);
            tree::detach(&drive.kernel_name);
            self.unplugged.push(drive.kernel_name);
        }
    }

    /// Fingerprints of all drives, after everything written through their devices has reached the files.
    ///
    /// # Errors
    /// A drive cannot be read.
    pub fn digests(&self) -> io::Result<Vec<(PathBuf, u64)>> {
        self.flush()?;
        digest::of_all(&self.files())
    }

    /// Flushes the drives, their partitions and LVs (each has a cache of its own) into the files.
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
                    // Gone between the look and the open: the kernel flushed it.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(error),
                }
            }
            File::open(&drive.device)?.sync_all()?;
        }
        Ok(())
    }

    /// Leaves everything as it is when dropped.
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
            // The files of what is mounted or looped stay, so that it can still be found by its name.
            eprintln!("left behind: {}", left.join("; "));
        }
    }
}

/// One shelf at a time on a machine.
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

/// Fills a drive's file with bytes that look like somebody's data and carry no signature.
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
    // The first and last 4 MiB, and a row each 16 MiB between.
    let edge = 4 * crate::MIB;
    let mut at = 0;
    while at + 4096 <= bytes {
        target.write_all_at(&row, at)?;
        let near = at < edge || at + edge >= bytes;
        at += if near { 4096 } else { 16 * crate::MIB };
    }
    Ok(())
}
