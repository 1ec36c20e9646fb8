//! Calls for snapshots, and for volumes that are created as copies.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use drivebay_proto::csi::{
    self as wire, VolumeCapability, VolumeContentSource,
    volume_content_source::{SnapshotSource, Type, VolumeSource},
};
use tonic::{Code, Status};

use super::{Csi, bytes};

/// Longest time to copy a test's volume, also in an emulated machine.
const COPIED: Duration = Duration::from_secs(300);
/// Pause before a creation is repeated that was answered with ABORTED.
const AGAIN: Duration = Duration::from_millis(200);

/// Returns a snapshot as the source of a new volume.
pub fn from_snapshot(id: &str) -> VolumeContentSource {
    let snapshot_id = id.to_owned();
    VolumeContentSource {
        r#type: Some(Type::Snapshot(SnapshotSource { snapshot_id })),
    }
}

/// Returns a volume as the source of a new volume.
pub fn from_volume(id: &str) -> VolumeContentSource {
    let volume_id = id.to_owned();
    VolumeContentSource {
        r#type: Some(Type::Volume(VolumeSource { volume_id })),
    }
}

impl Csi {
    /// CreateSnapshot with parameters of a VolumeSnapshotClass.
    ///
    /// # Errors
    /// The status of the answer.
    pub async fn create_snapshot(
        &self,
        name: &str,
        volume_id: &str,
        parameters: &[(&str, &str)],
    ) -> Result<wire::Snapshot, Status> {
        let word = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let request = wire::CreateSnapshotRequest {
            source_volume_id: volume_id.to_owned(),
            name: name.to_owned(),
            parameters: parameters.iter().map(word).collect(),
            ..Default::default()
        };
        let answer = self.controller().create_snapshot(request).await?;
        answer
            .into_inner()
            .snapshot
            .ok_or_else(|| Status::data_loss("CreateSnapshot answered without a snapshot"))
    }

    /// DeleteSnapshot.
    ///
    /// # Errors
    /// The status of the answer.
    pub async fn delete_snapshot(&self, id: &str) -> Result<(), Status> {
        let request = wire::DeleteSnapshotRequest {
            snapshot_id: id.to_owned(),
            secrets: HashMap::new(),
        };
        self.controller().delete_snapshot(request).await.map(drop)
    }

    /// ListSnapshots of one volume, or of all if the id is empty; all pages.
    ///
    /// # Errors
    /// The status of the answer.
    pub async fn list_snapshots(&self, volume_id: &str) -> Result<Vec<wire::Snapshot>, Status> {
        let (mut all, mut starting_token) = (Vec::new(), String::new());
        loop {
            let request = wire::ListSnapshotsRequest {
                starting_token,
                source_volume_id: volume_id.to_owned(),
                ..Default::default()
            };
            let page = self
                .controller()
                .list_snapshots(request)
                .await?
                .into_inner();
            all.extend(page.entries.into_iter().filter_map(|entry| entry.snapshot));
            if page.next_token.is_empty() {
                return Ok(all);
            }
            starting_token = page.next_token;
        }
    }

    /// CreateVolumeGroupSnapshot with parameters of a VolumeGroupSnapshotClass.
    ///
    /// # Errors
    /// The status of the answer.
    pub async fn create_group_snapshot(
        &self,
        name: &str,
        volume_ids: &[&str],
        parameters: &[(&str, &str)],
    ) -> Result<wire::VolumeGroupSnapshot, Status> {
        let word = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let request = wire::CreateVolumeGroupSnapshotRequest {
            name: name.to_owned(),
            source_volume_ids: volume_ids.iter().map(|&id| id.to_owned()).collect(),
            parameters: parameters.iter().map(word).collect(),
            ..Default::default()
        };
        let mut client = self.group_controller();
        let answer = client.create_volume_group_snapshot(request).await?;
        let group = answer.into_inner().group_snapshot;
        group.ok_or_else(|| Status::data_loss("CreateVolumeGroupSnapshot answered without a group"))
    }

    /// DeleteVolumeGroupSnapshot with all its members.
    ///
    /// # Errors
    /// The status of the answer.
    pub async fn delete_group_snapshot(
        &self,
        group: &wire::VolumeGroupSnapshot,
    ) -> Result<(), Status> {
        let members = group.snapshots.iter().map(|one| one.snapshot_id.clone());
        let request = wire::DeleteVolumeGroupSnapshotRequest {
            group_snapshot_id: group.group_snapshot_id.clone(),
            snapshot_ids: members.collect(),
            ..Default::default()
        };
        let mut client = self.group_controller();
        client.delete_volume_group_snapshot(request).await.map(drop)
    }

    /// CreateVolume of a copy, once: answered with ABORTED while it is copied.
    ///
    /// # Errors
    /// The status of the answer.
    pub async fn try_create_from(
        &self,
        name: &str,
        size: u64,
        capability: &VolumeCapability,
        source: &VolumeContentSource,
    ) -> Result<wire::Volume, Status> {
        self.create_with(wire::CreateVolumeRequest {
            name: name.to_owned(),
            capacity_range: Some(bytes(size)),
            volume_capabilities: vec![capability.clone()],
            volume_content_source: Some(source.clone()),
            ..Default::default()
        })
        .await
    }

    /// CreateVolume of a copy, repeated while it is answered with ABORTED, as a provisioner does.
    ///
    /// # Errors
    /// The status of the answer; the last ABORTED if it was not copied within five minutes.
    pub async fn create_from(
        &self,
        name: &str,
        size: u64,
        capability: &VolumeCapability,
        source: &VolumeContentSource,
    ) -> Result<wire::Volume, Status> {
        let begun = Instant::now();
        loop {
            match self.try_create_from(name, size, capability, source).await {
                Err(status) if status.code() == Code::Aborted && begun.elapsed() < COPIED => {
                    tokio::time::sleep(AGAIN).await;
                }
                answer => return answer,
            }
        }
    }
}
