//! Command line of `drivebay-controller certs`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use drivebay_proto::volume_id::is_node_id;

use super::names::Name;

/// Commands that create or renew certificates in files.
#[derive(Debug, Clone, Subcommand)]
pub enum CertsCommand {
    /// Create the CA, and the controller's certificate
    #[command(after_help = "Example:\n  \
drivebay-controller certs init --dir /root/drivebay-ca --name drivebay.example.com\n\n\
Where the CA is there already, only the controller's certificate is made. Nothing is overwritten. \
Certificates are valid from an hour ago, for hosts whose clocks differ.")]
    Init(InitArgs),
    /// Create or renew a node's certificate
    #[command(after_help = "Examples:\n  \
drivebay-controller certs node node-7 --dir /root/drivebay-ca\n  \
drivebay-controller certs node node-7 --dir /root/drivebay-ca --renew\n\n\
Copy the directory that it makes to the node, keeping modes. A running agent notices renewed files by itself.")]
    Node(NodeArgs),
    /// Create or renew the controller's certificate
    #[command(after_help = "Examples:\n  \
drivebay-controller certs controller --dir /root/drivebay-ca --renew\n  \
drivebay-controller certs controller --dir /root/drivebay-ca --renew --name drivebay.example.com --name 10.0.0.7\n\n\
A running controller notices renewed files by itself.")]
    Controller(ControllerArgs),
}

/// Options of `certs init`.
#[derive(Debug, Clone, Args)]
pub struct InitArgs {
    /// Directory of the CA; created with mode 0700
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
    /// DNS name or IP address by which agents connect to the controller; may be repeated. Default:
    /// drivebay-controller, the same in namespace drivebay (also with .svc and .svc.cluster.local),
    /// localhost, 127.0.0.1 and ::1
    #[arg(long = "name", value_name = "DNS-OR-IP")]
    pub names: Vec<Name>,
    /// Validity of the controller's certificate
    #[arg(long, value_name = "DAYS", default_value_t = LEAF_DAYS, value_parser = clap::value_parser!(u32).range(1..=MAX_DAYS))]
    pub days: u32,
    /// Validity of the CA; after that, every certificate has to be created again
    #[arg(long, value_name = "DAYS", default_value_t = CA_DAYS, value_parser = clap::value_parser!(u32).range(1..=MAX_DAYS))]
    pub ca_days: u32,
}

/// Options of `certs node`.
#[derive(Debug, Clone, Args)]
pub struct NodeArgs {
    /// The node's id, as its agent has it: 1 to 63 letters, digits, '-', '_' and '.'
    #[arg(value_name = "NODE_ID", value_parser = parse_node_id)]
    pub name: String,
    /// Directory of the CA
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
    /// Directory for ca.pem, node.pem and node-key.pem. Default: nodes/NODE_ID in the CA's directory
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Validity, at most that of the CA
    #[arg(long, value_name = "DAYS", default_value_t = LEAF_DAYS, value_parser = clap::value_parser!(u32).range(1..=MAX_DAYS))]
    pub days: u32,
    /// Replace certificate and key. The former certificate stays valid until it expires
    #[arg(long)]
    pub renew: bool,
}

/// Options of `certs controller`.
#[derive(Debug, Clone, Args)]
pub struct ControllerArgs {
    /// Directory of the CA
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
    /// DNS name or IP address by which agents connect to the controller; may be repeated. Default: the names
    /// of the certificate to be renewed, else those of `certs init`
    #[arg(long = "name", value_name = "DNS-OR-IP")]
    pub names: Vec<Name>,
    /// Validity, at most that of the CA
    #[arg(long, value_name = "DAYS", default_value_t = LEAF_DAYS, value_parser = clap::value_parser!(u32).range(1..=MAX_DAYS))]
    pub days: u32,
    /// Replace certificate and key. The former certificate stays valid until it expires
    #[arg(long)]
    pub renew: bool,
}

/// Options of `certs kubernetes`.
#[derive(Debug, Clone, Args)]
pub struct KubernetesArgs {
    /// Secret for the controller's certificate and key, and its CA's certificate
    #[arg(long, value_name = "NAME")]
    pub secret: String,
    /// Secret of the CA with which agents' pods sign their certificates
    #[arg(long, value_name = "NAME")]
    pub nodes_ca_secret: String,
    /// ConfigMap for the CA's certificate, for agents that prove themselves by tokens. The CA's key is kept nowhere then,
    /// and a CA that is in --nodes-ca-secret is replaced
    #[arg(long, value_name = "NAME")]
    pub ca_config_map: Option<String>,
    /// DNS name or IP address by which agents dial the controller; may be repeated. A certificate that is not for the first
    /// one is replaced
    #[arg(long = "name", value_name = "DNS-OR-IP", required = true)]
    pub names: Vec<Name>,
    /// For how long what is made is valid
    #[arg(long, value_name = "DAYS", default_value_t = CA_DAYS, value_parser = clap::value_parser!(u32).range(1..MAX_DAYS))]
    pub days: u32,
    /// Directory for ca.crt, tls.crt and tls.key of the controller
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
}

/// Default validity of a controller's or node's certificate, days.
const LEAF_DAYS: u32 = 365;
/// Default validity of a CA, days: longer than hosts are in use, since replacing a CA takes two changes on each of them.
const CA_DAYS: u32 = 3650;
/// Longest validity, days: a hundred years, well before the last date that a certificate can hold.
const MAX_DAYS: i64 = 36_500;

fn parse_node_id(text: &str) -> Result<String, &'static str> {
    if is_node_id(text) {
        Ok(text.to_owned())
    } else {
        Err(
            "a node id has 1 to 63 letters, digits, '-', '_' and '.', and begins and ends with a letter or digit",
        )
    }
}
