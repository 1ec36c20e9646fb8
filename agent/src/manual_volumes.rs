//! The `ManualVolumes` service: requests of an operator on this host, over the agent's own socket only.

use std::path::Path;

use drivebay_common::rpc::logged;
use drivebay_csi::NewVolume;
use drivebay_proto::{
    VolumeId,
    agent::{self as wire, manual_volumes_server::ManualVolumes},
    names,
};
use tonic::{Request, Response, Status};
use uuid::Uuid;

use crate::csi::{status::status, validate};
use drivebay_fs::parse_mount_flags;
use drivebay_model::StageSecrets;
use drivebay_node::{
    context::NodeContext,
    scan_loop::Rescans,
    state::{
        hand_mounts::HandMount,
        receipts::{Receipt, Signed},
    },
    volumes::{Caller, VolumeError, Volumes, manual::HandMountRequest},
};

/// Serves operators on this host.
#[derive(Debug, Clone)]
pub struct ManualVolumesService {
    node: NodeContext,
    volumes: Volumes,
    rescans: Rescans,
}

type Answer<T> = Result<Response<T>, Status>;

impl ManualVolumesService {
    pub fn new(volumes: Volumes, rescans: Rescans) -> Self {
        Self {
            node: volumes.node().clone(),
            volumes,
            rescans,
        }
    }

    fn wire(&self, mount: &HandMount, mounted: bool) -> wire::HandMount {
        let id = VolumeId {
            uuid: mount.volume,
            node: self.node.config().node_id.clone(),
        };
        wire::HandMount {
            volume_id: id.to_string(),
            name: mount.name.clone(),
            path: mount.path.display().to_string(),
            mount_flags: mount.flags.clone(),
            read_only: mount.read_only,
            persist: mount.persist,
            mounted,
            key_file: mount
                .key_file
                .as_ref()
                .map_or_else(String::new, |path| path.display().to_string()),
        }
    }
}

/// Returns the requested mount; None: as in the existing record.
fn mount_request(
    request: &wire::MountVolumeRequest,
) -> Result<Option<HandMountRequest>, VolumeError> {
    if request.path.is_empty() {
        return Ok(None);
    }
    let flags = parse_mount_flags(&request.mount_flags).map_err(|error| VolumeError::Invalid {
        field: "mount options",
        why: error.to_string(),
    })?;
    Ok(Some(HandMountRequest {
        path: validate::path("path", &request.path)?,
        flags: request.mount_flags.clone(),
        read_only: request.read_only || flags.read_only,
        persist: request.persist,
        key_file: match request.key_file.as_str() {
            "" => None,
            path => Some(validate::path("key_file", path)?),
        },
        no_recovery_key: request.no_recovery_key,
    }))
}

fn uuid(text: &str) -> Result<Uuid, VolumeError> {
    text.parse().map_err(|_| VolumeError::Invalid {
        field: "volume",
        why: format!("{text:?} is no uuid"),
    })
}

fn erased(of: Receipt) -> wire::ErasedVolume {
    wire::ErasedVolume {
        uuid: of.volume.to_string(),
        name: of.name,
        claim: of.claim,
        drive: of.drive,
        serial: of.serial,
        bytes: of.ranges.iter().map(|(_, bytes)| bytes).sum(),
        erased_at: of.erased_at,
        encrypted: of.encrypted,
    }
}

fn receipt(signed: Signed) -> wire::ErasureReceipt {
    wire::ErasureReceipt {
        receipt: signed.document,
        signature: signed.signature,
        public_key: signed.public_key,
    }
}

async fn answer<T>(
    method: &'static str,
    work: impl Future<Output = Result<T, VolumeError>>,
) -> Answer<T> {
    logged(method, async { work.await.map_err(|error| status(&error)) }).await
}

#[tonic::async_trait]
impl ManualVolumes for ManualVolumesService {
    async fn find_volume(
        &self,
        request: Request<wire::FindVolumeRequest>,
    ) -> Answer<wire::FindVolumeResponse> {
        let called = request.into_inner().volume;
        let volume = self.volumes.find_manual(&called);
        let volume = volume.map_err(|error| status(&error))?;
        Ok(Response::new(wire::FindVolumeResponse {
            volume: Some(self.node.sender().volume(&volume)),
        }))
    }

    async fn create_volume(
        &self,
        request: Request<wire::CreateVolumeRequest>,
    ) -> Answer<wire::CreateVolumeResponse> {
        answer("ManualVolumes/CreateVolume", async {
            let mut requested = NewVolume::try_from(request.into_inner())?;
            requested.manual = true;
            let (volume, revision) = self.volumes.create(requested).await?;
            Ok(wire::CreateVolumeResponse {
                volume: Some(self.node.sender().volume(&volume)),
                revision,
            })
        })
        .await
    }

    async fn expand_volume(
        &self,
        request: Request<wire::ExpandVolumeRequest>,
    ) -> Answer<wire::ExpandManualVolumeResponse> {
        let request = request.into_inner();
        answer("ManualVolumes/ExpandVolume", async {
            let (required, limit) = (request.required_bytes, request.limit_bytes);
            let caller = Caller::Manual;
            let expanded = self.volumes.expand(request.id, required, limit, caller);
            let (volume, _) = expanded.await?;
            // Also if the volume is large enough: an earlier call may have ended here.
            let filesystem_grown = self.volumes.grow_where_mounted(&volume).await?;
            Ok(wire::ExpandManualVolumeResponse {
                volume: Some(self.node.sender().volume(&volume)),
                filesystem_grown,
            })
        })
        .await
    }

    async fn delete_volume(
        &self,
        request: Request<wire::DeleteVolumeRequest>,
    ) -> Answer<wire::DeleteVolumeResponse> {
        let request = request.into_inner();
        answer("ManualVolumes/DeleteVolume", async {
            let (id, quarantine) = (request.id, request.quarantine);
            let deleted = self.volumes.delete(id, quarantine, Caller::Manual);
            let revision = deleted.await?;
            Ok(wire::DeleteVolumeResponse { revision })
        })
        .await
    }

    async fn erase_quarantined(
        &self,
        request: Request<wire::EndQuarantineRequest>,
    ) -> Answer<wire::EndQuarantineResponse> {
        let id = request.into_inner().id;
        answer("ManualVolumes/EraseQuarantined", async {
            let revision = self.volumes.erase_quarantined(id).await?;
            Ok(wire::EndQuarantineResponse { revision })
        })
        .await
    }

    async fn restore_volume(
        &self,
        request: Request<wire::EndQuarantineRequest>,
    ) -> Answer<wire::EndQuarantineResponse> {
        let id = request.into_inner().id;
        answer("ManualVolumes/RestoreVolume", async {
            let revision = self.volumes.restore(id).await?;
            Ok(wire::EndQuarantineResponse { revision })
        })
        .await
    }

    async fn mount_volume(
        &self,
        request: Request<wire::MountVolumeRequest>,
    ) -> Answer<wire::MountVolumeResponse> {
        let mut request = request.into_inner();
        answer("ManualVolumes/MountVolume", async {
            let how = mount_request(&request)?;
            let secret = match std::mem::take(&mut request.secret) {
                none if none.is_empty() => None,
                text => Some(validate::secret("secret", text)?),
            };
            let mounted = self.volumes.mount_manually(&request.volume, how, secret);
            let mount = mounted.await?;
            Ok(wire::MountVolumeResponse {
                mount: Some(self.wire(&mount, true)),
            })
        })
        .await
    }

    async fn unmount_volume(
        &self,
        request: Request<wire::UnmountVolumeRequest>,
    ) -> Answer<wire::UnmountVolumeResponse> {
        let what = request.into_inner().what;
        answer("ManualVolumes/UnmountVolume", async {
            validate::required("what", &what)?;
            if Path::new(&what).is_absolute() {
                validate::path("path", &what)?;
            }
            let mount = self.volumes.unmount_manually(&what).await?;
            Ok(wire::UnmountVolumeResponse {
                mount: mount.map(|mount| self.wire(&mount, false)),
            })
        })
        .await
    }

    async fn list_mounts(
        &self,
        _request: Request<wire::ListMountsRequest>,
    ) -> Answer<wire::ListMountsResponse> {
        answer("ManualVolumes/ListMounts", async {
            let mounts = self.volumes.hand_mounts()?;
            let mounts = mounts
                .iter()
                .map(|(mount, mounted)| self.wire(mount, *mounted));
            Ok(wire::ListMountsResponse {
                mounts: mounts.collect(),
            })
        })
        .await
    }

    async fn list_erased(
        &self,
        request: Request<wire::ListErasedRequest>,
    ) -> Answer<wire::ListErasedResponse> {
        let requested = request.into_inner().volume;
        answer("ManualVolumes/ListErased", async {
            let only = match requested.as_str() {
                "" => None,
                text => Some(uuid(text)?),
            };
            let is_it = |one: &Receipt| only.is_none_or(|only| one.volume == only);
            let all = self.volumes.receipts().into_iter().filter(is_it);
            let signed = only.map(|only| self.volumes.signed_receipts(only));
            Ok(wire::ListErasedResponse {
                volumes: all.map(erased).collect(),
                receipts: signed.into_iter().flatten().map(receipt).collect(),
            })
        })
        .await
    }

    async fn change_secret(
        &self,
        request: Request<wire::ChangeSecretRequest>,
    ) -> Answer<wire::ChangeSecretResponse> {
        let request = request.into_inner();
        answer("ManualVolumes/ChangeSecret", async {
            let secrets = StageSecrets {
                secret: validate::secret("secret", request.secret)?,
                previous: Some(validate::secret("previous", request.previous)?),
            };
            self.volumes.change_secret(request.id, secrets).await?;
            Ok(wire::ChangeSecretResponse {})
        })
        .await
    }

    async fn check_secret(
        &self,
        request: Request<wire::CheckSecretRequest>,
    ) -> Answer<wire::CheckSecretResponse> {
        let request = request.into_inner();
        answer("ManualVolumes/CheckSecret", async {
            let secret = validate::secret("secret", request.secret)?;
            let checked = self.volumes.check_secret(request.id, secret).await?;
            Ok(wire::CheckSecretResponse {
                slots: checked.slots,
                is_recovery_key: checked.is_recovery_key,
                has_recovery_key: checked.has_recovery_key,
            })
        })
        .await
    }

    async fn add_recovery_key(
        &self,
        request: Request<wire::AddRecoveryKeyRequest>,
    ) -> Answer<wire::AddRecoveryKeyResponse> {
        let request = request.into_inner();
        answer("ManualVolumes/AddRecoveryKey", async {
            let secret = validate::secret("secret", request.secret)?;
            let recovery = validate::secret("recovery_key", request.recovery_key)?;
            let added = self.volumes.add_recovery_key(request.id, secret, recovery);
            added.await?;
            Ok(wire::AddRecoveryKeyResponse {})
        })
        .await
    }

    async fn release_drive(
        &self,
        request: Request<wire::ReleaseDriveRequest>,
    ) -> Answer<wire::ReleaseDriveResponse> {
        let request = request.into_inner();
        let released = self
            .volumes
            .release_drive(&request.drive, &request.confirm)
            .await
            .map_err(|error| status(&error))?;
        let revision = self.rescans.now().await.map_err(|why| {
            Status::unavailable(format!(
                "the drive is released, but the following drive scan failed: {why}"
            ))
        })?;
        Ok(Response::new(wire::ReleaseDriveResponse {
            revision,
            blank: released.blank,
        }))
    }

    async fn get_driver(
        &self,
        _request: Request<wire::GetDriverRequest>,
    ) -> Answer<wire::GetDriverResponse> {
        let name = self.node.config().driver_name.clone();
        Ok(Response::new(wire::GetDriverResponse {
            topology_key: names::topology_key(&name),
            name,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_names_an_absolute_path_and_options_that_mount_takes() {
        let request = |path: &str, flags: &[&str]| wire::MountVolumeRequest {
            volume: "db".into(),
            path: path.into(),
            mount_flags: flags.iter().map(|&flag| flag.into()).collect(),
            ..wire::MountVolumeRequest::default()
        };
        assert!(matches!(mount_request(&request("", &[])), Ok(None)));
        let made = mount_request(&request("/srv/db", &["noatime", "ro"]));
        assert!(matches!(made, Ok(Some(how)) if how.read_only && how.flags.len() == 2));
        for (path, flags) in [
            ("srv/db", &[][..]),
            ("/srv/../etc", &[]),
            ("/", &[]),
            ("/srv/db", &["-t"]),
            ("/srv/db", &["loop"]),
        ] {
            assert!(
                mount_request(&request(path, flags)).is_err(),
                "{path} {flags:?}"
            );
        }
    }
}
