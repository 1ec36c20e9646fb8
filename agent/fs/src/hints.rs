//! Advice for operators about errno values of mount(2) and umount2(2), and about filesystems that are not found.

use super::kind;
use drivebay_model::FsType;

/// Returns the advice for a failed mount. Both mount APIs have the same errno values; the kernel log has the details.
pub fn mount(errno: Option<i32>, fs_type: FsType, device: &str) -> String {
    let repair = kind::of(fs_type).facts().advice.corrupt;
    match errno {
        Some(libc::EUCLEAN) => format!("the {fs_type} filesystem is corrupt; see dmesg, save what matters, then run {repair} /dev/{device}"),
        // EFSBADCRC.
        Some(libc::EBADMSG) => format!(
            "the filesystem's superblock, or other metadata, does not fit its checksum; see dmesg. If it is the superblock: {}",
            superblock_copies(fs_type, device)
        ),
        Some(libc::EINVAL) => format!(
            "the kernel refused the superblock or an option; see dmesg (an option that {fs_type} does not know, a damaged superblock, \
             a feature newer than this kernel, or a second filesystem with the same UUID). If it is damaged: {}",
            superblock_copies(fs_type, device)
        ),
        Some(libc::EBUSY) => "the device is mounted differently or held elsewhere, maybe in another mount namespace; see /proc/*/mountinfo".to_owned(),
        Some(libc::EEXIST) => "another device with the same filesystem UUID is known to the kernel; see dmesg".to_owned(),
        Some(libc::ENODEV) => format!("this kernel has no {fs_type}; load or install its module"),
        Some(libc::EROFS) => "the device is read-only, or the filesystem stopped writing after an error; see dmesg".to_owned(),
        Some(libc::ENOSPC) => "the filesystem has no room left for its own mount work (log replay or system mount limit fs.mount-max)".to_owned(),
        Some(libc::EIO) => "the drive failed to read or write; see dmesg and the drive's health".to_owned(),
        Some(libc::ENXIO | libc::ENOTBLK) => "the device is gone".to_owned(),
        Some(libc::ENOENT | libc::ENOTDIR) => "the staging path must be an existing directory".to_owned(),
        Some(libc::ENOMEM) => "out of memory".to_owned(),
        Some(libc::EPERM | libc::EACCES) => "not permitted; the agent must be root with CAP_SYS_ADMIN".to_owned(),
        _ => "see dmesg".to_owned(),
    }
}

/// Returns the advice for a filesystem whose first superblock is damaged or missing: a power failure can tear one that spans
/// sectors. Drivebay does not repair it by itself, because a repair from the wrong copy destroys data that could still be
/// saved.
pub fn superblock_copies(fs_type: FsType, device: &str) -> String {
    let repair = kind::of(fs_type).facts().advice.superblock;
    format!(
        "{fs_type} keeps copies of its superblock: save the bytes of /dev/{device}, then `{repair} /dev/{device}` restores it from one"
    )
}

/// Returns the advice for a failed unmount. `holders`: processes that use the mount.
pub fn unmount(errno: Option<i32>, holders: &[String]) -> String {
    match errno {
        Some(libc::EBUSY) if holders.is_empty() => {
            "it is in use (an open file, a working directory, or a mount below it); end its users"
                .to_owned()
        }
        Some(libc::EBUSY) => format!("it is in use by {}; end them", holders.join(", ")),
        Some(libc::EPERM | libc::EACCES) => {
            "not permitted; the agent must be root with CAP_SYS_ADMIN".to_owned()
        }
        _ => "see dmesg".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_names_the_next_step() {
        assert!(
            mount(Some(libc::EUCLEAN), FsType::Xfs, "sdb2").contains("xfs_repair -n /dev/sdb2")
        );
        assert!(
            mount(Some(libc::EINVAL), FsType::Btrfs, "sdb2")
                .contains("`btrfs rescue super-recover /dev/sdb2`")
        );
        assert!(mount(Some(libc::ENODEV), FsType::Btrfs, "sdb2").contains("no btrfs"));
        assert!(
            unmount(Some(libc::EBUSY), &["postgres (12)".to_owned()]).contains("postgres (12)")
        );
    }
}
