//! `drivebay-controller drive evacuate`, `drive replace`, `volume move` and `moves`: moves volumes to other drives of their node.

use std::{io::Write, slice};

use drivebay_common::{pick::Part, query::QueryError};
use drivebay_proto::{
    agent::{self, CancelMovesResponse, Drive, ListMovesResponse, MoveVolumesResponse},
    controller::{CancelMovesRequest, ListMovesRequest, MoveVolumesRequest},
};
use drivebay_view::{
    args::moves::{EvacuateArgs, MoveOptions, MoveVolumeArgs, MovesArgs, ReplaceArgs},
    moves::{Answer, Devices, MovesClient, Order, Verb, list, run},
};

use super::{
    CommandError,
    args::{NodesArg, OneNodeArg},
    client::Client,
    one,
    output::write,
    terminal::Terminal,
};

/// Calls to a node's agent through the controller.
struct Through<'a> {
    client: &'a mut Client,
    node: String,
}

impl MovesClient for Through<'_> {
    async fn move_volumes(
        &mut self,
        request: agent::MoveVolumesRequest,
    ) -> Result<MoveVolumesResponse, QueryError> {
        let request = MoveVolumesRequest {
            node: self.node.clone(),
            request: Some(request),
        };
        self.client.move_volumes(request).await
    }

    async fn cancel_moves(
        &mut self,
        request: agent::CancelMovesRequest,
    ) -> Result<CancelMovesResponse, QueryError> {
        let request = CancelMovesRequest {
            node: self.node.clone(),
            request: Some(request),
        };
        self.client.cancel_moves(request).await
    }

    async fn list_moves(&mut self) -> Result<ListMovesResponse, QueryError> {
        let node = self.node.clone();
        self.client.list_moves(ListMovesRequest { node }).await
    }
}

pub(super) async fn evacuate(
    client: &mut Client,
    args: &EvacuateArgs<NodesArg>,
    terminal: Terminal,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    let drive = one::find_drive(client, &args.drive, &args.at.nodes, Part::Whole).await?;
    let node = drive.node.as_str();
    let mut only = Vec::new();
    for volume in &args.volumes {
        let on = slice::from_ref(&drive.node);
        only.push(one::find(client, volume, on, Part::Whole).await?.it.id);
    }
    let mut to = Vec::new();
    for name in &args.to {
        to.push(target(client, name, node).await?);
    }
    let order = Order {
        drive: drive.it.id.clone(),
        only,
        to,
        hold: args.hold,
        cancel: args.cancel,
        ..order(client, Verb::Evacuate, &args.options, node, terminal).await?
    };
    done(client, &order, node, out).await
}

pub(super) async fn replace(
    client: &mut Client,
    args: &ReplaceArgs<NodesArg>,
    terminal: Terminal,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    let old = one::find_drive(client, &args.old, &args.at.nodes, Part::Whole).await?;
    let node = old.node.as_str();
    let new = target(client, &args.new, node).await?;
    let verb = Verb::Replace { new: &new };
    let order = Order {
        drive: old.it.id.clone(),
        to: vec![new.clone()],
        ..order(client, verb, &args.options, node, terminal).await?
    };
    done(client, &order, node, out).await
}

pub(super) async fn move_volume(
    client: &mut Client,
    args: &MoveVolumeArgs<NodesArg>,
    terminal: Terminal,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    super::nodes::query(client, &args.at.nodes).await?;
    let volume = one::find(client, &args.volume, &args.at.nodes, Part::Whole).await?;
    let node = volume.node.as_str();
    let to = match &args.to {
        Some(name) => vec![target(client, name, node).await?],
        None => Vec::new(),
    };
    let order = Order {
        volume: volume.it.id.clone(),
        to,
        hold: args.hold,
        cancel: args.cancel,
        ..order(client, Verb::MoveVolume, &args.options, node, terminal).await?
    };
    done(client, &order, node, out).await
}

/// Lists the moves of one node.
pub(super) async fn list(
    client: &mut Client,
    args: &MovesArgs<OneNodeArg>,
    now: u64,
    terminal: Terminal,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    let node = &args.at.node;
    super::nodes::query(client, slice::from_ref(node)).await?;
    let devices = devices(client, node).await?;
    let node = node.clone();
    let listed = Through {
        client,
        node: node.clone(),
    }
    .list_moves()
    .await?;
    let text = list::render(&node, &listed, &args.list, &devices, now, terminal)?;
    write(out, &text)
}

/// Returns the identity of the drive of this name on this node. A prefix of the name is not accepted.
async fn target(client: &mut Client, name: &str, node: &str) -> Result<String, CommandError> {
    let node = node.to_owned();
    let drive = one::find_drive(client, name, slice::from_ref(&node), Part::Whole).await?;
    Ok(drive.it.id)
}

async fn devices(client: &mut Client, node: &str) -> Result<Devices, CommandError> {
    let mut drives: Vec<Drive> = Vec::new();
    let mut incoming = client.drives(&[node.to_owned()]).await?;
    while let Some(node) = incoming.next().await? {
        drives.extend(node.drives);
    }
    Ok(Devices::of(&drives))
}

async fn order<'a>(
    client: &mut Client,
    verb: Verb<'a>,
    options: &'a MoveOptions,
    node: &'a str,
    terminal: Terminal,
) -> Result<Order<'a>, CommandError> {
    let devices = devices(client, node).await?;
    let program = "drivebay-controller";
    Ok(Order::new(
        verb,
        options,
        devices,
        program,
        Some(node),
        terminal,
    ))
}

async fn done(
    client: &mut Client,
    order: &Order<'_>,
    node: &str,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    let mut through = Through {
        client,
        node: node.to_owned(),
    };
    let Answer { text, code } = run(&mut through, order).await?;
    write(out, &format!("node {node}: {text}"))?;
    match code {
        0 => Ok(()),
        code => Err(CommandError::Answered(code)),
    }
}
