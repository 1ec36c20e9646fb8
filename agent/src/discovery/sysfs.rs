//! Facts about block devices from sysfs alone: no udev database, nothing that touches a medium.
//! `root` is `/sys` except in tests, which give a recorded tree.

use std::{io, path::Path};

use crate::model::DriveFacts;

/// Every block device that is a whole disk (loop and other virtual ones too, marked as such), by kernel name.
/// A device that vanishes while it is read is left out.
pub fn enumerate(root: &Path) -> io::Result<Vec<DriveFacts>> {
    let _ = root;
    todo!()
}

/// Facts of one disk; NotFound when it is gone.
pub fn read(root: &Path, kernel_name: &str) -> io::Result<DriveFacts> {
    let _ = (root, kernel_name);
    todo!()
}
