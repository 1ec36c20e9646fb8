//! What a read-only check of a volume's filesystem found, and when.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use drivebay_proto::words::CheckResult;

pub use drivebay_proto::words::CheckMethod;

/// Why a check that was begun says nothing about the filesystem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Inconclusive {
    /// Its log holds changes that were not replayed, so that what the tool finds may be their absence.
    DirtyLog,
    /// The device, or what is on it, cannot be opened by the tool.
    CannotOpen,
    /// The device could not be read: the drive's trouble, not the filesystem's.
    CannotRead,
    /// Somebody used or changed the volume meanwhile.
    InUse,
    /// The snapshot did not last: more was written than it had room for, or it is gone.
    SnapshotFull,
    /// A signal ended the tool (out of memory?).
    Killed,
    /// It took longer than it may.
    TimedOut,
    /// The tool is not installed.
    ToolMissing,
    /// The tool does not know a feature of the filesystem, which is newer.
    ToolTooOld,
    /// The tool said something that nobody here knows.
    Unclear,
}

impl Inconclusive {
    /// The code in tables and metrics; the same as in serde.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::DirtyLog => "DirtyLog",
            Self::CannotOpen => "CannotOpen",
            Self::CannotRead => "CannotRead",
            Self::InUse => "InUse",
            Self::SnapshotFull => "SnapshotFull",
            Self::Killed => "Killed",
            Self::TimedOut => "TimedOut",
            Self::ToolMissing => "ToolMissing",
            Self::ToolTooOld => "ToolTooOld",
            Self::Unclear => "Unclear",
        }
    }
}

/// What came of a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum CheckOutcome {
    /// Nothing wrong was found.
    Clean,
    /// The filesystem is damaged.
    Corrupt {
        /// The tool's first complaint, shortened; names of files are left out.
        what: String,
        /// Every damaged block has a good copy (btrfs), so that nothing is lost yet.
        mendable: bool,
    },
    /// Nothing is known from it.
    Inconclusive {
        why: Inconclusive,
        /// In words.
        detail: String,
    },
    /// It was not begun: there is no way to check it now that could be believed.
    NotCheckable {
        /// Why, and what would make it checkable.
        why: String,
    },
}

impl CheckOutcome {
    /// Whether it says something about the filesystem.
    pub fn is_conclusive(&self) -> bool {
        matches!(self, Self::Clean | Self::Corrupt { .. })
    }

    /// An outcome without an answer.
    pub fn inconclusive(why: Inconclusive, detail: impl Into<String>) -> Self {
        Self::Inconclusive {
            why,
            detail: detail.into(),
        }
    }

    /// Without what was found. Its word is the tag in serde.
    pub fn result(&self) -> CheckResult {
        match self {
            Self::Clean => CheckResult::Clean,
            Self::Corrupt { .. } => CheckResult::Corrupt,
            Self::Inconclusive { .. } => CheckResult::Inconclusive,
            Self::NotCheckable { .. } => CheckResult::NotCheckable,
        }
    }

    /// In words, for tables.
    pub fn text(&self) -> String {
        match self {
            Self::Clean => "clean".to_owned(),
            Self::Corrupt { what, .. } => format!("damaged: {what}"),
            Self::Inconclusive { why, detail } => {
                format!("inconclusive ({}): {detail}", why.as_str())
            }
            Self::NotCheckable { why } => format!("not checkable: {why}"),
        }
    }
}

/// One check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastCheck {
    /// When it ended, seconds since 1970.
    pub at: u64,
    /// How; None when it was not begun.
    pub method: Option<CheckMethod>,
    /// The command, as an operator would type it, without the device; empty when there was none.
    pub tool: String,
    /// What came of it.
    pub outcome: CheckOutcome,
    /// Milliseconds.
    pub took_ms: u64,
}

/// What is remembered of the checks of one filesystem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checked {
    /// Which filesystem; another one in its place was never checked.
    pub fs_uuid: Uuid,
    /// The last check that said something about it: what its condition rests on, with its age.
    pub conclusive: Option<LastCheck>,
    /// The last check, whatever came of it.
    pub latest: Option<LastCheck>,
}

impl Checked {
    /// Of a filesystem that was never checked.
    pub fn never(fs_uuid: Uuid) -> Self {
        Self {
            fs_uuid,
            conclusive: None,
            latest: None,
        }
    }

    /// Takes a result.
    pub fn take(&mut self, check: LastCheck) {
        if check.outcome.is_conclusive() {
            self.conclusive = Some(check.clone());
        }
        self.latest = Some(check);
    }

    /// Puts what was kept of earlier checks before what is known: of each kind, the later one counts.
    pub fn follow(&mut self, earlier: Self) {
        let later = |a: Option<LastCheck>, b: Option<LastCheck>| {
            let both = a.into_iter().chain(b);
            both.max_by_key(|check| check.at)
        };
        self.conclusive = later(earlier.conclusive, self.conclusive.take());
        self.latest = later(earlier.latest, self.latest.take());
    }

    /// The last one that said something, then the last attempt if that is another.
    pub fn to_show(&self) -> Vec<LastCheck> {
        let attempt = self.latest.iter();
        let attempt = attempt.filter(|latest| !latest.outcome.is_conclusive());
        self.conclusive.iter().chain(attempt).cloned().collect()
    }

    /// Whether the last word on it is that it is damaged.
    pub fn is_corrupt(&self) -> bool {
        self.conclusive
            .as_ref()
            .is_some_and(|check| matches!(check.outcome, CheckOutcome::Corrupt { .. }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_checks_that_are_read_late_and_those_since_the_later_count() {
        let check = |at, outcome| LastCheck {
            at,
            method: None,
            tool: String::new(),
            outcome,
            took_ms: 1,
        };
        let mut earlier = Checked::never(Uuid::from_u128(1));
        earlier.take(check(5, CheckOutcome::Clean));
        let mut checked = Checked::never(Uuid::from_u128(1));
        checked.follow(earlier.clone());
        assert_eq!(checked, earlier);
        let why = "its drive is failing".to_owned();
        let nothing = check(7, CheckOutcome::NotCheckable { why });
        checked.take(nothing.clone());
        checked.follow(earlier.clone());
        assert_eq!(checked.conclusive, earlier.conclusive);
        assert_eq!(checked.latest, Some(nothing));
    }

    #[test]
    fn what_says_nothing_does_not_replace_the_last_word() {
        let check = |outcome| LastCheck {
            at: 7,
            method: Some(CheckMethod::Unmounted),
            tool: "e2fsck -fn".into(),
            outcome,
            took_ms: 1,
        };
        let mut checked = Checked::never(Uuid::from_u128(1));
        checked.take(check(CheckOutcome::Corrupt {
            what: "x".into(),
            mendable: false,
        }));
        let dirty = CheckOutcome::inconclusive(Inconclusive::DirtyLog, "y");
        checked.take(check(dirty.clone()));
        assert!(checked.is_corrupt());
        assert_eq!(checked.latest.as_ref().unwrap().outcome, dirty);
        checked.take(check(CheckOutcome::Clean));
        assert!(!checked.is_corrupt());
        let text = serde_json::to_string(&checked).unwrap();
        assert_eq!(serde_json::from_str::<Checked>(&text).unwrap(), checked);
    }
}
