//! Filesystem checks alongside other operations on volumes: one per drive, none while a call holds the volume, and
//! cancelled at once when a call needs it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{
    VolumeError, Volumes,
    guard::{Key, VolumeGuard},
    reach::reach_in,
};
use drivebay_fs::check::{
    job::{Check, CheckError, CheckReport, How, StopScrub},
    plan::Plan,
};
use drivebay_layout::jobs::{MakeSnapshot, ReadDrive};
use drivebay_model::{
    CheckMethod, CheckOutcome, DriveId, DriveRef, FsType, Inconclusive, LastCheck, RecordState,
    RunningCheck, Volume, cause::chain,
};
use drivebay_sys::clock::unix_seconds;
use drivebay_worker::{Job, RunError, Slot, WorkerKey};

/// Longest time for which a call waits for a cancelled check to release its volume; after that the call continues.
const LET_GO: Duration = Duration::from_secs(5);
/// Interval between attempts to cancel a check that has not begun yet.
const AGAIN: Duration = Duration::from_millis(100);
/// Longest time for cancelling a scrub, which has to wait for its outstanding requests.
const STOP_SCRUB: Duration = Duration::from_secs(3);
/// Longest time for taking a snapshot: short, but after everything that is still to be written to the volume.
const MAKE: Duration = Duration::from_secs(300);
/// Longest time for parting snapshots from their volumes: short each, but after everything that is still to be written to the volume.
const PART: Duration = Duration::from_secs(600);
/// The worker ends a check at the operator's limit; the agent cancels it this much later.
const GRACE: Duration = Duration::from_secs(30);

/// Running and requested checks, and recorded events that were not read yet.
#[derive(Debug, Default)]
pub struct Checks(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    running: BTreeMap<Uuid, Running>,
    /// Volumes unmounted since the last call of `unmounted`: a use may be shorter than the time between two calls.
    unmounted: BTreeSet<Uuid>,
    /// Drives recorded by `note_litter` since the last call of `littered`.
    littered: BTreeSet<DriveId>,
    requested: BTreeMap<Uuid, oneshot::Sender<Option<LastCheck>>>,
}

/// A check that the inventory shows as running, until this is dropped.
struct Shown<'a> {
    volumes: &'a Volumes,
    uuid: Uuid,
}

impl<'a> Shown<'a> {
    fn new(volumes: &'a Volumes, uuid: Uuid, method: CheckMethod) -> Self {
        let running = RunningCheck {
            since: unix_seconds(),
            method,
        };
        let inventory = volumes.node.inventory();
        inventory.update(|state| state.checking.insert(uuid, running));
        Self { volumes, uuid }
    }
}

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        let inventory = self.volumes.node.inventory();
        inventory.update(|state| state.checking.remove(&self.uuid));
    }
}

/// A check that has begun.
#[derive(Debug, Clone)]
struct Running {
    drive: DriveId,
    /// Name of the job, for the log.
    job: &'static str,
    /// Cancelled to end the check.
    stop: CancellationToken,
    /// Cancelled once the check no longer uses the volume.
    let_go: CancellationToken,
}

impl Checks {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Registration of a running check; dropping it removes the check.
pub(super) struct Place<'a> {
    checks: &'a Checks,
    uuid: Uuid,
    running: Running,
}

impl Place<'_> {
    /// Waits until the check is to end.
    pub(super) async fn stopped(&self) {
        self.running.stop.cancelled().await;
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.running.let_go.cancel();
        self.checks.lock().running.remove(&self.uuid);
    }
}

/// Result of a check that has begun.
#[derive(Debug)]
pub struct Ended {
    /// None when the check was cancelled, which is no result.
    pub result: Option<LastCheck>,
    /// True: a snapshot may be attached to its volume still.
    pub litter: bool,
}

impl Volumes {
    /// Requests a check of a volume, whatever its schedule, and waits for the result. Errs with `Pending` if another
    /// request for it is waiting, or the check was cancelled or timed out; with `Invalid` if the volume has no
    /// filesystem that was ever mounted.
    pub async fn check_now(&self, id: &str) -> Result<LastCheck, VolumeError> {
        let full = match id.parse::<Uuid>() {
            Ok(uuid) => format!("{uuid}@{}", self.node.config().node_id),
            Err(_) => id.to_owned(),
        };
        let volume = self.require_scanned(&full).await?;
        reach_in(&self.node.inventory().current(), &volume)?;
        let mounted = matches!(
            volume.placed.record.state,
            RecordState::Fs { mounted: true, .. }
        );
        if !mounted {
            return Err(VolumeError::Invalid {
                field: "volume_id",
                why: format!(
                    "volume {full} has no filesystem that was ever used; there is nothing to check"
                ),
            });
        }
        let pending = || VolumeError::Pending {
            what: format!("a check of {full}"),
        };
        let answer = {
            let mut state = self.inner.checks.lock();
            state.requested.retain(|_, sender| !sender.is_closed());
            if state.requested.contains_key(&volume.uuid) {
                return Err(pending());
            }
            let (sender, answer) = oneshot::channel();
            state.requested.insert(volume.uuid, sender);
            answer
        };
        let limit = self.node.config().checks.timeout + PART;
        match tokio::time::timeout(limit, answer).await {
            Ok(Ok(Some(check))) => Ok(check),
            _ => Err(pending()),
        }
    }

    /// Records that a volume was unmounted.
    pub(super) fn note_unmounted(&self, volume: Uuid) {
        self.inner.checks.lock().unmounted.insert(volume);
    }

    /// Records that a drive may have a snapshot that is to be parted from its volume, or a volume that is suspended.
    pub(super) fn note_litter(&self, drive: &DriveId) {
        self.inner.checks.lock().littered.insert(drive.clone());
    }

    /// Returns and clears the drives recorded by `note_litter`.
    pub fn littered(&self) -> BTreeSet<DriveId> {
        std::mem::take(&mut self.inner.checks.lock().littered)
    }

    /// Returns and clears the volumes recorded by `note_unmounted`.
    pub fn unmounted(&self) -> BTreeSet<Uuid> {
        std::mem::take(&mut self.inner.checks.lock().unmounted)
    }

    /// True if a request waits for a check of the volume.
    pub fn is_check_requested(&self, volume: Uuid) -> bool {
        let state = self.inner.checks.lock();
        let sender = state.requested.get(&volume);
        sender.is_some_and(|sender| !sender.is_closed())
    }

    /// Answers the request for a check of the volume; None: it was cancelled.
    pub fn answer_check(&self, volume: Uuid, check: Option<LastCheck>) {
        if let Some(sender) = self.inner.checks.lock().requested.remove(&volume) {
            // The requester may have stopped waiting.
            let _ = sender.send(check);
        }
    }

    /// Cancels a check of the volume, for the holder of its guard. Returns when the check has released the volume, or
    /// after `LET_GO`: if it cannot be ended the drive does not respond, which the call then meets itself.
    pub(super) async fn call_off_check(&self, held: &VolumeGuard) {
        let volume = held.uuid();
        let running = self.inner.checks.lock().running.get(&volume).cloned();
        let Some(running) = running else { return };
        tracing::info!(%volume, drive = %running.drive, job = running.job, "filesystem check cancelled; its volume is needed");
        running.stop.cancel();
        if tokio::time::timeout(LET_GO, running.let_go.cancelled())
            .await
            .is_err()
        {
            tracing::warn!(%volume, drive = %running.drive, "cancelled filesystem check still holds its volume; operations on the volume may fail");
        }
    }

    /// Returns the drives on which a check runs.
    pub fn checked_drives(&self) -> BTreeSet<DriveId> {
        let state = self.inner.checks.lock();
        let running = state.running.values();
        running.map(|running| running.drive.clone()).collect()
    }

    /// Cancels every check, without waiting for it.
    pub fn call_off_checks(&self) {
        for running in self.inner.checks.lock().running.values() {
            running.stop.cancel();
        }
    }

    /// Registers a check. None while a call holds the volume (unless the caller does: `held`), or its drive is held or
    /// being checked. A call that takes the guard later finds the check here and cancels it.
    pub(super) fn begin_check(
        &self,
        volume: &Volume,
        job: &'static str,
        held: Option<&VolumeGuard>,
    ) -> Option<Place<'_>> {
        let checks = &self.inner.checks;
        let mut state = checks.lock();
        let guards = &self.inner.guards;
        if (held.is_none() && guards.is_volume_held(volume.uuid))
            || guards.is_held(&Key::Drive(volume.drive.clone()))
            || state
                .running
                .values()
                .any(|running| running.drive == volume.drive)
        {
            return None;
        }
        let running = Running {
            drive: volume.drive.clone(),
            job,
            stop: CancellationToken::new(),
            let_go: CancellationToken::new(),
        };
        state.running.insert(volume.uuid, running.clone());
        Some(Place {
            checks,
            uuid: volume.uuid,
            running,
        })
    }

    /// Checks a volume as planned. None: the check could not begin now.
    pub async fn check(
        &self,
        volume: &Volume,
        drive: &DriveRef,
        fs_type: FsType,
        plan: &Plan,
    ) -> Option<Ended> {
        let (how, method) = match plan {
            Plan::Not { why } => {
                let outcome = CheckOutcome::NotCheckable { why: why.clone() };
                return Some(Ended {
                    result: Some(finished(None, String::new(), outcome, Instant::now())),
                    litter: false,
                });
            }
            Plan::Unmounted => (How::Unmounted, CheckMethod::Unmounted),
            Plan::Snapshot { .. } => (How::Snapshot, CheckMethod::Snapshot),
            Plan::Scrub { at } => (How::Scrub { at: at.clone() }, CheckMethod::Scrub),
            Plan::Repeated { runs } => (How::Repeated { runs: *runs }, CheckMethod::Repeated),
        };
        let place = self.begin_check(volume, Check::NAME, None)?;
        let shown = Shown::new(self, volume.uuid, method);
        let began = Instant::now();
        let job = Check {
            drive: drive.clone(),
            uuid: volume.uuid,
            fs_type,
            how,
            limit_ms: u64::try_from(self.node.config().checks.timeout.as_millis())
                .unwrap_or(u64::MAX),
        };
        let report = match plan {
            Plan::Snapshot { bytes } => match self.snapshot(drive, volume, *bytes).await {
                Ok(()) => self.run_check(&place, job).await,
                Err(outcome) => Some(CheckReport {
                    tool: String::new(),
                    outcome,
                }),
            },
            _ => self.run_check(&place, job).await,
        };
        // Whoever waits for the end of the check sees that it no longer runs.
        drop(shown);
        place.running.let_go.cancel();
        let litter = matches!(plan, Plan::Snapshot { .. }) && !self.part_snapshots(drive).await;
        Some(Ended {
            result: report
                .map(|CheckReport { tool, outcome }| finished(Some(method), tool, outcome, began)),
            litter,
        })
    }

    async fn snapshot(
        &self,
        drive: &DriveRef,
        volume: &Volume,
        bytes: u64,
    ) -> Result<(), CheckOutcome> {
        let job = MakeSnapshot {
            drive: drive.clone(),
            uuid: volume.uuid,
            bytes,
        };
        // Not to be interrupted, and short.
        let worker = WorkerKey::from((&drive.id, Slot::Check));
        let made = match volume.placed.mapping_uuid() {
            Some(_) => self.run_suspending(worker, job, MAKE, None).await,
            None => self.node.run(worker, job, MAKE).await,
        };
        match made {
            Ok(contents) => {
                self.node.inventory().put_contents(&drive.id, contents);
                Ok(())
            }
            Err(error) => Err(CheckOutcome::inconclusive(
                Inconclusive::CannotOpen,
                format!("no snapshot could be made: {}", chain(&error)),
            )),
        }
    }

    /// Parts the snapshots that checks and deletions left from their volumes; `erase_all` erases them. False: some are not parted yet, and
    /// it is to be repeated.
    pub async fn part_snapshots(&self, drive: &DriveRef) -> bool {
        let job = ReadDrive {
            drive: drive.clone(),
            repair: true,
        };
        match self.node.run((&drive.id, Slot::Check), job, PART).await {
            Ok(contents) => {
                let bytes = contents.unmarked_bytes;
                self.node.inventory().put_contents(&drive.id, contents);
                if bytes > 0 {
                    tracing::warn!(drive = %drive.id, bytes, "snapshots not marked for erasing yet; will retry");
                }
                bytes == 0
            }
            Err(RunError::Stopping) => false,
            Err(error) => {
                tracing::warn!(drive = %drive.id, error = %chain(&error), "cannot mark snapshots for erasing; will retry");
                false
            }
        }
    }

    /// Runs the tool. None: it has no result, for example because it was cancelled.
    async fn run_check(&self, place: &Place<'_>, job: Check) -> Option<CheckReport> {
        if place.running.stop.is_cancelled() {
            return None;
        }
        let drive = place.running.drive.clone();
        let fs_type = job.fs_type;
        let scrubbed = match &job.how {
            How::Scrub { at } => Some(at.clone()),
            _ => None,
        };
        let pool = self.node.pool();
        let limit = self.node.config().checks.timeout + GRACE;
        let mut run = std::pin::pin!(self.node.run((&drive, Slot::Check), job, limit));
        let result = tokio::select! {
            // The run first: from then on there is a job to cancel.
            biased;
            result = &mut run => result,
            () = place.running.stop.cancelled() => {
                loop {
                    if let Some(at) = &scrubbed {
                        // Killing the waiting process does not end the kernel's scrub.
                        let stop = StopScrub {
                            fs_type,
                            at: at.clone(),
                        };
                        if let Err(error) = self.node.run((&drive, Slot::Background), stop, STOP_SCRUB).await {
                            tracing::warn!(%drive, error = %chain(&error), "cannot cancel scrub; it may continue");
                        }
                    }
                    pool.cancel((&drive, Slot::Check)).await;
                    if tokio::time::timeout(AGAIN, &mut run).await.is_ok() {
                        return None;
                    }
                }
            }
        };
        let outcome = match result {
            Ok(report) => return Some(report),
            Err(RunError::Cancelled { .. } | RunError::Stopping) => return None,
            Err(RunError::Job(CheckError::Alone { .. })) => return None,
            Err(error @ RunError::Deadline { .. }) => {
                CheckOutcome::inconclusive(Inconclusive::TimedOut, chain(&error))
            }
            Err(error @ RunError::Worker { .. }) => {
                CheckOutcome::inconclusive(Inconclusive::Killed, chain(&error))
            }
            Err(error) => CheckOutcome::inconclusive(Inconclusive::CannotOpen, error.trouble()),
        };
        Some(CheckReport {
            tool: String::new(),
            outcome,
        })
    }
}

fn finished(
    method: Option<CheckMethod>,
    tool: String,
    outcome: CheckOutcome,
    began: Instant,
) -> LastCheck {
    LastCheck {
        at: unix_seconds(),
        method,
        tool,
        outcome,
        took_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
    }
}
