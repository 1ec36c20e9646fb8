//! What the mount table says of volumes: which devices are in use, and where. Pure.

use std::{
    borrow::Cow,
    collections::{BTreeSet, HashMap, HashSet},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use crate::{model::Placed, sys::mountinfo::MountEntry};

/// Places kept of one device. The host's root filesystem may be bound thousands of times, and nobody asks for it.
const KEPT: usize = 64;
/// Places shown of one volume.
const SHOWN: usize = 16;

/// What the mount table says, as far as volumes are concerned. Built after each call that mounts or unmounts, whatever else
/// the host has mounted: a mount costs two look-ups.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct MountView {
    numbers: HashMap<(u32, u32), Vec<PathBuf>>,
    /// Kernel names, also of device nodes that are bound somewhere.
    names: HashMap<Vec<u8>, Vec<PathBuf>>,
    read_only: HashSet<PathBuf>,
}

impl MountView {
    /// Derives the view. Pure but for `number_of`: the device number of a mount's source. It is asked for btrfs
    /// alone, whose mounts have a number of their own and may name an LV by its link in /dev/mapper.
    pub fn new(
        mounts: &[MountEntry],
        number_of: impl Fn(&MountEntry) -> Option<(u32, u32)>,
    ) -> Self {
        let mut view = Self::default();
        for mount in mounts {
            if mount.read_only() {
                view.read_only.insert(mount.mount_point.clone());
            }
            let source = mount.source.as_os_str().as_bytes();
            let name = source.strip_prefix(b"/dev/");
            if mount.dev.0 != 0 {
                keep(view.numbers.entry(mount.dev).or_default(), mount);
            }
            if let Some(name) = name {
                view.name(name, mount);
            }
            match mount.fs_type.as_str() {
                "btrfs" => {
                    if let Some(number) = number_of(mount) {
                        keep(view.numbers.entry(number).or_default(), mount);
                    }
                }
                // A raw block volume: a device node of /dev, bound onto a file.
                "devtmpfs" => {
                    let node = mount.root.as_os_str().as_bytes();
                    if let Some(name) = node.strip_prefix(b"/").filter(|name| !name.is_empty()) {
                        view.name(name, mount);
                    }
                }
                _ => {}
            }
        }
        view
    }

    fn name(&mut self, name: &[u8], mount: &MountEntry) {
        match self.names.get_mut(name) {
            Some(places) => keep(places, mount),
            None => drop(
                self.names
                    .insert(name.to_owned(), vec![mount.mount_point.clone()]),
            ),
        }
    }

    /// Whether the mount point is read-only by its own flag (asked for), not by its filesystem's.
    pub fn is_read_only(&self, path: &Path) -> bool {
        self.read_only.contains(path)
    }

    /// Whether the volume is mounted or published.
    pub fn is_in_use(&self, placed: &Placed) -> bool {
        self.all(placed).next().is_some()
    }

    /// Where it is, as far as it is shown.
    pub fn places(&self, placed: &Placed) -> Vec<String> {
        let all = self.all(placed).map(|path| path.to_string_lossy());
        let all: BTreeSet<_> = all.collect();
        let shown = all.into_iter().take(SHOWN);
        shown.map(Cow::into_owned).collect()
    }

    fn all(&self, placed: &Placed) -> impl Iterator<Item = &PathBuf> {
        let by_name = placed.device.as_ref().map(|name| name.as_bytes());
        let by_name = by_name.and_then(|name| self.names.get(name));
        let by_number = placed.dev.and_then(|dev| self.numbers.get(&dev));
        by_name.into_iter().chain(by_number).flatten()
    }
}

fn keep(places: &mut Vec<PathBuf>, mount: &MountEntry) {
    if places.len() < KEPT {
        places.push(mount.mount_point.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        model::{RecordState, samples},
        sys::mountinfo,
    };

    fn view(rows: &str) -> MountView {
        let mounts = mountinfo::parse(rows.as_bytes()).unwrap();
        MountView::new(&mounts, |mount| {
            assert_eq!(
                mount.fs_type, "btrfs",
                "others are told by their own number"
            );
            Some((253, 3))
        })
    }

    fn placed(device: &str, dev: (u32, u32)) -> Placed {
        Placed {
            device: Some(device.to_owned()),
            dev: Some(dev),
            ..samples::placed(1, RecordState::New)
        }
    }

    #[test]
    fn a_btrfs_on_an_lv_is_in_use_under_whatever_name_it_is_mounted() {
        let view = view(
            "1 2 0:50 / /a rw - btrfs /dev/mapper/vg-lv rw\n3 2 253:4 / /b rw - xfs /dev/dm-4 rw\n",
        );
        assert!(view.is_in_use(&placed("dm-3", (253, 3))));
        assert!(view.is_in_use(&placed("dm-9", (253, 4))));
        assert!(view.is_in_use(&placed("dm-4", (253, 9))));
        assert!(!view.is_in_use(&placed("dm-5", (253, 5))));
    }

    #[test]
    fn a_bound_device_node_is_in_use_and_what_is_of_no_device_is_not() {
        let view = view(
            "1 2 0:50 / /a ro - overlay overlay rw\n2 2 0:5 /sdb2 /b rw - devtmpfs udev rw\n3 2 0:5 / /dev rw - devtmpfs udev rw\n",
        );
        assert_eq!(view.places(&placed("sdb2", (8, 18))), ["/b"]);
        assert!(!view.is_in_use(&placed("sdb3", (0, 5))));
        assert!(view.is_read_only(Path::new("/a")) && !view.is_read_only(Path::new("/b")));
        assert_eq!((view.names.len(), view.numbers.len()), (1, 0));
    }

    #[test]
    fn of_a_device_with_thousands_of_mounts_a_few_are_kept() {
        let rows: String = (0..5000)
            .map(|n| format!("{n} 2 8:1 / /x/{n} rw - ext4 /dev/sda1 rw\n"))
            .collect();
        let view = view(&rows);
        assert!(
            view.numbers
                .values()
                .chain(view.names.values())
                .all(|all| all.len() == KEPT)
        );
        assert_eq!(view.places(&placed("sda1", (8, 1))).len(), SHOWN);
    }
}
