//! The counters of one drive, read several times a minute. Pure.

use std::time::Instant;

use drivebay_smart::slow::{Counters, Flow, Minute, Slice};
use drivebay_sys::blockstat::{Counted, Requests};

/// Times that the counters are read in a minute.
pub(super) const SLICES: u32 = 12;

/// The counters of one drive, and what came of them in this minute.
#[derive(Debug)]
pub(super) struct Watched {
    /// Of this appearance of the device.
    name: String,
    diskseq: u64,
    last: Option<(Instant, Counters)>,
    slices: Vec<Slice>,
    erasing: bool,
    checking: bool,
}

impl Watched {
    pub(super) fn new(name: &str, diskseq: u64) -> Self {
        Self {
            name: name.to_owned(),
            diskseq,
            last: None,
            slices: Vec::new(),
            erasing: false,
            checking: false,
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is this appearance of the device.
    pub(super) fn is(&self, name: &str, diskseq: u64) -> bool {
        self.name == name && self.diskseq == diskseq
    }

    /// What the agent itself does on the drive in this minute.
    pub(super) fn note_work(&mut self, erasing: bool, checking: bool) {
        self.erasing |= erasing;
        self.checking |= checking;
    }

    /// Takes the counters of now.
    pub(super) fn take(&mut self, now: Option<(Instant, Counters)>) {
        let last = std::mem::replace(&mut self.last, now);
        let (Some((before, counters)), Some((at, now))) = (last, now) else {
            return;
        };
        let millis = at.duration_since(before).as_millis();
        match now.since(&counters, u64::try_from(millis).unwrap_or(u64::MAX)) {
            Some(slice) => self.slices.push(slice),
            // The counters began again: another device.
            None => self.slices.clear(),
        }
    }

    /// Ends the minute.
    pub(super) fn end(&mut self) -> Option<Minute> {
        let slices = std::mem::take(&mut self.slices);
        let erasing = std::mem::take(&mut self.erasing);
        let checking = std::mem::take(&mut self.checking);
        // A drive that came within the minute has its first one later.
        (slices.len() * 2 >= SLICES as usize).then(|| Minute::new(&slices, erasing, checking))
    }
}

/// The kernel's counters, as they are compared.
pub(super) fn counters(counted: &Counted) -> Counters {
    let flow = |of: &Requests| Flow {
        requests: of.requests,
        bytes: of.bytes,
        wait_ms: of.wait_ms,
    };
    Counters {
        reads: flow(&counted.reads),
        writes: flow(&counted.writes),
        flushes: counted.flushes,
        busy_ms: counted.busy_ms,
    }
}
