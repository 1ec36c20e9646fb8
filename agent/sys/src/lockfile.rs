//! A lock on a directory: flock held for as long as the value lives, gone with the process whatever ends it.
//!
//! The directory itself is locked, which needs no room in it: a full filesystem must not end the program that is to unmount others.

use std::{
    fs::{self, File},
    io,
    path::Path,
};

use nix::fcntl::{Flock, FlockArg};

/// The lock, held.
#[derive(Debug)]
pub struct Held {
    // Never read: dropping it is what unlocks.
    _lock: Flock<File>,
}

/// Result of [`acquire`].
#[derive(Debug)]
pub enum Outcome {
    /// Locked by this process.
    Held {
        lock: Held,
        /// Why the process id could not be written, if so: another process that is refused cannot name this one.
        unwritten: Option<io::Error>,
    },
    /// Locked by another process; the text that it left (its pid), empty if there is none.
    Taken(String),
}

/// Locks the directory without waiting, then writes this process's id into `pid_file`, if that can be done. The descriptor is
/// close-on-exec: no worker inherits it.
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
            // The holder may be about to write, or could not; then the pid is simply not known.
            let text = super::statefile::read_text(pid_file, 64).unwrap_or_default();
            Ok(Outcome::Taken(text.trim().to_owned()))
        }
        Err((_, errno)) => Err(errno.into()),
    }
}
