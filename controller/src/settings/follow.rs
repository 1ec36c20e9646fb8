//! Follows changes of the config file: polls it, and keeps the former settings while it is invalid.

use std::{path::PathBuf, pin::pin, time::Duration};

use tokio::{
    fs::File,
    io::AsyncReadExt,
    sync::watch,
    time::{MissedTickBehavior, interval, timeout},
};
use tokio_util::sync::CancellationToken;

use drivebay_common::cli::chain;

use super::{MAX_FILE, Settings, SettingsError};

/// Time after which a slow read is logged; it continues.
const SLOW: Duration = Duration::from_secs(10);

/// Follows the file until `stop`, starting from the settings that were loaded from it. Reads it every `every`, since a mounted ConfigMap is
/// replaced under its name. A change takes effect when two consecutive reads agree on it: an editor that saves in place leaves the file
/// empty or truncated for a moment. A file that cannot be read or is invalid changes nothing and is logged once per error text. After
/// `stop`, the receiver is closed and holds the last settings.
pub fn follow(
    path: PathBuf,
    loaded: Settings,
    every: Duration,
    stop: CancellationToken,
) -> watch::Receiver<Settings> {
    let (settings, receiver) = watch::channel(loaded);
    tokio::spawn(async move {
        stop.run_until_cancelled(keep(path, every, settings)).await;
    });
    receiver
}

async fn keep(path: PathBuf, every: Duration, settings: watch::Sender<Settings>) {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut detector = ChangeDetector::default();
    let file = path.display();
    loop {
        ticks.tick().await;
        let read = read_patiently(&path).await;
        let change = detector.observe(read, &settings.borrow());
        match change {
            FileChange::Nothing => {}
            FileChange::Well => tracing::info!(%file, "configuration can be read again"),
            FileChange::Changed(now) => {
                let forgotten_nodes = now.forgotten.len();
                tracing::info!(%file, forgotten_nodes, "configuration changed");
                settings.send_replace(now);
            }
            FileChange::Trouble(error) => {
                tracing::error!(%file, error, "invalid configuration; keeping the previous one");
            }
        }
    }
}

/// Result of one read.
#[derive(Debug, PartialEq, Eq)]
enum FileChange {
    Nothing,
    Well,
    Changed(Settings),
    Trouble(String),
}

/// Reports a change that was read twice in a row, and each error once.
#[derive(Debug, Default)]
struct ChangeDetector {
    previous: Option<Settings>,
    trouble: Option<String>,
}

impl ChangeDetector {
    fn observe(&mut self, read: Result<Settings, SettingsError>, current: &Settings) -> FileChange {
        match read {
            Ok(read) => {
                let again = self.previous.as_ref() == Some(&read);
                self.previous = Some(read.clone());
                if again && read != *current {
                    self.trouble = None;
                    FileChange::Changed(read)
                } else if self.trouble.take().is_some() {
                    FileChange::Well
                } else {
                    FileChange::Nothing
                }
            }
            Err(error) => {
                self.previous = None;
                let text = chain(&error);
                if self.trouble.as_ref() == Some(&text) {
                    return FileChange::Nothing;
                }
                self.trouble = Some(text.clone());
                FileChange::Trouble(text)
            }
        }
    }
}

/// Never starts a second read, however long one takes: a file that does not respond must not use up threads.
async fn read_patiently(path: &PathBuf) -> Result<Settings, SettingsError> {
    let mut reading = pin!(read(path));
    match timeout(SLOW, &mut reading).await {
        Ok(done) => done,
        Err(_) => {
            tracing::error!(file = %path.display(), "timed out reading the configuration; keeping the previous one");
            reading.await
        }
    }
}

async fn read(path: &PathBuf) -> Result<Settings, SettingsError> {
    let mut bytes = Vec::new();
    let whole = async {
        let file = File::open(path).await?;
        file.take(MAX_FILE + 1).read_to_end(&mut bytes).await
    };
    whole.await.map_err(|source| SettingsError::Read {
        path: path.clone(),
        source,
    })?;
    Settings::from_bytes(path, &bytes)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    async fn until(receiver: &mut watch::Receiver<Settings>, count: usize) {
        let arrived = receiver.wait_for(|settings| settings.forgotten.len() == count);
        timeout(PATIENCE, arrived).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_change_arrives_until_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("controller.toml");
        let entry =
            |node: &str| format!("[[forgotten]]\nnode = '{node}'\nat = 2026-11-21T10:00:00Z\n");
        std::fs::write(&path, entry("n1")).unwrap();
        let loaded = Settings::load(&path).unwrap();
        let stop = CancellationToken::new();
        let mut receiver = follow(path.clone(), loaded, Duration::from_millis(1), stop.clone());
        until(&mut receiver, 1).await;

        let replace = |text: String| {
            let next = dir.path().join("next");
            std::fs::write(&next, text).unwrap();
            std::fs::rename(&next, &path).unwrap();
        };
        replace(entry("n1") + &entry("n2"));
        until(&mut receiver, 2).await;
        std::fs::remove_file(&path).unwrap();
        replace(entry("n3"));
        until(&mut receiver, 1).await;

        stop.cancel();
        let ended = timeout(PATIENCE, receiver.changed()).await.unwrap();
        assert!(ended.is_err(), "its reader has ended");
    }

    #[test]
    fn a_change_counts_when_read_twice_and_a_trouble_is_reported_once_and_changes_nothing() {
        let empty = Settings::default();
        let one =
            || Settings::parse("[[forgotten]]\nnode = 'n1'\nat = 2026-11-21T10:00:00Z\n").unwrap();
        let wrong = |line| {
            Err(SettingsError::Invalid {
                path: "f".into(),
                mistake: super::super::Mistake {
                    line: Some(line),
                    message: "m".into(),
                },
            })
        };
        let trouble = |line| FileChange::Trouble(format!("f:{line}: m"));
        let mut detector = ChangeDetector::default();
        // A save in place: first truncated, then complete.
        for (read, current, change) in [
            (Ok(one()), one(), FileChange::Nothing),
            (Ok(empty.clone()), one(), FileChange::Nothing),
            (Ok(one()), one(), FileChange::Nothing),
            (Ok(empty.clone()), one(), FileChange::Nothing),
            (wrong(1), one(), trouble(1)),
            (wrong(1), one(), FileChange::Nothing),
            (wrong(2), one(), trouble(2)),
            (Ok(empty.clone()), one(), FileChange::Well),
            (Ok(empty.clone()), one(), FileChange::Changed(empty.clone())),
            (Ok(empty.clone()), empty.clone(), FileChange::Nothing),
            (wrong(2), empty.clone(), trouble(2)),
        ] {
            let words = format!("{read:?}");
            assert_eq!(detector.observe(read, &current), change, "{words}");
        }
    }
}
