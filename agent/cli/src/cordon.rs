//! `drivebay-agent drive cordon` and `drive uncordon`: stops or allows new volumes on a claimed drive.

use drivebay_common::cli::operator;
use drivebay_proto::agent::CordonDriveRequest;
use drivebay_view::{args::drive::UncordonArgs, cordon};

use super::{
    args::SocketArg,
    one_drive::{self, OneDriveError},
};

/// Cordons or uncordons the drive, or returns the plan. `reason`: of the cordon; None uncordons. Returns the text to print.
pub(super) async fn run(
    args: &UncordonArgs<SocketArg>,
    reason: Option<&str>,
) -> Result<String, OneDriveError> {
    let of = &args.of;
    let (mut client, inventory, drive) = one_drive::named(&of.at.socket, &of.drive).await?;
    let uncordon = reason.is_none();
    if args.plan {
        let on_it = inventory.volumes.iter();
        let on_it = on_it.filter(|volume| volume.drive == drive.id).count();
        return Ok(cordon::plan(on_it as u64, &drive, uncordon));
    }
    let request = CordonDriveRequest {
        drive: drive.id.clone(),
        by: operator(of.by.as_deref()).ok_or(OneDriveError::Nobody)?,
        reason: reason.unwrap_or_default().to_owned(),
        uncordon,
    };
    let call = client.raw.cordon_drive(request);
    let answer = client.agent.answered(call).await?.into_inner();
    Ok(cordon::outcome(&answer))
}
