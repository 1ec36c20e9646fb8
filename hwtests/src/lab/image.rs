//! Image of the guest, as built by `hwtests/lab build`.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use crate::Trouble;

/// Directory of the image's parts.
#[derive(Debug, Clone)]
pub struct Image {
    /// Path of the directory.
    pub dir: PathBuf,
    /// Processor that its programs are for.
    pub processor: Processor,
}

/// Processor of an emulated computer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Processor {
    /// x86-64.
    Amd64,
    /// ARM, 64 bits.
    Arm64,
}

impl Image {
    /// Returns the image named by DRIVEBAY_LAB_IMAGE, else the one built last in the target directory.
    ///
    /// # Errors
    /// None has been built.
    pub fn find() -> Result<Self, Trouble> {
        let dir = match env::var_os("DRIVEBAY_LAB_IMAGE") {
            Some(named) => PathBuf::from(named),
            None => lab_dir()?.join("current"),
        };
        let missing = |_| {
            Trouble::new(format!(
                "no lab at {}: run hwtests/lab build",
                dir.display()
            ))
        };
        let dir = dir.canonicalize().map_err(missing)?;
        let processor = match fs::read_to_string(dir.join("arch"))?.trim() {
            "amd64" => Processor::Amd64,
            "arm64" => Processor::Arm64,
            other => {
                return Err(Trouble::new(format!(
                    "{}: no emulator of {other}",
                    dir.display()
                )));
            }
        };
        Ok(Self { dir, processor })
    }

    /// Returns the root filesystem, which must not be written.
    pub fn root(&self) -> PathBuf {
        self.dir.join("root.img")
    }

    /// Returns the path of the kernel, which qemu loads directly (`-kernel`).
    pub fn kernel(&self) -> PathBuf {
        self.dir.join("vmlinuz")
    }

    /// Returns the initial ramdisk.
    pub fn initrd(&self) -> PathBuf {
        self.dir.join("initrd")
    }

    /// Returns the private key for ssh to the guest.
    pub fn key(&self) -> PathBuf {
        self.dir.join("key")
    }
}

/// Returns cargo's target directory: CARGO_TARGET_DIR, else the one in which this program was built.
///
/// # Errors
/// Neither is known.
pub fn target_dir() -> Result<PathBuf, Trouble> {
    if let Some(named) = env::var_os("CARGO_TARGET_DIR") {
        let named = PathBuf::from(named);
        // Cargo runs tests in their crate's directory; a relative name is relative to the workspace.
        if named.is_absolute() {
            return Ok(named);
        }
    }
    let exe = env::current_exe()?;
    exe.ancestors()
        .find(|dir| dir.join("CACHEDIR.TAG").is_file())
        .map(|dir| dir.to_owned())
        .ok_or_else(|| {
            Trouble::new(format!(
                "{} lies in no target directory: set CARGO_TARGET_DIR",
                exe.display()
            ))
        })
}

/// Returns the path in the guest of a file in the target directory.
///
/// # Errors
/// The file is not in the target directory.
pub fn in_guest(path: &Path) -> Result<PathBuf, Trouble> {
    let target = target_dir()?.canonicalize()?;
    let path = path
        .canonicalize()
        .map_err(|error| Trouble::doing(path.display(), &error))?;
    let inside = path.strip_prefix(&target).map_err(|_| {
        Trouble::new(format!(
            "{} does not lie in {}, which is all that the guest sees",
            path.display(),
            target.display()
        ))
    })?;
    Ok(Path::new("/host").join(inside))
}

/// Returns the lab's directory: images, runs, logs of failed tests. Creates it if necessary.
///
/// # Errors
/// The target directory is not known.
pub fn lab_dir() -> Result<PathBuf, Trouble> {
    let dir = target_dir()?.join("lab");
    fs::create_dir_all(&dir)?;
    Ok(dir)
}
