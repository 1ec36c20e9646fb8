//! Options of commands for one drive. `A`: options that locate the program.

use clap::Args;

/// Which drive, and who decides.
#[derive(Debug, Args)]
pub struct DecisionArgs<A: Args> {
    /// Identity, kernel name (sdb), serial number, or on its node a link below /dev/disk/by-id; no prefix
    pub drive: String,
    /// Operator, for the record; required where the environment has no user name, as in kubectl exec
    #[arg(long, value_name = "NAME")]
    pub by: Option<String>,
    #[command(flatten)]
    pub at: A,
}

/// Options of `drive cordon`.
#[derive(Debug, Args)]
pub struct CordonArgs<A: Args> {
    #[command(flatten)]
    pub of: UncordonArgs<A>,
    /// Reason, shown with the drive
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub reason: String,
}

/// Options of `drive uncordon`.
#[derive(Debug, Args)]
pub struct UncordonArgs<A: Args> {
    #[command(flatten)]
    pub of: DecisionArgs<A>,
    /// Show what would change, and change nothing
    #[arg(long)]
    pub plan: bool,
}
