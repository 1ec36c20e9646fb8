//! Drives of the node: loop devices over files in the cluster's directory.

use std::fs::{self, File};

use super::Cluster;
use crate::{GIB, tools};

const DRIVES: usize = 4;
/// Size of each, bytes, including Drivebay's metadata.
const DRIVE_BYTES: u64 = 6 * GIB;

impl Cluster {
    /// Returns the pattern by which a class selects the drives.
    pub fn drives_pattern(&self) -> String {
        self.dir.join("drives/*.img").display().to_string()
    }

    /// Attaches all drives; those that are attached stay.
    ///
    /// # Panics
    /// A loop device cannot be made.
    pub fn plug_drives(&self) {
        for number in 1..=DRIVES {
            let file = self.dir.join(format!("drives/drive-{number}.img"));
            if !file.exists() {
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                File::create_new(&file)
                    .unwrap()
                    .set_len(DRIVE_BYTES)
                    .unwrap();
            }
            let file = file.to_str().unwrap();
            if tools::must("losetup", &["--associated", file]).is_empty() {
                tools::must("losetup", &["--find", file]);
            }
        }
    }
}
