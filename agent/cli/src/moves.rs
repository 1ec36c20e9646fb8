//! `drivebay-agent drive evacuate`, `drive replace`, `volume move` and `moves`: moves volumes to other drives of this node.

use std::time::Duration;

use drivebay_common::{
    pick::{Part, PickError},
    query::QueryError,
    terminal::Terminal,
};
use drivebay_proto::agent::{
    CancelMovesRequest, CancelMovesResponse, InventoryUpdate, ListMovesRequest, ListMovesResponse,
    MoveVolumesRequest, MoveVolumesResponse,
};
use drivebay_view::{
    args::moves::{EvacuateArgs, MoveOptions, MoveVolumeArgs, MovesArgs, ReplaceArgs},
    moves::{Answer, Devices, MovesClient, MovesError, Order, Verb, list, run},
};

use super::{CommandError, args::SocketArg, client::Client, name, watch::OutputTarget};

/// Limit of a request, for which drives are cordoned and claimed, each within the agent's own limit.
const DEADLINE: Duration = Duration::from_secs(60);

/// Error of `drive evacuate`, `drive replace` or `volume move`.
#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    #[error(transparent)]
    Client(#[from] QueryError),
    #[error(transparent)]
    Pick(#[from] PickError),
    #[error(transparent)]
    Moves(#[from] MovesError),
}

impl MoveError {
    /// Returns the exit code.
    pub fn code(&self) -> u8 {
        match self {
            Self::Client(error) => error.code(),
            Self::Pick(error) => error.code(),
            Self::Moves(error) => error.code(),
        }
    }
}

impl MovesClient for Client {
    async fn move_volumes(
        &mut self,
        request: MoveVolumesRequest,
    ) -> Result<MoveVolumesResponse, QueryError> {
        let call = self.raw.move_volumes(request);
        let answer = self.agent.answered_within(DEADLINE, call).await?;
        Ok(answer.into_inner())
    }

    async fn cancel_moves(
        &mut self,
        request: CancelMovesRequest,
    ) -> Result<CancelMovesResponse, QueryError> {
        let call = self.raw.cancel_moves(request);
        let answer = self.agent.answered_within(DEADLINE, call).await?;
        Ok(answer.into_inner())
    }

    async fn list_moves(&mut self) -> Result<ListMovesResponse, QueryError> {
        let call = self.raw.list_moves(ListMovesRequest {});
        Ok(self.agent.answered(call).await?.into_inner())
    }
}

pub(super) async fn evacuate(args: &EvacuateArgs<SocketArg>) -> Result<Answer, MoveError> {
    let (mut client, inventory) = connect(&args.at).await?;
    let drive = drive(&inventory, &args.drive)?;
    let volumes = args.volumes.iter();
    let volumes = volumes.map(|name| name::volume(&inventory, name, Part::Whole));
    let only = volumes.map(|volume| Ok(volume?.id.clone()));
    let to = args.to.iter().map(|name| self::drive(&inventory, name));
    let order = Order {
        drive,
        only: only.collect::<Result<_, PickError>>()?,
        to: to.collect::<Result<_, PickError>>()?,
        hold: args.hold,
        cancel: args.cancel,
        ..order(Verb::Evacuate, &args.options, &inventory)
    };
    Ok(run(&mut client, &order).await?)
}

pub(super) async fn replace(args: &ReplaceArgs<SocketArg>) -> Result<Answer, MoveError> {
    let (mut client, inventory) = connect(&args.at).await?;
    let new = drive(&inventory, &args.new)?;
    let order = Order {
        drive: drive(&inventory, &args.old)?,
        to: vec![new.clone()],
        ..order(Verb::Replace { new: &new }, &args.options, &inventory)
    };
    Ok(run(&mut client, &order).await?)
}

pub(super) async fn move_volume(args: &MoveVolumeArgs<SocketArg>) -> Result<Answer, MoveError> {
    let (mut client, inventory) = connect(&args.at).await?;
    let to = args.to.iter().map(|name| drive(&inventory, name));
    let order = Order {
        volume: name::volume(&inventory, &args.volume, Part::Whole)?
            .id
            .clone(),
        to: to.collect::<Result<_, PickError>>()?,
        hold: args.hold,
        cancel: args.cancel,
        ..order(Verb::MoveVolume, &args.options, &inventory)
    };
    Ok(run(&mut client, &order).await?)
}

/// Renders the moves of this node.
pub(super) async fn list(
    client: &mut Client,
    args: &MovesArgs<SocketArg>,
    target: OutputTarget,
) -> Result<String, CommandError> {
    let listed = client.list_moves().await?;
    let inventory = client.inventory().await?;
    let devices = Devices::of(&inventory.drives);
    let (node, list) = (&inventory.node_id, &args.list);
    Ok(list::render(
        node,
        &listed,
        list,
        &devices,
        target.now,
        target.terminal,
    )?)
}

async fn connect(at: &SocketArg) -> Result<(Client, InventoryUpdate), QueryError> {
    let mut client = Client::connect(&at.socket).await?;
    let inventory = client.inventory().await?;
    Ok((client, inventory))
}

/// Returns the identity of the drive of this full name.
fn drive(inventory: &InventoryUpdate, name: &str) -> Result<String, PickError> {
    Ok(name::drive(inventory, name, Part::Whole)?.id.clone())
}

fn order<'a>(verb: Verb<'a>, options: &'a MoveOptions, inventory: &InventoryUpdate) -> Order<'a> {
    let devices = Devices::of(&inventory.drives);
    let terminal = Terminal::of_stdout();
    Order::new(verb, options, devices, "drivebay-agent", None, terminal)
}
