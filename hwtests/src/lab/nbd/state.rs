//! Processing of a served drive's requests: delays (hung, throttled), errors of sectors, execution, counting and logging. Shared by its
//! connections and its handle.

use std::{
    collections::VecDeque,
    io,
    ops::Range,
    os::unix::net::UnixStream,
    sync::{Condvar, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use super::{
    Trim,
    medium::{Cut, Medium, TORN},
    wire::{Command, Errno, Export, MAX_PAYLOAD, Request},
};

/// Number of requests that are logged.
const LOG: usize = 4096;

/// Counts since the drive was created.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Reads carried out; not those of bad sectors, and no invalid ones.
    pub reads: u64,
    /// Writes executed, without write-zeroes.
    pub writes: u64,
    /// Flushes that succeeded; not those that fail by `fail_flushes`.
    pub flushes: u64,
    /// Writes and write-zeroes with FUA.
    pub fua: u64,
    /// Trims carried out, with any `Trim`; not those of bad sectors, and no invalid ones.
    pub trims: u64,
    /// Write-zeroes carried out; not those of bad sectors, and no invalid ones.
    pub zeroes: u64,
    /// Requests answered with an error.
    pub failed: u64,
    /// Total length of `reads`, bytes.
    pub bytes_read: u64,
    /// Total length of `writes`, bytes; without write-zeroes.
    pub bytes_written: u64,
    /// Distinct 512-byte sectors that a power cut now could lose.
    pub unflushed_sectors: u64,
    /// Writes of which a power cut now could lose a part.
    pub unflushed_writes: u64,
    /// Requests that wait for an answer.
    pub pending: u64,
    /// Clients connected now, including those in their handshake.
    pub connections: u64,
    /// Errors of the drive's own file: a defect of the test environment, not an injected one.
    pub file_errors: u64,
}

/// Sectors whose requests fail with EIO.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadSectors {
    /// Range in units of 512 bytes.
    pub sectors: Range<u64>,
    /// True if reads fail.
    pub reads: bool,
    /// True if writes, write-zeroes and trims fail.
    pub writes: bool,
}

/// Slowness of a drive. Requests are served sequentially.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Throttle {
    /// Bytes per second of reads, writes and write-zeroes.
    pub bytes_per_second: Option<u64>,
    /// Latency added to each request.
    pub latency: Duration,
    /// Latency added to each read instead.
    pub read_latency: Option<Duration>,
}

/// A request that was carried out or failed. One that still waits, or whose connection or power ended before its turn, is not logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Logged {
    /// Time since the drive was created.
    pub at: Duration,
    /// Command of the request.
    pub command: Command,
    /// True if the request has NBD_CMD_FLAG_FUA: its data must be on the medium before the answer.
    pub fua: bool,
    /// Offset, bytes.
    pub offset: u64,
    /// Length, bytes.
    pub length: u32,
    /// True if answered without an error.
    pub ok: bool,
}

/// A cut that waits for its write.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fuse {
    pub(super) left: u64,
    pub(super) keep: f64,
    pub(super) seed: u64,
}

/// Mutable state of a served drive, behind the mutex of `Shared`.
#[derive(Debug)]
pub(super) struct State {
    pub(super) medium: Medium,
    pub(super) stats: Stats,
    pub(super) cut: Option<Cut>,
    pub(super) fuse: Option<Fuse>,
    pub(super) hung: bool,
    /// True if clients are rejected.
    pub(super) dead: bool,
    pub(super) throttle: Option<Throttle>,
    pub(super) bad: Vec<BadSectors>,
    pub(super) fail_flushes: bool,
    pub(super) log: VecDeque<Logged>,
    /// Connections of earlier generations are ended.
    pub(super) generation: u64,
    pub(super) streams: Vec<(u64, UnixStream)>,
    pub(super) closed: bool,
    busy_until: Instant,
}

/// A served drive, shared by its handle and the threads of its connections. `changed` is notified when a wait may be over.
#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    pub(super) changed: Condvar,
    bytes: u64,
    sector: u32,
    trim: Trim,
    made: Instant,
}

impl Shared {
    pub(super) fn new(medium: Medium, bytes: u64, sector: u32, trim: Trim) -> Self {
        let made = Instant::now();
        Self {
            state: Mutex::new(State {
                medium,
                stats: Stats::default(),
                cut: None,
                fuse: None,
                hung: false,
                dead: false,
                throttle: None,
                bad: Vec::new(),
                fail_flushes: false,
                log: VecDeque::new(),
                generation: 0,
                streams: Vec::new(),
                closed: false,
                busy_until: made,
            }),
            changed: Condvar::new(),
            bytes,
            sector,
            trim,
            made,
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics")
    }

    /// Returns the export that clients are offered now.
    pub(super) fn export(&self) -> Export {
        Export {
            bytes: self.bytes,
            volatile: self.lock().medium.is_volatile(),
            block: self.sector,
        }
    }

    /// Executes a request. None if it is never answered: the power is cut or the connection ended.
    pub(super) fn carry_out(
        &self,
        generation: u64,
        request: Request,
    ) -> Option<Result<Vec<u8>, Errno>> {
        let mut state = self.lock();
        state.stats.pending += 1;
        let mut state = self.wait_turn(state, generation, &request);
        state.stats.pending -= 1;
        if state.over(generation) {
            return None;
        }
        let mut entry = Logged {
            at: self.made.elapsed(),
            command: request.command,
            fua: request.fua,
            offset: request.offset,
            length: request.length,
            ok: false,
        };
        let counts = matches!(request.command, Command::Write | Command::WriteZeroes);
        let answer = self.execute(&mut state, request);
        entry.ok = answer.is_ok();
        state.stats.failed += u64::from(answer.is_err());
        if state.log.len() == LOG {
            state.log.pop_front();
        }
        state.log.push_back(entry);
        if counts && answer.is_ok() && state.burn_fuse() {
            self.changed.notify_all();
            return None;
        }
        Some(answer)
    }

    /// Waits while the drive hangs, and for its latency.
    fn wait_turn<'a>(
        &self,
        mut state: MutexGuard<'a, State>,
        generation: u64,
        request: &Request,
    ) -> MutexGuard<'a, State> {
        let mut due = None;
        loop {
            if state.over(generation) {
                return state;
            }
            if state.hung {
                state = self.changed.wait(state).expect("no holder panics");
                continue;
            }
            let Some(throttle) = state.throttle else {
                return state;
            };
            let now = Instant::now();
            let due = *due.get_or_insert_with(|| {
                state.busy_until = state.busy_until.max(now) + throttle.time_of(request);
                state.busy_until
            });
            let Some(left) = due
                .checked_duration_since(now)
                .filter(|left| !left.is_zero())
            else {
                return state;
            };
            (state, _) = self
                .changed
                .wait_timeout(state, left)
                .expect("no holder panics");
        }
    }

    fn execute(&self, state: &mut State, request: Request) -> Result<Vec<u8>, Errno> {
        let (offset, length) = (request.offset, u64::from(request.length));
        let writes = match request.command {
            Command::Flush => {
                if state.fail_flushes {
                    return Err(Errno::Eio);
                }
                let done = state.medium.flush();
                state.file_result(done)?;
                state.stats.flushes += 1;
                return Ok(Vec::new());
            }
            Command::Read => false,
            Command::Write | Command::Trim | Command::WriteZeroes => true,
            Command::Disconnect | Command::Unknown(_) => return Err(Errno::Einval),
        };
        let block = u64::from(self.sector);
        if length == 0 || !offset.is_multiple_of(block) || !length.is_multiple_of(block) {
            return Err(Errno::Einval);
        }
        if offset
            .checked_add(length)
            .is_none_or(|end| end > self.bytes)
        {
            return Err(if writes { Errno::Enospc } else { Errno::Einval });
        }
        let range = offset / TORN..(offset + length) / TORN;
        if state.bad.iter().any(|bad| bad.hits(&range, writes)) {
            return Err(Errno::Eio);
        }
        let mut data = Vec::new();
        let done = match request.command {
            Command::Read if request.length > MAX_PAYLOAD => return Err(Errno::Einval),
            Command::Read => {
                state.stats.reads += 1;
                state.stats.bytes_read += length;
                let size = request.length as usize;
                state.medium.read(offset, size).map(|read| data = read)
            }
            Command::Write => {
                state.stats.writes += 1;
                state.stats.bytes_written += length;
                state.medium.write(offset, request.data, request.fua)
            }
            Command::WriteZeroes => {
                state.stats.zeroes += 1;
                state.medium.write_zeroes(offset, length, request.fua)
            }
            _ => {
                state.stats.trims += 1;
                match self.trim {
                    Trim::Keeps => Ok(()),
                    Trim::Zeroes => state.medium.write_zeroes(offset, length, request.fua),
                }
            }
        };
        state.file_result(done)?;
        state.stats.fua += u64::from(request.fua);
        Ok(data)
    }

    /// Waits until a connection that gets no more answers is to be closed.
    pub(super) fn wait_over(&self, generation: u64) {
        let state = self.lock();
        let _state = self
            .changed
            .wait_while(state, |state| {
                !state.closed && state.generation == generation
            })
            .expect("no holder panics");
    }
}

impl State {
    fn over(&self, generation: u64) -> bool {
        self.closed || self.cut.is_some() || self.generation != generation
    }

    /// Turns an error of the drive's own file into EIO, and counts it separately.
    fn file_result(&mut self, done: io::Result<()>) -> Result<(), Errno> {
        done.map_err(|_| {
            self.stats.file_errors += 1;
            Errno::Eio
        })
    }

    /// Counts a completed write; returns true if an armed cut was executed at it.
    fn burn_fuse(&mut self) -> bool {
        let Some(fuse) = &mut self.fuse else {
            return false;
        };
        fuse.left -= 1;
        if fuse.left > 0 {
            return false;
        }
        let (keep, seed) = (fuse.keep, fuse.seed);
        self.fuse = None;
        let done = self.medium.cut(keep, seed).map(|cut| self.cut = Some(cut));
        // If the medium cannot be written, nothing is cut: the write fails, and the error is counted.
        self.file_result(done).is_ok()
    }

    /// Shuts down all connections and begins a new generation, so that their pending requests get no answer. The caller must notify
    /// `Shared::changed`.
    pub(super) fn hang_up(&mut self) {
        self.generation += 1;
        for (_, stream) in self.streams.drain(..) {
            // It may be disconnected already.
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

impl BadSectors {
    fn hits(&self, range: &Range<u64>, writes: bool) -> bool {
        (if writes { self.writes } else { self.reads })
            && self.sectors.start < range.end
            && range.start < self.sectors.end
    }
}

impl Throttle {
    fn time_of(&self, request: &Request) -> Duration {
        let moved = match request.command {
            Command::Read | Command::Write | Command::WriteZeroes => request.length,
            _ => 0,
        };
        let transfer = self.bytes_per_second.map_or(Duration::ZERO, |rate| {
            Duration::from_secs_f64(f64::from(moved) / rate.max(1) as f64)
        });
        let latency = match request.command {
            Command::Read => self.read_latency.unwrap_or(self.latency),
            _ => self.latency,
        };
        latency + transfer
    }
}
