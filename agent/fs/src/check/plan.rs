//! Decides how a volume's filesystem can be checked now, with a reliable result. Pure.

use crate::kind::{self, LiveCheck};
use drivebay_model::{CheckOutcome, FsType, Inconclusive, Layout, units::human_sizes};

/// Smallest useful snapshot, bytes.
const LEAST_SNAPSHOT: u64 = 64 << 20;

/// Check of a mounted volume that cannot be checked with a reliable result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Doubtful {
    /// Only an unmounted volume is checked; else the plan is `Plan::Not`, with the reason why no
    /// snapshot can be made.
    #[default]
    Leave,
    /// Several runs on the live device; only complaints of every run count.
    Repeat {
        /// Number of runs, at least two.
        runs: u32,
    },
}

/// Facts about a volume that the plan depends on.
#[derive(Debug, Clone)]
pub struct Facts<'a> {
    /// Filesystem of the volume, if it was mounted before; None for raw volumes and new ones.
    pub fs_type: Option<FsType>,
    pub layout: Layout,
    /// True if the volume is mounted or bound anywhere.
    pub in_use: bool,
    /// True if it is encrypted, and so cannot be read once it is unmounted.
    pub is_encrypted: bool,
    /// Reason why the drive or the record is not reliable now, for a message.
    pub trouble: Option<&'a str>,
    /// Free bytes on the drive.
    pub free_bytes: u64,
    /// Size of the volume.
    pub bytes: u64,
    /// Limit of a snapshot's size by the volume's class; 0: no snapshots.
    pub reserve_bytes: u64,
    /// Path where it is mounted, for a scrub.
    pub mounted_at: Option<&'a std::path::Path>,
    /// Outcome of the last check since the volume was mounted last.
    pub last: Option<&'a CheckOutcome>,
    /// Configured check of volumes that cannot be checked otherwise.
    pub doubtful: Doubtful,
}

/// Method of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plan {
    /// The volume itself, which is not mounted anywhere.
    Unmounted,
    /// A snapshot of the volume.
    Snapshot {
        /// Room for blocks that are written while it exists.
        bytes: u64,
    },
    /// The filesystem's own scrub, while it is mounted.
    Scrub {
        /// Path of a mount of it.
        at: std::path::PathBuf,
    },
    /// Several runs on the live device.
    Repeated {
        /// Number of runs, at least two; the one of `Doubtful::Repeat`.
        runs: u32,
    },
    /// No check is possible.
    Not {
        /// Reason, and what would make a check possible.
        why: String,
    },
}

/// Decides how a volume is checked.
pub fn plan(facts: &Facts<'_>) -> Plan {
    let not = |why: &str| Plan::Not {
        why: why.to_owned(),
    };
    let Some(fs_type) = facts.fs_type else {
        return not("it has no filesystem that Drivebay made and mounted");
    };
    if let Some(trouble) = facts.trouble {
        return not(trouble);
    }
    let live_check = &kind::of(fs_type).facts().live_check;
    let snapshot = snapshot(facts);
    if !facts.in_use && facts.is_encrypted {
        return not("it is encrypted and not open; it is checked while it is mounted");
    }
    if !facts.in_use {
        let dirty = matches!(
            facts.last,
            Some(CheckOutcome::Inconclusive {
                why: Inconclusive::DirtyLog,
                ..
            })
        );
        return match snapshot {
            // The log is then replayed on the snapshot, and the volume stays as it is.
            Ok(bytes) if dirty && matches!(live_check, LiveCheck::Snapshot(_)) => {
                Plan::Snapshot { bytes }
            }
            _ => Plan::Unmounted,
        };
    }
    match (live_check, facts.mounted_at, snapshot) {
        (LiveCheck::Scrub(_), Some(at), _) => Plan::Scrub { at: at.to_owned() },
        (LiveCheck::Scrub(_), None, _) => not("it is mounted, and not at its staging path"),
        (LiveCheck::Snapshot(_), _, Ok(bytes)) => Plan::Snapshot { bytes },
        (LiveCheck::Snapshot(_), _, Err(why)) => match facts.doubtful {
            Doubtful::Repeat { runs } => Plan::Repeated { runs },
            Doubtful::Leave => Plan::Not { why },
        },
    }
}

/// Returns the size in bytes of a snapshot that can be made, or the reason why none can.
fn snapshot(facts: &Facts<'_>) -> Result<u64, String> {
    const MOUNTED: &str = "it is mounted, and";
    let later = match facts.is_encrypted {
        true => "it is encrypted, and cannot be checked once it is unmounted",
        false => "it is checked after it is unmounted",
    };
    if facts.layout != Layout::Lvm {
        return Err(format!("{MOUNTED} a partition has no snapshots; {later}"));
    }
    if facts.reserve_bytes == 0 {
        return Err(format!(
            "{MOUNTED} its class has check-reserve = \"0\"; {later}"
        ));
    }
    // A snapshot needs no more room than for all of its origin, and for LVM's own table.
    let wanted = facts
        .reserve_bytes
        .min(facts.bytes.saturating_add(facts.bytes / 64))
        .max(LEAST_SNAPSHOT);
    if wanted > facts.free_bytes {
        let [free, needed] = human_sizes([facts.free_bytes, wanted]);
        return Err(format!(
            "{MOUNTED} its drive has {free} free, and a snapshot takes {needed} (check-reserve of its class); {later}"
        ));
    }
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;

    const GIB: u64 = 1 << 30;

    fn mounted() -> Facts<'static> {
        Facts {
            fs_type: Some(FsType::Ext4),
            layout: Layout::Lvm,
            in_use: true,
            is_encrypted: false,
            trouble: None,
            free_bytes: 10 * GIB,
            bytes: 20 * GIB,
            reserve_bytes: GIB,
            mounted_at: Some(Path::new("/s")),
            last: None,
            doubtful: Doubtful::Leave,
        }
    }

    fn why(facts: &Facts<'_>) -> String {
        match plan(facts) {
            Plan::Not { why } => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_mounted_filesystem_is_checked_where_it_stands_still_and_else_not() {
        assert_eq!(plan(&mounted()), Plan::Snapshot { bytes: GIB });
        let small = Facts {
            bytes: GIB / 2,
            ..mounted()
        };
        assert_eq!(
            plan(&small),
            Plan::Snapshot {
                bytes: GIB / 2 + GIB / 128
            }
        );
        let partition = Facts {
            layout: Layout::Partition,
            ..mounted()
        };
        let encrypted = Facts {
            is_encrypted: true,
            ..partition.clone()
        };
        assert!(why(&encrypted).contains("cannot be checked once it is unmounted"));
        let outcome = CheckOutcome::NotCheckable {
            why: why(&partition),
        };
        assert!(
            outcome
                .text()
                .starts_with("not checkable: it is mounted, and a partition"),
            "{}",
            outcome.text()
        );
        assert!(
            why(&Facts {
                free_bytes: GIB - 1,
                ..mounted()
            })
            .contains("1023 MiB free, and a snapshot takes 1 GiB (check-reserve")
        );
        assert!(
            why(&Facts {
                reserve_bytes: 0,
                ..mounted()
            })
            .contains("check-reserve")
        );
        let repeat = Facts {
            doubtful: Doubtful::Repeat { runs: 5 },
            ..partition
        };
        assert_eq!(plan(&repeat), Plan::Repeated { runs: 5 });
        // A reliable method takes precedence.
        let better = Facts {
            doubtful: Doubtful::Repeat { runs: 5 },
            ..mounted()
        };
        assert_eq!(plan(&better), Plan::Snapshot { bytes: GIB });
    }

    #[test]
    fn btrfs_is_scrubbed_and_never_copied_under_its_own_uuid() {
        for layout in [Layout::Lvm, Layout::Partition] {
            let facts = Facts {
                fs_type: Some(FsType::Btrfs),
                layout,
                ..mounted()
            };
            assert_eq!(
                plan(&facts),
                Plan::Scrub {
                    at: PathBuf::from("/s")
                }
            );
            assert!(
                why(&Facts {
                    mounted_at: None,
                    ..facts
                })
                .contains("mounted")
            );
        }
    }

    #[test]
    fn an_unmounted_filesystem_is_checked_itself_unless_its_log_is_dirty() {
        let free = Facts {
            in_use: false,
            ..mounted()
        };
        assert_eq!(plan(&free), Plan::Unmounted);
        let dirty = CheckOutcome::inconclusive(Inconclusive::DirtyLog, "");
        let dirty = Facts {
            last: Some(&dirty),
            ..free
        };
        assert_eq!(plan(&dirty), Plan::Snapshot { bytes: GIB });
        assert_eq!(
            plan(&Facts {
                layout: Layout::Partition,
                ..dirty.clone()
            }),
            Plan::Unmounted
        );
        assert_eq!(
            plan(&Facts {
                free_bytes: 0,
                ..dirty.clone()
            }),
            Plan::Unmounted
        );
        assert_eq!(
            plan(&Facts {
                fs_type: Some(FsType::Btrfs),
                ..dirty
            }),
            Plan::Unmounted
        );
    }

    #[test]
    fn what_is_not_ours_or_not_in_order_is_left_alone() {
        for in_use in [false, true] {
            assert!(
                why(&Facts {
                    fs_type: None,
                    in_use,
                    ..mounted()
                })
                .contains("filesystem")
            );
            assert_eq!(
                why(&Facts {
                    trouble: Some("away"),
                    in_use,
                    ..mounted()
                }),
                "away"
            );
        }
    }
}
