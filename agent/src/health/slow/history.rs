//! What is kept of latencies over a restart: `latency.json` in the state directory.
//!
//! A file that cannot be read is neither empty nor damaged: it is left alone and read again later. Nothing is written until then.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{
    model::DriveId,
    slow::{Comparison, Kept, Kind},
    sys::{offload::offload, statefile},
};

/// A hundred drives with four hours each have about 10 MiB.
const MAX_FILE: u64 = 64 * 1024 * 1024;
const FILE_DEADLINE: Duration = Duration::from_secs(10);
/// Minutes until a file whose drive does not answer is read again: each try holds a thread.
const AFTER_TIMEOUT: u32 = 30;
/// Of the file.
pub(crate) const VERSION: u32 = 1;

#[derive(Debug, Default, Serialize, Deserialize)]
struct Remembered {
    version: u32,
    drives: BTreeMap<DriveId, RememberedDrive>,
}

#[derive(Debug, Serialize, Deserialize)]
struct RememberedDrive {
    kind: Kind,
    #[serde(flatten)]
    kept: Kept,
}

/// The file.
#[derive(Debug)]
pub(super) struct History {
    path: PathBuf,
    /// What an earlier agent wrote has been read, or there was nothing.
    read: bool,
    /// Minutes until it is read again.
    again_in: u32,
}

impl History {
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            path,
            read: false,
            again_in: 0,
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// A minute is over: whether the file should be read again.
    pub(super) fn is_due(&mut self) -> bool {
        self.again_in = self.again_in.saturating_sub(1);
        !self.read && self.again_in == 0
    }

    /// Reads what an earlier agent wrote, unless that was done. The minutes since then come after it.
    pub(super) async fn read(&mut self, comparison: &mut Comparison) -> io::Result<()> {
        if self.read {
            return Ok(());
        }
        let path = self.path.clone();
        let done = offload("latency-read", FILE_DEADLINE, move || read(&path)).await;
        match done.and_then(|done| done) {
            Ok(drives) => {
                for (id, drive) in drives {
                    comparison.restore(id, drive.kind, drive.kept);
                }
                self.read = true;
                Ok(())
            }
            Err(error) => {
                let hung = error.kind() == io::ErrorKind::TimedOut;
                self.again_in = if hung { AFTER_TIMEOUT } else { 1 };
                Err(error)
            }
        }
    }

    /// Replaces the file, which has been read.
    pub(super) async fn save(&self, comparison: Comparison) -> io::Result<()> {
        if !self.read {
            return Err(io::Error::other(
                "its earlier contents could not be read and are not overwritten",
            ));
        }
        let text = move || contents(comparison);
        statefile::save(self.path.clone(), FILE_DEADLINE, text).await
    }
}

fn contents(comparison: Comparison) -> io::Result<Vec<u8>> {
    let kept = comparison.kept().into_iter();
    let remembered = Remembered {
        version: VERSION,
        drives: kept
            // Another drive may be there when it is read.
            .filter(|(id, _)| !id.is_place())
            .map(|(id, (kind, kept))| (id, RememberedDrive { kind, kept }))
            .collect(),
    };
    Ok(serde_json::to_vec(&remembered)?)
}

/// What an earlier agent wrote. What is not a history of this version is moved aside and logged, and the history begins anew.
fn read(path: &Path) -> io::Result<BTreeMap<DriveId, RememberedDrive>> {
    let why = match statefile::read(path, MAX_FILE) {
        Ok(bytes) => match serde_json::from_slice::<Remembered>(&bytes) {
            Ok(old) if old.version == VERSION => return Ok(old.drives),
            Ok(old) => format!("version {}", old.version),
            Err(error) => error.to_string(),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => error.to_string(),
        Err(error) => return Err(error),
    };
    let aside = statefile::move_aside(path)?;
    tracing::warn!(why, aside = %aside.display(), "invalid drive latency history moved aside; starting with empty history");
    Ok(BTreeMap::new())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use std::fs;

    use super::*;
    use crate::golden;
    use crate::{
        model::Media,
        slow::{Flow, Input, Minute, Slice},
    };

    /// A drive with so many minutes, each with so many reads a second.
    fn with_minutes(comparison: &mut Comparison, drive: &str, minutes: u64) {
        let slice = Slice {
            millis: 5000,
            reads: Flow {
                requests: 1000,
                bytes: 1000 * 4096,
                wait_ms: 200,
            },
            busy_ms: 200,
            ..Slice::default()
        };
        for minute in 1..=minutes {
            let input = Input {
                drive: DriveId(drive.into()),
                kind: Kind {
                    model: "M".into(),
                    media: Media::Ssd,
                },
                minute: Some(Minute::new(&[slice; 12], false, false)),
            };
            comparison.feed(minute * 60, vec![input]);
        }
    }

    fn minutes(comparison: &Comparison, drive: &str) -> usize {
        let speeds = comparison.speeds();
        let speed = speeds.get(&DriveId(drive.into()));
        speed.map_or(0, |speed| speed.read.history_ms.len())
    }

    async fn written(path: &Path) -> History {
        let mut history = History::new(path.to_owned());
        let mut comparison = Comparison::default();
        history.read(&mut comparison).await.unwrap();
        with_minutes(&mut comparison, "d0", 7);
        history.save(comparison).await.unwrap();
        history
    }

    #[tokio::test]
    async fn a_history_that_cannot_be_read_for_a_while_is_not_overwritten_and_is_read_later() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("latency.json");
        written(&path).await;
        let text = fs::read(&path).unwrap();
        // A directory in its place cannot be read, also by root.
        let elsewhere = dir.path().join("elsewhere");
        fs::rename(&path, &elsewhere).unwrap();
        fs::create_dir(&path).unwrap();

        let mut history = History::new(path.clone());
        let mut comparison = Comparison::default();
        history.read(&mut comparison).await.unwrap_err();
        with_minutes(&mut comparison, "d0", 2);
        history.save(comparison.clone()).await.unwrap_err();
        assert!(path.is_dir());
        assert!(history.is_due(), "it is read again in the next minute");
        history.read(&mut comparison).await.unwrap_err();

        fs::remove_dir(&path).unwrap();
        fs::rename(&elsewhere, &path).unwrap();
        history.save(comparison.clone()).await.unwrap_err();
        assert_eq!(fs::read(&path).unwrap(), text);
        assert!(history.is_due());
        history.read(&mut comparison).await.unwrap();
        assert!(!history.is_due());
        assert_eq!(minutes(&comparison, "d0"), 9, "those of before and since");
        history.save(comparison).await.unwrap();
        let mut again = Comparison::default();
        History::new(path).read(&mut again).await.unwrap();
        assert_eq!(minutes(&again, "d0"), 9);
    }

    #[tokio::test]
    async fn a_damaged_history_is_kept_aside_and_the_next_one_is_written() {
        for damaged in [
            &b"{\"version\":1,\"drives\":{"[..],
            b"{\"version\":7,\"drives\":{}}",
        ] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("latency.json");
            fs::write(&path, damaged).unwrap();
            written(&path).await;
            let aside = dir.path().join("latency.json.bad-1");
            assert_eq!(fs::read(aside).unwrap(), damaged);
            let mut again = Comparison::default();
            History::new(path).read(&mut again).await.unwrap();
            assert_eq!(minutes(&again, "d0"), 7);
        }
    }

    #[test]
    fn the_file_is_written_and_read_as_the_golden_one() {
        let mut comparison = Comparison::default();
        for drive in ["d0", "d1"] {
            with_minutes(&mut comparison, drive, 3);
        }
        golden::compare("latency.json", &contents(comparison.clone()).unwrap());
        let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/latency.json");
        let mut read_back = Comparison::default();
        for (id, drive) in read(Path::new(golden)).unwrap() {
            read_back.restore(id, drive.kind, drive.kept);
        }
        assert_eq!(minutes(&read_back, "d1"), 3);
        assert_eq!(contents(read_back).unwrap(), contents(comparison).unwrap());
    }

    #[tokio::test]
    async fn a_missing_history_is_empty() {
        let dir = tempfile::tempdir().unwrap();
        let mut history = History::new(dir.path().join("latency.json"));
        let mut comparison = Comparison::default();
        history.read(&mut comparison).await.unwrap();
        assert_eq!(comparison.drives().count(), 0);
    }
}
