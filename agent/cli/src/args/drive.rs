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

/// What can be done to one drive.
#[derive(Debug, Subcommand)]
pub enum DriveCommand {
    /// The same as `drivebay-agent drives`
    #[command(visible_alias = "ls")]
    List(DrivesArgs),
    /// Show everything about a drive: its findings, its SMART data, its volumes
    #[command(after_help = "\
Examples:
  drivebay-agent drive show sdb
  drivebay-agent drive show wwn-0x5000c5 -o wide                            a beginning that no other has")]
    Show(ShowOne),
    /// Acknowledge a drive's findings: silences them until they get worse
    ///
    /// The verdict stays, and is shown as "BAD, acknowledged"; alerts, conditions of its volumes and health are silent about it.
    /// Whether the drive takes new volumes is another choice: --use. What is a state of the drive now, such as a failed health
    /// status or a medium that is read-only, cannot be acknowledged; see [[health.override]] in the config. A BAD drive needs
    /// --confirm. It is kept with the drive's history, with who and why.
    #[command(after_help = "\
Examples:
  drivebay-agent drive ack sdb --note 'the errors came from the old cable'
  drivebay-agent drive ack sdb --until 2030-12-31 --use --confirm wwn-0x5000c500a1b2c3d4
  kubectl exec POD -- drivebay-agent drive ack sdb --by ann --note ticket-4711")]
    Ack(AckArgs),
    /// Withdraw a drive's acknowledgement: everything that is found counts again
    #[command(after_help = "\
Examples:
  drivebay-agent drive unack sdb")]
    Unack(DecisionArgs<SocketArg>),
    /// Put no new volumes on a claimed drive; those on it stay and are served as before
    ///
    /// Recorded on the drive, so that it holds after a restart and on another node, until drive uncordon.
    #[command(after_help = "\
Examples:
  drivebay-agent drive cordon sdb --plan                                    shows what would change
  drivebay-agent drive cordon sdb --reason 'replaced on Friday, ticket-4711'
  kubectl exec POD -- drivebay-agent drive cordon sdb --by ann")]
    Cordon(CordonArgs<SocketArg>),
    /// Put new volumes on a cordoned drive again
    #[command(after_help = "\
Examples:
  drivebay-agent drive uncordon sdb")]
    Uncordon(UncordonArgs<SocketArg>),
    /// Move the volumes of a drive to other drives of this node, and cordon it
    ///
    /// Recorded by the agent, which goes on after a restart; a repeat changes nothing. A volume that is in use is moved when it is
    /// unstaged; a pod that starts meanwhile never waits for a copy. Refused as a whole, with every reason, unless all can be moved.
    /// The command waits and shows progress; Ctrl-C ends it and not the moves. What waits for being unstaged is not waited for: exit
    /// code 8.
    #[command(after_help = "\
Examples:
  drivebay-agent drive evacuate sdb --plan                                  shows what would be moved where
  drivebay-agent drive evacuate sdb
  drivebay-agent drive evacuate sdb --to sdc --to sdd --no-wait
  drivebay-agent drive evacuate sdb --volume db                             one volume of it
  drivebay-agent drive evacuate sdb --cancel                                ends moves that are not completed")]
    Evacuate(EvacuateArgs<SocketArg>),
    /// Move all volumes of a drive to another one that takes its place
    ///
    /// The same as drive evacuate OLD --to NEW: NEW may be blank, and has to have room for all of them. NEW is claimed for it if it is
    /// not claimed.
    #[command(after_help = "\
Examples:
  drivebay-agent drive replace sdb sdf --plan
  drivebay-agent drive replace sdb sdf
  drivebay-agent drive evacuate sdb --cancel                                ends moves that are not completed")]
    Replace(ReplaceArgs<SocketArg>),
    /// Say whether a drive may be pulled, and whether it may leave the building
    ///
    /// Has what moves left behind on it erased now and read back, waits for that, and says what keeps the drive, and what on it is not
    /// erased. Exit code 0: it may leave the building. 11: it may be pulled, and something on it is not erased. 12: it must stay.
    #[command(after_help = "\
Examples:
  drivebay-agent drive retire sdb --plan
  drivebay-agent drive retire sdb && drivebay-agent drive locate sdb on")]
    Retire(RetireArgs),
    /// Switch the light of a drive's place in its enclosure
    ///
    /// Through the kernel (SES, or NPEM of a PCIe slot), else by ledctl where it is installed. A drive that hangs is located, too.
    #[command(after_help = "\
Examples:
  drivebay-agent drive locate sdb on
  drivebay-agent drive locate sdb off")]
    Locate {
        /// Its identity, kernel name (sdb, /dev/sdb), link below /dev/disk/by-id, or serial number; whole
        drive: String,
        /// Whether it is to shine
        #[arg(value_enum)]
        light: Light,
        /// Where the agent is.
        #[command(flatten)]
        socket: SocketArg,
    },
    /// Make a used drive blank: EVERYTHING ON IT IS LOST
    ///
    /// Overwrites the whole drive with zeros. Refused while anything uses the drive, with what to do first. Without --confirm
    /// nothing is done: the drive is shown, and the identity to spell out. Where no agent runs, the command does it itself, as
    /// root, with the agent's config, and no agent can start meanwhile.
    #[command(after_help = "\
Examples:
  drivebay-agent drive wipe sdb                                             shows what is on it
  drivebay-agent drive wipe sdb --confirm wwn-0x5000c500a1b2c3d4            wipes it")]
    Wipe {
        /// Its identity, kernel name (sdb, /dev/sdb), link below /dev/disk/by-id, or serial number; whole
        drive: String,
        /// Its identity, spelled out in full
        #[arg(long, value_name = "IDENTITY")]
        confirm: Option<String>,
        /// Where the agent is.
        #[command(flatten)]
        socket: SocketArg,
        /// Read where no agent runs.
        #[command(flatten)]
        config: ConfigArg,
    },
    /// Give a claimed drive without volumes back: takes Drivebay's label from it
    ///
    /// The drive is as blank afterwards as it was before it was claimed, and a class that selects it may claim it again. Refused
    /// while a volume is on it, also a deleted one that is not erased yet, or when anything of it cannot be read. Without
    /// --confirm nothing is done: the drive is shown, and the identity to spell out.
    #[command(after_help = "\
Examples:
  drivebay-agent drive release sdb                                          shows what is on it
  drivebay-agent drive release sdb --confirm wwn-0x5000c500a1b2c3d4         releases it")]
    Release {
        /// Its identity, kernel name (sdb, /dev/sdb), link below /dev/disk/by-id, or serial number; whole
        drive: String,
        /// Its identity, spelled out in full
        #[arg(long, value_name = "IDENTITY")]
        confirm: Option<String>,
        /// Where the agent is.
        #[command(flatten)]
        socket: SocketArg,
    },
    /// Take over a drive that was moved here from another node, with the volumes on it
    ///
    /// Changes only whose the drive is; no volume is touched. Without --confirm nothing is done: the drive
    /// is shown, and the identity to spell out.
    #[command(after_help = "\
Examples:
  drivebay-agent drive adopt sdb                                            shows whose it is
  drivebay-agent drive adopt sdb --confirm wwn-0x5000c500a1b2c3d4           adopts it")]
    Adopt {
        /// Its identity, kernel name (sdb, /dev/sdb), link below /dev/disk/by-id, or serial number; whole
        drive: String,
        /// Its identity, spelled out in full
        #[arg(long, value_name = "IDENTITY")]
        confirm: Option<String>,
        /// Where the agent is.
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
    /// The last day on which it holds, UTC; without it, until drive unack
    #[arg(long, value_name = "YYYY-MM-DD", value_parser = LastDay::parse)]
    pub until: Option<LastDay>,
    /// Put new volumes on the drive all the same
    #[arg(long = "use")]
    pub use_drive: bool,
    /// Its identity, spelled out in full; a BAD drive needs it
    #[arg(long, value_name = "IDENTITY")]
    pub confirm: Option<String>,
}

/// Options of `drive retire`.
#[derive(Debug, Args)]
pub struct RetireArgs {
    #[command(flatten)]
    pub of: DecisionArgs<SocketArg>,
    /// Show what keeps it and what would be erased, and change nothing
    #[arg(long)]
    pub plan: bool,
    /// Do not wait for what is being erased
    #[arg(long, conflicts_with = "plan")]
    pub no_wait: bool,
}

/// Options of `drives`.
#[derive(Debug, Args)]
pub struct DrivesArgs {
    /// Only these, by any name or a beginning of one
    #[arg(value_name = "DRIVE")]
    pub names: Vec<String>,
    /// How to show them.
    #[command(flatten)]
    pub list: ListArgs,
    /// How often.
    #[command(flatten)]
    pub watch: WatchArg,
    /// Virtual devices and partitions too (loop, ram, dm, ...)
    #[arg(long)]
    pub all: bool,
    /// Only drives of this class
    #[arg(long, value_name = "CLASS")]
    pub class: Option<String>,
    /// Only drives that `drivebay-agent health` reports
    #[arg(long)]
    pub abnormal: bool,
    /// Sorted by this instead of by kernel name; with --watch, by health
    #[arg(long, value_enum, value_name = "BY")]
    pub sort: Option<DriveSort>,
    /// Where the agent is.
    #[command(flatten)]
    pub socket: SocketArg,
}
