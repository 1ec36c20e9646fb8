//! Runs `lvm` with a deadline, limited to one drive, with a private configuration.
//!
//! The configuration is private because it decides what reaches the drives, and the host's belongs to the administrator. The settings that
//! matter, with their reasons, are in `CONF`. The processes take LVM's usual lock of their VG (`/run/lock/lvm/V_<vg>`), so that an
//! administrator's commands and the agent's exclude each other, and never the lock of all VGs, which a command that waits for another drive
//! may hold.
//!
//! LVM never flushes a drive's cache: callers that change something here must flush the drive afterwards.

pub mod report;

use std::{
    ffi::OsString,
    fs, io,
    os::fd::AsFd,
    path::{Path, PathBuf},
    sync::OnceLock,
    time::Duration,
};

use super::{
    cmd::{self, CmdError, Output, Tool},
    dm, ioctl, statefile,
};
use drivebay_model::units::human_millis;
pub use report::{LvReport, VgReport};

/// Environment variable that passes the configuration's directory to a worker.
pub const DIR_VARIABLE: &str = "DRIVEBAY_LVM_DIR";
/// Debian's package; other distributions use the same name.
pub const PACKAGE: &str = "lvm2";
/// The oldest supported LVM: the first with `--devices` and `--setautoactivation` both (2021).
pub const OLDEST: Version = Version(2, 3, 12);
/// Limit of a command, its wait for the VG's lock included. A change of one VG takes well under a second; a worker's step that takes 30 s
/// is Stuck, and may run two of them.
const DEADLINE: Duration = Duration::from_secs(14);
/// Directory of LVM's locks.
const LOCKS: &str = "/run/lock/lvm";
/// Directory of LVM's hints of the devices with a PV.
const RUN: &str = "/run/lvm";

/// The private lvm.conf.
///
/// - `use_aio=0`: ending an AIO context costs 30 ms per process.
/// - `hints="none"`, `use_devicesfile=0`, `external_device_info_source`, `obtain_device_list_from_udev`:
///   a command sees the one device it is given, with and without udevd, whatever the host believes.
/// - `udev_sync=0`: the semaphore of udev's answer lives in an IPC namespace, and in another one than
///   udevd's it is waited for without end. `udev_rules=1`, `verify_udev_operations=0`: only udevd makes and removes names
///   in /dev/mapper; without udevd there are none, so none can be left over. /dev/dm-N is the kernel's.
/// - alignment detection off: a drive's PEs begin where the plan says.
/// - `issue_discards=0`: erasing is ours. `backup=0`, `archive=0`: the drive is the truth. `monitoring=0`,
///   `use_lvmpolld=0`, `use_lvmlockd=0`, `event_activation=0`, `notify_dbus=0`: no daemon is spoken to.
/// - `system_id_source="none"`: a drive goes with its data, not with a host.
/// - `checks=0`: newer and older versions know other settings.
const CONF: &str = r#"# Written by drivebay-agent at its start. Changes are lost.
config { checks=0 abort_on_errors=0 }
global { use_aio=0 wait_for_locks=1 locking_dir="/run/lock/lvm" umask=63 use_lvmlockd=0 use_lvmpolld=0 event_activation=0 notify_dbus=0 system_id_source="none" }
devices { hints="none" use_devicesfile=0 obtain_device_list_from_udev=0 external_device_info_source="none" scan_lvs=0 issue_discards=0 data_alignment_detection=0 data_alignment_offset_detection=0 md_chunk_alignment=0 }
activation { udev_sync=0 udev_rules=1 verify_udev_operations=0 monitoring=0 }
backup { backup=0 archive=0 }
log { silent=0 verbose=0 syslog=0 prefix="" }
"#;

/// Remedy where layout `lvm` cannot be used.
pub const INSTEAD: &str = "Install what is missing on this host, or set layout = \"partition\" in the class; then restart the agent";

static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();

/// An LVM command failed.
#[derive(Debug, thiserror::Error)]
pub enum LvmError {
    /// `prepare` was not called, and no directory was passed to this worker.
    #[error("the agent has not prepared a configuration for LVM")]
    NotPrepared,
    #[error("lvm is not installed; install package {PACKAGE}")]
    Missing,
    /// Another command holds the VG's lock.
    #[error("another LVM command holds the lock of VG {vg}; see `lsof {LOCKS}/V_{vg}`")]
    LockHeld {
        vg: String,
        /// Milliseconds that the command waited for the lock.
        waited_ms: u64,
    },
    /// The command exceeded its deadline, and another process did not hold the VG's lock.
    #[error("lvm {command} did not end within {}", human_millis(*limit_ms))]
    Deadline {
        command: String,
        /// Time limit of the command, milliseconds, including its wait for the VG's lock.
        limit_ms: u64,
    },
    /// The command exited with an error, or was killed.
    #[error("lvm {command} failed ({}): {stderr}", code.map_or("killed".to_owned(), |code| format!("exit code {code}")))]
    Failed {
        command: String,
        /// Exit code; None when a signal ended it.
        code: Option<i32>,
        /// Output of the command, in one line.
        stderr: String,
    },
    /// The command could not be started.
    #[error("lvm could not be run")]
    Run(#[source] CmdError),
    /// The report of the command does not parse.
    #[error("lvm {command} gave a report that cannot be read")]
    Report {
        command: String,
        #[source]
        source: serde_json::Error,
    },
}

impl LvmError {
    /// True if the host cannot run LVM at all, for any drive: it is not installed, or does not start (exit codes 126 and 127, which a shell
    /// or the dynamic linker gives then).
    pub fn is_of_host(&self) -> bool {
        match self {
            Self::NotPrepared | Self::Missing | Self::Run(_) => true,
            Self::Failed { code, .. } => matches!(code, Some(126 | 127)),
            _ => false,
        }
    }

    /// True if LVM refused for lack of free PEs.
    pub fn is_no_space(&self) -> bool {
        matches!(self, Self::Failed { stderr, .. } if stderr.to_lowercase().contains("insufficient free space"))
    }

    /// True if a command failed with an exit code for a reason other than free PEs or metadata space.
    pub fn is_unexplained(&self) -> bool {
        let ended = matches!(self, Self::Failed { code: Some(_), .. });
        ended && !self.is_no_space() && !self.is_metadata_full()
    }

    /// True if the VG's metadata area is full.
    pub fn is_metadata_full(&self) -> bool {
        matches!(self, Self::Failed { stderr, .. } if stderr.contains("too large for circular buffer") || stderr.contains("metadata too large"))
    }
}

/// Version of LVM: its three numbers, in the order in which versions are compared. 2.03.16 is `Version(2, 3, 16)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u32, pub u32, pub u32);

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:02}.{:02}", self.0, self.1, self.2)
    }
}

/// Support of this host for layout `lvm`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Presence {
    pub version: Version,
    /// True if the kernel has the snapshot target (dm_snapshot), which checks of mounted volumes need.
    pub snapshots: bool,
}

/// The `lvm` layout cannot be used on this host.
#[derive(Debug, thiserror::Error)]
pub enum Absent {
    /// `lvm version` failed: LVM is not installed, has no configuration from `prepare`, or did not exit with 0 in time.
    #[error("layout lvm cannot be used on this host")]
    Lvm(#[from] LvmError),
    /// The output of `lvm version` contains no version.
    #[error("layout lvm cannot be used: `lvm version` does not say a version: {0}")]
    NoVersion(String),
    #[error(
        "layout lvm cannot be used: LVM {installed} is installed, {OLDEST} or newer is needed (package {PACKAGE})"
    )]
    Old {
        /// Version of the installed LVM, which is lower than `OLDEST`.
        installed: Version,
    },
    /// The kernel has no device-mapper.
    #[error(
        "layout lvm cannot be used: the kernel has no device-mapper (modprobe dm_mod; /dev/mapper/control must be there)"
    )]
    NoDeviceMapper(#[source] io::Error),
    /// The configuration could not be written.
    #[error("layout lvm cannot be used: its configuration {path} cannot be written")]
    Conf {
        path: String,
        #[source]
        source: io::Error,
    },
}

/// Writes the configuration below this directory (the agent's own, mode 0700) and sets it for this process and the workers that it starts.
pub fn prepare(runtime_dir: &Path) -> Result<(), Absent> {
    let dir = runtime_dir.join("lvm");
    let path = dir.join("lvm.conf");
    // An unchanged file is not rewritten: that would need free space.
    let is_written =
        statefile::read(&path, CONF.len() as u64).is_ok_and(|text| text == CONF.as_bytes());
    if !is_written {
        statefile::write_atomic(&path, CONF.as_bytes()).map_err(|source| Absent::Conf {
            path: path.display().to_string(),
            source,
        })?;
    }
    // A process has one agent; tests that prepare twice use the first directory.
    let _ = DIRECTORY.set(dir);
    Ok(())
}

/// Returns the configuration's directory: as prepared in this process, or as passed to this worker by the agent. None if neither, or if it
/// is not absolute.
pub fn directory() -> Option<PathBuf> {
    DIRECTORY
        .get()
        .cloned()
        .or_else(|| std::env::var_os(DIR_VARIABLE).map(PathBuf::from))
        .filter(|dir| dir.is_absolute())
}

/// Checks everything that the layout needs. Runs one process and accesses no drive.
pub fn presence() -> Result<Presence, Absent> {
    let output = lvm("version", &[])?;
    let version =
        parse_version(&output.stdout).ok_or_else(|| Absent::NoVersion(one_line(&output.stdout)))?;
    if version < OLDEST {
        return Err(Absent::Old { installed: version });
    }
    match dm::has_target("linear") {
        Ok(true) => {}
        // The kernel has device-mapper, but is too old for this request.
        Err(error) if error.raw_os_error() == Some(libc::ENOTTY) => {}
        Ok(false) => {
            return Err(Absent::NoDeviceMapper(io::Error::other(
                "it has no target `linear`",
            )));
        }
        Err(error) => return Err(Absent::NoDeviceMapper(error)),
    }
    Ok(Presence {
        version,
        snapshots: dm::has_target("snapshot").unwrap_or(false),
    })
}

fn parse_version(text: &str) -> Option<Version> {
    let line = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("LVM version:"))?;
    let mut numbers = line
        .trim()
        .split(|c: char| !c.is_ascii_digit())
        .map(str::parse);
    let mut next = || numbers.next()?.ok();
    Some(Version(next()?, next()?, next()?))
}

/// Runs a command that can access this device only.
///
/// `vg`: the VG whose lock it takes, to distinguish a held lock (`LockHeld`) from a drive that does not respond (`Deadline`).
pub fn run(command: &str, node: &Path, vg: &str, args: &[OsString]) -> Result<Output, LvmError> {
    run_within(command, node, vg, args, DEADLINE)
}

/// Runs a command as `run` does, with another deadline.
pub fn run_within(
    command: &str,
    node: &Path,
    vg: &str,
    args: &[OsString],
    limit: Duration,
) -> Result<Output, LvmError> {
    let mut all: Vec<OsString> = vec!["--devices".into(), node.into()];
    all.extend_from_slice(args);
    match lvm_within(command, &all, limit) {
        // A killed command that does not end holds the lock itself, and may change the drive yet.
        Err(LvmError::Deadline { limit_ms, .. }) if lock_is_held(vg) && !cmd::left_behind() => {
            Err(LvmError::LockHeld {
                vg: vg.to_owned(),
                waited_ms: limit_ms,
            })
        }
        other => other,
    }
}

/// Writes a metadata text in place of a torn one by LVM's own repair, which checks the text and writes its header. It accesses one device
/// only; `vgcfgrestore` and `pvcreate --restorefile` refuse a PV in that state.
pub fn repair_metadata(node: &Path, text: &Path) -> Result<(), LvmError> {
    let args = [
        "--nolocking".into(),
        "--yes".into(),
        "--repairtype".into(),
        "metadata".into(),
        "--file".into(),
        text.into(),
        node.into(),
    ];
    lvm("pvck", &args).map(drop)
}

/// Returns LVM's report of the VG on this device.
pub fn report(node: &Path, vg: &str) -> Result<VgReport, LvmError> {
    let command = "fullreport";
    let args = report::ARGUMENTS.map(OsString::from);
    let output = run(command, node, vg, &[&args[..], &[vg.into()]].concat())?;
    report::parse(&output.stdout).map_err(|source| LvmError::Report {
        command: command.to_owned(),
        source,
    })
}

fn lvm(command: &str, args: &[OsString]) -> Result<Output, LvmError> {
    lvm_within(command, args, DEADLINE)
}

fn lvm_within(command: &str, args: &[OsString], limit: Duration) -> Result<Output, LvmError> {
    let directory = directory().ok_or(LvmError::NotPrepared)?;
    let tool = Tool {
        program: "lvm",
        args: std::iter::once(command.into())
            .chain(args.iter().cloned())
            .collect(),
        env: vec![
            ("LVM_SYSTEM_DIR", directory.into()),
            // Descriptors that LVM did not open cause no warning.
            ("LVM_SUPPRESS_FD_WARNINGS", "1".into()),
        ],
        only: None,
        deadline: limit,
    };
    let command = command.to_owned();
    match cmd::run(&tool) {
        Ok(output) if output.code == Some(0) => Ok(output),
        Ok(output) => Err(LvmError::Failed {
            command,
            code: output.code,
            stderr: one_line(&output.stderr),
        }),
        Err(CmdError::Missing(_)) => Err(LvmError::Missing),
        Err(CmdError::Deadline { limit_ms, .. }) => Err(LvmError::Deadline { command, limit_ms }),
        Err(error) => Err(LvmError::Run(error)),
    }
}

fn one_line(text: &str) -> String {
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    lines.join("; ").chars().take(1000).collect()
}

/// True if a VG's lock is held now. Called only after a command did not end; if that is unknown, false, so that the command's own error is
/// reported.
fn lock_is_held(vg: &str) -> bool {
    let Ok(file) = fs::File::open(Path::new(LOCKS).join(format!("V_{vg}"))) else {
        return false;
    };
    matches!(ioctl::try_flock(file.as_fd(), true), Ok(false))
}

/// Invalidates the hints of the host's own LVM commands after a PV was created or removed: they cache which devices have one, and scan
/// again if this file exists. (udevd does the same when it sees the change, but may not run.)
pub fn forget_hints() -> io::Result<()> {
    match fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(Path::new(RUN).join("newhints"))
    {
        // No directory: LVM never ran here, so there are no hints.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_several_distributions_are_read_and_compared() {
        let read = |text: &str| {
            parse_version(&format!(
                "  LVM version:     {text}\n  Library version: 1\n"
            ))
        };
        assert_eq!(read("2.03.16(2) (2022-05-18)"), Some(Version(2, 3, 16)));
        assert_eq!(
            read("2.03.14(2)-RHEL8 (2021-10-20)"),
            Some(Version(2, 3, 14))
        );
        assert!(read("2.02.187(2)").unwrap() < OLDEST);
        assert!(read("2.03.12(2)").unwrap() >= OLDEST);
        assert_eq!(parse_version("lvm: command not found"), None);
        assert_eq!(Version(2, 3, 2).to_string(), "2.03.02");
    }

    #[test]
    fn the_words_of_a_full_vg_are_known() {
        let failed = |stderr: &str| LvmError::Failed {
            command: "lvcreate".into(),
            code: Some(5),
            stderr: stderr.into(),
        };
        assert!(
            failed("Volume group \"x\" has insufficient free space (3 extents): 4 required.")
                .is_no_space()
        );
        assert!(
            failed("Insufficient free space: 10 extents needed, but only 4 available")
                .is_no_space()
        );
        assert!(!failed("Can't get lock for x.").is_no_space());
    }
}
