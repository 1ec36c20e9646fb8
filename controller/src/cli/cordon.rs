//! `drivebay-controller drive cordon` and `drive uncordon`, for a drive of any node.

use std::io::Write;

use drivebay_common::{cli::operator, pick::Part};
use drivebay_proto::{agent, controller::CordonDriveRequest};
use drivebay_view::{args::drive::UncordonArgs, cordon};

use super::{CommandError, args::NodesArg, client::Client, one, output::write};

/// Cordons a drive, or uncordons it if `reason` is None. With --plan, only prints what would change.
pub(super) async fn run(
    client: &mut Client,
    args: &UncordonArgs<NodesArg>,
    reason: Option<&str>,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    let of = &args.of;
    let drive = one::find_drive(client, &of.drive, &of.at.nodes, Part::Whole).await?;
    let uncordon = reason.is_none();
    let text = if args.plan {
        let volumes = one::volumes_on(client, &drive).await?.len();
        cordon::plan(volumes as u64, &drive.it, uncordon)
    } else {
        let request = agent::CordonDriveRequest {
            drive: drive.it.id.clone(),
            by: operator(of.by.as_deref()).ok_or(CommandError::Nobody)?,
            reason: reason.unwrap_or_default().to_owned(),
            uncordon,
        };
        let request = CordonDriveRequest {
            node: drive.node.clone(),
            request: Some(request),
        };
        cordon::outcome(&client.cordon_drive(request).await?)
    };
    write(out, &format!("node {}: {text}", drive.node))
}
