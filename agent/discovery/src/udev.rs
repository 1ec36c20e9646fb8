//! The thread that receives kernel uevents of block devices, debounced and coalesced.
//!
//! Listens to the *kernel* group (works without udevd and in a pod's network namespace) and, through libudev, additionally to udevd's
//! processed events. libudev's objects never leave the thread; only kernel names are sent to the rest of the agent. Events are hints: facts
//! about a device come from sysfs.

use std::{
    collections::BTreeSet,
    io,
    os::fd::AsFd,
    thread,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
};
use tokio::sync::mpsc::{self, error::TrySendError};

use drivebay_sys::uevent::{Event, KernelUevents};

/// Disks that have changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changed {
    /// Kernel names; a partition's event counts for its disk.
    pub names: BTreeSet<String>,
    /// True if events were lost: every disk must be scanned.
    pub lost: bool,
}

/// Limits of a batch of changed disks. It is sent after `debounce` without a further event, at the latest when its first event is `at_most`
/// old.
#[derive(Debug, Clone)]
pub struct UdevConfig {
    /// Quiet time that ends a batch.
    pub debounce: Duration,
    /// Age at which a batch is sent even if events continue.
    pub at_most: Duration,
}

/// Batches that may wait for the receiver; later events are merged in the thread.
const BATCHES: usize = 2;
/// Interval at which the thread notices a dropped receiver, and retries a full channel, at the latest.
const TICK: Duration = Duration::from_millis(250);

/// Starts the thread; it ends when the receiver is dropped. The channel is bounded: while the receiver is slow, names are merged in the
/// thread.
pub fn watch(config: UdevConfig) -> io::Result<mpsc::Receiver<Changed>> {
    // Opened here, so that events are received from before `watch` returns, and none is missed between this and the caller's first
    // enumeration.
    let kernel = KernelUevents::open()?;
    let (sender, receiver) = mpsc::channel(BATCHES);
    thread::Builder::new()
        .name("udev".to_owned())
        .spawn(move || {
            let processed = processed_events().inspect_err(|error| {
                tracing::info!(%error, "cannot subscribe to udevd events; using kernel uevents");
            });
            let listener = Listener { kernel, processed: processed.ok(), sender, batch: Coalescer::new(config) };
            if let Err(error) = listener.run() {
                tracing::error!(%error, "cannot listen for uevents; changes are found by the periodic scan only");
            }
        })?;
    Ok(receiver)
}

/// Subscribes to udevd's group, filtered to block devices.
fn processed_events() -> io::Result<udev::MonitorSocket> {
    udev::MonitorBuilder::new()?
        .match_subsystem("block")?
        .listen()
}

struct Listener {
    kernel: KernelUevents,
    processed: Option<udev::MonitorSocket>,
    sender: mpsc::Sender<Changed>,
    batch: Coalescer,
}

impl Listener {
    fn run(mut self) -> io::Result<()> {
        while !self.sender.is_closed() {
            self.wait()?;
            let now = Instant::now();
            while let Some(event) = self.kernel.next()? {
                match event {
                    Event::Block(event) => self
                        .batch
                        .add(disk_of(&event.devpath, event.devtype == "partition"), now),
                    Event::Lost => self.batch.lose(now),
                    Event::Other => {}
                }
            }
            for event in self.processed.iter().flat_map(udev::MonitorSocket::iter) {
                let partition = event.devtype().is_some_and(|kind| kind == "partition");
                self.batch
                    .add(disk_of(&event.devpath().to_string_lossy(), partition), now);
            }
            self.hand_over(now);
        }
        Ok(())
    }

    fn wait(&self) -> io::Result<()> {
        let mut fds = vec![PollFd::new(self.kernel.as_fd(), PollFlags::POLLIN)];
        fds.extend(
            self.processed
                .as_ref()
                .map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN)),
        );
        let now = Instant::now();
        let wait = self.batch.due().map_or(TICK, |due| {
            due.saturating_duration_since(now)
                .clamp(Duration::from_millis(1), TICK)
        });
        match poll(
            &mut fds,
            PollTimeout::try_from(wait).unwrap_or(PollTimeout::MAX),
        ) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn hand_over(&mut self, now: Instant) {
        let Some(batch) = self.batch.take(now) else {
            return;
        };
        if let Err(TrySendError::Full(batch)) = self.sender.try_send(batch) {
            self.batch.put_back(batch, now);
        }
    }
}

/// Returns the kernel name of the disk of a device path in sysfs. Works for a removed device.
fn disk_of(devpath: &str, partition: bool) -> String {
    let mut parts = devpath.rsplit('/');
    let name = parts.next().unwrap_or_default();
    let disk = if partition {
        parts.next().unwrap_or(name)
    } else {
        name
    };
    disk.to_owned()
}

/// Merges names into batches. Pure: time is a parameter.
#[derive(Debug)]
struct Coalescer {
    config: UdevConfig,
    batch: Changed,
    /// Times of the first and last event of the batch.
    times: Option<(Instant, Instant)>,
}

impl Coalescer {
    fn new(config: UdevConfig) -> Self {
        Self {
            config,
            batch: Changed::default(),
            times: None,
        }
    }

    fn add(&mut self, name: String, now: Instant) {
        if !name.is_empty() {
            self.batch.names.insert(name);
            self.touch(now);
        }
    }

    fn lose(&mut self, now: Instant) {
        self.batch.lost = true;
        self.touch(now);
    }

    fn touch(&mut self, now: Instant) {
        self.times = Some(self.times.map_or((now, now), |(first, _)| (first, now)));
    }

    /// Returns when the batch is due: after a quiet time, or at its maximum age.
    fn due(&self) -> Option<Instant> {
        self.times
            .map(|(first, last)| (last + self.config.debounce).min(first + self.config.at_most))
    }

    fn take(&mut self, now: Instant) -> Option<Changed> {
        self.due().filter(|due| *due <= now)?;
        self.times = None;
        Some(std::mem::take(&mut self.batch))
    }

    /// Takes back a batch that the channel had no space for: it grows further, and is offered again after another quiet time.
    fn put_back(&mut self, batch: Changed, now: Instant) {
        self.batch.names.extend(batch.names);
        self.batch.lost |= batch.lost;
        self.touch(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn coalescer() -> (Coalescer, Instant) {
        (
            Coalescer::new(UdevConfig {
                debounce: 100 * MS,
                at_most: 1000 * MS,
            }),
            Instant::now(),
        )
    }

    fn names(changed: Option<Changed>) -> Vec<String> {
        changed
            .map(|changed| changed.names.into_iter().collect())
            .unwrap_or_default()
    }

    #[test]
    fn a_batch_ends_after_quiet_and_holds_each_name_once() {
        let (mut batch, start) = coalescer();
        assert_eq!(batch.due(), None);
        batch.add("sdb".into(), start);
        batch.add("sda".into(), start + 50 * MS);
        batch.add("sdb".into(), start + 90 * MS);
        assert_eq!(batch.take(start + 189 * MS), None);
        assert_eq!(names(batch.take(start + 190 * MS)), ["sda", "sdb"]);
        assert_eq!(batch.take(start + 5000 * MS), None, "nothing is said twice");
    }

    #[test]
    fn a_storm_is_handed_over_at_its_greatest_age() {
        let (mut batch, start) = coalescer();
        for tick in 0..20 {
            assert_eq!(batch.take(start + tick * 50 * MS), None);
            batch.add("sda".into(), start + tick * 50 * MS);
        }
        assert_eq!(names(batch.take(start + 1000 * MS)), ["sda"]);
    }

    #[test]
    fn what_the_receiver_had_no_room_for_is_kept() {
        let (mut batch, start) = coalescer();
        batch.add("sda".into(), start);
        batch.lose(start);
        let full = batch.take(start + 100 * MS).unwrap();
        batch.add("sdb".into(), start + 101 * MS);
        batch.put_back(full, start + 101 * MS);
        let again = batch.take(start + 201 * MS).unwrap();
        assert!(again.lost);
        assert_eq!(names(Some(again)), ["sda", "sdb"]);
    }

    #[test]
    fn a_partitions_event_counts_for_its_disk() {
        for (path, partition, disk) in [
            ("/devices/pci0000:00/ata1/block/sda/sda1", true, "sda"),
            ("/devices/pci0000:00/nvme/nvme0/nvme0n1", false, "nvme0n1"),
            ("/devices/virtual/block/loop3/loop3p1", true, "loop3"),
        ] {
            assert_eq!(disk_of(path, partition), disk);
        }
    }
}
