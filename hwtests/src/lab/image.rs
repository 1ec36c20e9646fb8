//! The guest's image, as `hwtests/lab build` made it.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use crate::Trouble;

/// Where the image's parts are.
#[derive(Debug, Clone)]
pub struct Image {
    /// The directory of all.
    pub dir: PathBuf,
}

impl Image {
    /// DRIVEBAY_LAB_IMAGE, else the one built last in the target directory.
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
        Ok(Self { dir })
    }

    /// The root filesystem, read-only.
    pub fn root(&self) -> PathBuf {
        self.dir.join("root.img")
    }

    /// The kernel.
    pub fn kernel(&self) -> PathBuf {
        self.dir.join("vmlinuz")
    }

    /// The initial ramdisk.
    pub fn initrd(&self) -> PathBuf {
        self.dir.join("initrd")
    }

    /// The private key that opens the guest.
    pub fn key(&self) -> PathBuf {
        self.dir.join("key")
    }
}

/// Cargo's target directory: CARGO_TARGET_DIR, else the one this program was built in.
///
/// # Errors
/// Neither is known.
pub fn target_dir() -> Result<PathBuf, Trouble> {
    if let Some(named) = env::var_os("CARGO_TARGET_DIR") {
        let named = PathBuf::from(named);
        // Cargo runs tests in their crate's directory; a relative name is the workspace's.
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

/// Where a file of the target directory is in the guest.
///
/// # Errors
/// It lies elsewhere.
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

/// What the lab keeps: images, runs, logs of failed tests.
///
/// # Errors
/// The target directory is not known.
pub fn lab_dir() -> Result<PathBuf, Trouble> {
    let dir = target_dir()?.join("lab");
    fs::create_dir_all(&dir)?;
    Ok(dir)
}
