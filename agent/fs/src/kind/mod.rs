//! Differences between filesystems: one file for each, which implements [Filesystem].
//!
//! No method has a default implementation and [Facts] is written in full by each, so that what a new filesystem lacks does not compile.

use std::{ffi::OsString, io, path::Path};

use uuid::Uuid;

use super::{
    affected::work::Work,
    backend::StageBackend,
    decode::Checker,
    device::Partition,
    jobs::{FsError, StageMount},
};
use crate::tools::Program;
use drivebay_model::{Extent, FsType, unreadable::Holds};
use drivebay_sys::{fanotify::FsId, path::Directory};
use drivebay_worker::Context;

pub mod btrfs;
pub mod ext4;
mod uuid_change;
pub mod xfs;

pub use uuid_change::UuidChange;

pub fn of(fs_type: FsType) -> &'static dyn Filesystem {
    match fs_type {
        FsType::Ext4 => &ext4::Ext4,
        FsType::Xfs => &xfs::Xfs,
        FsType::Btrfs => &btrfs::Btrfs,
    }
}

pub fn all() -> impl Iterator<Item = &'static dyn Filesystem> {
    FsType::ALL.into_iter().map(of)
}

/// True if mounts of this type, as the mount table names it, have anonymous device numbers and are identified by their
/// source.
pub fn has_anonymous_device(fs_type: &str) -> bool {
    FsType::parse(fs_type).is_some_and(|fs_type| of(fs_type).facts().anonymous_device)
}

/// Values that an option may have.
#[derive(Debug)]
pub enum Value {
    /// The option takes no value; an attached one is refused.
    None,
    /// Any value. As for every option, it must not be empty, begin with a hyphen, or contain a slash.
    Word,
    /// Exactly one of these.
    OneOf(&'static [&'static str]),
    /// A comma-separated list of `key` and `key=value` with these keys.
    Keys(&'static [&'static str]),
    /// A comma-separated list of words without any of these.
    Not(&'static [&'static str]),
}

/// Allowed option: its spellings and its value.
#[derive(Debug)]
pub struct Allowed(pub &'static [&'static str], pub Value);

/// Parameters of making a filesystem, for `Filesystem::mkfs` and `Filesystem::try_mkfs`; the device is passed beside them.
#[derive(Debug)]
pub struct MkfsPlan<'a> {
    /// Volume that it is for, for messages.
    pub volume: Uuid,
    pub fs_type: FsType,
    /// UUID of the filesystem, which must be in the volume's record already.
    pub fs_uuid: Uuid,
    /// Further arguments of mkfs.
    pub options: &'a [String],
    /// An unfinished filesystem of our own, never mounted, is on the device: mkfs.xfs needs an option to overwrite it.
    pub over_own: bool,
}

#[derive(Debug)]
pub struct Facts {
    pub mkfs: Program,
    /// The only options of mkfs that a volume may have, see [check_mkfs_options](super::check_mkfs_options).
    pub mkfs_options: &'static [Allowed],
    /// True if its mounts have anonymous device numbers instead of the number of their device.
    pub anonymous_device: bool,
    /// Parts of lines that the kernel logs when it refuses to mount a damaged superblock, or one that points to damage.
    pub damage: &'static [&'static str],
    pub advice: Advice,
    /// Repairs a filesystem that must not be mounted for writing before that.
    pub repair: Option<RepairFlagged>,
    /// Changes settings of the filesystem that was mounted from the device of this name. A failure is logged.
    pub configure: Option<fn(&str, &StageMount)>,
    /// Least size in bytes to which it can be grown, and the reason to give for a smaller device.
    pub least_growth: Option<(u64, &'static str)>,
    /// Part of a message of the tool that grows it, and the advice to append to such a message.
    pub growth_hint: Option<(&'static str, &'static str)>,
    /// Checks a filesystem that is not mounted.
    pub checker: &'static Checker,
    pub live_check: LiveCheck,
    /// Offsets of 4 KiB blocks, at least one of which every mount changes.
    pub changed_by_mount: &'static [u64],
    /// None: the kernel reports no errors this way, so that they are found later or less surely.
    pub error_events: Option<ErrorEvents>,
    pub count_errors: Option<CountErrors>,
}

/// Returns the number of errors that the kernel has counted on a filesystem, by the name of its device; None if none is
/// mounted from it.
pub type CountErrors = fn(&str) -> io::Result<Option<u64>>;

/// Repairs the filesystem if it is flagged. A failed repair is logged and is no error, since the mount decides. Errs with
/// [FsError::NeedsRepair] if the volume with this UUID needs a repair and none is allowed (false).
pub type RepairFlagged =
    fn(&dyn StageBackend, &Partition, Uuid, bool, &mut Context) -> Result<(), FsError>;

/// Errors that the kernel reports by fanotify (FAN_FS_ERROR). A mark succeeds on a filesystem that reports none, too.
#[derive(Debug)]
pub struct ErrorEvents {
    /// Major and minor version of the first Linux that reports them.
    pub since: (u8, u8),
    /// Computes the id that statfs reports for a filesystem with this UUID on the device of this number; None if that cannot
    /// be computed. Pure.
    pub fsid: fn(Option<Uuid>, (u32, u32)) -> Option<FsId>,
}

/// Commands for an operator, without the device.
#[derive(Debug)]
pub struct Advice {
    /// For a filesystem that the kernel found corrupt while mounting it.
    pub corrupt: &'static str,
    /// Restores the superblock from a copy.
    pub superblock: &'static str,
    /// For a filesystem that a check found damaged.
    pub damage: &'static str,
}

/// Method of checking a mounted filesystem with a reliable result.
#[derive(Debug)]
pub enum LiveCheck {
    /// On a snapshot, after its log was replayed there.
    Snapshot(Replay),
    /// By the filesystem's own scrub. No copy of it is ever made.
    Scrub(Scrub),
}

/// Method of replaying the log on a snapshot.
#[derive(Debug)]
pub enum Replay {
    Tool {
        program: Program,
        arguments: &'static [&'static str],
        /// Exit codes after which the log is replayed.
        done: &'static [i32],
    },
    /// By a mount with these options.
    Mount { options: &'static [&'static str] },
}

/// Check that a mounted filesystem runs on itself.
#[derive(Debug)]
pub struct Scrub {
    pub checker: &'static Checker,
    /// Command for an operator that repairs blocks of which a good copy exists.
    pub mend: &'static str,
    /// Ends the kernel's scrub of the filesystem mounted there; false if there was none.
    pub cancel: fn(&Path) -> io::Result<bool>,
}

impl Facts {
    pub fn scrub(&self) -> Option<&Scrub> {
        match &self.live_check {
            LiveCheck::Scrub(scrub) => Some(scrub),
            LiveCheck::Snapshot(_) => None,
        }
    }
}

/// Arguments and environment of an mkfs that makes nothing on a device.
#[derive(Debug)]
pub struct Trial {
    pub args: Vec<OsString>,
    pub env: Vec<(&'static str, OsString)>,
}

/// Event that a line of the kernel log reports about a filesystem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogEvent {
    /// The filesystem found an inconsistency, or could not write.
    Error,
    /// The filesystem found its structures, or data by its checksum, damaged.
    Corrupt,
    /// The filesystem was shut down and refuses all operations.
    ShutDown,
    /// The filesystem accepts no more writes.
    ReadOnly,
}

pub trait Filesystem: Sync {
    fn facts(&self) -> &'static Facts;

    /// Returns the arguments of [Facts::mkfs].
    ///
    /// Without discard: the space was erased when its last volume was deleted, and discarding terabytes would make the first
    /// mount slow. Without force: an Empty device does not need it, and mkfs.xfs and mkfs.btrfs then refuse contents that
    /// the probe missed.
    fn mkfs(&self, plan: &MkfsPlan<'_>, node: &Path) -> Vec<OsString>;

    /// Returns arguments and environment of a trial: `file` has the size of the device, and stands for one with logical
    /// sectors of `sector` bytes.
    fn try_mkfs(&self, plan: &MkfsPlan<'_>, sector: u32, file: &Path) -> Trial;

    /// Returns the reason if these mkfs options are impossible on a drive with logical sectors of `sector` bytes, as far as
    /// that is known without a trial. Pure.
    fn refuse_sector(&self, options: &[String], sector: u32) -> Option<String>;

    /// Returns the option that a mount gets in addition to the requested ones. Pure.
    fn default_option(&self, requested: &[String]) -> Option<&'static str>;

    /// Gives the filesystem its new UUID, and returns the output of the tools for a message. Does not prove success: the
    /// caller must probe the device. Can be repeated after an interruption at any point.
    fn change_uuid(
        &self,
        change: &UuidChange<'_>,
        context: &mut Context,
    ) -> Result<String, FsError>;

    /// True if the device's first [HEAD_BYTES](crate::device::HEAD_BYTES) prove that its mkfs never completed, or that the
    /// filesystem was never mounted. Pure.
    fn is_unfinished(&self, head: &[u8]) -> bool;

    /// True if the kernel has a superblock for the device of this name, mounted visibly or not. Reads sysfs only.
    fn has_superblock(&self, device: &str) -> bool;

    /// True if the filesystem is smaller than its tool would make it on `device_bytes`.
    fn is_smaller(&self, mount: &Path, node: &Path, device_bytes: u64) -> Result<bool, FsError>;

    /// Returns program and arguments that grow the filesystem to its device.
    fn grow(&self, mount: &Path, node: &Path) -> (Program, Vec<OsString>);

    /// Finds what pieces of the volume hold. `root` is the opened root of a mount of it, None if it is not mounted. Writes
    /// nothing. May return pieces in parts, in any order.
    fn locate(
        &self,
        work: &mut Work<'_>,
        pieces: &[Extent],
        root: Option<&Directory>,
    ) -> Vec<(Extent, Holds)>;

    /// Parses a line of the kernel log: the event, and the kernel name of the device. None if the line is not about a
    /// filesystem of this kind, or reports no error. Pure.
    fn log_event<'a>(&self, text: &'a str) -> Option<(LogEvent, &'a str)>;
}

fn arguments<'a>(words: impl IntoIterator<Item = &'a str>) -> Vec<OsString> {
    words.into_iter().map(OsString::from).collect()
}

/// Returns the text after `from`, up to any of the characters in `until` or the end; None if `from` is missing.
pub fn between<'a>(text: &'a str, from: &str, until: &[char]) -> Option<&'a str> {
    let (_, rest) = text.split_once(from)?;
    Some(rest.split(until).next().unwrap_or(rest))
}

#[cfg(test)]
mod tests;
