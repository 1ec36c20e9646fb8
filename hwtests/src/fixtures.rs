//! Drives in use by other software, on loop devices: each set up by the tool that does it in practice, or, if that cannot run here, by the
//! bytes that libblkid recognizes (noted at each).
//!
//! A `Bench` is one backing file, its loop device, and everything that was done with it; dropping it undoes all.

use std::{
    ffi::OsStr,
    fs::{self, File, OpenOptions},
    hash::{DefaultHasher, Hasher},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    unistd::{Whence, lseek},
};
use tempfile::TempDir;

/// Bytes in a mebibyte.
pub const MIB: u64 = 1 << 20;

/// A fixture could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum FixtureError {
    /// A system call on a file failed.
    #[error("fixture: {0}")]
    Io(#[from] io::Error),
    /// A tool could not be started, or ended with another exit status than 0.
    #[error("{command} failed: {output}")]
    Tool {
        /// Command line, in the debug format of `std::process::Command`.
        command: String,
        /// Output of the tool.
        output: String,
    },
}

/// Result of setting up a fixture.
pub type Made<T = ()> = Result<T, FixtureError>;

/// Runs a tool and returns its output; errs on an exit status other than 0.
pub fn run<S: AsRef<OsStr>>(program: &str, args: &[S]) -> Made<String> {
    run_with(program, args, &[])
}

fn run_with<S: AsRef<OsStr>>(program: &str, args: &[S], env: &[(&str, &Path)]) -> Made<String> {
    let mut command = Command::new(program);
    command
        .args(args)
        .stdin(Stdio::null())
        .envs(env.iter().copied());
    let ran = command.output();
    let failed = |output: String| FixtureError::Tool {
        command: format!("{command:?}"),
        output,
    };
    let output = ran.map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    } else {
        Err(failed(
            String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        ))
    }
}

/// Actions to undo, in reverse order.
#[derive(Debug)]
enum Undo {
    Detach(PathBuf),
    Unmount(PathBuf),
    SwapOff(PathBuf),
    DeletePartition(PathBuf, u32),
}

impl Undo {
    fn run(&self) {
        // Errors are ignored: a test that failed half-way may have undone some of it.
        let _ = match self {
            Self::Detach(device) => run("losetup", &[OsStr::new("-d"), device.as_os_str()]),
            Self::Unmount(path) => run("umount", &[path]),
            Self::SwapOff(device) => run("swapoff", &[device]),
            Self::DeletePartition(device, number) => run(
                "delpart",
                &[device.as_os_str(), OsStr::new(&number.to_string())],
            ),
        };
    }
}

/// One backing file and everything that was done with it, which the drop undoes.
#[derive(Debug)]
pub struct Bench {
    dir: TempDir,
    loops: Vec<PathBuf>,
    undo: Vec<Undo>,
    held: Vec<File>,
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.held.clear();
        for undo in self.undo.drain(..).rev() {
            undo.run();
        }
    }
}

impl Bench {
    /// Creates a sparse file of this many bytes, not attached yet.
    pub fn new(bytes: u64) -> Made<Self> {
        let bench = Self {
            dir: tempfile::tempdir()?,
            loops: Vec::new(),
            undo: Vec::new(),
            held: Vec::new(),
        };
        File::create(bench.file())?.set_len(bytes)?;
        Ok(bench)
    }

    /// Returns the path of the backing file.
    pub fn file(&self) -> PathBuf {
        self.dir.path().join("drive.img")
    }

    /// Returns a directory for the fixture's own use.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Attaches the file to a free loop device, with further options of losetup.
    pub fn attach(&mut self, options: &[&str]) -> Made<PathBuf> {
        let file = self.file();
        let mut args: Vec<&OsStr> = options.iter().map(OsStr::new).collect();
        args.extend([OsStr::new("-f"), OsStr::new("--show"), file.as_os_str()]);
        let device = PathBuf::from(run("losetup", &args)?);
        self.undo.push(Undo::Detach(device.clone()));
        self.loops.push(device.clone());
        Ok(device)
    }

    /// Returns the loop device; attaches the file first if necessary.
    pub fn device(&mut self) -> Made<PathBuf> {
        match self.loops.first() {
            Some(device) => Ok(device.clone()),
            None => self.attach(&[]),
        }
    }

    /// Detaches all loop devices, and waits until the kernel has.
    pub fn detach(&mut self) -> Made {
        for device in self.loops.drain(..) {
            run("losetup", &[OsStr::new("-d"), device.as_os_str()])?;
            // The kernel detaches when the last descriptor closes; a child that another thread is starting may hold a copy until it execs.
            let name = device.file_name().unwrap_or_default();
            let attached = Path::new("/sys/class/block")
                .join(name)
                .join("loop/backing_file");
            let deadline = Instant::now() + Duration::from_secs(10);
            while fs::read_to_string(&attached)
                .is_ok_and(|file| Path::new(file.trim()) == self.dir.path().join("drive.img"))
            {
                if Instant::now() > deadline {
                    return Err(
                        io::Error::other(format!("{} stays attached", device.display())).into(),
                    );
                }
                std::thread::yield_now();
            }
        }
        self.undo.retain(|undo| !matches!(undo, Undo::Detach(_)));
        Ok(())
    }

    /// Writes bytes into the file.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Made {
        OpenOptions::new()
            .write(true)
            .open(self.file())?
            .write_all_at(bytes, offset)?;
        Ok(())
    }

    /// Reads bytes of the file.
    pub fn read(&self, offset: u64, len: usize) -> Made<Vec<u8>> {
        let mut bytes = vec![0; len];
        File::open(self.file())?.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }

    /// Returns the size of the file, bytes.
    pub fn size(&self) -> Made<u64> {
        Ok(fs::metadata(self.file())?.len())
    }

    /// Runs a tool with the file's path as last argument.
    pub fn tool(&self, program: &str, args: &[&str]) -> Made {
        let file = self.file();
        let mut all: Vec<&OsStr> = args.iter().map(OsStr::new).collect();
        all.push(file.as_os_str());
        run(program, &all).map(drop)
    }

    /// Mounts the device read-only and returns the mount point.
    pub fn mount(&mut self) -> Made<PathBuf> {
        let device = self.device()?;
        let point = self.dir.path().join("mnt");
        fs::create_dir_all(&point)?;
        run(
            "mount",
            &[
                OsStr::new("-o"),
                OsStr::new("ro"),
                device.as_os_str(),
                point.as_os_str(),
            ],
        )?;
        self.undo.push(Undo::Unmount(point.clone()));
        Ok(point)
    }

    /// Enables swap on the device.
    pub fn swap_on(&mut self) -> Made {
        let device = self.device()?;
        run("swapon", &[&device])?;
        self.undo.push(Undo::SwapOff(device));
        Ok(())
    }

    /// Opens the device O_EXCL, as arrays and virtual machines do.
    pub fn hold(&mut self) -> Made {
        let device = self.device()?;
        self.held.push(
            OpenOptions::new()
                .read(true)
                .custom_flags(libc::O_EXCL)
                .open(device)?,
        );
        Ok(())
    }

    /// Adds a partition in the kernel (BLKPG) without writing a table.
    pub fn add_partition(&mut self, number: u32, start_sector: u64, sectors: u64) -> Made {
        let device = self.device()?;
        let numbers = [
            number.to_string(),
            start_sector.to_string(),
            sectors.to_string(),
        ];
        let mut args: Vec<&OsStr> = vec![device.as_os_str()];
        args.extend(numbers.iter().map(OsStr::new));
        run("addpart", &args)?;
        self.undo.push(Undo::DeletePartition(device, number));
        Ok(())
    }

    /// Runs an LVM command on the device only: with no other device, no udev and no lock of the host.
    pub fn lvm(&mut self, program: &str, args: &[&str]) -> Made {
        let device = self.device()?;
        let home = self.dir.path().join("lvm");
        fs::create_dir_all(&home)?;
        let config = format!(
            "devices{{filter=[\"a|^{}$|\",\"r|.*|\"] use_devicesfile=0}} activation{{udev_sync=0 udev_rules=0}} global{{locking_dir=\"{}\"}} backup{{backup=0 archive=0}}",
            device.display(),
            home.display()
        );
        let mut all = vec![OsStr::new("--config"), OsStr::new(&config)];
        all.extend(args.iter().map(OsStr::new));
        all.push(device.as_os_str());
        run_with(program, &all, &[("LVM_SYSTEM_DIR", &home)])?;
        run("blockdev", &[OsStr::new("--flushbufs"), device.as_os_str()]).map(drop)
    }

    /// Returns a hash over the file's blocks that are not zero, with their positions.
    pub fn fingerprint(&self) -> Made<u64> {
        let file = File::open(self.file())?;
        let end = file.metadata()?.len();
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(end);
        let mut buffer = vec![0; 64 << 10];
        let mut at = 0;
        // Holes are skipped, since the files are sparse and large.
        while let Some(data) = seek(&file, at, Whence::SeekData)? {
            let hole = seek(&file, data, Whence::SeekHole)?.unwrap_or(end);
            at = data;
            while at < hole {
                let len = buffer.len().min((hole - at) as usize);
                file.read_exact_at(&mut buffer[..len], at)?;
                for (index, block) in buffer[..len]
                    .chunks(512)
                    .enumerate()
                    .filter(|(_, block)| block.iter().any(|byte| *byte != 0))
                {
                    hasher.write_u64(at + index as u64 * 512);
                    hasher.write(block);
                }
                at += len as u64;
            }
        }
        Ok(hasher.finish())
    }
}

/// Returns the next data or hole at or after an offset; None if there is none.
fn seek(file: &File, from: u64, whence: Whence) -> io::Result<Option<u64>> {
    match lseek(file, from.cast_signed(), whence) {
        Ok(at) => Ok(Some(at.cast_unsigned())),
        Err(Errno::ENXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
