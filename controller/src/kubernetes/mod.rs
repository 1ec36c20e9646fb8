//! The cluster's API server: the expected volumes and nodes (`follow`), Kubernetes Events (`notices` decides which are due,
//! `events` writes them), drives as objects (`drive_objects`), and the cluster's certificates before the controller starts (`certificates`).
//!
//! TokenReview is in [`drivebay_service::tokens`]. Everything here is optional: without it, the controller relies on agents alone.

#[cfg(feature = "certs")]
mod certificates;
mod copies;
pub mod drive_objects;
pub mod drive_tasks;
mod duplicates;
mod events;
mod follow;
mod moves;
mod notices;
mod snapshots;

use kube::Client;

#[cfg(feature = "certs")]
pub use certificates::{CertificatesError, certificates};
pub use duplicates::remove_duplicates;
pub use events::report_events;
pub use follow::follow;

/// No client of the API server can be configured.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error(
        "cannot tell where the API server is; --kubernetes and --agent-service-account are for a controller in a pod with a ServiceAccount token"
    )]
    Config(#[source] kube::config::InferConfigError),
    #[error("cannot set up a client of the API server")]
    Client(#[source] Box<kube::Error>),
}

/// Returns a client configured by KUBECONFIG, or else by the pod's environment and ServiceAccount volume.
///
/// # Errors
/// [`ClientError`]
pub async fn client() -> Result<Client, ClientError> {
    let config = kube::Config::infer().await.map_err(ClientError::Config)?;
    Client::try_from(config).map_err(|error| ClientError::Client(Box::new(error)))
}
