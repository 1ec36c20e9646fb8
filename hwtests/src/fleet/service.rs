//! The `Agent` service of a simulated node.

use std::pin::Pin;

use drivebay_agent::uplink::parts::Parts;
use drivebay_proto::{
    agent::{agent_server::Agent, *},
    names,
};
use tokio::sync::mpsc;
use tokio_stream::{Stream, wrappers::ReceiverStream};
use tonic::{Request, Response, Status};

use super::{contents::Refused, node::SimNode};

/// Updates that are queued for a slow reader; further changes coalesce, as in an agent.
const QUEUE: usize = 2;

impl From<Refused> for Status {
    fn from(refused: Refused) -> Self {
        let message = refused.to_string();
        match refused {
            Refused::Different { .. } => Self::already_exists(message),
            Refused::NoClass { .. } => Self::failed_precondition(message),
            Refused::NoRoom { .. } => Self::resource_exhausted(message),
            Refused::NoVolume { .. } => Self::not_found(message),
            Refused::Used { .. } => Self::failed_precondition(message),
            Refused::OverLimit { .. } => Self::out_of_range(message),
        }
    }
}

type Answer<T> = Result<Response<T>, Status>;
type Updates<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl Agent for SimNode {
    async fn prove(&self, _: Request<ProveRequest>) -> Answer<ProveResponse> {
        Err(Status::unimplemented("it has no token"))
    }

    async fn hello(&self, _: Request<HelloRequest>) -> Answer<HelloResponse> {
        Ok(Response::new(HelloResponse {
            node_id: self.sender().node.clone(),
            instance: self.sender().instance.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            machine_id: self.machine_id().to_owned(),
            protocol: names::AGENT_PROTOCOL,
            oldest_protocol: names::OLDEST_AGENT_PROTOCOL,
            copies: false,
        }))
    }

    async fn refused(&self, request: Request<RefusedRequest>) -> Answer<RefusedResponse> {
        let (node, reason) = (&self.sender().node, request.into_inner().reason);
        tracing::error!(node, reason, "controller refused this agent");
        Ok(Response::new(RefusedResponse {}))
    }

    type WatchInventoryStream = Updates<InventoryUpdate>;

    async fn watch_inventory(
        &self,
        _: Request<WatchInventoryRequest>,
    ) -> Answer<Self::WatchInventoryStream> {
        let (sender, receiver) = mpsc::channel(QUEUE);
        tokio::spawn(self.clone().stream_inventory(sender));
        let updates = Parts::of(ReceiverStream::new(receiver));
        Ok(Response::new(Box::pin(updates)))
    }

    async fn create_volume(
        &self,
        request: Request<CreateVolumeRequest>,
    ) -> Answer<CreateVolumeResponse> {
        let request = request.into_inner();
        let (uuid, revision) = self.change(|contents| {
            let before = contents.volumes.len();
            let uuid = contents.create(&request)?;
            Ok((uuid, contents.volumes.len() > before))
        })?;
        self.may_answer().await?;
        Ok(Response::new(CreateVolumeResponse {
            volume: self.volume(uuid),
            revision,
        }))
    }

    async fn keep_placement(
        &self,
        request: Request<KeepPlacementRequest>,
    ) -> Answer<KeepPlacementResponse> {
        let kept = self.placements().keep(request.into_inner());
        Ok(Response::new(kept))
    }

    async fn delete_unused_volume(
        &self,
        request: Request<DeleteUnusedVolumeRequest>,
    ) -> Answer<DeleteVolumeResponse> {
        let DeleteUnusedVolumeRequest { id, name } = request.into_inner();
        let uuid = self.uuid(&id);
        let (deleted, revision) = self.change(|contents| {
            let volume = uuid.and_then(|uuid| contents.volumes.get(&uuid));
            if let Some(volume) = volume
                && (volume.published || volume.name != name)
            {
                return Err(Refused::Used { id: id.clone() });
            }
            let deleted = uuid.filter(|uuid| contents.delete(uuid));
            Ok((deleted, deleted.is_some()))
        })?;
        if let Some(uuid) = deleted {
            self.erase_later(uuid);
        }
        Ok(Response::new(DeleteVolumeResponse { revision }))
    }

    async fn delete_volume(
        &self,
        request: Request<DeleteVolumeRequest>,
    ) -> Answer<DeleteVolumeResponse> {
        let id = request.into_inner().id;
        let uuid = self.uuid(&id);
        let (deleted, revision) = self.change(|contents| {
            let deleted = uuid.filter(|uuid| contents.delete(uuid));
            Ok((deleted, deleted.is_some()))
        })?;
        if let Some(uuid) = deleted {
            self.erase_later(uuid);
        }
        Ok(Response::new(DeleteVolumeResponse { revision }))
    }

    async fn expand_volume(
        &self,
        request: Request<ExpandVolumeRequest>,
    ) -> Answer<ExpandVolumeResponse> {
        let request = request.into_inner();
        let uuid = self.uuid(&request.id).unwrap_or_default();
        let ((), revision) = self.change(|contents| {
            let changed = contents.expand(&uuid, &request)?;
            Ok(((), changed))
        })?;
        Ok(Response::new(ExpandVolumeResponse {
            volume: self.volume(uuid),
            revision,
        }))
    }

    async fn rescan(&self, _: Request<RescanRequest>) -> Answer<RescanResponse> {
        let revision = self.revision();
        Ok(Response::new(RescanResponse { revision }))
    }

    type WipeDriveStream = Updates<WipeDriveProgress>;

    async fn wipe_drive(&self, _: Request<WipeDriveRequest>) -> Answer<Self::WipeDriveStream> {
        Err(Status::unimplemented("there is no drive to wipe"))
    }

    async fn acknowledge_drive(
        &self,
        _: Request<drivebay_proto::agent::AcknowledgeDriveRequest>,
    ) -> Answer<drivebay_proto::agent::AcknowledgeDriveResponse> {
        Err(Status::unimplemented("there is no drive to acknowledge"))
    }

    async fn unacknowledge_drive(
        &self,
        _: Request<drivebay_proto::agent::UnacknowledgeDriveRequest>,
    ) -> Answer<drivebay_proto::agent::AcknowledgeDriveResponse> {
        Err(Status::unimplemented("there is no drive to acknowledge"))
    }

    async fn cordon_drive(
        &self,
        _: Request<drivebay_proto::agent::CordonDriveRequest>,
    ) -> Result<Response<drivebay_proto::agent::CordonDriveResponse>, Status> {
        Err(Status::unimplemented("there is no drive to cordon"))
    }

    async fn move_volumes(
        &self,
        _: Request<drivebay_proto::agent::MoveVolumesRequest>,
    ) -> Result<Response<drivebay_proto::agent::MoveVolumesResponse>, Status> {
        Err(Status::unimplemented(
            "there is no drive to move volumes from",
        ))
    }

    async fn cancel_moves(
        &self,
        _: Request<drivebay_proto::agent::CancelMovesRequest>,
    ) -> Result<Response<drivebay_proto::agent::CancelMovesResponse>, Status> {
        Err(Status::unimplemented(
            "there is no drive to move volumes from",
        ))
    }

    async fn list_moves(
        &self,
        _: Request<drivebay_proto::agent::ListMovesRequest>,
    ) -> Result<Response<drivebay_proto::agent::ListMovesResponse>, Status> {
        Err(Status::unimplemented(
            "there is no drive to move volumes from",
        ))
    }

    async fn create_snapshot(
        &self,
        _: Request<drivebay_proto::agent::CreateSnapshotRequest>,
    ) -> Result<Response<drivebay_proto::agent::CreateSnapshotResponse>, Status> {
        Err(Status::unimplemented("there is no drive to copy from"))
    }

    async fn create_group_snapshot(
        &self,
        _: Request<CreateGroupSnapshotRequest>,
    ) -> Answer<CreateGroupSnapshotResponse> {
        Err(Status::unimplemented("there is no drive to copy from"))
    }

    async fn delete_group_snapshot(
        &self,
        _: Request<DeleteGroupSnapshotRequest>,
    ) -> Answer<DeleteSnapshotResponse> {
        Err(Status::unimplemented("there is no drive to copy from"))
    }

    async fn delete_snapshot(
        &self,
        _: Request<drivebay_proto::agent::DeleteSnapshotRequest>,
    ) -> Result<Response<drivebay_proto::agent::DeleteSnapshotResponse>, Status> {
        Err(Status::unimplemented("there is no drive to copy from"))
    }

    async fn list_copies(
        &self,
        _: Request<drivebay_proto::agent::ListCopiesRequest>,
    ) -> Result<Response<drivebay_proto::agent::ListCopiesResponse>, Status> {
        Err(Status::unimplemented("there is no drive to copy from"))
    }

    async fn prefer_place(
        &self,
        _: Request<drivebay_proto::agent::PreferPlaceRequest>,
    ) -> Result<Response<drivebay_proto::agent::PreferPlaceResponse>, Status> {
        Err(Status::unimplemented(
            "there is no drive to move volumes from",
        ))
    }

    async fn retire_drive(
        &self,
        _: Request<drivebay_proto::agent::RetireDriveRequest>,
    ) -> Result<Response<drivebay_proto::agent::RetireDriveResponse>, Status> {
        Err(Status::unimplemented(
            "there is no drive to move volumes from",
        ))
    }

    async fn locate_drive(
        &self,
        _: Request<drivebay_proto::agent::LocateDriveRequest>,
    ) -> Result<Response<drivebay_proto::agent::LocateDriveResponse>, Status> {
        Err(Status::unimplemented("there is no drive to locate"))
    }

    async fn adopt_drive(&self, _: Request<AdoptDriveRequest>) -> Answer<AdoptDriveResponse> {
        Err(Status::unimplemented("there is no drive to adopt"))
    }

    async fn drive_latency(&self, _: Request<DriveLatencyRequest>) -> Answer<DriveLatencyResponse> {
        Err(Status::unimplemented("there is no drive to measure"))
    }

    async fn drive_history(&self, _: Request<DriveHistoryRequest>) -> Answer<DriveHistoryResponse> {
        Err(Status::unimplemented("there is no drive to poll"))
    }

    async fn check_volume(&self, _: Request<CheckVolumeRequest>) -> Answer<CheckVolumeResponse> {
        Err(Status::unimplemented("there is no volume to check"))
    }
}
