//! Polls one drive with smartctl, an eMMC by sysfs. Blocks: for the drive's worker only.
//!
//! A poll is killed, with its process group, after `HARD`. One that took longer than `SOFT` is marked as slow; by then the pool also
//! reports the slot as stuck. A smartctl that cannot be killed stays with the worker (`sys::cmd::left_behind`), which takes no more work:
//! no second one is started beside it.

mod mmc;

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use super::{
    facts::{self, ExitStatus, Facts, MAX_BYTES, ParseError, Protocol, sleeping},
    history::History,
    json::tidy,
    outcome::{Failure, FailureReason, Outcome},
};
use drivebay_model::{DriveFacts, Media, Transport};
use drivebay_sys::cmd::{self, CmdError, Output, Tool};

/// A poll that takes longer than this is slow.
pub const SOFT: Duration = Duration::from_secs(30);
/// A poll that takes longer than this is killed.
pub const HARD: Duration = Duration::from_secs(90);
/// Interval between light polls of a rotating drive: SMART reads delay its queue.
pub const HDD_INTERVAL: Duration = Duration::from_secs(30 * 60);
/// Interval between light polls of any other drive.
pub const SSD_INTERVAL: Duration = Duration::from_secs(10 * 60);
/// Interval between deep polls.
pub const DEEP_INTERVAL: Duration = Duration::from_secs(24 * 3600);
/// Exit status that smartctl is requested to use for a drive in standby. Its own bits for a failed open and for a wrong command line are
/// never set together.
const ASLEEP: i32 = 3;
/// Exit statuses of a shell that cannot execute a program, or finds none: if a script stands for smartctl, these are no bits.
const SHELL: [(i32, FailureReason, &str); 2] = [
    (126, FailureReason::NotStarted, "command not executable"),
    (127, FailureReason::Missing, "command not found"),
];
/// Longest quotation from a message, characters.
const QUOTE: usize = 200;

/// A value for smartctl's `-d`: `sat`, `megaraid,0`, `areca,3/1`, …
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DeviceType(String);

/// Text that is no valid value for `-d`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a device type of smartctl's; write for example \"sat\", \"megaraid,0\" or \"cciss,1\""
)]
pub struct DeviceTypeError(String);

impl DeviceType {
    /// Checks the form only; smartctl decides whether it knows the type when it is used.
    pub fn parse(text: &str) -> Result<Self, DeviceTypeError> {
        let word = |c: char| c.is_ascii_alphanumeric() || "+,/_.-".contains(c);
        let begins = text.starts_with(|c: char| c.is_ascii_alphanumeric());
        if begins && text.len() <= 64 && text.chars().all(word) {
            Ok(Self(text.to_owned()))
        } else {
            Err(DeviceTypeError(text.to_owned()))
        }
    }

    /// Returns the value for smartctl's `-d`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for DeviceType {
    type Error = DeviceTypeError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text)
    }
}

impl From<DeviceType> for String {
    fn from(kind: DeviceType) -> Self {
        kind.0
    }
}

/// Parameters of one poll of one drive, which can be sent to a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Poll {
    pub node: PathBuf,
    /// True for a rotating drive (queue/rotational), which is not woken from standby. (Solid state drives report standby when they are not
    /// in it.)
    pub rotational: bool,
    /// Value for `-d`: the operator's, else the one that smartctl found at the last poll.
    pub device_type: Option<DeviceType>,
    /// True for a SCSI drive, of which two more logs are read.
    pub scsi: bool,
    /// True for a poll of all data, once a day.
    pub deep: bool,
    /// Reason why the drive cannot be polled: virtual, remote, or of a kind without SMART.
    pub unsupported: Option<String>,
    /// Directory of an eMMC in sysfs, where it is read instead: smartctl does not support it.
    pub mmc: Option<PathBuf>,
    /// The drive's state in sysfs unless it is the running one; a finding by itself.
    pub not_running: Option<String>,
    /// Path of smartctl; None: the one in PATH.
    pub smartctl: Option<PathBuf>,
}

impl Poll {
    /// Returns the parameters for a drive. `given` is the operator's device type for it; with one, a virtual drive is polled too (a RAID
    /// controller's volume hides the real drives).
    pub fn of(
        drive: &DriveFacts,
        history: &History,
        given: Option<DeviceType>,
        deep: bool,
    ) -> Self {
        let unsupported = if given.is_some() {
            None
        } else {
            unsupported(drive)
        };
        let mmc = (given.is_none() && drive.transport == Transport::Mmc)
            .then(|| mmc::directory(Path::new("/sys"), &drive.kernel_name));
        let cached = history
            .device_type()
            .and_then(|kind| DeviceType::parse(kind).ok());
        Self {
            node: PathBuf::from("/dev").join(drive.kernel_name.replace('!', "/")),
            rotational: drive.media == Media::Hdd,
            device_type: given.or(cached),
            scsi: match history.protocol() {
                Some(protocol) => protocol == Protocol::Scsi,
                None => matches!(drive.transport, Transport::Sas | Transport::Scsi),
            },
            deep,
            unsupported,
            mmc,
            not_running: drive.not_running.clone(),
            smartctl: None,
        }
    }

    /// Returns the arguments with which smartctl is run: for JSON, all data or only that of a light poll, and no wake-up of a rotating
    /// drive; the device's node is the last one.
    pub fn arguments(&self) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = vec!["--json=c".into()];
        let mut add = |words: &[&str]| arguments.extend(words.iter().map(OsString::from));
        if self.deep {
            add(&["-x"]);
        } else {
            add(&["-i", "-H", "-A", "-l", "selftest"]);
            if self.scsi {
                add(&["-l", "error", "-l", "ssd"]);
            } else {
                // ATA only; other drives ignore it. HGST, WD and Toshiba count uncorrectable errors only there.
                add(&["-l", "devstat"]);
            }
        }
        if self.rotational {
            add(&["-n", "standby,3"]);
        }
        if let Some(kind) = &self.device_type {
            add(&["-d", kind.as_str()]);
        }
        arguments.push(self.node.clone().into_os_string());
        arguments
    }
}

/// True if a drive can be polled at all. `given` is the operator's device type for it.
pub fn is_polled(drive: &DriveFacts, given: Option<DeviceType>) -> bool {
    given.is_some() || unsupported(drive).is_none()
}

/// Returns the reason why a drive cannot be polled.
fn unsupported(drive: &DriveFacts) -> Option<String> {
    if let Some(kind) = &drive.virtual_kind {
        return Some(format!("a virtual device ({kind}) has no SMART"));
    }
    let without = match drive.transport {
        Transport::Virtio | Transport::Loop => "is virtual",
        Transport::Iscsi | Transport::Fc | Transport::NvmeOf => {
            "is remote: ask the storage system behind it"
        }
        _ => return None,
    };
    Some(format!("the drive {without}"))
}

/// Outcome of a poll, with its duration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Polled {
    pub outcome: Outcome,
    pub took_ms: u64,
    /// True if it took longer than `SOFT`.
    pub slow: bool,
}

/// Polls a drive. Blocks for at most `HARD`, and one second more to reap what was killed. Starts no process if the drive cannot be polled.
pub fn poll(poll: &Poll) -> Polled {
    // A tool is found by its name in PATH, which has only the directory of this one.
    let path = poll.smartctl.as_ref().and_then(|program| program.parent());
    let env = path.map(|dir| ("PATH", dir.as_os_str().to_owned()));
    run(poll, HARD, env.into_iter().collect())
}

fn run(poll: &Poll, deadline: Duration, env: Vec<(&'static str, OsString)>) -> Polled {
    let begun = Instant::now();
    let outcome = match (&poll.unsupported, &poll.mmc) {
        (Some(why), _) => failed(FailureReason::Unsupported, why.clone()),
        (None, Some(device)) => of_mmc(poll, device),
        (None, None) => outcome(
            poll,
            cmd::run(&Tool {
                program: "smartctl",
                args: poll.arguments(),
                env,
                only: None,
                deadline,
            }),
        ),
    };
    let took = begun.elapsed();
    Polled {
        outcome,
        took_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        slow: took > SOFT,
    }
}

fn of_mmc(poll: &Poll, device: &Path) -> Outcome {
    match mmc::read_facts(device) {
        Ok(Some(facts)) if facts.has_health_data() => Outcome::Answered(Box::new(Facts {
            not_running: poll.not_running.clone(),
            ..facts
        })),
        Ok(Some(_)) => failed(
            FailureReason::NoData,
            "the kernel shows no life time of it: an eMMC of before version 5.0, or one that does not tell",
        ),
        Ok(None) => failed(
            FailureReason::Unsupported,
            "an SD card does not tell of its life time",
        ),
        Err(error) => failed(
            FailureReason::OpenFailed,
            format!("cannot read {}: {error}; see dmesg", device.display()),
        ),
    }
}

fn failed(reason: FailureReason, detail: impl Into<String>) -> Outcome {
    Outcome::Failed(Failure {
        reason,
        detail: detail.into(),
    })
}

fn outcome(poll: &Poll, result: Result<Output, CmdError>) -> Outcome {
    let output = match result {
        Ok(output) => output,
        Err(CmdError::Missing(_)) => {
            return failed(
                FailureReason::Missing,
                match &poll.smartctl {
                    None => {
                        "smartctl is not installed; install smartmontools 7.0 or later".to_owned()
                    }
                    Some(program) => format!(
                        "there is no {}; install smartmontools 7.0 or later, or correct [smart] smartctl in the config",
                        program.display()
                    ),
                },
            );
        }
        Err(CmdError::Spawn { source, .. }) => {
            return failed(
                FailureReason::NotStarted,
                format!("smartctl cannot be started: {source}"),
            );
        }
        Err(CmdError::Deadline { limit_ms, .. }) => {
            return failed(
                FailureReason::Timeout,
                format!(
                    "the drive did not answer smartctl within {} s; see dmesg",
                    limit_ms.div_ceil(1000)
                ),
            );
        }
    };
    let Some(code) = output.code else {
        return failed(
            FailureReason::Killed,
            "a signal ended smartctl; see dmesg (out of memory?)",
        );
    };
    // No more of an output is kept than is parsed: a full one was cut off.
    if output.stdout.len() >= MAX_BYTES {
        let why = ParseError::TooLarge { len: MAX_BYTES };
        return failed(FailureReason::TooLarge, why.to_string());
    }
    let facts = match facts::parse(output.stdout.as_bytes()) {
        Ok(facts) => facts,
        Err(_) if code == ASLEEP && sleeping(&output.stdout).is_some() => return Outcome::Standby,
        Err(error) => return of_garbage(&error, &output, code),
    };
    // smartctl's own exit status is in its answer. A shell's code is that of a script around it.
    let of_shell = SHELL.iter().any(|(of_shell, ..)| *of_shell == code);
    let own = if of_shell { 0 } else { code.unsigned_abs() };
    let status = u64::from(facts.exit.bits()) | u64::from(own);
    of_facts(Facts {
        exit: ExitStatus::new(status),
        not_running: poll.not_running.clone(),
        ..facts
    })
}

/// Returns the outcome that smartctl's output stands for, whether it is from a poll or recorded.
pub fn of_facts(facts: Facts) -> Outcome {
    // Health data in the answer counts, even if something else failed.
    if facts.has_health_data() {
        return Outcome::Answered(Box::new(facts));
    }
    if facts.asleep() {
        return Outcome::Standby;
    }
    let texts: Vec<&str> = facts
        .messages
        .iter()
        .filter(|message| message.severity != "information")
        .map(|message| message.text.as_str())
        .collect();
    let quote = if texts.is_empty() {
        "it does not say why".to_owned()
    } else {
        texts.join("; ").chars().take(QUOTE).collect()
    };
    if facts.exit.has(ExitStatus::USAGE) {
        return failed(
            FailureReason::Unsupported,
            format!(
                "smartctl does not recognise the drive's type ({quote}); give its type in the configuration"
            ),
        );
    }
    if facts.exit.has(ExitStatus::OPEN) {
        return failed(
            FailureReason::OpenFailed,
            format!("smartctl cannot open the drive ({quote}); see dmesg"),
        );
    }
    Outcome::Answered(Box::new(facts))
}

/// Returns the outcome that a recorded output stands for.
pub fn of_bytes(bytes: &[u8]) -> Outcome {
    match facts::parse(bytes) {
        Ok(facts) => of_facts(facts),
        Err(error) => failed(reason(&error), error.to_string()),
    }
}

fn reason(error: &ParseError) -> FailureReason {
    match error {
        ParseError::TooLarge { .. } => FailureReason::TooLarge,
        ParseError::Truncated { .. } => FailureReason::Truncated,
        ParseError::Empty | ParseError::NotJson { .. } => FailureReason::Garbage,
    }
}

fn of_garbage(error: &ParseError, output: &Output, code: i32) -> Outcome {
    let stderr = tidy(&output.stderr, QUOTE);
    let quote = if stderr.is_empty() {
        String::new()
    } else {
        format!("; on standard error: {stderr:?}")
    };
    let of_shell = SHELL.iter().find(|(of_shell, ..)| *of_shell == code);
    if let (Some((_, reason, what)), ParseError::Empty) = (of_shell, error) {
        return failed(
            *reason,
            format!(
                "smartctl was not run: its script ended with {code}, {what}{quote}; install smartmontools 7.0 or later, or correct the script that stands for it"
            ),
        );
    }
    let status = ExitStatus::new(u64::from(code.unsigned_abs()));
    failed(
        reason(error),
        format!(
            "{error} (exit status {status}){quote}; check that smartctl is smartmontools 7.0 or later"
        ),
    )
}

#[cfg(test)]
mod tests;
