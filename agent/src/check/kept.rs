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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        golden,
        model::{CheckMethod, CheckOutcome, LastCheck},
    };

    #[tokio::test]
    async fn results_are_written_and_read_as_the_golden_ones() {
        let checked = Checked {
            fs_uuid: Uuid::from_u128(8),
            conclusive: Some(LastCheck {
                at: 1_795_410_496,
                method: Some(CheckMethod::Unmounted),
                tool: "e2fsck -fn".into(),
                outcome: CheckOutcome::Clean,
                took_ms: 76,
            }),
            latest: Some(LastCheck {
                at: 1_795_410_499,
                method: None,
                tool: String::new(),
                outcome: CheckOutcome::NotCheckable {
                    why: "its drive is failing".into(),
                },
                took_ms: 0,
            }),
        };
        let (dir, volume) = (tempfile::tempdir().unwrap(), Uuid::from_u128(7));
        write(dir.path(), volume, &checked).await.unwrap();
        golden::compare(
            "check.json",
            &std::fs::read(file(dir.path(), volume)).unwrap(),
        );
        assert_eq!(read(dir.path(), volume).await, Some(checked));
    }
}
