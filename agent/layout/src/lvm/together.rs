//! Makes the snapshots of a group hold their volumes as of one point in time. LVM created each of them before, at different times; here all
//! are restarted at once, by device-mapper alone: no process is started while a volume is suspended.
//!
//! The flocks of all drives are held, so that no other worker runs LVM on them or reads a volume as suspended. A complete snapshot is never
//! restarted. What the kernel writes for a restarted one is flushed before the job succeeds: else a power failure could leave a complete
//! record with an empty store.
//!
//! A drive is accessed only by threads that hold the lock of that drive alone: one that blocks is abandoned, and the other drives are
//! unlocked regardless.

use std::{
    collections::BTreeSet,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use uuid::Uuid;

use super::{
    aside::Aside,
    session::Session,
    suspension::{self, GroupMember, Step},
};
use crate::{
    claimed::ClaimedDrive,
    error::{LOST, LayoutError},
    jobs::{Member, SUSPENDED, TakeTogether, TakenTogether},
    open::{self, LOCK_LIMIT},
};
use drivebay_model::{Contents, DriveId, DriveRef, units::human_duration};
use drivebay_sys::{
    blockdev::BlockDev,
    dm::{self, Control, DmStatus, SnapshotStatus, Target, Writer},
};
use drivebay_worker::Context;

/// Limit of opening a drive, in addition to waiting for its lock, and of reading all drives. No volume is suspended yet.
const READ_LIMIT: Duration = Duration::from_secs(10);

/// Runs `TakeTogether`: locks all drives and reads them, and suspends no volume before all of that has succeeded.
pub(crate) fn take(
    job: &TakeTogether,
    context: &mut Context,
) -> Result<TakenTogether, LayoutError> {
    context.step("take group snapshot: lock drives");
    each_once(&job.members)?;
    let control = control()?;
    let locked = lock_all(&job.drives, LOCK_LIMIT, open::locked_within)?;
    context.step("take group snapshot: read drives");
    let members = prepare(&control, locked, &job.members)?;
    context.step("take group snapshot: suspend volumes");
    let stood = suspension::at_one_moment(members, Duration::from_millis(job.patience_ms))?;
    Ok(TakenTogether {
        suspended_ms: u64::try_from(stood.as_millis()).unwrap_or(u64::MAX),
    })
}

/// Restarts an incomplete snapshot of an encrypted volume that is open, with its mapped device suspended, whose filesystem is frozen by
/// that: LVM suspends the volume below, which freezes nothing. Errs like `take`.
pub(super) fn restart(
    dev: &Arc<BlockDev>,
    volume: Uuid,
    member: Member,
    context: &mut Context,
) -> Result<(), LayoutError> {
    context.step("restart a snapshot with the filesystem frozen");
    let uuid = member.uuid;
    let prepared = Prepared::open(&control()?, dev, volume, member);
    let prepared = prepared.map_err(|why| not_together(format!("snapshot {uuid}: {why}")))?;
    suspension::at_one_moment(vec![Arc::new(prepared)], SUSPENDED).map(drop)
}

fn control() -> Result<Arc<Control>, LayoutError> {
    let control = Control::open().map_err(|error| {
        not_together(format!(
            "device-mapper's control node does not open: {error}"
        ))
    });
    control.map(Arc::new)
}

fn not_together(why: String) -> LayoutError {
    LayoutError::NotTogether { why }
}

fn aside<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<Aside<T>, LayoutError> {
    let started = Aside::start(work);
    started.map_err(|error| not_together(format!("a thread did not start: {error}")))
}

fn no_answer(drive: &DriveId, limit: Duration) -> LayoutError {
    let limit = human_duration(limit);
    not_together(format!("drive {drive} did not answer within {limit}"))
}

/// Locks the drives with `lock`, which gets the time for which it may wait for another program: `limit` for all drives together, and
/// `READ_LIMIT` in addition for drives that do not answer. The drives must be ordered by id, so that two jobs with common drives do not
/// wait for each other.
fn lock_all<L: Send + 'static>(
    drives: &[DriveRef],
    limit: Duration,
    lock: fn(&DriveRef, Duration) -> Result<L, LayoutError>,
) -> Result<Vec<Arc<L>>, LayoutError> {
    let begun = Instant::now();
    let lock_one = |drive: &DriveRef| {
        let of = drive.clone();
        let left = limit.saturating_sub(begun.elapsed());
        let locked = aside(move || lock(&of, left))?.by(begun + limit + READ_LIMIT);
        let locked = locked.ok_or_else(|| no_answer(&drive.id, limit + READ_LIMIT))?;
        locked.map(Arc::new)
    };
    drives.iter().map(lock_one).collect()
}

/// Reads the drives, all at once, and opens the devices of their members. Errs unless each member is found once, and incomplete.
fn prepare(
    control: &Arc<Control>,
    locked: Vec<Arc<BlockDev>>,
    members: &[Member],
) -> Result<Vec<Arc<Prepared>>, LayoutError> {
    let until = Instant::now() + READ_LIMIT;
    let mut reading = Vec::new();
    for dev in locked {
        let (control, members) = (Arc::clone(control), members.to_vec());
        let id = dev.drive().id.clone();
        let read = aside(move || prepare_drive(&control, &dev, &members))?;
        reading.push((id, read));
    }
    let mut prepared: Vec<Arc<Prepared>> = Vec::new();
    for (id, read) in reading {
        let read = read.by(until).ok_or_else(|| no_answer(&id, READ_LIMIT))?;
        prepared.extend(read?);
    }
    let begun: Vec<Member> = prepared.iter().map(|one| one.member.clone()).collect();
    all_begun(members, &begun)?;
    // Drives that are copies of each other have the same devices.
    each_once(&begun)?;
    Ok(prepared)
}

/// Prepares the members whose incomplete snapshots are on this drive; leaves out the others.
fn prepare_drive(
    control: &Arc<Control>,
    dev: &Arc<BlockDev>,
    members: &[Member],
) -> Result<Vec<Arc<Prepared>>, LayoutError> {
    let contents = Session::open(dev, false)?.contents()?;
    let begun = incomplete(&contents).into_iter();
    let begun = begun.filter(|(_, member)| members.contains(member));
    begun
        .map(|(volume, member)| {
            let (id, uuid) = (&dev.drive().id, member.uuid);
            let prepared = Prepared::open(control, dev, volume, member);
            prepared
                .map(Arc::new)
                .map_err(|why| not_together(format!("snapshot {uuid} on drive {id}: {why}")))
        })
        .collect()
}

/// Errs without members, and if two have the same volume: a volume that is suspended twice would be resumed too early.
fn each_once(members: &[Member]) -> Result<(), LayoutError> {
    let origins: BTreeSet<&str> = members.iter().map(|one| one.origin.as_str()).collect();
    match origins.len() {
        0 => Err(not_together("it has no members".to_owned())),
        count if count < members.len() => {
            Err(not_together("a volume is in it more than once".to_owned()))
        }
        _ => Ok(()),
    }
}

/// Returns the incomplete snapshots of groups on a drive, each with its volume. Pure.
fn incomplete(contents: &Contents) -> Vec<(Uuid, Member)> {
    let volumes = contents.volumes.iter();
    let all = volumes.flat_map(|placed| placed.snapshots.iter().map(move |one| (placed, one)));
    all.filter(|(_, one)| !one.record.is_complete && one.record.group.is_some())
        .filter_map(|(placed, one)| {
            let member = Member {
                uuid: one.record.uuid,
                origin: placed.dm_uuid.clone()?,
                snapshot: one.dm_uuid.clone(),
                mapping: placed.mapping_uuid(),
            };
            Some((placed.record.uuid, member))
        })
        .collect()
}

/// Errs if a member is not in `begun`. A complete snapshot never is: it may be an acknowledged backup, and would be lost. Pure.
fn all_begun(members: &[Member], begun: &[Member]) -> Result<(), LayoutError> {
    match members.iter().find(|member| !begun.contains(member)) {
        None => Ok(()),
        Some(member) => Err(not_together(format!(
            "the drives have no incomplete snapshot {} of a group",
            member.uuid
        ))),
    }
}

/// Status and tables of a member's devices, from device-mapper.
#[derive(Debug, Clone)]
struct Devices {
    origin: DmStatus,
    origin_table: Target,
    mapping: Option<DmStatus>,
    /// Holds the bytes of the volume.
    real: DmStatus,
    snapshot: DmStatus,
    snapshot_table: Target,
    store: DmStatus,
}

impl Devices {
    fn read(control: &Control, member: &Member) -> Result<Self, String> {
        let status = |uuid: &str| {
            let status = control.status(uuid);
            let status =
                status.map_err(|error| format!("asking for device {uuid} failed: {error}"))?;
            status.ok_or_else(|| format!("the kernel has no device {uuid}"))
        };
        let table = |uuid: &str| {
            let table = control.table(uuid);
            table.map_err(|error| format!("reading the table of {uuid} failed: {error}"))
        };
        Ok(Self {
            origin: status(&member.origin)?,
            origin_table: table(&member.origin)?,
            mapping: member.mapping.as_deref().map(status).transpose()?,
            real: status(&format!("{}-real", member.origin))?,
            snapshot: status(&member.snapshot)?,
            snapshot_table: table(&member.snapshot)?,
            store: status(&format!("{}-cow", member.snapshot))?,
        })
    }

    /// Returns the chunk size of the snapshot's store, bytes. Errs unless the snapshot is one of the volume and no device is suspended.
    /// Pure.
    fn chunk_bytes(&self) -> Result<u64, String> {
        let all = [&self.origin, &self.real, &self.snapshot, &self.store];
        let mut all = all.into_iter().chain(&self.mapping);
        if let Some(one) = all.find(|one| one.suspended) {
            return Err(format!(
                "{} is suspended by another program already; see `dmsetup info`",
                one.name
            ));
        }
        let number = |device: &DmStatus| format!("{}:{}", device.dev.0, device.dev.1);
        let (real, store) = (number(&self.real), number(&self.store));
        let Target { kind, params, .. } = &self.origin_table;
        if kind != "snapshot-origin" || params.trim() != real {
            let name = &self.origin.name;
            return Err(format!(
                "{name} has the table `{kind} {params}`, which stores nothing in a snapshot"
            ));
        }
        let Target { kind, params, .. } = &self.snapshot_table;
        let words: Vec<&str> = params.split_whitespace().collect();
        let sectors = match words.as_slice() {
            [of, on, "P" | "PO", sectors, ..]
                if kind == "snapshot" && *of == real && *on == store =>
            {
                sectors.parse::<u64>().ok()
            }
            _ => None,
        };
        match sectors {
            // From 4 to 512 KiB, which is what LVM makes.
            Some(sectors @ 8..=1024) => Ok(sectors * 512),
            _ => Err(format!(
                "{} has the table `{kind} {params}`, which is not that of a snapshot of {}",
                self.snapshot.name, self.origin.name
            )),
        }
    }
}

/// A member with everything opened that is needed while its volume is suspended.
struct Prepared {
    control: Arc<Control>,
    member: Member,
    /// Volume, device and drive, for messages.
    name: String,
    snapshot_table: Target,
    /// Table with the target `error`, as long as the snapshot's table: all I/O to it fails.
    error_table: Target,
    store: Writer,
    chunk_bytes: u64,
    /// True while the mapped device is suspended and the volume is not, because suspending that failed.
    is_half_suspended: AtomicBool,
    /// Keeps the drive locked.
    _dev: Arc<BlockDev>,
}

impl Prepared {
    fn open(
        control: &Arc<Control>,
        dev: &Arc<BlockDev>,
        volume: Uuid,
        member: Member,
    ) -> Result<Self, String> {
        let devices = Devices::read(control, &member)?;
        let chunk_bytes = devices.chunk_bytes()?;
        let DmStatus {
            kernel_name,
            dev: number,
            uuid,
            ..
        } = &devices.store;
        let store = Writer::open(kernel_name, *number, uuid);
        Ok(Self {
            control: Arc::clone(control),
            name: format!(
                "volume {volume} ({}) on drive {}",
                devices.origin.name,
                dev.drive().id
            ),
            error_table: Target {
                sectors: devices.snapshot_table.sectors,
                kind: "error".to_owned(),
                params: String::new(),
            },
            snapshot_table: devices.snapshot_table,
            store: store.map_err(|error| format!("its store does not open: {error}"))?,
            chunk_bytes,
            is_half_suspended: AtomicBool::new(false),
            member,
            _dev: Arc::clone(dev),
        })
    }
}

impl GroupMember for Prepared {
    fn name(&self) -> &str {
        &self.name
    }

    fn devices(&self) -> [&str; 2] {
        [&self.member.origin, &self.member.snapshot]
    }

    fn above(&self) -> Option<&str> {
        self.member.mapping.as_deref()
    }

    fn suspend(&self) -> io::Result<()> {
        let Some(mapping) = self.above() else {
            return self.control.suspend(&self.member.origin);
        };
        self.control.suspend(mapping)?;
        let suspended = self.control.suspend(&self.member.origin);
        self.is_half_suspended
            .store(suspended.is_err(), Ordering::SeqCst);
        suspended
    }

    fn undo_suspend(&self) -> io::Result<()> {
        match (self.above(), self.is_half_suspended.load(Ordering::SeqCst)) {
            (Some(mapping), true) => self.control.resume(mapping),
            _ => Ok(()),
        }
    }

    fn is_suspended(&self) -> io::Result<bool> {
        for device in self
            .above()
            .into_iter()
            .chain([self.member.origin.as_str()])
        {
            let status = self.control.status(device)?;
            if !status.is_some_and(|status| status.suspended) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn resume(&self) -> io::Result<()> {
        let resumed = self.control.resume(&self.member.origin);
        let above = self.above().map(|mapping| self.control.resume(mapping));
        resumed.and(above.unwrap_or(Ok(())))
    }

    fn step(&self, step: Step) -> io::Result<()> {
        let snapshot = &self.member.snapshot;
        match step {
            Step::LoadError => self
                .control
                .load(snapshot, std::slice::from_ref(&self.error_table)),
            Step::DropOld | Step::Begin => self.control.resume(snapshot),
            Step::EmptyStore => self.store.zero(0, self.chunk_bytes),
            Step::LoadSnapshot => self
                .control
                .load(snapshot, std::slice::from_ref(&self.snapshot_table)),
        }
    }

    fn give_up(&self) -> io::Result<()> {
        // The active table may be the one that fails all I/O; LVM replaces it when the snapshot is deleted.
        let cleared = self.control.clear(&self.member.snapshot);
        // If swapping the table failed, the kernel left the device suspended; otherwise this has no effect. A table that could not be
        // cleared is put in use by it, and the snapshot is deleted as incomplete either way.
        self.control.resume(&self.member.snapshot).and(cleared)
    }

    fn confirm(&self) -> Result<(), String> {
        let failed = |why: &str| Err(format!("the snapshot of {}: {why}", self.name));
        if let Err(error) = self.store.flush() {
            return failed(&format!("flushing its store failed: {error}"));
        }
        match dm::snapshot_status(&self.member.snapshot) {
            Ok(Some(SnapshotStatus::Valid { .. })) => Ok(()),
            Ok(Some(SnapshotStatus::Lost)) => failed(LOST),
            Ok(None) => failed("its device is gone"),
            Err(error) => failed(&format!("reading its status failed: {error}")),
        }
    }
}

#[cfg(test)]
#[path = "together_tests.rs"]
mod tests;
