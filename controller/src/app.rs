//! `drivebay-controller run`: an agent dialled, CSI served, an end that does not wait for ever.

use std::{io, path::PathBuf, time::Duration};

use drivebay_proto::csi::{controller_server::ControllerServer, identity_server::IdentityServer};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};
use tonic::transport::Server;

use crate::{
    Agents, ControllerConfig, ControllerService, IdentityConfig, IdentityService,
    config::{ConfigError, RunOptions},
    dial,
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
    let bound = socket::bind(&path).await?;
    let agents = Agents::single(dial::reconnecting(options.agent_socket, CONNECT));
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
            attach: options.attach,
        },
        agents,
    );
    tracing::info!(socket = %path.display(), "serving CSI Identity and Controller");
    let router = Server::builder()
        .add_service(IdentityServer::new(identity))
        .add_service(ControllerServer::new(controller));
    socket::serve(router, bound, stop, DRAIN).await?;
    Ok(())
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
