//! Persists evidence that cannot be observed again: kernel reports, the position in the kernel log, and the expected mounts.
//! One small file; losing it loses no data.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use drivebay_evidence::{
    HealthRegistry,
    mounts::Places,
    now,
    registry::{COUNTS_FOR, Notes},
    unreadable::UnreadableRanges,
};
use drivebay_model::{DriveId, Snapshot, cause::chain, condition::Condition};
use drivebay_node::{
    context::NodeContext,
    inventory::Earlier,
    state::{Damage, StateFile, StateKind, Stored},
};
use drivebay_sys::{clock::unix_seconds, offload::offload, process};

/// Version of the file format; a file of another version is not read.
const VERSION: u32 = StateKind::Health.version();
/// Interval of checking whether there are changes to save.
const EVERY: Duration = Duration::from_secs(2);
/// Limit of reading or writing a small file.
const FILE_DEADLINE: Duration = Duration::from_secs(10);

/// Owners of kernel names when the log was last read: `sda` may be another drive by now.
pub type Names = BTreeMap<String, String>;

/// Position in the kernel log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogPosition {
    /// Sequence number of the last record that was read; None if none of this boot was.
    pub sequence: Option<u64>,
    /// Owners of the names in the log.
    pub names: Names,
}

/// Contents of the file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remembered {
    version: u32,
    boot_id: String,
    // Time of writing on both clocks: the registry's, and Unix time in seconds.
    at: Duration,
    unix: u64,
    notes: Notes,
    heard: LogPosition,
    mounts: Places,
    // Time since which each finding and condition exists.
    #[serde(default)]
    since: Earlier,
    // Left out while no drive has unreadable ranges.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    unreadable: BTreeMap<DriveId, UnreadableRanges>,
    // Conditions that calls found. Left out while there are none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    of_calls: BTreeMap<Uuid, Vec<Condition>>,
}

/// Returns the owner of each kernel name. A drive that is plugged in again has another sequence number. Pure.
pub fn names(snapshot: &Snapshot) -> Names {
    let drives = snapshot.drives.values();
    let drives = drives.filter(|drive| drive.state.is_present());
    let drives = drives.map(|drive| {
        let owner = format!("{} {}", drive.id, drive.facts.diskseq);
        (drive.facts.kernel_name.clone(), owner)
    });
    let volumes = snapshot.volumes.values();
    let volumes = volumes.flat_map(|volume| {
        let own = volume.placed.device.as_deref();
        let used = volume.placed.used_device().map(|(name, _)| name);
        let names = own.into_iter().chain(used);
        names.map(|name| (name.to_owned(), volume.uuid.to_string()))
    });
    drives.chain(volumes).collect()
}

/// Returns the sequence number (diskseq) of each drive in these names. Pure.
fn appearances(names: &Names) -> BTreeMap<DriveId, u64> {
    let owners = names.values().filter_map(|owner| owner.split_once(' '));
    owners
        .filter_map(|(id, diskseq)| Some((DriveId(id.to_owned()), diskseq.parse().ok()?)))
        .collect()
}

/// Returns what still counts of a file's contents; after a reboot only evidence about drives. Pure.
pub fn recall(
    old: Remembered,
    boot_id: &str,
    now: Duration,
    unix: u64,
) -> (Notes, LogPosition, Places) {
    if old.boot_id == boot_id {
        return (old.notes, old.heard, old.mounts);
    }
    let away = Duration::from_secs(unix.saturating_sub(old.unix));
    let notes = old.notes.after_a_boot(|at| {
        let age = old.at.saturating_sub(at).saturating_add(away);
        (age < COUNTS_FOR).then(|| now.saturating_sub(age))
    });
    (notes, LogPosition::default(), Places::new())
}

/// Position in the kernel log, shared with the task that reads it, and the state file.
#[derive(Debug, Clone)]
pub struct PersistedEvidence {
    file: Arc<StateFile<Remembered>>,
    boot_id: String,
    heard: Arc<Mutex<LogPosition>>,
}

impl Stored for Remembered {
    const KIND: StateKind = StateKind::Health;

    fn from_bytes(bytes: &[u8]) -> Result<Self, Damage> {
        let old: Self = serde_json::from_slice(bytes)?;
        if old.version != VERSION {
            let version = old.version;
            return Err(
                format!("it has version {version}, this agent reads version {VERSION}").into(),
            );
        }
        Ok(old)
    }

    fn to_bytes(&self) -> std::io::Result<Vec<u8>> {
        Ok(serde_json::to_vec(self)?)
    }
}

impl PersistedEvidence {
    /// Reads the file and restores its contents to the inventory and the expected mounts. A file that is damaged (it is
    /// moved aside) or cannot be read is logged, and counts as empty.
    pub async fn load(node: &NodeContext, kubelet_dir: &Path) -> Self {
        let file = StateFile::new(node.state_dir());
        let dir = kubelet_dir.to_owned();
        // The mount table has no symbolic links.
        let resolved = offload("kubelet-dir", FILE_DEADLINE, move || {
            std::fs::canonicalize(&dir)
        });
        let kubelet_dir = match resolved.await.and_then(|resolved| resolved) {
            Ok(resolved) => resolved,
            // If it cannot be resolved, none of its mounts exist either.
            Err(_) => kubelet_dir.to_owned(),
        };
        let old: Remembered = file.load().await.ok().flatten().unwrap_or_default();
        let boot = offload("boot-id", FILE_DEADLINE, process::boot_id).await;
        let boot_id = boot.and_then(|boot| boot).unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot read the boot id; health state counts as of an earlier boot");
            String::new()
        });
        let (unreadable, of_calls) = (old.unreadable.clone(), old.of_calls.clone());
        let since = Earlier {
            started: unix_seconds(),
            ..old.since.clone()
        };
        let (notes, heard, places) = recall(old, &boot_id, now(), unix_seconds());
        match node.mounts().refresh() {
            Ok(_) => node
                .expected()
                .begin(places, &node.mounts().entries(), &kubelet_dir),
            Err(error) => tracing::error!(error = %chain(&error), "cannot read the mount table"),
        }
        node.inventory().update(|state| {
            state.health.restore(notes);
            state.health.restore_unreadable(unreadable);
            state.health.restore_of_calls(of_calls);
            state.health.restore_appearances(appearances(&heard.names));
            state.earlier = since;
        });
        Self {
            file: Arc::new(file),
            boot_id,
            heard: Arc::new(Mutex::new(heard)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, LogPosition> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the position in the kernel log.
    pub fn position(&self) -> LogPosition {
        self.lock().clone()
    }

    /// Sets the sequence number of the last record that was read.
    pub fn advance_to(&self, sequence: u64) {
        self.lock().sequence = Some(sequence);
    }

    fn gather(&self, node: &NodeContext) -> Remembered {
        let snapshot = node.inventory().current();
        if snapshot.ready {
            let names = names(&snapshot);
            self.lock().names = names;
        }
        Remembered {
            version: VERSION,
            boot_id: self.boot_id.clone(),
            at: now(),
            unix: unix_seconds(),
            notes: node.inventory().health(|registry| registry.notes().clone()),
            heard: self.position(),
            mounts: node.expected().now(),
            since: node.inventory().since(),
            unreadable: node
                .inventory()
                .health(|registry| registry.all_unreadable().clone()),
            of_calls: node.inventory().health(HealthRegistry::of_calls),
        }
    }

    /// Saves changes until `stop`, and once more then.
    pub async fn keep(self, node: NodeContext, stop: CancellationToken) {
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut written = Remembered::default();
        loop {
            let stopping = tokio::select! {
                () = stop.cancelled() => true,
                _ = ticks.tick() => false,
            };
            let next = self.gather(&node);
            // A new position in the log alone is not saved, except at the end.
            let same = next.notes == written.notes
                && next.mounts == written.mounts
                && next.since == written.since
                && next.unreadable == written.unreadable
                && next.of_calls == written.of_calls
                && next.heard.names == written.heard.names;
            if !same || stopping {
                // A failure is logged, and a finding of the host.
                if self.file.save(next.clone()).await.is_ok() {
                    written = next;
                }
            }
            if stopping {
                return;
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::golden;
    use drivebay_evidence::{
        attribute::Subject,
        kmsg::Kind,
        mounts::{Place, Role},
    };
    use drivebay_model::DriveState;
    use drivebay_model::{Extent, samples, unreadable::WindowRead};

    const HOUR: Duration = Duration::from_secs(3600);

    fn unreadable() -> UnreadableRanges {
        let failed = vec![Extent {
            start: 8 << 20,
            len: 1536,
        }];
        let mut ranges = UnreadableRanges::default();
        ranges.take(&WindowRead {
            done: failed.clone(),
            failed,
        });
        ranges
    }

    fn remembered() -> Remembered {
        let mut registry = HealthRegistry::default();
        let subject = Subject {
            drive: DriveId("wwn-sda".into()),
            volume: Some(Uuid::from_u128(7)),
        };
        registry.note(&subject, Kind::FilesystemError, 100 * HOUR);
        registry.note(&subject, Kind::MediumError, 100 * HOUR);
        let place = Place {
            volume: Uuid::from_u128(7),
            role: Role::Target,
            read_only: false,
            pod: Some("shop/db-0".into()),
            options: None,
            exclusive: None,
            unmounting: false,
            call: 0,
        };
        Remembered {
            version: VERSION,
            boot_id: "this".into(),
            at: 101 * HOUR,
            unix: 1_000_000,
            notes: registry.notes().clone(),
            heard: LogPosition {
                sequence: Some(7),
                names: [("sda".to_owned(), "wwn-sda 1".to_owned())].into(),
            },
            mounts: [("/target".into(), place)].into(),
            since: Earlier::default(),
            unreadable: [(DriveId("wwn-sda".into()), unreadable())].into(),
            of_calls: BTreeMap::new(),
        }
    }

    #[test]
    fn the_file_is_written_and_read_as_the_golden_one() {
        let old = remembered();
        let golden = golden::compare("health.json", &serde_json::to_vec(&old).unwrap());
        assert_eq!(serde_json::from_slice::<Remembered>(&golden).unwrap(), old);
    }

    #[test]
    fn in_the_same_boot_everything_counts() {
        let old = remembered();
        let (notes, heard, mounts) = recall(old.clone(), "this", 102 * HOUR, 0);
        assert_eq!((notes, heard, mounts), (old.notes, old.heard, old.mounts));
    }

    #[test]
    fn after_a_boot_only_evidence_about_drives_counts_and_for_a_day_in_all() {
        for (hours_away, counts) in [(1, true), (22, true), (23, false), (1000, false)] {
            // The machine was booted a minute ago.
            let now = COUNTS_FOR + Duration::from_secs(60);
            let unix = 1_000_000 + hours_away * 3600;
            let (notes, heard, mounts) = recall(remembered(), "that", now, unix);
            assert_eq!((heard, mounts), (LogPosition::default(), Places::new()));
            let volume = notes.volumes.values().next().unwrap();
            let drive = notes.drives.values().next().unwrap();
            for times in [volume, drive] {
                assert_eq!(
                    times.len(),
                    usize::from(counts),
                    "{hours_away} h: {times:?}"
                );
                for (kind, at) in times {
                    assert_eq!(*kind, Kind::MediumError);
                    assert_eq!(now - *at, HOUR * (hours_away as u32 + 1));
                }
            }
        }
    }

    #[test]
    fn a_wall_clock_that_goes_back_does_not_make_evidence_younger_or_older() {
        let now = COUNTS_FOR + HOUR;
        let (notes, ..) = recall(remembered(), "that", now, 5);
        let at = notes.drives.values().next().unwrap()[&Kind::MediumError];
        assert_eq!(now - at, HOUR);
    }

    #[test]
    fn a_name_is_its_drives_and_its_volumes_and_a_drive_plugged_in_again_is_another() {
        let mut snapshot = Snapshot::default();
        let mut drive = samples::drive("sda", DriveState::Claimed, None);
        drive.facts.diskseq = 3;
        snapshot.drives.insert(drive.id.clone(), drive.clone());
        assert_eq!(names(&snapshot)["sda"], "wwn-sda 3");
        drive.facts.diskseq = 4;
        snapshot.drives.insert(drive.id.clone(), drive.clone());
        assert_eq!(names(&snapshot)["sda"], "wwn-sda 4");
        drive.state = DriveState::Missing;
        snapshot.drives.insert(drive.id.clone(), drive);
        assert_eq!(names(&snapshot), Names::new());
    }
}
