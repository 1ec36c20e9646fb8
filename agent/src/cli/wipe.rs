//! `drivebay-agent drive wipe`: shows what would be lost, and wipes only when the identity is spelled out.
//!
//! The agent checks everything again; what is here only helps a person not to make a mistake.

use std::{
    fmt::Write as _,
    io::{self, IsTerminal, Write as _},
    path::Path,
    time::{Duration, Instant},
};

use drivebay_proto::agent::{Drive, InventoryUpdate, Volume, WipeDriveProgress, WipeDriveRequest};

use super::{
    client::{Client, ClientError, answered},
    drives::below,
    table::{human_seconds, human_size, printable},
};

/// The agent says something at least this often while it wipes: a step is stuck after 30 s.
const PROGRESS_DEADLINE: Duration = Duration::from_secs(120);

/// Why a drive was not wiped.
#[derive(Debug, thiserror::Error)]
pub enum WipeError {
    /// The agent.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// No such drive.
    #[error(
        "there is no drive {0:?} on this node; `drivebay-agent drives --all` shows all of them"
    )]
    NoSuchDrive(String),
    /// Two drives could be meant.
    #[error("{name:?} could be {}; name the drive by its identity", ids.join(" or "))]
    SeveralDrives {
        /// As typed.
        name: String,
        /// Identities.
        ids: Vec<String>,
    },
    /// Nothing was confirmed.
    #[error("{0}")]
    NotConfirmed(String),
    /// Something else was confirmed.
    #[error("--confirm says {typed:?}, but the identity of {drive} is {id:?}; nothing was changed")]
    WrongConfirmation {
        /// As typed.
        drive: String,
        /// As typed.
        typed: String,
        /// The identity.
        id: String,
    },
    /// It began and was not finished.
    #[error("wiping {drive} stopped at {} of {}; what was there is lost in part: run the command again", human_size(*done), human_size(*total))]
    Unfinished {
        /// Identity.
        drive: String,
        /// Bytes.
        done: u64,
        /// Bytes.
        total: u64,
    },
}

impl WipeError {
    /// Whether the command line was at fault and nothing was done.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::NotConfirmed(_) | Self::WrongConfirmation { .. })
    }
}

/// Shows or wipes.
pub async fn run(socket: &Path, name: &str, confirm: Option<&str>) -> Result<(), WipeError> {
    let mut client = Client::connect(socket).await?;
    let inventory = client.inventory().await?;
    let drive = find(&inventory, name)?;
    let Some(typed) = confirm else {
        return Err(WipeError::NotConfirmed(shown(&inventory, drive)));
    };
    if typed != drive.id {
        return Err(WipeError::WrongConfirmation {
            drive: name.to_owned(),
            typed: typed.to_owned(),
            id: drive.id.clone(),
        });
    }
    let request = WipeDriveRequest {
        drive: drive.id.clone(),
        confirm: typed.to_owned(),
    };
    let call = client.raw().wipe_drive(request);
    let mut stream = answered(socket, PROGRESS_DEADLINE, call)
        .await?
        .into_inner();
    let mut meter = Meter::new(drive);
    loop {
        match answered(socket, PROGRESS_DEADLINE, stream.message()).await {
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
                // Before the first progress nothing was written: the refusal says it all.
                if meter.last.done_bytes > 0 {
                    super::complain(&error);
                    return Err(meter.unfinished());
                }
                return Err(error.into());
            }
        }
    }
}

/// The drive of this identity or kernel name. An identity wins over a kernel name.
fn find<'a>(inventory: &'a InventoryUpdate, name: &str) -> Result<&'a Drive, WipeError> {
    if let Some(drive) = inventory.drives.iter().find(|drive| drive.id == name) {
        return Ok(drive);
    }
    let kernel_name = name.strip_prefix("/dev/").unwrap_or(name);
    let named: Vec<&Drive> = inventory
        .drives
        .iter()
        .filter(|drive| !kernel_name.is_empty() && drive.kernel_name == kernel_name)
        .collect();
    match named.as_slice() {
        [] => Err(WipeError::NoSuchDrive(name.to_owned())),
        [drive] => Ok(drive),
        several => Err(WipeError::SeveralDrives {
            name: name.to_owned(),
            ids: several.iter().map(|drive| drive.id.clone()).collect(),
        }),
    }
}

/// What would be lost, and what to type.
fn shown(inventory: &InventoryUpdate, drive: &Drive) -> String {
    let mut text = String::from("wiping destroys everything on this drive:\n\n");
    let mut line = |name: &str, value: &str| {
        let value = if value.is_empty() {
            "-".to_owned()
        } else {
            printable(value)
        };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {name:<9}{value}");
    };
    line("drive", &drive.id);
    line(
        "device",
        &if drive.kernel_name.is_empty() {
            String::new()
        } else {
            format!("/dev/{}", drive.kernel_name)
        },
    );
    line("model", &drive.model);
    line("serial", &drive.serial);
    line("size", &human_size(drive.size_bytes));
    line("state", &drive.state);
    for seen in below(drive) {
        line("seen", &seen);
    }
    let volumes: Vec<&Volume> = inventory
        .volumes
        .iter()
        .filter(|volume| volume.drive == drive.id)
        .collect();
    for volume in volumes {
        line(
            "volume",
            &format!(
                "{} ({}, {})",
                volume.name,
                human_size(volume.size_bytes),
                volume.state
            ),
        );
    }
    let _ = write!(
        text,
        "\nNothing was changed. To wipe it, spell out its identity:\n\n  drivebay-agent drive wipe {id} --confirm {id}",
        id = drive.id
    );
    text
}

/// Progress on stderr: one line rewritten on a terminal, else one line for every tenth.
struct Meter<'a> {
    drive: &'a Drive,
    started: Instant,
    last: WipeDriveProgress,
    tenth: Option<u64>,
    terminal: bool,
}

impl<'a> Meter<'a> {
    fn new(drive: &'a Drive) -> Self {
        Self {
            drive,
            started: Instant::now(),
            last: WipeDriveProgress::default(),
            tenth: None,
            terminal: io::stderr().is_terminal(),
        }
    }

    fn show(&mut self, progress: &WipeDriveProgress) {
        self.last = *progress;
        let line = progress_line(&self.drive.id, progress, self.started.elapsed());
        let mut stderr = io::stderr().lock();
        // Nobody reading along is no reason to stop.
        if self.terminal {
            let _ = write!(stderr, "\r\x1b[K{line}");
            let _ = stderr.flush();
            return;
        }
        let tenth = progress
            .done_bytes
            .saturating_mul(10)
            .checked_div(progress.total_bytes);
        if tenth != self.tenth {
            self.tenth = tenth;
            let _ = writeln!(stderr, "{line}");
        }
    }

    fn end(&self) {
        if self.terminal {
            eprintln!();
        }
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

    fn inventory() -> InventoryUpdate {
        let drive = |id: &str, kernel_name: &str| Drive {
            id: id.into(),
            kernel_name: kernel_name.into(),
            model: "EVIL\u{1b}[2J".into(),
            size_bytes: 4 << 40,
            state: "rejected".into(),
            rejects: vec![drivebay_proto::agent::Reject {
                code: "Filesystem".into(),
                detail: "ext4".into(),
            }],
            ..Drive::default()
        };
        InventoryUpdate {
            drives: vec![
                drive("wwn-a", "sda"),
                drive("sda", "sdb"),
                drive("wwn-gone", ""),
            ],
            volumes: vec![Volume {
                drive: "wwn-a".into(),
                name: "pvc-1".into(),
                size_bytes: 1 << 30,
                state: "ready".into(),
                ..Volume::default()
            }],
            ..InventoryUpdate::default()
        }
    }

    #[test]
    fn a_drive_is_found_by_identity_before_kernel_name() {
        let inventory = inventory();
        let id = |name: &str| find(&inventory, name).map(|drive| drive.id.clone()).ok();
        assert_eq!(id("wwn-a").as_deref(), Some("wwn-a"));
        assert_eq!(id("/dev/sda").as_deref(), Some("wwn-a"));
        assert_eq!(id("sda").as_deref(), Some("sda"), "an identity wins");
        assert_eq!(id("sdb").as_deref(), Some("sda"));
        assert_eq!((id(""), id("/dev/"), id("sdc")), (None, None, None));
    }

    #[test]
    fn what_would_be_lost_is_shown_with_the_words_to_type() {
        let inventory = inventory();
        let text = shown(&inventory, &inventory.drives[0]);
        assert_eq!(
            text,
            "\
wiping destroys everything on this drive:

  drive    wwn-a
  device   /dev/sda
  model    EVIL\\u{1b}[2J
  serial   -
  size     4 TiB
  state    rejected
  seen     Filesystem: ext4
  volume   pvc-1 (1 GiB, ready)

Nothing was changed. To wipe it, spell out its identity:

  drivebay-agent drive wipe wwn-a --confirm wwn-a"
        );
    }

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
