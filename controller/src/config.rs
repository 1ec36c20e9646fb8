//! Command line of `drivebay-controller`, and the options that the agent shares.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Parser, Subcommand};
use drivebay_proto::names;

use crate::{
    cli::{self, args::DEFAULT_SOCKET},
    listen::ListenAddress,
    logging::LogFormat,
    metrics::Listen,
    tls::TlsFiles,
};
use drivebay_csi::{HealthApi, validate};
use drivebay_page::PageListen;
use drivebay_service::{agents::AWAY_GRACE, tokens::Expected};
use drivebay_view::kube::{ClaimRef, NameError, claim_ref};

/// Default of `--metrics`: an address that other machines cannot reach.
pub const DEFAULT_METRICS: &str = "127.0.0.1:9811";

/// `drivebay-controller`.
#[derive(Debug, Parser)]
#[command(
    version = drivebay_common::VERSION,
    about = "Drivebay's CSI Controller service",
    long_about = "Drivebay's CSI Controller service: answers external-provisioner, external-resizer and \
external-health-monitor from what the agents report, and has the agents create, expand and delete volumes. \
Volumes are recorded on their drives; a state directory keeps what was last known of the nodes.",
    after_help = drivebay_common::cli::exit_codes(&[]),
    max_term_width = 110,
    arg_required_else_help = true
)]
pub struct Cli {
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// Commands of `drivebay-controller`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve CSI Identity and Controller on a unix socket, with the agents that connect
    #[command(after_help = "Examples:\n  \
drivebay-controller run --csi-socket /csi/csi.sock --listen 0.0.0.0:9443 \\\n      \
--ca ca.pem --cert controller.pem --key controller-key.pem --state-dir /var/lib/drivebay-controller\n  \
drivebay-controller run --csi-socket /csi/csi.sock --listen unix:/run/drivebay-controller/agents.sock\n  \
drivebay-controller run --csi-socket /csi/csi.sock --agent-socket /run/drivebay/agent.sock\n\n\
Certificates are made by `drivebay-controller certs`, or by cert-manager; the files are read again when they \
change.\n\n\
The log filter is set by RUST_LOG, e.g. RUST_LOG=debug, and changed by `drivebay-controller log-level`. On SIGTERM and SIGINT, running \
calls have ten seconds to finish; agents finish what they have begun.")]
    Run(Box<RunOptions>),
    /// Create the certificates for TLS between controller and agents
    #[cfg(feature = "certs")]
    #[command(subcommand)]
    Certs(Certs),
    /// Ask a running controller
    #[command(flatten)]
    Client(cli::ClientCommand),
}

/// Commands that create certificates, by where these are stored.
#[cfg(feature = "certs")]
#[derive(Debug, Subcommand)]
pub enum Certs {
    /// In files
    #[command(flatten)]
    Files(drivebay_certs::args::CertsCommand),
    /// Make the certificates of the Kubernetes cluster that this pod is in, unless its Secrets have them
    #[cfg(feature = "kubernetes")]
    #[command(
        after_help = "The chart's init container runs it (certificates.source: generated). What the Secrets hold is \
kept for as long as agents accept it, however many pods start at once. To replace them, delete the Secrets and restart the \
controllers' pods."
    )]
    Kubernetes(drivebay_certs::args::KubernetesArgs),
}

/// Options of `run`.
#[derive(Debug, Clone, clap::Args)]
pub struct RunOptions {
    /// Socket to serve CSI on, for the sidecars; created with mode 0600. A leading unix:// is
    /// removed. Default: the environment's CSI_ENDPOINT
    #[arg(long, value_name = "PATH")]
    pub csi_socket: Option<String>,
    /// Where agents connect: an address, with certificates; or, on a single machine, a unix socket without certificates, created
    /// with mode 0600: only root and the controller's user can connect
    #[arg(long, value_name = "ADDRESS:PORT|unix:PATH")]
    pub listen: Option<ListenAddress>,
    /// Certificates of the CAs whose agents are accepted (PEM)
    #[arg(long, value_name = "FILE", requires = "listen", requires = "cert")]
    pub ca: Option<PathBuf>,
    /// This controller's certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "key")]
    pub cert: Option<PathBuf>,
    /// Its key (PEM)
    #[arg(long, value_name = "FILE", requires = "ca")]
    pub key: Option<PathBuf>,
    /// Follow PersistentVolumes and CSINodes in the cluster's API server, so that volumes of an absent node are listed after a
    /// restart, and write events there. Only in a pod
    #[arg(long, requires = "listen")]
    pub kubernetes: bool,
    /// Which drives the API server has objects of, for `kubectl get drives`: all; findings: those with something to report; or none
    #[arg(
        long,
        value_name = "WHICH",
        value_enum,
        default_value_t,
        requires = "kubernetes"
    )]
    pub drive_objects: DriveObjects,
    /// Carry out the DriveTasks of the cluster's API server. Who may request what is decided by an admission policy of the cluster
    #[arg(long, requires = "kubernetes")]
    pub drive_tasks: bool,
    /// Largest number of nodes on which volumes may move at one time when a DriveTask begins an evacuation
    #[arg(long, value_name = "NODES", default_value_t = 4, requires = "drive_tasks", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub max_evacuations: u16,
    /// Have the cluster's API server review agents' tokens: the ServiceAccount that agents run as. Only in a pod
    #[arg(
        long,
        value_name = "NAMESPACE/NAME",
        requires = "ca",
        value_parser = service_account
    )]
    pub agent_service_account: Option<String>,
    /// Number of controllers, if agents reach all of them under one virtual address
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
    pub replicas: u32,
    /// How long a node whose agent is disconnected counts as restarting; afterwards its volumes are reported as unreachable and
    /// new ones are placed elsewhere
    #[arg(long, value_name = "SECONDS", default_value_t = AWAY_GRACE.as_secs(), value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub away_grace: u64,
    /// Socket of the only agent, instead of --listen (`socket` under `[agent]` in its config)
    #[arg(
        long,
        value_name = "PATH",
        required_unless_present = "listen",
        conflicts_with = "listen"
    )]
    pub agent_socket: Option<PathBuf>,
    /// Directory for what was last known of the nodes, so that a disconnected one is still listed after a restart.
    /// Deleting it loses no data
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// File to which every request is appended, with its caller and whether it was allowed, as one JSON object per line; - for standard output
    #[arg(long, value_name = "FILE")]
    pub audit_log: Option<PathBuf>,
    /// Socket for this program's other commands; created with mode 0600
    #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET)]
    pub socket: PathBuf,
    /// Where /metrics, /healthz and /readyz are served over HTTP: an address, a path of a unix socket, or off. Whoever
    /// can connect can read names of nodes, and change nothing
    #[arg(long, value_name = "ADDRESS:PORT|PATH|off", default_value = DEFAULT_METRICS)]
    pub metrics: Listen,
    /// Where only /healthz and /readyz are served over HTTP, for an orchestrator's probes. /healthz returns 503
    /// while the CSI socket does not answer, /readyz until calls can be served
    #[arg(long, value_name = "ADDRESS:PORT|PATH|off", default_value = "off")]
    pub probes: Listen,
    /// Where the page for people is served over HTTP, read-only: a loopback address, a path of a unix socket, or off. With
    /// --kubernetes, readers need a token of audience drivebay, and come through kubectl port-forward; without, whoever can connect
    /// can read
    #[arg(long, value_name = "ADDRESS:PORT|PATH|off", default_value_t)]
    pub page: PageListen,
    /// Config file with the forgotten nodes (see `node forget`). Read again when it changes
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// CSI driver name; the same as the agents', and the provisioner of StorageClasses
    #[arg(long, value_name = "NAME", default_value = names::DRIVER_NAME, value_parser = parse_driver_name)]
    pub driver_name: String,
    /// Format of log lines (on stderr)
    #[arg(long, value_enum, default_value_t)]
    pub log_format: LogFormat,
    /// Which volume-health API to advertise
    #[arg(long, value_name = "API", value_enum, default_value_t)]
    pub health_api: HealthApi,
    /// Advertise ControllerPublishVolume, for external-attacher's real handler. Not needed with
    /// attachRequired: false in the CSIDriver object
    #[arg(long)]
    pub attach: bool,
}

/// Value of --drive-objects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum DriveObjects {
    All,
    Findings,
    /// Not "off", which YAML takes for a boolean.
    #[default]
    #[value(name = "none", help = "")]
    Off,
}

// Returns the ServiceAccount as a user name of the API server.
fn service_account(text: &str) -> Result<String, NameError> {
    let ClaimRef { namespace, name } = claim_ref(text).map_err(|_| NameError::ServiceAccount)?;
    Ok(Expected::user(&namespace, &name))
}

fn parse_driver_name(name: &str) -> Result<String, validate::InvalidRequest> {
    validate::driver_name(name).map(str::to_owned)
}

/// The command line's options cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ConfigError {
    /// Neither --csi-socket nor CSI_ENDPOINT is set.
    #[error("no socket to serve on: give --csi-socket PATH, or set CSI_ENDPOINT=unix:///PATH")]
    NoSocket,
    /// Neither --listen nor --agent-socket is given.
    #[error(
        "give --listen, where agents dial in, or --agent-socket, that of the one agent there is"
    )]
    NoAgents,
    /// --listen with an address, but without certificates.
    #[error(
        "--listen ADDRESS:PORT needs --ca, --cert and --key (see `drivebay-controller certs`); on one machine --listen unix:PATH needs none"
    )]
    NoCertificates,
    /// --listen with a unix socket, and certificates.
    #[error(
        "--listen unix:PATH takes no certificates and no tokens: leave out --ca, --cert, --key and --agent-service-account, or listen on ADDRESS:PORT"
    )]
    CertificatesOnSocket,
    /// --metrics and --probes have the same address.
    #[error(
        "--probes and --metrics are both {listen}; --metrics serves /healthz and /readyz, too: leave --probes out, or give another address"
    )]
    SameAddress {
        /// Value of both options; never `off`.
        listen: Listen,
    },
    /// The CSI socket is not a path of a unix socket.
    #[error("{given:?} is not a path of a unix socket: give a path, with or without unix://")]
    NotAPath {
        /// Value of the option or of CSI_ENDPOINT.
        given: String,
    },
}

/// Address on which agents connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entrance {
    /// With mutual TLS, or with TLS and tokens.
    Tcp(SocketAddr, TlsFiles),
    /// Without certificates, on one machine.
    Unix(PathBuf),
}

impl RunOptions {
    /// Returns the address on which agents connect; None with --agent-socket.
    ///
    /// # Errors
    /// Certificates are missing for an address, or given for a unix socket.
    pub fn entrance(&self) -> Result<Option<Entrance>, ConfigError> {
        let files = match (&self.ca, &self.cert, &self.key) {
            (Some(ca), Some(cert), Some(key)) => Some(TlsFiles {
                ca: ca.clone(),
                cert: cert.clone(),
                key: key.clone(),
            }),
            _ => None,
        };
        match (&self.listen, files) {
            (None, _) => Ok(None),
            (Some(ListenAddress::Unix(path)), None) => Ok(Some(Entrance::Unix(path.clone()))),
            (Some(ListenAddress::Unix(_)), Some(_)) => Err(ConfigError::CertificatesOnSocket),
            (Some(ListenAddress::Tcp(address)), Some(files)) => {
                Ok(Some(Entrance::Tcp(*address, files)))
            }
            (Some(ListenAddress::Tcp(_)), None) => Err(ConfigError::NoCertificates),
        }
    }

    /// Returns for how long a node whose agent is disconnected counts as restarting.
    pub fn away_grace(&self) -> Duration {
        Duration::from_secs(self.away_grace)
    }

    /// Fails if metrics and probes have the same address.
    pub fn check_http(&self) -> Result<(), ConfigError> {
        if self.probes != Listen::Off && self.probes == self.metrics {
            return Err(ConfigError::SameAddress {
                listen: self.probes.clone(),
            });
        }
        Ok(())
    }

    /// Returns the path of the CSI socket, from the option or else from CSI_ENDPOINT's value.
    pub fn csi_path(&self, csi_endpoint: Option<String>) -> Result<PathBuf, ConfigError> {
        let given = self
            .csi_socket
            .clone()
            .or(csi_endpoint)
            .filter(|text| !text.is_empty())
            .ok_or(ConfigError::NoSocket)?;
        let path = given.strip_prefix("unix://").unwrap_or(&given);
        if path.is_empty() || path.contains("://") {
            return Err(ConfigError::NotAPath { given });
        }
        Ok(PathBuf::from(path))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use clap::{CommandFactory, ValueEnum};

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_health_api_has_its_word() {
        for (word, api) in [
            ("legacy", HealthApi::Legacy),
            ("v1.13", HealthApi::V1_13),
            ("both", HealthApi::Both),
            ("none", HealthApi::None),
        ] {
            assert_eq!(HealthApi::from_str(word, false), Ok(api));
        }
    }

    #[test]
    fn the_socket_comes_from_the_option_or_from_csi_endpoint() {
        let options = |socket: &[&str]| {
            let mut args = vec!["drivebay-controller", "run", "--agent-socket", "/a"];
            args.extend(socket);
            match Cli::try_parse_from(args).unwrap().command {
                Command::Run(options) => options,
                other => panic!("{other:?}"),
            }
        };
        let path =
            |socket: &[&str], env: Option<&str>| options(socket).csi_path(env.map(str::to_owned));
        assert_eq!(path(&["--csi-socket", "/x"], None), Ok("/x".into()));
        assert_eq!(
            path(&["--csi-socket", "unix:///x"], Some("/y")),
            Ok("/x".into())
        );
        assert_eq!(path(&[], Some("unix:///y")), Ok("/y".into()));
        assert_eq!(path(&[], None), Err(ConfigError::NoSocket));
        assert!(matches!(
            path(&[], Some("tcp://h:1")),
            Err(ConfigError::NotAPath { .. })
        ));
    }

    #[test]
    fn agents_dial_an_address_with_certificates_or_a_socket_without() {
        let entrance = |args: &[&str]| {
            let line = ["drivebay-controller", "run"].iter().chain(args);
            let cli = Cli::try_parse_from(line).map_err(|error| error.to_string())?;
            match cli.command {
                Command::Run(options) => options.entrance().map_err(|error| error.to_string()),
                other => panic!("{other:?}"),
            }
        };
        let files = ["--ca", "/a", "--cert", "/b", "--key", "/c"];
        let tcp = ["--listen", "127.0.0.1:9443"];
        let unix = ["--listen", "unix:/run/a.sock"];
        assert_eq!(
            entrance(&unix),
            Ok(Some(Entrance::Unix("/run/a.sock".into())))
        );
        assert!(matches!(
            entrance(&[&tcp[..], &files].concat()),
            Ok(Some(Entrance::Tcp(..)))
        ));
        assert_eq!(entrance(&["--agent-socket", "/a"]), Ok(None));
        for (args, part) in [
            (tcp.to_vec(), "--listen unix:PATH needs none"),
            (
                [&unix[..], &files].concat(),
                "takes no certificates and no tokens",
            ),
        ] {
            let message = entrance(&args).unwrap_err();
            assert!(message.contains(part), "{args:?}: {message}");
        }
    }

    #[test]
    fn one_address_for_metrics_and_probes_is_refused() {
        let check = |http: &[&str]| {
            let mut args = vec!["c", "run", "--agent-socket", "/a"];
            args.extend(http);
            match Cli::try_parse_from(args).unwrap().command {
                Command::Run(options) => options.check_http(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(check(&[]), Ok(()));
        assert_eq!(check(&["--metrics", "off", "--probes", "off"]), Ok(()));
        assert_eq!(check(&["--probes", "[::]:9808"]), Ok(()));
        assert!(check(&["--probes", DEFAULT_METRICS]).is_err());
    }

    #[test]
    fn a_driver_name_that_csi_refuses_is_refused_at_the_start() {
        for name in ["", "a", "1abc", "abc1", "a_b", &"a".repeat(64)] {
            let args = ["c", "run", "--agent-socket", "/a", "--driver-name", name];
            assert!(Cli::try_parse_from(args).is_err(), "{name}");
        }
    }
}
