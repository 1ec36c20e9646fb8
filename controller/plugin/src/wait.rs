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
/// The same without any change of the task, as without a controller.
const PATIENCE_WITHOUT_CHANGE: u32 = 30;
/// Number of polls in a row that may fail.
const MAX_FAILED: u32 = 10;
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
    let (mut waits, mut unchanged, mut failed) = (0, 0, 0);
    let mut last = DriveTaskStatus::default();
    let of = match drive.place.as_str() {
        "" => drive.name.clone(),
        place => format!("{} ({place})", drive.name),
    };
    loop {
        let poll = async {
            ticks.tick().await;
            cluster.task(name).await
        };
        let task = tokio::select! {
            task = poll => task,
            _ = &mut interrupted => {
                progress.end();
                return Ok((goes_on(name), INTERRUPTED));
            }
        };
        let status = match task {
            Ok(Some(task)) => task.status.unwrap_or_default(),
            Ok(None) => {
                progress.end();
                return Err(PluginError::TaskDeleted(name.to_owned()));
            }
            // The API server may be restarting.
            Err(error) => {
                failed += 1;
                if failed < MAX_FAILED {
                    continue;
                }
                progress.end();
                return Err(PluginError::Lost {
                    name: name.to_owned(),
                    error: Box::new(error),
                });
            }
        };
        failed = 0;
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
            "WaitingForVolumes" | "WaitingForDrive" | "WaitingForNode" | "WaitingForCluster"
            | "AgentDisconnected" | "DriveNotFound" | "DriveNotSeen" | "MoveInDoubt" => waits + 1,
            _ => 0,
        };
        unchanged = match status == last {
            true => unchanged + 1,
            false => 0,
        };
        if waits > PATIENCE || unchanged > PATIENCE_WITHOUT_CHANGE {
            progress.end();
            let text = format!(
                "{}\n{}{}",
                line(&of, &status),
                waiting(&status),
                goes_on(name)
            );
            return Ok((text, LEFT_WAITING));
        }
        progress.show(&line(&of, &status));
        last = status;
    }
}

fn goes_on(name: &str) -> String {
    format!("task {name} goes on without this command; kubectl drivebay tasks shows it\n")
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
