//! The `lvm` layout: a volume group (VG) of its own on each claimed drive, a linear logical
//! volume (LV) per volume, and everything durably known of a volume in that LV's tags.
//!
//! `metadata` reads what LVM wrote on the drive; `tags` turns records into tags and back.

pub mod metadata;
