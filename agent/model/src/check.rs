//! Results of read-only checks of a volume's filesystem.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use drivebay_proto::words::CheckResult;

pub use drivebay_proto::words::CheckMethod;

/// Reason why a check that was started has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Inconclusive {
    /// The filesystem's log holds changes that were not replayed; what the tool reports may be only their absence.
    DirtyLog,
    /// The tool cannot open the device, or the filesystem on it.
    CannotOpen,
    /// The device could not be read: an error of the drive, not of the filesystem.
    CannotRead,
    /// The volume was used or changed during the check.
    InUse,
    /// The snapshot overflowed, or does not exist any more.
    SnapshotFull,
    /// A signal ended the tool, e.g. because memory ran out.
    Killed,
    /// The check exceeded its time limit.
    TimedOut,
    /// The tool is not installed.
    ToolMissing,
    /// The filesystem has a feature that is newer than the tool.
    ToolTooOld,
    /// The tool's answer is not recognised.
    Unclear,
}

impl Inconclusive {
    /// Returns the code in tables and metrics, which is equal to the name in serde.
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

/// Outcome of a check. Only `Clean` and `Corrupt` are statements about the filesystem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum CheckOutcome {
    /// No damage was found.
    Clean,
    /// The filesystem is damaged.
    Corrupt {
        /// The tool's first message about damage, shortened, without names of files.
        what: String,
        /// True if every damaged block has a good copy (btrfs), so that no data is lost yet.
        mendable: bool,
    },
    /// The check was started and does not show whether the filesystem is damaged.
    Inconclusive {
        why: Inconclusive,
        /// Details, shown after the code.
        detail: String,
    },
    /// The check was not started: no method that is available now would give a reliable result.
    NotCheckable {
        /// Reason, and what would make the volume checkable.
        why: String,
    },
}

impl CheckOutcome {
    /// True if it shows whether the filesystem is damaged.
    pub fn is_conclusive(&self) -> bool {
        matches!(self, Self::Clean | Self::Corrupt { .. })
    }

    pub fn inconclusive(why: Inconclusive, detail: impl Into<String>) -> Self {
        Self::Inconclusive {
            why,
            detail: detail.into(),
        }
    }

    /// Returns the outcome without its details. The result's word is equal to the tag in serde.
    pub fn result(&self) -> CheckResult {
        match self {
            Self::Clean => CheckResult::Clean,
            Self::Corrupt { .. } => CheckResult::Corrupt,
            Self::Inconclusive { .. } => CheckResult::Inconclusive,
            Self::NotCheckable { .. } => CheckResult::NotCheckable,
        }
    }

    /// Returns the outcome as text, for tables.
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

/// A check that has begun and has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningCheck {
    /// Time at which it began, seconds since 1970.
    pub since: u64,
    pub method: CheckMethod,
}

/// One check, or one that could not be started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastCheck {
    /// Time at which it ended, seconds since 1970.
    pub at: u64,
    /// None if the check was not started.
    pub method: Option<CheckMethod>,
    /// The command without the device, as an operator would type it; empty if none was run.
    pub tool: String,
    pub outcome: CheckOutcome,
    pub took_ms: u64,
}

/// Results that are kept of the checks of one filesystem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checked {
    /// UUID of the filesystem; one with another UUID was never checked.
    pub fs_uuid: Uuid,
    /// Last conclusive check; the volume's condition and its age derive from it.
    pub conclusive: Option<LastCheck>,
    /// Last check, conclusive or not.
    pub latest: Option<LastCheck>,
}

impl Checked {
    /// Returns the value for a filesystem that was never checked.
    pub fn never(fs_uuid: Uuid) -> Self {
        Self {
            fs_uuid,
            conclusive: None,
            latest: None,
        }
    }

    /// Records a check. An inconclusive one does not replace the last conclusive one.
    pub fn take(&mut self, check: LastCheck) {
        if check.outcome.is_conclusive() {
            self.conclusive = Some(check.clone());
        }
        self.latest = Some(check);
    }

    /// Merges the results of earlier checks; of each kind, the later check is kept.
    pub fn follow(&mut self, earlier: Self) {
        let later = |a: Option<LastCheck>, b: Option<LastCheck>| {
            let both = a.into_iter().chain(b);
            both.max_by_key(|check| check.at)
        };
        self.conclusive = later(earlier.conclusive, self.conclusive.take());
        self.latest = later(earlier.latest, self.latest.take());
    }

    /// Returns the last conclusive check, then the last check if that is not conclusive.
    pub fn to_show(&self) -> Vec<LastCheck> {
        let attempt = self.latest.iter();
        let attempt = attempt.filter(|latest| !latest.outcome.is_conclusive());
        self.conclusive.iter().chain(attempt).cloned().collect()
    }

    /// True if the last conclusive check found damage.
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
    fn an_inconclusive_check_does_not_replace_the_last_result() {
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
