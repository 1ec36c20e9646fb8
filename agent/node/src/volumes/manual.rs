//! Manual use of volumes on this host: mounted where an operator says, by the same steps as for CSI, and distinguished
//! from an orchestrator's mounts. Neither removes or shares what the other uses.

use std::path::{Path, PathBuf};

use drivebay_proto::VolumeId;
use uuid::Uuid;

use super::{
    VolumeError, Volumes,
    guard::{Caller, VolumeGuard},
    publish::PublishRequest,
    reach::{device_of, is_of_device},
    stage::StageRequest,
    system_places,
    unmounting::not_mounted,
};
use crate::{inventory::assemble::is_live, mounts, state::hand_mounts::HandMount};
use drivebay_fs::jobs::FsError;
use drivebay_model::{
    Mode, Secret, Snapshot, StageSecrets, Volume, cause::chain, created_for::is_manual,
};
use drivebay_sys::mountinfo::{self, MountEntry};
use drivebay_worker::RunError;

/// A manual mount, checked by the caller.
#[derive(Debug, Clone)]
pub struct HandMountRequest {
    pub path: PathBuf,
    pub flags: Vec<String>,
    pub read_only: bool,
    /// True: mounted again at each start of the host.
    pub persist: bool,
    /// File with the secret of an encrypted volume; None: not encrypted, or not a file.
    pub key_file: Option<PathBuf>,
    /// True: a persistent mount of an encrypted volume without a recovery key is accepted.
    pub no_recovery_key: bool,
}

impl Volumes {
    /// Returns the live volume of this name, uuid or id. `Invalid` if several have the name.
    pub fn find_manual(&self, what: &str) -> Result<Volume, VolumeError> {
        let snapshot = self.node.inventory().current();
        match called(&snapshot, &self.node.config().node_id, what).as_slice() {
            [volume] => Ok((*volume).clone()),
            [] => Err(self.unknown_manual(what)),
            several => {
                let uuids: Vec<String> = several.iter().map(|one| one.uuid.to_string()).collect();
                Err(VolumeError::Invalid {
                    field: "volume",
                    why: format!(
                        "several volumes are named {what:?}; name one by its uuid: {}",
                        uuids.join(", ")
                    ),
                })
            }
        }
    }

    /// Returns the error for a volume that is not found: it is NOT_FOUND only if every drive could be read.
    fn unknown_manual(&self, what: &str) -> VolumeError {
        let id = what.to_owned();
        match self.doubt() {
            Some(why) => VolumeError::CannotTell { id, why },
            None => VolumeError::NotFound { id },
        }
    }

    /// Mounts a volume at the requested path; None: at the path where it is mounted at each start of the host. `secret`: opens an encrypted
    /// volume.
    pub async fn mount_manually(
        &self,
        what: &str,
        request: Option<HandMountRequest>,
        secret: Option<Secret>,
    ) -> Result<HandMount, VolumeError> {
        let volume = self.after_scan(|| self.find_manual(what)).await?;
        let uuid = volume.uuid;
        self.changing_volume(uuid, what, Caller::Manual, |this, held| async move {
            let no_recovery_key = request.as_ref().is_some_and(|request| request.no_recovery_key);
            let mount = this.wanted(&volume, request)?;
            this.may_mount(&volume, &mount)?;
            if !no_recovery_key && this.inner.hand_mounts.of(uuid).as_ref() != Some(&mount) {
                this.has_recovery_key(&held, &volume, &mount, secret.as_ref()).await?;
            }
            let noted = |source| VolumeError::NotNoted { uuid, source };
            // Recorded first, so that the mount is never taken for an orchestrator's. Undone when the mount fails.
            let before = this.inner.hand_mounts.of(uuid);
            if before.as_ref() != Some(&mount) {
                this.inner.hand_mounts.put(mount.clone()).await.map_err(noted)?;
            }
            if let Err(error) = this.attach(&held, &volume, &mount, secret).await {
                let undone = match before {
                    Some(before) => this.inner.hand_mounts.put(before).await,
                    None => this.inner.hand_mounts.remove(uuid).await,
                };
                if let Err(error) = undone {
                    tracing::error!(volume = %uuid, error = %chain(&error), "cannot take back the note of a mount that failed");
                }
                return Err(error);
            }
            tracing::info!(volume = %uuid, path = %mount.path.display(), persist = mount.persist, "volume mounted by hand");
            Ok(mount)
        })
        .await
    }

    /// Errs if the mount is persistent and the volume encrypted, and its secret is its only key: that is read from this host at each start,
    /// and would be lost with it.
    async fn has_recovery_key(
        &self,
        held: &VolumeGuard,
        volume: &Volume,
        mount: &HandMount,
        secret: Option<&Secret>,
    ) -> Result<(), VolumeError> {
        let is_encrypted = volume.placed.record.encryption().is_some();
        let Some(secret) = secret.filter(|_| is_encrypted && mount.persist) else {
            return Ok(());
        };
        let checked = self
            .check_secret_guarded(held, volume, secret.clone())
            .await;
        let has_one = match checked {
            Ok(checked) => checked.has_recovery_key,
            // Without a header there is no key.
            Err(VolumeError::Fs(RunError::Job(FsError::Incompatible { .. }))) => false,
            Err(error) => return Err(error),
        };
        match has_one {
            true => Ok(()),
            false => Err(VolumeError::NoRecoveryKey {
                name: mount.name.clone(),
            }),
        }
    }

    /// Returns the mount to record, or errs if the request is invalid.
    fn wanted(
        &self,
        volume: &Volume,
        request: Option<HandMountRequest>,
    ) -> Result<HandMount, VolumeError> {
        let invalid = |field, why: String| VolumeError::Invalid { field, why };
        let Some(request) = request else {
            let mount = self.inner.hand_mounts.of(volume.uuid);
            return mount.filter(|mount| mount.persist).ok_or_else(|| {
                invalid(
                    "path",
                    "no mount of this volume is kept; name a directory".to_owned(),
                )
            });
        };
        let at = mountinfo::resolve(&request.path);
        let own = system_places::own_places(self.node.config());
        if let Some(why) = system_places::refusal(&at, &own, &read_mounts()?) {
            return Err(invalid("path", why));
        }
        let block = volume.placed.record.mode == Mode::Block;
        if block && !request.flags.is_empty() {
            let why = "a raw volume is not mounted as a filesystem and takes no mount options";
            return Err(invalid("mount_flags", why.to_owned()));
        }
        let is_encrypted = volume.placed.record.encryption().is_some();
        if is_encrypted && request.persist && request.key_file.is_none() {
            let why = "an encrypted volume is mounted at each start of the host with a secret from a file; name it with --key-file";
            return Err(invalid("key_file", why.to_owned()));
        }
        Ok(HandMount {
            volume: volume.uuid,
            name: volume.placed.record.name.clone(),
            path: at,
            block,
            flags: request.flags,
            read_only: request.read_only,
            persist: request.persist,
            key_file: request.key_file.filter(|_| is_encrypted && request.persist),
        })
    }

    /// Errs if the volume or the path is already used otherwise.
    fn may_mount(&self, volume: &Volume, wanted: &HandMount) -> Result<(), VolumeError> {
        let uuid = volume.uuid;
        let at = &wanted.path;
        let all = self.inner.hand_mounts.all();
        let mounts = read_mounts()?;
        let places = places(volume, &mounts);
        let other = all.iter().find(|one| one.volume != uuid && one.path == *at);
        if let Some(other) = other.filter(|one| one.persist || is_mounted(&mounts, &one.path)) {
            return Err(VolumeError::Invalid {
                field: "path",
                why: format!(
                    "{} is volume {}'s; unmount that first with `drivebay-agent volume unmount {}`",
                    at.display(),
                    other.name,
                    other.name
                ),
            });
        }
        let own = all.iter().find(|one| one.volume == uuid);
        match own {
            // A repeat, or a mount that is to persist from now on. Other users of the mount use it through this one.
            Some(own) if own.path == *at => Ok(()),
            Some(own) if own.persist || places.contains(&own.path) => {
                Err(VolumeError::MountedManually {
                    uuid,
                    at: own.path.display().to_string(),
                })
            }
            _ => match places.first() {
                // Mounted there without Drivebay, and not by a call of an orchestrator.
                Some(first)
                    if places.len() == 1
                        && first == at
                        && !self.node.expected().paths(uuid).contains(at) =>
                {
                    Ok(())
                }
                Some(first) => Err(VolumeError::MountedElsewhere {
                    uuid,
                    at: first.display().to_string(),
                }),
                None => Ok(()),
            },
        }
    }

    async fn attach(
        &self,
        held: &VolumeGuard,
        volume: &Volume,
        mount: &HandMount,
        secret: Option<Secret>,
    ) -> Result<(), VolumeError> {
        let id = volume.uuid.to_string();
        let stage = StageRequest {
            secrets: secret.map(|secret| StageSecrets {
                secret,
                previous: None,
            }),
            id: id.clone(),
            path: mount.path.clone(),
            mode: volume.placed.record.mode,
            fs_type: None,
            flags: mount.flags.clone(),
            read_only: mount.read_only,
        };
        self.stage_guarded(held, volume, stage).await?;
        if !mount.block {
            return Ok(());
        }
        let publish = PublishRequest {
            id,
            staging: PathBuf::new(),
            target: mount.path.clone(),
            mode: Mode::Block,
            fs_type: None,
            flags: Vec::new(),
            read_only: mount.read_only,
            exclusive: false,
            pod: None,
        };
        self.publish_guarded(held, volume, publish).await
    }

    /// Unmounts a manual mount, given its path, or the volume's name, uuid or id. None: there is no such mount.
    pub async fn unmount_manually(&self, what: &str) -> Result<Option<HandMount>, VolumeError> {
        let all = self.inner.hand_mounts.all();
        let at = what
            .starts_with('/')
            .then(|| mountinfo::resolve(Path::new(what)));
        let is_meant = |one: &HandMount| match &at {
            Some(at) => one.path == *at,
            None => is_called(one.volume, &one.name, &self.node.config().node_id, what),
        };
        let Some(mount) = all.into_iter().find(is_meant) else {
            return match &at {
                Some(at) => not_mounted(at).map(|()| None),
                None => self.not_manual_here(what).map(|()| None),
            };
        };
        let uuid = mount.volume;
        self.changing_volume(uuid, what, Caller::Manual, |this, held| async move {
            // Another call may have changed the record meanwhile.
            if this.inner.hand_mounts.of(uuid).as_ref() != Some(&mount) {
                return Err(VolumeError::Pending {
                    what: mount.name.clone(),
                });
            }
            let snapshot = this.node.inventory().current();
            let volume = snapshot.volumes.get(&uuid);
            let remove = mount.block;
            this.unmount_guarded(volume.map(|volume| (&held, volume)), mount.path.clone(), remove)
                .await?;
            let forgotten = this.inner.hand_mounts.remove(uuid).await;
            forgotten.map_err(|source| VolumeError::NotNoted { uuid, source })?;
            tracing::info!(volume = %uuid, path = %mount.path.display(), "volume unmounted by hand");
            Ok(Some(mount))
        })
        .await
    }

    /// Succeeds for a volume without a manual mount, unless it is mounted otherwise.
    fn not_manual_here(&self, what: &str) -> Result<(), VolumeError> {
        let volume = self.find_manual(what)?;
        match places(&volume, &read_mounts()?).first() {
            None => Ok(()),
            Some(at) => Err(VolumeError::MountedElsewhere {
                uuid: volume.uuid,
                at: at.display().to_string(),
            }),
        }
    }

    /// Returns the manual mount of a volume, if it is present or made at each start of the host.
    pub(super) fn manual_mount(&self, uuid: Uuid) -> Result<Option<HandMount>, VolumeError> {
        let Some(mount) = self.inner.hand_mounts.of(uuid) else {
            return Ok(None);
        };
        if mount.persist || is_mounted(&read_mounts()?, &mount.path) {
            return Ok(Some(mount));
        }
        // A mount that does not persist and was unmounted without Drivebay no longer counts.
        self.node.expected().forget(&mount.path);
        Ok(None)
    }

    /// True if a volume is known to have been created manually.
    pub(super) fn is_manual(&self, uuid: Uuid) -> bool {
        let snapshot = self.node.inventory().current();
        let volume = snapshot.volumes.get(&uuid);
        volume.is_some_and(|volume| is_manual(&volume.placed.record.parameters))
    }

    /// Grows the filesystem of a volume where it is mounted. False: it is not mounted, or the volume is raw.
    pub async fn grow_where_mounted(&self, volume: &Volume) -> Result<bool, VolumeError> {
        if volume.placed.record.mode == Mode::Block {
            return Ok(false);
        }
        let Some(at) = places(volume, &read_mounts()?).into_iter().next() else {
            return Ok(false);
        };
        let id = VolumeId {
            uuid: volume.uuid,
            node: self.node.config().node_id.clone(),
        };
        let grown = self.grow(id.to_string(), at, Caller::Manual).await;
        grown.map(|_| true)
    }

    /// Returns every manual mount, with true if it is present now.
    pub fn hand_mounts(&self) -> Result<Vec<(HandMount, bool)>, VolumeError> {
        let mounts = read_mounts()?;
        let all = self.inner.hand_mounts.all().into_iter();
        let with_state = all.map(|one| {
            let mounted = is_mounted(&mounts, &one.path);
            (one, mounted)
        });
        Ok(with_state.collect())
    }

    /// Loads the manual mounts that earlier agents recorded. Called before any call is served.
    pub async fn load_hand_mounts(&self) {
        self.inner.hand_mounts.load().await;
        self.inner.receipts.load().await;
    }

    /// Retries reading them if they could not be read, when due.
    pub async fn read_hand_mounts_again(&self) {
        self.inner.hand_mounts.read_again().await;
        self.inner.receipts.read_again().await;
    }
}

/// Returns the live volumes with this uuid, id or name.
fn called<'a>(snapshot: &'a Snapshot, node: &str, what: &str) -> Vec<&'a Volume> {
    let live = snapshot
        .volumes
        .values()
        .filter(|volume| is_live(volume.state));
    live.filter(|volume| is_called(volume.uuid, &volume.placed.record.name, node, what))
        .collect()
}

fn is_called(uuid: Uuid, name: &str, node: &str, what: &str) -> bool {
    let id = || what.parse::<VolumeId>();
    name == what
        || what.parse() == Ok(uuid)
        || id().is_ok_and(|id| id.uuid == uuid && id.node == node)
}

fn read_mounts() -> Result<Vec<MountEntry>, VolumeError> {
    mounts::read().map_err(VolumeError::from)
}

fn is_mounted(mounts: &[MountEntry], path: &Path) -> bool {
    !mountinfo::mounts_at(mounts, path).is_empty()
}

/// Returns the paths where the volume is mounted, or its device bound.
fn places(volume: &Volume, mounts: &[MountEntry]) -> Vec<PathBuf> {
    let Ok(device) = device_of(volume) else {
        return Vec::new();
    };
    let own = mounts
        .iter()
        .filter(|mount| is_of_device(mount, &device.name, device.dev));
    own.map(|mount| mount.mount_point.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use drivebay_model::{DriveState, RecordState, VolumeState, samples};

    fn volume(n: u128, name: &str, state: VolumeState) -> Volume {
        let mut placed = samples::placed(n, RecordState::New);
        placed.record.name = name.into();
        let drive = samples::drive("sda", DriveState::Claimed, None);
        Volume {
            state,
            ..samples::volume(&drive, placed)
        }
    }

    #[test]
    fn a_volume_is_called_by_its_whole_name_its_uuid_or_its_id_and_a_deleted_one_by_none() {
        let mut snapshot = Snapshot::default();
        let old = volume(1, "db", VolumeState::Erasing);
        let new = volume(2, "db", VolumeState::Ready);
        for one in [&old, &new] {
            snapshot.volumes.insert(one.uuid, one.clone());
        }
        let id = format!("{}@n1", new.uuid);
        for (what, count) in [
            ("db", 1),
            ("d", 0),
            ("", 0),
            (&new.uuid.to_string(), 1),
            (&id, 1),
            (&format!("{}@n2", new.uuid), 0),
            (&old.uuid.to_string(), 0),
        ] {
            let all = called(&snapshot, "n1", what);
            assert_eq!(all.len(), count, "{what}");
            assert!(all.iter().all(|one| one.uuid == new.uuid));
        }
        // Two of one name, after a drive came from another node.
        let other = volume(3, "db", VolumeState::Ready);
        snapshot.volumes.insert(other.uuid, other);
        assert_eq!(called(&snapshot, "n1", "db").len(), 2);
    }
}
