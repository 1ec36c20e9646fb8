//! `drivebay-agent drive release`: removes Drivebay's label from a claimed drive without volumes.

use std::{path::Path, time::Duration};

use drivebay_proto::agent::ReleaseDriveRequest;

use super::one_drive::{self, DriveAction, OneDriveError};

/// Limit of releasing, which writes both ends of the drive and scans the drives.
const DEADLINE: Duration = Duration::from_secs(120);

const RELEASE: DriveAction = DriveAction {
    verb: "release",
    warning: "releasing takes Drivebay's label from this drive, which holds no volume:",
    aim: "To release it",
};

/// Releases the drive if `confirm` is its identity, and returns the text to print. Errs with a preview if `confirm` is None.
pub async fn run(
    socket: &Path,
    name: &str,
    confirm: Option<&str>,
) -> Result<String, OneDriveError> {
    let (mut client, inventory, drive) = one_drive::named(socket, name).await?;
    let confirmed = one_drive::confirmed(&inventory, &drive, name, confirm, &RELEASE);
    let request = ReleaseDriveRequest {
        drive: drive.id.clone(),
        confirm: one_drive::spelled_out(&drive, &confirmed),
    };
    let call = client.manual_volumes.release_drive(request);
    let answer = client.agent.answered_within(DEADLINE, call).await;
    let answer = one_drive::refused_first(confirmed, answer)?.into_inner();
    Ok(match answer.blank {
        true => format!("{} is released, and blank\n", drive.id),
        false => format!(
            "{} is released; what was on it before it was claimed is still there: `drivebay-agent drive wipe` makes it blank\n",
            drive.id
        ),
    })
}
