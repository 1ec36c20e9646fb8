//! Failures of the plugin. Nomad shows the text to the user who made the request.

use std::{io, path::PathBuf};

use drivebay_common::{
    cli::chain,
    query::QueryError,
    units::{human_duration, size_beside},
};

use super::{LIMIT, request::RequestError};
use crate::manual::ManualError;

/// Error of an operation of `nomad-plugin`. After `Late`, the agent continues the operation.
#[derive(Debug, thiserror::Error)]
pub enum NomadError {
    #[error(transparent)]
    Client(#[from] QueryError),
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error(transparent)]
    Manual(#[from] ManualError),
    #[error("the agent is still scanning its drives; try again")]
    NotReady,
    #[error(
        "not done within {}. The agent goes on with it: try again; if Nomad no longer knows the volume, delete it with `drivebay-agent volume delete {volume}`",
        human_duration(LIMIT)
    )]
    Late { volume: String },
    #[error(
        "volume {volume} is lost: Nomad has it, directory {} was made for it, and no drive of this host holds it. It is not replaced by an empty one. Bring its drive back, or delete the volume in Nomad",
        at.display()
    )]
    Lost { volume: String, at: PathBuf },
    #[error("volume {volume} was not made by Nomad's plugin; nothing was changed")]
    NotOurs { volume: String },
    #[error(
        "volume {volume} has {what} {has:?}, not {requested:?}, and keeps it; create another volume"
    )]
    Differs {
        volume: String,
        what: &'static str,
        has: String,
        requested: String,
    },
    #[error(
        "capacity_max {} is too small: the smallest volume of this class for capacity_min has {}",
        size_beside(*largest, *size),
        size_beside(*size, *largest)
    )]
    OverLargest { largest: u64, size: u64 },
    #[error("{error}; and what was created cannot be taken back: {}. Delete it with `drivebay-agent volume delete {volume}`", chain(undo.as_ref()))]
    LeftOver {
        volume: String,
        #[source]
        error: Box<NomadError>,
        undo: Box<NomadError>,
    },
    #[error("cannot {what} {}", at.display())]
    Directory {
        what: &'static str,
        at: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot write the answer as JSON")]
    Json(#[from] serde_json::Error),
}
