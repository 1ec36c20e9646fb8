//! Unreadable blocks of a source, and how they are handled in the copy. Pure.

use std::collections::BTreeMap;

use drivebay_model::{
    Extent, runs,
    units::{count, human_size},
};
use drivebay_proto::names;

/// Blocks that are zeros in a copy because they cannot be read on its source, in one attempt.
#[derive(Debug, Default)]
pub(super) struct GivenUp {
    /// Ranges that end behind the bytes copied so far, relative to the volume's start.
    ahead: Vec<Extent>,
    bytes: u64,
}

impl GivenUp {
    /// Adds the unreadable ranges of a step. The step must be repeated with `ahead`.
    pub(super) fn add(&mut self, unreadable: &[Extent]) {
        let new = runs::without(unreadable, &self.ahead);
        self.bytes = self.bytes.saturating_add(runs::bytes(&new));
        self.ahead.extend(new);
    }

    /// Drops the ranges that end at or before byte `done`.
    pub(super) fn copied(&mut self, done: u64) {
        self.ahead.retain(|range| range.end() > done);
    }

    /// Returns the ranges that the next step gives up (`CopyStep::holds_nothing`).
    pub(super) fn ahead(&self) -> Vec<Extent> {
        self.ahead.clone()
    }

    /// Total number of unreadable bytes that the copy skips, each counted once.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Returns the message of a copy that is refused because these ranges of its source cannot be read.
pub(super) fn refusal(unreadable: &[Extent]) -> String {
    let first = unreadable.first().map_or(0, |range| range.start);
    format!(
        "{} in {} of what is copied are unreadable, the first at byte {first}; `drive show` has the files in them; restore or delete those first. Parameter {}: {} of a StorageClass, or --unreadable zeros on the host, makes a copy that has zeros there",
        human_size(runs::bytes(unreadable)),
        count(unreadable.len(), "range"),
        names::PARAM_COPY_UNREADABLE,
        names::COPY_UNREADABLE_ZEROS
    )
}

/// Returns the parameters to record with a copy that has this many unreadable bytes; 0 removes the entry.
pub(super) fn keep(parameters: &BTreeMap<String, String>, bytes: u64) -> BTreeMap<String, String> {
    let mut kept = parameters.clone();
    match bytes {
        0 => kept.remove(names::KEPT_UNREADABLE_BYTES),
        bytes => kept.insert(names::KEPT_UNREADABLE_BYTES.to_owned(), bytes.to_string()),
    };
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use drivebay_csi::new_volume::unreadable_bytes;

    fn range(start: u64, len: u64) -> Extent {
        Extent { start, len }
    }

    #[test]
    fn each_block_that_is_given_up_counts_once_and_is_known_until_it_is_copied() {
        let mut given_up = GivenUp::default();
        given_up.add(&[range(4096, 4096), range(16384, 8192)]);
        given_up.add(&[range(20480, 8192)]);
        assert_eq!(given_up.bytes(), 4096 + 8192 + 4096);
        given_up.copied(16384);
        assert_eq!(given_up.ahead(), [range(16384, 8192), range(24576, 4096)]);
        given_up.copied(28672);
        assert!(given_up.ahead().is_empty());
        assert_eq!(given_up.bytes(), 16384);
    }

    #[test]
    fn what_did_not_read_is_kept_with_the_volume_and_a_copy_that_lacks_nothing_keeps_nothing() {
        let requested: BTreeMap<String, String> = [("class".into(), "fast".into())].into();
        assert_eq!(unreadable_bytes(&requested), 0);
        assert_eq!(keep(&requested, 0), requested);
        let lossy = keep(&requested, 8192);
        assert_eq!((unreadable_bytes(&lossy), lossy.len()), (8192, 2));
        assert_eq!(unreadable_bytes(&keep(&lossy, 4096)), 4096);
        // After an attempt without unreadable blocks.
        assert_eq!(keep(&lossy, 0), requested);
    }

    #[test]
    fn a_refusal_has_the_unreadable_bytes_where_they_begin_and_what_to_write() {
        let text = refusal(&[range(4096, 4096), range(16384, 8192)]);
        for words in [
            "12 KiB in 2 ranges",
            "at byte 4096",
            "copyUnreadable: zeros",
        ] {
            assert!(text.contains(words), "{text}");
        }
    }
}
