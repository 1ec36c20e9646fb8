//! What a checking tool's exit code and text mean. Pure; measured with e2fsprogs 1.47, xfsprogs 6.1 and btrfs-progs 6.2.
//!
//! Exit codes alone say too little: `e2fsck -fn` ends with 0 on a filesystem whose journal it did not replay, and every way for
//! `xfs_repair -n` to fail is 1. So the text is read first for what explains the complaints away: a log that was not
//! replayed, a device that cannot be opened or read. Only what is left is damage.

use crate::tools;
use drivebay_model::{CheckOutcome, FsType, Inconclusive};

/// Most characters of a tool's message that are shown.
const TOLD: usize = 160;

/// A tool with the arguments it is run with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checker {
    /// `e2fsck -fn`
    E2fsck,
    /// `xfs_repair -n`
    XfsRepair,
    /// `btrfs check --readonly`
    BtrfsCheck,
    /// `btrfs scrub start -Br`
    BtrfsScrub,
}

impl Checker {
    /// The one for a filesystem that is not mounted.
    pub fn of(fs_type: FsType) -> Self {
        match fs_type {
            FsType::Ext4 => Self::E2fsck,
            FsType::Xfs => Self::XfsRepair,
            FsType::Btrfs => Self::BtrfsCheck,
        }
    }

    /// As an operator would type it, without the device.
    pub fn command(self) -> &'static str {
        match self {
            Self::E2fsck => "e2fsck -fn",
            Self::XfsRepair => "xfs_repair -n",
            Self::BtrfsCheck => "btrfs check --readonly",
            Self::BtrfsScrub => "btrfs scrub start -Br",
        }
    }
}

/// How a tool ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// By itself.
    Exited {
        /// Exit code.
        code: i32,
        /// What it said.
        stdout: String,
        /// What it said.
        stderr: String,
    },
    /// By a signal.
    Killed,
    /// It was killed because its time was up.
    TimedOut,
    /// It is not installed.
    Missing {
        /// Debian's package.
        package: String,
    },
    /// It could not be run.
    NotRun { why: String },
}

/// What the end of a tool means.
pub fn decode(checker: Checker, end: &End) -> CheckOutcome {
    let command = checker.command();
    match end {
        End::Killed => CheckOutcome::inconclusive(
            Inconclusive::Killed,
            format!("a signal ended {command}; see dmesg (out of memory?)"),
        ),
        End::TimedOut => CheckOutcome::inconclusive(
            Inconclusive::TimedOut,
            format!("{command} needed longer than [checks] timeout"),
        ),
        End::Missing { package } => CheckOutcome::inconclusive(
            Inconclusive::ToolMissing,
            format!("{command} is not installed; install package {package}"),
        ),
        End::NotRun { why } => {
            CheckOutcome::inconclusive(Inconclusive::Unclear, format!("{command}: {why}"))
        }
        End::Exited {
            code,
            stdout,
            stderr,
        } => {
            let text = format!("{stdout}\n{stderr}");
            if let Some(too_old) = too_old(checker, &text) {
                return too_old;
            }
            match checker {
                Checker::E2fsck => e2fsck(*code, &text),
                Checker::XfsRepair => xfs_repair(*code, &text),
                Checker::BtrfsCheck => btrfs_check(*code, &text),
                Checker::BtrfsScrub => btrfs_scrub(*code, &text),
            }
        }
    }
}

/// Words for a device that does not read: the drive's trouble, which the kernel log tells of, too.
const UNREADABLE: &[&str] = &["Input/output error", "short read", "read failed:"];
/// Words for a device that somebody has.
const IN_USE: &[&str] = &[
    "Device or resource busy",
    "contains a mounted",
    "is currently mounted",
    "is mounted.",
    "is in use.",
];

fn has(text: &str, words: &[&str]) -> bool {
    words.iter().any(|word| text.contains(word))
}

/// What every tool says when it could not look.
fn unseen(text: &str) -> Option<CheckOutcome> {
    if has(text, IN_USE) {
        Some(CheckOutcome::inconclusive(
            Inconclusive::InUse,
            "the device is mounted or held open",
        ))
    } else if has(text, UNREADABLE) {
        Some(CheckOutcome::inconclusive(
            Inconclusive::CannotRead,
            "the device could not be read; see the kernel log and the drive",
        ))
    } else if has(text, &["Cannot allocate memory", "out of memory"]) {
        Some(CheckOutcome::inconclusive(
            Inconclusive::Killed,
            "there was not enough memory for it",
        ))
    } else {
        None
    }
}

/// What a tool says of a filesystem with a feature that it does not know, made by a newer tool or kernel: it has not looked at the
/// rest. Not where it also says that the superblock, which names the features, is damaged.
fn too_old(checker: Checker, text: &str) -> Option<CheckOutcome> {
    let words: &[&str] = match checker {
        Checker::E2fsck => &[
            "unsupported feature(s)",
            "unsupported read-only feature(s)",
            "unsupported encoding",
            "Get a newer version of e2fsck",
            "too high for this version of e2fsck",
        ],
        Checker::XfsRepair => &[
            "Using a more recent xfs_repair is recommended",
            "Found unsupported filesystem features",
        ],
        Checker::BtrfsCheck | Checker::BtrfsScrub => &[
            "unsupported option features",
            "unsupported optional features",
            "unsupported checksum algorithm",
        ],
    };
    let damaged = &[
        "Superblock invalid, trying backup",
        "does not match superblock",
        "Bad magic number",
        "bad primary superblock",
    ];
    (has(text, words) && !has(text, damaged)).then(|| {
        let command = checker.command();
        let package = tools::package(command.split(' ').next().unwrap_or(command));
        CheckOutcome::inconclusive(
            Inconclusive::ToolTooOld,
            format!("{command} is older than the filesystem's features; upgrade package {package}"),
        )
    })
}

fn dirty() -> CheckOutcome {
    CheckOutcome::inconclusive(
        Inconclusive::DirtyLog,
        "the filesystem was not unmounted cleanly, and only mounting it replays its log; it is checked after the next use",
    )
}

fn cannot_open(text: &str) -> CheckOutcome {
    CheckOutcome::inconclusive(Inconclusive::CannotOpen, last_line(text))
}

fn unclear(code: i32, text: &str) -> CheckOutcome {
    CheckOutcome::inconclusive(
        Inconclusive::Unclear,
        format!("exit code {code}: {}", last_line(text)),
    )
}

fn corrupt(checker: Checker, text: &str) -> CheckOutcome {
    let first = complaints(checker, text).into_iter().next();
    CheckOutcome::Corrupt {
        what: first.unwrap_or_else(|| "it does not say what".to_owned()),
        mendable: false,
    }
}

/// e2fsck(8): a sum of 1 corrected, 2 reboot, 4 errors left, 8 operational error, 16 usage, 32 cancelled, 128 library.
fn e2fsck(code: i32, text: &str) -> CheckOutcome {
    if let Some(unseen) = unseen(text) {
        return unseen;
    }
    // Whatever it found then may be in the journal. Also with code 0: it ignores what a replay often changes.
    if text.contains("skipping journal recovery") {
        return dirty();
    }
    let size =
        text.contains("Either the superblock or the partition table is likely to be corrupt");
    match code {
        0 if size => corrupt(Checker::E2fsck, text),
        0 => CheckOutcome::Clean,
        code if code & !(1 | 2 | 4 | 8) != 0 => unclear(code, text),
        code if code & 4 != 0 => corrupt(Checker::E2fsck, text),
        // It was opened by name, and there is no filesystem in it, not even in the copies of its superblock.
        8 if has(
            text,
            &[
                "Bad magic number in super-block",
                "superblock is corrupt",
                "does not match superblock",
            ],
        ) =>
        {
            corrupt(Checker::E2fsck, text)
        }
        8 => cannot_open(text),
        code => unclear(code, text),
    }
}

/// 0 clean, 1 anything else, 2 dirty log (without -n).
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
        1 if complaints(Checker::XfsRepair, text).is_empty() => unclear(code, text),
        1 => corrupt(Checker::XfsRepair, text),
        code => unclear(code, text),
    }
}

/// 0 clean, 1 anything else. There is no log that matters: what was fsynced and not committed is replayed by a mount, and
/// everything else is whole without it.
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
        1 if complaints(Checker::BtrfsCheck, text).is_empty() => unclear(code, text),
        1 => corrupt(Checker::BtrfsCheck, text),
        code => unclear(code, text),
    }
}

/// 0 no errors (or none that count), 1 failed, 2 nothing to do, 3 uncorrectable errors.
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

/// The names in "csum=2 verify=1".
fn counters(summary: &str) -> impl Iterator<Item = &str> {
    let words = summary.split_whitespace();
    words.filter_map(|word| Some(word.split_once('=')?.0))
}

/// "csum=2 verify=1" without its numbers: a message does not move with a counter.
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

/// The lines in which a tool complains, without what changes from run to run (addresses in its memory), questions, answers, and names of
/// files, which are a tenant's.
pub fn complaints(checker: Checker, text: &str) -> Vec<String> {
    let noise: &[&str] = match checker {
        Checker::E2fsck => &[
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
        Checker::XfsRepair => &[
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
        Checker::BtrfsCheck | Checker::BtrfsScrub => &[
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
        ],
    };
    text.lines()
        .map(str::trim)
        .filter(|line| {
            !line.is_empty() && !line.contains("files (") && !line.contains("**********")
        })
        .filter(|line| !noise.iter().any(|noise| line.starts_with(noise)))
        // The dots of a search.
        .filter(|line| !line.chars().all(|c| ".".contains(c)))
        .map(plain)
        .filter(|line| !line.is_empty())
        .collect()
}

/// One complaint without names, addresses and questions, shortened.
fn plain(line: &str) -> String {
    let mut text = String::new();
    let mut quoted = None;
    for c in line.trim_start_matches('.').chars() {
        match quoted {
            // `'..'` is a name too, but e2fsck also writes "doesn't": a quote opens after a space alone.
            Some(end) if c == end => {
                quoted = None;
                text.push('…');
                text.push(c);
            }
            Some(_) => {}
            None => {
                let opens = matches!(c, '\'' | '"')
                    && text.chars().next_back().is_none_or(|before| before == ' ')
                    && line.matches(c).count() > 1;
                quoted = opens.then_some(c);
                text.push(if c.is_control() { ' ' } else { c });
            }
        }
    }
    // "detected at 0x55eae93c0029, xfs_agf …": where in the tool's memory, another at each run.
    if let Some((before, after)) = text.split_once(" at 0x")
        && let Some((_, after)) = after.split_once(',')
    {
        text = format!("{before},{after}");
    }
    // "ref count is 8, should be 7.  Fix? no"
    if let Some((before, _)) = text
        .strip_suffix("? no")
        .and_then(|text| text.rsplit_once("  "))
    {
        text = before.to_owned();
    }
    text.trim().chars().take(TOLD).collect()
}

fn last_line(text: &str) -> String {
    let line = text.lines().map(str::trim).rfind(|line| !line.is_empty());
    line.unwrap_or("it said nothing")
        .chars()
        .filter(|c| !c.is_control())
        .take(TOLD)
        .collect()
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
