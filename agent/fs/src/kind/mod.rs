//! What differs between filesystems.

pub mod ext4;
