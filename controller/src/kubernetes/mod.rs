//! The cluster's API server: what should exist (`follow`), and what is told to those who look there (`notices` says what
//! is due, `events` tells it); and, before the controller starts, its certificates there (`certificates`).
//!
//! TokenReview is in [`drivebay_service::tokens`]. Everything here is optional: without it the controller knows what agents say.

#[cfg(feature = "certs")]
mod certificates;
mod duplicates;
mod events;
mod follow;
mod moves;
mod notices;

use kube::Client;

#[cfg(feature = "certs")]
pub use certificates::{CertificatesError, certificates};
pub use duplicates::remove_duplicates;
pub use events::tell;
pub use follow::follow;

/// No way to an API server is known.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error(
        "cannot tell where the API server is; --kubernetes and --agent-service-account are for a controller in a pod with a ServiceAccount token"
    )]
    Config(#[source] kube::config::InferConfigError),
    #[error("cannot set up a client of the API server")]
    Client(#[source] Box<kube::Error>),
}

/// As KUBECONFIG says, or as for every pod: address from the environment, token and CA from the ServiceAccount's volume.
///
/// # Errors
/// [`ClientError`]
pub async fn client() -> Result<Client, ClientError> {
    let config = kube::Config::infer().await.map_err(ClientError::Config)?;
    Client::try_from(config).map_err(|error| ClientError::Client(Box::new(error)))
}
