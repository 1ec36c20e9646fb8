//! Waits for the end of a task, and shows its progress on standard error.

use std::{pin::pin, time::Duration};

use drivebay_common::{
    cli::{INTERRUPTED, LEFT_WAITING, WRONG},
    progress::Progress,
    table::printable,
};
use drivebay_objects::task::DriveTaskStatus;
use tokio::{
    signal::ctrl_c,
    time::{MissedTickBehavior, interval},
};

use crate::{
    cluster::{Cluster, ListedDrive},
    error::PluginError,
};

/// Time between two polls.
const POLL: Duration = Duration::from_secs(1);
/// Number of polls for which a task may wait for its turn, or for a pod, before the command ends.
const PATIENCE: u32 = 10;

/// Waits until a task has ended, or waits for something that may take hours. Returns the text to print, and the exit code.
pub(crate) async fn wait(
    cluster: &Cluster,
    name: &str,
    drive: &ListedDrive,
) -> Result<(String, u8), PluginError> {
    let mut progress = Progress::begin();
    let mut ticks = interval(POLL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut interrupted = pin!(ctrl_c());
    let mut waits = 0;
    let of = match drive.place.as_str() {
        "" => drive.name.clone(),
        place => format!("{} ({place})", drive.name),
    };
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = &mut interrupted => {
                progress.end();
                let text = format!("task {name} goes on without this command; kubectl drivebay tasks shows it\n");
                return Ok((text, INTERRUPTED));
            }
        }
        let task = cluster.task(name).await?;
        let Some(task) = task else {
            progress.end();
            return Err(PluginError::TaskDeleted(name.to_owned()));
        };
        let status = task.status.unwrap_or_default();
        match status.phase.as_str() {
            "Succeeded" => {
                progress.end();
                return Ok((format!("{of}: {}\n", printable(&status.message)), 0));
            }
            "Failed" => {
                progress.end();
                let (reason, message) = (printable(&status.reason), printable(&status.message));
                return Ok((format!("{of}: {reason}: {message}\n"), WRONG));
            }
            _ => {}
        }
        waits = match status.reason.as_str() {
            "WaitingForVolumes" | "WaitingForNode" | "WaitingForCluster" | "AgentDisconnected" => {
                waits + 1
            }
            _ => 0,
        };
        if waits > PATIENCE {
            progress.end();
            let message = printable(&status.message);
            let text = format!(
                "{of}: {message}\ntask {name} goes on without this command; kubectl drivebay tasks shows it\n"
            );
            return Ok((text, LEFT_WAITING));
        }
        progress.show(&line(&of, &status));
    }
}

/// Returns the state of a task in one line, the most important part first.
fn line(of: &str, status: &DriveTaskStatus) -> String {
    let parts = [&status.progress, &status.message];
    let part = parts.into_iter().find(|text| !text.is_empty());
    let state = match part {
        Some(text) => printable(text),
        None => "waiting for the controller".to_owned(),
    };
    format!("{of}: {state}")
}
