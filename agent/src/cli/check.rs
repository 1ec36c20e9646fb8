//! `drivebay-agent volume check`: has a volume's filesystem checked now, and says what came of it.

use std::{path::Path, time::Duration};

use drivebay_common::ask::AskError;
use drivebay_proto::agent::CheckVolumeRequest;

use super::client::Client;

/// The agent ends a check at its own limit (`[checks] timeout`); a day is past every one that makes sense.
const DEADLINE: Duration = Duration::from_secs(24 * 3600);

/// Why there is no good answer.
#[derive(Debug, thiserror::Error)]
pub enum CheckVolumeError {
    /// The agent.
    #[error(transparent)]
    Client(#[from] AskError),
    /// The filesystem is damaged.
    #[error("volume {volume}: {what}")]
    Damaged {
        /// As it was named.
        volume: String,
        /// What was found, and how.
        what: String,
    },
}

/// Checks. Answers with what to print.
pub async fn run(socket: &Path, volume: &str) -> Result<String, CheckVolumeError> {
    let mut client = Client::connect(socket).await?;
    let request = CheckVolumeRequest {
        volume_id: volume.to_owned(),
    };
    let call = client.raw.check_volume(request);
    let answer = client.asked.answered_within(DEADLINE, call).await?;
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
    if answer.outcome == "corrupt" {
        return Err(CheckVolumeError::Damaged {
            volume: volume.to_owned(),
            what,
        });
    }
    Ok(format!("{volume}: {what}\n"))
}
