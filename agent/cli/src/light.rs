//! `drivebay-agent drive locate`: the light by which a drive is found in its enclosure.

use std::{path::Path, time::Duration};

use drivebay_proto::agent::LocateDriveRequest;
use drivebay_view::args::Light;

use super::one_drive::{self, OneDriveError};

/// Above the agent's own deadline for an enclosure.
const DEADLINE: Duration = Duration::from_secs(50);

/// Has it switched. Answers with what to print.
pub(super) async fn run(socket: &Path, name: &str, light: Light) -> Result<String, OneDriveError> {
    let (mut client, _, drive) = one_drive::named(socket, name).await?;
    let request = LocateDriveRequest {
        drive: drive.id.clone(),
        on: light.is_on(),
    };
    let call = client.raw.locate_drive(request);
    let answer = client.asked.answered_within(DEADLINE, call).await?;
    Ok(light.outcome(&drive, &answer.into_inner()))
}
