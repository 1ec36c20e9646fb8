//! `drivebay-controller volume pv`: the PersistentVolume for a volume on its current node.

use std::io::Write;

use drivebay_common::pick::Part;
use drivebay_proto::VolumeId;
use drivebay_view::pv::{PvError, manifest};

use super::{CommandError, args::PvArgs, client::Client, one, output::write};

/// Runs the command: prints the manifest to `out`, and the steps before it is applied to `notes`.
pub async fn run(
    client: &mut Client,
    args: &PvArgs,
    out: &mut dyn Write,
    notes: &mut dyn Write,
) -> Result<(), CommandError> {
    // An id may name the node from which the drive was moved, so it is passed on unchanged.
    let id: VolumeId = match args.id.parse() {
        Ok(id) => id,
        Err(_) => {
            let volume = one::find(client, &args.id, &[], Part::Beginning).await?.it;
            let broken = |_| PvError::Answer("its volume id is none");
            volume.id.parse().map_err(broken)?
        }
    };
    let answer = client.volume(&id.to_string()).await?;
    let manifest = manifest(&answer, &id, &args.claim)?;
    write(notes, &(manifest.first.join("\n") + "\n\n"))?;
    write(out, &args.claim.output.document().write(&manifest.value)?)
}
