//! CSI GroupController: snapshots of several volumes of one node, taken at one moment.

use drivebay_csi::{NewGroupSnapshot, validate};
use drivebay_proto::csi::{
    group_controller_server::GroupController,
    group_controller_service_capability::{Rpc, Type, rpc::Type as Capability},
    *,
};
use tonic::{Request, Response, Status};

use super::{
    ControllerService,
    existing_groups::{delete_group, get_group},
    group_snapshots::create_group,
    logged,
};

impl ControllerService {
    async fn take_group(
        &self,
        request: CreateVolumeGroupSnapshotRequest,
    ) -> Result<CreateVolumeGroupSnapshotResponse, Status> {
        let requested = NewGroupSnapshot::try_from(request)?;
        let (agents, key) = (self.agents.clone(), self.key.clone());
        let created = create_group(agents, key, self.pending_groups.clone(), requested);
        Ok(CreateVolumeGroupSnapshotResponse {
            group_snapshot: Some(created.await?),
        })
    }

    fn one_group(
        &self,
        request: &GetVolumeGroupSnapshotRequest,
    ) -> Result<GetVolumeGroupSnapshotResponse, Status> {
        let id = validate::required("group_snapshot_id", &request.group_snapshot_id)?;
        let group = get_group(&self.agents, &self.key, id, &request.snapshot_ids)?;
        Ok(GetVolumeGroupSnapshotResponse {
            group_snapshot: Some(group),
        })
    }
}

#[tonic::async_trait]
impl GroupController for ControllerService {
    async fn group_controller_get_capabilities(
        &self,
        _: Request<GroupControllerGetCapabilitiesRequest>,
    ) -> Result<Response<GroupControllerGetCapabilitiesResponse>, Status> {
        let groups = GroupControllerServiceCapability {
            r#type: Some(Type::Rpc(Rpc {
                r#type: Capability::CreateDeleteGetVolumeGroupSnapshot.into(),
            })),
        };
        Ok(Response::new(GroupControllerGetCapabilitiesResponse {
            capabilities: vec![groups],
        }))
    }

    async fn create_volume_group_snapshot(
        &self,
        request: Request<CreateVolumeGroupSnapshotRequest>,
    ) -> Result<Response<CreateVolumeGroupSnapshotResponse>, Status> {
        let request = request.into_inner();
        let name = request.name.clone();
        self.audited("CreateVolumeGroupSnapshot", &name, self.take_group(request))
            .await
    }

    async fn delete_volume_group_snapshot(
        &self,
        request: Request<DeleteVolumeGroupSnapshotRequest>,
    ) -> Result<Response<DeleteVolumeGroupSnapshotResponse>, Status> {
        let request = request.into_inner();
        let id = request.group_snapshot_id;
        self.audited("DeleteVolumeGroupSnapshot", &id, async {
            validate::required("group_snapshot_id", &id)?;
            delete_group(&self.agents, id.clone(), &request.snapshot_ids).await?;
            Ok(DeleteVolumeGroupSnapshotResponse {})
        })
        .await
    }

    async fn get_volume_group_snapshot(
        &self,
        request: Request<GetVolumeGroupSnapshotRequest>,
    ) -> Result<Response<GetVolumeGroupSnapshotResponse>, Status> {
        let answer = async { self.one_group(request.get_ref()) };
        logged("GetVolumeGroupSnapshot", answer).await
    }
}
