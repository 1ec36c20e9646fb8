//! ext4.

pub mod superblock;
