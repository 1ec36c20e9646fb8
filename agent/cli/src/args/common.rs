//! Arguments of many commands: the agent's socket, the configuration, and the output format.

use std::path::PathBuf;

use clap::Args;

use super::Format;
use drivebay_config::{DEFAULT_AGENT_SOCKET, DEFAULT_PATH};

/// A drive or volume to show, and the output options.
#[derive(Debug, Args)]
pub struct ShowOne {
    /// A drive's identity, kernel name, link below /dev/disk/by-id or serial number; a volume's name, uuid, id,
    /// PersistentVolume, claim or device; or a unique prefix
    #[arg(value_name = "ID")]
    pub id: String,
    #[command(flatten)]
    pub show: Show,
}

/// Path of the configuration.
#[derive(Debug, Args)]
pub struct ConfigArg {
    /// The config file (TOML)
    #[arg(long, value_name = "FILE", default_value = DEFAULT_PATH)]
    pub config: PathBuf,
}

/// Path of the running agent's socket.
#[derive(Debug, Args)]
pub struct SocketArg {
    /// The agent's socket (`socket` under `[agent]` in its config)
    #[arg(long, value_name = "PATH", env = "DRIVEBAY_SOCKET", default_value = DEFAULT_AGENT_SOCKET)]
    pub socket: PathBuf,
}

/// Output format, and the agent whose inventory is shown.
#[derive(Debug, Args)]
pub struct Show {
    /// Output format; JSON and YAML have stable field names and sizes in bytes
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    pub output: Format,
    #[command(flatten)]
    pub socket: SocketArg,
}
