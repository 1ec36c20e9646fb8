//! CreateVolume on this node: find the volume of the name and compare it with the request, or create it.

mod attempt;
mod compare;
mod failure;
mod makeable;
mod record;
mod source;

use drivebay_csi::{Content, NewVolume, new_volume::InvalidField};

use self::{
    attempt::Attempt,
    compare::compare,
    source::{copy_source, fits},
};
use super::{
    VolumeError, Volumes,
    copies::{Original, original},
    guard::Key,
    reach::reach_in,
};
use crate::inventory::assemble::is_live;
use drivebay_fs::check_mkfs_options;
use drivebay_model::{
    ClassConfig, CopySource, FsType, Snapshot, Volume, VolumeState,
    created_for::requested as requested_parameters,
};

impl From<InvalidField> for VolumeError {
    fn from(InvalidField { field, why }: InvalidField) -> Self {
        Self::Invalid { field, why }
    }
}

/// Checks the parts of a request that only an agent can check: the mkfs options that each filesystem may have, and the
/// parameters that are reserved for Drivebay itself.
pub fn check(requested: &NewVolume) -> Result<(), VolumeError> {
    let invalid = |field: &'static str, why: String| Err(VolumeError::Invalid { field, why });
    if let Content::Mount {
        fs_type: Some(name),
        mkfs_options,
        ..
    } = &requested.content
    {
        let Some(fs_type) = FsType::parse(name) else {
            return invalid("fs_type", format!("filesystem {name:?} is not known"));
        };
        if let Err(refused) = check_mkfs_options(fs_type, mkfs_options) {
            return invalid("mkfsOptions", refused.to_string());
        }
    }
    let others = requested_parameters(&requested.parameters);
    let mut keys = requested.parameters.keys();
    match keys.find(|key| !others.contains_key(*key)) {
        Some(own) => {
            let why = format!("{own:?} is what Drivebay itself keeps with a volume");
            invalid("parameters", why)
        }
        None => Ok(()),
    }
}

/// Returns the volume of this name. An incomplete copy comes last: others supersede it. Pure.
fn named<'a>(snapshot: &'a Snapshot, name: &str) -> Option<&'a Volume> {
    let volumes = snapshot.volumes.values();
    volumes
        .filter(|volume| is_live(volume.state) && volume.placed.record.name == name)
        .min_by_key(|volume| volume.placed.record.place.is_filling())
}

impl Volumes {
    /// Creates the volume, or returns the existing one of its name, with the revision that shows it.
    pub async fn create(&self, requested: NewVolume) -> Result<(Volume, u64), VolumeError> {
        check(&requested)?;
        let name = &requested.name;
        let (key, what) = (Key::Name(name.clone()), format!("name {name:?}"));
        self.changing(key, &what, |this| async move {
            this.create_guarded(requested).await
        })
        .await
    }

    async fn create_guarded(&self, requested: NewVolume) -> Result<(Volume, u64), VolumeError> {
        let name = &requested.name;
        self.after_first_scan(name).await?;
        let class = self.class(requested.class.as_deref().unwrap_or_default())?;
        self.resolve(name).await?;
        self.undo_unfinished(name).await?;
        self.not_changing(name)?;
        // After that, so that the snapshot has the result of a change of the volume.
        let snapshot = self.node.inventory().current();
        let source = copy_source(&requested, &self.node.config().node_id)?;
        let Some(volume) = named(&snapshot, name) else {
            if let Some(failure) = self.inner.copies.take_failure(name, source) {
                return Err(failure);
            }
            let original = match source {
                Some(source) => Some(self.original(&snapshot, source, &requested)?),
                None => None,
            };
            let attempt = Attempt::new(self, &requested, class, original.as_ref()).await?;
            let (volume, revision) = attempt.run().await?;
            if !volume.placed.record.place.is_filling() {
                return Ok((volume, revision));
            }
            self.inner.copies.begin(volume.uuid);
            return self.copied(name, volume.uuid, source).await;
        };
        if volume.state == VolumeState::Missing {
            let why = reach_in(&snapshot, volume).err();
            return Err(VolumeError::ExistsAway {
                name: name.clone(),
                why: why.map_or("its drive has just come back".to_owned(), |why| {
                    why.to_string()
                }),
            });
        }
        compare(&volume.placed.record, &requested, class, source)?;
        match volume.placed.record.place.is_filling() {
            true => self.copied(name, volume.uuid, source).await,
            false => Ok((volume.clone(), snapshot.revision)),
        }
    }

    /// Returns the source of a copy, if the volume can be a copy of it.
    fn original(
        &self,
        snapshot: &Snapshot,
        source: CopySource,
        requested: &NewVolume,
    ) -> Result<Original, VolumeError> {
        let doubt = || match source {
            CopySource::Snapshot(_) => self.snapshot_doubt(),
            CopySource::Volume(_) => self.doubt(),
        };
        let origin = original(snapshot, source).map_err(|error| match error {
            VolumeError::NoSource { what } => match doubt() {
                Some(why) => VolumeError::CannotTell { id: what, why },
                None => VolumeError::NoSource { what },
            },
            error => error,
        })?;
        fits(&origin, requested)?;
        Ok(origin)
    }

    fn class(&self, name: &str) -> Result<&ClassConfig, VolumeError> {
        let classes = &self.node.config().classes;
        let class = classes.iter().find(|class| class.name == name);
        class.ok_or_else(|| {
            let names: Vec<&str> = classes.iter().map(|class| class.name.as_str()).collect();
            VolumeError::UnknownClass {
                class: name.to_owned(),
                configured: names.join(", "),
            }
        })
    }

    /// Errs with `Pending` while a call changes the volume of this name, which may be being deleted.
    fn not_changing(&self, name: &str) -> Result<(), VolumeError> {
        let snapshot = self.node.inventory().current();
        match named(&snapshot, name) {
            Some(volume) if self.is_changing(volume.uuid) => Err(VolumeError::Pending {
                what: format!("volume {}, which has the name {name:?},", volume.uuid),
            }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
