//! `drivebay-controller drive show` and `volume show`: finds the object of a name on any node.

use std::io::Write;

use drivebay_common::pick::{Names, Part, PickError, Typed, pick};
use drivebay_proto::{
    VolumeId,
    agent::{self, Drive, Volume},
    controller::LocateDriveRequest,
    words::NodeState,
};
use serde::Serialize;

use super::{
    CommandError,
    args::{LocateArgs, ShowOneArgs},
    client::Client,
    nodes,
    output::write,
    show::{self, DRIVE, DriveSheet, VOLUME, VolumeSheet, claim, drive_names, volume_names},
    terminal::Terminal,
};
use drivebay_view::args::Format;

/// An object and its node.
pub(super) struct OnNode<T> {
    pub(super) node: String,
    // Claim of a volume, NAMESPACE/NAME; empty if unknown.
    claim: String,
    // The node's agent is connected.
    here: bool,
    pub(super) it: T,
}

/// Finds a drive and prints it.
pub async fn drive(
    client: &mut Client,
    args: &ShowOneArgs,
    now: u64,
    terminal: Terminal,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    let drive = find_drive(client, &args.id, &args.show.nodes, Part::Beginning).await?;
    let all = volumes_of(client, &drive.node).await?;
    let here = show::with_place_on(&all, &drive.it.id);
    let on_it = here.iter().copied();
    let on_it: Vec<&Volume> = on_it.filter(|volume| volume.drive == drive.it.id).collect();
    let json = || DriveSheet::new(&drive.node, &drive.it, &on_it);
    let text = |wide| show::drive(Some(&drive.node), &drive.it, &here, wide, now, terminal);
    shown(args.show.output, json, text, out)
}

/// Switches the locate light of a drive.
pub(super) async fn locate(
    client: &mut Client,
    args: &LocateArgs,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    let drive = find_drive(client, &args.drive, &args.nodes, Part::Whole).await?;
    let request = LocateDriveRequest {
        node: drive.node.clone(),
        request: Some(agent::LocateDriveRequest {
            drive: drive.it.id.clone(),
            on: args.light.is_on(),
        }),
    };
    let answer = client.locate_drive(request).await?;
    let text = args.light.outcome(&drive.it, &answer);
    write(out, &format!("node {}: {text}", drive.node))
}

/// Finds the one drive that matches this name or prefix, and its node.
pub(super) async fn find_drive(
    client: &mut Client,
    name: &str,
    nodes: &[String],
    part: Part,
) -> Result<OnNode<Drive>, CommandError> {
    nodes::query(client, nodes).await?;
    let typed = Typed::new(name, None);
    let mut candidates: Vec<OnNode<Drive>> = Vec::new();
    let mut incoming = client.drives(nodes).await?;
    while let Some(node) = incoming.next().await? {
        let here = !node.known_state().is_some_and(NodeState::is_absent);
        let meant = node
            .drives
            .into_iter()
            .filter(|drive| typed.fits(&drive_names(drive)));
        candidates.extend(meant.map(|it| OnNode {
            node: node.node_id.clone(),
            claim: String::new(),
            here,
            it,
        }));
    }
    // A drive that was moved is still listed on its former node, as last reported.
    let here: Vec<String> = candidates
        .iter()
        .filter(|there| there.here)
        .map(|there| there.it.id.clone())
        .collect();
    candidates.retain(|there| there.here || !here.contains(&there.it.id));
    let meant = pick(&candidates, typed, DRIVE, part, |there| {
        let names = drive_names(&there.it);
        let label = format!("node {}, {}", there.node, names.label);
        Names { label, ..names }
    });
    let id = meant?.it.id.clone();
    let mut candidates = candidates.into_iter();
    let drive = candidates.find(|there| there.it.id == id);
    drive.ok_or_else(|| {
        let (kind, name) = (DRIVE, name.to_owned());
        PickError::None { kind, name }.into()
    })
}

/// Returns the volumes on a drive, including deleted ones.
pub(super) async fn volumes_on(
    client: &mut Client,
    drive: &OnNode<Drive>,
) -> Result<Vec<Volume>, CommandError> {
    let mut volumes = volumes_of(client, &drive.node).await?;
    volumes.retain(|volume| volume.drive == drive.it.id);
    Ok(volumes)
}

async fn volumes_of(client: &mut Client, node: &str) -> Result<Vec<Volume>, CommandError> {
    let mut volumes: Vec<Volume> = Vec::new();
    let mut incoming = client.volumes(&[node.to_owned()], true).await?;
    while let Some(there) = incoming.next().await? {
        volumes.extend(there.volume);
    }
    Ok(volumes)
}

/// Finds a volume and prints it.
pub async fn volume(
    client: &mut Client,
    args: &ShowOneArgs,
    now: u64,
    terminal: Terminal,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    nodes::query(client, &args.show.nodes).await?;
    let volume = find(client, &args.id, &args.show.nodes, Part::Beginning).await?;
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
    let json = || VolumeSheet::new(&volume.node, &volume.it, drive);
    let text = |wide| {
        show::volume(
            Some(&volume.node),
            &volume.it,
            drive,
            None,
            wide,
            now,
            terminal,
        )
    };
    shown(args.show.output, json, text, out)
}

/// Finds the one volume that matches this name, prefix or id, and its node.
pub(super) async fn find(
    client: &mut Client,
    name: &str,
    nodes: &[String],
    part: Part,
) -> Result<OnNode<Volume>, CommandError> {
    if name.parse::<VolumeId>().is_ok() {
        // The id may name a node from which the drive was moved.
        let answer = client.volume(name).await?.volume.unwrap_or_default();
        let none = || PickError::None {
            kind: VOLUME,
            name: name.to_owned(),
        };
        return Ok(OnNode {
            node: answer.node_id,
            claim: answer.claim,
            here: true,
            it: answer.volume.ok_or_else(none)?,
        });
    }
    let typed = Typed::new(name, None);
    let mut candidates: Vec<OnNode<Volume>> = Vec::new();
    let mut incoming = client.volumes(nodes, true).await?;
    while let Some(there) = incoming.next().await? {
        let Some(volume) = there.volume else { continue };
        let claim = match there.claim.as_str() {
            "" => claim(&volume),
            _ => there.claim,
        };
        if typed.fits(&volume_names(&volume, &claim)) {
            candidates.push(OnNode {
                node: there.node_id,
                claim,
                here: true,
                it: volume,
            });
        }
    }
    let meant = pick(&candidates, typed, VOLUME, part, |there| {
        volume_names(&there.it, &there.claim)
    })?;
    let id = meant.it.id.clone();
    let node = meant.node.clone();
    let is_it = |one: &OnNode<Volume>| one.it.id == id && one.node == node;
    let at = candidates.iter().position(is_it).unwrap_or_default();
    Ok(candidates.swap_remove(at))
}

fn shown<J: Serialize>(
    format: Format,
    json: impl FnOnce() -> J,
    text: impl FnOnce(bool) -> String,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    match format.document() {
        Some(document) => write(out, &document.write(&json())?),
        None => write(out, &text(format == Format::Wide)),
    }
}
