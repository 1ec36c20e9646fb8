//! Task that feeds the health registry: from the kernel log as it is written, and from the kernel's counters every few
//! seconds.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use tokio::{
    sync::mpsc,
    time::{MissedTickBehavior, interval},
};
use tokio_util::sync::CancellationToken;

use super::memory::{LogPosition, PersistedEvidence, names};
use crate::collected::CollectedEvidence;
use drivebay_evidence::{
    HealthRegistry, at,
    attribute::{Subject, place, subject},
    kmsg, now,
    registry::is_of_absence,
    stalls::Stalls,
};
use drivebay_fs::kind;
use drivebay_model::{DriveId, DriveState, Extent, MIB, Snapshot};
use drivebay_node::context::NodeContext;
use drivebay_sys::{
    blockstat::{self, Activity},
    clock::since_boot,
    kmsg::{From, Kmsg, Next},
    offload::offload,
};

/// Interval of dropping evidence that no longer counts.
const TIDY_EVERY: Duration = Duration::from_secs(600);
/// Interval of reading requests in flight: a stall is detected within its limit and this.
const POLL_INTERVAL: Duration = Duration::from_secs(3);
/// Interval of reading ext4's error counters, in multiples of `POLL_INTERVAL`; the errors are in the kernel log, too.
const COUNTERS_EVERY: u32 = 10;
/// Limit of reading sysfs, which takes microseconds for each drive.
const READ_DEADLINE: Duration = Duration::from_secs(5);

/// Bytes from the beginning of a failed request that may be unreadable: the kernel does not report its length.
const FAILED_REQUEST: u64 = MIB;

/// Collects evidence until `stop`. Without the kernel log, all other evidence is still collected. `complaints` gets the
/// drives about which the kernel newly reported errors.
pub async fn run(
    node: NodeContext,
    evidence: CollectedEvidence,
    memory: PersistedEvidence,
    complaints: mpsc::Sender<DriveId>,
    stop: CancellationToken,
) {
    let mut reader = KernelLogReader {
        node: node.clone(),
        evidence,
        complaints,
        heard: memory.position(),
        memory,
        began: since_boot(),
    };
    // Messages from before the start are read if the position of the earlier agent is known.
    let from = match reader.heard.sequence {
        Some(_) => From::Oldest,
        None => From::Now,
    };
    let mut log = match Kmsg::open(from) {
        Ok(log) => Some(log),
        Err(error) => {
            tracing::error!(
                %error,
                "cannot read the kernel log; errors reported only there are missed: give the agent /dev/kmsg and CAP_SYSLOG"
            );
            None
        }
    };
    // A report cannot be attributed before the drives are scanned; the kernel keeps the log.
    let mut snapshots = node.inventory().subscribe();
    tokio::select! {
        () = stop.cancelled() => return,
        _ = snapshots.wait_for(|snapshot| snapshot.ready) => {}
    }
    let mut tidying = interval(TIDY_EVERY);
    let mut checking = interval(POLL_INTERVAL);
    checking.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut stalls = Stalls::default();
    let mut checks = 0u32;
    loop {
        let next = async {
            match &log {
                Some(log) => log.next().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = stop.cancelled() => return,
            _ = tidying.tick() => {
                let snapshot = node.inventory().current();
                node.inventory().update(|state| state.health.tidy(&snapshot, now()));
            }
            _ = checking.tick() => {
                check_requests(&node, &mut stalls).await;
                if checks.is_multiple_of(COUNTERS_EVERY) {
                    check_counters(&node).await;
                }
                checks = checks.wrapping_add(1);
            }
            next = next => match next {
                Ok(Next::Record(record)) => reader.take(&record),
                Ok(Next::Lost) => tracing::warn!("kernel log messages lost; the log buffer was overwritten before it was read"),
                Err(error) => {
                    tracing::error!(%error, "kernel log reader failed");
                    log = None;
                }
            },
        }
    }
}

async fn check_requests(node: &NodeContext, stalls: &mut Stalls) {
    let snapshot = node.inventory().current();
    let ours: Vec<(DriveId, String)> = snapshot
        .drives
        .values()
        .filter(|drive| matches!(drive.state, DriveState::Claimed | DriveState::Unprobed))
        .filter(|drive| drive.class.is_some())
        .map(|drive| (drive.id.clone(), drive.facts.kernel_name.clone()))
        .collect();
    if ours.is_empty() {
        return;
    }
    let reading = offload("requests", READ_DEADLINE, move || {
        let mut activities: BTreeMap<DriveId, Activity> = BTreeMap::new();
        for (id, name) in ours {
            if let Some(activity) = blockstat::activity(&name)? {
                activities.insert(id, activity);
            }
        }
        Ok(activities)
    });
    let activities = match reading
        .await
        .and_then(|activities: std::io::Result<_>| activities)
    {
        Ok(activities) => activities,
        Err(error) => {
            tracing::warn!(%error, "cannot read in-flight I/O counters; will retry");
            return;
        }
    };
    let stalled: BTreeSet<DriveId> = stalls.update(&activities, now()).into_iter().collect();
    if stalled.is_empty() && !node.inventory().health(HealthRegistry::any_stalled) {
        return;
    }
    // `changes` logs the resulting conditions.
    node.inventory()
        .update(|state| state.health.stalled(stalled));
}

async fn check_counters(node: &NodeContext) {
    let snapshot = node.inventory().current();
    let in_use = snapshot.volumes.values().filter(|volume| volume.in_use);
    let mounted: Vec<_> = in_use
        .filter_map(|volume| {
            let count = kind::of(volume.placed.record.fs_type?)
                .facts()
                .count_errors?;
            let (device, _) = volume.placed.used_device()?;
            Some((volume.uuid, device.to_owned(), count))
        })
        .collect();
    if mounted.is_empty() {
        return;
    }
    let reading = offload("counters", READ_DEADLINE, move || {
        let mut counted = Vec::new();
        for (volume, device, count) in mounted {
            if let Some(errors) = count(&device)? {
                counted.push((volume, errors > 0));
            }
        }
        Ok(counted)
    });
    match reading
        .await
        .and_then(|counted: std::io::Result<_>| counted)
    {
        Ok(counted) => {
            node.inventory().update(|state| {
                for (volume, errors) in counted {
                    state.health.counted(volume, errors);
                }
            });
        }
        Err(error) => tracing::warn!(%error, "cannot read ext4 error counters; will retry"),
    }
}

/// Reads records of the kernel log into the registry.
struct KernelLogReader {
    node: NodeContext,
    evidence: CollectedEvidence,
    memory: PersistedEvidence,
    complaints: mpsc::Sender<DriveId>,
    // Position of an earlier agent.
    heard: LogPosition,
    // Start of this reader, since boot.
    began: Duration,
}

impl KernelLogReader {
    fn take(&mut self, record: &str) {
        let Some((number, logged_at)) = kmsg::stamp(record) else {
            return;
        };
        if self.heard.sequence.is_some_and(|last| number <= last) {
            return;
        }
        self.memory.advance_to(number);
        let Some(report) = kmsg::parse(record) else {
            return;
        };
        let inventory = self.node.inventory();
        let snapshot = inventory.current();
        let Some(subject) = subject(&snapshot, &report) else {
            return;
        };
        if logged_at < self.began && !is_same(&self.heard, &snapshot, &subject, &report.device) {
            return;
        }
        let drive = snapshot.drives.get(&subject.drive);
        let away = drive.is_some_and(|drive| drive.state == DriveState::Missing);
        if away && is_of_absence(report.kind) {
            return;
        }
        if let Some((drive, start)) = place(&snapshot, &report)
            && matches!(report.kind, kmsg::Kind::MediumError | kmsg::Kind::IoError)
        {
            let len = FAILED_REQUEST;
            self.evidence.suspects().add(&drive, Extent { start, len });
        }
        // The log's clock may be a little ahead.
        let logged_at = at(logged_at).min(now());
        if inventory.health(|registry| registry.is_fresh(&subject, report.kind, logged_at)) {
            return;
        }
        let mut news = false;
        inventory.update(|state| news = state.health.note(&subject, report.kind, logged_at));
        if news {
            // `changes` logs the resulting conditions; this is the evidence.
            tracing::debug!(
                drive = %subject.drive,
                volume = subject.volume.map(|volume| volume.to_string()),
                device = report.device,
                kind = ?report.kind,
                "kernel log reports an error"
            );
            // If it is full, enough drives wait for a poll already, and all are polled in time.
            let _ = self.complaints.try_send(subject.drive);
        }
    }
}

/// True if the names in a report from before the agent's start still belong to the same drive and volume. Pure.
fn is_same(heard: &LogPosition, snapshot: &Snapshot, subject: &Subject, device: &str) -> bool {
    let now = names(snapshot);
    let drive = snapshot.drives.get(&subject.drive);
    let name = drive.map(|drive| drive.facts.kernel_name.as_str());
    let same = |name: &str| {
        now.get(name)
            .is_some_and(|owner| heard.names.get(name) == Some(owner))
    };
    name.is_some_and(same) && (!now.contains_key(device) || same(device))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use drivebay_model::samples;

    #[test]
    fn a_kernel_report_from_before_the_start_is_of_the_drive_that_had_the_name_then() {
        let mut snapshot = Snapshot::default();
        let mut drive = samples::drive("sda", DriveState::Claimed, None);
        drive.facts.diskseq = 3;
        snapshot.drives.insert(drive.id.clone(), drive.clone());
        let subject = Subject {
            drive: drive.id.clone(),
            volume: None,
        };
        let mut heard = LogPosition {
            sequence: Some(1),
            names: names(&snapshot),
        };
        assert!(is_same(&heard, &snapshot, &subject, "sda"));
        // The name of a controller has no owner of its own.
        assert!(is_same(&heard, &snapshot, &subject, "nvme0"));
        heard.names.insert("sda".into(), "wwn-sda 2".into());
        assert!(!is_same(&heard, &snapshot, &subject, "sda"));
        heard.names.clear();
        assert!(!is_same(&heard, &snapshot, &subject, "sda"));
    }
}
