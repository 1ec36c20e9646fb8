//! CreateVolume on this node: compare with what has the name, try drives in the order that `placement` chooses.

mod compare;
mod makeable;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use self::{compare::compare, makeable::smallest_sector};
use super::{
    CARVE_DEADLINE, VolumeError, Volumes,
    guard::Key,
    in_flight::StillInFlight,
    placement::{self, InFlight, Need},
    reach_in,
};
use crate::{inventory::assemble::is_live, state::Doubt};
use drivebay_layout::{
    error::Fault,
    jobs::{CarveError, Claim, Create},
};
use drivebay_model::{
    ClassConfig, CreatedFor, DriveId, DriveRef, DriveState, Label, Mode, RecordState, Snapshot,
    Volume, VolumeSpec, VolumeState,
    created_for::{keep_by_hand, keep_created_at},
};
use drivebay_sys::clock::unix_seconds;
use drivebay_worker::{RunError, Slot};

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

/// The volume that has this name. Pure.
fn named<'a>(snapshot: &'a Snapshot, name: &str) -> Option<&'a Volume> {
    let mut volumes = snapshot.volumes.values();
    volumes.find(|volume| is_live(volume.state) && volume.placed.record.name == name)
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
        let sector = smallest_sector(&self.inner.inventory.current(), &class.name);
        Self::ask_mkfs(&spec, sector).await?;
        let deleted = self.inner.inventory.deleted();
        let mut refused: Option<RunError<CarveError>> = None;
        let mut unzeroed: Option<RunError<CarveError>> = None;
        let mut unformattable: Option<VolumeError> = None;
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
            let own = drive.facts.logical_sector;
            if own != sector
                && let Err(error) = Self::ask_mkfs(&spec, own).await
            {
                unformattable.get_or_insert(error);
                continue;
            }
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
            None if let Some(error) = unformattable => Err(error),
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
mod tests;
