//! Options of commands that move volumes to other drives of their node. `A`: options that locate the program.

use clap::Args;

use super::ListArgs;
use crate::watch::WatchArg;

/// Options of every command that moves volumes.
#[derive(Debug, Args)]
pub struct MoveOptions {
    /// Stop the move where sectors with data cannot be read. By default they are lost: errors on the new drive, too, until they are written
    #[arg(long)]
    pub abort_on_error: bool,
    /// Show what would be moved where, and every reason against it; change nothing
    #[arg(long)]
    pub plan: bool,
    /// Return once the moves are recorded; do not wait for them
    #[arg(long, conflicts_with = "plan")]
    pub no_wait: bool,
    /// Operator, for the record; required where the environment has no user name, as in kubectl exec
    #[arg(long, value_name = "NAME")]
    pub by: Option<String>,
}

/// Options of `drive evacuate`.
#[derive(Debug, Args)]
pub struct EvacuateArgs<A: Args> {
    /// Identity, kernel name (sdb), serial number, or on its node a link below /dev/disk/by-id; no prefix
    pub drive: String,
    /// Target drive on the same node, by full name; may be repeated. Default: the drives that the class places new volumes on
    #[arg(long = "to", value_name = "DRIVE")]
    pub to: Vec<String>,
    /// Only this volume, by full name; may be repeated
    #[arg(long = "volume", value_name = "VOLUME")]
    pub volumes: Vec<String>,
    /// Once the copy of a volume has begun, hold pods that start until it has moved: for a drive that must not be read twice
    #[arg(long)]
    pub hold: bool,
    /// Cancel its moves that are not completed; their volumes stay where they are, and copies are erased
    #[arg(long, conflicts_with_all = ["to", "volumes", "hold", "abort_on_error", "plan", "no_wait"])]
    pub cancel: bool,
    #[command(flatten)]
    pub options: MoveOptions,
    #[command(flatten)]
    pub at: A,
}

/// Options of `drive replace`.
#[derive(Debug, Args)]
pub struct ReplaceArgs<A: Args> {
    /// Drive to be replaced: identity, kernel name (sdb) or serial number; no prefix
    pub old: String,
    /// Drive of the same node that its volumes are moved to, by full name
    pub new: String,
    #[command(flatten)]
    pub options: MoveOptions,
    #[command(flatten)]
    pub at: A,
}

/// Options of `volume move`.
#[derive(Debug, Args)]
pub struct MoveVolumeArgs<A: Args> {
    /// Name, uuid, id, PersistentVolume, claim or device; no prefix
    pub volume: String,
    /// Drive of the same node that it is moved to, by full name
    #[arg(long, value_name = "DRIVE", required_unless_present = "cancel")]
    pub to: Option<String>,
    /// Once the copy has begun, hold a pod that starts until the volume has moved: for a drive that must not be read twice
    #[arg(long)]
    pub hold: bool,
    /// Cancel its move, if that is not completed; the volume stays where it is, and the copy is erased
    #[arg(long, conflicts_with_all = ["to", "hold", "abort_on_error", "plan", "no_wait"])]
    pub cancel: bool,
    #[command(flatten)]
    pub options: MoveOptions,
    #[command(flatten)]
    pub at: A,
}

/// Options of `moves`.
#[derive(Debug, Args)]
pub struct MovesArgs<A: Args> {
    #[command(flatten)]
    pub list: ListArgs,
    #[command(flatten)]
    pub watch: WatchArg,
    #[command(flatten)]
    pub at: A,
}
