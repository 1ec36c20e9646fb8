//! Kubelet plugin registration, version 1, served by the agent itself.
//!
//! The kubelet watches a directory for sockets, requests each one's identity within one second, and reports whether it was accepted. The
//! kubelet retries after a refusal only if the socket is created again, so it is created again after a delay. GetInfo is served until the
//! end: a kubelet that calls it again without a reply unregisters the driver. The socket is removed on stop only.

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

/// CSI's major version, the same as node-driver-registrar's; kubelets refuse 2 and above.
const SUPPORTED_VERSION: &str = "1.0.0";
/// Interval of calls until the CSI socket responds.
const CSI_POLL: Duration = Duration::from_millis(200);
/// Limit of such a call.
const CSI_DEADLINE: Duration = Duration::from_secs(1);
/// Time for which an open connection may keep a stopping server (hyper waits for its peer).
const DRAIN: Duration = Duration::from_secs(1);

/// Settings of the registration.
#[derive(Debug, Clone)]
pub struct RegistrationConfig {
    /// The kubelet's directory `plugins_registry`, in which the registration socket is created. It must exist.
    pub dir: PathBuf,
    pub driver_name: String,
    /// The CSI socket as seen by this process; registration waits until it responds.
    pub csi_socket: PathBuf,
    /// The CSI socket as seen by the kubelet.
    pub kubelet_csi_socket: PathBuf,
    /// Delays before the socket is created again after a refusal: the first, and the longest.
    pub backoff: (Duration, Duration),
}

impl RegistrationConfig {
    /// 1 s after the first refusal, doubling to 1 min.
    pub const BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

    /// Returns the path of the registration socket.
    pub fn socket(&self) -> PathBuf {
        self.dir.join(format!("{}-reg.sock", self.driver_name))
    }
}

/// Registration was not served.
#[derive(Debug, thiserror::Error)]
pub enum RegistrationError {
    #[error(
        "cannot make the registration socket {path}; does the kubelet's plugins_registry exist, and is it mounted into the pod?"
    )]
    Bind {
        path: PathBuf,
        #[source]
        source: BindError,
    },
    #[error("serving the registration socket {path} failed")]
    Serve {
        path: PathBuf,
        #[source]
        source: tonic::transport::Error,
    },
}

/// Registers the driver and remains registered until `shutdown`; then removes the socket and returns.
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

/// Reason for which the socket was closed.
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
                // Without a stop it ends only with an error.
                ended.map_err(failed)?;
                break Ended::Stopped;
            }
            () = shutdown.cancelled() => break Ended::Stopped,
            received = verdict.recv() => match received {
                Some(Verdict::Accepted) => {
                    *refusals = 0;
                    info!("driver registered by the kubelet");
                }
                Some(Verdict::Refused(reason)) => {
                    error!(reason, "kubelet refused driver registration");
                    break Ended::Refused;
                }
                // The server holds the sender while it runs.
                None => break Ended::Stopped,
            },
        }
    };
    // The socket is removed first, so that no client connects to a stopping server.
    drop(file);
    stop.cancel();
    if let Ok(finished) = timeout(DRAIN, server).await {
        finished.map_err(failed)?;
    }
    Ok(ended)
}

/// Waits until the CSI socket responds as a CSI driver.
async fn wait_for_csi(socket: &Path) {
    loop {
        let query = async {
            let channel = dial::once(socket).await.ok()?;
            let mut client = IdentityClient::new(channel);
            client.get_plugin_info(GetPluginInfoRequest {}).await.ok()
        };
        if let Ok(Some(_)) = timeout(CSI_DEADLINE, query).await {
            return;
        }
        tokio::time::sleep(CSI_POLL).await;
    }
}

/// Verdict of the kubelet.
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
        // Full or closed: an earlier verdict is being processed, which makes this one obsolete.
        let _ = self.verdicts.try_send(verdict);
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}

/// Returns the delay after refusal number `refusals` (from 0): doubling, and between half and all of it, so that not all nodes call a
/// recovered control plane at the same time.
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
