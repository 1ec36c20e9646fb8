//! Failures of the controller's own state files (not saved, not read, damaged), as findings with their consequences. These files
//! hold no volume data.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

pub use drivebay_common::state_trouble::Trouble;
use drivebay_proto::agent::Finding;

/// Kind of a state file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StateKind {
    /// Creates in doubt, and deletes of volumes of forgotten nodes.
    Notes,
    /// Last known inventory of each node.
    Nodes,
}

impl StateKind {
    /// Returns the file's name in the state directory, or that of the directory with a file per node. Also a label value in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Notes => "notes.json",
            Self::Nodes => "nodes",
        }
    }

    const fn unsaved(self) -> &'static str {
        match self {
            Self::Notes => {
                "creates that must be noted first, and deletes of volumes on forgotten nodes, are refused"
            }
            Self::Nodes => {
                "nodes that are disconnected at the controller's next start would be listed as they were before"
            }
        }
    }

    const fn lost(self) -> &'static str {
        match self {
            Self::Notes => {
                "creates in doubt are not known, so a repeated create may make a second volume (`drivebay-controller volumes --unclaimed` lists it), and a forgotten node that returns lists what was deleted meanwhile"
            }
            Self::Nodes => "its node is not listed until its agent connects",
        }
    }

    const fn unread(self) -> &'static str {
        match self {
            Self::Notes => {
                "Creates that must be noted first, and deletes of volumes on forgotten nodes, are refused. Mend the state directory, and it is read again by itself within a minute; or move the file away, to begin without it"
            }
            Self::Nodes => {
                "It is read again by itself, and replaced when the agent connects; or move the file away, which ends this finding"
            }
        }
    }
}

type TroublesByKind = BTreeMap<(Trouble, StateKind), BTreeMap<PathBuf, String>>;

/// Active troubles, each with the files that have it and the reason. Clones share one state.
#[derive(Debug, Clone, Default)]
pub struct StateTroubles(Arc<Mutex<TroublesByKind>>);

impl StateTroubles {
    fn lock(&self) -> MutexGuard<'_, TroublesByKind> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a trouble of a file. Returns true if it or its reason is new.
    pub fn raise(&self, trouble: Trouble, kind: StateKind, path: &Path, why: String) -> bool {
        let mut troubles = self.lock();
        let files = troubles.entry((trouble, kind)).or_default();
        files.insert(path.to_owned(), why.clone()) != Some(why)
    }

    /// Clears a trouble of a file. Returns true if it was raised.
    pub fn clear(&self, trouble: Trouble, kind: StateKind, path: &Path) -> bool {
        let mut troubles = self.lock();
        let Some(files) = troubles.get_mut(&(trouble, kind)) else {
            return false;
        };
        let was = files.remove(path).is_some();
        if files.is_empty() {
            troubles.remove(&(trouble, kind));
        }
        was
    }

    /// Returns the files that have this trouble.
    pub fn files(&self, trouble: Trouble, kind: StateKind) -> Vec<PathBuf> {
        let troubles = self.lock();
        let files = troubles.get(&(trouble, kind)).into_iter().flatten();
        files.map(|(path, _)| path.clone()).collect()
    }

    /// Returns the active troubles, with the kind of file that has each.
    pub fn all(&self) -> Vec<(Trouble, StateKind)> {
        self.lock().keys().copied().collect()
    }

    /// Returns one finding per trouble and kind of file. Its message names one file and the number of others.
    pub fn findings(&self) -> Vec<Finding> {
        let troubles = self.lock();
        let findings = troubles.iter().filter_map(|(&(trouble, kind), files)| {
            let (path, why) = files.first_key_value()?;
            let path = match files.len() {
                1 => path.display().to_string(),
                many => format!("{} (and {} more)", path.display(), many - 1),
            };
            let message = match trouble {
                Trouble::NotSaved => format!(
                    "{path} cannot be saved ({why}): {}. Make room in the state directory, or make it writable; it is saved again by itself",
                    kind.unsaved()
                ),
                Trouble::NotRead => format!(
                    "{path} could not be read ({why}) and is left as it is: {}. {}",
                    kind.lost(),
                    kind.unread()
                ),
                Trouble::SetAside => format!(
                    "{path} is a damaged state file that was moved aside: {}. No data of volumes is lost. Remove that file when it is not needed any more, which ends this finding",
                    kind.lost()
                ),
            };
            Some(Finding {
                code: trouble.code().to_owned(),
                message,
                ..Finding::default()
            })
        });
        findings.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_trouble_of_each_kind_of_file_is_a_finding_until_it_is_over() {
        let troubles = StateTroubles::default();
        for trouble in Trouble::ALL {
            for kind in [StateKind::Notes, StateKind::Nodes] {
                let path = Path::new("/state").join(kind.name());
                assert!(troubles.raise(trouble, kind, &path, "no space".into()));
                assert!(!troubles.raise(trouble, kind, &path, "no space".into()));
                let findings = troubles.findings();
                assert_eq!(findings.len(), 1);
                assert_eq!(findings[0].code, trouble.code());
                assert!(findings[0].message.contains(kind.name()), "{findings:?}");
                assert!(troubles.clear(trouble, kind, &path));
                assert!(!troubles.clear(trouble, kind, &path));
                assert_eq!(troubles.findings(), []);
            }
        }
    }
}
