//! What RPCs do with volumes, on top of workers: find the drive, run the job, publish what came of it.
//!
//! Nothing here remembers what was done: every call looks at the snapshot for *where*, and its job
//! looks at the drive for *what is*. Mutating calls hold a guard (`guard`) and run as tracked tasks
//! that outlive a dropped RPC; a repeat meanwhile is answered with ABORTED, and finds the result afterwards.

pub mod adopt;
pub mod by_hand;
pub mod checks;
mod compare;
pub mod create;
pub mod delete;
pub mod erase;
pub mod error;
pub mod expand;
pub mod guard;
pub mod in_flight;
mod learned;
pub mod locate;
mod makeable;
pub mod mounting;
pub mod placement;
mod quarantine;
pub mod release;
pub mod samplers;
pub mod stats;
mod system_places;
mod unfinished;
mod unmounting;
pub mod wipe;
mod zeroing;

use std::{
    collections::{HashMap, HashSet},
    future::Future,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::Notify;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::{
    inventory::{Inventory, wire::Sender},
    keeper::Keeper,
    state::{StateDir, hand_mounts::HandMounts, underway::Underway},
};
use drivebay_config::Config;
use drivebay_evidence::{mounts::Expected, suspects::Suspects};
use drivebay_fs::{device, jobs::Usage, kind::has_anonymous_device};
use drivebay_model::{DriveId, DriveRef, DriveState, Snapshot, Volume, VolumeState};
use drivebay_smart::{LatestPolls, slow::LatestSpeeds};
use drivebay_sys::mountinfo::{Change, MountEntry, MountInfoError, Table};
use drivebay_worker::{Job, Pool, RunError, Slot};
pub use error::VolumeError;
pub use guard::Caller;
use guard::{Guard, Guards, Key, VolumeGuard};

/// Longest a carving job may take, queueing included. Carving writes a few MiB; a drive that needs
/// longer is in trouble, and the kubelet and the sidecars call again.
pub const CARVE_DEADLINE: Duration = Duration::from_secs(60);
/// Longest a stage may take: mkfs and journal replay on a large, slow drive. Below the kubelet's 120 s.
pub const STAGE_DEADLINE: Duration = Duration::from_secs(110);
/// Longest a publish or an unmount may take.
pub const MOUNT_DEADLINE: Duration = Duration::from_secs(20);
/// Longest a call waits for the first scan of its drive: below the deadline of every caller, the shortest of which are the
/// sidecars' 10 s. A drive that does not answer ends the wait earlier.
const SCAN_WAIT: Duration = Duration::from_secs(8);
/// Longest NodeGetVolumeStats waits for a fresh sample (invariant 8).
pub const STATS_DEADLINE: Duration = Duration::from_millis(500);

/// Everything the RPCs work with. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Volumes {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    config: Config,
    pool: Pool,
    inventory: Arc<Inventory>,
    sender: Sender,
    guards: Guards,
    checks: checks::Checks,
    samples: stats::Samples,
    samplers: samplers::Samplers,
    lookers: samplers::Samplers,
    tasks: TaskTracker,
    keeper: Keeper,
    /// Creations that drives have not answered.
    creations: in_flight::Creations,
    /// Creations that an agent after this one must know of.
    underway: Underway,
    /// Free space that somebody waits for to be zeroed.
    wanted: zeroing::Wanted,
    /// What the agent keeps over a restart.
    state_dir: StateDir,
    /// What was mounted by hand.
    hand_mounts: HandMounts,
    /// Somebody wants to know how the drives are, now.
    asked: Notify,
    /// What should be mounted.
    expected: Expected,
    /// Held while the mount table is read and published, so that an older look never replaces a newer one.
    table: Mutex<Table>,
    /// What the drives said when they were asked.
    told: LatestPolls,
    /// Places that may not read.
    suspects: Suspects,
    /// How fast they answered.
    speeds: LatestSpeeds,
}

impl Volumes {
    /// For this node.
    pub fn new(
        config: Config,
        pool: Pool,
        inventory: Arc<Inventory>,
        sender: Sender,
        keeper: Keeper,
    ) -> Self {
        let underway = Underway::new(&config.runtime_dir);
        let state_dir = StateDir::new(&config.state_dir);
        Self {
            inner: Arc::new(Inner {
                underway,
                hand_mounts: HandMounts::new(&state_dir),
                state_dir,
                config,
                pool,
                inventory,
                sender,
                guards: Guards::default(),
                creations: in_flight::Creations::default(),
                wanted: zeroing::Wanted::default(),
                checks: checks::Checks::default(),
                samples: stats::Samples::default(),
                samplers: samplers::Samplers::new("samples", samplers::STATS),
                lookers: samplers::Samplers::new("looks", samplers::LOOKS),
                tasks: TaskTracker::new(),
                keeper,
                asked: Notify::new(),
                expected: Expected::default(),
                table: Mutex::default(),
                told: LatestPolls::default(),
                suspects: Suspects::default(),
                speeds: LatestSpeeds::default(),
            }),
        }
    }

    /// The node's configuration.
    pub fn config(&self) -> &Config {
        &self.inner.config
    }

    /// What the agent keeps over a restart.
    pub fn state_dir(&self) -> &StateDir {
        &self.inner.state_dir
    }

    /// Requests SMART polls now instead of at the next interval.
    pub fn ask_drives(&self) {
        self.inner.asked.notify_one();
    }

    /// Waits until somebody wants the drives asked.
    pub async fn drives_are_to_be_asked(&self) {
        self.inner.asked.notified().await;
    }

    /// The last SMART poll of each drive.
    pub fn latest_polls(&self) -> &LatestPolls {
        &self.inner.told
    }

    /// Places of drives that were reported as unreadable.
    pub fn suspects(&self) -> &Suspects {
        &self.inner.suspects
    }

    /// The latencies of each drive in the last minute.
    pub fn latest_speeds(&self) -> &LatestSpeeds {
        &self.inner.speeds
    }

    /// The last samples of volumes in use, with their age.
    pub fn last_samples(&self) -> std::collections::HashMap<Uuid, (Usage, Duration)> {
        self.inner.samples.all()
    }

    /// The pods that each volume is published to, NAMESPACE/NAME, where the kubelet named them.
    pub fn pods(&self) -> std::collections::HashMap<Uuid, Vec<String>> {
        self.inner.expected.pods()
    }

    /// The inventory that calls read and change.
    pub fn inventory(&self) -> &Arc<Inventory> {
        &self.inner.inventory
    }

    /// The workers.
    pub fn pool(&self) -> &Pool {
        &self.inner.pool
    }

    /// Snapshots in protocol words.
    pub fn sender(&self) -> &Sender {
        &self.inner.sender
    }

    /// Waits until every running change has ended, at most this long.
    pub async fn drain(&self, limit: Duration) -> bool {
        self.inner.tasks.close();
        tokio::time::timeout(limit, self.inner.tasks.wait())
            .await
            .is_ok()
    }

    /// Runs a job for a drive. That the drive hangs is noted; the next scan that it answers takes the note away.
    async fn run<J: Job>(
        &self,
        drive: &DriveId,
        slot: Slot,
        job: J,
        limit: Duration,
    ) -> Result<J::Answer, RunError<J::Error>> {
        self.run_by(drive, drive, slot, job, limit).await
    }

    /// The same by another worker than the drive's own, for which nothing else of the drive waits.
    async fn run_by<J: Job>(
        &self,
        worker: &DriveId,
        drive: &DriveId,
        slot: Slot,
        job: J,
        limit: Duration,
    ) -> Result<J::Answer, RunError<J::Error>> {
        let done = self.inner.pool.run(worker, slot, job, limit).await;
        if let Err(error) = &done {
            self.note_stuck(drive, error);
        }
        done
    }

    /// Makes a change that nothing else of the same key is made beside, as a task of its own: the caller may go away, the
    /// change goes on.
    async fn changing<T: Send + 'static, F>(
        &self,
        key: Key,
        what: &str,
        change: impl FnOnce(Self) -> F,
    ) -> Result<T, VolumeError>
    where
        F: Future<Output = Result<T, VolumeError>> + Send + 'static,
    {
        let guard = self.held(key, what)?;
        let change = change(self.clone());
        self.tracked(async move {
            let result = change.await;
            drop(guard);
            result
        })
        .await
    }

    /// The same for a change of a volume: the guard is given to `change`, unless the caller may not have it.
    async fn changing_volume<T: Send + 'static, F>(
        &self,
        uuid: Uuid,
        what: &str,
        caller: Caller<'_>,
        change: impl FnOnce(Self, VolumeGuard) -> F,
    ) -> Result<T, VolumeError>
    where
        F: Future<Output = Result<T, VolumeError>> + Send + 'static,
    {
        let held = self.guard_volume(uuid, what, caller)?;
        self.tracked(change(self.clone(), held)).await
    }

    /// The guard, unless somebody else has it.
    fn held(&self, key: Key, what: &str) -> Result<Guard, VolumeError> {
        let guard = self.inner.guards.take(key);
        guard.ok_or_else(|| VolumeError::Pending {
            what: what.to_owned(),
        })
    }

    /// Runs a change as a task of its own.
    async fn tracked<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, VolumeError>> + Send + 'static,
    ) -> Result<T, VolumeError> {
        match self.inner.tasks.spawn(work).await {
            Ok(result) => result,
            Err(join) if join.is_panic() => Err(VolumeError::Internal {
                what: "the change panicked; see the log".to_owned(),
            }),
            Err(_) => Err(VolumeError::Stopping),
        }
    }

    /// The volume of this id, if it exists for CSI. An id of another node, or one that does not parse,
    /// is unknown.
    pub fn find(&self, id: &str) -> Option<Volume> {
        let id: drivebay_proto::VolumeId = id.parse().ok()?;
        let snapshot = self.inner.inventory.current();
        if id.node != self.inner.config.node_id {
            return None;
        }
        snapshot
            .volumes
            .get(&id.uuid)
            .filter(|volume| crate::inventory::assemble::is_live(volume.state))
            .cloned()
    }

    /// Like `find`, but an unknown id is an error: NOT_FOUND only when every drive could be read,
    /// else the volume may be on one that could not.
    fn require(&self, id: &str) -> Result<Volume, VolumeError> {
        self.find(id).ok_or_else(|| self.unknown(id))
    }

    /// Like `require`, for a call that needs the volume's drive: waits until that one was scanned, and for no other drive.
    /// UNAVAILABLE when that takes longer than `SCAN_WAIT`.
    pub async fn require_scanned(&self, id: &str) -> Result<Volume, VolumeError> {
        let found = self.after_scan(|| self.require(id)).await;
        found.and_then(|volume| match volume.state {
            VolumeState::NotScanned => Err(VolumeError::NotScanned {
                uuid: volume.uuid,
                drive: volume.drive,
            }),
            _ => Ok(volume),
        })
    }

    /// The volume that `find` finds, as soon as its drive was scanned or, if it finds none, every drive; what it finds when
    /// `SCAN_WAIT` is over.
    async fn after_scan(
        &self,
        find: impl Fn() -> Result<Volume, VolumeError>,
    ) -> Result<Volume, VolumeError> {
        let is_scanned = |found: &Result<Volume, VolumeError>| match found {
            Ok(volume) => volume.state != VolumeState::NotScanned,
            Err(_) => self.unreadable().is_none(),
        };
        let mut snapshots = self.inner.inventory.subscribe();
        let until = tokio::time::Instant::now() + SCAN_WAIT;
        loop {
            snapshots.mark_unchanged();
            let found = find();
            if is_scanned(&found) {
                return found;
            }
            let changed = tokio::time::timeout_at(until, snapshots.changed()).await;
            if !matches!(changed, Ok(Ok(()))) {
                return find();
            }
        }
    }

    /// Waits until every drive was scanned or is late with its answer. Else, after `SCAN_WAIT`, why not everything is known.
    async fn after_first_scan(&self) -> Result<(), String> {
        let mut snapshots = self.inner.inventory.subscribe();
        let ready = snapshots.wait_for(|snapshot| snapshot.ready);
        // The answer is what is known then.
        let _ = tokio::time::timeout(SCAN_WAIT, ready).await.map(drop);
        self.unreadable().map_or(Ok(()), Err)
    }

    fn unknown(&self, id: &str) -> VolumeError {
        let ours = id
            .parse::<drivebay_proto::VolumeId>()
            .is_ok_and(|id| id.node == self.inner.config.node_id);
        match self.doubt() {
            Some(why) if ours => VolumeError::CannotTell {
                id: id.to_owned(),
                why,
            },
            _ => VolumeError::NotFound { id: id.to_owned() },
        }
    }

    /// Why a volume that is not known may exist all the same.
    fn doubt(&self) -> Option<String> {
        let inventory = &self.inner.inventory;
        self.unreadable()
            .or_else(|| inventory.stranger())
            .or_else(|| inventory.unscanned())
    }

    /// Why not everything is known: the first scan is not complete.
    fn unreadable(&self) -> Option<String> {
        let snapshot = self.inner.inventory.current();
        (!snapshot.ready).then(|| "the first drive scan is not complete".to_owned())
    }

    /// Where to reach a volume's drive for a change, when it is here and its contents can be trusted.
    fn reach(&self, _held: &VolumeGuard, volume: &Volume) -> Result<DriveRef, VolumeError> {
        reach_in(&self.inner.inventory.current(), volume)
    }

    fn note_stuck<E: std::error::Error>(&self, drive: &DriveId, error: &RunError<E>) {
        if let RunError::Stuck { .. } = error {
            let text = error.trouble();
            self.inner.inventory.update(|known| {
                known.stuck.insert(drive.clone(), text);
            });
        }
    }

    /// What should be mounted.
    pub fn expected(&self) -> &Expected {
        &self.inner.expected
    }

    /// Whether a call is changing the volume just now.
    pub fn is_changing(&self, uuid: Uuid) -> bool {
        self.inner.guards.is_volume_held(uuid)
    }

    /// The mounts, as they were last read.
    pub fn mounts(&self) -> Vec<Arc<MountEntry>> {
        self.table().entries()
    }

    /// Takes in mounts that are new or gone, and publishes which volumes are in use. What was changed of others is not
    /// seen. The revision that shows it.
    pub fn refresh_mounts(&self) -> Result<u64, VolumeError> {
        self.publish_mounts(false, Table::refresh)
    }

    /// The same with every mount read again.
    pub fn reread_mounts(&self) -> Result<u64, VolumeError> {
        self.publish_mounts(true, Table::read_all)
    }

    /// The same with the mounts of volumes read again: their flags may have changed.
    pub fn reread_mounts_of_volumes(&self) -> Result<u64, VolumeError> {
        let snapshot = self.inner.inventory.current();
        let placed = || snapshot.volumes.values().map(|volume| &volume.placed);
        let numbers: HashSet<_> = placed().filter_map(|placed| placed.dev).collect();
        let names: HashSet<_> = placed()
            .filter_map(|placed| placed.device.as_deref())
            .collect();
        let is_named = |path: &Path, parent: &str| {
            let name = path.strip_prefix(parent).ok().and_then(Path::to_str);
            name.is_some_and(|name| names.contains(name))
        };
        let is_of_a_volume = |mount: &MountEntry| {
            numbers.contains(&mount.dev)
                || has_anonymous_device(&mount.fs_type)
                || (mount.fs_type == "devtmpfs" && is_named(&mount.root, "/"))
        };
        self.publish_mounts(true, |table| table.reread(is_of_a_volume))
    }

    /// Takes in one mount that was made just now: what else is mounted costs nothing. None: its id is not known.
    fn take_in_mount(&self, id: Option<u64>) -> Result<u64, VolumeError> {
        match id {
            Some(id) => self.publish_mounts(false, |table| table.take_in_one(id)),
            None => self.refresh_mounts(),
        }
    }

    /// Lets go what was known at a resolved path and is gone: what else is mounted costs nothing. How many mounts are still
    /// known there.
    fn drop_mounts_at(&self, place: &Path) -> Result<usize, VolumeError> {
        self.publish_mounts(false, |table| table.drop_gone_at(place))?;
        Ok(self.table().count_at(place))
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.inner
            .table
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// `again`: mounts that were known are read again. One that is told by its source and did not change may be of another device by
    /// now.
    fn publish_mounts(
        &self,
        again: bool,
        update: impl FnOnce(&mut Table) -> Result<Change, MountInfoError>,
    ) -> Result<u64, VolumeError> {
        let mut table = self.table();
        let mut change = update(&mut table).map_err(|source| VolumeError::Mountinfo { source })?;
        if again {
            let mounts = table.entries().into_iter();
            let by_source: Vec<_> = mounts
                .filter(|mount| has_anonymous_device(&mount.fs_type))
                .collect();
            change.gone.extend(by_source.iter().cloned());
            change.new.extend(by_source);
        }
        if change.is_empty() {
            return Ok(self.inner.inventory.current().revision);
        }
        let numbers: HashMap<u64, _> = change
            .new
            .iter()
            .filter(|mount| has_anonymous_device(&mount.fs_type))
            .filter_map(|mount| Some((mount.id, device::source_number(mount)?)))
            .collect();
        let number_of = |mount: &MountEntry| numbers.get(&mount.id).copied();
        Ok(self
            .inner
            .inventory
            .update(|known| known.mounts.apply(&change, number_of)))
    }
}

/// Where a volume's drive is reached, by what is known now: the caller may have found the volume seconds ago, before its
/// drive came back or went. Pure.
fn reach_in(snapshot: &Snapshot, volume: &Volume) -> Result<DriveRef, VolumeError> {
    let volume = snapshot.volumes.get(&volume.uuid).unwrap_or(volume);
    if volume.state == VolumeState::Ambiguous {
        return Err(VolumeError::Ambiguous {
            uuid: volume.uuid,
            why: why_ambiguous(volume),
        });
    }
    let (uuid, id) = (volume.uuid, volume.drive.clone());
    match snapshot.drives.get(&volume.drive) {
        Some(drive) if drive.state == DriveState::Claimed => {
            if volume.state == VolumeState::Missing {
                Err(VolumeError::Vanished { uuid, drive: id })
            } else {
                Ok(DriveRef::from(&drive.facts))
            }
        }
        Some(drive) if drive.state == DriveState::NotScanned => {
            Err(VolumeError::NotScanned { uuid, drive: id })
        }
        _ => Err(VolumeError::DriveAway { uuid, drive: id }),
    }
}

/// What is contradictory about an ambiguous volume: of its record and its table, or of the drives that it is on.
fn why_ambiguous(volume: &Volume) -> String {
    let of_drives = || Some(volume.conditions.first()?.message.clone());
    let of_record = volume.placed.ambiguous.clone();
    of_record.or_else(of_drives).unwrap_or_default()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use drivebay_model::{RecordState, samples};

    fn snapshot(drive: DriveState, volume: VolumeState) -> Snapshot {
        let mut snapshot = Snapshot::default();
        let drive = samples::drive("sda", drive, None);
        let placed = samples::placed(7, RecordState::New);
        let volume = Volume {
            uuid: placed.record.uuid,
            drive: drive.id.clone(),
            placed,
            copies: Vec::new(),
            state: volume,
            in_use: false,
            conditions: Vec::new(),
            since: Default::default(),
            mounts: Vec::new(),
            erasing: None,
            checks: Vec::new(),
            unreadable: Vec::new(),
        };
        snapshot.drives.insert(drive.id.clone(), drive);
        snapshot.volumes.insert(volume.uuid, volume);
        snapshot
    }

    #[test]
    fn a_volume_is_reached_and_deleted_by_what_is_known_now_and_not_when_it_was_found() {
        let away = snapshot(DriveState::Missing, VolumeState::Missing);
        let volume = away.volumes.values().next().unwrap();
        // Found while its drive was away, which is back since: it is no lost one.
        let back = snapshot(DriveState::Claimed, VolumeState::Ready);
        assert!(reach_in(&back, volume).is_ok());
        assert!(!delete::can_only_be_noted(&back, volume));
        let reached = reach_in(&away, back.volumes.values().next().unwrap());
        assert!(matches!(reached, Err(VolumeError::DriveAway { .. })));
        assert!(delete::can_only_be_noted(&away, volume));
        // Its drive was read, and it is not there.
        let lost = snapshot(DriveState::Claimed, VolumeState::Missing);
        let reached = reach_in(&lost, volume);
        assert!(matches!(reached, Err(VolumeError::Vanished { .. })));
        assert!(delete::can_only_be_noted(&lost, volume));
        // Nothing is noted of a drive that may be read again by itself.
        let silent = snapshot(DriveState::Unprobed, VolumeState::Missing);
        assert!(!delete::can_only_be_noted(&silent, volume));
    }
}
