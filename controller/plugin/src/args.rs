//! Arguments of `kubectl drivebay`.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use drivebay_view::args::{Format, Light, ListArgs};

/// The codes of the programs' own commands, as far as they occur.
const EXIT_CODES: &str = "Exit codes:
  0    done; nothing is wrong
  1    failed or refused, or something is wrong; the message says what and what to do
  2    wrong usage, an ambiguous name, or a confirmation is missing; nothing was done
  3    the API server is not reachable
  4    the API server denies permission
  5    health: no drive has an object, so nothing is known
  6    there is no drive, volume or node of this name
  7    health: nothing is known to be wrong, but drives have not been polled since their agent started
  8    the task waits, for example for pods that use the volumes or for a controller; it goes on without the command
  130  ended by Ctrl-C while it waited; the task goes on";

/// Shows drives, volumes and problems of a cluster, and requests operations on its drives.
///
/// Everything is read from objects of the cluster (`kubectl get drives`), and each operation is an object (DriveTask), which needs a
/// right of its own. DRIVE is the name of a drive's object, its identity, serial number, or NODE:DEVICE; lists also take a prefix.
#[derive(Debug, Parser)]
#[command(name = "kubectl-drivebay", bin_name = "kubectl drivebay", version, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) access: AccessArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Args)]
pub(crate) struct AccessArgs {
    /// Context of the kubeconfig; by default the current one
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// Kubeconfig; by default that of KUBECONFIG or ~/.kube/config
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List drives
    Drives(DrivesArgs),
    /// List nodes with their drives, space and problems
    Nodes(NodesArgs),
    /// List volumes with their claims and drives
    Volumes(VolumesArgs),
    /// List volume snapshots
    Snapshots(NodesArgs),
    /// Show what is wrong, worst first. The exit code is 1 if something is
    Health(HealthArgs),
    #[command(flatten)]
    Order(OrderCommand),
    /// List the requested operations (DriveTasks)
    Tasks(NodesArgs),
    /// Open the page: forwards a port to the controller until Ctrl-C
    Ui(UiArgs),
}

/// Operations on drives.
#[derive(Debug, Subcommand)]
pub(crate) enum OrderCommand {
    /// Put no new volumes on a drive
    Cordon(CordonArgs),
    /// Put new volumes on a drive again
    Uncordon(OrderArgs),
    /// Move volumes of a drive to other drives of its node
    Evacuate(EvacuateArgs),
    /// Move all volumes of a drive to one other drive of its node
    Replace(ReplaceArgs),
    /// Switch the light of a drive's bay
    Locate(LocateArgs),
    /// Silence the findings of a drive until they get worse; its verdict stays
    Acknowledge(AcknowledgeArgs),
}

#[derive(Debug, Args)]
pub(crate) struct DrivesArgs {
    /// Only these drives
    #[arg(value_name = "DRIVE")]
    pub(crate) names: Vec<String>,
    /// Only drives of these nodes
    #[arg(long = "node", value_name = "NODE")]
    pub(crate) nodes: Vec<String>,
    /// Only drives with a problem
    #[arg(long)]
    pub(crate) abnormal: bool,
    #[command(flatten)]
    pub(crate) list: ListArgs,
}

#[derive(Debug, Args)]
pub(crate) struct NodesArgs {
    /// Only these nodes
    #[arg(long = "node", value_name = "NODE")]
    pub(crate) nodes: Vec<String>,
    #[command(flatten)]
    pub(crate) list: ListArgs,
}

#[derive(Debug, Args)]
pub(crate) struct VolumesArgs {
    /// Only volumes of claims of this namespace
    #[arg(short, long, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,
    #[command(flatten)]
    pub(crate) of: NodesArgs,
}

#[derive(Debug, Args)]
pub(crate) struct HealthArgs {
    /// Only these nodes
    #[arg(long = "node", value_name = "NODE")]
    pub(crate) nodes: Vec<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value = "table")]
    pub(crate) output: Format,
}

#[derive(Debug, Args)]
pub(crate) struct OrderArgs {
    /// Name of its object, identity, serial number, or NODE:DEVICE
    pub(crate) drive: String,
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
}

#[derive(Debug, Args)]
pub(crate) struct WaitArgs {
    /// Print the name of the created task and do not wait for its end
    #[arg(long)]
    pub(crate) no_wait: bool,
    /// Print the task as YAML, for kubectl create, and create nothing. It is refused an hour after it was printed
    #[arg(long, conflicts_with = "no_wait")]
    pub(crate) print: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CordonArgs {
    /// Recorded on the drive
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) reason: String,
    #[command(flatten)]
    pub(crate) of: OrderArgs,
}

#[derive(Debug, Args)]
pub(crate) struct EvacuateArgs {
    #[command(flatten)]
    pub(crate) of: OrderArgs,
    /// Drives that receive the volumes; by default those where the class would put new volumes
    #[arg(long, value_name = "DRIVE")]
    pub(crate) to: Vec<String>,
    /// Only these volumes
    #[arg(long = "volume", value_name = "NAME")]
    pub(crate) volumes: Vec<String>,
    /// A pod that starts waits until its volume has moved
    #[arg(long)]
    pub(crate) hold: bool,
    /// Unreadable sectors with data stop the move of their volume; by default they read as errors on the other drive, too
    #[arg(long)]
    pub(crate) abort_on_error: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ReplaceArgs {
    /// Drive whose volumes move
    pub(crate) old: String,
    /// Drive that receives them
    pub(crate) new: String,
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
}

#[derive(Debug, Args)]
pub(crate) struct LocateArgs {
    /// Name of its object, identity, serial number, or NODE:DEVICE
    pub(crate) drive: String,
    /// State of the light
    #[arg(value_enum)]
    pub(crate) light: Light,
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
}

#[derive(Debug, Args)]
pub(crate) struct AcknowledgeArgs {
    #[command(flatten)]
    pub(crate) of: OrderArgs,
    /// Kept with the drive's history
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) note: String,
    /// End of the acknowledgement, RFC 3339 such as 2030-12-31T00:00:00Z; by default it holds until the findings get worse
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<String>,
    /// The drive takes new volumes all the same
    #[arg(long = "use")]
    pub(crate) use_drive: bool,
    /// The drive's identity, spelled out. A BAD drive needs it
    #[arg(long, value_name = "IDENTITY")]
    pub(crate) confirm: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct UiArgs {
    /// Namespace of the controller
    #[arg(short, long, value_name = "NAMESPACE", default_value = "drivebay")]
    pub(crate) namespace: String,
    /// Deployment of the controller
    #[arg(long, value_name = "NAME", default_value = "drivebay-controller")]
    pub(crate) deployment: String,
    /// Port at this end, and at the other end as PORT:PORT
    #[arg(long, value_name = "PORT", default_value = "9813")]
    pub(crate) port: String,
}
