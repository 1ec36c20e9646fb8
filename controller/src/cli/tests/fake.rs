//! A controller with fixed answers, over a real socket.

use std::path::{Path, PathBuf};

use drivebay_proto::agent::{
    CancelMovesResponse, Cordon, CordonDriveResponse, Finding, ListMovesResponse,
    LocateDriveResponse, Move, MoveVolumesResponse, PlannedMove,
};
use drivebay_proto::controller::{
    CancelMovesRequest, CordonDriveRequest, GetControllerRequest, GetControllerResponse,
    GetVolumeRequest, GetVolumeResponse, ListDrivesRequest, ListMovesRequest, ListNodesRequest,
    ListVolumesRequest, LocateDriveRequest, MoveVolumesRequest, Node, NodeDrives, VolumeOnNode,
    cluster_server::{Cluster, ClusterServer},
};
use tokio::{net::UnixListener, runtime::Runtime};
use tokio_stream::Iter;
use tonic::{Request, Response, Status, transport::Server};

use super::id;
use drivebay_common::authority;

/// Answers of the fake controller, the same for each call.
#[derive(Debug, Clone, Default)]
pub(super) struct Fake {
    pub(super) nodes: Vec<Node>,
    pub(super) drives: Vec<NodeDrives>,
    pub(super) volumes: Vec<VolumeOnNode>,
    pub(super) driver: String,
    pub(super) findings: Vec<Finding>,
    /// Reasons why no volume is moved.
    pub(super) refusals: Vec<String>,
    /// Ends each list with this status, after its entries.
    pub(super) end: Option<Status>,
}

/// A served fake with its socket.
pub(super) struct Served {
    dir: tempfile::TempDir,
    runtime: Option<Runtime>,
}

impl Served {
    pub(super) fn socket(&self) -> PathBuf {
        self.dir.path().join("c.sock")
    }

    pub(super) fn dir(&self) -> &Path {
        self.dir.path()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Fake {
    pub(super) fn serve(self) -> Served {
        let dir = tempfile::tempdir().unwrap();
        let runtime = Runtime::new().unwrap();
        let listener = {
            let _inside = runtime.enter();
            UnixListener::bind(dir.path().join("c.sock")).unwrap()
        };
        let serving = Server::builder()
            .add_service(ClusterServer::new(self))
            .serve_with_incoming(authority::incoming(listener));
        runtime.spawn(serving);
        Served {
            dir,
            runtime: Some(runtime),
        }
    }

    fn list<T: Clone>(
        &self,
        items: &[T],
        keep: impl Fn(&T) -> bool,
    ) -> Iter<std::vec::IntoIter<Result<T, Status>>> {
        let kept = items.iter().filter(|item| keep(item)).cloned().map(Ok);
        let all: Vec<_> = kept.chain(self.end.clone().map(Err)).collect();
        tokio_stream::iter(all)
    }
}

fn wanted(nodes: &[String], node: &str) -> bool {
    nodes.is_empty() || nodes.iter().any(|wanted| wanted == node)
}

type List<T> = Iter<std::vec::IntoIter<Result<T, Status>>>;

#[tonic::async_trait]
impl Cluster for Fake {
    type ListNodesStream = List<Node>;
    type ListDrivesStream = List<NodeDrives>;
    type ListVolumesStream = List<VolumeOnNode>;

    async fn list_nodes(
        &self,
        request: Request<ListNodesRequest>,
    ) -> Result<Response<Self::ListNodesStream>, Status> {
        let nodes = request.into_inner().nodes;
        // Only the list under test is truncated.
        let whole = Self {
            end: None,
            ..self.clone()
        };
        Ok(Response::new(
            whole.list(&self.nodes, |node| wanted(&nodes, &node.node_id)),
        ))
    }

    async fn list_drives(
        &self,
        request: Request<ListDrivesRequest>,
    ) -> Result<Response<Self::ListDrivesStream>, Status> {
        let nodes = request.into_inner().nodes;
        Ok(Response::new(
            self.list(&self.drives, |node| wanted(&nodes, &node.node_id)),
        ))
    }

    async fn list_volumes(
        &self,
        request: Request<ListVolumesRequest>,
    ) -> Result<Response<Self::ListVolumesStream>, Status> {
        let request = request.into_inner();
        Ok(Response::new(self.list(&self.volumes, |there| {
            let state = there.volume.as_ref().map(|volume| volume.state.as_str());
            let deleted = matches!(state, Some("erasing" | "quarantined"));
            wanted(&request.nodes, &there.node_id) && (request.deleted || !deleted)
        })))
    }

    async fn locate_drive(
        &self,
        request: Request<LocateDriveRequest>,
    ) -> Result<Response<LocateDriveResponse>, Status> {
        let LocateDriveRequest { node, request } = request.into_inner();
        assert_eq!(node, "n1");
        let drive = request.unwrap().drive;
        let by = "ses".to_owned();
        Ok(Response::new(LocateDriveResponse { drive, by }))
    }

    async fn cordon_drive(
        &self,
        request: Request<CordonDriveRequest>,
    ) -> Result<Response<CordonDriveResponse>, Status> {
        let CordonDriveRequest { node, request } = request.into_inner();
        let request = request.unwrap();
        assert_eq!((node.as_str(), request.by.as_str()), ("n1", "ann"));
        let (by, reason) = (request.by, request.reason);
        let cordon = (!request.uncordon).then_some(Cordon { at: 1, by, reason });
        Ok(Response::new(CordonDriveResponse {
            drive: request.drive,
            changed: true,
            cordon,
            revision: 2,
        }))
    }

    async fn move_volumes(
        &self,
        request: Request<MoveVolumesRequest>,
    ) -> Result<Response<MoveVolumesResponse>, Status> {
        let MoveVolumesRequest { node, request } = request.into_inner();
        let request = request.unwrap();
        assert_eq!(node, "n1");
        assert_eq!(request.by.is_empty(), request.plan);
        if !request.plan && !self.refusals.is_empty() {
            let why = format!("nothing is moved: {}", self.refusals.join("; "));
            return Err(Status::failed_precondition(why));
        }
        let to = request.to.first().cloned();
        let planned = PlannedMove {
            volume_id: id(2, "n1"),
            name: "pvc-2".into(),
            from: "wwn-0x5000b".into(),
            to: to.unwrap_or_else(|| "wwn-0x5000a".into()),
            size_bytes: 10 << 30,
            in_use: true,
            claims: false,
        };
        Ok(Response::new(MoveVolumesResponse {
            drive: request.drive,
            moves: vec![planned],
            refusals: self.refusals.clone(),
            revision: 3,
        }))
    }

    async fn cancel_moves(
        &self,
        request: Request<CancelMovesRequest>,
    ) -> Result<Response<CancelMovesResponse>, Status> {
        let CancelMovesRequest { node, request } = request.into_inner();
        let request = request.unwrap();
        assert_eq!((node.as_str(), request.by.as_str()), ("n1", "ann"));
        let cancelled = match (request.drive.as_str(), request.volume_id.as_str()) {
            ("wwn-0x5000b", "") => vec![id(2, "n1")],
            ("", volume) => vec![volume.to_owned()],
            _ => Vec::new(),
        };
        let too_late = Vec::new();
        Ok(Response::new(CancelMovesResponse {
            cancelled,
            too_late,
        }))
    }

    async fn list_moves(
        &self,
        request: Request<ListMovesRequest>,
    ) -> Result<Response<ListMovesResponse>, Status> {
        assert_eq!(request.into_inner().node, "n1");
        let waiting = Move {
            volume_id: id(2, "n1"),
            name: "pvc-2".into(),
            from: "wwn-0x5000b".into(),
            to: "wwn-0x5000a".into(),
            phase: "waiting".into(),
            total_bytes: 10 << 30,
            waits_for: "pod a/b uses it".into(),
            ..Move::default()
        };
        Ok(Response::new(ListMovesResponse {
            moves: vec![waiting],
            ..ListMovesResponse::default()
        }))
    }

    async fn get_controller(
        &self,
        _: Request<GetControllerRequest>,
    ) -> Result<Response<GetControllerResponse>, Status> {
        let findings = self.findings.clone();
        Ok(Response::new(GetControllerResponse { findings }))
    }

    async fn get_volume(
        &self,
        request: Request<GetVolumeRequest>,
    ) -> Result<Response<GetVolumeResponse>, Status> {
        let id = request.into_inner().id;
        let uuid = |id: &str| id.split('@').next().map(str::to_owned);
        let entry = self.volumes.iter().find(|there| {
            there
                .volume
                .as_ref()
                .is_some_and(|volume| uuid(&volume.id) == uuid(&id))
        });
        let entry = entry.ok_or_else(|| Status::not_found(format!("there is no volume {id}")))?;
        Ok(Response::new(GetVolumeResponse {
            volume: Some(entry.clone()),
            driver: self.driver.clone(),
            topology_key: format!("{}/node", self.driver),
        }))
    }
}
