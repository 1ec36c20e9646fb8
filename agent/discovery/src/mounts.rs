//! Finds the mount that contains a path.

use std::path::Path;

use drivebay_sys::mountinfo::MountEntry;

/// Returns the mount that contains a path: the last one of those with the longest mount point above it.
pub(super) fn holding<'a>(mounts: &'a [MountEntry], path: &Path) -> Option<&'a MountEntry> {
    mounts
        .iter()
        .filter(|mount| path.starts_with(&mount.mount_point))
        // Of mounts at the same point the last is on top; max_by_key returns the last.
        .max_by_key(|mount| mount.mount_point.as_os_str().len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use drivebay_sys::mountinfo::parse;

    #[test]
    fn a_mount_point_that_only_begins_alike_does_not_hold_the_path() {
        let mounts = parse(b"1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 8:2 / /var/lib rw - ext4 /dev/b rw\n3 1 8:3 / /var/library rw - ext4 /dev/c rw\n4 2 8:4 / /var/lib rw - ext4 /dev/d rw\n").unwrap();
        for (path, source) in [
            ("/var/lib/x", "/dev/d"),
            ("/var/lib", "/dev/d"),
            ("/var/libx", "/dev/a"),
            ("/", "/dev/a"),
        ] {
            let mount = holding(&mounts, Path::new(path)).unwrap();
            assert_eq!(mount.source, Path::new(source), "{path}");
        }
    }
}
