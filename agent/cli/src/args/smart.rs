//! `smart`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::Format;
use drivebay_smart::collect::DeviceType;

const EXPLAIN_EXAMPLES: &str = "\
Examples:
  drivebay-agent smart explain /dev/sda
  smartctl --json -x /dev/sda | drivebay-agent smart explain -
  drivebay-agent smart explain -d megaraid,3 /dev/sda
  drivebay-agent smart explain dump.json -o json | jq -r .verdict";

/// Commands on SMART data.
#[derive(Debug, Subcommand)]
pub enum SmartCommand {
    /// Show the facts, findings and verdict of a drive, with the rule behind each
    ///
    /// Reads what `smartctl --json -x DEVICE` printed, from a file or from standard input (-), or asks a device with smartctl
    /// (as root). Several answers, one after the other or in an array, are evaluated separately: the worst verdict determines the exit
    /// code, and JSON output is an array. Needs no running agent and no config, and writes nothing. Rules about growth need an agent.
    #[command(after_help = EXPLAIN_EXAMPLES)]
    Explain(ExplainArgs),
}

/// Arguments of `smart explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// A file with smartctl's JSON, a device, or - for standard input
    #[arg(value_name = "FILE|DEVICE|-")]
    pub source: PathBuf,
    /// Device type, as for smartctl -d, such as megaraid,0 or sat
    #[arg(short, long, value_name = "TYPE", value_parser = DeviceType::parse)]
    pub device_type: Option<DeviceType>,
    /// Output format; JSON and YAML have stable field names
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    pub output: Format,
}
