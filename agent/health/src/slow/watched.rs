//! Counters of one drive, read several times a minute. Pure.

use std::time::Instant;

use drivebay_smart::slow::{Counters, Flow, Minute, Slice};
use drivebay_sys::blockstat::{Counted, Requests};

/// Number of reads of the counters per minute.
pub(super) const SLICES: u32 = 12;

/// Counters of one drive, and their differences in this minute.
#[derive(Debug)]
pub(super) struct Watched {
    /// Name and `diskseq` of the device that the counters are of.
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

    /// True if the counters are of this device.
    pub(super) fn is(&self, name: &str, diskseq: u64) -> bool {
        self.name == name && self.diskseq == diskseq
    }

    /// Notes what the agent itself does on the drive in this minute.
    pub(super) fn note_work(&mut self, erasing: bool, checking: bool) {
        self.erasing |= erasing;
        self.checking |= checking;
    }

    /// Stores the current counters, and the difference from the last ones.
    pub(super) fn take(&mut self, now: Option<(Instant, Counters)>) {
        let last = std::mem::replace(&mut self.last, now);
        let (Some((before, counters)), Some((at, now))) = (last, now) else {
            return;
        };
        let millis = at.duration_since(before).as_millis();
        match now.since(&counters, u64::try_from(millis).unwrap_or(u64::MAX)) {
            Some(slice) => self.slices.push(slice),
            // The counters were reset: another device.
            None => self.slices.clear(),
        }
    }

    /// Ends the minute; None if less than half of it was measured.
    pub(super) fn end(&mut self) -> Option<Minute> {
        let slices = std::mem::take(&mut self.slices);
        let erasing = std::mem::take(&mut self.erasing);
        let checking = std::mem::take(&mut self.checking);
        // A drive that appeared within the minute has its first one later.
        (slices.len() * 2 >= SLICES as usize).then(|| Minute::new(&slices, erasing, checking))
    }
}

/// Converts the kernel's counters for the comparison.
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
