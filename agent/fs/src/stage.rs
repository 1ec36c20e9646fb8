//! What staging does, decided purely.
//!
//! `plan_mount`: from what is mounted at the path to Nothing, Mount, Remount or Conflict.
//! `format_guard`: from the volume's record and what a probe found to Make, Mount, ChangeUuid or Refuse. It is the only
//! place where formatting is decided, and it says Make only for a device that was probed and is Empty.

use std::{collections::BTreeSet, path::Path};

use drivebay_common::text::split_options;
use uuid::Uuid;

use super::{
    hints,
    jobs::{FsError, Stage},
    options::{MountFlags, compared_of_mount},
};
use drivebay_model::{Cause, FsType, RecordState, Signature, Signatures};
use drivebay_sys::mountinfo::MountEntry;

/// What should be mounted at the staging path.
#[derive(Debug, Clone)]
pub struct Wanted {
    pub fs_type: FsType,
    /// Read-only.
    pub read_only: bool,
    /// SELinux context, when one was asked for.
    pub context: Option<String>,
    /// Options of the mount itself.
    pub of_mount: Vec<&'static str>,
    /// Options of the filesystem.
    pub of_filesystem: Vec<String>,
    /// Those that the mount which is there was asked for with, where that is known: the kernel rewrites them.
    pub mounted_with: Option<Vec<String>>,
}

impl Wanted {
    /// From checked flags.
    pub fn new(
        fs_type: FsType,
        flags: &MountFlags,
        read_only: bool,
        mounted_with: Option<Vec<String>>,
    ) -> Self {
        Self {
            fs_type,
            read_only: read_only || flags.read_only,
            context: flags.context(),
            of_mount: flags.of_mount(),
            of_filesystem: flags.of_filesystem(),
            mounted_with,
        }
    }
}

/// What to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MountPlan {
    /// It is as wanted.
    Nothing,
    /// Nothing is mounted there.
    Mount,
    /// It is the right filesystem, read-only where writing is wanted: one mount(2) with MS_REMOUNT, which the
    /// kernel refuses when the filesystem stopped writing because of an error.
    Remount,
    /// Something else is there; how it differs.
    Conflict(String),
}

/// Compares device, root, filesystem type, ro, the options of the mount itself, and the SELinux context if one was asked for; of
/// other options of the filesystem, which the kernel rewrites, what was asked for with what is asked for. `here` is every mount at the path, the visible one last; `is_ours` says
/// whether a mount is of the volume's partition.
pub fn plan_mount(
    here: &[&MountEntry],
    wanted: &Wanted,
    is_ours: impl Fn(&MountEntry) -> bool,
) -> MountPlan {
    let Some(top) = here.last() else {
        return MountPlan::Mount;
    };
    if !is_ours(top) {
        return MountPlan::Conflict(format!("from {} ({})", top.source.display(), top.fs_type));
    }
    if top.root != Path::new("/") {
        return MountPlan::Conflict(format!("only its directory {}", top.root.display()));
    }
    if top.fs_type != wanted.fs_type.as_str() {
        return MountPlan::Conflict(format!(
            "as {} where {} was asked",
            top.fs_type, wanted.fs_type
        ));
    }
    if let Some(context) = &wanted.context {
        let has = split_options(&top.super_options)
            .find_map(|option| option.strip_prefix("context="))
            .map(|value| value.replace('"', ""));
        if has.as_ref() != Some(context) {
            return MountPlan::Conflict(format!(
                "with SELinux context {} where {context} was asked",
                has.as_deref().unwrap_or("(none)")
            ));
        }
    }
    let before = wanted.mounted_with.as_deref();
    if let Some(how) = options_differ(top, &wanted.of_mount, &wanted.of_filesystem, before) {
        return MountPlan::Conflict(format!("{how}; unstage it first to change them"));
    }
    match (top.read_only() || top.super_read_only(), wanted.read_only) {
        (true, true) | (false, false) => MountPlan::Nothing,
        (true, false) => MountPlan::Remount,
        (false, true) => MountPlan::Conflict("writable where read-only was asked".to_owned()),
    }
}

/// In which options a mount differs from what is asked for; None: in none. Its own are in the mount table; the filesystem's are
/// compared with those that it was asked for with, where that is known.
pub fn options_differ(
    mount: &MountEntry,
    of_mount: &[&str],
    of_filesystem: &[String],
    mounted_with: Option<&[String]>,
) -> Option<String> {
    let has = compared_of_mount(&mount.options);
    differ(&has, of_mount).or_else(|| differ(mounted_with?, of_filesystem))
}

/// In which words two lists of options differ, in whatever order they are.
pub fn differ<A, B>(has: &[A], asked: &[B]) -> Option<String>
where
    A: AsRef<str>,
    B: AsRef<str>,
{
    let has: BTreeSet<&str> = has.iter().map(AsRef::as_ref).collect();
    let asked: BTreeSet<&str> = asked.iter().map(AsRef::as_ref).collect();
    let only = |these: &BTreeSet<&str>, those| {
        let words: Vec<&str> = these.difference(those).copied().collect();
        match words.is_empty() {
            true => "without them".to_owned(),
            false => words.join(","),
        }
    };
    (has != asked).then(|| {
        let (has, asked) = (only(&has, &asked), only(&asked, &has));
        format!("with other mount options: {has} where {asked} was asked")
    })
}

/// What the format guard says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Format {
    /// Make the planned filesystem: the device is Empty and was never acknowledged with one.
    Make {
        /// The UUID to make it with. New: not in the record yet, to be written there first.
        plan: Plan,
    },
    /// The expected filesystem is there.
    Mount {
        /// It was never mounted, so it may be what an interrupted mkfs left; when its superblock proves that
        /// (`Filesystem::is_unfinished`), mkfs may start over with the same UUID.
        may_restart: Option<Uuid>,
    },
    /// The filesystem that the volume is a copy of is there; it gets its own UUID and is mounted then, also for reading alone.
    ChangeUuid {
        /// The UUID that it has.
        from: Uuid,
        /// The expected one.
        to: Uuid,
    },
    /// None of these is done.
    Refuse(Refusal),
}

/// Whether the record has the filesystem's UUID already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plan {
    /// No; choose one and write it, durably, before mkfs.
    Fresh,
    /// Yes, this one: mkfs was interrupted, or its result was lost before the first mount.
    Recorded(Uuid),
}

/// Why none of these is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The probe failed; that is not emptiness.
    ProbeFailed,
    /// There was a filesystem, and now there is none.
    Gone,
    /// Something else is there.
    Unexpected {
        found: String,
        /// What the record says.
        expected: String,
    },
    /// A volume that was never formatted is asked for read-only.
    NothingToRead,
    /// The record says that this is not a mount volume, or one with another filesystem.
    Incompatible {
        /// What it is.
        is: String,
    },
}

impl Refusal {
    /// As the error of a job, whose probe failed for this cause if it did.
    pub fn into_error(
        self,
        job: &Stage,
        fs_type: FsType,
        device: &str,
        cause: Option<Cause>,
    ) -> FsError {
        let (uuid, device) = (job.uuid, device.to_owned());
        match self {
            Self::ProbeFailed => FsError::Probe {
                uuid,
                device,
                source: cause.unwrap_or_else(|| {
                    Cause::text("the probe gave no answer that fits the record")
                }),
            },
            Self::Gone => FsError::FilesystemGone {
                uuid,
                fs_type,
                advice: format!(
                    "Look at its bytes and at dmesg: {}. Else restore from a backup, or delete the volume (drive {})",
                    hints::superblock_copies(fs_type, &device),
                    job.drive.id
                ),
                device,
            },
            Self::Unexpected { found, expected } => FsError::Unexpected {
                uuid,
                device,
                found,
                expected,
            },
            Self::NothingToRead => FsError::Incompatible {
                uuid,
                is: "not formatted yet".to_owned(),
                asked: "read-only".to_owned(),
            },
            Self::Incompatible { is } => FsError::Incompatible {
                uuid,
                is,
                asked: fs_type.to_string(),
            },
        }
    }
}

/// Decides from the record and the probe (None: it failed). Any signature on the device wins over the record. `copied`: the UUIDs
/// that the filesystem of a copy may have until it gets its own.
pub fn format_guard(
    state: &RecordState,
    probed: Option<&Signatures>,
    wanted: FsType,
    read_only: bool,
    copied: &[Uuid],
) -> Format {
    let refuse = Format::Refuse;
    let incompatible = |is: &str| refuse(Refusal::Incompatible { is: is.to_owned() });
    let expected = match state {
        RecordState::New => None,
        RecordState::Fs { fs_type, .. } if *fs_type != wanted => {
            return incompatible(fs_type.as_str());
        }
        RecordState::Fs {
            fs_type,
            fs_uuid,
            mounted,
        } => Some((*fs_type, *fs_uuid, *mounted)),
        RecordState::Block => return incompatible("a block volume"),
        RecordState::Creating => return incompatible("not created yet"),
        RecordState::Erasing { .. } => return incompatible("deleted"),
    };
    let Some(probed) = probed else {
        return refuse(Refusal::ProbeFailed);
    };
    if let (Signatures::Found(found), Some((fs_type, to, true))) = (probed, expected)
        && !is_exactly(found, fs_type, to)
        && let Some(from) = copied
            .iter()
            .find(|from| is_exactly(found, fs_type, **from))
    {
        return Format::ChangeUuid { from: *from, to };
    }
    match (probed, expected) {
        (Signatures::Empty, Some((_, _, true))) => refuse(Refusal::Gone),
        (Signatures::Empty, _) if read_only => refuse(Refusal::NothingToRead),
        (Signatures::Empty, None) => Format::Make { plan: Plan::Fresh },
        (Signatures::Empty, Some((_, fs_uuid, false))) => Format::Make {
            plan: Plan::Recorded(fs_uuid),
        },
        (Signatures::Found(found), Some((fs_type, fs_uuid, mounted)))
            if is_exactly(found, fs_type, fs_uuid) =>
        {
            Format::Mount {
                may_restart: (!mounted && !read_only).then_some(fs_uuid),
            }
        }
        (Signatures::Found(found) | Signatures::Ambiguous(found), _) => {
            let ambiguous = matches!(probed, Signatures::Ambiguous(_));
            refuse(Refusal::Unexpected {
                found: format!(
                    "{}{}",
                    if ambiguous {
                        "contradicting signatures: "
                    } else {
                        ""
                    },
                    describe(found)
                ),
                expected: match expected {
                    None => "nothing (it was never formatted)".to_owned(),
                    Some((fs_type, fs_uuid, _)) => format!("{fs_type} with UUID {fs_uuid}"),
                },
            })
        }
    }
}

/// Whether the one and only signature is this filesystem.
pub fn is_exactly(found: &[Signature], fs_type: FsType, fs_uuid: Uuid) -> bool {
    matches!(found, [one] if one.kind == fs_type.as_str() && Uuid::parse_str(&one.uuid) == Ok(fs_uuid))
}

fn describe(found: &[Signature]) -> String {
    if found.is_empty() {
        return "something that could not be named".to_owned();
    }
    let name = |one: &Signature| match one.uuid.as_str() {
        "" => one.kind.clone(),
        uuid => format!("{} with UUID {uuid}", one.kind),
    };
    found.iter().map(name).collect::<Vec<_>>().join(" and ")
}

#[cfg(test)]
#[path = "stage_tests.rs"]
mod tests;
