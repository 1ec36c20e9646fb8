//! `volumes` and `volume`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use drivebay_view::{
    args::{ListArgs, PvClaimArgs, VolumeSort, moves::MoveVolumeArgs},
    watch::WatchArg,
};

use super::{CopyArgs, Show, ShowOne, SocketArg};
use drivebay_common::sizes::parse_size;

/// Commands on one volume.
#[derive(Debug, Subcommand)]
pub enum VolumeCommand {
    /// Show all details of a volume: conditions, mounts, and the health of its drive
    #[command(after_help = "\
Examples:
  drivebay-agent volume show pvc-3f2c9d1e                                   a unique prefix
  drivebay-agent volume show sdb3 -o json")]
    Show(ShowOne),
    /// Check a volume's filesystem now, read-only
    ///
    /// The agent uses a method whose result is reliable: the volume itself while it is not mounted, a snapshot of it (layout lvm), or
    /// btrfs scrub; otherwise it says why there is none. Staging the volume cancels the check. Exit code 1: the filesystem is
    /// damaged. 5: not determined.
    #[command(after_help = "\
Examples:
  drivebay-agent volume check db
  drivebay-agent volume check 5b0c3c5e-6f0b-4a6e-9a57-0d5d8f0c8a11@rack1-node7")]
    Check {
        /// Name, uuid, id, PersistentVolume, claim or device, or a unique prefix
        volume: String,
        #[command(flatten)]
        socket: SocketArg,
    },
    /// Create a volume on this host manually, without an orchestrator
    ///
    /// As for CSI, it is placed on a drive of the class that has room, which is claimed if necessary. An existing volume of this name
    /// is not changed, and is an error if it differs. The volume is marked as made by hand: it needs no PersistentVolume (`volume pv`
    /// makes one).
    #[command(after_help = "\
Examples:
  drivebay-agent volume create db --size 100GiB
  drivebay-agent volume create db --size 100GiB --class fast --fs xfs
  drivebay-agent volume create vm1 --size 20GiB --block                     a raw volume
  drivebay-agent volume create safe --size 20GiB --encrypt                  an encrypted one")]
    Create(CreateArgs),
    /// Create a volume as a copy of another volume
    ///
    /// On this node, with the class, filesystem and mount options of the other volume, which is not changed. With layout lvm it may be
    /// in use: it is copied from a snapshot that is deleted afterwards. With layout partition it must not be staged, and copying starts
    /// again if it is meanwhile. The command waits until everything is copied and shows progress; Ctrl-C ends the command, not the
    /// copying. Deleting the new volume cancels it.
    #[command(after_help = "\
Examples:
  drivebay-agent volume clone db --name db-test
  drivebay-agent volume clone shop/data-db-0 --name db-test --size 200GiB --no-wait")]
    Clone {
        /// Name, uuid, id, PersistentVolume, claim or device; no prefix
        volume: String,
        /// The new volume.
        #[command(flatten)]
        copy: CopyArgs,
    },
    /// Mount a volume at a directory manually
    ///
    /// With the same checks as for CSI; formatted at its first mount only. For a raw volume, DIR is a file at which its device node is
    /// mounted. With --persist it is mounted at each boot by drivebay-mounts.service, if the drive is present.
    #[command(after_help = "\
Examples:
  drivebay-agent volume mount db /srv/db
  drivebay-agent volume mount db /srv/db --persist                          at each boot, too
  drivebay-agent volume mount db                                            at its persisted directory
  drivebay-agent volume mount safe /srv/safe --key-file safe.key            an encrypted one
  drivebay-agent volume mount --persisted                                   all persisted mounts")]
    Mount(MountArgs),
    /// Unmount a manually mounted volume, and remove its persisted mount
    ///
    /// Needs no I/O to the drive, so it works for one that is missing or unresponsive. Fails while a process uses the mount, and for a
    /// mount that an orchestrator made.
    #[command(after_help = "\
Examples:
  drivebay-agent volume unmount db
  drivebay-agent volume unmount /srv/db")]
    Unmount {
        /// The volume's name, uuid or id, or its mount point
        #[arg(value_name = "NAME|DIR")]
        what: String,
        #[command(flatten)]
        socket: SocketArg,
    },
    /// Expand a volume, and its filesystem if it is mounted
    ///
    /// A volume that is large enough is not changed; volumes do not shrink. A filesystem that is not mounted grows at its next mount.
    #[command(after_help = "\
Examples:
  drivebay-agent volume expand db --size 200GiB")]
    Expand {
        /// Name, uuid, id, PersistentVolume, claim or device; no prefix
        name: String,
        /// New size of the whole volume with its unit, such as 200GiB
        #[arg(long, value_name = "SIZE", value_parser = parse_size)]
        size: u64,
        #[command(flatten)]
        show: Show,
    },
    /// Delete a volume: ITS DATA IS LOST
    ///
    /// Its space is erased in the background, and is free afterwards. Refused while the volume is mounted or open. Without --confirm
    /// nothing is changed: the volume is shown, and the command to type. Deleting a volume that does not exist succeeds.
    #[command(after_help = "\
Examples:
  drivebay-agent volume delete db                                           shows it
  drivebay-agent volume delete db --confirm db                              deletes it")]
    Delete {
        /// Name, uuid, id, PersistentVolume, claim or device; no prefix
        name: String,
        /// Its name, in full
        #[arg(long, value_name = "NAME")]
        confirm: Option<String>,
        /// Wait until its space is erased, and show progress
        #[arg(long, requires = "confirm")]
        wait: bool,
        #[command(flatten)]
        socket: SocketArg,
    },
    /// Move a volume to another drive of this node
    ///
    /// Its id, PersistentVolume and mounts do not change. A volume in use is moved when it is unstaged. The old place is kept until the
    /// volume has been staged from the new one, and for a delay, then erased. The command waits and shows progress; Ctrl-C ends the
    /// command, not the move.
    #[command(after_help = "\
Examples:
  drivebay-agent volume move db --to sdc --plan
  drivebay-agent volume move db --to sdc
  drivebay-agent volume move db --cancel                                    cancels the move, if that is not completed")]
    Move(MoveVolumeArgs<SocketArg>),
    /// Choose the drive that serves a volume in doubt: DATA IN ITS OTHER PLACES IS LOST
    ///
    /// A volume is in doubt when its move was interrupted and the drive that may hold its newer data is missing. Attach that drive
    /// instead, if possible. Without --confirm nothing is changed: the places are shown, and the command to type.
    #[command(after_help = "\
Examples:
  drivebay-agent volume prefer db --drive sdb                               shows the places
  drivebay-agent volume prefer db --drive sdb --confirm 7b1d5c1e-58f3-4f0e-9d1a-2f6c1f0b3a77@n1")]
    Prefer(PreferArgs),
    /// Erase a quarantined volume now: ITS DATA IS LOST
    ///
    /// A volume that was deleted while its drive was missing is kept in quarantine when the drive returns, and erased after a delay.
    /// This ends the delay. Refused while the volume is mounted or open, and for a volume that was not deleted. Without --confirm
    /// nothing is changed: the volume is shown, and the command to type. Erasing a volume that does not exist succeeds.
    #[command(after_help = "\
Examples:
  drivebay-agent volume erase-now db                                        shows it
  drivebay-agent volume erase-now db --confirm db                           erases it")]
    EraseNow(QuarantineArgs),
    /// Restore a quarantined volume, with its data
    ///
    /// As if it had not been deleted: it is listed to CSI again (`volume pv` makes a PersistentVolume for it). Refused if a volume of
    /// its name was created since. Without --confirm nothing is changed: the volume is shown, and the command to type. A volume that
    /// is not quarantined is not changed.
    #[command(after_help = "\
Examples:
  drivebay-agent volume restore db                                          shows it
  drivebay-agent volume restore db --confirm db                             restores it")]
    Restore(QuarantineArgs),
    /// List the volumes that were erased on this host
    ///
    /// The latest 4096, whatever erased them: deletions, moves, the end of a quarantine. Classes with erase = "signatures" are left out,
    /// since the data stays. With --receipt, the record of one volume with the signature of this host, as JSON, for whoever must show that
    /// it is gone; it says what it does not claim.
    #[command(after_help = "\
Examples:
  drivebay-agent volume erased
  drivebay-agent volume erased pvc-3f2c9d1e --receipt > erased.json
  jq -j .[0].receipt erased.json > receipt; jq -j .[0].public_key erased.json > key.pem
  jq -j .[0].signature erased.json | base64 -d > signature
  openssl pkeyutl -verify -pubin -inkey key.pem -rawin -in receipt -sigfile signature")]
    Erased {
        /// Only this one: its name or uuid, in full
        #[arg(required_if_eq("receipt", "true"))]
        name: Option<String>,
        /// Print its signed receipts, as JSON
        #[arg(long)]
        receipt: bool,
        #[command(flatten)]
        show: Show,
    },
    /// Change the secret of an encrypted volume
    ///
    /// Also while it is in use. The new secret is tried before the earlier one is removed; until then both open the volume. Key slots that
    /// were added by other programs are removed, except those of recovery keys. If a StorageClass names the secret, change that one, too.
    #[command(after_help = "\
Examples:
  drivebay-agent volume rekey db --key-file old.key --new-key-file new.key
  drivebay-agent volume rekey db --key-file recovery.key --new-key-file new.key    the secret is lost")]
    Rekey {
        /// Name, uuid, id, PersistentVolume, claim or device; no prefix
        name: String,
        #[command(flatten)]
        key: KeyFile,
        /// File with the new secret; -: standard input
        #[arg(long, value_name = "FILE")]
        new_key_file: PathBuf,
        #[command(flatten)]
        socket: SocketArg,
    },
    /// Verify that a secret opens an encrypted volume
    ///
    /// Also while it is in use; nothing is mounted. Exit code 1: it does not open the volume.
    #[command(after_help = "\
Examples:
  drivebay-agent volume check-key db --key-file /etc/drivebay/db.key
  kubectl get secret volumes -o jsonpath={.data.passphrase} | base64 -d | drivebay-agent volume check-key db --key-file -")]
    CheckKey {
        /// Name, uuid, id, PersistentVolume, claim or device; no prefix
        name: String,
        #[command(flatten)]
        key: KeyFile,
        #[command(flatten)]
        socket: SocketArg,
    },
    /// Make a recovery key for an encrypted volume, and print it
    ///
    /// The key opens the volume like its secret, also on another host. It is printed once and kept nowhere else; if the command fails, run
    /// it again. An earlier recovery key is removed.
    #[command(after_help = "\
Examples:
  drivebay-agent volume recovery-key db --key-file /etc/drivebay/db.key > db.recovery")]
    RecoveryKey {
        /// Name, uuid, id, PersistentVolume, claim or device; no prefix
        name: String,
        #[command(flatten)]
        key: KeyFile,
        #[command(flatten)]
        socket: SocketArg,
    },
    /// The same as `drivebay-agent volumes`
    #[command(visible_alias = "ls")]
    List(VolumesArgs),
    /// Print a PersistentVolume for a volume, so that Kubernetes can use it
    ///
    /// For one that was made by hand, or whose PersistentVolume is lost. What to do before applying it is printed to stderr.
    #[command(after_help = "\
Examples:
  drivebay-agent volume pv db --pvc shop/data-db-0 --storage-class fast > pv.json")]
    Pv(PvArgs),
}

/// The secret of an encrypted volume.
#[derive(Debug, Args)]
pub struct KeyFile {
    /// File with the secret, without the newline at its end; -: standard input
    #[arg(long, value_name = "FILE")]
    pub key_file: PathBuf,
}

/// Options of `volume create`.
#[derive(Debug, Args)]
pub struct CreateArgs {
    /// Name: 1 to 128 bytes, no control characters
    pub name: String,
    /// Size with its unit, such as 10GiB or 500GB; rounded up to a size that its class supports
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub size: u64,
    /// Class of drives; optional if there is only one
    #[arg(long)]
    pub class: Option<String>,
    /// Filesystem. Default: the class's
    #[arg(long, value_name = "ext4|xfs|btrfs", conflicts_with = "block")]
    pub fs: Option<String>,
    /// Raw volume, without a filesystem
    #[arg(long)]
    pub block: bool,
    /// Options for mkfs, separated by spaces, instead of the class's; requires --fs
    #[arg(
        long,
        value_name = "OPTIONS",
        requires = "fs",
        allow_hyphen_values = true
    )]
    pub mkfs_options: Option<String>,
    /// Mount options of the volume, separated by commas, in addition to the class's
    #[arg(long, value_name = "OPTIONS", conflicts_with = "block")]
    pub mount_options: Option<String>,
    /// Encrypt the volume (LUKS2). Its first mount decides its secret (`volume mount --key-file`)
    #[arg(long)]
    pub encrypt: bool,
    #[command(flatten)]
    pub show: Show,
}

/// Options of `volume mount`.
#[derive(Debug, Args)]
pub struct MountArgs {
    /// Name, uuid, id, PersistentVolume, claim or device; no prefix
    #[arg(required_unless_present = "persisted", conflicts_with = "persisted")]
    pub name: Option<String>,
    /// Existing directory, or file for a raw volume. Default: the directory of its persisted mount
    #[arg(conflicts_with = "persisted")]
    pub dir: Option<PathBuf>,
    /// Mount it at each boot, too
    #[arg(long, requires = "dir")]
    pub persist: bool,
    /// Mount read-only
    #[arg(long, requires = "dir")]
    pub read_only: bool,
    /// Mount options, separated by commas, in addition to the volume's own
    #[arg(long, value_name = "OPTIONS", requires = "dir")]
    pub options: Option<String>,
    /// File with the secret of an encrypted volume, without the newline at its end; -: standard input. Default: that of its persisted mount
    #[arg(long, value_name = "FILE", conflicts_with = "persisted")]
    pub key_file: Option<PathBuf>,
    /// Persist the mount of an encrypted volume that has no recovery key
    #[arg(long, requires = "persist")]
    pub no_recovery_key: bool,
    /// Mount every volume that has a persisted mount
    #[arg(long)]
    pub persisted: bool,
    #[command(flatten)]
    pub socket: SocketArg,
}

/// Options of `volume prefer`.
#[derive(Debug, Args)]
pub struct PreferArgs {
    /// Name, uuid, id, PersistentVolume, claim or device; no prefix
    pub volume: String,
    /// Drive that is to serve it: identity, kernel name or serial number; no prefix
    #[arg(long, value_name = "DRIVE")]
    pub drive: String,
    /// The volume's id, in full
    #[arg(long, value_name = "VOLUME-ID")]
    pub confirm: Option<String>,
    /// Operator, for the record; required where the environment has no user name, as in kubectl exec
    #[arg(long, value_name = "NAME")]
    pub by: Option<String>,
    #[command(flatten)]
    pub socket: SocketArg,
}

/// Options of `volume erase-now` and `volume restore`.
#[derive(Debug, Args)]
pub struct QuarantineArgs {
    /// Name, uuid, id, PersistentVolume, claim or device; no prefix
    pub name: String,
    /// Its name, in full
    #[arg(long, value_name = "NAME")]
    pub confirm: Option<String>,
    #[command(flatten)]
    pub socket: SocketArg,
}

/// Options of `volume pv`.
#[derive(Debug, Args)]
pub struct PvArgs {
    /// Name, uuid, id, claim or device, or a unique prefix
    pub name: String,
    /// For whom.
    #[command(flatten)]
    pub claim: PvClaimArgs,
    #[command(flatten)]
    pub socket: SocketArg,
}

/// Options of `volumes` and `volume list`.
#[derive(Debug, Args)]
pub struct VolumesArgs {
    /// Only these, by name or unique prefix
    #[arg(value_name = "VOLUME")]
    pub names: Vec<String>,
    #[command(flatten)]
    pub list: ListArgs,
    #[command(flatten)]
    pub watch: WatchArg,
    /// Only volumes of this class of drives
    #[arg(long, value_name = "CLASS")]
    pub class: Option<String>,
    /// Only volumes on this drive
    #[arg(long, value_name = "DRIVE")]
    pub drive: Option<String>,
    /// Only volumes with an abnormal condition
    #[arg(long)]
    pub abnormal: bool,
    /// Sort by this instead of by name; with --watch, by condition
    #[arg(long, value_enum, value_name = "BY")]
    pub sort: Option<VolumeSort>,
    #[command(flatten)]
    pub socket: SocketArg,
}
