//! Commands that query a running controller. Their help is the manual: each command says what it does and what it
//! changes, and has examples.

use std::path::{Path, PathBuf};

use clap::{
    Args, Subcommand, ValueEnum,
    builder::{PossibleValuesParser, TypedValueParser},
};
use drivebay_proto::{volume_id::is_node_id, words};

use drivebay_view::{
    args::{
        DriveSort, Format, Light, ListArgs, PvClaimArgs, VolumeSort,
        drive::{CordonArgs, UncordonArgs},
        log_filter,
        moves::{EvacuateArgs, MoveVolumeArgs, MovesArgs, ReplaceArgs},
    },
    watch::WatchArg,
};

/// Default path of the controller's unix socket.
pub const DEFAULT_SOCKET: &str = "/run/drivebay/controller.sock";

const HEALTH_EXAMPLES: &str = "\
Examples:
  drivebay-controller health
  drivebay-controller health --node n7 -o wide
  drivebay-controller health -o json | jq -r '.problems[] | .severity, .node, .id'";

/// Everything that is asked of a controller.
#[derive(Debug, Subcommand)]
pub enum ClientCommand {
    /// Show the problems of the cluster, worst first, and what to do about them
    #[command(after_help = HEALTH_EXAMPLES)]
    Health(Show),
    /// List the nodes with their state and conditions
    #[command(after_help = "\
States:
  connected  its agent is connected
  starting   its agent is connected, and still scanning its drives
  away       its agent is disconnected; its volumes are listed as last reported
  forgotten  will not return (`drivebay-controller node forget`)

Examples:
  drivebay-controller nodes
  drivebay-controller nodes --state away
  drivebay-controller nodes -o wide --node n7
  drivebay-controller nodes -o json | jq -r '.nodes[] | select(.drives_in_trouble > 0) | .node'")]
    Nodes(NodesArgs),
    /// List the drives of all nodes
    ///
    /// One line a drive. What keeps it from being used, or should be known of it, is shown as codes, and explained below: once for each
    /// code. -o wide, or naming a drive, shows every reason of each.
    #[command(after_help = "\
States are those of `drivebay-agent drives`: claimed, available, rejected, missing, not-scanned, unprobed.

Examples:
  drivebay-controller drives --abnormal
  drivebay-controller drives sdb wwn-0x5000c5 --node n7              only these, by name or unique prefix
  drivebay-controller drives --node n7 --node n8 -o wide
  drivebay-controller drives -o json | jq -r '.drives[] | select(.verdict == \"BAD\") | .serial'")]
    Drives(DrivesArgs),
    /// List the volumes of all nodes
    #[command(after_help = "\
--unclaimed lists volumes without a PersistentVolume, because the result of their creation was never known or \
because the PersistentVolume was lost. A volume that is being created has no PersistentVolume yet: repeat the \
command after some minutes. The list must contain all PersistentVolumes of this cluster; a list that names no \
volume of Drivebay is refused. A PersistentVolume that names the wrong node (the drive was moved) is noted.

The controller does not know how full a volume is: `drivebay-agent volumes` on its node and the node's metrics \
show it.

Examples:
  drivebay-controller volumes --abnormal
  drivebay-controller volumes --node n7 --class fast -o wide --sort size
  drivebay-controller volumes --drive wwn-0x5000c500a1b2c3d4 --watch=10
  drivebay-controller volumes --unclaimed
  kubectl get pv -o json | drivebay-controller volumes --unclaimed -
  drivebay-controller volumes --deleted -o json | grep '\"state\":\"quarantined\"'")]
    Volumes(VolumesArgs),
    /// List the snapshots of the volumes of all nodes
    ///
    /// How much of its reserve a snapshot uses is shown where the node's agent reports it.
    #[command(after_help = "\
States are those of `drivebay-agent snapshots`: creating, ready, overflowed, ambiguous.

Examples:
  drivebay-controller snapshots --node n7
  drivebay-controller snapshots shop/data-db-0                         only those of this volume
  drivebay-controller snapshots -o json | jq -r '.snapshots[] | select(.state == \"overflowed\") | .name'")]
    Snapshots(SnapshotsArgs),
    /// List the moves of a node's volumes to other drives: progress, and what they wait for
    ///
    /// A move is listed until the old place of its volume is erased. Phases are those of `drivebay-agent moves`.
    #[command(after_help = "\
Examples:
  drivebay-controller moves --node n7
  drivebay-controller moves --node n7 --watch
  drivebay-controller moves --node n7 -o json | jq -r '.moves[] | select(.phase != \"moved\") | .name'")]
    Moves(MovesArgs<OneNodeArg>),
    /// Show one drive, or act on it
    #[command(subcommand, arg_required_else_help = true)]
    Drive(DriveCommand),
    /// Show one volume, or act on it
    #[command(subcommand, arg_required_else_help = true)]
    Volume(VolumeCommand),
    /// Show a node, forget it, or undo that
    #[command(subcommand, arg_required_else_help = true)]
    Node(NodeCommand),
    /// Show or change the log filter of the running controller; a change lasts until it stops
    #[command(after_help = "\
Examples:
  drivebay-controller log-level                                  the current filter
  drivebay-controller log-level debug
  drivebay-controller log-level info,drivebay_controller=trace
  drivebay-controller log-level reset                            as at its start")]
    LogLevel(LogLevelArgs),
}

impl ClientCommand {
    /// Path of the socket that the command connects to; None if it makes no call.
    pub fn socket(&self) -> Option<&Path> {
        let socket = match self {
            Self::Health(show) => &show.socket,
            Self::Nodes(args) => &args.show.socket,
            Self::Drives(args) | Self::Drive(DriveCommand::List(args)) => &args.show.socket,
            Self::Volumes(args) | Self::Volume(VolumeCommand::List(args)) => &args.show.socket,
            Self::Drive(DriveCommand::Locate(args)) => &args.socket,
            Self::Snapshots(args) => &args.show.socket,
            Self::Moves(args) => &args.at.socket,
            Self::Drive(DriveCommand::Cordon(args)) => &args.of.of.at.socket,
            Self::Drive(DriveCommand::Uncordon(args)) => &args.of.at.socket,
            Self::Drive(DriveCommand::Evacuate(args)) => &args.at.socket,
            Self::Drive(DriveCommand::Replace(args)) => &args.at.socket,
            Self::Volume(VolumeCommand::Move(args)) => &args.at.socket,
            Self::Drive(DriveCommand::Show(args)) | Self::Volume(VolumeCommand::Show(args)) => {
                &args.show.socket
            }
            Self::Volume(VolumeCommand::Pv(args)) => &args.socket,
            Self::Node(NodeCommand::Show(args)) => &args.socket,
            Self::Node(NodeCommand::Forget(args)) => &args.socket,
            Self::Node(NodeCommand::Remember(_)) => return None,
            Self::LogLevel(args) => &args.socket,
        };
        Some(&socket.socket)
    }
}

/// Options of `log-level`.
#[derive(Debug, Args)]
pub struct LogLevelArgs {
    /// off, error, warn, info, debug, trace; or target=level, separated by commas; or reset
    #[arg(value_name = "LEVEL")]
    pub level: Option<String>,
    /// Socket of the controller to query.
    #[command(flatten)]
    pub socket: SocketArg,
}

impl LogLevelArgs {
    /// As the service takes it: None to see, empty to take changes back.
    pub fn filter(level: Option<&str>) -> Option<&str> {
        log_filter(level)
    }
}

/// Commands for one drive.
#[derive(Debug, Subcommand)]
pub enum DriveCommand {
    /// The same as `drivebay-controller drives`
    #[command(visible_alias = "ls")]
    List(DrivesArgs),
    /// Show all details of a drive: findings, SMART data, volumes
    #[command(after_help = "\
Examples:
  drivebay-controller drive show wwn-0x5000c500a1b2c3d4
  drivebay-controller drive show sdb --node n7 -o wide")]
    Show(ShowOneArgs),
    /// Stop placing new volumes on a claimed drive; its volumes are not affected
    ///
    /// Recorded on the drive by its node's agent: it lasts over restarts and on another node, until `drive uncordon`. The agent accepts
    /// this from a controller only if its configuration allows it (drive-verbs in section controller).
    #[command(after_help = "\
Examples:
  drivebay-controller drive cordon sdb --node n7 --plan               shows what would change
  drivebay-controller drive cordon wwn-0x5000c500a1b2c3d4 --by ann --reason 'replaced on Friday, ticket-4711'")]
    Cordon(CordonArgs<NodesArg>),
    /// Place new volumes on a cordoned drive again
    #[command(after_help = "\
Examples:
  drivebay-controller drive uncordon wwn-0x5000c500a1b2c3d4 --by ann")]
    Uncordon(UncordonArgs<NodesArg>),
    /// Move the volumes of a drive to other drives of its node, and cordon it
    ///
    /// Recorded by the node's agent, which continues after a restart; repeating the command changes nothing. A volume in use is moved
    /// when it is unstaged; a pod that starts meanwhile never waits for a copy. Refused as a whole, with every reason, unless all
    /// volumes can be moved. The command waits and shows progress; Ctrl-C ends the command, not the moves. It does not wait for volumes
    /// in use: exit code 8. The agent accepts this from a controller only if its configuration allows it (drive-verbs in section
    /// controller).
    #[command(after_help = "\
Examples:
  drivebay-controller drive evacuate sdb --node n7 --plan             shows what would be moved where
  drivebay-controller drive evacuate wwn-0x5000c500a1b2c3d4 --by ann --to sdc --to sdd
  drivebay-controller drive evacuate wwn-0x5000c500a1b2c3d4 --by ann --cancel")]
    Evacuate(EvacuateArgs<NodesArg>),
    /// Move all volumes of a drive to its replacement on the same node
    ///
    /// The same as `drive evacuate OLD --to NEW`. NEW needs room for all of them; a blank drive is claimed.
    #[command(after_help = "\
Examples:
  drivebay-controller drive replace sdb sdf --node n7 --plan
  drivebay-controller drive replace wwn-0x5000c500a1b2c3d4 sdf --by ann")]
    Replace(ReplaceArgs<NodesArg>),
    /// Switch the locate light of a drive's bay
    #[command(after_help = "\
Examples:
  drivebay-controller drive locate wwn-0x5000c500a1b2c3d4 on
  drivebay-controller drive locate sdb off --node n7")]
    Locate(LocateArgs),
}

/// Options of `drive locate`.
#[derive(Debug, Args)]
pub struct LocateArgs {
    /// Identity, kernel name or serial number; no prefix
    pub drive: String,
    /// Whether the light is on
    #[arg(value_enum)]
    pub light: Light,
    /// Its node, if several nodes have a drive of that name
    #[arg(long = "node", value_name = "NODE")]
    pub nodes: Vec<String>,
    /// Socket of the controller to query.
    #[command(flatten)]
    pub socket: SocketArg,
}

/// Options that locate the controller and restrict the search for a drive or volume to nodes.
#[derive(Debug, Args)]
pub struct NodesArg {
    /// Its node, if several nodes have one of that name
    #[arg(long = "node", value_name = "NODE")]
    pub nodes: Vec<String>,
    /// Socket of the controller to query.
    #[command(flatten)]
    pub socket: SocketArg,
}

/// Options that locate the controller and name the node to query.
#[derive(Debug, Args)]
pub struct OneNodeArg {
    /// The node
    #[arg(long, value_name = "NODE")]
    pub node: String,
    /// Socket of the controller to query.
    #[command(flatten)]
    pub socket: SocketArg,
}

/// Options of `drive show` and `volume show`.
#[derive(Debug, Args)]
pub struct ShowOneArgs {
    /// Identity or id, or another name (name, PersistentVolume, claim, device, serial number), or a unique prefix
    #[arg(value_name = "ID")]
    pub id: String,
    /// Output format, nodes and socket.
    #[command(flatten)]
    pub show: Show,
}

/// Commands for one volume.
#[derive(Debug, Subcommand)]
pub enum VolumeCommand {
    /// The same as `drivebay-controller volumes`
    #[command(visible_alias = "ls")]
    List(VolumesArgs),
    /// Show all details of a volume: conditions, mounts, and the health of its drive
    #[command(after_help = "\
Examples:
  drivebay-controller volume show pvc-3f2c9d1e
  drivebay-controller volume show 7b1d5c1e-58f3-4f0e-9d1a-2f6c1f0b3a77@n1 -o json")]
    Show(ShowOneArgs),
    /// Move a volume to another drive of its node
    ///
    /// Its id, PersistentVolume and mounts do not change. A volume in use is moved when it is unstaged. The old place is kept until the
    /// volume has been staged from the new one, and for a delay, then erased. The command waits and shows progress; Ctrl-C ends the
    /// command, not the move.
    #[command(after_help = "\
Examples:
  drivebay-controller volume move pvc-3f2c9d1e-58f3-4f0e-9d1a-2f6c1f0b3a77 --to sdc --plan
  drivebay-controller volume move shop/data-db-0 --to sdc --by ann
  drivebay-controller volume move shop/data-db-0 --cancel --by ann")]
    Move(MoveVolumeArgs<NodesArg>),
    /// Print a PersistentVolume that makes a volume usable on the node where it is now
    ///
    /// For a volume whose drive was moved to another node, or whose PersistentVolume was lost. Changes nothing; what to do before
    /// applying it is printed to stderr.
    #[command(after_help = "\
Examples:
  ID=7b1d5c1e-58f3-4f0e-9d1a-2f6c1f0b3a77@n1
  drivebay-controller volume pv $ID --pvc shop/data-db-0 --storage-class fast > pv.json
  drivebay-controller volume pv pvc-3f2c9d1e --pvc shop/data-db-0    a unique prefix
  kubectl apply -f pv.json")]
    Pv(PvArgs),
}

/// Commands for one node.
#[derive(Debug, Subcommand)]
pub enum NodeCommand {
    /// Show all details of a node: its agent, its last sessions, and refused connections under its name
    #[command(after_help = "\
Examples:
  drivebay-controller node show n7
  drivebay-controller node show n7 -o json | jq -r '.history[] | select(.outcome == \"refused\") | .text'")]
    Show(ShowNodeArgs),
    /// Forget a node that will not return: ITS VOLUMES ARE LOST TO THE CLUSTER
    ///
    /// Adds the node to the controller's config. From then on, deleting one of its volumes succeeds, so that PersistentVolumes and
    /// namespaces that wait for it can be removed. Nothing on the node is changed. If it returns, volumes that were deleted meanwhile
    /// are quarantined there before they are erased. Refused while the node is connected. Without --confirm nothing is changed: what
    /// would be lost is shown.
    #[command(after_help = "\
Examples:
  drivebay-controller node forget n7 --config c.toml                  shows what would be lost
  drivebay-controller node forget n7 --config c.toml --confirm n7     forgets it
  drivebay-controller node forget n7 --print                          the entry, for a ConfigMap

Every replica of the controller needs the entry, and applies it when its config has changed.")]
    Forget(ForgetArgs),
    /// Undo `node forget`
    ///
    /// Removes the node from the controller's config. Volumes that were deleted meanwhile stay deleted.
    #[command(after_help = "\
Examples:
  drivebay-controller node remember n7 --config c.toml")]
    Remember(RememberArgs),
}

/// Options of `node show`.
#[derive(Debug, Args)]
pub struct ShowNodeArgs {
    /// Its name
    #[arg(value_name = "NODE")]
    pub node: String,
    /// Output format; JSON and YAML have stable field names and sizes in bytes
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    pub output: Format,
    /// Socket of the controller to query.
    #[command(flatten)]
    pub socket: SocketArg,
}

/// Option that locates the controller.
#[derive(Debug, Args)]
pub struct SocketArg {
    /// The controller's socket for its command line
    #[arg(long, value_name = "PATH", env = "DRIVEBAY_CONTROLLER_SOCKET", default_value = DEFAULT_SOCKET)]
    pub socket: PathBuf,
}

/// Output options of commands that query the controller.
#[derive(Debug, Args)]
pub struct Show {
    /// Output format; JSON and YAML have stable field names and sizes in bytes
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    pub output: Format,
    /// Only this node; may be repeated
    #[arg(long = "node", value_name = "NODE")]
    pub nodes: Vec<String>,
    /// Socket of the controller to query.
    #[command(flatten)]
    pub socket: SocketArg,
}

/// Options of a list of all nodes.
#[derive(Debug, Args)]
pub struct ShowList {
    /// Output format of the list.
    #[command(flatten)]
    pub list: ListArgs,
    /// Poll interval of `--watch`.
    #[command(flatten)]
    pub watch: WatchArg,
    /// Only this node; may be repeated
    #[arg(long = "node", value_name = "NODE")]
    pub nodes: Vec<String>,
    /// Socket of the controller to query.
    #[command(flatten)]
    pub socket: SocketArg,
}

/// Options of `nodes`.
#[derive(Debug, Args)]
pub struct NodesArgs {
    /// Output, nodes and socket.
    #[command(flatten)]
    pub show: ShowList,
    /// Only nodes in this state
    #[arg(long, value_enum)]
    pub state: Option<NodeState>,
}

/// State of a node, as the controller reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum NodeState {
    /// Its agent is connected
    Connected,
    /// Its agent is connected and still scanning its drives
    Starting,
    /// Its agent is disconnected
    Away,
    /// It will not return
    Forgotten,
}

impl NodeState {
    /// As the controller says it.
    pub fn word(self) -> words::NodeState {
        match self {
            Self::Connected => words::NodeState::Connected,
            Self::Starting => words::NodeState::Starting,
            Self::Away => words::NodeState::Away,
            Self::Forgotten => words::NodeState::Forgotten,
        }
    }
}

/// Options of `drives`.
#[derive(Debug, Args)]
pub struct DrivesArgs {
    /// Only these, by name or unique prefix
    #[arg(value_name = "DRIVE")]
    pub names: Vec<String>,
    /// Output, nodes and socket.
    #[command(flatten)]
    pub show: ShowList,
    /// Include virtual devices and partitions (loop, ram, dm, ...)
    #[arg(long)]
    pub all: bool,
    /// Only drives of this class
    #[arg(long, value_name = "CLASS")]
    pub class: Option<String>,
    /// Only drives that `drivebay-controller health` reports
    #[arg(long, alias = "trouble")]
    pub abnormal: bool,
    /// Sort by this instead of by node and kernel name; with --watch, by health
    #[arg(long, value_enum, value_name = "BY")]
    pub sort: Option<DriveSort>,
}

/// Options of `volumes`.
#[derive(Debug, Args)]
pub struct VolumesArgs {
    /// Only these, by name or unique prefix
    #[arg(value_name = "VOLUME")]
    pub names: Vec<String>,
    /// Output, nodes and socket.
    #[command(flatten)]
    pub show: ShowList,
    /// Only volumes of this class of drives
    #[arg(long, value_name = "CLASS")]
    pub class: Option<String>,
    /// Only volumes on this drive, by its identity
    #[arg(long, value_name = "DRIVE")]
    pub drive: Option<String>,
    /// Only volumes with an abnormal condition
    #[arg(long)]
    pub abnormal: bool,
    /// Sort by this instead of by id; with --watch, by condition
    #[arg(long, value_name = "BY", value_parser = sort_without_usage())]
    pub sort: Option<VolumeSort>,
    /// Include deleted volumes: being erased, or quarantined
    #[arg(long)]
    pub deleted: bool,
    /// Only volumes without a PersistentVolume. PVS is a file with the output of `kubectl get pv -o json`, or - for
    /// standard input; without it, those that have had none for ten minutes (needs run --kubernetes)
    #[arg(long, value_name = "PVS", conflicts_with_all = ["deleted", "names"], num_args = 0..=1)]
    pub unclaimed: Option<Option<PathBuf>>,
}

/// Options of `snapshots`.
#[derive(Debug, Args)]
pub struct SnapshotsArgs {
    /// Only snapshots of these volumes, by name or unique prefix
    #[arg(value_name = "VOLUME")]
    pub names: Vec<String>,
    /// Output, nodes and socket.
    #[command(flatten)]
    pub show: ShowList,
}

/// Parses the sort order of volumes of all nodes. Refuses an order by usage, which only each node's own agent measures.
fn sort_without_usage() -> impl TypedValueParser<Value = VolumeSort> {
    let values = VolumeSort::value_variants()
        .iter()
        .filter(|by| !matches!(by, VolumeSort::Used | VolumeSort::Full))
        .filter_map(ValueEnum::to_possible_value);
    PossibleValuesParser::new(values).try_map(|word| VolumeSort::from_str(&word, false))
}

/// Options of `volume pv`.
#[derive(Debug, Args)]
pub struct PvArgs {
    /// Id, another name, or a unique prefix; also an id of the node that its drive was moved from
    #[arg(value_name = "ID")]
    pub id: String,
    /// For whom.
    #[command(flatten)]
    pub claim: PvClaimArgs,
    /// Socket of the controller to query.
    #[command(flatten)]
    pub socket: SocketArg,
}

/// Options of `node forget`.
#[derive(Debug, Args)]
pub struct ForgetArgs {
    /// The node
    #[arg(value_name = "NAME", value_parser = node_id)]
    pub node: String,
    /// The controller's config, which is changed
    #[arg(long, value_name = "FILE", required_unless_present = "print")]
    pub config: Option<PathBuf>,
    /// The node's name, again
    #[arg(long, value_name = "NAME")]
    pub confirm: Option<String>,
    /// Print the entry; change nothing
    #[arg(long, conflicts_with_all = ["config", "confirm"])]
    pub print: bool,
    /// Socket of the controller to query.
    #[command(flatten)]
    pub socket: SocketArg,
}

/// Options of `node remember`.
#[derive(Debug, Args)]
pub struct RememberArgs {
    /// The node
    #[arg(value_name = "NAME", value_parser = node_id)]
    pub node: String,
    /// The controller's config, which is changed
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
}

fn node_id(text: &str) -> Result<String, &'static str> {
    if is_node_id(text) {
        Ok(text.to_owned())
    } else {
        Err("not a node id: 1 to 63 letters, digits, '-', '_' and '.'")
    }
}
