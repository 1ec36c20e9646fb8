//! A malicious node with a valid certificate: its sessions are real ([`uplink`]), its messages are not.

use std::{net::SocketAddr, pin::Pin, sync::Arc, thread};

use drivebay_agent::uplink::{self, UplinkConfig};
use drivebay_common::tls::{Credentials, Role, TlsFiles};
use drivebay_proto::{
    agent::{agent_server::Agent, *},
    names,
};
use tokio_stream::{Stream, StreamExt, iter};
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::{Request, Response, Status};

use crate::netns::Host;

/// Size of the decoded message of [`Attack::Bomb`], bytes: more than a controller decodes.
const BOMB_BYTES: usize = 40 << 20;

/// Behaviour of an attacker.
#[derive(Debug, Clone)]
pub enum Attack {
    /// Sends a hello with a version of this many bytes.
    Boast(usize),
    /// Reports new volumes endlessly.
    Grow,
    /// Reports drives without content, which are two encoded bytes each.
    Bomb,
    /// Endlessly reports volumes of another node with long ids.
    Foreign,
    /// Sends texts with a newline, to forge a line in the controller's log.
    Forge,
    /// Never answers a hello.
    Hang,
}

/// Node id and behaviour of an attacker.
#[derive(Debug, Clone)]
pub struct Attacker {
    /// Node id, also in its certificate.
    pub node: String,
    /// Misbehaviour towards the controller, the same on all connections.
    pub attack: Attack,
}

/// Runs this many attackers on this host until the returned guard is dropped, each with its own connection.
///
/// # Panics
/// When it cannot be started.
pub fn start(
    host: &Host,
    controller: SocketAddr,
    files: TlsFiles,
    attacker: Attacker,
    connections: usize,
) -> DropGuard {
    let stop = CancellationToken::new();
    let token = stop.clone();
    // A thread started inside the host's network, and its connections, stay there.
    host.inside(|| {
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            runtime.block_on(async move {
                let credentials = Credentials::load(files, Role::Agent).await.unwrap();
                let attacker = Arc::new(attacker);
                let all = tokio_util::task::TaskTracker::new();
                for _ in 0..connections {
                    let config = UplinkConfig {
                        token: None,
                        drive_verbs: Default::default(),
                        targets: vec![controller.to_string().parse().unwrap()],
                        credentials: Some(credentials.clone()),
                    };
                    let node = Node(attacker.clone());
                    all.spawn(uplink::run(config, node, token.clone()));
                }
                all.close();
                all.wait().await;
            });
        })
    });
    stop.drop_guard()
}

#[derive(Debug, Clone)]
struct Node(Arc<Attacker>);

type Answer<T> = Result<Response<T>, Status>;
type Updates<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

fn no<T>() -> Answer<T> {
    Err(Status::unimplemented("it does nothing"))
}

/// Returns a hundred volumes for the update with this number.
fn volumes(node: &str, number: u64, id_bytes: usize) -> Vec<Volume> {
    let volume = |n| Volume {
        id: format!(
            "{:08x}-0000-4000-8000-{n:012}@{node}{}",
            number,
            "x".repeat(id_bytes)
        ),
        name: format!("pvc-{number}-{n}"),
        state: "ready".to_owned(),
        ..Volume::default()
    };
    (0..100).map(volume).collect()
}

#[tonic::async_trait]
impl Agent for Node {
    async fn prove(&self, _: Request<ProveRequest>) -> Answer<ProveResponse> {
        no()
    }

    async fn hello(&self, _: Request<HelloRequest>) -> Answer<HelloResponse> {
        if matches!(self.0.attack, Attack::Hang) {
            std::future::pending::<()>().await;
        }
        let forged =
            "\n2026-01-01T00:00:00.000000Z ERROR drivebay_controller: forged line".to_owned();
        let words = |otherwise: &str| match &self.0.attack {
            Attack::Forge => forged.clone(),
            _ => otherwise.to_owned(),
        };
        Ok(Response::new(HelloResponse {
            node_id: self.0.node.clone(),
            instance: words("i"),
            machine_id: words("m"),
            version: match self.0.attack {
                Attack::Boast(bytes) => "x".repeat(bytes),
                _ => words("0"),
            },
            protocol: names::AGENT_PROTOCOL,
            oldest_protocol: names::OLDEST_AGENT_PROTOCOL,
            copies: false,
        }))
    }

    async fn refused(&self, _: Request<RefusedRequest>) -> Answer<RefusedResponse> {
        Ok(Response::new(RefusedResponse {}))
    }

    type WatchInventoryStream = Updates<InventoryUpdate>;

    async fn watch_inventory(
        &self,
        _: Request<WatchInventoryRequest>,
    ) -> Answer<Self::WatchInventoryStream> {
        let attacker = self.0.clone();
        let instance = match attacker.attack {
            // Before any snapshot: the text is repeated in the logged reason.
            Attack::Forge => "\n2026-01-01 ERROR forged line".repeat(5),
            _ => "i".to_owned(),
        };
        let updates = iter(0_u64..).then(move |number| {
            let (attacker, instance) = (attacker.clone(), instance.clone());
            async move {
                // The response headers are sent first: the controller does not wait long for them, and making a large message takes a while.
                tokio::task::yield_now().await;
                let (drives, volumes) = match attacker.attack {
                    Attack::Grow => (0, volumes(&attacker.node, number, 0)),
                    Attack::Foreign => (0, volumes("other", number, 4000)),
                    Attack::Bomb => (BOMB_BYTES / size_of::<Drive>(), Vec::new()),
                    _ => (0, Vec::new()),
                };
                Ok(InventoryUpdate {
                    instance,
                    node_id: attacker.node.clone(),
                    revision: number + 1,
                    since_revision: number,
                    full: number == 0 && !matches!(attacker.attack, Attack::Forge),
                    ready: true,
                    drives: vec![Drive::default(); drives],
                    volumes,
                    ..InventoryUpdate::default()
                })
            }
        });
        Ok(Response::new(Box::pin(updates)))
    }

    async fn create_volume(&self, _: Request<CreateVolumeRequest>) -> Answer<CreateVolumeResponse> {
        no()
    }

    async fn keep_placement(
        &self,
        _: Request<KeepPlacementRequest>,
    ) -> Answer<KeepPlacementResponse> {
        no()
    }

    async fn delete_unused_volume(
        &self,
        _: Request<DeleteUnusedVolumeRequest>,
    ) -> Answer<DeleteVolumeResponse> {
        no()
    }

    async fn delete_volume(&self, _: Request<DeleteVolumeRequest>) -> Answer<DeleteVolumeResponse> {
        no()
    }

    async fn expand_volume(&self, _: Request<ExpandVolumeRequest>) -> Answer<ExpandVolumeResponse> {
        no()
    }

    async fn rescan(&self, _: Request<RescanRequest>) -> Answer<RescanResponse> {
        no()
    }

    type WipeDriveStream = Updates<WipeDriveProgress>;

    async fn wipe_drive(&self, _: Request<WipeDriveRequest>) -> Answer<Self::WipeDriveStream> {
        no()
    }

    async fn acknowledge_drive(
        &self,
        _: Request<AcknowledgeDriveRequest>,
    ) -> Answer<AcknowledgeDriveResponse> {
        no()
    }

    async fn unacknowledge_drive(
        &self,
        _: Request<UnacknowledgeDriveRequest>,
    ) -> Answer<AcknowledgeDriveResponse> {
        no()
    }

    async fn cordon_drive(&self, _: Request<CordonDriveRequest>) -> Answer<CordonDriveResponse> {
        no()
    }

    async fn move_volumes(&self, _: Request<MoveVolumesRequest>) -> Answer<MoveVolumesResponse> {
        no()
    }

    async fn cancel_moves(&self, _: Request<CancelMovesRequest>) -> Answer<CancelMovesResponse> {
        no()
    }

    async fn list_moves(&self, _: Request<ListMovesRequest>) -> Answer<ListMovesResponse> {
        no()
    }

    async fn create_snapshot(
        &self,
        _: Request<CreateSnapshotRequest>,
    ) -> Result<Response<CreateSnapshotResponse>, Status> {
        no()
    }

    async fn create_group_snapshot(
        &self,
        _: Request<CreateGroupSnapshotRequest>,
    ) -> Answer<CreateGroupSnapshotResponse> {
        no()
    }

    async fn delete_group_snapshot(
        &self,
        _: Request<DeleteGroupSnapshotRequest>,
    ) -> Answer<DeleteSnapshotResponse> {
        no()
    }

    async fn delete_snapshot(
        &self,
        _: Request<DeleteSnapshotRequest>,
    ) -> Result<Response<DeleteSnapshotResponse>, Status> {
        no()
    }

    async fn list_copies(
        &self,
        _: Request<ListCopiesRequest>,
    ) -> Result<Response<ListCopiesResponse>, Status> {
        no()
    }

    async fn prefer_place(&self, _: Request<PreferPlaceRequest>) -> Answer<PreferPlaceResponse> {
        no()
    }

    async fn retire_drive(&self, _: Request<RetireDriveRequest>) -> Answer<RetireDriveResponse> {
        no()
    }

    async fn locate_drive(&self, _: Request<LocateDriveRequest>) -> Answer<LocateDriveResponse> {
        no()
    }

    async fn adopt_drive(&self, _: Request<AdoptDriveRequest>) -> Answer<AdoptDriveResponse> {
        no()
    }

    async fn drive_latency(&self, _: Request<DriveLatencyRequest>) -> Answer<DriveLatencyResponse> {
        no()
    }

    async fn drive_history(&self, _: Request<DriveHistoryRequest>) -> Answer<DriveHistoryResponse> {
        no()
    }

    async fn check_volume(&self, _: Request<CheckVolumeRequest>) -> Answer<CheckVolumeResponse> {
        no()
    }
}
