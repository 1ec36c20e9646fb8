//! `drives` and `drive`.

use clap::{Args, Subcommand};

use drivebay_view::{
    args::{
        DriveSort, Light, ListArgs,
        drive::{CordonArgs, DecisionArgs, UncordonArgs},
        moves::{EvacuateArgs, ReplaceArgs},
    },
    watch::WatchArg,
};

use super::{ConfigArg, ShowOne, SocketArg};
use crate::ack::LastDay;

/// Commands on one drive.
#[derive(Debug, Subcommand)]
pub enum DriveCommand {
    /// The same as `drivebay-agent drives`
    #[command(visible_alias = "ls")]
    List(DrivesArgs),
    /// Show all details of a drive: findings, SMART data, volumes
    #[command(after_help = "\
Examples:
  drivebay-agent drive show sdb
  drivebay-agent drive show wwn-0x5000c5 -o wide                            a unique prefix")]
    Show(ShowOne),
    /// Acknowledge a drive's findings, which silences them until they get worse
    ///
    /// The verdict stays, and is shown as "BAD, acknowledged"; alerts, conditions of its volumes and `health` ignore it. New volumes
    /// are placed on the drive only with --use. A present state of the drive, such as a failed health status or a read-only medium,
    /// cannot be acknowledged; see [[health.override]] in the config. A BAD drive needs --confirm. Recorded in the drive's history
    /// with the operator and the reason.
    #[command(after_help = "\
Examples:
  drivebay-agent drive ack sdb --note 'the errors came from the old cable'
  drivebay-agent drive ack sdb --until 2030-12-31 --use --confirm wwn-0x5000c500a1b2c3d4
  kubectl exec POD -- drivebay-agent drive ack sdb --by ann --note ticket-4711")]
    Ack(AckArgs),
    /// Withdraw a drive's acknowledgement: its findings count again
    #[command(after_help = "\
Examples:
  drivebay-agent drive unack sdb")]
    Unack(DecisionArgs<SocketArg>),
    /// Stop placing new volumes on a claimed drive; its volumes are not affected
    ///
    /// Recorded on the drive: it lasts over restarts and on another node, until `drive uncordon`.
    #[command(after_help = "\
Examples:
  drivebay-agent drive cordon sdb --plan                                    shows what would change
  drivebay-agent drive cordon sdb --reason 'replaced on Friday, ticket-4711'
  kubectl exec POD -- drivebay-agent drive cordon sdb --by ann")]
    Cordon(CordonArgs<SocketArg>),
    /// Place new volumes on a cordoned drive again
    #[command(after_help = "\
Examples:
  drivebay-agent drive uncordon sdb")]
    Uncordon(UncordonArgs<SocketArg>),
    /// Move the volumes of a drive to other drives of this node, and cordon it
    ///
    /// Recorded by the agent, which continues after a restart; repeating the command changes nothing. A volume in use is moved when it
    /// is unstaged; a pod that starts meanwhile never waits for a copy. Refused as a whole, with every reason, unless all volumes can
    /// be moved. The command waits and shows progress; Ctrl-C ends the command, not the moves. It does not wait for volumes in use:
    /// exit code 8.
    #[command(after_help = "\
Examples:
  drivebay-agent drive evacuate sdb --plan                                  shows what would be moved where
  drivebay-agent drive evacuate sdb
  drivebay-agent drive evacuate sdb --to sdc --to sdd --no-wait
  drivebay-agent drive evacuate sdb --volume db                             one volume of it
  drivebay-agent drive evacuate sdb --cancel                                cancels moves that are not completed")]
    Evacuate(EvacuateArgs<SocketArg>),
    /// Move all volumes of a drive to its replacement
    ///
    /// The same as `drive evacuate OLD --to NEW`. NEW needs room for all of them; a blank drive is claimed.
    #[command(after_help = "\
Examples:
  drivebay-agent drive replace sdb sdf --plan
  drivebay-agent drive replace sdb sdf
  drivebay-agent drive evacuate sdb --cancel                                cancels moves that are not completed")]
    Replace(ReplaceArgs<SocketArg>),
    /// Check whether a drive may be pulled, and whether it may leave the building
    ///
    /// Erases what moves left behind on it and reads it back, waits for that, and reports why the drive must stay, and what on it is not
    /// erased. Exit code 0: it may leave the building. 11: it may be pulled, and something on it is not erased. 12: it must stay.
    #[command(after_help = "\
Examples:
  drivebay-agent drive retire sdb --plan
  drivebay-agent drive retire sdb && drivebay-agent drive locate sdb on")]
    Retire(RetireArgs),
    /// Switch the locate light of a drive's bay
    ///
    /// Through the kernel (SES, or NPEM of a PCIe slot), else by ledctl where it is installed. Works for an unresponsive drive, too.
    #[command(after_help = "\
Examples:
  drivebay-agent drive locate sdb on
  drivebay-agent drive locate sdb off")]
    Locate {
        /// Identity, kernel name (sdb, /dev/sdb), link below /dev/disk/by-id, or serial number; no prefix
        drive: String,
        /// Whether the light is on
        #[arg(value_enum)]
        light: Light,
        #[command(flatten)]
        socket: SocketArg,
    },
    /// Make a used drive blank: EVERYTHING ON IT IS LOST
    ///
    /// Overwrites the whole drive with zeros. Refused while anything uses the drive, with what to do first. Without --confirm
    /// nothing is changed: the drive is shown, and the identity to type. If no agent runs, the command wipes the drive itself, as
    /// root, with the agent's config, and no agent can start meanwhile.
    #[command(after_help = "\
Examples:
  drivebay-agent drive wipe sdb                                             shows what is on it
  drivebay-agent drive wipe sdb --confirm wwn-0x5000c500a1b2c3d4            wipes it")]
    Wipe {
        /// Identity, kernel name (sdb, /dev/sdb), link below /dev/disk/by-id, or serial number; no prefix
        drive: String,
        /// Its identity, in full
        #[arg(long, value_name = "IDENTITY")]
        confirm: Option<String>,
        #[command(flatten)]
        socket: SocketArg,
        /// Read if no agent runs.
        #[command(flatten)]
        config: ConfigArg,
    },
    /// Release a claimed drive without volumes: removes Drivebay's label from it
    ///
    /// The drive is blank afterwards, as before it was claimed, and a class that selects it may claim it again. Refused while a volume
    /// is on it, even a deleted one that is not erased yet, or if any part of its metadata is unreadable. Without --confirm nothing is
    /// changed: the drive is shown, and the identity to type.
    #[command(after_help = "\
Examples:
  drivebay-agent drive release sdb                                          shows what is on it
  drivebay-agent drive release sdb --confirm wwn-0x5000c500a1b2c3d4         releases it")]
    Release {
        /// Identity, kernel name (sdb, /dev/sdb), link below /dev/disk/by-id, or serial number; no prefix
        drive: String,
        /// Its identity, in full
        #[arg(long, value_name = "IDENTITY")]
        confirm: Option<String>,
        #[command(flatten)]
        socket: SocketArg,
    },
    /// Adopt a drive that was moved here from another node, with its volumes
    ///
    /// Changes only the owner that is recorded on the drive; no volume is changed. Without --confirm nothing is changed: the drive is
    /// shown, and the identity to type.
    #[command(after_help = "\
Examples:
  drivebay-agent drive adopt sdb                                            shows its owner
  drivebay-agent drive adopt sdb --confirm wwn-0x5000c500a1b2c3d4           adopts it")]
    Adopt {
        /// Identity, kernel name (sdb, /dev/sdb), link below /dev/disk/by-id, or serial number; no prefix
        drive: String,
        /// Its identity, in full
        #[arg(long, value_name = "IDENTITY")]
        confirm: Option<String>,
        #[command(flatten)]
        socket: SocketArg,
    },
}

/// Options of `drive ack`.
#[derive(Debug, Args)]
pub struct AckArgs {
    #[command(flatten)]
    pub of: DecisionArgs<SocketArg>,
    /// Reason, shown with the acknowledgement
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub note: String,
    /// Last day of the acknowledgement (UTC). Default: until `drive unack`
    #[arg(long, value_name = "YYYY-MM-DD", value_parser = LastDay::parse)]
    pub until: Option<LastDay>,
    /// Place new volumes on the drive nevertheless
    #[arg(long = "use")]
    pub use_drive: bool,
    /// Its identity, in full; a BAD drive needs it
    #[arg(long, value_name = "IDENTITY")]
    pub confirm: Option<String>,
}

/// Options of `drive retire`.
#[derive(Debug, Args)]
pub struct RetireArgs {
    #[command(flatten)]
    pub of: DecisionArgs<SocketArg>,
    /// Show why it must stay and what would be erased; change nothing
    #[arg(long)]
    pub plan: bool,
    /// Do not wait until erasing is finished
    #[arg(long, conflicts_with = "plan")]
    pub no_wait: bool,
}

/// Options of `drives`.
#[derive(Debug, Args)]
pub struct DrivesArgs {
    /// Only these, by name or unique prefix
    #[arg(value_name = "DRIVE")]
    pub names: Vec<String>,
    #[command(flatten)]
    pub list: ListArgs,
    #[command(flatten)]
    pub watch: WatchArg,
    /// Include virtual devices and partitions (loop, ram, dm, ...)
    #[arg(long)]
    pub all: bool,
    /// Only drives of this class
    #[arg(long, value_name = "CLASS")]
    pub class: Option<String>,
    /// Only drives that `drivebay-agent health` reports
    #[arg(long)]
    pub abnormal: bool,
    /// Sort by this instead of by kernel name; with --watch, by health
    #[arg(long, value_enum, value_name = "BY")]
    pub sort: Option<DriveSort>,
    #[command(flatten)]
    pub socket: SocketArg,
}
