//! `drivebay-agent volume check`: has a volume's filesystem checked now, and reports the result.

use std::{path::Path, time::Duration};

use drivebay_common::{
    cli::{UNKNOWN, WRONG},
    pick::{Part, PickError},
    progress::waiting,
    query::QueryError,
    table::printable,
};
use drivebay_proto::{agent::CheckVolumeRequest, words::CheckResult};
use tonic::Code;

use super::{client::Client, name};

/// The agent ends a check at its own limit (`[checks] timeout`); a day exceeds every reasonable one.
const DEADLINE: Duration = Duration::from_secs(24 * 3600);

/// The filesystem is damaged, or not checked.
#[derive(Debug, thiserror::Error)]
pub enum CheckVolumeError {
    #[error(transparent)]
    Client(#[from] QueryError),
    /// The name matches several volumes.
    #[error(transparent)]
    Pick(#[from] PickError),
    /// The result could not be determined.
    #[error("volume {volume}: {what}")]
    NotChecked {
        volume: String,
        /// Reason, and the method if there was one.
        what: String,
    },
    /// The filesystem is damaged.
    #[error("volume {volume}: {what}")]
    Damaged {
        volume: String,
        /// The damage found, and the method.
        what: String,
    },
}

impl CheckVolumeError {
    /// Returns the exit code.
    pub fn code(&self) -> u8 {
        match self {
            // Another call needed the volume meanwhile.
            Self::Client(QueryError::Refused { status, .. }) if status.code() == Code::Aborted => {
                UNKNOWN
            }
            Self::Client(error) => error.code(),
            Self::Pick(error) => error.code(),
            Self::NotChecked { .. } => UNKNOWN,
            Self::Damaged { .. } => WRONG,
        }
    }
}

/// Checks the volume, and returns the text to print.
pub async fn run(socket: &Path, volume: &str) -> Result<String, CheckVolumeError> {
    let mut client = Client::connect(socket).await?;
    let inventory = client.inventory().await?;
    let volume_id = match name::volume(&inventory, volume, Part::Beginning) {
        Ok(volume) => volume.id.clone(),
        // The agent reports whether there is certainly none.
        Err(none) if none.is_none() => volume.to_owned(),
        Err(error) => return Err(error.into()),
    };
    let call = client.raw.check_volume(CheckVolumeRequest { volume_id });
    let answer = client.agent.answered_within(DEADLINE, call);
    let answer = waiting(&format!("checking volume {}", printable(volume)), answer).await?;
    let answer = answer.into_inner();
    let how = if answer.method.is_empty() {
        String::new()
    } else {
        format!(
            " ({}, {}, {:.1} s)",
            answer.method,
            answer.tool,
            Duration::from_millis(answer.took_ms).as_secs_f64()
        )
    };
    let what = format!("{}{how}", answer.detail);
    let volume = volume.to_owned();
    match answer.known_outcome() {
        Some(CheckResult::Clean) => Ok(format!("{volume}: {what}\n")),
        Some(CheckResult::Corrupt) => Err(CheckVolumeError::Damaged { volume, what }),
        _ => Err(CheckVolumeError::NotChecked { volume, what }),
    }
}
