//! A drive with a volatile write cache, served by this process to a virtual machine over NBD. A test injects faults while it is in use:
//! power cuts that lose or tear unflushed data, errors of sectors, slowness, hanging. It counts its requests.

mod medium;
mod serve;
mod state;
mod wire;

#[cfg(test)]
mod client;
#[cfg(test)]
mod tests;

use std::{
    fs::{self, File},
    io,
    ops::Range,
    os::unix::net::UnixListener,
    path::{Path, PathBuf},
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use nix::sys::socket::{Shutdown, shutdown};

pub use medium::{Cut, TORN};
pub use state::{BadSectors, Logged, Stats, Throttle};
pub use wire::Command;

use medium::Medium;
use state::{Fuse, Shared};

/// Effect of TRIM. The protocol leaves the contents undefined afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trim {
    /// The data stays, which reveals code that relies on a discard to erase.
    Keeps,
    /// Zeros the data, as volatile as a write.
    Zeroes,
}

/// Options of a served drive.
#[derive(Debug, Clone)]
pub struct NbdOptions {
    /// True: writes are volatile until FLUSH or FUA. False: each is on the medium when answered, and FLUSH is not offered.
    pub volatile: bool,
    /// Smallest block that is read and written: 512 or 4096 bytes. Tearing is always at 512.
    pub sector: u32,
    /// Effect of TRIM on the contents; `Trim::Keeps` by default.
    pub trim: Trim,
}

impl Default for NbdOptions {
    fn default() -> Self {
        Self {
            volatile: true,
            sector: 512,
            trim: Trim::Keeps,
        }
    }
}

/// A drive cannot be served or controlled.
#[derive(Debug, thiserror::Error)]
pub enum NbdError {
    /// The file of the medium cannot be used.
    #[error("the drive's file {} cannot be used", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operation.
        #[source]
        source: io::Error,
    },
    /// The file is not a whole number of blocks, or the block is neither 512 nor 4096 bytes.
    #[error(
        "a drive of {bytes} bytes cannot have blocks of {sector}: take 512 or 4096, and a multiple of it"
    )]
    Geometry {
        /// Size of the file, bytes.
        bytes: u64,
        /// Requested `NbdOptions::sector`, bytes.
        sector: u32,
    },
    /// The socket cannot be created.
    #[error("cannot listen on {} (a path has at most 107 bytes)", path.display())]
    Socket {
        /// Path of the socket.
        path: PathBuf,
        /// Error of the operation.
        #[source]
        source: io::Error,
    },
    /// The power is already cut.
    #[error("the drive's power is cut; power_on it first")]
    Off,
}

/// A served drive; serving ends on drop. All methods may be called while it is in use, from any thread.
#[derive(Debug)]
pub struct NbdDrive {
    shared: Arc<Shared>,
    file: PathBuf,
    socket: PathBuf,
    listener: Arc<UnixListener>,
    accepting: Option<JoinHandle<()>>,
}

impl NbdDrive {
    /// Serves a file, whose length is the drive's size, on a new unix socket.
    ///
    /// # Errors
    /// The file cannot be opened, its size does not fit, or the socket cannot be created.
    pub fn serve(file: &Path, socket: &Path, options: &NbdOptions) -> Result<Self, NbdError> {
        let unusable = |source| NbdError::File {
            path: file.to_owned(),
            source,
        };
        let opened = File::options()
            .read(true)
            .write(true)
            .open(file)
            .map_err(unusable)?;
        let bytes = opened.metadata().map_err(unusable)?.len();
        let sector = options.sector;
        if !matches!(sector, 512 | 4096) || bytes == 0 || !bytes.is_multiple_of(sector.into()) {
            return Err(NbdError::Geometry { bytes, sector });
        }
        let listener = UnixListener::bind(socket).map_err(|source| NbdError::Socket {
            path: socket.to_owned(),
            source,
        })?;
        let listener = Arc::new(listener);
        let medium = Medium::new(opened, options.volatile);
        let shared = Arc::new(Shared::new(medium, bytes, sector, options.trim));
        let (door, drive) = (Arc::clone(&listener), Arc::clone(&shared));
        Ok(Self {
            shared,
            file: file.to_owned(),
            socket: socket.to_owned(),
            listener,
            accepting: Some(thread::spawn(move || serve::accept(&door, &drive))),
        })
    }

    /// Returns the path of the socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Returns the file of the medium. It has the flushed data; after a cut, all remaining data.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Returns counts since the drive was created, and the current unflushed data.
    pub fn stats(&self) -> Stats {
        let state = self.shared.lock();
        Stats {
            unflushed_sectors: state.medium.unflushed_sectors(),
            unflushed_writes: state.medium.unflushed_writes(),
            connections: state.streams.len() as u64,
            ..state.stats
        }
    }

    /// Returns the 512-byte sectors that a power cut now could lose, as ranges of sector numbers.
    pub fn unflushed(&self) -> Vec<Range<u64>> {
        self.shared.lock().medium.unflushed()
    }

    /// Returns the last requests, at most 4096, oldest first.
    pub fn log(&self, last: usize) -> Vec<Logged> {
        let state = self.shared.lock();
        let skip = state.log.len().saturating_sub(last);
        state.log.iter().skip(skip).copied().collect()
    }

    /// Switches the volatile cache on or off; flushes it before switching it off. A client sees the change in offered FLUSH when it
    /// connects next.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn set_volatile(&self, volatile: bool) -> Result<(), NbdError> {
        let done = self.shared.lock().medium.set_volatile(volatile);
        done.map_err(|source| self.unusable(source))
    }

    /// Cuts the power now: of the unflushed data, each 512-byte part of each write reaches the medium with this probability (0: none, 1:
    /// all), in the order of writing, deterministically by `seed`. Requests are no longer answered; connections stay open, since a machine
    /// without power does not close them. Kill the machine (SIGKILL), then call `power_on`.
    ///
    /// # Errors
    /// The power is cut already, or the file cannot be written.
    pub fn cut(&self, keep_probability: f64, seed: u64) -> Result<Cut, NbdError> {
        let mut state = self.shared.lock();
        if state.cut.is_some() {
            return Err(NbdError::Off);
        }
        let done = state.medium.cut(keep_probability, seed);
        let cut = done.map_err(|source| self.unusable(source))?;
        state.cut = Some(cut);
        state.fuse = None;
        self.shared.changed.notify_all();
        Ok(cut)
    }

    /// Cuts the power like `cut`, right after the n-th write or write-zeroes from now (0: now), which is carried out and not answered.
    ///
    /// # Errors
    /// As `cut`.
    pub fn cut_after_writes(
        &self,
        n: u64,
        keep_probability: f64,
        seed: u64,
    ) -> Result<(), NbdError> {
        if n == 0 {
            return self.cut(keep_probability, seed).map(drop);
        }
        let mut state = self.shared.lock();
        if state.cut.is_some() {
            return Err(NbdError::Off);
        }
        state.fuse = Some(Fuse {
            left: n,
            keep: keep_probability,
            seed,
        });
        Ok(())
    }

    /// Cancels a cut that still waits for its write; returns true if there was one.
    pub fn disarm(&self) -> bool {
        self.shared.lock().fuse.take().is_some()
    }

    /// Waits until the power is cut; None if it is not within this time.
    pub fn wait_cut(&self, limit: Duration) -> Option<Cut> {
        let state = self.shared.lock();
        let (state, _) = self
            .shared
            .changed
            .wait_timeout_while(state, limit, |state| state.cut.is_none())
            .expect("no holder panics");
        state.cut
    }

    /// Restores power after a cut or `die`: old connections end, new ones are served (also those of a machine that was not killed). Ends
    /// hanging and armed cuts; slowness and bad sectors stay.
    pub fn power_on(&self) {
        let mut state = self.shared.lock();
        state.hang_up();
        state.cut = None;
        state.dead = false;
        state.fuse = None;
        state.hung = false;
        self.shared.changed.notify_all();
    }

    /// Makes the drive fail: pending requests fail, and all further ones until `power_on`, since qemu tries to reconnect at each request
    /// and is rejected. Keeps the cache.
    pub fn die(&self) {
        let mut state = self.shared.lock();
        state.dead = true;
        state.hang_up();
        self.shared.changed.notify_all();
    }

    /// Makes it slow; None: fast again.
    pub fn throttle(&self, throttle: Option<Throttle>) {
        self.shared.lock().throttle = throttle;
        self.shared.changed.notify_all();
    }

    /// Makes requests at these sectors fail with EIO, in addition to earlier ones.
    pub fn fail(&self, bad: BadSectors) {
        self.shared.lock().bad.push(bad);
    }

    /// Makes flushes fail with EIO, or succeed again.
    pub fn fail_flushes(&self, fail: bool) {
        self.shared.lock().fail_flushes = fail;
    }

    /// Removes all bad sectors, and makes flushes succeed.
    pub fn heal(&self) {
        let mut state = self.shared.lock();
        state.bad.clear();
        state.fail_flushes = false;
    }

    /// Stops answering: requests wait, and are carried out after `resume`.
    pub fn hang(&self) {
        self.shared.lock().hung = true;
    }

    /// Reverts `hang`: requests that wait are carried out, and further ones are answered. Other faults stay.
    pub fn resume(&self) {
        self.shared.lock().hung = false;
        self.shared.changed.notify_all();
    }

    /// True if it hangs.
    pub fn is_hung(&self) -> bool {
        self.shared.lock().hung
    }

    /// True if it does not answer its clients: it hangs, or its power is cut and they still wait.
    pub fn is_silent(&self) -> bool {
        let state = self.shared.lock();
        (state.hung || state.cut.is_some()) && !state.streams.is_empty()
    }

    /// True if its power is cut.
    pub fn is_cut(&self) -> bool {
        self.shared.lock().cut.is_some()
    }

    /// Waits until this many requests wait for an answer, which proves that a client hangs; false if not within this time.
    pub fn wait_pending(&self, requests: u64, limit: Duration) -> bool {
        crate::wait::poll(limit, || {
            (self.shared.lock().stats.pending >= requests).then_some(())
        })
        .is_some()
    }

    fn unusable(&self, source: io::Error) -> NbdError {
        NbdError::File {
            path: self.file.clone(),
            source,
        }
    }
}

impl Drop for NbdDrive {
    fn drop(&mut self) {
        {
            let mut state = self.shared.lock();
            state.closed = true;
            state.hang_up();
            self.shared.changed.notify_all();
        }
        // Wakes `accept`; its threads end with their connections.
        let _ = shutdown(
            std::os::fd::AsRawFd::as_raw_fd(&*self.listener),
            Shutdown::Both,
        );
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
        let _ = fs::remove_file(&self.socket);
    }
}
