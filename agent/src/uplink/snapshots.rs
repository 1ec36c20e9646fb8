//! Snapshots and copies of volumes in the agent's protocol.

use drivebay_csi::{new_group_snapshot::NewGroupSnapshot, new_snapshot::NewSnapshot};
use drivebay_model::CopySource;
use drivebay_node::volumes::{VolumeError, Volumes, copies::CopyStatus};
use drivebay_proto::{VolumeId, agent as wire};
use tonic::Status;
use uuid::Uuid;

use crate::csi::status::status;

#[derive(Debug, Clone, Copy)]
pub(super) struct Snapshots<'a> {
    pub(super) volumes: &'a Volumes,
}

impl Snapshots<'_> {
    fn id(&self, uuid: Uuid) -> String {
        let node = self.volumes.node().config().node_id.clone();
        VolumeId { uuid, node }.to_string()
    }

    pub(super) async fn take(
        &self,
        request: wire::CreateSnapshotRequest,
    ) -> Result<wire::CreateSnapshotResponse, Status> {
        let requested = NewSnapshot::try_from(request).map_err(VolumeError::from);
        let requested = requested.map_err(|error| status(&error))?;
        let taken = self.volumes.take_snapshot(requested).await;
        let taken = taken.map_err(|error| status(&error))?;
        let sender = self.volumes.node().sender();
        Ok(wire::CreateSnapshotResponse {
            snapshot: Some(sender.snapshot(&taken.snapshot, None)),
            volume_id: self.id(taken.volume),
            revision: taken.revision,
        })
    }

    pub(super) async fn delete(
        &self,
        request: wire::DeleteSnapshotRequest,
    ) -> Result<wire::DeleteSnapshotResponse, Status> {
        let deleted = self.volumes.delete_snapshot(&request.id).await;
        let revision = deleted.map_err(|error| status(&error))?;
        Ok(wire::DeleteSnapshotResponse { revision })
    }

    pub(super) async fn take_group(
        &self,
        request: wire::CreateGroupSnapshotRequest,
    ) -> Result<wire::CreateGroupSnapshotResponse, Status> {
        let requested = NewGroupSnapshot::try_from(request).map_err(VolumeError::from);
        let requested = requested.map_err(|error| status(&error))?;
        let taken = self.volumes.take_group(requested).await;
        let taken = taken.map_err(|error| status(&error))?;
        let sender = self.volumes.node().sender();
        let members = taken.members.iter();
        let members = members.map(|(volume, snapshot)| wire::GroupMember {
            snapshot: Some(sender.snapshot(snapshot, None)),
            volume_id: self.id(*volume),
        });
        Ok(wire::CreateGroupSnapshotResponse {
            group: Some(sender.snapshot_group(&taken.group)),
            members: members.collect(),
            revision: taken.revision,
        })
    }

    pub(super) async fn delete_group(
        &self,
        request: wire::DeleteGroupSnapshotRequest,
    ) -> Result<wire::DeleteSnapshotResponse, Status> {
        let deleted = self.volumes.delete_group(&request.id).await;
        let revision = deleted.map_err(|error| status(&error))?;
        Ok(wire::DeleteSnapshotResponse { revision })
    }

    pub(super) fn copies(&self) -> wire::ListCopiesResponse {
        let copy = |one: CopyStatus| {
            let source = |is_it: fn(CopySource) -> Option<Uuid>| {
                let uuid = one.source.and_then(is_it);
                uuid.map(|uuid| self.id(uuid)).unwrap_or_default()
            };
            wire::VolumeCopy {
                volume_id: self.id(one.uuid),
                source_snapshot: source(|source| match source {
                    CopySource::Snapshot(uuid) => Some(uuid),
                    CopySource::Volume(_) => None,
                }),
                source_volume: source(|source| match source {
                    CopySource::Volume(uuid) => Some(uuid),
                    CopySource::Snapshot(_) => None,
                }),
                name: one.name,
                from: one.from.map(|drive| drive.0).unwrap_or_default(),
                to: one.to.0,
                done_bytes: one.done_bytes,
                total_bytes: one.total_bytes,
                bytes_per_second: one.bytes_per_second,
                eta_seconds: one.eta_seconds,
                waits_for: one.waits_for,
            }
        };
        wire::ListCopiesResponse {
            copies: self.volumes.list_copies().into_iter().map(copy).collect(),
            failed: self.volumes.failed_copies().into_iter().map(copy).collect(),
        }
    }
}
