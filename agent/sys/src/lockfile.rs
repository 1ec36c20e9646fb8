//! A lock on a directory: flock held until the value is dropped or the process ends, for any reason.
//!
//! The directory itself is locked, which needs no space in it: a full filesystem must not end the program that has to unmount others.

use std::{
    fs::{self, File},
    io,
    path::Path,
};

use nix::fcntl::{Flock, FlockArg};

#[derive(Debug)]
pub struct Held {
    // Never read; dropping it unlocks.
    _lock: Flock<File>,
}

/// Result of [`acquire`]: the lock, held until it is dropped, or the process that holds it.
#[derive(Debug)]
pub enum Outcome {
    /// Locked by this process.
    Held {
        lock: Held,
        /// Error of writing the process id, if that failed: a process that finds the lock taken cannot name this one then.
        unwritten: Option<io::Error>,
    },
    /// Locked by another process; the text in its pid file (its pid), empty if there is none.
    Taken(String),
}

/// Locks the directory without waiting, then writes this process's id into `pid_file`; a failure of the latter is reported in the result.
/// The descriptor is close-on-exec: no worker inherits it.
pub fn acquire(dir: &Path, pid_file: &Path) -> io::Result<Outcome> {
    match Flock::lock(File::open(dir)?, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => {
            let written = fs::write(pid_file, format!("{}\n", std::process::id()));
            Ok(Outcome::Held {
                lock: Held { _lock: lock },
                unwritten: written.err(),
            })
        }
        Err((_, nix::errno::Errno::EWOULDBLOCK)) => {
            // The holder may not have written it yet, or may have failed to; the pid is unknown then.
            let text = super::statefile::read_text(pid_file, 64).unwrap_or_default();
            Ok(Outcome::Taken(text.trim().to_owned()))
        }
        Err((_, errno)) => Err(errno.into()),
    }
}
