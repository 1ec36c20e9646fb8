//! Directory of one machine: its overlay, logs and sockets. Removed with the machine; if the test failed, its logs are kept in
//! `target/lab/failed/<test>/`.

use std::{
    env,
    fs::{self, File},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

use nix::fcntl::{Flock, FlockArg};

use super::image::lab_dir;
use crate::Trouble;

const SOCKETS: &str = "drivebay-lab-";

/// Directory of one machine.
#[derive(Debug)]
pub struct RunDir {
    /// Directory of its files.
    pub dir: PathBuf,
    /// Directory of its sockets, whose paths must be short.
    pub sockets: PathBuf,
    name: String,
    _held: Flock<File>,
}

impl RunDir {
    /// Creates a directory, after removing those of dead runs.
    ///
    /// # Errors
    /// It cannot be created.
    pub fn new(name: &str) -> Result<Self, Trouble> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let runs = runs()?;
        let _turn = sweep_in(&runs)?;
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = runs.join(format!("{name}-{}-{number}", std::process::id()));
        fs::create_dir(&dir)?;
        let held = lock(&dir.join("lock"), FlockArg::LockExclusiveNonblock)
            .ok_or_else(|| Trouble::new(format!("{} is in use", dir.display())))?;
        let sockets = tempfile::Builder::new().prefix(SOCKETS).tempdir()?.keep();
        fs::write(dir.join("sockets"), sockets.display().to_string())?;
        let failed = failed_dir(name)?;
        if failed.exists() {
            fs::remove_dir_all(failed)?;
        }
        Ok(Self {
            dir,
            sockets,
            name: name.to_owned(),
            _held: held,
        })
    }

    /// Returns the path of a file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Returns the path of a socket.
    pub fn socket(&self, name: &str) -> PathBuf {
        self.sockets.join(name)
    }

    /// Copies the logs to the directory of failed tests, and prints its path.
    pub fn keep_logs(&self) {
        let kept = failed_dir(&self.name).and_then(|failed| {
            fs::create_dir_all(&failed)?;
            for entry in fs::read_dir(&self.dir)?.flatten() {
                let path = entry.path();
                if path.extension().is_some_and(|of| of == "log") {
                    fs::copy(&path, failed.join(entry.file_name()))?;
                }
            }
            Ok(failed)
        });
        match kept {
            Ok(failed) => {
                super::progress::print_progress(format!("logs are kept in {}", failed.display()))
            }
            Err(trouble) => {
                super::progress::print_progress(format!("logs could not be kept: {trouble}"))
            }
        }
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.sockets);
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Removes the directories of runs whose process has ended.
///
/// # Errors
/// It cannot be removed.
pub fn sweep() -> Result<(), Trouble> {
    sweep_in(&runs()?).map(drop)
}

fn runs() -> Result<PathBuf, Trouble> {
    let runs = lab_dir()?.join("run");
    fs::create_dir_all(&runs)?;
    Ok(runs)
}

/// Returns the lock under which directories are created and removed.
fn sweep_in(runs: &Path) -> Result<Flock<File>, Trouble> {
    let turn = lock(&runs.with_extension("lock"), FlockArg::LockExclusive)
        .ok_or_else(|| Trouble::new("the lab's lock cannot be had"))?;
    for entry in fs::read_dir(runs)?.flatten() {
        let dir = entry.path();
        let Some(_dead) = lock(&dir.join("lock"), FlockArg::LockExclusiveNonblock) else {
            continue;
        };
        let sockets = fs::read_to_string(dir.join("sockets")).unwrap_or_default();
        let sockets = PathBuf::from(sockets);
        let ours = sockets
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with(SOCKETS));
        if ours && sockets.parent() == Some(&env::temp_dir()) && sockets.exists() {
            fs::remove_dir_all(&sockets)?;
        }
        fs::remove_dir_all(&dir)?;
    }
    Ok(turn)
}

/// Returns None if another process holds the lock.
fn lock(path: &Path, how: FlockArg) -> Option<Flock<File>> {
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .ok()?;
    Flock::lock(file, how).ok()
}

/// Returns the directory for a failed test's logs, by the thread's name, which is the test's.
fn failed_dir(machine: &str) -> Result<PathBuf, Trouble> {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("unnamed").replace("::", ".");
    Ok(lab_dir()?.join("failed").join(test).join(machine))
}
