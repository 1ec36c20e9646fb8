//! Records of running workers: an agent finds those that an earlier agent could not kill.
//!
//! One file per worker, `<key>.json` (see `key`), renamed into place before the worker gets its
//! first job, and removed when it is gone. A record is valid only in the boot in which it was
//! written, and only while the process with its pid has its start time.
//!
//! A record that cannot be read is not "no worker": the key in its file name stays blocked until an
//! administrator removes the file, or the machine is rebooted (the directory should be on tmpfs). A
//! file whose name has no key either is reported and ignored.

use std::{
    fs, io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use drivebay_common::files::{self, Durability};
use serde::{Deserialize, Serialize};

use super::WorkerKey;
use drivebay_sys::process;

/// Record of a worker process, written to a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    pub boot_id: String,
    pub pid: i32,
    pub start_ticks: u64,
    #[serde(flatten)]
    pub key: WorkerKey,
}

/// Record of a worker of an earlier agent.
#[derive(Debug)]
pub(super) struct Leftover {
    pub key: WorkerKey,
    pub path: PathBuf,
    /// Age of the record's file: an upper limit of the time for which the worker has been stuck.
    pub age: Duration,
    pub worker: NoteRead,
}

/// Result of reading a record.
#[derive(Debug)]
pub(super) enum NoteRead {
    Worker(Note),
    /// The file cannot be parsed; its name has a key.
    Unknown,
}

/// Returns the path of a worker's record.
pub(super) fn path(dir: &Path, key: &WorkerKey) -> PathBuf {
    dir.join(format!("{key}.json"))
}

/// Returns the key in a record's file name; None if it has an escape: only the record's contents
/// have that key.
fn key_of(path: &Path) -> Option<WorkerKey> {
    let stem = path.file_name()?.to_str()?.strip_suffix(".json")?;
    stem.parse().ok()
}

/// Creates the directory of the records with mode 0700, unless it exists. Blocks.
pub(super) fn make_dir(dir: &Path) -> io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
}

/// True if the name certainly does not exist; false also if that cannot be determined. Blocks.
pub(super) fn is_absent(dir: &Path) -> bool {
    dir.symlink_metadata()
        .is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// Writes a record atomically, without syncing it. Blocks.
pub(super) fn write(path: &Path, note: &Note) -> io::Result<()> {
    if let Some(dir) = path.parent().filter(|dir| is_absent(dir)) {
        // Creating it failed when the agent started, e.g. for lack of space.
        make_dir(dir)?;
    }
    // After a power failure there is no worker to find: the record need not be durable.
    files::replace(path, &serde_json::to_vec(note)?, Durability::Fast)
}

/// Removes a record; one that does not exist is no error. Blocks.
pub(super) fn remove(path: &Path) {
    if let Err(error) = fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        // The next agent observes that the worker is gone; this agent's next worker overwrites the
        // record.
        tracing::warn!(path = %path.display(), %error, "cannot remove a worker record");
    }
}

/// Returns the records of this boot that earlier agents left, and removes those of other boots.
/// Blocks.
pub(super) fn read_all(dir: &Path) -> io::Result<Vec<Leftover>> {
    let boot_id = process::boot_id()?;
    let mut leftovers = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        match path.extension().and_then(|extension| extension.to_str()) {
            // An unfinished write: its worker never got a job, and exited with its agent.
            Some("new") => remove(&path),
            Some("json") => leftovers.extend(read(&path, &boot_id)?),
            _ => {}
        }
    }
    Ok(leftovers)
}

fn read(path: &Path, boot_id: &str) -> io::Result<Option<Leftover>> {
    let modified = fs::metadata(path).and_then(|metadata| metadata.modified());
    let age = SystemTime::now()
        .duration_since(modified.unwrap_or(SystemTime::UNIX_EPOCH))
        .unwrap_or_default();
    let parsed = serde_json::from_slice::<Note>(&fs::read(path)?);
    let (key, worker) = match parsed {
        Ok(note) if note.boot_id != boot_id => {
            remove(path);
            return Ok(None);
        }
        // A record is valid only under its own name, so that no slot has two.
        Ok(note) if is_named_by(path, &note.key) => (note.key.clone(), NoteRead::Worker(note)),
        other => match key_of(path) {
            Some(key) => {
                tracing::warn!(path = %path.display(), drive = key.drive().map(display), slot = %key.slot, error = ?other.err(),
                    "cannot read a worker record; its slot is blocked: look for a process `drivebay-agent worker` of this drive, then remove the file");
                (key, NoteRead::Unknown)
            }
            None => {
                tracing::warn!(path = %path.display(), error = ?other.err(), "unexpected file among worker records; remove it");
                return Ok(None);
            }
        },
    };
    Ok(Some(Leftover {
        key,
        path: path.to_owned(),
        age,
        worker,
    }))
}

fn is_named_by(file: &Path, key: &WorkerKey) -> bool {
    file.file_name() == path(Path::new(""), key).file_name()
}

impl Leftover {
    /// Returns the worker's pid; None if its record cannot be read.
    pub(super) fn pid(&self) -> Option<i32> {
        match &self.worker {
            NoteRead::Worker(note) => Some(note.pid),
            NoteRead::Unknown => None,
        }
    }

    /// Kills the process if it is still the worker of the record. Its tools are not searched for:
    /// they die with it, and an orphan's session id does not prove that it was started by Drivebay.
    /// Blocks.
    pub(super) fn kill(&self) {
        if let NoteRead::Worker(note) = &self.worker
            && let Ok(Some(stat)) = process::stat(note.pid)
            && stat.start_ticks == note.start_ticks
        {
            process::kill_group(note.pid);
            let _ = process::kill_remains(note.pid, note.start_ticks);
        }
    }

    /// True if no process of the worker is left; removes its record then. False also if that cannot
    /// be determined. Blocks, but on /proc and the records only.
    pub(super) fn is_gone(&self) -> bool {
        match &self.worker {
            NoteRead::Worker(note) => {
                let gone = process::remains(note.pid, note.start_ticks)
                    .is_ok_and(|remains| remains.is_empty());
                if gone {
                    remove(&self.path);
                }
                gone
            }
            NoteRead::Unknown => matches!(self.path.try_exists(), Ok(false)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Lane, Slot, golden};
    use drivebay_model::DriveId;

    fn key(drive: &str) -> WorkerKey {
        (&DriveId(drive.to_owned()), Slot::Background).into()
    }

    #[test]
    fn a_note_of_another_boot_is_removed_and_one_that_cannot_be_read_blocks_its_slot() {
        let dir = tempfile::tempdir().unwrap();
        let old = path(dir.path(), &key("old"));
        let note = Note {
            boot_id: "another".into(),
            pid: std::process::id().cast_signed(),
            start_ticks: 1,
            key: key("old"),
        };
        write(&old, &note).unwrap();
        let torn = path(dir.path(), &key("torn"));
        fs::write(&torn, "{\"pid\": 1").unwrap();
        fs::write(dir.path().join("stray.json"), "").unwrap();

        let leftovers = read_all(dir.path()).unwrap();
        assert!(!old.exists());
        assert_eq!(leftovers.len(), 1);
        assert_eq!(leftovers[0].key, key("torn"));
        assert!(!leftovers[0].is_gone());
        fs::remove_file(&torn).unwrap();
        assert!(leftovers[0].is_gone());
    }

    #[test]
    fn a_note_is_written_and_read_as_the_golden_one() {
        let note = Note {
            boot_id: "5974fa82-45ad-42de-80e7-7bfabdd07230".to_owned(),
            pid: 8844,
            start_ticks: 240_001,
            key: (&DriveId("wwn-sda".into()), Slot::Foreground).into(),
        };
        let golden = golden::compare("worker-note.json", &serde_json::to_vec(&note).unwrap());
        let dir = tempfile::tempdir().unwrap();
        let file = path(dir.path(), &note.key);
        fs::write(&file, golden).unwrap();
        // Must be read as a record of this boot: a worker, with its key.
        let leftover = read(&file, &note.boot_id).unwrap().unwrap();
        assert_eq!(leftover.key, note.key);
        assert!(matches!(leftover.worker, NoteRead::Worker(_)));
    }

    #[test]
    fn a_note_lasts_as_long_as_its_process() {
        let dir = tempfile::tempdir().unwrap();
        let me = process::stat(std::process::id().cast_signed())
            .unwrap()
            .unwrap();
        let mut note = Note {
            boot_id: process::boot_id().unwrap(),
            pid: me.pid,
            start_ticks: me.start_ticks,
            key: key("d").on(Lane::Volume(uuid::Uuid::from_u128(7))),
        };
        let file = path(dir.path(), &note.key);
        write(&file, &note).unwrap();
        assert!(!read_all(dir.path()).unwrap()[0].is_gone());
        assert!(file.exists());
        note.start_ticks += 1;
        write(&file, &note).unwrap();
        assert!(read_all(dir.path()).unwrap()[0].is_gone());
        assert!(!file.exists());
    }
}
