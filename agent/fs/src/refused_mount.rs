//! Finds out why the kernel refused a mount: it answers EINVAL to a wrong option and to a damaged superblock alike, and only
//! its log distinguishes them. Pure.

use super::kind;
use drivebay_model::FsType;

/// Messages about features of a later kernel, which are no damage.
const NEWER: &[&str] = &[
    "unsupported optional features",
    "unknown incompatible features",
    "unknown read-only compatible features",
    "cannot be safely mounted by this kernel",
];

/// Returns the line that shows the filesystem on `device` to be damaged, of those that the kernel logged during the mount.
/// None: an option may be wrong, or the filesystem is newer than this kernel.
pub(super) fn damage<'a>(fs_type: FsType, device: &str, logged: &'a [String]) -> Option<&'a str> {
    let names = [format!("({device})"), format!("(device {device})")];
    let own = || {
        let lines = logged.iter().map(String::as_str);
        lines.filter(|line| names.iter().any(|name| line.contains(name)))
    };
    let has = |line: &str, words: &[&str]| words.iter().any(|words| line.contains(words));
    let words = kind::of(fs_type).facts().damage;
    match own().any(|line| has(line, NEWER)) {
        true => None,
        false => own().find(|line| has(line, words)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn damaged(fs_type: FsType, logged: &[&str]) -> bool {
        let logged: Vec<String> = logged.iter().map(|&line| line.to_owned()).collect();
        damage(fs_type, "loop0", &logged).is_some()
    }

    // Lines of Linux 6.18.
    #[test]
    fn what_the_kernel_logs_of_a_damaged_filesystem_is_damage() {
        for line in [
            "EXT4-fs (loop0): Invalid log block size: 20",
            "EXT4-fs (loop0): inodes count not valid: 16384 vs 56",
            "EXT4-fs (loop0): bad geometry: block count 999999 exceeds size of device (65536 blocks)",
        ] {
            assert!(damaged(FsType::Ext4, &[line]), "{line}");
        }
        assert!(damaged(
            FsType::Xfs,
            &[
                "XFS (loop0): Inode block alignment (8) must match chunk size (4096) for sparse inodes.",
                "XFS (loop0): SB validate failed with error -22.",
            ]
        ));
        assert!(damaged(
            FsType::Xfs,
            &["XFS (loop0): Failed to read root inode 0x76adf1, error 22"]
        ));
        assert!(damaged(
            FsType::Btrfs,
            &["BTRFS error (device loop0): superblock checksum mismatch"]
        ));
    }

    #[test]
    fn a_refused_option_a_newer_filesystem_and_another_device_are_none() {
        for (fs_type, line) in [
            (FsType::Ext4, "ext4: Unknown parameter 'foo'"),
            (
                FsType::Ext4,
                "EXT4-fs (loop0): can't mount with both data=journal and delalloc",
            ),
            (
                FsType::Ext4,
                "EXT4-fs (loop0): couldn't mount because of unsupported optional features (80000000)",
            ),
            (
                FsType::Ext4,
                "EXT4-fs (loop01): bad geometry: block count 9 exceeds size of device (8 blocks)",
            ),
            (
                FsType::Xfs,
                "XFS (loop0): invalid logbufs value: 99 [not 2-8]",
            ),
            (
                FsType::Xfs,
                "XFS (loop0): quota support not available in this kernel.",
            ),
            (
                FsType::Xfs,
                "XFS (loop1): SB validate failed with error -22.",
            ),
        ] {
            assert!(!damaged(fs_type, &[line]), "{line}");
        }
        let newer = [
            "XFS (loop0): Superblock has unknown incompatible features (0x80) enabled.",
            "XFS (loop0): Filesystem cannot be safely mounted by this kernel.",
            "XFS (loop0): SB validate failed with error -22.",
        ];
        assert!(!damaged(FsType::Xfs, &newer));
        assert!(!damaged(FsType::Xfs, &[]));
    }
}
