//! ext4, by e2fsprogs.

use std::{ffi::OsString, fs::File, os::unix::fs::FileExt, path::Path};

use uuid::Uuid;

use super::{
    Advice, Allowed, ErrorEvents, Facts, Filesystem, LiveCheck, LogEvent, MkfsPlan, Replay, Trial,
    UuidChange, Value, arguments, between,
};
use crate::{
    affected::work::Work,
    backend::StageBackend,
    decode::{Checker, cannot_open, corrupt, dirty, has, unclear, unseen},
    device::{HEAD_BYTES, Partition, io_error},
    jobs::FsError,
    tools::{self, Program},
};
use drivebay_model::{CheckOutcome, Extent, FsType, unreadable::Holds};
use drivebay_sys::{blockstat, fanotify::FsId, path::Directory};
use drivebay_worker::Context;

pub mod debugfs;
mod files;
pub mod superblock;

pub(super) struct Ext4;

const fn program(name: &'static str) -> Program {
    Program {
        name,
        package: "e2fsprogs",
    }
}

static FACTS: Facts = Facts {
    mkfs: program("mkfs.ext4"),
    mkfs_options: MKFS_OPTIONS,
    anonymous_device: false,
    damage: DAMAGE,
    advice: Advice {
        corrupt: "e2fsck -f",
        superblock: "e2fsck -f",
        damage: "e2fsck -f",
    },
    repair: Some(repair_flagged),
    configure: None,
    least_growth: None,
    growth_hint: Some((
        "Permission denied",
        "growing a mounted ext4 needs CAP_SYS_RESOURCE, and a filesystem without its error flag",
    )),
    checker: &E2FSCK,
    live_check: LiveCheck::Snapshot(Replay::Tool {
        program: program("e2fsck"),
        arguments: &["-E", "journal_only", "-p"],
        // 1: the journal was replayed.
        done: &[0, 1],
    }),
    changed_by_mount: &[0],
    error_events: Some(ErrorEvents {
        since: (5, 16),
        fsid,
    }),
    count_errors: Some(blockstat::ext4_errors),
};

const MKFS_OPTIONS: &[Allowed] = &[
    Allowed(&["-b"], Value::Word),
    Allowed(&["-C"], Value::Word),
    Allowed(
        &["-E"],
        Value::Keys(&[
            "lazy_itable_init",
            "lazy_journal_init",
            "discard",
            "nodiscard",
            "stride",
            "stripe_width",
            "stripe-width",
            "resize",
            "packed_meta_blocks",
            "num_backup_sb",
            "root_owner",
            "hash_seed",
            "quotatype",
            "mmp_update_interval",
            "encoding",
            "encoding_flags",
            "orphan_file_size",
            "assume_storage_prezeroed",
            "no_copy_xattrs",
        ]),
    ),
    Allowed(&["-e"], Value::OneOf(&["continue", "remount-ro"])),
    Allowed(&["-g"], Value::Word),
    Allowed(&["-G"], Value::Word),
    Allowed(&["-i"], Value::Word),
    Allowed(&["-I"], Value::Word),
    Allowed(&["-j"], Value::None),
    Allowed(
        &["-J"],
        Value::Keys(&["size", "fast_commit_size", "location"]),
    ),
    Allowed(&["-L"], Value::Word),
    Allowed(&["-m"], Value::Word),
    Allowed(&["-N"], Value::Word),
    // Without a journal or extents it would not be ext4, nor survive a power failure.
    Allowed(
        &["-O"],
        Value::Not(&[
            "none",
            "journal_dev",
            "^has_journal",
            "^extent",
            "^extents",
            "mmp",
        ]),
    ),
    Allowed(&["-T"], Value::Word),
];

/// Parts of messages in fs/ext4/super.c, for `Facts::damage`.
const DAMAGE: &[&str] = &[
    "VFS: Can't find ext4 filesystem",
    "invalid superblock checksum",
    "Invalid log block size",
    "Invalid log cluster size",
    "bad block size",
    "bad geometry",
    "group descriptors corrupted",
    "inodes count not valid",
    "invalid first ino",
    "unsupported inode size",
    "unsupported descriptor size",
    "per group too big",
    "invalid inodes per group",
    "insane block group count",
    "overhead calculation",
    "no journal found",
    "journal inode is deleted",
    "Invalid journal inode",
    "get root inode failed",
    "corrupt root inode",
];

/// Environment variable of mkfs.ext4: logical sector size in bytes that it assumes for its device.
const SECTOR_VARIABLE: &str = "MKE2FS_DEVICE_SECTSIZE";

pub static E2FSCK: Checker = Checker {
    program: program("e2fsck"),
    arguments: &["-fn"],
    arguments_mounted: &["-fn"],
    command: "e2fsck -fn",
    too_old: &[
        "unsupported feature(s)",
        "unsupported read-only feature(s)",
        "unsupported encoding",
        "Get a newer version of e2fsck",
        "too high for this version of e2fsck",
    ],
    noise: &[
        "Pass ",
        "e2fsck ",
        "e2fsck: ",
        "Warning",
        "WARNING",
        "Fix",
        "Salvage",
        "Abort",
        "Clear",
        "The physical size",
        "Possibly non-existent",
    ],
    decode: e2fsck,
};

/// Exit code by e2fsck(8): a sum of 1 corrected, 2 reboot, 4 errors left, 8 operational error, 16 usage, 32 cancelled, 128
/// library.
fn e2fsck(code: i32, text: &str) -> CheckOutcome {
    if let Some(unseen) = unseen(text) {
        return unseen;
    }
    // The complaints may be about what is in the journal. Also with code 0: it ignores what a replay often changes.
    if text.contains("skipping journal recovery") {
        return dirty();
    }
    let size =
        text.contains("Either the superblock or the partition table is likely to be corrupt");
    match code {
        0 if size => corrupt(&E2FSCK, text),
        0 => CheckOutcome::Clean,
        code if code & !(1 | 2 | 4 | 8) != 0 => unclear(code, text),
        code if code & 4 != 0 => corrupt(&E2FSCK, text),
        // The device was opened, and has no filesystem, not even in the copies of the superblock.
        8 if has(
            text,
            &[
                "Bad magic number in super-block",
                "superblock is corrupt",
                "does not match superblock",
            ],
        ) =>
        {
            corrupt(&E2FSCK, text)
        }
        8 => cannot_open(text),
        code => unclear(code, text),
    }
}

impl Filesystem for Ext4 {
    fn facts(&self) -> &'static Facts {
        &FACTS
    }

    /// Reserves nothing for root, since a volume has one owner; `-m` changes that.
    fn mkfs(&self, plan: &MkfsPlan<'_>, node: &Path) -> Vec<OsString> {
        // mke2fs takes the last -E alone, so the request's extended options are joined to ours.
        let (extended, rest) = split_extended(plan.options);
        let mut args = arguments(["-q", "-m", "0", "-E", &extended]);
        args.extend(rest.iter().map(OsString::from));
        args.extend(arguments(["-U", &plan.fs_uuid.to_string()]));
        args.push(node.into());
        args
    }

    fn try_mkfs(&self, plan: &MkfsPlan<'_>, sector: u32, file: &Path) -> Trial {
        let mut args = self.mkfs(plan, file);
        args.insert(0, "-n".into());
        Trial {
            args,
            env: vec![(SECTOR_VARIABLE, sector.to_string().into())],
        }
    }

    fn refuse_sector(&self, _options: &[String], _sector: u32) -> Option<String> {
        None
    }

    /// Makes the filesystem read-only after an error, unless another `errors=` is requested.
    fn default_option(&self, requested: &[String]) -> Option<&'static str> {
        let is_named = requested.iter().any(|option| option.starts_with("errors="));
        (!is_named).then_some("errors=remount-ro")
    }

    /// Runs tune2fs after the kernel has replayed the journal.
    fn change_uuid(
        &self,
        change: &UuidChange<'_>,
        context: &mut Context,
    ) -> Result<String, FsError> {
        let partition = change.partition;
        let (volume, may_repair) = (change.volume, change.may_repair);
        repair_flagged(change.backend, partition, volume, may_repair, context)?;
        change.replay(&[], context)?;
        let head = partition
            .head()
            .map_err(|error| io_error("reading the superblock of", &partition.node, error))?;
        let to = change.to.to_string();
        let args = tune(&head, &to);
        let (_, output) = change.run(program("tune2fs"), &args, context)?;
        // The UUID is also used outside of the superblock.
        if !output.contains("freshly checked") {
            return Ok(output);
        }
        change.repair(program("e2fsck"), &["-f", "-p"], &[0, 1], context)?;
        Ok(change.run(program("tune2fs"), &args, context)?.1)
    }

    /// Decides by mount time and mount count.
    fn is_unfinished(&self, head: &[u8]) -> bool {
        superblock::parse(head).is_some_and(|sb| !sb.ever_mounted)
    }

    fn has_superblock(&self, device: &str) -> bool {
        Path::new("/sys/fs/ext4").join(device).exists()
    }

    /// Reads the superblock from the device, through the same cache as the mounted filesystem.
    fn is_smaller(&self, _mount: &Path, node: &Path, device_bytes: u64) -> Result<bool, FsError> {
        let mut head = vec![0; HEAD_BYTES];
        File::open(node)
            .map_err(|error| io_error("opening", node, error))?
            .read_exact_at(&mut head, 0)
            .map_err(|error| io_error("reading the superblock of", node, error))?;
        Ok(superblock::parse(&head).is_some_and(|sb| sb.blocks < sb.blocks_on(device_bytes)))
    }

    fn grow(&self, _mount: &Path, node: &Path) -> (Program, Vec<OsString>) {
        (program("resize2fs"), vec![node.into()])
    }

    fn locate(
        &self,
        work: &mut Work<'_>,
        pieces: &[Extent],
        root: Option<&Directory>,
    ) -> Vec<(Extent, Holds)> {
        work.ext4(pieces, root)
    }

    fn log_event<'a>(&self, text: &'a str) -> Option<(LogEvent, &'a str)> {
        if let Some(device) = between(text, "EXT4-fs error (device ", &[')', ':']) {
            return Some((LogEvent::Error, device));
        }
        if let Some(device) = between(text, "EXT4-fs (", &[')', ':']) {
            let any = |words: &[&str]| words.iter().any(|words| text.contains(words));
            return if text.contains("Remounting filesystem read-only") {
                Some((LogEvent::ReadOnly, device))
            } else if any(&["Data will be lost", "potential data loss"]) {
                Some((LogEvent::Error, device))
            } else {
                None
            };
        }
        // Data of a file that was not written.
        if let Some(journal) = between(text, "IO errors while flushing file data on ", &['.', ' '])
        {
            return Some((LogEvent::Error, journaled(journal)));
        }
        // jbd2 names its journal: the device, a hyphen, an inode number.
        let journal = between(text, "Aborting journal on device ", &['.', ' '])?;
        Some((LogEvent::ReadOnly, journaled(journal)))
    }
}

/// Returns the arguments of tune2fs that change the UUID of a filesystem with these first bytes. Checksums of metadata that
/// are seeded with the UUID keep the present one as a stored seed (Linux 4.4): no metadata is written, and no full check is
/// needed.
fn tune<'a>(head: &[u8], to: &'a str) -> Vec<&'a str> {
    let mut args = vec!["-U", to];
    if superblock::parse(head).is_some_and(|sb| sb.seeded_by_uuid) {
        args.extend(["-O", "metadata_csum_seed"]);
    }
    args
}

/// Repairs the filesystem if its superblock has the error flag. See [RepairFlagged](super::RepairFlagged).
fn repair_flagged(
    backend: &dyn StageBackend,
    partition: &Partition,
    volume: Uuid,
    may_repair: bool,
    context: &mut Context,
) -> Result<(), FsError> {
    match partition.head() {
        Ok(head) if superblock::parse(&head).is_some_and(|sb| sb.errors) => {}
        _ => return Ok(()),
    }
    if !may_repair {
        return Err(FsError::NeedsRepair {
            uuid: volume,
            fs_type: FsType::Ext4,
            device: partition.device.clone(),
        });
    }
    let args = vec!["-p".into(), partition.node.clone().into_os_string()];
    match tools::run(
        backend,
        program("e2fsck"),
        args,
        (&partition.device, None),
        context,
    ) {
        // 0 nothing to do, 1 repaired, 2 repaired and wants a reboot (of a mounted root only).
        Ok(output) if output.code.is_some_and(|code| (0..=3).contains(&code)) => {
            tracing::warn!(
                device = partition.device,
                "ext4 error flag was set; e2fsck -p completed"
            );
        }
        Ok(output) => tracing::error!(
            device = partition.device,
            output = tools::excerpt(&output),
            "e2fsck -p cannot repair the filesystem"
        ),
        Err(error) => {
            tracing::error!(device = partition.device, %error, "cannot run e2fsck -p")
        }
    }
    Ok(())
}

/// Folds the UUID (fs/ext4/super.c, `ext4_statfs`).
fn fsid(fs_uuid: Option<Uuid>, _dev: (u32, u32)) -> Option<FsId> {
    let fs_uuid = fs_uuid?;
    let [a, b] = fs_uuid.as_bytes().as_chunks::<8>().0 else {
        return None;
    };
    let folded = u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
    Some([folded as u32, (folded >> 32) as u32])
}

fn journaled(journal: &str) -> &str {
    journal
        .rsplit_once('-')
        .map_or(journal, |(device, _)| device)
}

fn split_extended(options: &[String]) -> (String, Vec<String>) {
    let (mut extended, mut rest) = ("nodiscard".to_owned(), Vec::new());
    let mut each = options.iter();
    while let Some(option) = each.next() {
        match option.strip_prefix("-E") {
            Some("") => extended = format!("{extended},{}", each.next().map_or("", String::as_str)),
            Some(value) => extended = format!("{extended},{value}"),
            None => rest.push(option.clone()),
        }
    }
    (extended, rest)
}
