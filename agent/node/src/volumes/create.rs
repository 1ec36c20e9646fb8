//! CreateVolume on this node: compare with what has the name, try drives in the order that `placement` chooses.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use super::{
    CARVE_DEADLINE, VolumeError, Volumes,
    compare::compare,
    guard::Key,
    in_flight::StillInFlight,
    placement::{self, InFlight, Need},
    reach_in,
};
use crate::{
    inventory::assemble::is_live,
    state::{Doubt, merge::is_acknowledged},
};
use drivebay_fs::{
    kernel_options::{self, Asked},
    mkfs_trial, parse_mount_flags,
};
use drivebay_layout::{
    error::Fault,
    jobs::{CarveError, Claim, Create, Look},
};
use drivebay_model::{
    ClassConfig, CreatedFor, DriveId, DriveRef, DriveState, Label, Mode, RecordState, Snapshot,
    Volume, VolumeSpec, VolumeState,
    created_for::{keep_by_hand, keep_created_at},
};
use drivebay_sys::clock::{since_boot, unix_seconds};
use drivebay_worker::{RunError, Slot};

/// Longest a look at what a creation that was cut off has left may take.
const LOOK_DEADLINE: Duration = Duration::from_secs(20);

/// Longest a creation may wait for others before it that may take what it needs. Below the caller's own deadline.
const PLACE_DEADLINE: Duration = Duration::from_secs(30);

/// What is asked for, checked by the caller.
#[derive(Debug, Clone)]
pub struct Request {
    pub name: String,
    /// Class name.
    pub class: String,
    /// Bytes, a multiple of 1 MiB, at least the filesystem's minimum.
    pub size_bytes: u64,
    /// 0: no limit.
    pub limit_bytes: u64,
    /// Use.
    pub mode: Mode,
    /// Filesystem; None for block, or the class's default.
    pub fs_type: Option<drivebay_model::FsType>,
    /// Replaces the class's when given.
    pub mkfs_options: Option<Vec<String>>,
    /// Added to the class's.
    pub mount_options: Vec<String>,
    /// What each stage will add to them; not kept.
    pub mount_flags: Vec<String>,
    /// Volumes that belong on other drives.
    pub group: Option<placement::Group>,
    /// As given, for comparing and echoing.
    pub parameters: BTreeMap<String, String>,
    /// Kept beside the parameters.
    pub created_for: CreatedFor,
    /// By a person on this node, and not through CSI. Kept, too.
    pub by_hand: bool,
}

/// Whether a volume is known as one that was acknowledged, on a drive or while its drive is missing. One that is only recorded
/// as being created is still in doubt. Pure.
fn is_known(snapshot: &Snapshot, uuid: Uuid) -> bool {
    let volume = snapshot.volumes.get(&uuid);
    volume.is_some_and(|volume| is_acknowledged(&volume.placed.record))
}

/// The volume that has this name. Pure.
fn named<'a>(snapshot: &'a Snapshot, name: &str) -> Option<&'a Volume> {
    let mut volumes = snapshot.volumes.values();
    volumes.find(|volume| is_live(volume.state) && volume.placed.record.name == name)
}

/// A volume of this name that is recorded as being created, on a drive that is here. Pure.
fn unfinished<'a>(snapshot: &'a Snapshot, name: &str) -> Option<&'a Volume> {
    snapshot.volumes.values().find(|volume| {
        let record = &volume.placed.record;
        record.name == name
            && record.state == RecordState::Creating
            && is_live(volume.state)
            && volume.state != VolumeState::Missing
    })
}

impl Volumes {
    /// Creates the volume, or finds the one that has its name. Answers it with the revision that shows it.
    pub async fn create(&self, request: Request) -> Result<(Volume, u64), VolumeError> {
        let (key, what) = (
            Key::Name(request.name.clone()),
            format!("name {:?}", request.name),
        );
        self.changing(key, &what, |this| async move {
            this.create_guarded(request).await
        })
        .await
    }

    async fn create_guarded(&self, request: Request) -> Result<(Volume, u64), VolumeError> {
        if let Err(why) = self.after_first_scan().await {
            return Err(VolumeError::CannotTell {
                id: request.name,
                why,
            });
        }
        let class = self
            .inner
            .config
            .classes
            .iter()
            .find(|class| class.name == request.class)
            .ok_or_else(|| VolumeError::UnknownClass {
                class: request.class.clone(),
                known: self
                    .inner
                    .config
                    .classes
                    .iter()
                    .map(|class| class.name.as_str())
                    .collect::<Vec<_>>()
                    .join(", "),
            })?;
        self.resolve(&request.name).await?;
        self.undo_unfinished(&request.name).await?;
        self.not_changing(&request.name)?;
        // After that: what a change of the volume came to is in it.
        let snapshot = self.inner.inventory.current();
        if let Some(volume) = named(&snapshot, &request.name) {
            return match volume.state {
                VolumeState::Missing => Err(VolumeError::ExistsAway {
                    name: request.name,
                    why: reach_in(&snapshot, volume)
                        .err()
                        .map_or("its drive has just come back".to_owned(), |why| {
                            why.to_string()
                        }),
                }),
                _ => compare((&volume.placed.record).into(), &request, class)
                    .map(|()| (volume.clone(), snapshot.revision)),
            };
        }
        self.carve(&request, class).await
    }

    /// Refuses to compare a volume with a request while a call changes it: it may be deleted just now.
    fn not_changing(&self, name: &str) -> Result<(), VolumeError> {
        let snapshot = self.inner.inventory.current();
        match named(&snapshot, name) {
            Some(volume) if self.is_changing(volume.uuid) => Err(VolumeError::Pending {
                what: format!("volume {}, which has the name {name:?},", volume.uuid),
            }),
            _ => Ok(()),
        }
    }

    /// What the kernel refuses would fail each stage of the new volume.
    async fn ask_kernel(request: &Request, spec: &VolumeSpec) -> Result<(), VolumeError> {
        let Some(fs_type) = spec.fs_type else {
            return Ok(());
        };
        let invalid = |why: String| VolumeError::Invalid {
            field: "mount options",
            why,
        };
        let all: Vec<String> = spec
            .mount_options
            .iter()
            .chain(&request.mount_flags)
            .cloned()
            .collect();
        let flags = parse_mount_flags(&all).map_err(|error| invalid(error.to_string()))?;
        match kernel_options::ask_soon(fs_type, flags).await {
            Asked::Accepted => Ok(()),
            Asked::Refused { options, why } => Err(invalid(format!(
                "the kernel refuses {options:?} ({why}); correct mountOptions of the StorageClass, or mount-options of class {}",
                spec.class
            ))),
            Asked::NotChecked { why } => {
                tracing::debug!(reason = why, "mount options not checked before the mount");
                Ok(())
            }
        }
    }

    /// What mkfs refuses would fail the first stage of the new volume.
    async fn ask_mkfs(spec: &VolumeSpec) -> Result<(), VolumeError> {
        let Some(fs_type) = spec.fs_type.filter(|_| !spec.mkfs_options.is_empty()) else {
            return Ok(());
        };
        match mkfs_trial::refusal(fs_type, &spec.mkfs_options, spec.size_bytes).await {
            None => Ok(()),
            Some(why) => Err(VolumeError::Invalid {
                field: "mkfs options",
                why: format!(
                    "mkfs.{fs_type} refuses {:?} for {} bytes ({why}); correct mkfsOptions of the StorageClass, or mkfs-options of class {}",
                    spec.mkfs_options.join(" "),
                    spec.size_bytes,
                    spec.class
                ),
            }),
        }
    }

    /// An attempt at this name was cut off on a drive: what it left there is looked at before anything is
    /// made elsewhere, or one name could end up with two volumes. On a drive that is gone or damaged by now it is noted as
    /// deleted first, durably: it was never acknowledged, and must not reappear with the drive.
    async fn resolve(&self, name: &str) -> Result<(), VolumeError> {
        let Some(Doubt { drive: id, uuid }) = self.inner.inventory.doubt(name) else {
            return Ok(());
        };
        let snapshot = self.inner.inventory.current();
        let drive = snapshot.drives.get(&id);
        let is_open = match drive.map(|drive| drive.state) {
            Some(state) => state == DriveState::NotScanned,
            None => since_boot() < self.inner.config.boot_grace,
        };
        let here = drive.filter(|drive| drive.state != DriveState::Missing);
        if is_known(&snapshot, uuid) {
            // The doubt is older than what was read or acknowledged since, and decides nothing about that volume.
        } else if is_open {
            return Err(VolumeError::CannotTell {
                id: name.to_owned(),
                why: format!(
                    "creating it was cut off on drive {id}, which has not been scanned yet"
                ),
            });
        } else if let Some(drive) = here {
            let job = Look {
                drive: DriveRef::from(&drive.facts),
                repair: true,
            };
            match self.run(&id, Slot::Foreground, job, LOOK_DEADLINE).await {
                Ok(contents) => {
                    self.inner.inventory.put_contents(&id, contents);
                }
                // No label: the claim did not get as far as a volume.
                Err(RunError::Job(
                    CarveError::NotClaimable { .. } | CarveError::Unlabelled { .. },
                )) => {}
                Err(RunError::Job(
                    CarveError::Damaged { .. } | CarveError::NotThisDrive { .. },
                )) => {
                    let noted = self
                        .inner
                        .keeper
                        .add_unseen_tombstone(uuid, &id, name)
                        .await;
                    noted.map_err(|error| VolumeError::not_noted(uuid, error))?;
                }
                Err(error) => {
                    return Err(VolumeError::CannotTell {
                        id: name.to_owned(),
                        why: format!(
                            "creating it was cut off on drive {id}, which gives no answer ({})",
                            drivebay_model::cause::chain(&error)
                        ),
                    });
                }
            }
        } else {
            let noted = self
                .inner
                .keeper
                .add_unseen_tombstone(uuid, &id, name)
                .await;
            noted.map_err(|error| VolumeError::not_noted(uuid, error))?;
        }
        self.inner
            .inventory
            .update(|known| known.remembered.in_doubt.remove(name));
        // Before anything is answered: a doubt that came back after a restart could delete what was acknowledged since.
        self.inner.keeper.settle().await;
        self.inner.underway.end(uuid).await;
        Ok(())
    }

    /// A volume that is recorded as being created was never acknowledged, and the next repair of its drive undoes it: it
    /// is undone before its name is compared with anything, or the answer would be OK for what is then gone.
    async fn undo_unfinished(&self, name: &str) -> Result<(), VolumeError> {
        let snapshot = self.inner.inventory.current();
        let Some(drive) = unfinished(&snapshot, name).and_then(|of| snapshot.drives.get(&of.drive))
        else {
            return Ok(());
        };
        let cannot_tell = |why: String| VolumeError::CannotTell {
            id: name.to_owned(),
            why: format!("creating it was cut off on drive {}, {why}", drive.id),
        };
        let job = Look {
            drive: DriveRef::from(&drive.facts),
            repair: true,
        };
        let looked = self.run(&drive.id, Slot::Foreground, job, LOOK_DEADLINE);
        let contents = looked.await.map_err(|error| {
            let why = drivebay_model::cause::chain(&error);
            cannot_tell(format!("which gives no answer ({why})"))
        })?;
        self.inner.inventory.put_contents(&drive.id, contents);
        match unfinished(&self.inner.inventory.current(), name) {
            None => Ok(()),
            Some(_) => Err(cannot_tell("and cannot be undone yet".to_owned())),
        }
    }

    async fn carve(
        &self,
        request: &Request,
        class: &ClassConfig,
    ) -> Result<(Volume, u64), VolumeError> {
        let mut parameters = request.parameters.clone();
        let created_for = request.created_for.clone();
        created_for.keep(&request.name, &mut parameters);
        if request.by_hand {
            keep_by_hand(&mut parameters);
        }
        keep_created_at(unix_seconds(), &mut parameters);
        let mut spec = VolumeSpec {
            uuid: Uuid::nil(),
            name: request.name.clone(),
            class: class.name.clone(),
            mode: request.mode,
            fs_type: match request.mode {
                Mode::Mount => Some(request.fs_type.unwrap_or(class.fs_type)),
                Mode::Block => None,
            },
            mkfs_options: request
                .mkfs_options
                .clone()
                .unwrap_or_else(|| class.mkfs_options.clone()),
            mount_options: class
                .mount_options
                .iter()
                .chain(&request.mount_options)
                .cloned()
                .collect(),
            size_bytes: request.size_bytes,
            parameters,
            erase: class.erase,
            raw_space: class.raw_space,
            placement: class.placement,
        };
        // A repeat would be refused: so is this, before anything is made.
        if let Err(differs) = compare((&spec).into(), request, class) {
            return Err(VolumeError::Invalid {
                field: "request",
                why: format!("no volume could be as it asks: {differs}"),
            });
        }
        Self::ask_kernel(request, &spec).await?;
        Self::ask_mkfs(&spec).await?;
        let deleted = self.inner.inventory.deleted();
        let mut refused: Option<RunError<CarveError>> = None;
        let mut unzeroed: Option<RunError<CarveError>> = None;
        let mut claimed_only = self.inner.wanted.is_waiting(&request.name);
        let mut tried: BTreeSet<DriveId> = BTreeSet::new();
        let until = Instant::now() + PLACE_DEADLINE;
        let need = Need {
            class: &class.name,
            bytes: request.size_bytes,
            placement: class.placement,
            group: request.group.as_ref(),
        };
        let mut snapshots = self.inner.inventory.subscribe();
        // Of the last choice.
        let awaits_poll = AtomicBool::new(false);
        loop {
            // Before the choice: what is polled after it must not be missed.
            snapshots.borrow_and_update();
            let choose = |in_flight: &[InFlight]| {
                // One that is wiped is held.
                let now = self.inner.inventory.current();
                let excluded = |id: &DriveId| {
                    let unclaimed = now
                        .drives
                        .get(id)
                        .is_some_and(|drive| drive.state == DriveState::Available);
                    tried.contains(id)
                        || self.inner.guards.is_held(&Key::Drive(id.clone()))
                        // One that is being zeroed for it is waited for, unless another that is claimed can have it at once.
                        || ((claimed_only || unzeroed.is_some()) && unclaimed)
                };
                let choice = placement::choose(&now, need, in_flight, excluded);
                awaits_poll.store(choice.awaits_poll, Ordering::Relaxed);
                choice
            };
            let sent = self
                .inner
                .creations
                .send(
                    until,
                    request.size_bytes,
                    need.group.map(|group| group.name.as_str()),
                    choose,
                )
                .await;
            let sent = sent.map_err(|StillInFlight| VolumeError::Pending {
                what: format!("the drives of class {}", class.name),
            })?;
            let Some((candidate, _sent)) = sent else {
                if claimed_only && unzeroed.is_none() {
                    // What it waited for is not there any more.
                    claimed_only = false;
                    continue;
                }
                // An agent that stops ends the wait, too.
                if awaits_poll.load(Ordering::Relaxed)
                    && let Ok(Ok(())) = timeout_at(until, snapshots.changed()).await
                {
                    continue;
                }
                break;
            };
            tried.insert(candidate.drive.clone());
            let snapshot = self.inner.inventory.current();
            let Some(drive) = snapshot.drives.get(&candidate.drive) else {
                continue;
            };
            // One of its own for each drive that is tried: an identity is never on two.
            spec.uuid = Uuid::new_v4();
            let job = Create {
                drive: DriveRef::from(&drive.facts),
                claim: candidate.claim.then(|| Claim {
                    layout: class.layout,
                    label: Label {
                        drive_uuid: Uuid::new_v4(),
                        cluster: self.inner.config.cluster.clone(),
                        node: self.inner.config.node_id.clone(),
                        class: class.name.clone(),
                        drive_id: drive.id.clone(),
                    },
                    policy: class.claim,
                }),
                spec: spec.clone(),
                deleted: deleted.clone(),
            };
            let doubt = Doubt {
                drive: drive.id.clone(),
                uuid: spec.uuid,
            };
            let underway = &self.inner.underway;
            if let Err(error) = underway.begin(&request.name, &doubt).await {
                let what = drivebay_model::cause::chain(&error);
                return Err(VolumeError::Internal { what });
            }
            match self
                .run(&drive.id, Slot::Foreground, job, CARVE_DEADLINE)
                .await
            {
                Ok(done) => {
                    underway.end(spec.uuid).await;
                    self.inner.wanted.end(&request.name);
                    let carved = done
                        .contents
                        .volumes
                        .iter()
                        .find(|placed| {
                            placed.record.name == spec.name
                                && !matches!(placed.record.state, RecordState::Erasing { .. })
                                && !deleted.contains(&placed.record.uuid)
                        })
                        .map(|placed| placed.record.uuid);
                    let revision = self.inner.inventory.put_contents(&drive.id, done.contents);
                    let current = self.inner.inventory.current();
                    let volume = carved
                        .and_then(|uuid| current.volumes.get(&uuid))
                        .ok_or_else(|| VolumeError::Internal {
                            what: format!(
                                "volume {:?} is not in the answer of its drive",
                                spec.name
                            ),
                        })?;
                    compare((&volume.placed.record).into(), request, class)?;
                    tracing::info!(volume = %volume.uuid, name = %spec.name, drive = %drive.id, bytes = spec.size_bytes, "volume created");
                    return Ok((volume.clone(), revision));
                }
                Err(error @ RunError::Job(CarveError::NotZeroed { .. })) => {
                    underway.end(spec.uuid).await;
                    // It may have been claimed for this.
                    self.want_zeroed(&request.name, &drive.id, &error).await;
                    unzeroed.get_or_insert(error);
                }
                // Never begun on this drive, or refused with nothing changed: another may do.
                Err(
                    error @ (RunError::Stuck { .. }
                    | RunError::Busy { .. }
                    | RunError::Job(
                        CarveError::NoSpace { .. }
                        | CarveError::TableFull { .. }
                        | CarveError::NotClaimable { .. }
                        | CarveError::Busy { .. }
                        | CarveError::NotThisDrive { .. }
                        | CarveError::Locked { .. }
                        | CarveError::Unlabelled { .. }
                        | CarveError::NotErased { .. }
                        | CarveError::StillZeroed { .. }
                        | CarveError::LvmLocked { .. }
                        | CarveError::NoLvm { .. }
                        | CarveError::Host { .. }
                        | CarveError::OtherSector { .. }
                        | CarveError::Damaged { .. },
                    )),
                ) => {
                    underway.end(spec.uuid).await;
                    tracing::warn!(drive = %drive.id, error = %drivebay_model::cause::chain(&error), "drive refused a volume; trying another");
                    refused = Some(error);
                }
                // In doubt: the drive may hold the volume already. The repeat looks, also after a restart.
                Err(error) => {
                    let name = request.name.clone();
                    self.inner
                        .inventory
                        .update(|known| known.remembered.in_doubt.insert(name, doubt));
                    self.inner.keeper.settle().await;
                    return Err(VolumeError::Carve(error));
                }
            }
        }
        match unzeroed.or(refused) {
            Some(
                error @ (RunError::Stuck { .. }
                | RunError::Busy { .. }
                | RunError::Job(
                    CarveError::StillZeroed { .. } | CarveError::NotZeroed { .. },
                )),
            ) => Err(VolumeError::Carve(error)),
            // There may be room: it is the host that cannot use it.
            Some(RunError::Job(error)) if error.fault() == Fault::Host => {
                Err(VolumeError::Carve(RunError::Job(error)))
            }
            _ => {
                let now = self.inner.inventory.current();
                if let Some(group) = &request.group
                    && let Some(drives) =
                        placement::only_its_group(&now, need, |id| tried.contains(id))
                {
                    return Err(VolumeError::NoDriveApart {
                        class: class.name.clone(),
                        needed: request.size_bytes,
                        group: group.name.clone(),
                        drives,
                    });
                }
                let (largest, mut place) = placement::largest(&now, &class.name);
                place.push_str(&placement::silent(&now, &class.name));
                Err(VolumeError::NoRoom {
                    class: class.name.clone(),
                    needed: request.size_bytes,
                    largest,
                    place,
                })
            }
        }
    }
}

#[cfg(test)]
#[path = "create_tests.rs"]
mod tests;
