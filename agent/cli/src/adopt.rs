//! `drivebay-agent drive adopt`: makes this node the owner of a drive from another node.

use std::{path::Path, time::Duration};

use drivebay_proto::agent::AdoptDriveRequest;
use drivebay_view::volumes::count;

use super::one_drive::{self, DriveAction, OneDriveError};

/// Limit of adopting, which writes one label and scans the drives.
const DEADLINE: Duration = Duration::from_secs(120);

const ADOPT: DriveAction = DriveAction {
    verb: "adopt",
    warning: "adopting makes this drive and the volumes on it this node's; the node that is named below must not use it any more:",
    aim: "To adopt it",
};

/// Adopts the drive if `confirm` is its identity, and returns the text to print. Errs with a preview if `confirm` is None.
pub async fn run(
    socket: &Path,
    name: &str,
    confirm: Option<&str>,
) -> Result<String, OneDriveError> {
    let (mut client, inventory, drive) = one_drive::named(socket, name).await?;
    one_drive::confirmed(&inventory, &drive, name, confirm, &ADOPT)?;
    let request = AdoptDriveRequest {
        drive: drive.id.clone(),
        confirm: drive.id.clone(),
    };
    let call = client.raw.adopt_drive(request);
    let answer = client.agent.answered_within(DEADLINE, call).await?;
    let answer = answer.into_inner();
    Ok(format!(
        "{} is this node's now, with {}; `drivebay-agent volumes` lists them\n",
        drive.id,
        count(answer.volumes)
    ))
}
