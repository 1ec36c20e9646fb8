//! From what is written to what is meant: defaults, ranges, and how keys fit together. Pure.
//!
//! Every mistake is found in one pass: a value that cannot be used is noted and its default goes on,
//! so that the checks behind it still run.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use drivebay_common::metrics::listen::{Listen, NoListen};
use drivebay_proto::{names, volume_id::is_node_id};

use super::{
    Checked, Config, checks, classes, controller, health,
    node_id::node_id_from_hostname,
    raw::Raw,
    section::{At, Problem},
    units::{parse_duration, parse_size},
};
use crate::{model::MIB, sys::statefile};

/// sockaddr_un holds 108 bytes with its final NUL.
const MAX_SOCKET_PATH: usize = 107;
/// The CSI specification's limit for a driver name.
const MAX_DRIVER_NAME: usize = 63;
/// Where metrics are served when nobody says otherwise: to this machine only.
const METRICS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9810);
/// Characters of a cluster name: it must fit into every label it is written to.
const MAX_CLUSTER: usize = 63;

/// What the checks need to know of the machine.
#[derive(Debug, Clone)]
pub struct HostFacts {
    /// Its host name.
    pub hostname: String,
    /// Directories that exist, of those that defaults depend on.
    pub has_dir: fn(&Path) -> bool,
}

impl HostFacts {
    /// This machine.
    pub fn here() -> Self {
        let hostname = nix::unistd::gethostname()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        Self {
            hostname,
            has_dir: statefile::is_dir,
        }
    }
}

/// Checks everything. `problems` are those that reading found already.
pub fn check(raw: Raw, host: &HostFacts, problems: Vec<Problem>) -> Result<Checked, Vec<Problem>> {
    let mut notes = Notes {
        problems,
        warnings: Vec::new(),
    };
    let node_id = match &raw.node_name {
        Some(name) => {
            if !is_node_id(&name.value) {
                notes.wrong(
                    name,
                    format!(
                        "{:?} cannot be a node id: 1 to 63 letters, digits, '-', '_' or '.', beginning and ending with a letter or digit (it becomes a node label)",
                        name.value
                    ),
                );
            }
            name.value.clone()
        }
        None => node_id_from_hostname(&host.hostname),
    };
    let cluster = label_text(raw.cluster.as_ref(), "default", MAX_CLUSTER, &mut notes);
    let driver_name = driver_name(raw.driver_name.as_ref(), &mut notes);

    let kubelet_dir = path(
        raw.kubelet_dir.as_ref(),
        || "/var/lib/kubelet".into(),
        &mut notes,
    );
    let has_kubelet = (host.has_dir)(&kubelet_dir);
    let registers = raw
        .registration
        .as_ref()
        .map_or(has_kubelet, |flag| flag.value);
    let runtime_dir = path(
        raw.runtime_dir.as_ref(),
        || "/run/drivebay".into(),
        &mut notes,
    );
    let state_dir = path(
        raw.state_dir.as_ref(),
        || "/var/lib/drivebay".into(),
        &mut notes,
    );

    let csi_socket = socket(
        raw.csi_socket.as_ref(),
        "[csi] socket",
        || {
            // Who registers the socket with the kubelet does not matter: it must be where the kubelet's pods can mount it.
            if has_kubelet || registers {
                kubelet_dir
                    .join("plugins")
                    .join(&driver_name)
                    .join("csi.sock")
            } else {
                runtime_dir.join("csi.sock")
            }
        },
        &mut notes,
    );
    if let Some(at) = &raw.kubelet_dir
        && raw.csi_socket.is_none()
        && !has_kubelet
        && !registers
    {
        notes.odd(
            at,
            format!(
                "there is no such directory, so CSI is served at {}; if a kubelet comes later, set [csi] socket",
                csi_socket.display()
            ),
        );
    }
    let agent_socket = socket(
        raw.agent_socket.as_ref(),
        "[agent] socket",
        || runtime_dir.join("agent.sock"),
        &mut notes,
    );
    let kubelet_csi_socket = socket(
        raw.kubelet_csi_socket.as_ref(),
        "[kubelet] csi-socket",
        || csi_socket.clone(),
        &mut notes,
    );
    if csi_socket == agent_socket {
        notes.problems.push(Problem {
            line: raw
                .agent_socket
                .as_ref()
                .or(raw.csi_socket.as_ref())
                .map(|at| at.line),
            key: "[agent] socket".into(),
            message: format!(
                "is the CSI socket too ({}); give each its own path",
                csi_socket.display()
            ),
        });
    }
    let registration_dir = registers.then(|| kubelet_dir.join("plugins_registry"));
    if let Some(dir) = &registration_dir {
        let registration_socket = dir.join(format!("{driver_name}-reg.sock"));
        if socket_too_long(&registration_socket) {
            notes.problems.push(Problem {
                line: raw.kubelet_dir.as_ref().or(raw.driver_name.as_ref()).map(|at| at.line),
                key: "[kubelet] dir".into(),
                message: format!(
                    "the registration socket {} would have more than {MAX_SOCKET_PATH} bytes; shorten the kubelet's directory or the driver name",
                    registration_socket.display()
                ),
            });
        }
    }

    let allow_loop = raw.allow_loop.as_ref().is_some_and(|flag| flag.value);
    let rescan = duration(
        raw.rescan.as_ref(),
        "5m",
        (Duration::from_secs(10), "10s"),
        &mut notes,
    );
    let quarantine = duration(
        raw.quarantine.as_ref(),
        "24h",
        (Duration::ZERO, "0s"),
        &mut notes,
    );
    if quarantine.is_zero()
        && let Some(at) = &raw.quarantine
    {
        notes.odd(
            at,
            "a volume deleted while its drive was missing is erased as soon as the drive returns",
        );
    }
    let worker_idle = duration(
        raw.worker_idle.as_ref(),
        "1m",
        (Duration::from_secs(1), "1s"),
        &mut notes,
    );
    let erase_bytes_per_second = erase_rate(raw.erase_rate.as_ref(), &mut notes);
    let checks = checks::check(&raw.checks, &mut notes);
    let metrics = listen(
        raw.metrics_listen.as_ref(),
        Listen::Tcp(METRICS),
        &mut notes,
    );
    let probes = listen(raw.probes_listen.as_ref(), Listen::Off, &mut notes);
    if let Some(at) = &raw.probes_listen
        && probes != Listen::Off
        && probes == metrics
    {
        notes.wrong(
            at,
            format!(
                "{probes} is [metrics] listen too, which serves /healthz and /readyz as well; leave this out, or give another address"
            ),
        );
    }
    let controller = controller::check(&raw.controller, &mut notes);
    let health = health::check(&raw.smart, &raw.health, &mut notes);
    let checked_classes = classes::check(&raw.classes, allow_loop, &mut notes);

    let Notes {
        mut problems,
        mut warnings,
    } = notes;
    if problems.is_empty() {
        warnings.sort_by_key(|warning| warning.line);
        let config = Config {
            node_id,
            cluster,
            driver_name,
            csi_socket,
            agent_socket,
            kubelet_dir,
            registration_dir,
            kubelet_csi_socket,
            state_dir,
            runtime_dir,
            allow_loop,
            rescan,
            quarantine,
            erase_bytes_per_second,
            worker_idle,
            checks,
            metrics,
            probes,
            controller,
            health,
            classes: checked_classes,
        };
        Ok(Checked { config, warnings })
    } else {
        problems.sort_by_key(|problem| problem.line);
        Err(problems)
    }
}

/// What was found so far.
#[derive(Debug, Default)]
pub struct Notes {
    /// Mistakes.
    pub problems: Vec<Problem>,
    /// Oddities.
    pub warnings: Vec<Problem>,
}

impl Notes {
    /// Notes a mistake.
    pub fn wrong<T>(&mut self, at: &At<T>, message: impl Into<String>) {
        self.problems.push(Problem::at(at, message));
    }

    /// Notes an oddity.
    pub fn odd<T>(&mut self, at: &At<T>, message: impl Into<String>) {
        self.warnings.push(Problem::at(at, message));
    }

    /// Picks the meaning of a word; an unknown one is a mistake that lists what is allowed.
    pub fn choice<T: Copy>(&mut self, at: &At<String>, allowed: &[(&str, T)]) -> Option<T> {
        let found = allowed
            .iter()
            .find(|(word, _)| *word == at.value)
            .map(|(_, meaning)| *meaning);
        if found.is_none() {
            let words: Vec<&str> = allowed.iter().map(|(word, _)| *word).collect();
            let hint = super::section::closest(&at.value, &words)
                .map(|word| format!(" (did you mean {word:?}?)"))
                .unwrap_or_default();
            self.wrong(
                at,
                format!(
                    "{:?} is not known{hint}; allowed: {}",
                    at.value,
                    words.join(", ")
                ),
            );
        }
        found
    }
}

/// A text in label syntax, or its default.
fn label_text(given: Option<&At<String>>, default: &str, max: usize, notes: &mut Notes) -> String {
    let Some(at) = given else {
        return default.to_owned();
    };
    if at.value.len() > max || !is_node_id(&at.value) {
        notes.wrong(
            at,
            format!(
                "{:?} is not allowed: 1 to {max} letters, digits, '-', '_' or '.', beginning and ending with a letter or digit",
                at.value
            ),
        );
    }
    at.value.clone()
}

fn driver_name(given: Option<&At<String>>, notes: &mut Notes) -> String {
    let Some(at) = given else {
        return names::DRIVER_NAME.to_owned();
    };
    let bytes = at.value.as_bytes();
    let edges = [bytes.first(), bytes.last()];
    let good = (1..=MAX_DRIVER_NAME).contains(&bytes.len())
        && edges
            .iter()
            .all(|edge| edge.is_some_and(u8::is_ascii_lowercase))
        && bytes
            .iter()
            .all(|&b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'.'))
        && at
            .value
            .split('.')
            .all(|part| !part.is_empty() && !part.starts_with('-') && !part.ends_with('-'));
    if !good {
        notes.wrong(
            at,
            format!(
                "{:?} cannot be a CSI driver name: at most {MAX_DRIVER_NAME} lower-case letters, digits, '-' and '.', like a DNS name, beginning and ending with a letter",
                at.value
            ),
        );
    }
    at.value.clone()
}

/// An absolute path without `..`.
pub(super) fn path(
    given: Option<&At<String>>,
    default: impl FnOnce() -> PathBuf,
    notes: &mut Notes,
) -> PathBuf {
    let Some(at) = given else { return default() };
    let path = PathBuf::from(&at.value);
    if !path.is_absolute() {
        notes.wrong(at, format!("{:?} must be an absolute path", at.value));
    } else if path
        .components()
        .any(|part| matches!(part, std::path::Component::ParentDir))
        || at.value.chars().any(char::is_control)
    {
        notes.wrong(
            at,
            format!("{:?} must not hold '..' or control characters", at.value),
        );
    }
    path
}

fn socket_too_long(path: &Path) -> bool {
    path.as_os_str().len() > MAX_SOCKET_PATH
}

fn socket(
    given: Option<&At<String>>,
    key: &str,
    default: impl FnOnce() -> PathBuf,
    notes: &mut Notes,
) -> PathBuf {
    if let Some(at) = given
        && let Some(rest) = at.value.strip_prefix("unix://")
    {
        notes.wrong(
            at,
            format!("write the path alone, without unix://: {rest:?}"),
        );
        return PathBuf::from(rest);
    }
    let path = path(given, default, notes);
    if socket_too_long(&path) {
        notes.problems.push(Problem {
            line: given.map(|at| at.line),
            key: key.to_owned(),
            message: format!(
                "{} has {} bytes; the kernel takes at most {MAX_SOCKET_PATH} for a socket",
                path.display(),
                path.as_os_str().len()
            ),
        });
    }
    path
}

/// A duration, or its default, that is long enough.
pub(super) fn duration(
    given: Option<&At<String>>,
    default: &str,
    least: (Duration, &str),
    notes: &mut Notes,
) -> Duration {
    let text = given.map_or(default, |at| at.value.as_str());
    let parsed = match (parse_duration(text), given) {
        (Ok(parsed), _) => parsed,
        (Err(error), Some(at)) => {
            notes.wrong(at, error.to_string());
            least.0
        }
        // The defaults above are read in a test.
        (Err(_), None) => least.0,
    };
    if let Some(at) = given
        && parsed < least.0
    {
        notes.wrong(
            at,
            format!("{:?} is too short; at least {:?}", at.value, least.1),
        );
    }
    parsed
}

fn listen(given: Option<&At<String>>, default: Listen, notes: &mut Notes) -> Listen {
    let Some(at) = given else {
        return default;
    };
    match at.value.parse() {
        Ok(listen) => listen,
        Err(error) => {
            notes.wrong(at, NoListen::to_string(&error));
            Listen::Off
        }
    }
}

fn erase_rate(given: Option<&At<String>>, notes: &mut Notes) -> Option<u64> {
    let Some(at) = given else {
        return Some(200 * MIB);
    };
    if at.value == "unlimited" {
        return None;
    }
    match parse_size(&at.value) {
        Ok(bytes) if bytes < MIB => {
            notes.wrong(at, "must be at least \"1MiB\", or \"unlimited\"");
            None
        }
        Ok(bytes) => Some(bytes),
        Err(error) => {
            notes.wrong(at, format!("{error}, or \"unlimited\""));
            None
        }
    }
}

/// Names given more than once, with the places after the first.
pub fn repeated<'a>(names: impl Iterator<Item = &'a At<String>>) -> Vec<(&'a At<String>, usize)> {
    let mut first: BTreeMap<&str, usize> = BTreeMap::new();
    let mut again = Vec::new();
    for at in names {
        match first.get(at.value.as_str()) {
            Some(line) => again.push((at, *line)),
            None => {
                first.insert(&at.value, at.line);
            }
        }
    }
    again
}
