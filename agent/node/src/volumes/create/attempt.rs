//! One creation: tries drives in the order of `placement`, one after the other, until one has the volume.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use drivebay_csi::NewVolume;
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use super::{
    super::{
        LAYOUT_DEADLINE, VolumeError, Volumes,
        copies::Original,
        guard::Key,
        in_flight::{Sent, StillInFlight},
        placement::{self, Candidate, Choice, Group, InFlight, Need},
    },
    compare::compare,
    failure::{Failures, Next, next},
    makeable::{check_host, check_mkfs, check_mount_options, smallest_sector},
    record::record,
};
use crate::state::Doubt;
use drivebay_layout::jobs::{Changed, Claim, Create, LayoutError};
use drivebay_model::{
    ClassConfig, CopySource, CreatedFor, Drive, DriveId, DriveRef, DriveState, Label, Record,
    RecordState, Volume, VolumeState, cause::chain,
};
use drivebay_sys::clock::unix_seconds;
use drivebay_worker::{RunError, Slot};

/// Longest time for which a creation waits for earlier ones that may take the space it needs. Below the caller's own
/// deadline.
const PLACE_DEADLINE: Duration = Duration::from_secs(30);

/// A creation, with the results of the drives that were tried.
pub(super) struct Attempt<'a> {
    volumes: &'a Volumes,
    requested: &'a NewVolume,
    class: &'a ClassConfig,
    group: Option<Group>,
    /// Record as it is sent to a drive, each time with another identity.
    record: Record,
    /// Logical sector size in bytes for which mkfs accepts the options.
    sector: u32,
    deleted: Vec<Uuid>,
    until: Instant,
    tried: BTreeSet<DriveId>,
    /// True: space of a claimed drive is being zeroed for the volume, so no further drive is claimed for it.
    claimed_only: bool,
    source: Option<CopySource>,
    failures: Failures,
}

impl<'a> Attempt<'a> {
    /// Prepares a creation. Errs if the volume could be created nowhere, or if a repeat of the request would be
    /// refused.
    pub(super) async fn new(
        volumes: &'a Volumes,
        requested: &'a NewVolume,
        class: &'a ClassConfig,
        original: Option<&Original>,
    ) -> Result<Self, VolumeError> {
        let (created_for, dropped) = CreatedFor::from(requested.created_for.clone()).checked();
        if !dropped.is_empty() {
            tracing::warn!(
                name = requested.name,
                fields = dropped.join(", "),
                "claim metadata is not valid in Kubernetes or Nomad; volume is created without it"
            );
        }
        let mut record = record(
            requested,
            created_for,
            class,
            unix_seconds(),
            Uuid::new_v4(),
        );
        if let Some(original) = original {
            original.apply(&mut record);
        }
        let source = original.map(|original| original.source);
        if let Err(differs) = compare(&record, requested, class, source) {
            return Err(VolumeError::Invalid {
                field: "request",
                why: format!("no volume could be as it asks: {differs}"),
            });
        }
        check_host(&record, source.is_some()).await?;
        check_mount_options(&requested.content, &record).await?;
        let inventory = volumes.node.inventory();
        let sector = smallest_sector(&inventory.current(), &class.name);
        check_mkfs(&record, sector).await?;
        Ok(Self {
            volumes,
            requested,
            class,
            group: Group::of(&requested.parameters),
            record,
            sector,
            deleted: inventory.deleted(),
            until: Instant::now() + PLACE_DEADLINE,
            tried: BTreeSet::new(),
            claimed_only: volumes.inner.wanted.is_waiting(&requested.name),
            source,
            failures: Failures::default(),
        })
    }

    /// Tries drives until one has the volume. Returns it, with the revision that shows it.
    pub(super) async fn run(mut self) -> Result<(Volume, u64), VolumeError> {
        let inventory = self.volumes.node.inventory();
        let mut snapshots = inventory.subscribe();
        loop {
            // Before the choice: a poll after it must not be missed.
            snapshots.borrow_and_update();
            // Result of the last choice.
            let awaits_poll = AtomicBool::new(false);
            if let Some((candidate, _sent)) = self.choose(&awaits_poll).await? {
                if let Some(created) = self.try_drive(candidate).await? {
                    return Ok(created);
                }
            } else if self.claimed_only && self.failures.unzeroed.is_none() {
                // The space it waited for is not available any more.
                self.claimed_only = false;
            } else if awaits_poll.into_inner()
                && let Ok(Ok(())) = timeout_at(self.until, snapshots.changed()).await
            {
                // Stopping the agent ends the wait, too.
            } else {
                let now = inventory.current();
                let need = need(self.class, &self.record, self.group.as_ref());
                return Err(self.failures.answer(&now, need, &self.tried));
            }
        }
    }

    /// Returns the best drive that is left. The volume counts as sent there until the `Sent` is dropped.
    async fn choose(
        &self,
        awaits_poll: &AtomicBool,
    ) -> Result<Option<(Candidate, Sent)>, VolumeError> {
        let inner = &self.volumes.inner;
        let group = self.group.as_ref();
        let claimed_only = self.claimed_only || self.failures.unzeroed.is_some();
        let choose = |in_flight: &[InFlight]| -> Choice {
            let now = self.volumes.node.inventory().current();
            let excluded = |id: &DriveId| {
                let drive = now.drives.get(id);
                let unclaimed = drive.is_some_and(|drive| drive.state == DriveState::Available);
                self.tried.contains(id)
                    // A drive that is being wiped is held.
                    || inner.guards.is_held(&Key::Drive(id.clone()))
                    || (claimed_only && unclaimed)
            };
            let choice = placement::choose(
                &now,
                need(self.class, &self.record, group),
                in_flight,
                excluded,
            );
            awaits_poll.store(choice.awaits_poll, Ordering::Relaxed);
            choice
        };
        let (bytes, group) = (
            self.record.room_bytes(),
            group.map(|group| group.name.as_str()),
        );
        let sent = inner.creations.send(self.until, bytes, group, choose);
        sent.await.map_err(|StillInFlight| VolumeError::Pending {
            what: format!("the drives of class {}", self.class.name),
        })
    }

    /// Creates the volume on one drive. None: this drive does not take it, and another may.
    async fn try_drive(
        &mut self,
        candidate: Candidate,
    ) -> Result<Option<(Volume, u64)>, VolumeError> {
        self.tried.insert(candidate.drive.clone());
        let (volumes, name) = (self.volumes, &self.requested.name);
        let snapshot = volumes.node.inventory().current();
        let Some(drive) = snapshot.drives.get(&candidate.drive) else {
            return Ok(None);
        };
        let sector = drive.facts.logical_sector;
        if sector != self.sector
            && let Err(error) = check_mkfs(&self.record, sector).await
        {
            self.failures.unformattable.get_or_insert(error);
            return Ok(None);
        }
        // A new identity for each drive that is tried: no identity is ever on two.
        self.record.uuid = Uuid::new_v4();
        let doubt = Doubt {
            drive: drive.id.clone(),
            uuid: self.record.uuid,
        };
        let underway = &volumes.inner.underway;
        let begun = underway.begin(name, &doubt).await;
        begun.map_err(|error| VolumeError::Internal {
            what: chain(&error),
        })?;
        let job = self.job(drive, candidate.claim);
        let done = volumes
            .node
            .run((&drive.id, Slot::Foreground), job, LAYOUT_DEADLINE);
        match done.await {
            Ok(done) => {
                volumes.inner.wanted.end(name);
                match self.created(&drive.id, done) {
                    // The volume may be on the drive nonetheless.
                    Err(error @ VolumeError::CannotTell { .. }) => {
                        self.keep_doubt(doubt).await;
                        Err(error)
                    }
                    created => {
                        underway.end(doubt.uuid).await;
                        created.map(Some)
                    }
                }
            }
            Err(error) => self.failed(doubt, error).await.map(|()| None),
        }
    }

    fn job(&self, drive: &Drive, is_claimed: bool) -> Create {
        let config = self.volumes.node.config();
        Create {
            drive: DriveRef::from(&drive.facts),
            claim: is_claimed.then(|| Claim {
                layout: self.class.layout,
                label: Label {
                    drive_uuid: Uuid::new_v4(),
                    cluster: config.cluster.clone(),
                    node: config.node_id.clone(),
                    class: self.class.name.clone(),
                    drive_id: drive.id.clone(),
                    cordon: None,
                },
                policy: self.class.claim,
            }),
            record: self.record.clone(),
            raw_space: self.class.raw_space,
            placement: self.class.placement,
            deleted: self.deleted.clone(),
        }
    }

    /// Publishes the contents of the drive, and returns the volume there. `CannotTell` if it is not listed.
    fn created(&self, drive: &DriveId, done: Changed) -> Result<(Volume, u64), VolumeError> {
        let name = &self.requested.name;
        let mut all = done.contents.volumes.iter().map(|placed| &placed.record);
        let created = all.find(|record| {
            record.name == *name
                && !matches!(record.state, RecordState::Erasing { .. })
                && !self.deleted.contains(&record.uuid)
        });
        let created = created.map(|record| record.uuid);
        let inventory = self.volumes.node.inventory();
        let revision = inventory.put_contents(drive, done.contents);
        let current = inventory.current();
        let volume = created.and_then(|uuid| current.volumes.get(&uuid));
        let volume = volume.ok_or_else(|| VolumeError::CannotTell {
            id: name.clone(),
            why: format!("drive {drive} was asked to create it, and is not listed with it"),
        })?;
        compare(
            &volume.placed.record,
            self.requested,
            self.class,
            self.source,
        )?;
        let bytes = self.record.requested_bytes;
        match volume.state {
            VolumeState::Copying => {
                tracing::info!(volume = %volume.uuid, %name, %drive, bytes, "copying to a new volume");
            }
            _ => tracing::info!(volume = %volume.uuid, %name, %drive, bytes, "volume created"),
        }
        Ok((volume.clone(), revision))
    }

    /// Handles the failure of one drive. Ok: another one may be tried.
    async fn failed(
        &mut self,
        doubt: Doubt,
        error: RunError<LayoutError>,
    ) -> Result<(), VolumeError> {
        let Doubt { drive, uuid } = &doubt;
        let (volumes, name) = (self.volumes, &self.requested.name);
        match next(&error) {
            Next::TryAnother => {
                volumes.inner.underway.end(*uuid).await;
                tracing::warn!(%drive, error = %chain(&error), "drive refused a volume; trying another");
                self.failures.refused = Some(error);
                Ok(())
            }
            Next::ZeroAndTryAnother => {
                volumes.inner.underway.end(*uuid).await;
                // The drive may have been claimed for this.
                volumes.want_zeroed(name, drive, &error).await;
                self.failures.unzeroed.get_or_insert(error);
                Ok(())
            }
            Next::InDoubt => {
                let why = format!("creating it on drive {drive} failed ({})", chain(&error));
                self.keep_doubt(doubt).await;
                Err(match error {
                    // Some of these errors have final codes, after which the caller may choose another node.
                    RunError::Job(_) => VolumeError::CannotTell {
                        id: name.clone(),
                        why,
                    },
                    error => error.into(),
                })
            }
        }
    }

    /// Records that the volume may be on the drive: a repeat reads the drive first, also after a restart.
    async fn keep_doubt(&self, doubt: Doubt) {
        let (volumes, name) = (self.volumes, self.requested.name.clone());
        let inventory = volumes.node.inventory();
        inventory.update(|state| state.remembered.in_doubt.insert(name, doubt));
        volumes.inner.keeper.settle().await;
    }
}

fn need<'a>(class: &'a ClassConfig, record: &Record, group: Option<&'a Group>) -> Need<'a> {
    Need {
        class: &class.name,
        bytes: record.room_bytes(),
        placement: class.placement,
        group,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keeper::tests::{answers, rig};
    use drivebay_csi::{Content, validate::SizeRange};
    use drivebay_model::samples;

    #[tokio::test]
    async fn a_creation_without_a_result_is_in_doubt_and_its_code_is_not_final() {
        let dir = tempfile::tempdir().unwrap();
        let contents = samples::contents(1, 1, Vec::new(), 1 << 40);
        let without_it = Changed {
            contents: contents.clone(),
            changed: true,
        };
        let ambiguous = LayoutError::Ambiguous {
            uuid: Uuid::from_u128(1),
            reason: "no".into(),
        };
        for worker in [
            answers(dir.path(), &Ok::<_, LayoutError>(without_it)),
            answers(dir.path(), &Err::<Changed, _>(ambiguous)),
        ] {
            let rig = rig(&worker).await;
            let drive = samples::drive("sda", DriveState::Claimed, Some(contents.clone()));
            let id = drive.id.clone();
            rig.scanned([drive]);
            let request = NewVolume {
                name: "pvc-1".into(),
                class: Some("bulk".into()),
                content: Content::Block,
                range: SizeRange {
                    required: 1 << 30,
                    limit: None,
                },
                parameters: Default::default(),
                created_for: Default::default(),
                manual: false,
                source: None,
            };
            let created = rig.volumes.create(request).await;
            assert!(
                matches!(created, Err(VolumeError::CannotTell { .. })),
                "{created:?}"
            );
            let doubt = rig.inventory.doubt("pvc-1");
            assert_eq!(doubt.map(|doubt| doubt.drive), Some(id));
            rig.end().await;
        }
    }
}
