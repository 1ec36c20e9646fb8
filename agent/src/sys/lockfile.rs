//! A lock file: flock held for as long as the value lives, gone with the process whatever ends it.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Seek, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use nix::fcntl::{Flock, FlockArg};

/// The lock, held.
#[derive(Debug)]
pub struct Held {
    // Never read: dropping it is what unlocks.
    _lock: Flock<File>,
}

/// What came of trying.
#[derive(Debug)]
pub enum Outcome {
    /// Ours now.
    Held(Held),
    /// Somebody else's; the text that the holder left (its pid).
    Taken(String),
}

/// Takes the lock without waiting and writes our pid into the file. The descriptor is close-on-exec:
/// no worker inherits it.
pub fn acquire(path: &Path) -> io::Result<Outcome> {
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)?;
    match Flock::lock(file.try_clone()?, FlockArg::LockExclusiveNonblock) {
        Ok(mut lock) => {
            lock.set_len(0)?;
            lock.rewind()?;
            writeln!(lock, "{}", std::process::id())?;
            Ok(Outcome::Held(Held { _lock: lock }))
        }
        Err((_, nix::errno::Errno::EWOULDBLOCK)) => {
            let mut text = String::new();
            // The holder may be about to write; then the pid is simply not known.
            let _ = (&mut file).take(64).read_to_string(&mut text);
            Ok(Outcome::Taken(text.trim().to_owned()))
        }
        Err((_, errno)) => Err(errno.into()),
    }
}
