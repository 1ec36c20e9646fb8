//! What the mount table says of volumes: which devices are in use, and where. Pure.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    path::PathBuf,
};

use crate::sys::mountinfo::MountEntry;

/// What the mount table says, as far as volumes are concerned.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct MountView {
    /// Kernel names and `major:minor` of mounted devices, and of device nodes that are bound somewhere.
    pub in_use: BTreeSet<String>,
    /// Where each of these is mounted or bound.
    pub places: BTreeMap<String, BTreeSet<String>>,
    /// Mount points that are read-only by their own flag (asked for), not by their filesystem's.
    pub read_only: HashSet<PathBuf>,
}

/// Derives the view. Pure but for `number_of`: the device number of a mount's source. It is asked for btrfs
/// alone, whose mounts have a number of their own and may name an LV by its link in /dev/mapper.
pub fn view(
    mounts: &[MountEntry],
    number_of: impl Fn(&MountEntry) -> Option<(u32, u32)>,
) -> MountView {
    let mut view = MountView::default();
    for mount in mounts {
        let mut devices = vec![format!("{}:{}", mount.dev.0, mount.dev.1)];
        if let Ok(name) = mount.source.strip_prefix("/dev") {
            devices.push(name.to_string_lossy().into_owned());
        }
        if mount.fs_type == "btrfs"
            && let Some((major, minor)) = number_of(mount)
        {
            devices.push(format!("{major}:{minor}"));
        }
        // A raw block volume: a device node of /dev, bound onto a file.
        if mount.fs_type == "devtmpfs"
            && let Some(name) = mount.root.to_str().and_then(|root| root.strip_prefix('/'))
            && !name.is_empty()
        {
            devices.push(name.to_owned());
        }
        let place = mount.mount_point.to_string_lossy();
        for device in devices {
            let places = view.places.entry(device.clone()).or_default();
            places.insert(place.clone().into_owned());
            view.in_use.insert(device);
        }
        if mount.read_only() {
            view.read_only.insert(mount.mount_point.clone());
        }
    }
    view
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::mountinfo;

    #[test]
    fn a_btrfs_on_an_lv_is_in_use_under_whatever_name_it_is_mounted() {
        let rows = b"1 2 0:50 / /a rw - btrfs /dev/mapper/vg-lv rw\n3 2 253:4 / /b rw - xfs /dev/dm-4 rw\n";
        let mounts = mountinfo::parse(rows).unwrap();
        let in_use = view(&mounts, |mount| {
            assert_eq!(
                mount.fs_type, "btrfs",
                "others are told by their own number"
            );
            Some((253, 3))
        })
        .in_use;
        for name in ["253:3", "253:4", "dm-4"] {
            assert!(in_use.contains(name), "{name}: {in_use:?}");
        }
    }
}
