//! Results as they outlive the agent: one small file per volume in the state directory. Losing them loses no data.

use std::{io, path::Path, time::Duration};

use uuid::Uuid;

use crate::{
    model::Checked,
    sys::{offload::offload, statefile},
};

/// The form of the files. It is not written: a later one has a member `version`, and makes an agent of today refuse to start
/// (`state::newer`).
pub(crate) const VERSION: u32 = 1;
/// Reading or writing one small file.
const DEADLINE: Duration = Duration::from_secs(10);
/// A file larger than this (bytes) is none of ours.
const MAX: u64 = 64 * 1024;

fn file(dir: &Path, volume: Uuid) -> std::path::PathBuf {
    dir.join(format!("{volume}.json"))
}

/// What is kept of a volume; None when there is nothing, or nothing that reads: it is then checked as if it never was.
pub async fn read(dir: &Path, volume: Uuid) -> Option<Checked> {
    let path = file(dir, volume);
    let wanted = path.clone();
    let read = offload("check-read", DEADLINE, move || {
        statefile::read(&wanted, MAX)
    })
    .await;
    match read.and_then(|read| read) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .inspect_err(|error| {
                tracing::warn!(path = %path.display(), %error, "damaged filesystem check result; the volume is checked again");
            })
            .ok(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "cannot read filesystem check result; the volume is checked again");
            None
        }
    }
}

/// Keeps it.
pub async fn write(dir: &Path, volume: Uuid, checked: &Checked) -> io::Result<()> {
    let bytes = serde_json::to_vec_pretty(checked).map_err(io::Error::other)?;
    statefile::save(file(dir, volume), DEADLINE, || Ok(bytes)).await
}

/// Forgets a volume that is gone.
pub async fn remove(dir: &Path, volume: Uuid) -> io::Result<()> {
    let path = file(dir, volume);
    offload(
        "check-remove",
        DEADLINE,
        move || match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        },
    )
    .await?
}
