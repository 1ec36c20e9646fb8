//! Creations in progress, recorded one file each in the runtime directory: an agent that is killed during one leaves a
//! worker that continues, and a successor must not create the volume elsewhere meanwhile.
//!
//! Not persistent: after a reboot no earlier worker is left, and what it created is found on its drive. A record that
//! is left after its creation has ended costs reading one drive.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use drivebay_common::files::{self, Durability};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Doubt, StateError};
use drivebay_sys::{offload::offload, process};

/// Longest time for accessing the directory, which should be on tmpfs and answer at once.
const DEADLINE: Duration = Duration::from_secs(10);

/// Contents of the record of one creation.
#[derive(Debug, Serialize, Deserialize)]
struct Note {
    boot_id: String,
    name: String,
    #[serde(flatten)]
    doubt: Doubt,
}

/// Records of the creations in progress.
#[derive(Debug, Clone)]
pub struct Underway {
    dir: PathBuf,
}

impl Underway {
    /// Keeps the records below the agent's runtime directory.
    pub fn new(runtime_dir: &Path) -> Self {
        Self {
            dir: runtime_dir.join("creating"),
        }
    }

    /// Returns the creations that an earlier agent of this boot had begun, by CSI name.
    ///
    /// # Errors
    /// The directory, or a record in it, cannot be read; one that cannot be parsed is logged and kept.
    pub async fn load(&self) -> io::Result<BTreeMap<String, Doubt>> {
        let dir = self.dir.clone();
        offload("creations", DEADLINE, move || read_all(&dir)).await?
    }

    /// Records a creation before it begins.
    ///
    /// # Errors
    /// The record cannot be written: the creation must not begin.
    pub async fn begin(&self, name: &str, doubt: &Doubt) -> Result<(), StateError> {
        let path = self.path(doubt.uuid);
        let (name, doubt) = (name.to_owned(), doubt.clone());
        let written = path.clone();
        let write = move || {
            let boot_id = process::boot_id()?;
            let note = serde_json::to_vec(&Note {
                boot_id,
                name,
                doubt,
            })?;
            fs::create_dir_all(written.parent().unwrap_or(&written))?;
            // Needed during this boot only.
            files::replace(&written, &note, Durability::Fast)
        };
        let done = offload("creations", DEADLINE, write).await;
        done.and_then(|done| done)
            .map_err(|source| StateError { path, source })
    }

    /// Removes the record, once the outcome is known, or is recorded elsewhere as unknown.
    pub async fn end(&self, uuid: Uuid) {
        let path = self.path(uuid);
        let removed = path.clone();
        let done = offload("creations", DEADLINE, move || fs::remove_file(removed)).await;
        if let Err(error) = done.and_then(|done| done)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path = %path.display(), %error, "cannot remove a pending-creation record");
        }
    }

    fn path(&self, uuid: Uuid) -> PathBuf {
        self.dir.join(format!("{uuid}.json"))
    }
}

fn read_all(dir: &Path) -> io::Result<BTreeMap<String, Doubt>> {
    let boot_id = process::boot_id()?;
    let mut all = BTreeMap::new();
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(all),
        entries => entries?,
    };
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        match serde_json::from_slice::<Note>(&fs::read(&path)?) {
            Ok(note) if note.boot_id == boot_id => {
                all.insert(note.name, note.doubt);
            }
            Ok(_) => fs::remove_file(&path)?,
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "cannot read a pending-creation record");
            }
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use drivebay_model::DriveId;

    #[tokio::test]
    async fn what_is_under_way_is_known_to_the_next_agent_of_this_boot() -> io::Result<()> {
        let dir = tempfile::tempdir()?;
        let underway = Underway::new(dir.path());
        assert_eq!(underway.load().await?, BTreeMap::new());
        let doubt = |n| Doubt {
            drive: DriveId("wwn-a".into()),
            uuid: Uuid::from_u128(n),
        };
        underway.begin("one", &doubt(1)).await.unwrap();
        underway.begin("two", &doubt(2)).await.unwrap();
        underway.end(Uuid::from_u128(1)).await;
        underway.end(Uuid::from_u128(9)).await;
        let two: BTreeMap<String, Doubt> = [("two".to_owned(), doubt(2))].into();
        assert_eq!(Underway::new(dir.path()).load().await?, two);
        // Of another boot: no worker of it is left.
        let path = underway.path(Uuid::from_u128(2));
        let note = fs::read_to_string(&path)?.replace(&process::boot_id()?, "another");
        fs::write(&path, note)?;
        assert_eq!(underway.load().await?, BTreeMap::new());
        assert!(!path.exists());
        Ok(())
    }
}
