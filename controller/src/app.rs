//! `drivebay-controller run`: an agent dialled, CSI served, an end that does not wait for ever.

use std::{io, path::PathBuf, time::Duration};

use drivebay_proto::csi::{controller_server::ControllerServer, identity_server::IdentityServer};
use hyper_util::rt::TokioIo;
use tokio::{
    net::UnixStream,
    signal::unix::{SignalKind, signal},
    sync::watch,
};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::{Channel, Endpoint, Server};
use tower::service_fn;

use crate::{
    Agents, ControllerConfig, ControllerService, IdentityConfig, IdentityService,
    config::{ConfigError, RunOptions},
    socket::{self, BindError},
};

/// Running calls may finish for this long after a signal.
const DRAIN: Duration = Duration::from_secs(10);
/// Probe says ready after this even without an agent: the calls say UNAVAILABLE themselves, and
/// restarting the controller would not bring an agent back.
const STARTING: Duration = Duration::from_secs(30);
/// An agent's socket accepts within this, or is tried again.
const CONNECT: Duration = Duration::from_secs(5);

/// Why the controller ended.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The command line.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The socket.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// Signals cannot be waited for.
    #[error("cannot wait for signals")]
    Signals(#[source] io::Error),
    /// Serving failed.
    #[error("serving CSI has failed")]
    Serve(#[from] tonic::transport::Error),
}

/// Serves until SIGTERM or SIGINT.
pub async fn run(options: RunOptions) -> Result<(), RunError> {
    let path = options.csi_path(std::env::var("CSI_ENDPOINT").ok())?;
    let mut terminate = signal(SignalKind::terminate()).map_err(RunError::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(RunError::Signals)?;
    let stop = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    serve(options, path, stop).await
}

/// Serves CSI on this socket until `stop`, and a bounded time longer.
pub async fn serve(
    options: RunOptions,
    path: PathBuf,
    stop: impl Future<Output = ()>,
) -> Result<(), RunError> {
    let (listener, _file) = socket::bind(&path).await?;
    let agents = Agents::single(dial(options.agent_socket));
    let identity = IdentityService::new(IdentityConfig {
        driver_name: options.driver_name.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        controller: true,
        ready: ready_or_late(agents.ready()),
    });
    let controller = ControllerService::new(
        ControllerConfig {
            driver_name: options.driver_name,
            health_api: options.health_api,
        },
        agents,
    );
    tracing::info!(socket = %path.display(), "serving CSI Identity and Controller");
    let (stopping, mut stopped) = watch::channel(false);
    let serving = Server::builder()
        .add_service(IdentityServer::new(identity))
        .add_service(ControllerServer::new(controller))
        .serve_with_incoming_shutdown(UnixListenerStream::new(listener), async move {
            stop.await;
            stopping.send_replace(true);
        });
    // A client that keeps its connection open must not keep the process.
    let drained = async {
        let _ = stopped.wait_for(|stopped| *stopped).await;
        tokio::time::sleep(DRAIN).await;
    };
    tokio::select! {
        served = serving => served?,
        () = drained => tracing::warn!("clients kept their connections; ended without them"),
    }
    Ok(())
}

/// A channel to an agent's socket, which need not be there yet; it reconnects on use.
fn dial(socket: PathBuf) -> Channel {
    Endpoint::from_static("http://localhost")
        .connect_timeout(CONNECT)
        .connect_with_connector_lazy(service_fn(move |_: tonic::transport::Uri| {
            let socket = socket.clone();
            async move { UnixStream::connect(socket).await.map(TokioIo::new) }
        }))
}

fn ready_or_late(mut agents: watch::Receiver<bool>) -> watch::Receiver<bool> {
    let (ready, receiver) = watch::channel(false);
    tokio::spawn(async move {
        let first = agents.wait_for(|ready| *ready);
        let late = tokio::time::timeout(STARTING, first).await.is_err();
        if late {
            tracing::warn!("no agent is ready yet; CSI calls will say so");
        }
        ready.send_replace(true);
    });
    receiver
}
