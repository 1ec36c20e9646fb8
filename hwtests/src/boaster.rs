//! A node with a good certificate that says far too much in its hello.

use std::{net::SocketAddr, thread};

use drivebay_agent::uplink::{self, UplinkConfig};
use drivebay_common::tls::{Credentials, Role, TlsFiles};
use drivebay_proto::agent::{agent_server::Agent, *};
use tokio_stream::Empty;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::{Request, Response, Status};

use crate::netns::Host;

/// Runs it on this host until the answer is dropped.
///
/// # Panics
/// When it cannot be started.
pub fn start(host: &Host, controller: SocketAddr, files: TlsFiles, bytes: usize) -> DropGuard {
    let stop = CancellationToken::new();
    let token = stop.clone();
    // Its one thread is on the host, and so are its connections.
    host.inside(|| {
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            runtime.block_on(async move {
                let credentials = Credentials::load(files, Role::Agent).await.unwrap();
                let config = UplinkConfig {
                    token: None,
                    targets: vec![controller.to_string().parse().unwrap()],
                    credentials: Some(credentials),
                };
                uplink::run(config, Boaster { bytes }, token).await;
            });
        })
    });
    stop.drop_guard()
}

#[derive(Debug, Clone)]
struct Boaster {
    bytes: usize,
}

type Answer<T> = Result<Response<T>, Status>;

fn no<T>() -> Answer<T> {
    Err(Status::unimplemented("it only says hello"))
}

#[tonic::async_trait]
impl Agent for Boaster {
    async fn prove(&self, _: Request<ProveRequest>) -> Answer<ProveResponse> {
        Err(Status::unimplemented("it has no token"))
    }

    async fn hello(&self, _: Request<HelloRequest>) -> Answer<HelloResponse> {
        Ok(Response::new(HelloResponse {
            version: "x".repeat(self.bytes),
            ..HelloResponse::default()
        }))
    }

    async fn refused(&self, _: Request<RefusedRequest>) -> Answer<RefusedResponse> {
        no()
    }

    type WatchInventoryStream = Empty<Result<InventoryUpdate, Status>>;

    async fn watch_inventory(
        &self,
        _: Request<WatchInventoryRequest>,
    ) -> Answer<Self::WatchInventoryStream> {
        no()
    }

    async fn create_volume(&self, _: Request<CreateVolumeRequest>) -> Answer<CreateVolumeResponse> {
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

    type WipeDriveStream = Empty<Result<WipeDriveProgress, Status>>;

    async fn wipe_drive(&self, _: Request<WipeDriveRequest>) -> Answer<Self::WipeDriveStream> {
        no()
    }

    async fn acknowledge_drive(
        &self,
        _: Request<drivebay_proto::agent::AcknowledgeDriveRequest>,
    ) -> Answer<drivebay_proto::agent::AcknowledgeDriveResponse> {
        no()
    }

    async fn adopt_drive(&self, _: Request<AdoptDriveRequest>) -> Answer<AdoptDriveResponse> {
        no()
    }

    async fn check_volume(&self, _: Request<CheckVolumeRequest>) -> Answer<CheckVolumeResponse> {
        no()
    }
}
