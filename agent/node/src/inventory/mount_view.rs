//! Volumes in the mount table: which devices are in use, and where. Pure.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::Hash,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use drivebay_fs::kind::has_anonymous_device;
use drivebay_model::Placed;
use drivebay_sys::mountinfo::{Change, MountEntry};

/// Largest number of mounts considered per device. The host's root filesystem may be bound thousands of times.
const MOST: usize = 64;
/// Largest number of paths shown per volume.
const SHOWN: usize = 16;

type Number = (u32, u32);
/// Mounts of one device number or kernel name, by mount id.
type Mounts = BTreeMap<u64, Arc<MountEntry>>;

/// Index of the mount table by device. Updated after each call that mounts or unmounts, at a cost that does not grow
/// with the number of other mounts.
#[derive(Debug, Default, Clone)]
pub struct MountView {
    numbers: HashMap<Number, Mounts>,
    /// By kernel name, also of device nodes that are bound somewhere.
    names: HashMap<Vec<u8>, Mounts>,
    read_only: HashMap<PathBuf, BTreeSet<u64>>,
    /// Device number of the source, by the id of each mount that has a number of its own.
    source_numbers: HashMap<u64, Number>,
}

impl MountView {
    /// Applies a change of the mount table. Pure but for `number_of`, which returns the device number of a mount's
    /// source. It is called for btrfs alone, whose mounts have a number of their own and may name an LV by its link in
    /// /dev/mapper.
    pub fn apply(&mut self, change: &Change, number_of: impl Fn(&MountEntry) -> Option<Number>) {
        for mount in &change.gone {
            self.remove(mount);
        }
        for mount in &change.new {
            if has_anonymous_device(&mount.fs_type)
                && let Some(number) = number_of(mount)
            {
                self.source_numbers.insert(mount.id, number);
            }
            self.add(mount);
        }
    }

    fn add(&mut self, mount: &Arc<MountEntry>) {
        if mount.read_only() {
            let here = self.read_only.entry(mount.mount_point.clone());
            here.or_default().insert(mount.id);
        }
        for number in self.numbers_of(mount) {
            let here = self.numbers.entry(number).or_default();
            here.insert(mount.id, mount.clone());
        }
        for name in names_of(mount) {
            // Copies the name only when it is new: the host's root filesystem is bound often.
            match self.names.get_mut(name) {
                Some(here) => drop(here.insert(mount.id, mount.clone())),
                None => {
                    let here = Mounts::from([(mount.id, mount.clone())]);
                    self.names.insert(name.to_owned(), here);
                }
            }
        }
    }

    fn remove(&mut self, mount: &MountEntry) {
        let id = mount.id;
        let at = mount.mount_point.as_path();
        take(&mut self.read_only, at, |here| {
            here.remove(&id);
            here.is_empty()
        });
        let without = |here: &mut Mounts| {
            here.remove(&id);
            here.is_empty()
        };
        for number in self.numbers_of(mount) {
            take(&mut self.numbers, &number, without);
        }
        self.source_numbers.remove(&id);
        for name in names_of(mount) {
            take(&mut self.names, name, without);
        }
    }

    fn numbers_of(&self, mount: &MountEntry) -> impl Iterator<Item = Number> + use<> {
        let own = (mount.dev.0 != 0).then_some(mount.dev);
        own.into_iter()
            .chain(self.source_numbers.get(&mount.id).copied())
    }

    /// True if the mount point is read-only by its own flag, not by its filesystem's.
    pub fn is_read_only(&self, path: &Path) -> bool {
        self.read_only.contains_key(path)
    }

    /// True if the volume is mounted or published.
    pub fn is_in_use(&self, placed: &Placed) -> bool {
        self.all(placed).next().is_some()
    }

    /// Returns the paths of the volume, at most `SHOWN`.
    pub fn places(&self, placed: &Placed) -> Vec<String> {
        let all = self.all(placed).map(|path| path.to_string_lossy());
        let all: BTreeSet<_> = all.collect();
        let shown = all.into_iter().take(SHOWN);
        shown.map(Cow::into_owned).collect()
    }

    /// True if the volume is mounted or published at this path.
    pub fn is_at(&self, placed: &Placed, path: &Path) -> bool {
        let mut all = self.tables(placed).flat_map(Mounts::values);
        all.any(|mount| mount.mount_point == path)
    }

    fn all(&self, placed: &Placed) -> impl Iterator<Item = &PathBuf> {
        let tables = self.tables(placed);
        let few = tables.flat_map(|mounts| mounts.values().take(MOST));
        few.map(|mount| &mount.mount_point)
    }

    fn tables(&self, placed: &Placed) -> impl Iterator<Item = &Mounts> {
        let used = placed.used_device();
        let by_name = used.and_then(|(name, _)| self.names.get(name.as_bytes()));
        let by_number = used.and_then(|(_, dev)| self.numbers.get(&dev));
        by_name.into_iter().chain(by_number)
    }
}

/// Returns the kernel names of a mount: of its source, and of the device node that is bound there, which is how a raw
/// block volume is published.
fn names_of(mount: &MountEntry) -> impl Iterator<Item = &[u8]> {
    let source = mount.source.as_os_str().as_bytes();
    let root = mount.root.as_os_str().as_bytes();
    let node = (mount.fs_type == "devtmpfs")
        .then(|| root.strip_prefix(b"/"))
        .flatten()
        .filter(|name| !name.is_empty());
    source.strip_prefix(b"/dev/").into_iter().chain(node)
}

/// Removes something from an entry, and the entry from the map when nothing is left in it.
fn take<K, Q, V>(map: &mut HashMap<K, V>, key: &Q, is_empty_after: impl FnOnce(&mut V) -> bool)
where
    K: std::borrow::Borrow<Q> + Eq + Hash,
    Q: Eq + Hash + ?Sized,
{
    if map.get_mut(key).is_some_and(is_empty_after) {
        map.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drivebay_model::{RecordState, samples};
    use drivebay_sys::mountinfo;

    fn mounts(rows: &str) -> Vec<Arc<MountEntry>> {
        let mounts = mountinfo::parse(rows.as_bytes()).unwrap();
        mounts.into_iter().map(Arc::new).collect()
    }

    fn apply(view: &mut MountView, gone: &[Arc<MountEntry>], new: &[Arc<MountEntry>]) {
        let change = Change {
            gone: gone.to_vec(),
            new: new.to_vec(),
            read: new.len(),
        };
        view.apply(&change, |mount| {
            assert_eq!(mount.fs_type, "btrfs", "others have numbers of their own");
            Some((253, 3))
        });
    }

    fn view(rows: &str) -> MountView {
        let mut view = MountView::default();
        apply(&mut view, &[], &mounts(rows));
        view
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
    fn what_is_taken_out_again_leaves_nothing_and_what_is_new_takes_its_place() {
        let all = mounts(
            "1 2 0:50 / /a ro - btrfs /dev/mapper/vg-lv rw\n2 2 0:5 /sdb2 /b rw - devtmpfs udev rw\n3 2 8:1 / /c ro - ext4 /dev/sda1 rw\n4 2 8:1 / /c ro - ext4 /dev/sda1 rw\n",
        );
        let mut view = MountView::default();
        apply(&mut view, &[], &all);
        // One of two at the same path.
        apply(&mut view, &all[3..], &[]);
        assert!(view.is_in_use(&placed("sda1", (8, 1))) && view.is_read_only(Path::new("/c")));
        // Remounted, under the same id.
        let writable = mounts("3 2 8:1 / /c rw - ext4 /dev/sda1 rw\n");
        apply(&mut view, &all[2..3], &writable);
        assert!(view.is_in_use(&placed("sda1", (8, 1))) && !view.is_read_only(Path::new("/c")));
        apply(&mut view, &all[..2], &[]);
        assert!(!view.is_in_use(&placed("dm-3", (253, 3))));
        assert!(!view.is_in_use(&placed("sdb2", (8, 18))));
        apply(&mut view, &writable, &[]);
        let MountView {
            numbers,
            names,
            read_only,
            source_numbers,
        } = &view;
        assert!(
            numbers.is_empty()
                && names.is_empty()
                && read_only.is_empty()
                && source_numbers.is_empty()
        );
    }

    #[test]
    fn of_a_device_with_thousands_of_mounts_a_few_are_inspected() {
        let rows: String = (0..5000)
            .map(|n| format!("{n} 2 8:1 / /x/{n} rw - ext4 /dev/sda1 rw\n"))
            .collect();
        let view = view(&rows);
        let placed = placed("sda1", (8, 1));
        assert_eq!(view.all(&placed).count(), 2 * MOST);
        assert_eq!(view.places(&placed).len(), SHOWN);
    }
}
