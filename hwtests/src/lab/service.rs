//! The agent as an operator installs it: with this repository's unit file, the configuration at its default path, and the program in
//! /usr/bin. Tests add a drop-in: the Controller service, and the log filter.

use std::path::Path;

use super::{Guest, agent, guest::quote};
use crate::{Settings, Trouble};

/// Path of the configuration.
pub const CONFIG: &str = "/etc/drivebay/drivebay.toml";
/// Directory of sockets, state files of workers and the lock; the unit creates it.
pub const RUN_DIR: &str = "/run/drivebay";
const UNIT_FILE: &str = include_str!("../../../systemd/drivebay-agent.service");

/// Installs program and unit unchanged, with this configuration; does not start it.
///
/// # Errors
/// The agent is not built.
pub fn install_as_it_is(guest: &Guest, configuration: &str) -> Result<(), Trouble> {
    agent::install(guest)?;
    guest.write(Path::new(&unit()), UNIT_FILE.as_bytes());
    guest.write(Path::new(CONFIG), configuration.as_bytes());
    guest.run(&format!(
        "install {} /usr/bin/drivebay-agent && systemctl daemon-reload",
        quote(agent::PROGRAM)
    ));
    Ok(())
}

fn unit() -> String {
    format!("/etc/systemd/system/{}.service", agent::UNIT)
}

/// Installs program, configuration and unit; does not start it.
///
/// # Errors
/// The agent is not built.
pub(super) fn install(guest: &Guest, settings: &Settings) -> Result<(), Trouble> {
    let drop_in = format!(
        "[Service]\nExecStart=\nExecStart=/usr/bin/drivebay-agent run --headless --config {CONFIG}\n\
         Environment=\"DRIVEBAY_LOG={}\"\n",
        settings.log
    );
    let unit = unit();
    guest.write(Path::new(&format!("{unit}.d/lab.conf")), drop_in.as_bytes());
    install_as_it_is(guest, &configuration(guest, settings))
}

/// Overwrites the configuration at `CONFIG` in the guest, and creates the kubelet's directory. Does not restart the agent.
pub(super) fn configure(guest: &Guest, settings: &Settings) {
    let text = configuration(guest, settings);
    guest.write(Path::new(CONFIG), text.as_bytes());
}

/// Returns the configuration. Directories are the defaults, as the unit has them; the kubelet's directory is the lab's, on a disk.
fn configuration(guest: &Guest, settings: &Settings) -> String {
    let toml = settings.toml();
    let ours = |line: &&str| {
        !["state-dir", "runtime-dir", "dir = "]
            .iter()
            .any(|key| line.starts_with(key))
    };
    let lines: Vec<&str> = toml.lines().filter(ours).collect();
    let text = lines.join("\n").replace(
        "[kubelet]\n",
        &format!("[kubelet]\ndir = \"{}/kubelet\"\n", agent::DIR),
    );
    guest.run(&format!("mkdir -p {}/kubelet", agent::DIR));
    text
}
