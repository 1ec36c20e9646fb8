//! Compares the latencies of the node's drives: reads the kernel's counters several times a minute, passes each minute to
//! the comparison, and persists its state.
//!
//! Reads only sysfs, which waits for no drive, and starts no process. A finding is held while the drive cannot be compared.

mod acknowledger;
mod finding;
mod history;
mod watched;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use tokio::{
    sync::mpsc,
    time::{MissedTickBehavior, interval},
};
use tokio_util::sync::CancellationToken;

pub use self::acknowledger::{Acknowledger, SlowdownRequest};
use self::{
    finding::finding,
    history::History,
    watched::{SLICES, Watched, counters},
};
use super::acknowledge::AcknowledgeError;
use crate::collected::CollectedEvidence;
use drivebay_evidence::registry::Source;
use drivebay_model::{Drive, DriveId, Finding, Snapshot};
use drivebay_node::{state::StateError, volumes::Volumes};
use drivebay_smart::slow::{Comparison, Input, Kind, Slowdown};
use drivebay_sys::{
    blockstat::{self, Counted, SYSFS_DEADLINE},
    clock::unix_seconds,
    offload::{blocking, offload},
};

/// Minutes between two saves if no finding changes.
const SAVE_EVERY: u32 = 30;

struct Task {
    volumes: Volumes,
    evidence: CollectedEvidence,
    history: History,
    comparison: Comparison,
    watched: BTreeMap<DriveId, Watched>,
    unsaved: u32,
}

/// Compares latencies until `stop`.
pub async fn run(
    volumes: Volumes,
    evidence: CollectedEvidence,
    mut acknowledgements: mpsc::Receiver<SlowdownRequest>,
    stop: CancellationToken,
) {
    let mut task = Task {
        comparison: Comparison::default(),
        history: History::new(volumes.node().state_dir()),
        volumes,
        evidence,
        watched: BTreeMap::new(),
        unsaved: 0,
    };
    // Findings persist over a restart.
    // A failure is logged, and a finding of the host; it is read again later.
    let _ = task.history.read(&mut task.comparison).await;
    task.publish();
    let mut snapshots = task.volumes.node().inventory().subscribe();
    tokio::select! {
        () = stop.cancelled() => return,
        _ = snapshots.wait_for(|snapshot| snapshot.ready) => {}
    }
    let mut ticks = interval(task.volumes.node().config().health.latency_interval / SLICES);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut slices = 0;
    loop {
        tokio::select! {
            () = stop.cancelled() => {
                if task.unsaved > 0 {
                    task.try_to_save().await;
                }
                return;
            }
            Some(request) = acknowledgements.recv() => {
                let done = task.take(&request).await;
                // The caller may have gone; it is saved all the same.
                let _ = request.done.send(done);
            }
            _ = ticks.tick() => {
                task.read().await;
                slices += 1;
                if slices > SLICES {
                    slices = 1;
                    task.minute().await;
                }
            }
        }
    }
}

/// True if its latencies are compared. Drives in no class are compared, too, but have no findings.
fn is_compared(drive: &Drive) -> bool {
    drive.state.is_present() && (drive.class.is_some() || drive.facts.virtual_kind.is_none())
}

fn kind(drive: &Drive) -> Kind {
    Kind {
        model: drive.facts.model.clone(),
        media: drive.facts.media,
    }
}

impl Task {
    async fn read(&mut self) {
        let snapshot = self.volumes.node().inventory().current();
        self.follow(&snapshot);
        let names: Vec<(DriveId, String)> = self
            .watched
            .iter()
            .map(|(id, watched)| (id.clone(), watched.name().to_owned()))
            .collect();
        if names.is_empty() {
            return;
        }
        let reading = offload("latency", SYSFS_DEADLINE, move || {
            let read = |(id, name): (DriveId, String)| {
                let counted = blockstat::counters(&name);
                let now = |counted: Counted| (Instant::now(), counters(&counted));
                (id, counted.map(|counted| counted.map(now)))
            };
            names.into_iter().map(read).collect::<Vec<_>>()
        });
        match reading.await {
            Ok(reading) => {
                for (id, now) in reading {
                    // A drive that cannot be read does not affect the others.
                    let now = now.unwrap_or_else(|error| {
                        tracing::warn!(drive = %id, %error, "cannot read drive latency counters; will retry");
                        None
                    });
                    if let Some(watched) = self.watched.get_mut(&id) {
                        watched.take(now);
                    }
                }
            }
            Err(error) => tracing::warn!(%error, "cannot read drive latency counters; will retry"),
        }
    }

    fn follow(&mut self, snapshot: &Snapshot) {
        let erased = snapshot.volumes.values();
        let erased: Vec<&DriveId> = erased
            .filter(|volume| volume.erasing.is_some())
            .map(|volume| &volume.drive)
            .collect();
        let checked = self.volumes.checked_drives();
        self.watched
            .retain(|id, _| snapshot.drives.get(id).is_some_and(is_compared));
        for (id, drive) in snapshot
            .drives
            .iter()
            .filter(|(_, drive)| is_compared(drive))
        {
            let facts = &drive.facts;
            let same = |watched: &Watched| watched.is(&facts.kernel_name, facts.diskseq);
            if !self.watched.get(id).is_some_and(same) {
                if !facts.identity_is_stable {
                    // Another drive may be in its slot.
                    self.comparison.forget(id);
                }
                let fresh = Watched::new(&facts.kernel_name, facts.diskseq);
                self.watched.insert(id.clone(), fresh);
            }
            let Some(watched) = self.watched.get_mut(id) else {
                continue;
            };
            watched.note_work(erased.contains(&id), checked.contains(id));
        }
    }

    /// Ends a minute: compares it, publishes the result, and saves it if findings changed or it is time.
    async fn minute(&mut self) {
        self.history.read_again(&mut self.comparison).await;
        let snapshot = self.volumes.node().inventory().current();
        let mut inputs = Vec::new();
        for (id, drive) in &snapshot.drives {
            let watched = self.watched.get_mut(id);
            // A missing drive stays as slow as it was.
            if watched.is_some() || self.comparison.has(id) {
                inputs.push(Input {
                    drive: id.clone(),
                    kind: kind(drive),
                    minute: watched.and_then(Watched::end),
                });
            }
        }
        let at = unix_seconds();
        let before = self.slow();
        // A copy, so that a comparison that panics loses neither findings nor history.
        let mut comparison = self.comparison.clone();
        // Milliseconds for a shelf of drives.
        let fed = blocking(move || {
            comparison.feed(at, inputs);
            comparison
        });
        match fed.await {
            Ok(comparison) => self.comparison = comparison,
            Err(error) => {
                tracing::error!(%error, "internal task failed; this is a bug in Drivebay, please report it")
            }
        }
        self.publish();
        self.unsaved += 1;
        if self.unsaved >= SAVE_EVERY || self.slow() != before {
            self.try_to_save().await;
        }
    }

    fn slow(&self) -> BTreeMap<DriveId, Vec<Slowdown>> {
        let drives = self.comparison.drives();
        drives
            .map(|drive| (drive.clone(), self.comparison.slowdowns(drive)))
            .collect()
    }

    /// Publishes findings to the inventory, and latencies to metrics.
    fn publish(&self) {
        let inventory = self.volumes.node().inventory();
        let snapshot = inventory.current();
        let ids: BTreeSet<&DriveId> = self
            .comparison
            .drives()
            .chain(snapshot.drives.keys())
            .collect();
        for id in ids {
            let nobodys = |drive: &Drive| drive.class.is_none();
            let findings = if snapshot.drives.get(id).is_some_and(nobodys) {
                Vec::new()
            } else {
                finding(&self.comparison.slowdowns(id))
                    .into_iter()
                    .collect()
            };
            let same = |last: &[Finding]| last == findings.as_slice();
            if !inventory.health(|registry| same(registry.findings_of(id, Source::Latency))) {
                inventory.update(|state| {
                    state
                        .health
                        .record_drive(id.clone(), Source::Latency, findings);
                });
            }
        }
        self.evidence.speeds().put(self.comparison.speeds());
    }

    /// Acknowledges or withdraws, durably. Returns the findings that are newly acknowledged.
    async fn take(&mut self, request: &SlowdownRequest) -> Result<Vec<Finding>, AcknowledgeError> {
        let drive = &request.drive;
        let before = self.comparison.clone();
        let counted = self.comparison.slow(drive);
        if request.withdraw {
            self.comparison.withdraw(drive);
        } else if !self.comparison.acknowledge(drive) {
            return Ok(Vec::new());
        }
        if let Err(source) = self.save().await {
            self.comparison = before;
            let drive = drive.clone();
            return Err(AcknowledgeError::Write { drive, source });
        }
        self.publish();
        let counted = counted.into_iter().filter(|_| !request.withdraw);
        Ok(finding(&counted.collect::<Vec<_>>()).into_iter().collect())
    }

    async fn save(&mut self) -> Result<(), StateError> {
        self.history.save(self.comparison.clone()).await?;
        self.unsaved = 0;
        Ok(())
    }

    async fn try_to_save(&mut self) {
        // A failure is logged, and a finding of the host.
        let _ = self.save().await;
    }
}
