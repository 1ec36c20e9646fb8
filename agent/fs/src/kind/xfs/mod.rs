//! XFS, by xfsprogs.

use std::{
    ffi::OsString,
    fs::{self, File},
    path::Path,
};

use uuid::Uuid;

use super::{
    Advice, Allowed, ErrorEvents, Facts, Filesystem, LiveCheck, LogEvent, MkfsPlan, Replay, Trial,
    UuidChange, Value, arguments, between,
};
use crate::tools::Program;
use crate::{
    affected::work::Work,
    decode::{Checker, cannot_open, complaints, corrupt, dirty, unclear, unseen},
    device::{HEAD_BYTES, io_error},
    jobs::{FsError, StageMount},
};
use drivebay_model::{CheckOutcome, Extent, unreadable::Holds};
use drivebay_sys::{
    direct,
    fanotify::FsId,
    fssize::{XfsGeometry, xfs_geometry},
    path::Directory,
};
use drivebay_worker::Context;

mod files;
mod log;

pub(super) struct Xfs;

const fn program(name: &'static str) -> Program {
    Program {
        name,
        package: "xfsprogs",
    }
}

static FACTS: Facts = Facts {
    mkfs: program("mkfs.xfs"),
    mkfs_options: MKFS_OPTIONS,
    anonymous_device: false,
    damage: DAMAGE,
    advice: Advice {
        corrupt: "xfs_repair -n",
        superblock: "xfs_repair",
        damage: "xfs_repair",
    },
    repair: None,
    configure: Some(limit_retries),
    least_growth: None,
    growth_hint: None,
    checker: &XFS_REPAIR,
    live_check: LiveCheck::Snapshot(Replay::Mount {
        options: &["nouuid"],
    }),
    changed_by_mount: &[0],
    error_events: Some(ErrorEvents {
        since: (7, 0),
        fsid,
    }),
    count_errors: None,
};

const MKFS_OPTIONS: &[Allowed] = &[
    Allowed(&["-b"], Value::Keys(&["size"])),
    Allowed(
        &["-d"],
        Value::Keys(&[
            "agcount",
            "agsize",
            "su",
            "sw",
            "sunit",
            "swidth",
            "noalign",
            "extszinherit",
            "cowextsize",
            "concurrency",
        ]),
    ),
    Allowed(
        &["-i"],
        Value::Keys(&[
            "size",
            "perblock",
            "maxpct",
            "align",
            "attr",
            "projid32bit",
            "sparse",
            "nrext64",
            "exchange",
        ]),
    ),
    Allowed(
        &["-l"],
        Value::Keys(&[
            "size",
            "su",
            "sunit",
            "version",
            "lazy-count",
            "agnum",
            "concurrency",
        ]),
    ),
    Allowed(&["-L"], Value::Word),
    Allowed(
        &["-m"],
        Value::Keys(&[
            "crc",
            "finobt",
            "rmapbt",
            "reflink",
            "bigtime",
            "inobtcount",
            "metadir",
            "autofsck",
            "uquota",
            "gquota",
            "pquota",
        ]),
    ),
    Allowed(
        &["-n"],
        Value::Keys(&["size", "version", "ftype", "parent"]),
    ),
    Allowed(&["-s"], Value::Keys(&["size"])),
];

/// From fs/xfs/libxfs/xfs_sb.c and xfs_mount.c. Options are refused before a superblock is validated.
const DAMAGE: &[&str] = &[
    "SB validate failed",
    "SB sanity check failed",
    "Invalid superblock magic number",
    "Metadata corruption detected",
    "Metadata CRC error detected",
    "Failed to read root inode",
    "corrupted root inode",
    "file system too large",
];

pub static XFS_REPAIR: Checker = Checker {
    program: program("xfs_repair"),
    arguments: &["-n"],
    // Without -f it refuses a device that is mounted.
    arguments_mounted: &["-n", "-f"],
    command: "xfs_repair -n",
    too_old: &[
        "Using a more recent xfs_repair is recommended",
        "Found unsupported filesystem features",
    ],
    noise: &[
        "Phase ",
        "- ",
        "No modify flag",
        "Cannot get host",
        "Repair may fail",
        "the image and the host",
        "ALERT:",
        "ignored because",
        "which may be resolved",
        "attempting to find",
        "fatal error",
        "Exiting now",
    ],
    decode: xfs_repair,
};

/// Exit codes: 0 clean, 1 anything else, 2 dirty log (without -n).
fn xfs_repair(code: i32, text: &str) -> CheckOutcome {
    if let Some(unseen) = unseen(text) {
        return unseen;
    }
    if code == 2 || text.contains("valuable metadata changes in a log") {
        return dirty();
    }
    match code {
        0 => CheckOutcome::Clean,
        1 if text.contains("couldn't initialize XFS library") => cannot_open(text),
        1 if complaints(&XFS_REPAIR, text).is_empty() => unclear(code, text),
        1 => corrupt(&XFS_REPAIR, text),
        code => unclear(code, text),
    }
}

impl Filesystem for Xfs {
    fn facts(&self) -> &'static Facts {
        &FACTS
    }

    fn mkfs(&self, plan: &MkfsPlan<'_>, node: &Path) -> Vec<OsString> {
        let mut args = arguments(["-q", "-K"]);
        if plan.over_own {
            args.push("-f".into());
        }
        args.extend(plan.options.iter().map(OsString::from));
        args.extend(arguments(["-m", &format!("uuid={}", plan.fs_uuid)]));
        args.push(node.into());
        args
    }

    fn try_mkfs(&self, plan: &MkfsPlan<'_>, sector: u32, file: &Path) -> Trial {
        let mut args = self.mkfs(plan, file);
        args.insert(0, "-N".into());
        // If the options have a sector size, `refuse_sector` compares it: two of them are an error.
        if sector > 512 && sector_option(plan.options).is_none() {
            args.splice(1..1, arguments(["-s", &format!("size={sector}")]));
        }
        Trial {
            args,
            env: Vec::new(),
        }
    }

    fn refuse_sector(&self, options: &[String], sector: u32) -> Option<String> {
        let given = sector_option(options)?.parse::<u32>().ok()?;
        (given < sector)
            .then(|| format!("a sector size of {given} bytes is less than the drive's {sector}"))
    }

    fn default_option(&self, _requested: &[String]) -> Option<&'static str> {
        None
    }

    /// Runs xfs_db as xfs_admin does: exclusively on the device, with a log that was replayed.
    fn change_uuid(
        &self,
        change: &UuidChange<'_>,
        context: &mut Context,
    ) -> Result<String, FsError> {
        if log_was_cut_off(change)? {
            change.repair(program("xfs_repair"), &["-L"], &[0], context)?;
        }
        // With its quota options: after a mount without them the next one counts everything again.
        let requested = change.options.iter().map(String::as_str);
        let options: Vec<&str> = std::iter::once("nouuid")
            .chain(requested.filter(|option| !option.contains('=')))
            .collect();
        change.replay(&options, context)?;
        let command = format!("uuid {}", change.to);
        let args = ["-x", "-p", "xfs_admin", "-c", &command];
        Ok(change.run(program("xfs_db"), &args, context)?.1)
    }

    /// True if the superblock has its magic, and sb_inprogress (byte 126) is 1.
    fn is_unfinished(&self, head: &[u8]) -> bool {
        head.starts_with(b"XFSB") && head.get(126) == Some(&1)
    }

    fn has_superblock(&self, device: &str) -> bool {
        Path::new("/sys/fs/xfs").join(device).exists()
    }

    fn is_smaller(&self, mount: &Path, _node: &Path, device_bytes: u64) -> Result<bool, FsError> {
        let mounted = File::open(mount).map_err(|error| io_error("opening", mount, error))?;
        let geometry = xfs_geometry(mounted)
            .map_err(|error| io_error("asking the size of the filesystem at", mount, error))?;
        Ok(geometry.data_blocks < blocks_on(geometry, device_bytes))
    }

    fn grow(&self, mount: &Path, _node: &Path) -> (Program, Vec<OsString>) {
        (program("xfs_growfs"), vec!["-d".into(), mount.into()])
    }

    fn locate(
        &self,
        work: &mut Work<'_>,
        pieces: &[Extent],
        root: Option<&Directory>,
    ) -> Vec<(Extent, Holds)> {
        match root {
            Some(root) => work.xfs(pieces, root),
            None => work.unmounted_xfs(pieces),
        }
    }

    fn log_event<'a>(&self, text: &'a str) -> Option<(LogEvent, &'a str)> {
        let device = between(text, "XFS (", &[')'])?;
        let any = |words: &[&str]| words.iter().any(|words| text.contains(words));
        let event = if any(&[
            "shutting down filesystem",
            "Shutting down filesystem",
            "has been shut down",
            "xfs_do_force_shutdown",
        ]) {
            LogEvent::ShutDown
        } else if any(&[
            "Corruption detected",
            "Corruption warning",
            // EUCLEAN and EBADMSG.
            "log mount/recovery failed: error -117",
            "log mount/recovery failed: error -74",
            "Metadata corruption detected",
            "Internal error",
            "Corruption of in-memory data",
            "Metadata CRC error detected",
        ]) {
            LogEvent::Corrupt
        } else if any(&[
            "metadata I/O error",
            "log I/O error",
            "Log I/O Error",
            "Failing async write",
        ]) {
            LogEvent::Error
        } else {
            return None;
        };
        Some((event, device))
    }
}

/// See [log::was_cut_off]. Reads past the page cache, where the blocks would stay.
fn log_was_cut_off(change: &UuidChange<'_>) -> Result<bool, FsError> {
    let node = &change.partition.node;
    let read = |at: u64| {
        direct::read_node(node, at, HEAD_BYTES).map_err(|error| io_error("reading", node, error))
    };
    let head = read(0)?;
    let Some(at) = log::begins_at(&head).filter(|at| *at < change.partition.bytes) else {
        return Ok(false);
    };
    // Blocks may be smaller than the alignment.
    let within = at % direct::ALIGN;
    let bytes = read(at - within)?;
    let first = usize::try_from(within)
        .ok()
        .and_then(|within| bytes.get(within..))
        .unwrap_or_default();
    Ok(log::was_cut_off(&head, first, change.to))
}

/// Makes XFS shut down on a failing drive instead of retrying metadata writes forever, which would block every unmount.
fn limit_retries(device: &str, mount: &StageMount) {
    if mount.xfs_retry_forever {
        return;
    }
    for class in ["EIO", "ENODEV", "ENOSPC", "default"] {
        let file = Path::new("/sys/fs/xfs")
            .join(device)
            .join("error/metadata")
            .join(class)
            .join("max_retries");
        if let Err(error) = fs::write(&file, "0") {
            tracing::error!(path = %file.display(), %error, "cannot limit XFS metadata write retries; XFS may retry forever on this volume");
        }
    }
}

/// Returns the device number (fs/xfs/xfs_super.c).
fn fsid(_fs_uuid: Option<Uuid>, (major, minor): (u32, u32)) -> Option<FsId> {
    // new_encode_dev in include/linux/kdev_t.h.
    Some([(minor & 0xff) | (major << 8) | ((minor & !0xff) << 12), 0])
}

/// Returns the value of `-s size=` in the options of mkfs.xfs, unparsed; None if there is no such option.
fn sector_option(options: &[String]) -> Option<&str> {
    let at = options.iter().position(|one| one.starts_with("-s"))?;
    let attached = &options[at][2..];
    let value = match attached.is_empty() {
        true => options.get(at + 1)?.as_str(),
        false => attached,
    };
    Some(value.strip_prefix("size=").unwrap_or(value))
}

/// XFS drops a last allocation group smaller than this (XFS_MIN_AG_BLOCKS).
const XFS_MIN_AG_BLOCKS: u64 = 64;

/// Returns the number of blocks that xfs_growfs would give the filesystem on a device of this size.
fn blocks_on(geometry: XfsGeometry, device_bytes: u64) -> u64 {
    let blocks = device_bytes / geometry.block_size.max(1);
    let rest = blocks % geometry.ag_blocks.max(1);
    if rest < XFS_MIN_AG_BLOCKS {
        blocks - rest
    } else {
        blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xfs_is_not_grown_by_less_than_its_smallest_group() {
        let geometry = XfsGeometry {
            block_size: 4096,
            ag_blocks: 1000,
            data_blocks: 4000,
        };
        assert_eq!(blocks_on(geometry, 4000 * 4096), 4000);
        assert_eq!(blocks_on(geometry, 4063 * 4096), 4000);
        assert_eq!(blocks_on(geometry, 4064 * 4096 + 4095), 4064);
    }
}
