//! Kubelet plugin registration, version 1, served by the agent itself.
//!
//! The kubelet watches a directory for sockets, asks each who it is within one second, and tells it
//! whether it was accepted. A refusal is never retried by the kubelet until the socket is made anew, so it is
//! made anew here, after a while. GetInfo is answered for life: a kubelet that asks again and hears nothing
//! unregisters the driver. The socket goes away on stop, and only then.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use drivebay_common::{
    authority, dial,
    socket::{self, BindError, Bound},
};
use drivebay_proto::{
    csi::{GetPluginInfoRequest, identity_client::IdentityClient},
    registration::{
        InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
        registration_server::{Registration, RegistrationServer},
    },
};
use tokio::{sync::mpsc, time::timeout};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, transport::Server};
use tracing::{error, info, warn};

/// CSI's major version, as node-driver-registrar says it too; kubelets refuse 2 and above.
const SUPPORTED_VERSION: &str = "1.0.0";
/// Wait for the CSI socket to answer, between two questions.
const CSI_POLL: Duration = Duration::from_millis(200);
/// A Probe that takes longer than this is no answer.
const CSI_DEADLINE: Duration = Duration::from_secs(1);
/// An open connection may hold a server this long after its end was asked for (hyper waits for its peer).
const DRAIN: Duration = Duration::from_secs(1);

/// What to register.
#[derive(Debug, Clone)]
pub struct RegistrationConfig {
    /// The kubelet's `plugins_registry`.
    pub dir: PathBuf,
    /// CSI driver name.
    pub driver_name: String,
    /// The CSI socket as this process sees it; registration waits until it answers.
    pub csi_socket: PathBuf,
    /// The CSI socket as the kubelet sees it.
    pub kubelet_csi_socket: PathBuf,
    /// Wait before the socket is made anew after a refusal: first, and at most.
    pub backoff: (Duration, Duration),
}

impl RegistrationConfig {
    /// 1 s after the first refusal, doubling to 1 min.
    pub const BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

    /// The registration socket.
    pub fn socket(&self) -> PathBuf {
        self.dir.join(format!("{}-reg.sock", self.driver_name))
    }
}

/// Why registration cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum RegistrationError {
    /// The socket cannot be made.
    #[error(
        "cannot make the registration socket {path}; does the kubelet's plugins_registry exist, and is it mounted into the pod?"
    )]
    Bind {
        path: PathBuf,
        #[source]
        source: BindError,
    },
    /// The server failed.
    #[error("serving the registration socket {path} failed")]
    Serve {
        path: PathBuf,
        #[source]
        source: tonic::transport::Error,
    },
}

/// Registers and stays registered until `shutdown`; then removes the socket and returns.
pub async fn serve(
    config: RegistrationConfig,
    shutdown: CancellationToken,
) -> Result<(), RegistrationError> {
    let csi_answers = wait_for_csi(&config.csi_socket);
    tokio::select! {
        () = csi_answers => {}
        () = shutdown.cancelled() => return Ok(()),
    }
    let mut refusals: u32 = 0;
    loop {
        match serve_once(&config, &shutdown, &mut refusals).await? {
            Ended::Stopped => return Ok(()),
            Ended::Refused => {}
        }
        let wait = backoff(refusals, config.backoff, random());
        refusals = refusals.saturating_add(1);
        warn!(
            wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
            "kubelet registration interrupted; will retry"
        );
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = shutdown.cancelled() => return Ok(()),
        }
    }
}

/// Why one life of the socket ended.
enum Ended {
    Stopped,
    Refused,
}

async fn serve_once(
    config: &RegistrationConfig,
    shutdown: &CancellationToken,
    refusals: &mut u32,
) -> Result<Ended, RegistrationError> {
    let path = config.socket();
    let Bound { listener, file } =
        socket::bind(&path)
            .await
            .map_err(|source| RegistrationError::Bind {
                path: path.clone(),
                source,
            })?;
    let (verdicts, mut verdict) = mpsc::channel(1);
    let service = RegistrationServer::new(Plugin {
        info: Arc::new(PluginInfo {
            r#type: "CSIPlugin".into(),
            name: config.driver_name.clone(),
            endpoint: config.kubelet_csi_socket.to_string_lossy().into_owned(),
            supported_versions: vec![SUPPORTED_VERSION.into()],
        }),
        verdicts,
    });
    info!(socket = %path.display(), "waiting for the kubelet to register this driver");

    let stop = CancellationToken::new();
    let server = Server::builder()
        .add_service(service)
        .serve_with_incoming_shutdown(
            authority::incoming(listener),
            stop.clone().cancelled_owned(),
        );
    let mut server = std::pin::pin!(server);
    let failed = |source| RegistrationError::Serve {
        path: path.clone(),
        source,
    };
    let ended = loop {
        tokio::select! {
            ended = &mut server => {
                // Without a stop it ends only by failing.
                ended.map_err(failed)?;
                break Ended::Stopped;
            }
            () = shutdown.cancelled() => break Ended::Stopped,
            said = verdict.recv() => match said {
                Some(Verdict::Accepted) => {
                    *refusals = 0;
                    info!("driver registered by the kubelet");
                }
                Some(Verdict::Refused(reason)) => {
                    error!(reason, "kubelet refused driver registration");
                    break Ended::Refused;
                }
                // The server holds the sender for as long as it runs.
                None => break Ended::Stopped,
            },
        }
    };
    // The socket goes first: nobody can dial what is about to end.
    drop(file);
    stop.cancel();
    if let Ok(finished) = timeout(DRAIN, server).await {
        finished.map_err(failed)?;
    }
    Ok(ended)
}

/// Returns when the CSI socket answers as a CSI driver.
async fn wait_for_csi(socket: &Path) {
    loop {
        let asked = async {
            let channel = dial::once(socket).await.ok()?;
            let mut client = IdentityClient::new(channel);
            client.get_plugin_info(GetPluginInfoRequest {}).await.ok()
        };
        if let Ok(Some(_)) = timeout(CSI_DEADLINE, asked).await {
            return;
        }
        tokio::time::sleep(CSI_POLL).await;
    }
}

/// What the kubelet said.
#[derive(Debug)]
enum Verdict {
    Accepted,
    Refused(String),
}

struct Plugin {
    info: Arc<PluginInfo>,
    verdicts: mpsc::Sender<Verdict>,
}

#[tonic::async_trait]
impl Registration for Plugin {
    async fn get_info(
        &self,
        _request: Request<InfoRequest>,
    ) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new((*self.info).clone()))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let status = request.into_inner();
        let verdict = if status.plugin_registered {
            Verdict::Accepted
        } else {
            Verdict::Refused(status.error)
        };
        // Full or closed: an earlier verdict is being acted upon, which makes this one stale.
        let _ = self.verdicts.try_send(verdict);
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}

/// The wait after refusal number `refusals` (from 0): doubling, and between half and all of it, so that
/// a cluster whose control plane came back is not asked by all nodes in one moment.
fn backoff(refusals: u32, (first, most): (Duration, Duration), random: u32) -> Duration {
    let doubled = first
        .saturating_mul(2_u32.saturating_pow(refusals.min(16)))
        .min(most);
    let half = doubled / 2;
    half + half.mul_f64(f64::from(random) / f64::from(u32::MAX))
}

fn random() -> u32 {
    let bytes = uuid::Uuid::new_v4().into_bytes();
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

#[cfg(test)]
mod tests;
