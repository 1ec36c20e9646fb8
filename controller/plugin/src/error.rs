//! Why a command failed, with its exit code.

use std::io;

use drivebay_common::{
    cli::{NOT_FOUND, NOT_PERMITTED, UNREACHABLE, USAGE, WRONG},
    pick::PickError,
};
use drivebay_view::listing::ListingError;

/// Resource of volume snapshots.
pub(crate) const SNAPSHOT_CONTENTS: &str = "VolumeSnapshotContents";

/// A command failed, or may have.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PluginError {
    #[error("cannot start")]
    Start(#[source] io::Error),
    // Texts of these errors have those of their sources.
    #[error("cannot use the kubeconfig; see --kubeconfig and --context: {0}")]
    Kubeconfig(kube::config::KubeconfigError),
    #[error("cannot set up a client of the API server: {0}")]
    Client(Box<kube::Error>),
    #[error("cannot {act}: the API server refuses it: {message}")]
    Refused {
        act: &'static str,
        message: String,
        /// HTTP status of the answer. 403 and 404 have exit codes of their own.
        code: u16,
    },
    #[error("cannot {act}: no answer of the API server: {error}")]
    Unreachable {
        act: &'static str,
        error: Box<kube::Error>,
    },
    #[error("the cluster has no {resource}: {remedy}")]
    NoResource {
        resource: &'static str,
        remedy: &'static str,
    },
    #[error("no node {} has a drive with an object; `kubectl drivebay nodes` shows all nodes", .0.join(", "))]
    NoSuchNode(Vec<String>),
    #[error(transparent)]
    Pick(#[from] PickError),
    #[error("drive {0} is BAD: to silence its findings repeat the command with --confirm {0}\n{1}")]
    NotConfirmed(String, String),
    #[error("drive {0} has no finding that counts, so there is nothing to acknowledge")]
    NothingToAcknowledge(String),
    #[error("drive {drive} has no volume {volume}; it has {has}")]
    NoVolume {
        drive: String,
        volume: String,
        has: String,
    },
    #[error(
        "task {0} was deleted while it was waited for; kubectl drivebay tasks lists those that exist"
    )]
    TaskDeleted(String),
    #[error("the task {name} may go on; kubectl drivebay tasks shows it")]
    Lost {
        name: String,
        #[source]
        error: Box<PluginError>,
    },
    #[error("cannot run kubectl port-forward; is kubectl in PATH?")]
    Kubectl(#[source] io::Error),
    #[error("cannot print the result")]
    Output(#[source] io::Error),
    #[error(transparent)]
    Listing(#[from] ListingError),
    #[error("cannot print the result as JSON or YAML")]
    Json(#[from] serde_json::Error),
}

impl PluginError {
    /// Converts an error of the API server. `act`: what failed, as "list the drives"; `resource`: plural, for a missing definition.
    pub(crate) fn of_api(act: &'static str, resource: &'static str, error: kube::Error) -> Self {
        match error {
            // A definition that does not exist is answered without the name of an object.
            kube::Error::Api(status)
                if status.code == 404
                    && status.details.as_ref().is_none_or(|it| it.name.is_empty()) =>
            {
                Self::NoResource {
                    resource,
                    remedy: match resource {
                        SNAPSHOT_CONTENTS => {
                            "install the CRDs and the controller of volume snapshots"
                        }
                        _ => {
                            "Drivebay's chart installs them, with driveObjects and driveTasks of its values"
                        }
                    },
                }
            }
            kube::Error::Api(status) => Self::Refused {
                act,
                message: status.message,
                code: status.code,
            },
            error => Self::Unreachable {
                act,
                error: Box::new(error),
            },
        }
    }

    /// Returns the exit code.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::Refused { code: 403, .. } => NOT_PERMITTED,
            Self::Refused { code: 404, .. } | Self::NoSuchNode(_) | Self::NoVolume { .. } => {
                NOT_FOUND
            }
            Self::Unreachable { .. } => UNREACHABLE,
            Self::Pick(error) => error.code(),
            Self::Lost { error, .. } => error.code(),
            Self::Kubeconfig(_) | Self::NotConfirmed(..) => USAGE,
            _ => WRONG,
        }
    }
}
