//! Moves of volumes to other drives of their node. `A`: where the program is that is asked.

use clap::Args;

use super::ListArgs;
use crate::watch::WatchArg;

/// How a command that moves volumes is carried out.
#[derive(Debug, Args)]
pub struct MoveOptions {
    /// Show what would be moved where, and every reason against it; change nothing
    #[arg(long)]
    pub plan: bool,
    /// End once the moves are recorded, instead of waiting for them
    #[arg(long, conflicts_with = "plan")]
    pub no_wait: bool,
    /// Who decides; needed where the environment does not say, as in kubectl exec
    #[arg(long, value_name = "NAME")]
    pub by: Option<String>,
}

/// Options of `drive evacuate`.
#[derive(Debug, Args)]
pub struct EvacuateArgs<A: Args> {
    /// Its identity, kernel name (sdb) or serial number, or on its node a link below /dev/disk/by-id; whole
    pub drive: String,
    /// Only to this drive of the same node, by any whole name; may be given again. Without it: wherever the class puts new volumes
    #[arg(long = "to", value_name = "DRIVE")]
    pub to: Vec<String>,
    /// Only this volume, by any whole name; may be given again
    #[arg(long = "volume", value_name = "VOLUME")]
    pub volumes: Vec<String>,
    /// Once copying a volume has begun, have pods that start wait until it has moved: for a drive that must not be read twice
    #[arg(long)]
    pub hold: bool,
    /// End its moves that are not completed; their volumes stay where they are, and copies are erased
    #[arg(long, conflicts_with_all = ["to", "volumes", "hold", "plan", "no_wait"])]
    pub cancel: bool,
    #[command(flatten)]
    pub options: MoveOptions,
    #[command(flatten)]
    pub at: A,
}

/// Options of `drive replace`.
#[derive(Debug, Args)]
pub struct ReplaceArgs<A: Args> {
    /// The drive that leaves: its identity, kernel name (sdb) or serial number; whole
    pub old: String,
    /// The drive of the same node that gets its volumes, by any whole name
    pub new: String,
    #[command(flatten)]
    pub options: MoveOptions,
    #[command(flatten)]
    pub at: A,
}

/// Options of `volume move`.
#[derive(Debug, Args)]
pub struct MoveVolumeArgs<A: Args> {
    /// Its name, uuid, id, PersistentVolume, claim or device; whole
    pub volume: String,
    /// The drive of the same node that gets it, by any whole name
    #[arg(long, value_name = "DRIVE", required_unless_present = "cancel")]
    pub to: Option<String>,
    /// Once copying has begun, have a pod that starts wait until the volume has moved: for a drive that must not be read twice
    #[arg(long)]
    pub hold: bool,
    /// End its move, if that is not completed; the volume stays where it is, and the copy is erased
    #[arg(long, conflicts_with_all = ["to", "hold", "plan", "no_wait"])]
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
