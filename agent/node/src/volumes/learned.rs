//! Conditions that calls find on volumes, recorded at once. Errors in a caller's request are no conditions.

use uuid::Uuid;

use super::Volumes;
use drivebay_evidence::registry::Source;
use drivebay_fs::jobs::{FsError, Growth};
use drivebay_model::{
    Placed, RecordState,
    condition::{Condition, Reason, Status},
};

/// Returns the condition that a failed stage shows; None: it failed for another reason, such as options that the kernel
/// refuses. Pure.
fn of_failed_stage(error: &FsError, placed: &Placed) -> Option<Condition> {
    let not_found = || {
        let is_acknowledged = matches!(placed.record.state, RecordState::Fs { mounted: true, .. });
        let mut condition = Condition::new(Reason::FilesystemNotFound, error.to_string());
        if !is_acknowledged {
            // No data was written to it yet.
            condition.status = Status::Inaccessible;
        }
        condition
    };
    match error {
        FsError::FilesystemGone { .. } | FsError::Unexpected { .. } => Some(not_found()),
        FsError::Mount {
            hint,
            damage,
            source,
            ..
        } => match source.errno()? {
            libc::EUCLEAN | libc::EBADMSG => Some(corrupted(hint)),
            // Also the error for a wrong option: the kernel's log decides.
            libc::EINVAL => damage
                .as_ref()
                .map(|logged| corrupted(&format!("the kernel logged {logged:?}; {hint}"))),
            errno if is_of_reading(errno) => Some(Condition::new(
                Reason::Unreadable,
                format!("its filesystem does not read and was not mounted: {hint}"),
            )),
            _ => None,
        },
        FsError::Probe { source, .. } if source.errno().is_some_and(is_of_reading) => {
            Some(Condition::new(
                Reason::Unreadable,
                "its first sectors do not read, so it was not mounted; see the kernel log, and check the drive",
            ))
        }
        _ => None,
    }
}

fn corrupted(why: &str) -> Condition {
    Condition::new(
        Reason::FilesystemCorrupted,
        format!("the kernel found its filesystem damaged and did not mount it: {why}"),
    )
}

fn is_of_reading(errno: i32) -> bool {
    matches!(
        errno,
        libc::EIO | libc::ENODATA | libc::EREMOTEIO | libc::EILSEQ
    )
}

/// Builds the condition of a filesystem that is smaller than its volume. Pure.
fn not_grown(why: &str) -> Condition {
    Condition::new(
        Reason::FilesystemNotGrown,
        format!(
            "its filesystem is smaller than the volume and could not be grown: {why}; it can be used as it is, and is grown when it is mounted next or expanded again"
        ),
    )
}

impl Volumes {
    /// Replaces the conditions that earlier calls found with `observed`, except those for which `still_so` is true.
    fn learn(&self, uuid: Uuid, still_so: impl Fn(Reason) -> bool, observed: Option<Condition>) {
        let inventory = self.node.inventory();
        let mut now =
            inventory.health(|registry| registry.conditions_of(uuid, Source::Call).to_vec());
        now.retain(|condition| still_so(condition.reason));
        now.extend(observed);
        inventory.record_conditions(Source::Call, std::iter::once(uuid), [(uuid, now)].into());
    }

    /// Records the result of a successful stage.
    pub(super) fn learn_from_stage(&self, uuid: Uuid, growth: &Growth) {
        let not_tried = *growth == Growth::NotTried;
        self.learn(
            uuid,
            |reason| not_tried && reason == Reason::FilesystemNotGrown,
            growth.failure().map(not_grown),
        );
    }

    /// Records the result of a failed stage.
    pub(super) fn learn_from_failed_stage(&self, placed: &Placed, error: &FsError) {
        if let Some(condition) = of_failed_stage(error, placed) {
            let reason = condition.reason;
            self.learn(placed.record.uuid, |other| other != reason, Some(condition));
        }
    }

    /// Records the result of growing the filesystem.
    pub(super) fn learn_from_growing(&self, uuid: Uuid, failure: Option<&str>) {
        self.learn(
            uuid,
            |reason| reason != Reason::FilesystemNotGrown,
            failure.map(not_grown),
        );
    }
}

#[cfg(test)]
#[path = "learned_tests.rs"]
mod tests;
