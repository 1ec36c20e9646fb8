//! What can be typed. The help is the manual: each command says what it does, what it changes, and shows how.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

pub use drivebay_common::logging::LogFormat;
pub use drivebay_controller::cli::Format;
use drivebay_controller::cli::args::{HEALTH_EXIT_CODES, PvClaimArgs};

use crate::{
    config::{DEFAULT_AGENT_SOCKET, DEFAULT_PATH, HealthApi, units::parse_size},
    smart::collect::DeviceType,
};

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  failed; the message says what and what to do
  2  wrong usage, or a confirmation is missing; nothing was done
  3  no agent answers
  78 run: the config has a mistake";

const HEALTH_EXAMPLES: &str = "\
Examples:
  drivebay-agent health
  drivebay-agent health -o json | jq -r '.problems[] | .severity, .id'";

const EXPLAIN_EXAMPLES: &str = "\
Examples:
  drivebay-agent smart explain /dev/sda
  smartctl --json -x /dev/sda | drivebay-agent smart explain -
  drivebay-agent smart explain -d megaraid,3 /dev/sda
  drivebay-agent smart explain dump.json -o json | jq -r .verdict";

const EXPLAIN_EXIT_CODES: &str = "\
Exit codes:
  0   GOOD
  10  SUSPECT
  20  BAD
  30  UNKNOWN: the drive is asleep, or the answer holds no health data
  1   nothing could be read; the message says what and what to do
  2   wrong usage";

const START: &str = "\
Start here:
  drivebay-agent check-config --config FILE   is the config right?
  drivebay-agent claim-plan --config FILE     which drives would be used, which not, and why
  drivebay-agent run --config FILE            the agent (as root)
  drivebay-agent drives                       what the running agent sees
  drivebay-agent health                       what is wrong, and what to do about it

No drive is written to unless a class in the config selects it and it is provably blank.";

/// Drivebay's agent: turns this machine's drives into CSI volumes.
#[derive(Debug, Parser)]
#[command(name = "drivebay-agent", version = drivebay_common::VERSION, after_help = format!("{START}\n\n{EXIT_CODES}"), max_term_width = 110)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Every command.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the agent (as root; one per machine)
    ///
    /// Discovers drives, carves volumes from those the config allows, and serves CSI on a unix socket.
    /// SIGTERM stops it; mounted volumes stay mounted and in use.
    #[command(after_help = "\
Examples:
  drivebay-agent run --config /etc/drivebay/drivebay.toml
  drivebay-agent run --config drivebay.toml --headless          one machine, no controller: CSI Controller too
  DRIVEBAY_LOG=debug drivebay-agent run --log-format json       what to log: as tracing's EnvFilter reads it")]
    Run(RunArgs),
    /// Say what is wrong on this host, worst first, and what to do about it
    #[command(after_help = format!("{HEALTH_EXAMPLES}\n\n{HEALTH_EXIT_CODES}"))]
    Health {
        /// How to show it, and where the agent is.
        #[command(flatten)]
        show: Show,
    },
    /// Show the drives of this node as the running agent sees them, with every reason against each
    #[command(after_help = "\
States:
  claimed    carries Drivebay's label for this node; volumes live on it
  available  selected by a class and provably blank; nothing was written to it yet
  rejected   may not be used; the lines below it say why
  missing    known from before, not here now
  unprobed   not looked at yet, or it does not answer

Examples:
  drivebay-agent drives
  drivebay-agent drives -o wide
  drivebay-agent drives -o json | jq -r '.drives[] | select(.state == \"rejected\") | .id, .rejects[].code'")]
    Drives {
        /// How to show them, and where the agent is.
        #[command(flatten)]
        show: Show,
        /// Virtual devices and partitions too (loop, ram, dm, ...)
        #[arg(long)]
        all: bool,
    },
    /// Show the volumes of this node as the running agent sees them
    #[command(after_help = "\
Examples:
  drivebay-agent volumes
  drivebay-agent volumes -o json | jq -r '.volumes[] | select(.state == \"erasing\") | .name'")]
    Volumes {
        /// How to show them, and where the agent is.
        #[command(flatten)]
        show: Show,
    },
    /// Show which drives would be claimed with this config, and why the others would not
    ///
    /// Looks at the drives itself (as root) and needs no running agent. Writes nothing to any drive.
    #[command(after_help = "\
Examples:
  drivebay-agent claim-plan --config drivebay.toml
  drivebay-agent claim-plan --config drivebay.toml -o json")]
    ClaimPlan {
        /// The config.
        #[command(flatten)]
        config: ConfigArg,
        /// How to show it
        #[arg(short, long, value_enum, default_value_t = Format::Table)]
        output: Format,
        /// Virtual devices and partitions too (loop, ram, dm, ...)
        #[arg(long)]
        all: bool,
    },
    /// Show one drive, or act on it
    #[command(subcommand, arg_required_else_help = true)]
    Drive(DriveCommand),
    /// Judge SMART data without a running agent
    #[command(subcommand, arg_required_else_help = true)]
    Smart(SmartCommand),
    /// Show the rules that SMART data is judged by
    ///
    /// The table is made from the data that the agent executes, with the default thresholds; `[smart.thresholds]` in the config changes
    /// them. JSON adds what each finding means, what to do, and whether it can be acknowledged.
    #[command(after_help = "\
Examples:
  drivebay-agent rules
  drivebay-agent rules -o wide                         with meaning and action
  drivebay-agent rules -o json | jq -r '.[] | select(.verdict == \"BAD\") | .code'")]
    Rules {
        /// How to show them
        #[arg(short, long, value_enum, default_value_t = Format::Table)]
        output: Format,
    },
    /// Show one volume, check it, or use volumes by hand: create, mount, expand, unmount, delete
    #[command(subcommand, arg_required_else_help = true)]
    Volume(VolumeCommand),
    /// Have the running agent look at all drives again, now
    Rescan {
        /// Where the agent is.
        #[command(flatten)]
        socket: SocketArg,
    },
    /// Show what the running agent logs, or change it until it ends
    #[command(after_help = "\
Examples:
  drivebay-agent log-level                             what is logged
  drivebay-agent log-level debug
  drivebay-agent log-level info,drivebay_agent=trace
  drivebay-agent log-level reset                       as it was started")]
    LogLevel {
        /// off, error, warn, info, debug, trace; or target=level, separated by commas; or reset
        #[arg(value_name = "LEVEL")]
        level: Option<String>,
        /// Where the agent is.
        #[command(flatten)]
        socket: SocketArg,
    },
    /// Print the udev rule that keeps the host off what is inside volumes
    ///
    /// It belongs in /etc/udev/rules.d/09-drivebay.rules of the host.
    UdevRule,
    /// Check a config: OK with a summary, or every mistake with its line
    #[command(after_help = "\
Examples:
  drivebay-agent check-config --config drivebay.toml")]
    CheckConfig {
        /// The config.
        #[command(flatten)]
        config: ConfigArg,
    },
}

/// What can be done to one drive.
#[derive(Debug, Subcommand)]
pub enum DriveCommand {
    /// Show everything about a drive: its findings, its SMART data, its volumes
    #[command(after_help = "\
Examples:
  drivebay-agent drive show sdb
  drivebay-agent drive show wwn-0x5000c5 -o wide                            a beginning that no other has")]
    Show(ShowOne),
    /// Acknowledge a drive's findings: they count again when they get worse
    ///
    /// Errors that are counted up to now speak no longer against the drive, and a verdict of BAD that rests on them is
    /// left. What the drive says of its state now, such as that it fails, cannot be acknowledged; see
    /// [[health.override]] in the config. It is kept with the drive's history, with who and why.
    #[command(after_help = "\
Examples:
  drivebay-agent drive ack sdb --note 'the errors came from the old cable'")]
    Ack {
        /// Its identity, or its kernel name (sdb, /dev/sdb)
        drive: String,
        /// Why, for whoever looks next
        #[arg(long, value_name = "TEXT", default_value = "")]
        note: String,
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
        /// Its identity, or its kernel name (sdb, /dev/sdb)
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
        /// Its identity, or its kernel name (sdb, /dev/sdb)
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
        /// Its identity, or its kernel name (sdb, /dev/sdb)
        drive: String,
        /// Its identity, spelled out in full
        #[arg(long, value_name = "IDENTITY")]
        confirm: Option<String>,
        /// Where the agent is.
        #[command(flatten)]
        socket: SocketArg,
    },
}

/// What can be done with SMART data.
#[derive(Debug, Subcommand)]
pub enum SmartCommand {
    /// Show the facts, findings and verdict of one drive, with the rule behind each
    ///
    /// Reads what `smartctl --json -x DEVICE` printed, from a file or from standard input (-), or asks a device with smartctl
    /// (as root). Needs no running agent and no config, and writes nothing. One answer shows no growth: rules on it need an agent.
    #[command(after_help = format!("{EXPLAIN_EXAMPLES}\n\n{EXPLAIN_EXIT_CODES}"))]
    Explain(ExplainArgs),
}

/// What is explained, and how.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// A file with smartctl's JSON, a device, or - for standard input
    #[arg(value_name = "FILE|DEVICE|-")]
    pub source: PathBuf,
    /// How smartctl reaches the device (its -d), such as megaraid,0 or sat
    #[arg(short, long, value_name = "TYPE", value_parser = DeviceType::parse)]
    pub device_type: Option<DeviceType>,
    /// How to show it; JSON has stable field names
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    pub output: Format,
}

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
    /// Exit code 1 when the filesystem is damaged.
    #[command(after_help = "\
Examples:
  drivebay-agent volume check 5b0c3c5e-6f0b-4a6e-9a57-0d5d8f0c8a11@rack1-node7")]
    Check {
        /// The volume's id, or its uuid
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
        /// Its name, its uuid or its id
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
        /// Its name, its uuid or its id
        name: String,
        /// Its name, spelled out in full
        #[arg(long, value_name = "NAME")]
        confirm: Option<String>,
        /// Where the agent is.
        #[command(flatten)]
        socket: SocketArg,
    },
    /// Show the volumes of this host, who made them, and where they are mounted
    #[command(after_help = "\
Examples:
  drivebay-agent volume list
  drivebay-agent volume list -o json | jq -r '.mounts[] | select(.persist) | .path'")]
    List {
        /// How to show them, and where the agent is.
        #[command(flatten)]
        show: Show,
    },
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
    /// Its name, its uuid or its id
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

/// Options of `volume pv`.
#[derive(Debug, Args)]
pub struct PvArgs {
    /// Its name, its id, its device, or a beginning of one of them that no other has
    pub name: String,
    /// For whom.
    #[command(flatten)]
    pub claim: PvClaimArgs,
    /// Where the agent is.
    #[command(flatten)]
    pub socket: SocketArg,
}

/// What is shown, and how.
#[derive(Debug, Args)]
pub struct ShowOne {
    /// Its identity or id, its name, its device, or a beginning of one of them that no other has
    #[arg(value_name = "ID")]
    pub id: String,
    /// How to show it, and where the agent is.
    #[command(flatten)]
    pub show: Show,
}

/// How the agent runs.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// The config.
    #[command(flatten)]
    pub config: ConfigArg,
    /// How it runs.
    #[command(flatten)]
    pub options: RunOptions,
}

/// What is said at the command line and not in the config.
#[derive(Debug, Clone, Copy, Args)]
pub struct RunOptions {
    /// Serve the CSI Controller service on the CSI socket too (one machine, Nomad, tests)
    #[arg(long)]
    pub headless: bool,
    /// Which health API to advertise: VOLUME_CONDITION of CSI 1.12, the health calls of 1.13, both or none
    #[arg(long, value_name = "API", value_enum, default_value_t = HealthApi::Legacy)]
    pub health_api: HealthApi,
    /// How log lines are written (to stderr)
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
}

/// Where the config is.
#[derive(Debug, Args)]
pub struct ConfigArg {
    /// The config file (TOML)
    #[arg(long, value_name = "FILE", default_value = DEFAULT_PATH)]
    pub config: PathBuf,
}

/// Where the agent is.
#[derive(Debug, Args)]
pub struct SocketArg {
    /// The agent's socket (`socket` under `[agent]` in its config)
    #[arg(long, value_name = "PATH", default_value = DEFAULT_AGENT_SOCKET)]
    pub socket: PathBuf,
}

/// How to show what the agent knows.
#[derive(Debug, Args)]
pub struct Show {
    /// How to show it; JSON has bytes and stable field names
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    pub output: Format,
    /// Where the agent is.
    #[command(flatten)]
    pub socket: SocketArg,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_health_api_words_mean_what_they_say() {
        for (word, meaning) in [
            ("legacy", HealthApi::Legacy),
            ("v1.13", HealthApi::V1_13),
            ("both", HealthApi::Both),
            ("none", HealthApi::None),
        ] {
            let cli = Cli::try_parse_from(["x", "run", "--health-api", word]).unwrap();
            assert!(
                matches!(cli.command, Command::Run(run) if run.options.health_api == meaning),
                "{word}"
            );
        }
    }
}
