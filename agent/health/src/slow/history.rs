//! Persists the history of latencies: `latency.json` in the state directory.
//!
//! A file that cannot be read is neither empty nor damaged: it is left unchanged and read again later. Nothing is written
//! until then.

use std::{collections::BTreeMap, io};

use serde::{Deserialize, Serialize};

use drivebay_model::DriveId;
use drivebay_node::state::{Damage, StateDir, StateError, StateFile, StateKind, Stored};
use drivebay_smart::slow::{Comparison, Kept, Kind};

/// Version of the file format.
const VERSION: u32 = StateKind::Latency.version();

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

/// State file of the comparison.
#[derive(Debug)]
pub(super) struct History {
    file: StateFile<Remembered>,
}

impl History {
    pub(super) fn new(dir: &StateDir) -> Self {
        Self {
            file: StateFile::new(dir),
        }
    }

    /// Restores what an earlier agent wrote. Errs if the file cannot be read.
    pub(super) async fn read(&self, comparison: &mut Comparison) -> io::Result<()> {
        restore(comparison, self.file.load().await?);
        Ok(())
    }

    /// Reads the file again if it could not be read and that is due. The minutes since then come after its contents.
    pub(super) async fn read_again(&self, comparison: &mut Comparison) {
        restore(comparison, self.file.read_again().await);
    }

    /// Replaces the file; errs if it has not been read yet.
    pub(super) async fn save(&self, comparison: Comparison) -> Result<(), StateError> {
        self.file.save(remembered(comparison)).await
    }
}

impl Stored for Remembered {
    const KIND: StateKind = StateKind::Latency;

    fn from_bytes(bytes: &[u8]) -> Result<Self, Damage> {
        let old: Self = serde_json::from_slice(bytes)?;
        match old.version {
            VERSION => Ok(old),
            other => {
                Err(format!("it has version {other}, this agent reads version {VERSION}").into())
            }
        }
    }

    fn to_bytes(&self) -> io::Result<Vec<u8>> {
        Ok(serde_json::to_vec(self)?)
    }
}

fn restore(comparison: &mut Comparison, old: Option<Remembered>) {
    for (id, drive) in old.unwrap_or_default().drives {
        comparison.restore(id, drive.kind, drive.kept);
    }
}

fn remembered(comparison: Comparison) -> Remembered {
    let kept = comparison.kept().into_iter();
    Remembered {
        version: VERSION,
        drives: kept
            // An identity by slot may belong to another drive when the file is read.
            .filter(|(id, _)| !id.is_place())
            .map(|(id, (kind, kept))| (id, RememberedDrive { kind, kept }))
            .collect(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use std::{fs, path::Path};

    use super::*;
    use crate::golden;
    use drivebay_model::Media;
    use drivebay_smart::slow::{Flow, Input, Minute, Slice};

    /// A drive with this number of minutes, each with this number of reads per second.
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

    async fn written(dir: &Path) -> History {
        let history = History::new(&StateDir::new(dir));
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
        written(dir.path()).await;
        let text = fs::read(&path).unwrap();
        // A directory in its place cannot be read, even by root.
        let elsewhere = dir.path().join("elsewhere");
        fs::rename(&path, &elsewhere).unwrap();
        fs::create_dir(&path).unwrap();

        let history = History::new(&StateDir::new(dir.path()));
        let mut comparison = Comparison::default();
        history.read(&mut comparison).await.unwrap_err();
        with_minutes(&mut comparison, "d0", 2);
        history.save(comparison.clone()).await.unwrap_err();
        assert!(path.is_dir());

        fs::remove_dir(&path).unwrap();
        fs::rename(&elsewhere, &path).unwrap();
        history.save(comparison.clone()).await.unwrap_err();
        assert_eq!(fs::read(&path).unwrap(), text);
        history.read_again(&mut comparison).await;
        assert_eq!(minutes(&comparison, "d0"), 2, "not again so soon");
        history.file.make_due();
        history.read_again(&mut comparison).await;
        assert_eq!(minutes(&comparison, "d0"), 9, "those of before and since");
        history.save(comparison).await.unwrap();
        let mut again = Comparison::default();
        History::new(&StateDir::new(dir.path()))
            .read(&mut again)
            .await
            .unwrap();
        assert_eq!(minutes(&again, "d0"), 9);
    }

    #[tokio::test]
    async fn a_damaged_history_is_kept_aside_and_the_next_one_is_written() {
        for damaged in [
            &b"{\"version\":1,\"drives\":{"[..],
            b"{\"version\":0,\"drives\":{}}",
        ] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("latency.json");
            fs::write(&path, damaged).unwrap();
            written(dir.path()).await;
            let aside = dir.path().join("latency.json.bad-1");
            assert_eq!(fs::read(aside).unwrap(), damaged);
            let mut again = Comparison::default();
            History::new(&StateDir::new(dir.path()))
                .read(&mut again)
                .await
                .unwrap();
            assert_eq!(minutes(&again, "d0"), 7);
        }
    }

    #[test]
    fn the_file_is_written_and_read_as_the_golden_one() {
        let mut comparison = Comparison::default();
        for drive in ["d0", "d1"] {
            with_minutes(&mut comparison, drive, 3);
        }
        let contents = |comparison| remembered(comparison).to_bytes().unwrap();
        let golden = golden::compare("latency.json", &contents(comparison.clone()));
        let mut read_back = Comparison::default();
        for (id, drive) in Remembered::from_bytes(&golden).unwrap().drives {
            read_back.restore(id, drive.kind, drive.kept);
        }
        assert_eq!(minutes(&read_back, "d1"), 3);
        assert_eq!(contents(read_back), contents(comparison));
    }

    #[tokio::test]
    async fn a_missing_history_is_empty() {
        let dir = tempfile::tempdir().unwrap();
        let history = History::new(&StateDir::new(dir.path()));
        let mut comparison = Comparison::default();
        history.read(&mut comparison).await.unwrap();
        assert_eq!(comparison.drives().count(), 0);
    }
}
