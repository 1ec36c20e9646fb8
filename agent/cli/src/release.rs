//! `drivebay-agent drive release`: gives a claimed drive without volumes back.

use std::{path::Path, time::Duration};

use drivebay_proto::agent::ReleaseDriveRequest;

use super::one_drive::{self, DriveAction, OneDriveError};

/// Releasing writes both ends of the drive and looks at the drives again.
const DEADLINE: Duration = Duration::from_secs(120);

/// How releasing is asked about.
const RELEASE: DriveAction = DriveAction {
    verb: "release",
    warning: "releasing takes Drivebay's label from this drive, which holds no volume:",
    aim: "To release it",
};

/// Shows or releases. Answers with what to print.
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
    let call = client.by_hand.release_drive(request);
    let answer = client.asked.answered_within(DEADLINE, call).await;
    let answer = one_drive::refused_first(confirmed, answer)?.into_inner();
    Ok(match answer.blank {
        true => format!("{} is released, and blank\n", drive.id),
        false => format!(
            "{} is released; what was on it before it was claimed is still there: `drivebay-agent drive wipe` makes it blank\n",
            drive.id
        ),
    })
}
