//! `drivebay-controller drive show` and `volume show`: finding the one that is meant, wherever it is.

use std::io::Write;

use drivebay_proto::{
    VolumeId,
    agent::{Drive, Volume},
};
use serde::Serialize;

use super::{
    CommandError,
    args::{Format, ShowOneArgs},
    client::Client,
    listing::write,
    nodes,
    paint::Paint,
    show::{self, DriveSheetJson, VolumeSheetJson, drive_names, pick, volume_names},
};

/// Something on a node.
struct OnNode<T> {
    node: String,
    // The node's agent is there.
    here: bool,
    it: T,
}

/// Whether what was typed could mean it.
fn may_be(typed: &str, names: &[&str]) -> bool {
    let typed = typed.strip_prefix("/dev/").unwrap_or(typed);
    names.iter().any(|name| name.starts_with(typed))
}

/// Finds a drive and shows it.
pub async fn drive(
    client: &mut Client,
    args: &ShowOneArgs,
    now: u64,
    paint: Paint,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    nodes::known(client, &args.show.nodes).await?;
    let mut found: Vec<OnNode<Drive>> = Vec::new();
    let mut incoming = client.drives(&args.show.nodes).await?;
    while let Some(node) = incoming.next().await? {
        let meant = node
            .drives
            .into_iter()
            .filter(|drive| may_be(&args.id, &drive_names(drive)));
        let here = node.state != "away" && node.state != "forgotten";
        found.extend(meant.map(|it| OnNode {
            node: node.node_id.clone(),
            here,
            it,
        }));
    }
    // A drive that was moved is known of its old node, too, as that was last heard of.
    let here: Vec<String> = found
        .iter()
        .filter(|there| there.here)
        .map(|there| there.it.id.clone())
        .collect();
    found.retain(|there| there.here || !here.contains(&there.it.id));
    let list = "drivebay-controller drives --all";
    let drive = pick(&found, &args.id, "drive", list, |there| {
        drive_names(&there.it)
    })?;
    let node = std::slice::from_ref(&drive.node);
    let mut volumes: Vec<Volume> = Vec::new();
    let mut incoming = client.volumes(node, true).await?;
    while let Some(there) = incoming.next().await? {
        volumes.extend(there.volume.filter(|volume| volume.drive == drive.it.id));
    }
    let volumes: Vec<&Volume> = volumes.iter().collect();
    let json = || DriveSheetJson::new(&drive.node, &drive.it, &volumes);
    let text = |wide| show::drive(Some(&drive.node), &drive.it, &volumes, wide, now, paint);
    shown(args.show.output, json, text, out)
}

/// Finds a volume and shows it.
pub async fn volume(
    client: &mut Client,
    args: &ShowOneArgs,
    now: u64,
    paint: Paint,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    nodes::known(client, &args.show.nodes).await?;
    let mut found: Vec<OnNode<Volume>> = Vec::new();
    if args.id.parse::<VolumeId>().is_ok() {
        // Also under the id of a node that it was moved from.
        let answer = client.volume(&args.id).await?.volume.unwrap_or_default();
        found.extend(answer.volume.map(|it| OnNode {
            node: answer.node_id,
            here: true,
            it,
        }));
    } else {
        let mut incoming = client.volumes(&args.show.nodes, true).await?;
        while let Some(there) = incoming.next().await? {
            let meant = there
                .volume
                .filter(|volume| may_be(&args.id, &volume_names(volume)));
            found.extend(meant.map(|it| OnNode {
                node: there.node_id,
                here: true,
                it,
            }));
        }
    }
    let list = "drivebay-controller volumes --deleted";
    let volume = match found.as_slice() {
        [one] => one,
        all => pick(all, &args.id, "volume", list, |there| {
            volume_names(&there.it)
        })?,
    };
    let node = std::slice::from_ref(&volume.node);
    let mut drive = None;
    let mut incoming = client.drives(node).await?;
    while let Some(node) = incoming.next().await? {
        drive = drive.or(node
            .drives
            .into_iter()
            .find(|drive| drive.id == volume.it.drive));
    }
    let drive = drive.as_ref();
    let json = || VolumeSheetJson::new(&volume.node, &volume.it, drive);
    let text = |wide| show::volume(Some(&volume.node), &volume.it, drive, wide, now, paint);
    shown(args.show.output, json, text, out)
}

fn shown<J: Serialize>(
    format: Format,
    json: impl FnOnce() -> J,
    text: impl FnOnce(bool) -> String,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    match format {
        Format::Json => write(out, &(serde_json::to_string_pretty(&json())? + "\n")),
        format => write(out, &text(format == Format::Wide)),
    }
}
