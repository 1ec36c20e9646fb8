//! Persisted results of filesystem checks: one small file per volume in the state directory. Losing them loses no data.

use std::io;

use uuid::Uuid;

use super::{Damage, StateDir, StateFile, StateKind, Stored};
use drivebay_model::Checked;

/// Returns the file with the results of a volume.
pub fn file(dir: &StateDir, volume: Uuid) -> StateFile<Checked> {
    StateFile::of(dir, &volume.to_string())
}

impl Stored for Checked {
    const KIND: StateKind = StateKind::Checks;

    fn from_bytes(bytes: &[u8]) -> Result<Self, Damage> {
        Ok(serde_json::from_slice(bytes)?)
    }

    fn to_bytes(&self) -> io::Result<Vec<u8>> {
        Ok(serde_json::to_vec_pretty(self)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden;
    use drivebay_model::{CheckMethod, CheckOutcome, LastCheck};

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
        let kept = file(&StateDir::new(dir.path()), volume);
        kept.save(checked.clone()).await.unwrap();
        golden::compare("check.json", &std::fs::read(kept.path()).unwrap());
        assert_eq!(kept.load().await.unwrap(), Some(checked));
    }
}
