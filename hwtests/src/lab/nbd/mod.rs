//! A drive with a volatile write cache, served to a virtual machine over NBD by this
//! process, whose faults a test controls while it is used: power cuts that lose or tear
//! what was not flushed, errors at sectors, slowness, hanging. It counts what it is asked.

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

/// What a drive does with TRIM. The protocol leaves the contents undefined afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trim {
    /// The data stays: the drive that proves who took a discard for an erasure.
    Keeps,
    /// Zeros, as volatile as a write.
    Zeroes,
}

/// How a drive is served.
#[derive(Debug, Clone)]
pub struct NbdOptions {
    /// Writes are volatile until FLUSH or FUA. Without, each is on the medium when answered and FLUSH is not offered.
    pub volatile: bool,
    /// The smallest block that is read and written: 512 or 4096 bytes. Torn is always at 512.
    pub sector: u32,
    /// See there.
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

/// Why a drive cannot be served or told.
#[derive(Debug, thiserror::Error)]
pub enum NbdError {
    /// The medium.
    #[error("the drive's file {} cannot be used", path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The file is not a whole number of blocks, or the block is neither 512 nor 4096.
    #[error(
        "a drive of {bytes} bytes cannot have blocks of {sector}: take 512 or 4096, and a multiple of it"
    )]
    Geometry {
        /// Of the file.
        bytes: u64,
        /// As asked.
        sector: u32,
    },
    /// The socket.
    #[error("cannot listen on {} (a path has at most 107 bytes)", path.display())]
    Socket {
        /// Its path.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The power is already cut.
    #[error("the drive's power is cut; power_on it first")]
    Off,
}

/// A served drive: the handle that stops it when dropped. All methods work while it is used, from any thread.
#[derive(Debug)]
pub struct NbdDrive {
    shared: Arc<Shared>,
    file: PathBuf,
    socket: PathBuf,
    listener: Arc<UnixListener>,
    accepting: Option<JoinHandle<()>>,
}

impl NbdDrive {
    /// Serves a file, whose length is the drive's size, on a unix socket that is made.
    ///
    /// # Errors
    /// The file cannot be opened, its size does not fit, or the socket cannot be made.
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

    /// The socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The medium. It holds what was flushed; after a cut, all there is.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Counts since the drive was made, and what is unflushed now.
    pub fn stats(&self) -> Stats {
        let state = self.shared.lock();
        Stats {
            unflushed_sectors: state.medium.unflushed_sectors(),
            unflushed_writes: state.medium.unflushed_writes(),
            connections: state.streams.len() as u64,
            ..state.stats
        }
    }

    /// The 512-byte sectors that a power cut now could lose, as runs of their numbers.
    pub fn unflushed(&self) -> Vec<Range<u64>> {
        self.shared.lock().medium.unflushed()
    }

    /// The last requests (at most 4096 are kept), oldest first.
    pub fn log(&self, last: usize) -> Vec<Logged> {
        let state = self.shared.lock();
        let skip = state.log.len().saturating_sub(last);
        state.log.iter().skip(skip).copied().collect()
    }

    /// Switches the volatile cache. Off, what it holds is flushed first. A client sees FLUSH offered or not when it connects next.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn set_volatile(&self, volatile: bool) -> Result<(), NbdError> {
        let done = self.shared.lock().medium.set_volatile(volatile);
        done.map_err(|source| self.unusable(source))
    }

    /// Cuts the power now: of what was not flushed, each 512-byte part of each write reaches the medium with this probability
    /// (0: none, 1: all), in the order of writing, the same for the same seed. Nothing is answered any more; connections stay
    /// open and silent, as a machine without power notices nothing. Kill the machine (SIGKILL), then `power_on`.
    ///
    /// # Errors
    /// Already cut, or the file cannot be written.
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

    /// Cuts the power, as `cut`, right after the n-th write or write-zeroes from now (0 is now): it is taken and not answered.
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

    /// Gives up a cut that still waits for its write. True: there was one.
    pub fn disarm(&self) -> bool {
        self.shared.lock().fuse.take().is_some()
    }

    /// Waits until the power is cut. None: not within this time.
    pub fn wait_cut(&self, limit: Duration) -> Option<Cut> {
        let state = self.shared.lock();
        let (state, _) = self
            .shared
            .changed
            .wait_timeout_while(state, limit, |state| state.cut.is_none())
            .expect("no holder panics");
        state.cut
    }

    /// Gives a drive its power back, after a cut or its death: old connections end, new ones are served (also a machine's that
    /// was not killed). Hanging and waiting cuts are over; slowness and bad sectors stay.
    pub fn power_on(&self) {
        let mut state = self.shared.lock();
        state.hang_up();
        state.cut = None;
        state.dead = false;
        state.fuse = None;
        state.hung = false;
        self.shared.changed.notify_all();
    }

    /// The drive dies: what waits fails, and everything else until `power_on`, since qemu tries to connect anew at each request
    /// and is turned away. The cache stays as it is.
    pub fn die(&self) {
        let mut state = self.shared.lock();
        state.dead = true;
        state.hang_up();
        self.shared.changed.notify_all();
    }

    /// Makes it slow, or fast again.
    pub fn throttle(&self, throttle: Option<Throttle>) {
        self.shared.lock().throttle = throttle;
        self.shared.changed.notify_all();
    }

    /// Lets requests at these sectors fail with EIO, besides those that already do.
    pub fn fail(&self, bad: BadSectors) {
        self.shared.lock().bad.push(bad);
    }

    /// Lets flushes fail with EIO, or not any more.
    pub fn fail_flushes(&self, fail: bool) {
        self.shared.lock().fail_flushes = fail;
    }

    /// No sector and no flush fails any more.
    pub fn heal(&self) {
        let mut state = self.shared.lock();
        state.bad.clear();
        state.fail_flushes = false;
    }

    /// Stops answering: requests wait, and are carried out after `resume`.
    pub fn hang(&self) {
        self.shared.lock().hung = true;
    }

    /// Answers again.
    pub fn resume(&self) {
        self.shared.lock().hung = false;
        self.shared.changed.notify_all();
    }

    /// Hanging now.
    pub fn is_hung(&self) -> bool {
        self.shared.lock().hung
    }

    /// Does not answer its clients: it hangs, or its power is cut and they still wait.
    pub fn is_silent(&self) -> bool {
        let state = self.shared.lock();
        (state.hung || state.cut.is_some()) && !state.streams.is_empty()
    }

    /// Without power now.
    pub fn is_cut(&self) -> bool {
        self.shared.lock().cut.is_some()
    }

    /// Waits until this many requests wait for an answer: the proof that somebody really hangs. False: not within this time.
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
