//! Interprets exit code and output of checking tools. Pure; measured with e2fsprogs 1.47, xfsprogs 6.1 and btrfs-progs 6.2.
//!
//! Exit codes alone are not enough: `e2fsck -fn` exits with 0 on a filesystem whose journal it did not replay, and
//! `xfs_repair -n` with 1 on any failure. So the output is first searched for other causes of complaints: a log that was not
//! replayed, a device that cannot be opened or read. Only the rest is damage.

use crate::tools::{Program, idle::End};
use drivebay_model::{CheckOutcome, Inconclusive};

/// Limit of characters of a tool's message in an outcome.
const MESSAGE_CHARS: usize = 160;

/// Tool with its arguments, and the rules for its output.
#[derive(Debug)]
pub struct Checker {
    pub program: Program,
    /// Arguments before the device or the mount.
    pub arguments: &'static [&'static str],
    /// Arguments before a device that is mounted.
    pub arguments_mounted: &'static [&'static str],
    /// Command as an operator would type it, without the device.
    pub command: &'static str,
    /// Messages about features of the filesystem that the tool does not know.
    pub too_old: &'static [&'static str],
    /// Beginnings of lines that are no complaints.
    pub noise: &'static [&'static str],
    /// Interprets exit code and output, if the tool knows the filesystem's features. Pure.
    pub decode: fn(i32, &str) -> CheckOutcome,
}

/// Returns the outcome of a check whose tool ended so.
pub fn decode(checker: &Checker, end: &End) -> CheckOutcome {
    let command = checker.command;
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
            (checker.decode)(*code, &text)
        }
    }
}

/// Messages about a device that cannot be read: a fault of the drive, which the kernel log reports, too.
const UNREADABLE: &[&str] = &["Input/output error", "short read", "read failed:"];
/// Messages about a device that is in use.
const IN_USE: &[&str] = &[
    "Device or resource busy",
    "contains a mounted",
    "is currently mounted",
    "is mounted.",
    "is in use.",
];

pub(crate) fn has(text: &str, words: &[&str]) -> bool {
    words.iter().any(|word| text.contains(word))
}

/// Returns the outcome if the tool could not read the device. The messages are the same for every tool.
pub(crate) fn unseen(text: &str) -> Option<CheckOutcome> {
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

/// Returns the outcome if the filesystem has a feature that the tool does not know, made by a newer tool or kernel: the rest
/// was not checked. None if the superblock, which has the features, is reported as damaged, too.
fn too_old(checker: &Checker, text: &str) -> Option<CheckOutcome> {
    let damaged = &[
        "Superblock invalid, trying backup",
        "does not match superblock",
        "Bad magic number",
        "bad primary superblock",
    ];
    (has(text, checker.too_old) && !has(text, damaged)).then(|| {
        let command = checker.command;
        let package = checker.program.package;
        CheckOutcome::inconclusive(
            Inconclusive::ToolTooOld,
            format!("{command} is older than the filesystem's features; upgrade package {package}"),
        )
    })
}

pub(crate) fn dirty() -> CheckOutcome {
    CheckOutcome::inconclusive(
        Inconclusive::DirtyLog,
        "the filesystem was not unmounted cleanly, and only mounting it replays its log; it is checked after the next use",
    )
}

pub(crate) fn cannot_open(text: &str) -> CheckOutcome {
    CheckOutcome::inconclusive(Inconclusive::CannotOpen, last_line(text))
}

pub(crate) fn unclear(code: i32, text: &str) -> CheckOutcome {
    CheckOutcome::inconclusive(
        Inconclusive::Unclear,
        format!("exit code {code}: {}", last_line(text)),
    )
}

pub(crate) fn corrupt(checker: &Checker, text: &str) -> CheckOutcome {
    let first = complaints(checker, text).into_iter().next();
    CheckOutcome::Corrupt {
        what: first.unwrap_or_else(|| "it does not say what".to_owned()),
        mendable: false,
    }
}

/// Returns the complaints of a tool, without what changes from run to run (addresses in its memory), questions, answers, and
/// names of files, which are a tenant's.
pub fn complaints(checker: &Checker, text: &str) -> Vec<String> {
    text.lines()
        .map(str::trim)
        .filter(|line| {
            !line.is_empty() && !line.contains("files (") && !line.contains("**********")
        })
        .filter(|line| !checker.noise.iter().any(|noise| line.starts_with(noise)))
        // Progress dots.
        .filter(|line| !line.chars().all(|c| ".".contains(c)))
        .map(plain)
        .filter(|line| !line.is_empty())
        .collect()
}

/// Returns one complaint without names, addresses and questions, shortened.
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
    // "detected at 0x55eae93c0029, xfs_agf …": an address in the tool's memory, which differs in each run.
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
    text.trim().chars().take(MESSAGE_CHARS).collect()
}

fn last_line(text: &str) -> String {
    let line = text.lines().map(str::trim).rfind(|line| !line.is_empty());
    line.unwrap_or("it said nothing")
        .chars()
        .filter(|c| !c.is_control())
        .take(MESSAGE_CHARS)
        .collect()
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
