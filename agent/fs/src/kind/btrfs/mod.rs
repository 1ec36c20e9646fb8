//! btrfs, by btrfs-progs.

use std::{
    ffi::OsString,
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
    path::Path,
};

use super::{
    Advice, Allowed, Facts, Filesystem, LiveCheck, LogEvent, MkfsPlan, Scrub, Trial, UuidChange,
    Value, arguments,
};
use crate::tools::Program;
use crate::{
    affected::work::Work,
    decode::{Checker, cannot_open, complaints, corrupt, has, unclear, unseen},
    device::io_error,
    jobs::FsError,
};
use drivebay_model::{CheckOutcome, Extent, Inconclusive, unreadable::Holds};
use drivebay_sys::{btrfs::cancel_scrub, fssize::btrfs_device_bytes, path::Directory};
use drivebay_worker::Context;

mod checksum;
mod files;
mod superblock;

pub(super) struct Btrfs;

const fn program(name: &'static str) -> Program {
    Program {
        name,
        package: "btrfs-progs",
    }
}

static FACTS: Facts = Facts {
    mkfs: program("mkfs.btrfs"),
    mkfs_options: MKFS_OPTIONS,
    anonymous_device: true,
    damage: DAMAGE,
    advice: Advice {
        corrupt: "btrfs check --readonly",
        superblock: "btrfs rescue super-recover",
        damage: "btrfs scrub, or from a backup",
    },
    repair: None,
    configure: None,
    // btrfs_ioctl_resize answers EINVAL for anything smaller.
    least_growth: Some((
        256 << 20,
        "the kernel resizes btrfs only to 256 MiB or more; expand the volume to that",
    )),
    growth_hint: None,
    checker: &BTRFS_CHECK,
    // A snapshot has the same filesystem UUID, by which btrfs identifies devices: it could not be distinguished from the
    // volume.
    live_check: LiveCheck::Scrub(Scrub {
        checker: &BTRFS_SCRUB,
        mend: "btrfs scrub",
        cancel: cancel_scrub,
    }),
    changed_by_mount: &[64 << 10],
    error_events: None,
    count_errors: None,
};

const MKFS_OPTIONS: &[Allowed] = &[
    Allowed(&["-d", "--data"], Value::OneOf(&["single", "dup"])),
    Allowed(&["-m", "--metadata"], Value::OneOf(&["single", "dup"])),
    Allowed(&["-M", "--mixed"], Value::None),
    Allowed(&["-n", "--nodesize"], Value::Word),
    Allowed(&["-s", "--sectorsize"], Value::Word),
    Allowed(&["-L", "--label"], Value::Word),
    Allowed(&["-O", "--features"], Value::Not(&["zoned", "list-all"])),
    Allowed(&["-R", "--runtime-features"], Value::Not(&["list-all"])),
    Allowed(
        &["--csum", "--checksum"],
        Value::OneOf(&["crc32c", "xxhash", "sha256", "blake2"]),
    ),
];

/// Parts of messages in fs/btrfs/disk-io.c, for `Facts::damage`.
const DAMAGE: &[&str] = &[
    "superblock checksum mismatch",
    "superblock contains fatal errors",
    "superblock bytenr mismatch",
    "failed to read chunk root",
    "failed to read chunk tree",
];

/// btrfs rounds its device's size down to its sector size, of which this is the usual and smallest one here.
const SECTOR: u64 = 4096;

/// Both commands have the same messages.
const TOO_OLD: &[&str] = &[
    "unsupported option features",
    "unsupported optional features",
    "unsupported checksum algorithm",
];
const NOISE: &[&str] = &[
    "Opening filesystem",
    "Checking filesystem",
    "UUID:",
    "[",
    "found ",
    "total ",
    "btree space",
    "file data blocks",
    "referenced",
    "ERROR: cannot open file system",
    "ERROR: errors found",
];

pub static BTRFS_CHECK: Checker = Checker {
    program: program("btrfs"),
    arguments: &["check", "--readonly"],
    arguments_mounted: &["check", "--readonly"],
    command: "btrfs check --readonly",
    too_old: TOO_OLD,
    noise: NOISE,
    decode: btrfs_check,
};

pub static BTRFS_SCRUB: Checker = Checker {
    program: program("btrfs"),
    // -c 3: the kernel's own threads read in the idle class, too.
    arguments: &["scrub", "start", "-B", "-r", "-c", "3"],
    arguments_mounted: &["scrub", "start", "-B", "-r", "-c", "3"],
    command: "btrfs scrub start -Br",
    too_old: TOO_OLD,
    noise: NOISE,
    decode: btrfs_scrub,
};

/// Exit codes: 0 clean, 1 anything else. The log does not matter: a mount replays what was fsynced and not committed, and
/// everything else is complete without it.
fn btrfs_check(code: i32, text: &str) -> CheckOutcome {
    if let Some(unseen) = unseen(text) {
        return unseen;
    }
    match code {
        0 => CheckOutcome::Clean,
        1 if has(
            text,
            &["No such file", "cannot open /", "not check mount status"],
        ) =>
        {
            cannot_open(text)
        }
        1 if complaints(&BTRFS_CHECK, text).is_empty() => unclear(code, text),
        1 => corrupt(&BTRFS_CHECK, text),
        code => unclear(code, text),
    }
}

/// Exit codes: 0 no errors (or none that count), 1 failed, 2 nothing to do, 3 uncorrectable errors.
fn btrfs_scrub(code: i32, text: &str) -> CheckOutcome {
    let status = field(text, "Status:");
    let summary = field(text, "Error summary:").unwrap_or_default();
    let counts = |names: &[&str]| counters(summary).any(|name| names.contains(&name));
    match (code, status) {
        (0, Some("finished")) if summary == "no errors found" => CheckOutcome::Clean,
        (0 | 3, Some("finished")) if counts(&["csum", "verify", "super"]) => {
            CheckOutcome::Corrupt {
                what: kinds(summary),
                mendable: code == 0,
            }
        }
        (0 | 3, Some("finished")) if counts(&["read"]) => CheckOutcome::inconclusive(
            Inconclusive::CannotRead,
            "the device could not be read; see the kernel log and the drive",
        ),
        (code, _) => unclear(code, text),
    }
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines()
        .find_map(|line| line.trim().strip_prefix(name))
        .map(str::trim)
}

/// Returns the names in "csum=2 verify=1".
fn counters(summary: &str) -> impl Iterator<Item = &str> {
    let words = summary.split_whitespace();
    words.filter_map(|word| Some(word.split_once('=')?.0))
}

/// Describes the errors in "csum=2 verify=1" without the numbers, so that a message does not change with a counter.
fn kinds(summary: &str) -> String {
    let words = counters(summary).filter_map(|name| {
        Some(match name {
            "csum" => "blocks with a wrong checksum",
            "verify" => "metadata that contradicts itself",
            "super" => "bad superblocks",
            "read" => "blocks that do not read",
            _ => return None,
        })
    });
    words.collect::<Vec<_>>().join(", ")
}

/// Messages of btrfs, at the level of an error, about a request that it refuses: a mount, a balance, a scrub. They are no
/// evidence against the filesystem; if a mount fails because of damage, other lines report that.
const REFUSED: &[&str] = &[
    "unrecognized ",
    "open_ctree failed",
    "cannot mount ",
    "cannot disable ",
    "bad mount option",
    "balance: ",
    "scrub: ",
];

impl Filesystem for Btrfs {
    fn facts(&self) -> &'static Facts {
        &FACTS
    }

    fn mkfs(&self, plan: &MkfsPlan<'_>, node: &Path) -> Vec<OsString> {
        let mut args = self.mkfs_without_uuid(plan);
        args.extend(arguments(["-U", &plan.fs_uuid.to_string()]));
        args.push(node.into());
        args
    }

    /// Without the UUID, for which mkfs.btrfs would search every device that it sees, and one may not answer. The result
    /// does not depend on the sector size.
    fn try_mkfs(&self, plan: &MkfsPlan<'_>, _sector: u32, file: &Path) -> Trial {
        let mut args = self.mkfs_without_uuid(plan);
        args.push(file.into());
        Trial {
            args,
            env: Vec::new(),
        }
    }

    fn refuse_sector(&self, _options: &[String], _sector: u32) -> Option<String> {
        None
    }

    /// Always mounts the top level, not a default subvolume that a tenant has set.
    fn default_option(&self, _requested: &[String]) -> Option<&'static str> {
        Some("subvolid=5")
    }

    /// Writes the superblocks without a tool. A log that was not replayed has the generation after the superblock's, and
    /// btrfstune increments that one: the kernel then refuses the filesystem. Nor can it be replayed before: a kernel before
    /// 6.7 mounts no second filesystem with the same UUID. And `btrfstune -M` of btrfs-progs 6.2 refuses to start again
    /// after an interruption.
    fn change_uuid(
        &self,
        change: &UuidChange<'_>,
        context: &mut Context,
    ) -> Result<String, FsError> {
        let partition = change.partition;
        context.step(&format!("writing superblocks of {}", partition.device));
        let failed =
            |what: &'static str| move |error: io::Error| io_error(what, &partition.node, error);
        let file = partition
            .hold_for_writing()
            .map_err(failed("opening for writing"))?;
        let changed = |offset: u64| {
            let mut block = vec![0; superblock::BYTES];
            file.read_exact_at(&mut block, offset)?;
            let changed = superblock::with_uuid(&block, offset, change.from, change.to);
            Ok::<_, io::Error>(changed)
        };
        let write = |block: &[u8], offset: u64| {
            file.write_all_at(block, offset)
                .and_then(|()| file.sync_all())
                .map_err(failed("writing a superblock of"))
        };
        let [first, copies @ ..] = superblock::OFFSETS;
        let block = changed(first)
            .map_err(failed("reading the superblock of"))?
            .map_err(|why| change.failed(why))?;
        // The first superblock decides which UUID the filesystem has, and is therefore written last. A copy that is damaged
        // or missing is left as it is.
        for offset in copies {
            if let Ok(Ok(block)) = changed(offset) {
                write(&block, offset)?;
            }
        }
        write(&block, first)?;
        Ok("its superblock was written".to_owned())
    }

    /// Always false: mkfs writes the magic last.
    fn is_unfinished(&self, _head: &[u8]) -> bool {
        false
    }

    fn has_superblock(&self, device: &str) -> bool {
        fs::read_dir("/sys/fs/btrfs").is_ok_and(|mut all| {
            all.any(|one| {
                one.is_ok_and(|one| {
                    one.path()
                        .join("devices")
                        .join(device)
                        .symlink_metadata()
                        .is_ok()
                })
            })
        })
    }

    fn is_smaller(&self, mount: &Path, _node: &Path, device_bytes: u64) -> Result<bool, FsError> {
        let mounted = File::open(mount).map_err(|error| io_error("opening", mount, error))?;
        let bytes = btrfs_device_bytes(mounted)
            .map_err(|error| io_error("asking the size of the filesystem at", mount, error))?;
        Ok(bytes < device_bytes / SECTOR * SECTOR)
    }

    fn grow(&self, mount: &Path, _node: &Path) -> (Program, Vec<OsString>) {
        let mut args = arguments(["filesystem", "resize", "max"]);
        args.push(mount.into());
        (program("btrfs"), args)
    }

    fn locate(
        &self,
        work: &mut Work<'_>,
        pieces: &[Extent],
        root: Option<&Directory>,
    ) -> Vec<(Extent, Holds)> {
        match root {
            Some(root) => work.btrfs(pieces, root),
            None => work.unmounted_btrfs(pieces),
        }
    }

    fn log_event<'a>(&self, text: &'a str) -> Option<(LogEvent, &'a str)> {
        // `BTRFS error (device sda): …`, and of an aborted transaction `BTRFS: error (device sda) in …`.
        let (_, rest) = text.split_once("BTRFS")?;
        let (level, rest) = rest.split_once(" (device ")?;
        let level = level.trim_start_matches([':', ' ']);
        let device = rest.split([')', ' ', ':']).next()?;
        let message = rest.split_once("): ").map_or(rest, |(_, message)| message);
        if REFUSED.iter().any(|words| message.starts_with(words)) {
            return None;
        }
        let event = if rest.contains("forced readonly") {
            LogEvent::ReadOnly
        } else if [
            "csum failed",
            "corrupt leaf",
            "corrupt node",
            "checksum verify failed",
            "checksum error at",
            "parent transid verify failed",
            "bad tree block start",
        ]
        .iter()
        .any(|words| rest.contains(words))
        {
            LogEvent::Corrupt
        } else if matches!(level, "error" | "critical") {
            LogEvent::Error
        } else {
            return None;
        };
        Some((event, device))
    }
}

impl Btrfs {
    fn mkfs_without_uuid(&self, plan: &MkfsPlan<'_>) -> Vec<OsString> {
        let mut args = arguments(["-q", "-K"]);
        args.extend(plan.options.iter().map(OsString::from));
        args
    }
}
