//! The `lvm` layout: a volume group (VG) of its own on each claimed drive, a linear logical
//! volume (LV) per volume, and everything durably known of a volume in that LV's tags.
//!
//! `metadata` reads what LVM wrote on the drive (`text` parses it, `vg` understands it); `tags` turns records into
//! tags and back; `name` knows what LVM takes for a name; `view` puts metadata and the kernel's
//! devices together; `plan` does the arithmetic.

pub mod metadata;
pub mod name;
pub mod plan;
pub mod tags;
pub mod text;
mod vg;
pub mod view;
