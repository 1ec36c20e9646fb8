//! ControllerExpandVolume on this node: grow the partition where it lies, or the LV. The filesystem follows in NodeExpand.

use super::{Caller, LAYOUT_DEADLINE, VolumeError, Volumes, guard::VolumeGuard};
use drivebay_layout::jobs::{Expand, LayoutError};
use drivebay_model::{
    MIB, Volume,
    units::{human_sizes, size_beside},
};
use drivebay_worker::{RunError, Slot};

impl Volumes {
    /// Grows the volume to at least `required` bytes, rounded up to whole MiB; a `limit` of 0 is none. A volume that is
    /// large enough is left unchanged. Returns it with the revision that shows it.
    pub async fn expand(
        &self,
        id: String,
        required: u64,
        limit: u64,
        caller: Caller<'_>,
    ) -> Result<(Volume, u64), VolumeError> {
        let volume = self.require_scanned(&id).await?;
        if limit != 0 && limit < required {
            return Err(VolumeError::Invalid {
                field: "limit_bytes",
                why: format!(
                    "{} is less than required_bytes {}",
                    size_beside(limit, required),
                    size_beside(required, limit)
                ),
            });
        }
        let have = volume.placed.record.size_bytes();
        if limit != 0 && have > limit {
            let [has, most] = human_sizes([have, limit]);
            return Err(VolumeError::CannotGrow {
                uuid: volume.uuid,
                needed: required,
                why: format!("it has {has} already, more than the limit of {most}"),
            });
        }
        let size =
            required
                .checked_next_multiple_of(MIB)
                .ok_or_else(|| VolumeError::CannotGrow {
                    uuid: volume.uuid,
                    needed: required,
                    why: "no drive is that large".to_owned(),
                })?;
        if have >= size {
            return Ok((volume, self.node.inventory().current().revision));
        }
        if limit != 0 && size > limit {
            return Err(VolumeError::CannotGrow {
                uuid: volume.uuid,
                needed: size,
                why: format!(
                    "sizes are multiples of 1 MiB, and the limit is {}",
                    size_beside(limit, size)
                ),
            });
        }
        self.changing_volume(volume.uuid, &id, caller, |this, held| async move {
            this.expand_guarded(&held, &volume, size).await
        })
        .await
    }

    async fn expand_guarded(
        &self,
        held: &VolumeGuard,
        volume: &Volume,
        size: u64,
    ) -> Result<(Volume, u64), VolumeError> {
        self.call_off_check(held).await;
        let (drive, _) = self.reach_settled(held, volume).await?;
        let job = Expand {
            drive,
            uuid: volume.uuid,
            size_bytes: size.saturating_add(volume.placed.record.header_bytes()),
            raw_space: self.raw_space_of(&volume.placed.record.class),
        };
        let done = self
            .node
            .run((&volume.drive, Slot::Foreground), job, LAYOUT_DEADLINE)
            .await;
        if let Err(error @ RunError::Job(LayoutError::NotZeroed { .. })) = &done {
            let who = volume.uuid.to_string();
            self.want_zeroed(&who, &volume.drive, error).await;
        }
        if let Err(RunError::Job(error)) = &done {
            self.reread_if_contradicted(volume, error).await;
        }
        let header = volume.placed.record.header_bytes();
        let done = done.map_err(|error| match error {
            RunError::Job(LayoutError::CannotGrow {
                uuid,
                needed,
                possible,
            }) => VolumeError::CannotGrow {
                uuid,
                needed: needed.saturating_sub(header),
                why: format!(
                    "drive {} has no room for that; it could grow to {} where it is",
                    volume.drive,
                    size_beside(possible.saturating_sub(header), needed)
                ),
            },
            error => error.into(),
        })?;
        self.inner.wanted.end(&volume.uuid.to_string());
        let revision = self
            .node
            .inventory()
            .put_contents(&volume.drive, done.contents);
        let current = self.node.inventory().current();
        let grown =
            current
                .volumes
                .get(&volume.uuid)
                .cloned()
                .ok_or_else(|| VolumeError::Internal {
                    what: format!("volume {} is not in the answer of its drive", volume.uuid),
                })?;
        tracing::info!(volume = %volume.uuid, bytes = grown.placed.record.size_bytes(), "volume expanded");
        Ok((grown, revision))
    }
}
