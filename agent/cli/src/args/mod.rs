//! Arguments. The help is the manual: each command describes its effect, the changes it makes, and gives examples.

use clap::{Parser, Subcommand};

use drivebay_common::cli::exit_codes;
pub use drivebay_common::logging::LogFormat;
pub use drivebay_view::args::Format;
use drivebay_view::args::moves::MovesArgs;

use super::{
    retire::{MAY_BE_PULLED, MUST_STAY},
    schema::Of,
};

mod common;
mod drive;
mod given;
mod run;
mod smart;
mod snapshot;
mod volume;

pub use common::{ConfigArg, Show, ShowOne, SocketArg};
pub use drive::{AckArgs, DriveCommand, DrivesArgs, RetireArgs};
pub use run::{RunArgs, RunOptions};
pub use smart::{ExplainArgs, SmartCommand};
pub use snapshot::{
    CopyArgs, MaxAge, SnapshotCommand, SnapshotCreateArgs, SnapshotsArgs, Unreadable,
};
pub use volume::{
    CreateArgs, KeyFile, MountArgs, PreferArgs, PvArgs, QuarantineArgs, VolumeCommand, VolumesArgs,
};

/// Exit codes that only some commands have.
pub const FURTHER_EXIT_CODES: [(u8, &str); 6] = [
    (10, "smart explain: the verdict is SUSPECT"),
    (
        MAY_BE_PULLED,
        "drive retire: the drive may be pulled, and not leave the building: something on it is not erased",
    ),
    (MUST_STAY, "drive retire: the drive must stay where it is"),
    (20, "smart explain: the verdict is BAD"),
    (
        30,
        "smart explain: the verdict is UNKNOWN: the drive is asleep, or the answer holds no health data",
    ),
    (78, "there is no config; run: it has a mistake"),
];

const HEALTH_EXAMPLES: &str = "\
Examples:
  drivebay-agent health
  drivebay-agent health -o json | jq -r '.problems[] | .severity, .id'";

const START: &str = "\
Start here:
  drivebay-agent init                         a first config from the drives of this host, which claims none (as root)
  drivebay-agent check-config --config FILE   checks the config
  drivebay-agent claim-plan --config FILE     which drives would be used, which not, and why
  drivebay-agent run --config FILE            the agent (as root)
  drivebay-agent drives                       what the running agent sees
  drivebay-agent health                       what is wrong, and what to do about it

No drive is written to unless a class in the config selects it and it is provably blank.";

/// Drivebay's agent: turns this machine's drives into CSI volumes.
#[derive(Debug, Parser)]
#[command(name = "drivebay-agent", version = drivebay_common::VERSION, after_help = format!("{START}\n\n{}", exit_codes(&FURTHER_EXIT_CODES)), max_term_width = 110)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

/// Every command.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the agent (as root; one per machine)
    ///
    /// Discovers drives, creates volumes on those that the config selects, and serves CSI on a unix socket.
    /// SIGTERM stops it; mounted volumes stay mounted and usable.
    #[command(after_help = "\
Examples:
  drivebay-agent run --config /etc/drivebay/drivebay.toml
  drivebay-agent run --config drivebay.toml --headless          one machine, no controller: CSI Controller too
  DRIVEBAY_LOG=debug drivebay-agent run --log-format json       a filter of tracing's EnvFilter")]
    Run(RunArgs),
    /// Show the problems of this host, worst first, and what to do about them
    #[command(after_help = HEALTH_EXAMPLES)]
    Health {
        #[command(flatten)]
        show: Show,
    },
    /// List the drives of this node as the running agent sees them
    ///
    /// One line a drive. What keeps it from being used, or should be known of it, is shown as codes, and explained below: once for each
    /// code. -o wide, or naming a drive, shows every reason of each.
    #[command(after_help = "\
States:
  claimed      carries Drivebay's label for this node; volumes live on it
  available    selected by a class and provably blank; nothing was written to it yet
  rejected     may not be used; REASON says why
  missing      known from before, and seen not to be present
  not-scanned  known from before, and not scanned since the agent started: present or missing
  unprobed     present, and does not answer

Examples:
  drivebay-agent drives
  drivebay-agent drives sdb wwn-0x5000c5                                    only these, by name or unique prefix
  drivebay-agent drives --abnormal --sort health
  drivebay-agent drives --class fast -o name
  drivebay-agent drives -o json | jq -r '.drives[] | select(.state == \"rejected\") | .id, .rejects[].code'")]
    Drives(DrivesArgs),
    /// List the volumes of this node as the running agent sees them: usage, claims and conditions
    #[command(after_help = "\
Examples:
  drivebay-agent volumes
  drivebay-agent volumes db pvc-3f2c9d1e                                    only these, by name or unique prefix
  drivebay-agent volumes --drive sdb --sort full --watch
  drivebay-agent volumes -o json | jq -r '.volumes[] | select(.state == \"erasing\") | .name'
  drivebay-agent volumes -o json | jq -r '.mounts[] | select(.persist) | .path'")]
    Volumes(VolumesArgs),
    /// List the moves of volumes to other drives: progress, and what they wait for
    ///
    /// A move is listed until the old place of its volume is erased.
    #[command(after_help = "\
Phases:
  waiting     for the volume to be unstaged, for its turn, or for another attempt; the line below says which
  copying     the data is being copied and compared
  completing  the copy is whole; the drives record that the volume is on the new one
  moved       the volume lives on the new drive; the old place is kept for a while, then erased
  in-doubt    it is not known which place is newer, and none is served (`drivebay-agent volume prefer`)

Examples:
  drivebay-agent moves
  drivebay-agent moves --watch
  drivebay-agent moves -o json | jq -r '.moves[] | select(.phase != \"moved\") | .name'")]
    Moves(MovesArgs<SocketArg>),
    /// List the snapshots of volumes: age, when they expire, state, and how much of their reserve is used
    #[command(after_help = "\
States:
  creating    not complete yet
  ready       can be restored (`drivebay-agent snapshot restore`)
  overflowed  lost: its volume overwrote more than the reserve holds; delete it
  ambiguous   its record and LVM disagree; it is not changed

EXPIRES is the time until a snapshot is deleted because of its age (`now`: once it is no longer copied from). Groups, which were taken at
one moment, are listed below, with how many of their snapshots are shown; -o wide has a column GROUP.

Examples:
  drivebay-agent snapshots
  drivebay-agent snapshots db shop/data-db-0                                only those of these volumes
  drivebay-agent snapshots -o json | jq -r '.snapshots[] | select(.state == \"overflowed\") | .name'")]
    Snapshots(SnapshotsArgs),
    /// Show which drives would be claimed with this config, and why the others would not
    ///
    /// Scans the drives itself (as root) and needs no running agent. Writes nothing to any drive.
    #[command(after_help = "\
Examples:
  drivebay-agent claim-plan --config drivebay.toml
  drivebay-agent claim-plan --config drivebay.toml -o json")]
    ClaimPlan {
        /// The config.
        #[command(flatten)]
        config: ConfigArg,
        /// Output format
        #[arg(short, long, value_enum, default_value_t = Format::Table)]
        output: Format,
        /// Include virtual devices and partitions (loop, ram, dm, ...)
        #[arg(long)]
        all: bool,
    },
    /// Show one drive, or act on it
    #[command(subcommand, arg_required_else_help = true)]
    Drive(DriveCommand),
    /// Evaluate SMART data without a running agent
    #[command(subcommand, arg_required_else_help = true)]
    Smart(SmartCommand),
    /// Show the rules for evaluating SMART data
    ///
    /// These are the rules that the agent executes, with the default thresholds; `[smart.thresholds]` in the config changes them.
    /// JSON adds what each finding means, what to do, and whether it can be acknowledged.
    #[command(after_help = "\
Examples:
  drivebay-agent rules
  drivebay-agent rules -o wide                         with meaning and action
  drivebay-agent rules -o json | jq -r '.[] | select(.verdict == \"BAD\") | .code'")]
    Rules {
        /// Output format
        #[arg(short, long, value_enum, default_value_t = Format::Table)]
        output: Format,
    },
    /// Show or check a volume, or manage volumes manually: create, clone, mount, expand, unmount, delete
    #[command(subcommand, arg_required_else_help = true)]
    Volume(VolumeCommand),
    /// Take, restore or delete snapshots of volumes
    #[command(subcommand, arg_required_else_help = true)]
    Snapshot(SnapshotCommand),
    /// Dynamic host volume plugin of Nomad (executed by Nomad 1.10 or newer)
    ///
    /// Called by /usr/libexec/drivebay/nomad/drivebay (in the repository deploy/nomad/drivebay); link or copy that into the client's
    /// host_volume_plugin_dir. Volumes are created as by `volume create`, named nomad-ID, shown with the name that Nomad's user gave, and
    /// mounted in Nomad's volume directory. The result is JSON on standard output.
    #[command(after_help = "\
Examples:
  drivebay-agent nomad-plugin fingerprint                                   the call that Nomad makes when it starts")]
    NomadPlugin(super::nomad::NomadArgs),
    /// Have the running agent scan all drives now
    Rescan {
        #[command(flatten)]
        socket: SocketArg,
    },
    /// Show or change the log filter of the running agent; a change lasts until it stops
    #[command(after_help = "\
Examples:
  drivebay-agent log-level                             the current filter
  drivebay-agent log-level debug
  drivebay-agent log-level info,drivebay=trace
  drivebay-agent log-level reset                       as at its start")]
    LogLevel {
        /// off, error, warn, info, debug, trace; or target=level, separated by commas; or reset
        #[arg(value_name = "LEVEL")]
        level: Option<String>,
        #[command(flatten)]
        socket: SocketArg,
    },
    /// Print the JSON Schema of a command's output
    #[command(after_help = "\
Examples:
  drivebay-agent schema volumes | jq -r '.\"$defs\".Volume.properties | to_entries[] | .key, .value.description'")]
    Schema {
        /// The command
        #[arg(value_enum, value_name = "COMMAND")]
        of: Of,
    },
    /// Print the udev rule that keeps the host from using the contents of volumes
    ///
    /// It belongs in /etc/udev/rules.d/09-drivebay.rules of the host.
    UdevRule,
    /// Write an initial config that lists the drives of this host; it claims none of them
    ///
    /// Scans the drives (as root) and lists each in the file, with the reasons why it cannot be claimed. The classes are commented out:
    /// remove the "#" where a drive may be used. The layout is lvm where that works. A file that sets nothing, such as the one of a
    /// package, is replaced; what was edited in it is kept beside it. One that sets anything is not changed.
    #[command(after_help = "\
Examples:
  drivebay-agent init                              writes /etc/drivebay/drivebay.toml
  drivebay-agent init --print                      shows what it would write")]
    Init {
        #[command(flatten)]
        config: ConfigArg,
        /// Print it; write no file
        #[arg(long)]
        print: bool,
        /// Treat loop devices as drives, for demos and tests
        #[arg(long)]
        allow_loop: bool,
    },
    /// Check a config: print a summary, or every mistake with its line
    ///
    /// Mount options are checked by this host's kernel (as root), which loads the filesystem's module. Rules about several options,
    /// and about some values (XFS: logbufs), apply only when a filesystem is mounted.
    #[command(after_help = "\
Examples:
  drivebay-agent check-config --config drivebay.toml")]
    CheckConfig {
        /// The config.
        #[command(flatten)]
        config: ConfigArg,
    },
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
    fn help_names_every_filesystem() {
        let mut command = Cli::command();
        command.build();
        let volume = command.find_subcommand("volume").unwrap();
        let create = volume.find_subcommand("create").unwrap();
        let fs = create
            .get_arguments()
            .find(|argument| argument.get_id() == "fs");
        let names = fs.and_then(clap::Arg::get_value_names).unwrap();
        let all = drivebay_model::FsType::ALL.map(|fs_type| fs_type.as_str());
        assert_eq!(names, [all.join("|")]);
    }
}
