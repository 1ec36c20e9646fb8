//! Volume conditions from filesystem checks. Pure.

use crate::kind;
use drivebay_model::{
    CheckMethod, CheckOutcome, Checked, FsType,
    condition::{Condition, Reason},
};

/// Returns the condition that follows from the last conclusive check; none if it was clean, or never run.
pub fn conditions(checked: &Checked, fs_type: FsType) -> Vec<Condition> {
    let Some(check) = &checked.conclusive else {
        return Vec::new();
    };
    let CheckOutcome::Corrupt { what, mendable } = &check.outcome else {
        return Vec::new();
    };
    let how = match check.method {
        Some(CheckMethod::Snapshot) => " on a snapshot",
        Some(CheckMethod::Repeated) => {
            " on the mounted filesystem, which is often wrong (method = \"repeated\")"
        }
        _ => "",
    };
    let facts = kind::of(fs_type).facts();
    let condition = match facts.scrub() {
        Some(scrub) if *mendable => Condition::new(
            Reason::FilesystemMendable,
            format!(
                "{}{how} found damaged blocks that have a good copy ({what}); see the drive, and run {}",
                check.tool, scrub.mend
            ),
        ),
        _ => Condition::new(
            Reason::FilesystemCorrupted,
            format!(
                "{}{how} found its filesystem damaged: {what}; save what reads, delete the pod, and repair it ({}); it is checked again after each use",
                check.tool, facts.advice.damage
            ),
        ),
    };
    vec![condition]
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use drivebay_model::LastCheck;

    #[test]
    fn damage_is_reported_in_the_same_words_until_a_clean_check() {
        let check = |at, outcome| LastCheck {
            at,
            method: Some(CheckMethod::Unmounted),
            tool: "e2fsck -fn".into(),
            outcome,
            took_ms: at,
        };
        let corrupt = || CheckOutcome::Corrupt {
            what: "Inode 7".into(),
            mendable: false,
        };
        let mut checked = Checked::never(Uuid::from_u128(1));
        assert!(conditions(&checked, FsType::Ext4).is_empty());
        checked.take(check(1, corrupt()));
        let reported = conditions(&checked, FsType::Ext4);
        assert_eq!(
            (reported[0].status.as_str(), reported[0].reason.as_str()),
            ("DATA_LOSS", "FilesystemCorrupted")
        );
        assert!(
            reported[0]
                .message
                .contains("e2fsck -fn found its filesystem damaged: Inode 7; "),
            "{reported:?}"
        );
        checked.take(check(2, corrupt()));
        assert_eq!(conditions(&checked, FsType::Ext4), reported);
        checked.take(check(3, CheckOutcome::Clean));
        assert!(conditions(&checked, FsType::Ext4).is_empty());
    }

    #[test]
    fn what_has_a_good_copy_is_not_lost() {
        let mut checked = Checked::never(Uuid::from_u128(1));
        checked.take(LastCheck {
            at: 1,
            method: Some(CheckMethod::Scrub),
            tool: "btrfs scrub start -Br".into(),
            outcome: CheckOutcome::Corrupt {
                what: "x".into(),
                mendable: true,
            },
            took_ms: 1,
        });
        assert_eq!(
            conditions(&checked, FsType::Btrfs)[0].status,
            drivebay_model::condition::Status::Degraded
        );
    }
}
