//! State files that a newer agent wrote.
//!
//! The contents of such a file are unknown, and starting without them could show a deleted volume as live, or a drive
//! with verdict BAD as good. Therefore the agent does not start: the file is neither read nor moved nor overwritten.

use std::{
    io,
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::state::StateKind;
use drivebay_sys::statefile;

/// A state file of a newer agent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "state file {path} has version {version}, and this agent reads version {supported}: a newer agent wrote it. Nothing was changed. \
     Run that agent again; or move the file away, to lose what this host remembers by it"
)]
pub struct NewerState {
    pub path: PathBuf,
    /// Version in the file.
    pub version: String,
    /// Newest version that this agent reads.
    pub supported: u32,
}

/// Errs if a file of the state directory is newer than this agent. Files that are damaged or cannot be read are left to
/// their readers. Blocks.
pub fn refuse(dir: &Path) -> Result<(), NewerState> {
    for kind in StateKind::ALL {
        let path = dir.join(kind.name());
        let files = match kind.is_dir() {
            true => json_files(&path).unwrap_or_default(),
            false => vec![path],
        };
        for path in files {
            refuse_file(path, kind)?;
        }
    }
    Ok(())
}

fn json_files(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let paths = std::fs::read_dir(dir)?.map(|entry| Ok(entry?.path()));
    let mut paths: Vec<PathBuf> = paths.collect::<io::Result<_>>()?;
    paths.retain(|path| {
        path.extension()
            .is_some_and(|extension| extension == "json")
    });
    paths.sort();
    Ok(paths)
}

fn refuse_file(path: PathBuf, kind: StateKind) -> Result<(), NewerState> {
    let bytes = statefile::read(&path, kind.max_bytes()).unwrap_or_default();
    let supported = kind.version();
    match newer(&bytes, supported) {
        Some(version) => Err(NewerState {
            path,
            version,
            supported,
        }),
        None => Ok(()),
    }
}

/// Returns the version in a state file if it is newer than `supported`. Pure.
pub fn newer(bytes: &[u8], supported: u32) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Any {
        version: Value,
    }
    let Any { version } = serde_json::from_slice(bytes).ok()?;
    // Also one that is no number: no agent up to this one writes that.
    let is_newer = version
        .as_u64()
        .is_none_or(|number| number > u64::from(supported));
    is_newer.then(|| version.to_string())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const FILES: [&str; 7] = [
        "known.json",
        "tombstones.json",
        "health.json",
        "hand-mounts.json",
        "receipts.json",
        "smart/wwn-a.json",
        "checks/00000000-0000-4000-8000-000000000001.json",
    ];

    #[test]
    fn a_file_of_a_newer_version_is_refused_and_left_as_it_is() {
        for name in FILES {
            for version in ["2", "18446744073709551615", "\"2.0\"", "-1"] {
                let dir = tempfile::tempdir().unwrap();
                let path = dir.path().join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                let text = format!("{{\"version\": {version}, \"anything\": [\"else\"]}}");
                fs::write(&path, &text).unwrap();
                let refused = refuse(dir.path()).unwrap_err();
                assert_eq!((&refused.path, refused.supported), (&path, 1), "{name}");
                assert!(refused.to_string().contains(version), "{refused}");
                assert_eq!(fs::read_to_string(&path).unwrap(), text);
                assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
            }
        }
    }

    #[test]
    fn what_is_of_this_version_damaged_or_put_aside_is_not_refused() {
        for text in ["{\"version\": 1}", "{\"version\": 0}", "{ torn", "{}", ""] {
            let dir = tempfile::tempdir().unwrap();
            for name in FILES {
                let path = dir.path().join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(&path, text).unwrap();
                fs::write(path.with_extension("json.bad-1"), "{\"version\": 2}").unwrap();
            }
            assert_eq!(refuse(dir.path()), Ok(()), "{text}");
        }
        assert_eq!(refuse(Path::new("/nowhere")), Ok(()));
    }
}
