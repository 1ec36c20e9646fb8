//! `volumes` and `volume`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use drivebay_view::{
    args::{ListArgs, PvClaimArgs, VolumeSort, moves::MoveVolumeArgs},
    watch::WatchArg,
};

use super::{Show, ShowOne, SocketArg};
use drivebay_config::units::parse_size;

/// What can be asked of one volume, or done to it.
#[derive(Debug, Subcommand)]
pub enum VolumeCommand {
    /// Show everything that is known of a volume: what is wrong, where it is mounted, how its drive is
    #[command(after_help = "\
Examples:
  drivebay-agent volume show pvc-3f2c9d1e                                   a beginning that no other has
  drivebay-agent volume show sdb3 -o json")]
    Show(ShowOne),
    /// Check the volume's filesystem, read-only, now
    ///
    /// The agent chooses how, so that the answer can be believed: the volume itself when it is mounted nowhere, a snapshot of it
    /// (layout lvm), btrfs' scrub; or it says why there is no such way. A pod that wants the volume ends the check.
    /// Exit code 1 when the filesystem is damaged, 5 when that could not be found out.
    #[command(after_help = "\
Examples:
  drivebay-agent volume check db
  drivebay-agent volume check 5b0c3c5e-6f0b-4a6e-9a57-0d5d8f0c8a11@rack1-node7")]
    Check {
        /// Its name, uuid, id, PersistentVolume, claim or device, or a beginning that no other has
        volume: String,
        /// Where the agent is.
        #[command(flatten)]
        socket: SocketArg,
    },
    /// Create a volume on this host, by hand
    ///
    /// As CSI does: on a drive of the class that has room, claimed first if that is needed. A volume of this name is left as it
    /// is if it is what is asked for. It is marked as made by hand: no PersistentVolume need name it (`volume pv` makes one).
    #[command(after_help = "\
Examples:
  drivebay-agent volume create db --size 100GiB
  drivebay-agent volume create db --size 100GiB --class fast --fs xfs
  drivebay-agent volume create vm1 --size 20GiB --block                     a raw device")]
    Create(CreateArgs),
    /// Mount a volume at a directory, by hand
    ///
    /// With the checks that CSI makes; formatted the first time, and never again. Of a raw volume, DIR is a file that gets its
    /// device. With --persist it is mounted at each start of the host, by drivebay-mounts.service, where the drive is there.
    #[command(after_help = "\
Examples:
  drivebay-agent volume mount db /srv/db
  drivebay-agent volume mount db /srv/db --persist                          after a reboot, too
  drivebay-agent volume mount db                                            where it was persisted
  drivebay-agent volume mount --persisted                                   all that were")]
    Mount(MountArgs),
    /// Unmount a volume that was mounted by hand, and forget the mount
    ///
    /// Asks nothing of the drive, so it works for one that is gone or does not answer. It is an error while a process uses the
    /// mount, and for a mount that an orchestrator made.
    #[command(after_help = "\
Examples:
  drivebay-agent volume unmount db
  drivebay-agent volume unmount /srv/db")]
    Unmount {
        /// The volume's name, uuid or id, or where it is mounted
        #[arg(value_name = "NAME|DIR")]
        what: String,
        /// Where the agent is.
        #[command(flatten)]
        socket: SocketArg,
    },
    /// Expand a volume, and its filesystem where it is mounted
    ///
    /// A volume that is as large is left as it is. Volumes do not shrink. A filesystem that is not mounted grows at the next mount.
    #[command(after_help = "\
Examples:
  drivebay-agent volume expand db --size 200GiB")]
    Expand {
        /// Its name, uuid, id, PersistentVolume, claim or device; whole
        name: String,
        /// Its new size in all, such as 200GiB
        #[arg(long, value_name = "SIZE", value_parser = parse_size)]
        size: u64,
        /// How to show it, and where the agent is.
        #[command(flatten)]
        show: Show,
    },
    /// Delete a volume: ITS DATA IS LOST
    ///
    /// Its space is erased in the background, and then offered again. Refused while it is mounted or open. Without --confirm
    /// nothing is done: the volume is shown, and what to type. One that does not exist is deleted already.
    #[command(after_help = "\
Examples:
  drivebay-agent volume delete db                                           shows it
  drivebay-agent volume delete db --confirm db                              deletes it")]
    Delete {
        /// Its name, uuid, id, PersistentVolume, claim or device; whole
        name: String,
        /// Its name, spelled out in full
        #[arg(long, value_name = "NAME")]
        confirm: Option<String>,
        /// Wait until its space is erased, and show how far that is
        #[arg(long, requires = "confirm")]
        wait: bool,
        /// Where the agent is.
        #[command(flatten)]
        socket: SocketArg,
    },
    /// Move a volume to another drive of this node
    ///
    /// Its id, its PersistentVolume and what mounts it stay as they are. A volume in use is moved when it is unstaged. The old place is
    /// kept until the volume was staged from the new one, and for a while, then erased. The command waits and shows progress; Ctrl-C
    /// ends it and not the move.
    #[command(after_help = "\
Examples:
  drivebay-agent volume move db --to sdc --plan
  drivebay-agent volume move db --to sdc
  drivebay-agent volume move db --cancel                                    ends the move, if that is not completed")]
    Move(MoveVolumeArgs<SocketArg>),
    /// Decide from which drive a volume is served, where that is in doubt: WHAT OTHER PLACES HAVE IS GIVEN UP
    ///
    /// A volume is in doubt when its move was cut off and the drive that may have its newer data is not there. Attach that drive
    /// instead, if you can. Without --confirm nothing is done: the places are shown, and what to type.
    #[command(after_help = "\
Examples:
  drivebay-agent volume prefer db --drive sdb                               shows the places
  drivebay-agent volume prefer db --drive sdb --confirm 7b1d5c1e-58f3-4f0e-9d1a-2f6c1f0b3a77@n1")]
    Prefer(PreferArgs),
    /// Erase a quarantined volume now: ITS DATA IS LOST
    ///
    /// A volume that was deleted while its drive was missing is kept in quarantine when the drive is back, and erased after a delay.
    /// This ends the delay. Refused while the volume is mounted or open, and for a volume that was not deleted. Without --confirm
    /// nothing is done: the volume is shown, and what to type. One that is gone is erased already.
    #[command(after_help = "\
Examples:
  drivebay-agent volume erase-now db                                        shows it
  drivebay-agent volume erase-now db --confirm db                           erases it")]
    EraseNow(QuarantineArgs),
    /// Give a quarantined volume back, with its data
    ///
    /// As if it had not been deleted: it is listed to CSI again (`volume pv` makes a PersistentVolume for it). Refused when a volume
    /// of its name was made since. Without --confirm nothing is done: the volume is shown, and what to type. One that is in no
    /// quarantine is left as it is.
    #[command(after_help = "\
Examples:
  drivebay-agent volume restore db                                          shows it
  drivebay-agent volume restore db --confirm db                             gives it back")]
    Restore(QuarantineArgs),
    /// The same as `drivebay-agent volumes`
    #[command(visible_alias = "ls")]
    List(VolumesArgs),
    /// Print the PersistentVolume for a volume, so that Kubernetes can use it
    ///
    /// For one that was made by hand, or whose PersistentVolume is lost. What to do before it is applied goes to stderr.
    #[command(after_help = "\
Examples:
  drivebay-agent volume pv db --pvc shop/data-db-0 --storage-class fast > pv.json")]
    Pv(PvArgs),
}

/// Options of `volume create`.
#[derive(Debug, Args)]
pub struct CreateArgs {
    /// What it is called: 1 to 128 bytes, no control characters
    pub name: String,
    /// Its size, such as 10GiB or 500GB; rounded up to what its class can make
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub size: u64,
    /// The class of drives; may be left out where there is one
    #[arg(long)]
    pub class: Option<String>,
    /// The filesystem; the class's by default
    #[arg(long, value_name = "ext4|xfs|btrfs", conflicts_with = "block")]
    pub fs: Option<String>,
    /// A raw device, without a filesystem
    #[arg(long)]
    pub block: bool,
    /// Further options for mkfs, separated by spaces, instead of the class's; needs --fs
    #[arg(
        long,
        value_name = "OPTIONS",
        requires = "fs",
        allow_hyphen_values = true
    )]
    pub mkfs_options: Option<String>,
    /// Mount options for its life, separated by commas, besides the class's
    #[arg(long, value_name = "OPTIONS", conflicts_with = "block")]
    pub mount_options: Option<String>,
    /// How to show it, and where the agent is.
    #[command(flatten)]
    pub show: Show,
}

/// Options of `volume mount`.
#[derive(Debug, Args)]
pub struct MountArgs {
    /// Its name, uuid, id, PersistentVolume, claim or device; whole
    #[arg(required_unless_present = "persisted", conflicts_with = "persisted")]
    pub name: Option<String>,
    /// An existing directory; a file, for a raw volume. Left out: where it is mounted at each start of the host
    #[arg(conflicts_with = "persisted")]
    pub dir: Option<PathBuf>,
    /// Mount it at each start of the host, too
    #[arg(long, requires = "dir")]
    pub persist: bool,
    /// Never writable
    #[arg(long, requires = "dir")]
    pub read_only: bool,
    /// Mount options, separated by commas, besides the volume's own
    #[arg(long, value_name = "OPTIONS", requires = "dir")]
    pub options: Option<String>,
    /// Every volume that is mounted at each start of the host
    #[arg(long)]
    pub persisted: bool,
    /// Where the agent is.
    #[command(flatten)]
    pub socket: SocketArg,
}

/// Options of `volume prefer`.
#[derive(Debug, Args)]
pub struct PreferArgs {
    /// Its name, uuid, id, PersistentVolume, claim or device; whole
    pub volume: String,
    /// The drive that it is served from then: its identity, kernel name or serial number; whole
    #[arg(long, value_name = "DRIVE")]
    pub drive: String,
    /// The volume's id, spelled out in full
    #[arg(long, value_name = "VOLUME-ID")]
    pub confirm: Option<String>,
    /// Who decides; needed where the environment does not say, as in kubectl exec
    #[arg(long, value_name = "NAME")]
    pub by: Option<String>,
    /// Where the agent is.
    #[command(flatten)]
    pub socket: SocketArg,
}

/// Options of `volume erase-now` and `volume restore`.
#[derive(Debug, Args)]
pub struct QuarantineArgs {
    /// Its name, uuid, id, PersistentVolume, claim or device; whole
    pub name: String,
    /// Its name, spelled out in full
    #[arg(long, value_name = "NAME")]
    pub confirm: Option<String>,
    /// Where the agent is.
    #[command(flatten)]
    pub socket: SocketArg,
}

/// Options of `volume pv`.
#[derive(Debug, Args)]
pub struct PvArgs {
    /// Its name, uuid, id, claim or device, or a beginning that no other has
    pub name: String,
    /// For whom.
    #[command(flatten)]
    pub claim: PvClaimArgs,
    /// Where the agent is.
    #[command(flatten)]
    pub socket: SocketArg,
}

/// Options of `volumes` and `volume list`.
#[derive(Debug, Args)]
pub struct VolumesArgs {
    /// Only these, by any name or a beginning of one
    #[arg(value_name = "VOLUME")]
    pub names: Vec<String>,
    /// How to show them.
    #[command(flatten)]
    pub list: ListArgs,
    /// How often.
    #[command(flatten)]
    pub watch: WatchArg,
    /// Only volumes of this class of drives
    #[arg(long, value_name = "CLASS")]
    pub class: Option<String>,
    /// Only volumes on this drive, by any name of it
    #[arg(long, value_name = "DRIVE")]
    pub drive: Option<String>,
    /// Only volumes with something wrong
    #[arg(long)]
    pub abnormal: bool,
    /// Sorted by this instead of by name; with --watch, by condition
    #[arg(long, value_enum, value_name = "BY")]
    pub sort: Option<VolumeSort>,
    /// Where the agent is.
    #[command(flatten)]
    pub socket: SocketArg,
}
