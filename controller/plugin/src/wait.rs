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
/// Most volumes that are listed.
const LISTED: usize = 8;

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
            let text = format!(
                "{of}: {}\n{}task {name} goes on without this command; kubectl drivebay tasks shows it\n",
                printable(&status.message),
                waiting(&status)
            );
            return Ok((text, LEFT_WAITING));
        }
        progress.show(&line(&of, &status));
    }
}

/// Returns the volumes that wait, one per line.
fn waiting(status: &DriveTaskStatus) -> String {
    let listed = status.waiting.iter().take(LISTED);
    let mut text: String = listed
        .map(|one| {
            let (name, phase, message) = (&one.name, &one.phase, &one.message);
            format!("  {}\n", printable(&format!("{name}: {phase}: {message}")))
        })
        .collect();
    let left = status.volumes.saturating_sub(status.volumes_moved);
    let more = left.saturating_sub(status.waiting.len().min(LISTED) as i64);
    if more > 0 && !status.waiting.is_empty() {
        text += &format!("  and {more} more\n");
    }
    text
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

#[cfg(test)]
mod tests {
    use drivebay_objects::task::WaitingVolume;

    use super::*;

    #[test]
    fn volumes_that_wait_are_named_with_the_reason_and_a_long_list_is_cut() {
        let one = |name: &str| WaitingVolume {
            name: name.to_owned(),
            phase: "waiting".to_owned(),
            message: "it is in use".to_owned(),
        };
        let mut status = DriveTaskStatus {
            volumes: 3,
            volumes_moved: 1,
            waiting: vec![one("a"), one("b")],
            ..DriveTaskStatus::default()
        };
        let text = "  a: waiting: it is in use\n  b: waiting: it is in use\n";
        assert_eq!(waiting(&status), text);
        status.volumes = 40;
        status.waiting = (0..16).map(|number| one(&number.to_string())).collect();
        let text = waiting(&status);
        assert_eq!(text.lines().count(), LISTED + 1);
        assert!(text.ends_with("  and 31 more\n"), "{text}");
        assert_eq!(waiting(&DriveTaskStatus::default()), "");
    }
}
