//! `drivebay-agent drive locate`: switches a drive's locate light.

use std::{path::Path, time::Duration};

use drivebay_proto::agent::LocateDriveRequest;
use drivebay_view::args::Light;

use super::one_drive::{self, OneDriveError};

/// Longer than the agent's own limit for an enclosure.
const DEADLINE: Duration = Duration::from_secs(50);

/// Switches the light, and returns the text to print.
pub(super) async fn run(socket: &Path, name: &str, light: Light) -> Result<String, OneDriveError> {
    let (mut client, _, drive) = one_drive::named(socket, name).await?;
    let request = LocateDriveRequest {
        drive: drive.id.clone(),
        on: light.is_on(),
    };
    let call = client.raw.locate_drive(request);
    let answer = client.agent.answered_within(DEADLINE, call).await?;
    Ok(light.outcome(&drive, &answer.into_inner()))
}
