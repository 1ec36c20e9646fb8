//! Decides purely what staging does.
//!
//! `plan_mount`: from what is mounted at the path to Nothing, Mount, Remount or Conflict.
//! `format_guard`: from the volume's record and what a probe found to Make, Mount, ChangeUuid or Refuse. It is the only
//! place where formatting is decided, and it returns Make only for a device that was probed and is Empty.

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

/// Mount that should be at the staging path.
#[derive(Debug, Clone)]
pub struct Wanted {
    pub fs_type: FsType,
    pub read_only: bool,
    /// SELinux context, if one was requested.
    pub context: Option<String>,
    /// Options of the mount itself.
    pub of_mount: Vec<&'static str>,
    /// Options of the filesystem.
    pub of_filesystem: Vec<String>,
    /// Filesystem options with which the present mount was requested, since the kernel rewrites them; None: not known.
    pub mounted_with: Option<Vec<String>>,
}

impl Wanted {
    /// Builds it from checked flags; read-only if `read_only` or the flags are.
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

/// Action after which a path has the mount that the stage or publish call requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MountPlan {
    /// The right filesystem is mounted there with the requested options.
    Nothing,
    /// Nothing is mounted there.
    Mount,
    /// The right filesystem is mounted read-only and should be writable: one mount(2) with MS_REMOUNT, which the kernel
    /// refuses if the filesystem stopped writing because of an error.
    Remount,
    /// Another mount is there; describes the difference.
    Conflict(String),
}

/// Compares device, root, filesystem type, ro, the options of the mount itself, and the SELinux context if one was
/// requested. The kernel rewrites other filesystem options, so that they are compared with those of the earlier request.
/// `here` is every mount at the path, the visible one last; `is_ours` is true for a mount of the volume's partition.
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

/// Describes in which options a mount differs from the request; None if in none. Options of the mount itself are compared
/// with the mount table, those of the filesystem with the earlier request, if it is known.
pub fn options_differ(
    mount: &MountEntry,
    of_mount: &[&str],
    of_filesystem: &[String],
    mounted_with: Option<&[String]>,
) -> Option<String> {
    let has = compared_of_mount(&mount.options);
    differ(&has, of_mount).or_else(|| differ(mounted_with?, of_filesystem))
}

/// Describes in which words two lists of options differ, in any order; None if in none.
pub fn differ<A, B>(has: &[A], requested: &[B]) -> Option<String>
where
    A: AsRef<str>,
    B: AsRef<str>,
{
    let has: BTreeSet<&str> = has.iter().map(AsRef::as_ref).collect();
    let requested: BTreeSet<&str> = requested.iter().map(AsRef::as_ref).collect();
    let only = |these: &BTreeSet<&str>, those| {
        let words: Vec<&str> = these.difference(those).copied().collect();
        match words.is_empty() {
            true => "without them".to_owned(),
            false => words.join(","),
        }
    };
    (has != requested).then(|| {
        let (has, requested) = (only(&has, &requested), only(&requested, &has));
        format!("with other mount options: {has} where {requested} was asked")
    })
}

/// Decision of the format guard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Format {
    /// Make the planned filesystem: the device is Empty and was never acknowledged with one.
    Make {
        /// UUID to make it with. A new one must be recorded first.
        plan: Plan,
    },
    /// The expected filesystem is there.
    Mount {
        /// UUID of a filesystem that was never mounted, so that it may be left by an interrupted mkfs: if its superblock
        /// proves that (`Filesystem::is_unfinished`), mkfs may start over with this UUID.
        may_restart: Option<Uuid>,
    },
    /// The device holds the filesystem that the volume is a copy of: it gets its own UUID and is then mounted, even
    /// read-only.
    ChangeUuid {
        /// UUID of the filesystem on the device, which is that of the original.
        from: Uuid,
        /// UUID in the volume's record, which the filesystem gets.
        to: Uuid,
    },
    /// The device is neither formatted nor mounted.
    Refuse(Refusal),
}

/// UUID of a filesystem to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plan {
    /// Not recorded yet: choose one and record it, durably, before mkfs.
    Fresh,
    /// Recorded already: mkfs was interrupted, or its result was lost before the first mount.
    Recorded(Uuid),
}

/// Reason of [Format::Refuse]: the record and the contents of the device permit neither formatting nor mounting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The probe failed, which does not mean that the device is empty.
    ProbeFailed,
    /// There was a mounted filesystem, and the device is empty now.
    Gone,
    /// The device holds something else.
    Unexpected {
        actual: String,
        /// Contents according to the record.
        expected: String,
    },
    /// Read-only was requested for a volume that was never formatted.
    NothingToRead,
    /// The record is not of a mount volume, or of one with another filesystem.
    Incompatible {
        /// Mode, filesystem or state in the record.
        is: String,
    },
}

impl Refusal {
    /// Converts to the error of a job. `cause`: error of the probe, if it failed.
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
            Self::Unexpected { actual, expected } => FsError::Unexpected {
                uuid,
                device,
                found: actual,
                expected,
            },
            Self::NothingToRead => FsError::Incompatible {
                uuid,
                is: "not formatted yet".to_owned(),
                requested: "read-only".to_owned(),
            },
            Self::Incompatible { is } => FsError::Incompatible {
                uuid,
                is,
                requested: fs_type.to_string(),
            },
        }
    }
}

/// Decides from the record and the probe (None: it failed). A signature on the device takes precedence over the record.
/// `copied`: the UUIDs that the filesystem of a copy may have until it gets its own.
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
    if let (Signatures::Found(signatures), Some((fs_type, to, true))) = (probed, expected)
        && !is_exactly(signatures, fs_type, to)
        && let Some(from) = copied
            .iter()
            .find(|from| is_exactly(signatures, fs_type, **from))
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
        (Signatures::Found(signatures), Some((fs_type, fs_uuid, mounted)))
            if is_exactly(signatures, fs_type, fs_uuid) =>
        {
            Format::Mount {
                may_restart: (!mounted && !read_only).then_some(fs_uuid),
            }
        }
        (Signatures::Found(signatures) | Signatures::Ambiguous(signatures), _) => {
            let ambiguous = matches!(probed, Signatures::Ambiguous(_));
            refuse(Refusal::Unexpected {
                actual: format!(
                    "{}{}",
                    if ambiguous {
                        "contradicting signatures: "
                    } else {
                        ""
                    },
                    describe(signatures)
                ),
                expected: match expected {
                    None => "nothing (it was never formatted)".to_owned(),
                    Some((fs_type, fs_uuid, _)) => format!("{fs_type} with UUID {fs_uuid}"),
                },
            })
        }
    }
}

/// True if this filesystem is the one and only signature.
pub fn is_exactly(signatures: &[Signature], fs_type: FsType, fs_uuid: Uuid) -> bool {
    matches!(signatures, [one] if one.kind == fs_type.as_str() && Uuid::parse_str(&one.uuid) == Ok(fs_uuid))
}

pub(super) fn describe(signatures: &[Signature]) -> String {
    if signatures.is_empty() {
        return "something that could not be named".to_owned();
    }
    let name = |one: &Signature| match one.uuid.as_str() {
        "" => one.kind.clone(),
        uuid => format!("{} with UUID {uuid}", one.kind),
    };
    signatures
        .iter()
        .map(name)
        .collect::<Vec<_>>()
        .join(" and ")
}

#[cfg(test)]
#[path = "stage_tests.rs"]
mod tests;
