//! Detects full filesystems. Pure.
//!
//! Usage is exported as metrics, and users alert on the threshold that they want. A filesystem to which nothing can be
//! written any more is different: its pod is failing now, which is what the volume-health proposal means by "out of
//! capacity", and what DEGRADED means. Full means that next to nothing is left, in bytes or in inodes, and lasts until one
//! percent is free again.

use drivebay_fs::jobs::Usage;
use drivebay_model::{
    MIB, Mode,
    condition::{Condition, Reason},
};

const FULL: Reason = Reason::VolumeFull;
const INODES: Reason = Reason::InodesExhausted;

/// Returns the available bytes at which nothing can be written any more: ext4 and XFS reserve some blocks for themselves,
/// and btrfs has unused room in chunks of the other kind.
fn next_to_nothing(total: u64) -> u64 {
    (total / 1000).min(16 * MIB)
}

/// Returns the conditions of a volume's space; `before` are those of the last check. A raw block volume has no filesystem to
/// be full.
pub fn judge(mode: Mode, usage: &Usage, before: &[Condition]) -> Vec<Condition> {
    if mode == Mode::Block {
        return Vec::new();
    }
    let was = |reason| before.iter().any(|condition| condition.reason == reason);
    let enough = |was: bool, left: u64, total: u64, limit: u64| {
        left > if was { limit.max(total / 100) } else { limit }
    };
    let total = usage.total_bytes;
    if !enough(
        was(FULL),
        usage.available_bytes,
        total,
        next_to_nothing(total),
    ) {
        // Without space XFS and btrfs cannot create inodes either: that is one condition, not two.
        return vec![Condition::new(
            FULL,
            "no space is left in its filesystem, so writes to it fail; delete files, or expand the volume",
        )];
    }
    match usage.inodes {
        Some((total, free, _)) if !enough(was(INODES), free, total, 0) => vec![Condition::new(
            INODES,
            "its filesystem has no inodes left, so no file can be created in it; delete files, or expand the volume",
        )],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drivebay_model::GIB;

    fn usage(available: u64, inodes_free: Option<u64>) -> Usage {
        Usage {
            total_bytes: 10 * GIB,
            available_bytes: available,
            used_bytes: 10 * GIB - available,
            inodes: inodes_free.map(|free| (1000, free, 1000 - free)),
            read_only: false,
            unreadable: None,
        }
    }

    #[test]
    fn full_is_next_to_nothing_left_and_lasts_until_a_hundredth_is_free() {
        let hundredth = 10 * GIB / 100;
        let little = 10 * GIB / 1000;
        let mut before = Vec::new();
        for (available, inodes, expected) in [
            (GIB, Some(500), None),
            (little + 1, Some(500), None),
            (little, Some(500), Some(FULL)),
            (0, Some(0), Some(FULL)),
            (hundredth, Some(500), Some(FULL)),
            (hundredth + 1, Some(500), None),
            (hundredth, Some(500), None),
            (GIB, Some(1), None),
            (GIB, Some(0), Some(INODES)),
            (GIB, Some(10), Some(INODES)),
            (GIB, Some(11), None),
            (GIB, None, None),
            (0, None, Some(FULL)),
        ] {
            before = judge(Mode::Mount, &usage(available, inodes), &before);
            let reasons: Vec<_> = before.iter().map(|one| one.reason).collect();
            assert_eq!(reasons, Vec::from_iter(expected), "{available} {inodes:?}");
        }
    }

    #[test]
    fn a_raw_block_volume_is_never_full() {
        // All of it is used, from the first day.
        let raw = usage(0, None);
        assert_eq!(judge(Mode::Block, &raw, &[]), []);
        assert_eq!(judge(Mode::Mount, &raw, &[]).len(), 1);
    }

    #[test]
    fn a_small_volume_is_not_full_while_a_thousandth_is_free() {
        let mut small = usage(0, None);
        small.total_bytes = 64 * MIB;
        small.available_bytes = 64 * MIB / 1000 + 1;
        assert_eq!(judge(Mode::Mount, &small, &[]), []);
    }
}
