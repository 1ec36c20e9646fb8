//! Records and labels as LVM tags, and back.

use crate::{
    carve::record::FreeSpace,
    model::{Extent, Label, Record},
};

/// What a set of tags says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Read<T> {
    /// Ours.
    Ours(T),
    /// None of them is ours.
    Stranger,
    /// Some are ours, and they cannot be believed; says why.
    Broken(String),
}

/// The mark on a VG.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VgMark {
    /// Whose drive it is.
    pub label: Label,
    /// What is known of the bytes of free space.
    pub free_space: FreeSpace,
}

/// Tags of an LV for this record. Where it lies is not among them (LVM knows), and neither is that
/// it is being erased (its name says so): such a record gives the tags of `RecordState::New`.
pub fn of_record(record: &Record) -> Vec<String> {
    let _ = record;
    Vec::new()
}

/// The record that an LV's tags say, lying there. Never `Erasing`, `growing_to` None: name and view say that.
pub fn record(tags: &[String], extent: Extent) -> Read<Record> {
    let _ = (tags, extent);
    Read::Stranger
}

/// Tags of a VG.
pub fn of_vg(mark: &VgMark) -> Vec<String> {
    let _ = mark;
    Vec::new()
}

/// The mark that a VG's tags say.
pub fn vg(tags: &[String]) -> Read<VgMark> {
    let _ = tags;
    Read::Stranger
}

/// What to take away and what to add, to get from one set of tags to another.
pub fn difference(now: &[String], wanted: &[String]) -> (Vec<String>, Vec<String>) {
    let not_in =
        |a: &[String], b: &[String]| a.iter().filter(|tag| !b.contains(tag)).cloned().collect();
    (not_in(now, wanted), not_in(wanted, now))
}
