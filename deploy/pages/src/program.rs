//! Sections of a man page besides commands and options: files, environment, exit codes, other pages.

use drivebay_cli::args::FURTHER_EXIT_CODES;
use drivebay_common::cli::EXIT_CODES;
use drivebay_config::{DEFAULT_AGENT_SOCKET, DEFAULT_PATH};
use drivebay_controller::cli::args::DEFAULT_SOCKET;

/// A name and what it is.
pub(crate) type Row = (&'static str, &'static str);

/// Sections of a program's man pages that its clap definition does not contain. A page of a command shows those entries that concern it.
#[derive(Debug)]
pub(crate) struct Program {
    pub files: Vec<Row>,
    pub environment: Vec<Row>,
    /// Each with its meaning, as the help has it.
    pub exit_codes: Vec<(u8, &'static str)>,
    /// Other pages, with their sections.
    pub see_also: Vec<&'static str>,
}

/// Listed on the pages of both programs, as is `COMPLETE`.
const COLOUR: Row = (
    "NO_COLOR",
    "If it is set and not empty, nothing is coloured.",
);
const COMPLETE: Row = (
    "COMPLETE",
    "Set by a shell's script at the Tab key: the name of the shell. The program then prints what completes the command line, asks at most \
     half a second for it, and changes nothing. Without a command line it prints that script.",
);

pub(crate) fn agent() -> Program {
    Program {
        files: vec![
            (
                DEFAULT_PATH,
                "The configuration, see drivebay.toml(5). As a package installs it, no class selects a drive.",
            ),
            (
                DEFAULT_AGENT_SOCKET,
                "Where the agent listens for this command line.",
            ),
            (
                "/var/lib/drivebay",
                "Persisted state: known drives, tombstones, health history.",
            ),
            (
                "/etc/udev/rules.d/09-drivebay.rules",
                "Keeps the host off what is inside volumes.",
            ),
            (
                "/usr/libexec/drivebay/nomad/drivebay",
                "Nomad's dynamic host volume plugin, for its host_volume_plugin_dir.",
            ),
            (
                "/usr/share/doc/drivebay-agent",
                "The documents; begin with README.md. agent/drivebay.example.toml is the example configuration.",
            ),
        ],
        environment: vec![
            (
                "DRIVEBAY_SOCKET",
                "The agent's socket, where --socket does not say it.",
            ),
            (
                "DRIVEBAY_LOG",
                "What drivebay-agent run logs: a level, or a filter as tracing's EnvFilter reads it.",
            ),
            COLOUR,
            COMPLETE,
        ],
        exit_codes: EXIT_CODES.into_iter().chain(FURTHER_EXIT_CODES).collect(),
        see_also: vec![
            "drivebay.toml(5)",
            "drivebay-controller(8)",
            "smartctl(8)",
            "lvm(8)",
        ],
    }
}

pub(crate) fn controller() -> Program {
    Program {
        files: vec![
            (
                DEFAULT_SOCKET,
                "Where the controller listens for this command line.",
            ),
            (
                "/etc/drivebay-controller",
                "Certificates and keys for the service that a package installs.",
            ),
            (
                "/etc/default/drivebay-controller, /etc/sysconfig/drivebay-controller",
                "Further options of that service: the one on Debian, the other where RPMs are installed.",
            ),
            (
                "/usr/share/doc/drivebay-controller/README.md",
                "The reference of the controller; the documents by task are with the agent's package.",
            ),
        ],
        environment: vec![
            (
                "DRIVEBAY_CONTROLLER_SOCKET",
                "The controller's socket, where --socket does not say it.",
            ),
            (
                "CSI_ENDPOINT",
                "Where drivebay-controller run serves CSI, where --csi-socket does not say it.",
            ),
            (
                "RUST_LOG",
                "What drivebay-controller run logs: a level, or a filter as tracing's EnvFilter reads it.",
            ),
            COLOUR,
            COMPLETE,
        ],
        exit_codes: EXIT_CODES.to_vec(),
        see_also: vec!["drivebay-agent(8)"],
    }
}
