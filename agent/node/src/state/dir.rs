//! The state directory: files that could not be saved or read or were damaged, and the findings that follow.
//!
//! Troubles are kept per file and can be subscribed to. A damaged file that was moved aside is a finding for as long as
//! it exists, also after a restart: an operator clears it by removing the file.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

pub use drivebay_common::state_trouble::Trouble;
use tokio::sync::watch;

use drivebay_model::Finding;
use drivebay_smart as smart;
use drivebay_sys::{offload::offload, statefile};

/// Longest time for listing the directory. Exceeding it means that the system's drive does not respond.
const DEADLINE: Duration = Duration::from_secs(10);
/// Part of the name of each file that was moved aside.
const ASIDE: &str = ".json.bad-";

/// Kinds of state files, in the order in which findings are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StateKind {
    /// Drives with volumes, as last seen.
    Known,
    /// Deletions that have not reached their drive.
    Tombstones,
    /// Mounts made by hand.
    ManualMounts,
    /// Moves of volumes to other drives, and the automatic evacuations of the last day.
    Moves,
    /// Kernel evidence, unreadable ranges, expected mounts.
    Health,
    /// Latencies of each drive by the minute, for the comparison with its peers.
    Latency,
    /// SMART history of a drive.
    Smart,
    /// Last filesystem check of a volume.
    Checks,
    /// Receipts of erased volumes.
    Receipts,
}

impl StateKind {
    pub const ALL: [Self; 9] = [
        Self::Known,
        Self::Tombstones,
        Self::ManualMounts,
        Self::Moves,
        Self::Health,
        Self::Latency,
        Self::Smart,
        Self::Checks,
        Self::Receipts,
    ];

    /// Returns the file's name in the state directory, or the name of the directory with one file per drive or volume.
    /// Also the label in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Known => "known.json",
            Self::Tombstones => "tombstones.json",
            Self::ManualMounts => "hand-mounts.json",
            Self::Moves => "moves.json",
            Self::Health => "health.json",
            Self::Latency => "latency.json",
            Self::Smart => "smart",
            Self::Checks => "checks",
            Self::Receipts => "receipts.json",
        }
    }

    pub(crate) const fn is_dir(self) -> bool {
        matches!(self, Self::Smart | Self::Checks)
    }

    /// Returns the largest valid size in bytes; a larger file is damaged. Ten thousand volumes in `known.json` are
    /// about 10 MiB.
    pub(crate) const fn max_bytes(self) -> u64 {
        match self {
            Self::Known | Self::Tombstones => 256 << 20,
            Self::Health | Self::Latency => 64 << 20,
            Self::ManualMounts | Self::Moves | Self::Receipts => 16 << 20,
            Self::Smart => smart::history::MAX_BYTES as u64,
            Self::Checks => 64 << 10,
        }
    }

    /// Returns the newest version that this agent reads, which is the one it writes; a file without a version has the
    /// first.
    pub const fn version(self) -> u32 {
        match self {
            Self::Known
            | Self::Tombstones
            | Self::ManualMounts
            | Self::Moves
            | Self::Health
            | Self::Latency
            | Self::Checks
            | Self::Receipts => 1,
            Self::Smart => smart::history::VERSION,
        }
    }

    /// Returns the remedy for a file that could not be read. `health.json` also holds the expected mounts and the
    /// position in the kernel log: both are loaded before the first call is served, and events since cannot be put in
    /// order with them.
    const fn read_again(self) -> &'static str {
        match self {
            Self::Health => {
                "Mend the state directory and restart the agent (expected mounts and the position in the kernel log are taken up only at start); or move the file away and restart the agent, to begin without it"
            }
            _ => {
                "Mend the state directory, and it is read again by itself within a minute; or move the file away, to begin without it"
            }
        }
    }

    /// Returns the consequence of a file that cannot be saved.
    const fn unsaved(self) -> &'static str {
        match self {
            Self::Known => {
                "a drive that is missing at the agent's next start would not be listed with its volumes"
            }
            Self::Tombstones => {
                "volumes of missing drives cannot be deleted, and quarantines may begin anew at the agent's next start"
            }
            Self::ManualMounts => "no volume can be mounted or unmounted by hand",
            Self::Moves => "no volume can be moved to another drive",
            Self::Health => {
                "kernel errors and unreadable ranges since then would be forgotten at the agent's next start"
            }
            Self::Latency => {
                "latencies since then, and slow drives, would be forgotten at the agent's next start"
            }
            Self::Smart => {
                "SMART values and verdicts since then would be forgotten at the agent's next start, and findings cannot be acknowledged"
            }
            Self::Checks => {
                "results of filesystem checks since then would be forgotten at the agent's next start"
            }
            Self::Receipts => "volumes that are erased meanwhile get no receipt",
        }
    }

    /// Returns the consequence of unknown contents.
    const fn lost(self) -> &'static str {
        match self {
            Self::Known => {
                "drives that were missing at that time are not listed with their volumes until they return"
            }
            Self::Tombstones => {
                "volumes that were deleted while their drive was missing return as live with their drive, without quarantine: delete them again"
            }
            Self::ManualMounts => {
                "volumes that were mounted by hand are not mounted at the next boot: mount them again with --persist"
            }
            Self::Moves => {
                "moves that were not completed are forgotten and their copies erased: ask for them again"
            }
            Self::Health => {
                "kernel errors and unreadable ranges from before no longer count: run a SMART self-test of drives that were suspect"
            }
            Self::Latency => "drives are compared from the beginning",
            Self::Smart => {
                "growth of error counters from before is unknown, and a BAD verdict that rested on it is gone"
            }
            Self::Checks => "the volumes are checked again",
            Self::Receipts => {
                "there are no receipts of volumes that were erased before, and later ones are signed with another key"
            }
        }
    }
}

/// Affected files of each trouble and kind, with the reason.
pub type Troubles = BTreeMap<(Trouble, StateKind), BTreeMap<PathBuf, String>>;

/// The state directory. Clones share its troubles.
#[derive(Debug, Clone)]
pub struct StateDir {
    path: PathBuf,
    troubles: Arc<watch::Sender<Troubles>>,
}

impl StateDir {
    /// Creates it without troubles. Reads nothing.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            troubles: Arc::new(watch::Sender::new(Troubles::new())),
        }
    }

    /// Returns the path of the file, or of the directory with one file per drive or volume.
    pub fn path_of(&self, kind: StateKind) -> PathBuf {
        self.path.join(kind.name())
    }

    pub fn troubles(&self) -> Troubles {
        self.troubles.borrow().clone()
    }

    pub fn subscribe(&self) -> watch::Receiver<Troubles> {
        self.troubles.subscribe()
    }

    /// Records trouble with a file. True if it is new, or has another reason.
    pub(super) fn raise(
        &self,
        trouble: Trouble,
        kind: StateKind,
        path: &Path,
        why: String,
    ) -> bool {
        self.troubles.send_if_modified(|troubles| {
            let files = troubles.entry((trouble, kind)).or_default();
            files.insert(path.to_owned(), why.clone()) != Some(why)
        })
    }

    /// Clears trouble with a file. True if the file had it.
    pub(super) fn clear(&self, trouble: Trouble, kind: StateKind, path: &Path) -> bool {
        self.troubles.send_if_modified(|troubles| {
            let Some(files) = troubles.get_mut(&(trouble, kind)) else {
                return false;
            };
            let was = files.remove(path).is_some();
            if files.is_empty() {
                troubles.remove(&(trouble, kind));
            }
            was
        })
    }

    /// Lists files that were moved aside by this agent or an earlier one, and records exactly those.
    ///
    /// # Errors
    /// The directory cannot be listed; the recorded files stay.
    pub async fn list_set_aside(&self) -> io::Result<()> {
        let dir = self.path.clone();
        let entries = offload("state-list", DEADLINE, move || set_aside(&dir)).await??;
        self.troubles.send_if_modified(|troubles| {
            let before = troubles.clone();
            troubles.retain(|(trouble, _), _| *trouble != Trouble::SetAside);
            for (kind, path) in entries {
                let files = troubles.entry((Trouble::SetAside, kind)).or_default();
                files.insert(path, String::new());
            }
            *troubles != before
        });
        Ok(())
    }
}

/// Lists files that were moved aside. Blocks.
fn set_aside(dir: &Path) -> io::Result<Vec<(StateKind, PathBuf)>> {
    let mut entries = Vec::new();
    for path in statefile::list(dir)? {
        let name = path.file_name().and_then(|name| name.to_str());
        let of = name.and_then(|name| Some(name.split_once(ASIDE)?.0));
        let is_it = |kind: &StateKind| of.is_some() && of == kind.name().strip_suffix(".json");
        if let Some(kind) = StateKind::ALL.into_iter().find(is_it) {
            entries.push((kind, path));
        }
    }
    for kind in StateKind::ALL.into_iter().filter(|kind| kind.is_dir()) {
        let files = statefile::list(&dir.join(kind.name()))?.into_iter();
        let aside = files.filter(|path| path.to_string_lossy().contains(ASIDE));
        entries.extend(aside.map(|path| (kind, path)));
    }
    Ok(entries)
}

/// Returns the host's findings about its state files, with stable texts. Pure.
pub fn findings(troubles: &Troubles) -> Vec<Finding> {
    let finding = |(&(trouble, kind), files): (
        &(Trouble, StateKind),
        &BTreeMap<PathBuf, String>,
    )| {
        let (path, why) = files.first_key_value()?;
        let path = path.display();
        let text = match trouble {
            Trouble::NotSaved => format!(
                "{path} cannot be saved ({why}): {}. Make room in the state directory, or make it writable; it is saved again by itself",
                kind.unsaved()
            ),
            Trouble::NotRead => format!(
                "{path} could not be read ({why}), is left as it is, and not saved: {}. {}",
                kind.lost(),
                kind.read_again()
            ),
            Trouble::SetAside => format!(
                "{path} is a damaged state file that was moved aside: {}. No data of volumes is lost. Remove that file when it is not needed any more, which ends this finding",
                kind.lost()
            ),
        };
        Some(Finding::new(trouble.code(), text))
    };
    troubles.iter().filter_map(finding).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;

    use super::*;

    #[tokio::test]
    async fn files_moved_aside_are_a_finding_until_an_operator_removes_them() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::new(dir.path().join("state"));
        state.list_set_aside().await.unwrap();
        assert_eq!(state.troubles(), Troubles::new(), "no directory yet");
        fs::create_dir_all(dir.path().join("state/smart")).unwrap();
        for name in [
            "known.json",
            "known.json.bad-1",
            "other.json.bad-1",
            "smart/wwn-a.json",
            "smart/wwn-a.json.bad-2",
        ] {
            fs::write(dir.path().join("state").join(name), "").unwrap();
        }
        state.list_set_aside().await.unwrap();
        let reported = findings(&state.troubles());
        let codes: Vec<&str> = reported.iter().map(|one| one.code.as_str()).collect();
        assert_eq!(codes, ["StateLost", "StateLost"]);
        assert!(
            reported[0].message.contains("known.json.bad-1"),
            "{reported:?}"
        );
        assert!(
            reported[1].message.contains("wwn-a.json.bad-2"),
            "{reported:?}"
        );
        fs::remove_file(dir.path().join("state/known.json.bad-1")).unwrap();
        fs::remove_file(dir.path().join("state/smart/wwn-a.json.bad-2")).unwrap();
        state.list_set_aside().await.unwrap();
        assert_eq!(findings(&state.troubles()), []);
    }

    #[test]
    fn each_trouble_of_each_kind_of_file_names_its_consequence() {
        let state = StateDir::new("/state");
        for trouble in Trouble::ALL {
            for kind in StateKind::ALL {
                let path = state.path_of(kind);
                assert!(state.raise(trouble, kind, &path, "no space".into()));
                assert!(!state.raise(trouble, kind, &path, "no space".into()));
                let reported = findings(&state.troubles());
                assert_eq!(reported.len(), 1);
                assert_eq!(reported[0].code, trouble.code());
                assert!(reported[0].message.contains(kind.name()), "{reported:?}");
                let means = match trouble {
                    Trouble::NotSaved => kind.unsaved(),
                    Trouble::NotRead | Trouble::SetAside => kind.lost(),
                };
                assert!(reported[0].message.contains(means), "{reported:?}");
                assert!(state.clear(trouble, kind, &path));
                assert!(!state.clear(trouble, kind, &path));
            }
        }
    }
}
