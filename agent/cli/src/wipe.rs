//! `drivebay-agent drive wipe`: reports reasons to refuse, shows the data that would be lost, and wipes only if the identity is confirmed.
//! If no agent runs, this program does the same as an agent, under the agent's lock.
//!
//! The agent validates everything again; the checks here only help to avoid mistakes.

use std::{
    io::{self, Write as _},
    path::Path,
    time::Duration,
};

use drivebay_common::{
    cli::{NOT_PERMITTED, RUN_AS_ROOT, UNREACHABLE, WRONG},
    pick::Part,
    progress::Progress,
    query::QueryError,
};
use drivebay_proto::agent::{Drive, WipeDriveProgress, WipeDriveRequest};
use tokio::sync::mpsc;

use super::{
    check_config,
    client::Client,
    name,
    one_drive::{self, DriveAction, OneDriveError},
    table::{human_seconds, human_size},
};
use drivebay_config::{self as config, ConfigError, HostFacts};
use drivebay_node::{
    offline::{Offline, OfflineError},
    volumes::VolumeError,
};
use drivebay_sys::user;

/// Longest interval between two progress messages of the agent: a step is stuck after 30 s.
const PROGRESS_DEADLINE: Duration = Duration::from_secs(120);

/// Texts of the preview that is printed if `--confirm` is missing, with and without a running agent.
pub(super) const WIPE: DriveAction = DriveAction {
    verb: "wipe",
    warning: "wiping destroys everything on this drive:",
    aim: "To wipe it",
};

/// A drive was not wiped.
#[derive(Debug, thiserror::Error)]
pub enum WipeError {
    /// The call failed, the drive was not found, or the confirmation is missing.
    #[error(transparent)]
    Drive(#[from] OneDriveError),
    /// Wiping began and did not end.
    #[error("wiping {drive} stopped at {} of {}; what was there is lost in part: run the command again", human_size(*done), human_size(*total))]
    Unfinished {
        drive: String,
        done: u64,
        total: u64,
    },
    /// No agent runs, and the configuration needed without one was not loaded.
    #[error(
        "{absent}. Where no agent runs, the command needs the agent's config: name it with --config"
    )]
    NoConfig {
        absent: Box<QueryError>,
        #[source]
        source: ConfigError,
    },
    /// Wiping without an agent is not possible either.
    #[error(transparent)]
    Offline(#[from] OfflineError),
    /// Wiping without an agent was refused, or failed.
    #[error(transparent)]
    Refused(#[from] Box<VolumeError>),
    #[error("the wipe ended by itself; this is a bug of drivebay-agent")]
    Lost,
    #[error("no agent runs, and a drive cannot be wiped without one: {RUN_AS_ROOT}")]
    NotRoot,
}

impl WipeError {
    /// Returns the exit code.
    pub fn code(&self) -> u8 {
        match self {
            Self::Drive(error) => error.code(),
            Self::NoConfig { .. } => UNREACHABLE,
            Self::NotRoot => NOT_PERMITTED,
            Self::Unfinished { .. } | Self::Offline(_) | Self::Refused(_) | Self::Lost => WRONG,
        }
    }
}

/// Wipes the drive if `confirm` is its identity. Errs with a preview if it is None.
pub async fn run(
    socket: &Path,
    config: &Path,
    name: &str,
    confirm: Option<&str>,
) -> Result<(), WipeError> {
    match Client::connect(socket).await {
        Ok(client) => by_agent(client, name, confirm).await,
        Err(absent @ QueryError::Nobody { .. }) => alone(absent, config, name, confirm).await,
        Err(error) => Err(OneDriveError::from(error).into()),
    }
}

async fn by_agent(mut client: Client, name: &str, confirm: Option<&str>) -> Result<(), WipeError> {
    let inventory = client.inventory().await.map_err(OneDriveError::from)?;
    let drive = name::drive(&inventory, name, Part::Whole).map_err(OneDriveError::from)?;
    let confirmed = one_drive::confirmed(&inventory, drive, name, confirm, &WIPE);
    let request = WipeDriveRequest {
        drive: drive.id.clone(),
        confirm: one_drive::spelled_out(drive, &confirmed),
    };
    let call = client.raw.wipe_drive(request);
    let agent = &client.agent;
    let begun = agent.answered_within(PROGRESS_DEADLINE, call).await;
    let mut stream = one_drive::refused_first(confirmed, begun)?.into_inner();
    let mut meter = Meter::new(drive);
    loop {
        let next = agent.answered_within(PROGRESS_DEADLINE, stream.message());
        match next.await {
            Ok(Some(progress)) => {
                meter.show(&progress);
                if progress.finished {
                    meter.end();
                    println!(
                        "{} is blank; the next rescan shows whether a class takes it",
                        drive.id
                    );
                    return Ok(());
                }
            }
            Ok(None) => {
                meter.end();
                return Err(meter.unfinished());
            }
            Err(error) => {
                meter.end();
                // Nothing was written before the first progress message: the error is complete.
                if meter.last.done_bytes > 0 {
                    super::complain(&error);
                    return Err(meter.unfinished());
                }
                return Err(OneDriveError::from(error).into());
            }
        }
    }
}

/// Wipes in this process, as an agent would.
async fn alone(
    absent: QueryError,
    config: &Path,
    name: &str,
    confirm: Option<&str>,
) -> Result<(), WipeError> {
    let checked =
        config::load(config, &HostFacts::here()).map_err(|source| WipeError::NoConfig {
            absent: Box::new(absent),
            source,
        })?;
    check_config::warn(config, &checked.warnings);
    if !user::is_root() {
        return Err(WipeError::NotRoot);
    }
    eprintln!("no agent runs; scanning the drives without one");
    let offline = Offline::begin(checked.config).await?;
    let wiped = wipe_offline(&offline, name, confirm).await;
    offline.end().await;
    wiped
}

async fn wipe_offline(
    offline: &Offline,
    name: &str,
    confirm: Option<&str>,
) -> Result<(), WipeError> {
    let inventory = offline.inventory();
    let drive = name::drive(&inventory, name, Part::Whole).map_err(OneDriveError::from)?;
    let confirmed = one_drive::confirmed(&inventory, drive, name, confirm, &WIPE);
    let volumes = offline.volumes().clone();
    let begun = volumes.begin_wipe(&drive.id, &one_drive::spelled_out(drive, &confirmed));
    let wipe = match (confirmed, begun) {
        (Err(unconfirmed), Err(VolumeError::Invalid { .. }) | Ok(_)) => {
            return Err(unconfirmed.into());
        }
        (_, begun) => begun.map_err(Box::new)?,
    };
    let (sender, mut receiver) = mpsc::channel(1);
    let work = tokio::spawn(async move { volumes.wipe(&wipe, &sender).await });
    let mut meter = Meter::new(drive);
    while let Some(Ok(progress)) = receiver.recv().await {
        meter.show(&progress);
    }
    let done = work.await.map_err(|_| WipeError::Lost)?;
    meter.end();
    match done {
        Ok(_) => {
            println!(
                "{} is blank; an agent that is started shows whether a class takes it",
                drive.id
            );
            Ok(())
        }
        Err(error) if meter.last.done_bytes > 0 => {
            super::complain(&error);
            Err(meter.unfinished())
        }
        Err(error) => Err(Box::new(error).into()),
    }
}

/// Progress on stderr: one line rewritten on a terminal, else one line for every tenth.
struct Meter<'a> {
    drive: &'a Drive,
    last: WipeDriveProgress,
    tenth: Option<u64>,
    progress: Progress,
}

impl<'a> Meter<'a> {
    fn new(drive: &'a Drive) -> Self {
        Self {
            drive,
            last: WipeDriveProgress::default(),
            tenth: None,
            progress: Progress::begin(),
        }
    }

    fn show(&mut self, progress: &WipeDriveProgress) {
        self.last = *progress;
        let line = progress_line(&self.drive.id, progress, self.progress.elapsed());
        if self.progress.is_on_terminal() {
            self.progress.show(&line);
            return;
        }
        let tenth = progress
            .done_bytes
            .saturating_mul(10)
            .checked_div(progress.total_bytes);
        if tenth != self.tenth {
            self.tenth = tenth;
            // A failed write to stderr does not end the command.
            let _ = writeln!(io::stderr(), "{line}");
        }
    }

    fn end(&mut self) {
        self.progress.end();
    }

    fn unfinished(&self) -> WipeError {
        WipeError::Unfinished {
            drive: self.drive.id.clone(),
            done: self.last.done_bytes,
            total: self.last.total_bytes.max(self.drive.size_bytes),
        }
    }
}

fn progress_line(id: &str, progress: &WipeDriveProgress, elapsed: Duration) -> String {
    let (done, total) = (
        u128::from(progress.done_bytes),
        u128::from(progress.total_bytes),
    );
    let percent = (done * 100).checked_div(total).unwrap_or(0);
    let left = (total.saturating_sub(done) * elapsed.as_millis()).checked_div(done * 1000);
    let left = left
        .and_then(|seconds| u64::try_from(seconds).ok())
        .filter(|_| !progress.finished);
    let left = left
        .map(|seconds| format!(", {} left", human_seconds(seconds)))
        .unwrap_or_default();
    format!(
        "wiping {id}: {percent}% ({} of {}){left}",
        human_size(progress.done_bytes),
        human_size(progress.total_bytes)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_shows_what_is_left() {
        let at = |done_bytes, finished| WipeDriveProgress {
            done_bytes,
            total_bytes: 4 << 30,
            finished,
        };
        let line = |progress| progress_line("x", &progress, Duration::from_secs(100));
        assert_eq!(line(at(0, false)), "wiping x: 0% (0 B of 4 GiB)");
        assert_eq!(
            line(at(1 << 30, false)),
            "wiping x: 25% (1 GiB of 4 GiB), 5m left"
        );
        assert_eq!(line(at(4 << 30, true)), "wiping x: 100% (4 GiB of 4 GiB)");
    }
}
