//! What differs between filesystems: one file for each, which implements [Filesystem].
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

/// Whether mounts of this type, as the mount table names it, have anonymous device numbers: they are identified by their source.
pub fn has_anonymous_device(fs_type: &str) -> bool {
    FsType::parse(fs_type).is_some_and(|fs_type| of(fs_type).facts().anonymous_device)
}

/// What an option's value may be.
#[derive(Debug)]
pub enum Value {
    /// It has none.
    None,
    /// Any plain word.
    Word,
    /// Exactly one of these.
    OneOf(&'static [&'static str]),
    /// A comma-separated list of `key` and `key=value` with these keys.
    Keys(&'static [&'static str]),
    /// A comma-separated list of words without any of these.
    Not(&'static [&'static str]),
}

/// One allowed option: its spellings and its value.
#[derive(Debug)]
pub struct Allowed(pub &'static [&'static str], pub Value);

/// What to make.
#[derive(Debug)]
pub struct MkfsPlan<'a> {
    /// The volume, for messages.
    pub volume: Uuid,
    pub fs_type: FsType,
    /// Its UUID, on the volume's record already.
    pub fs_uuid: Uuid,
    /// Further arguments.
    pub options: &'a [String],
    /// Our own unfinished one, never mounted, is there: mkfs.xfs must be told to overwrite it.
    pub over_own: bool,
}

#[derive(Debug)]
pub struct Facts {
    pub mkfs: Program,
    /// The only options of mkfs that a volume may have, see [check_mkfs_options](super::check_mkfs_options).
    pub mkfs_options: &'static [Allowed],
    /// Its mounts have anonymous device numbers, not the number of their device.
    pub anonymous_device: bool,
    /// Parts of lines that the kernel logs when it refuses to mount a damaged superblock, or one that points to damage.
    pub damage: &'static [&'static str],
    pub advice: Advice,
    /// Repairs a filesystem that must not be mounted for writing before that.
    pub repair: Option<RepairFlagged>,
    /// Changes settings of the filesystem that was mounted from the device of this name. A failure is logged.
    pub configure: Option<fn(&str, &StageMount)>,
    /// Fewest bytes to which it can be grown, and the reason to give for fewer.
    pub least_growth: Option<(u64, &'static str)>,
    /// A part of the message of a tool that could not grow it, and what to add to that.
    pub growth_hint: Option<(&'static str, &'static str)>,
    /// Checks a filesystem that is not mounted.
    pub checker: &'static Checker,
    pub live_check: LiveCheck,
    /// Offsets of blocks of 4 KiB, one of which every mount changes.
    pub changed_by_mount: &'static [u64],
    /// None: its errors are found without them, later or less surely.
    pub error_events: Option<ErrorEvents>,
    pub count_errors: Option<CountErrors>,
}

/// Reads how many errors the kernel has counted on a filesystem, by the name of its device; None when none is mounted from it.
pub type CountErrors = fn(&str) -> io::Result<Option<u64>>;

/// A failed repair is logged and is no error, since the mount decides. Fails with [FsError::NeedsRepair] if the volume with this UUID
/// needs a repair and none may be made (false).
pub type RepairFlagged =
    fn(&dyn StageBackend, &Partition, Uuid, bool, &mut Context) -> Result<(), FsError>;

/// Errors that the kernel reports by fanotify (FAN_FS_ERROR). A mark succeeds on a filesystem that reports none, too.
#[derive(Debug)]
pub struct ErrorEvents {
    /// Major and minor version of the first Linux that reports them.
    pub since: (u8, u8),
    /// The id that statfs gives of a filesystem with this UUID on the device of this number, from what is known of it. Pure.
    pub fsid: fn(Option<Uuid>, (u32, u32)) -> Option<FsId>,
}

/// Commands for an operator, without the device.
#[derive(Debug)]
pub struct Advice {
    /// For a filesystem that the kernel found corrupt while it mounted it.
    pub corrupt: &'static str,
    /// Restores the superblock from a copy.
    pub superblock: &'static str,
    /// For a filesystem that a check found damaged.
    pub damage: &'static str,
}

/// How a mounted filesystem is checked so that the answer can be believed.
#[derive(Debug)]
pub enum LiveCheck {
    /// On a snapshot, once its log was replayed there.
    Snapshot(Replay),
    /// By the filesystem's own scrub. It is never copied.
    Scrub(Scrub),
}

/// How the log on a snapshot is replayed.
#[derive(Debug)]
pub enum Replay {
    Tool {
        program: Program,
        arguments: &'static [&'static str],
        /// Exit codes after which it is replayed.
        done: &'static [i32],
    },
    /// By a mount with these options.
    Mount { options: &'static [&'static str] },
}

/// A check of a mounted filesystem by itself.
#[derive(Debug)]
pub struct Scrub {
    pub checker: &'static Checker,
    /// The command that mends blocks of which a good copy exists, for an operator.
    pub mend: &'static str,
    /// Ends the kernel's scrub of the filesystem mounted there; false when there was none.
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

/// What a line of the kernel log reports about a filesystem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogEvent {
    /// It found something that should not be, or could not write.
    Error,
    /// It found its structures, or data by its checksum, damaged.
    Corrupt,
    /// It refuses all work.
    ShutDown,
    /// It takes no more writes.
    ReadOnly,
}

pub trait Filesystem: Sync {
    fn facts(&self) -> &'static Facts;

    /// Arguments of [Facts::mkfs].
    ///
    /// No discard: the space was erased when its last owner left, and discarding terabytes would make the first mount slow. Nothing
    /// is forced: on an Empty device that is not needed, and without it mkfs.xfs and mkfs.btrfs refuse whatever we failed to see.
    fn mkfs(&self, plan: &MkfsPlan<'_>, node: &Path) -> Vec<OsString>;

    /// The same as a trial: `file` has the size of the device, and is taken for one with logical sectors of `sector` bytes.
    fn try_mkfs(&self, plan: &MkfsPlan<'_>, sector: u32, file: &Path) -> Trial;

    /// Why these mkfs options are impossible on a drive with logical sectors of `sector` bytes, where that is known without a trial.
    /// Pure.
    fn refuse_sector(&self, options: &[String], sector: u32) -> Option<String>;

    /// The option that a mount gets in addition to those asked for. Pure.
    fn default_option(&self, asked: &[String]) -> Option<&'static str>;

    /// Gives the filesystem the UUID that it is to have. What tools said is the answer, for a message: whether it has it now, its device
    /// says. Can be repeated after it was cut off at any point.
    fn change_uuid(
        &self,
        change: &UuidChange<'_>,
        context: &mut Context,
    ) -> Result<String, FsError>;

    /// Whether the device's first [HEAD_BYTES](crate::device::HEAD_BYTES) prove that its mkfs never came to its end, or that nobody ever mounted what it made.
    /// Pure.
    fn is_unfinished(&self, head: &[u8]) -> bool;

    /// Whether the kernel has a superblock for the device of this name in sysfs, mounted visibly or not. Reads sysfs only.
    fn has_superblock(&self, device: &str) -> bool;

    /// Whether it is smaller than its tool would make it on `device_bytes`.
    fn is_smaller(&self, mount: &Path, node: &Path, device_bytes: u64) -> Result<bool, FsError>;

    /// Program and arguments that grow it to its device.
    fn grow(&self, mount: &Path, node: &Path) -> (Program, Vec<OsString>);

    /// Finds what pieces of the volume hold. `root` is the opened root of a mount of it, if it is mounted. Writes nothing. Pieces may
    /// be answered in parts, in any order.
    fn locate(
        &self,
        work: &mut Work<'_>,
        pieces: &[Extent],
        root: Option<&Directory>,
    ) -> Vec<(Extent, Holds)>;

    /// Reads a line of the kernel log: what happened, and the kernel name of the device. None if the line is not about a filesystem of
    /// this kind, or reports no error. Pure.
    fn log_event<'a>(&self, text: &'a str) -> Option<(LogEvent, &'a str)>;
}

/// The words as arguments.
fn arguments<'a>(words: impl IntoIterator<Item = &'a str>) -> Vec<OsString> {
    words.into_iter().map(OsString::from).collect()
}

/// What stands between two texts, the second being any of the characters of `until`.
pub fn between<'a>(text: &'a str, from: &str, until: &[char]) -> Option<&'a str> {
    let (_, rest) = text.split_once(from)?;
    Some(rest.split(until).next().unwrap_or(rest))
}

#[cfg(test)]
mod tests;
