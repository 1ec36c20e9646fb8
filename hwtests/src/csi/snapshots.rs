//! Snapshots, and volumes that are made as copies.

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

/// A test's volume is copied within this, also in an emulated machine.
const COPIED: Duration = Duration::from_secs(300);
/// A creation that was answered with ABORTED is repeated after this.
const AGAIN: Duration = Duration::from_millis(200);

/// A snapshot as the source of a new volume.
pub fn from_snapshot(id: &str) -> VolumeContentSource {
    let snapshot_id = id.to_owned();
    VolumeContentSource {
        r#type: Some(Type::Snapshot(SnapshotSource { snapshot_id })),
    }
}

/// A volume as the source of a new volume.
pub fn from_volume(id: &str) -> VolumeContentSource {
    let volume_id = id.to_owned();
    VolumeContentSource {
        r#type: Some(Type::Volume(VolumeSource { volume_id })),
    }
}

impl Csi {
    /// CreateSnapshot with a VolumeSnapshotClass' parameters.
    ///
    /// # Errors
    /// As answered.
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
    /// As answered.
    pub async fn delete_snapshot(&self, id: &str) -> Result<(), Status> {
        let request = wire::DeleteSnapshotRequest {
            snapshot_id: id.to_owned(),
            secrets: HashMap::new(),
        };
        self.controller().delete_snapshot(request).await.map(drop)
    }

    /// ListSnapshots of one volume, or, without its id, of all; every page.
    ///
    /// # Errors
    /// As answered.
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

    /// CreateVolume of a copy, once: ABORTED while it is copied.
    ///
    /// # Errors
    /// As answered.
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
    /// As answered; the last ABORTED when it was still not copied after five minutes.
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
