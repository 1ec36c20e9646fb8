//! Requirements of a test on its machine. If one is not met, the test is skipped with a message, or in CI fails, unless the kernel lacks
//! the feature.

use std::{fs, io::Write};

use crate::tools;

/// A requirement of a test.
#[derive(Debug, Clone, Copy)]
pub enum Need {
    /// Effective user id 0.
    Root,
    /// Loop devices: the kernel's driver, and /dev/loop-control.
    Loop,
    /// A program in PATH or a system directory.
    Tool(&'static str),
    /// A filesystem that the kernel can mount.
    Filesystem(&'static str),
    /// Device-mapper, with dm-crypt.
    Crypt,
    /// A capability that root may lack, as in most containers: its name and its bit.
    Capability(&'static str, u32),
    /// Network namespaces, and permission to create them.
    Network,
    /// The CSI conformance suite.
    Sanity,
    /// promtool, Prometheus' checker of scrapes and rules.
    Promtool,
    /// Prometheus, and its exporter of a host's metrics.
    Prometheus,
    /// Clients in Go and Python, with the gRPC libraries of Kubernetes and its users.
    Clients,
    /// A kernel of this version or newer, such as "5.17".
    Kernel(&'static str),
    /// A layout: the test is specific to it.
    Layout(&'static str),
}

/// Needed to grow a mounted ext4; CAP_SYS_ADMIN suffices for XFS and btrfs.
pub const SYS_RESOURCE: Need = Need::Capability("CAP_SYS_RESOURCE", 24);

/// A requirement that is not met.
#[derive(Debug)]
pub struct Missing {
    /// The missing part, and how to get it.
    pub reason: String,
    /// True if this kernel lacks it, so that no package helps.
    pub kernel: bool,
}

impl Need {
    /// Checks the requirement.
    ///
    /// # Errors
    /// It is not met.
    pub fn check(self) -> Result<(), Missing> {
        let missing = |kernel: bool, reason: String| Err(Missing { reason, kernel });
        match self {
            Self::Root if !nix::unistd::geteuid().is_root() => {
                missing(false, "needs root".to_owned())
            }
            Self::Loop if !kernel_has("/proc/devices", "loop", "loop") => {
                missing(true, "this kernel has no loop devices".to_owned())
            }
            Self::Loop if !fs::exists("/dev/loop-control").unwrap_or(false) => missing(
                false,
                "needs /dev/loop-control (in a container: give it the host's /dev)".to_owned(),
            ),
            Self::Tool(tool) if tools::find(tool).is_none() => missing(
                false,
                format!("needs {tool}, which is not installed (hwtests/all-tests installs it)"),
            ),
            Self::Filesystem(name) if !kernel_has("/proc/filesystems", name, name) => {
                missing(true, format!("this kernel cannot mount {name}"))
            }
            Self::Crypt
                if !(kernel_has("/proc/misc", "device-mapper", "dm_mod")
                    && fs::exists("/dev/mapper/control").unwrap_or(false)) =>
            {
                missing(true, "this kernel has no device-mapper".to_owned())
            }
            // Treated like a missing kernel feature, since no package helps.
            Self::Capability(name, bit) if !capable(bit) => {
                missing(true, format!("root lacks {name} here (a container?)"))
            }
            // Treated like a missing kernel feature: a container may not create networks.
            Self::Network => match crate::netns::Space::new() {
                Ok(_) => Ok(()),
                Err(error) => missing(true, format!("network namespaces cannot be made: {error}")),
            },
            // Treated like a missing kernel feature: the test is not for the layout of this run.
            Self::Layout(name) if crate::settings::layout() != name => missing(
                true,
                format!(
                    "it is about layout {name}, and the tests are run on {}",
                    crate::settings::layout()
                ),
            ),
            Self::Kernel(version) if running_kernel() < release(version) => {
                missing(true, format!("needs Linux {version}"))
            }
            Self::Promtool if crate::need::promtool().is_none() => missing(
                false,
                "needs promtool: run hwtests/all-tests, or name it in PROMTOOL".to_owned(),
            ),
            Self::Prometheus if crate::need::prometheus().is_none() => missing(
                false,
                "needs prometheus and prometheus-node-exporter: run hwtests/all-tests, or name them in PROMETHEUS and NODE_EXPORTER".to_owned(),
            ),
            Self::Sanity if crate::need::sanity().is_none() => missing(
                false,
                "needs csi-sanity: run hwtests/all-tests, or name it in CSI_SANITY".to_owned(),
            ),
            Self::Clients if crate::need::clients().is_none() => missing(
                false,
                "needs the gRPC clients of hwtests/clients: run hwtests/all-tests, or name them in DRIVEBAY_DIAL_GO and DRIVEBAY_DIAL_PYTHON".to_owned(),
            ),
            _ => Ok(()),
        }
    }
}

/// Returns the path of the conformance suite: CSI_SANITY, or in target/tools or PATH.
pub fn sanity() -> Option<std::path::PathBuf> {
    fetched("CSI_SANITY", "csi-sanity")
}

/// Returns the path of promtool: PROMTOOL, or in target/tools or PATH.
pub fn promtool() -> Option<std::path::PathBuf> {
    fetched("PROMTOOL", "promtool")
}

/// Returns the paths of Prometheus and node_exporter: PROMETHEUS and NODE_EXPORTER, or in target/tools or PATH.
pub fn prometheus() -> Option<[std::path::PathBuf; 2]> {
    Some([
        fetched("PROMETHEUS", "prometheus")?,
        fetched("NODE_EXPORTER", "prometheus-node-exporter")?,
    ])
}

/// Returns the clients in other languages, each as a program and its first arguments: DRIVEBAY_DIAL_GO, or in target/tools;
/// DRIVEBAY_DIAL_PYTHON, a Python with grpcio, or the one in target/tools.
pub fn clients() -> Option<[Vec<std::ffi::OsString>; 2]> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/clients/dial.py");
    let go = fetched("DRIVEBAY_DIAL_GO", "dial-go")?;
    let python = fetched("DRIVEBAY_DIAL_PYTHON", "dial-python/bin/python")?;
    Some([vec![go.into()], vec![python.into(), script.into()]])
}

fn fetched(variable: &str, name: &str) -> Option<std::path::PathBuf> {
    if let Some(named) = std::env::var_os(variable) {
        return Some(named.into());
    }
    let exe = std::env::current_exe().ok()?;
    exe.ancestors()
        .map(|dir| dir.join("tools").join(name))
        .find(|file| file.is_file())
        .or_else(|| tools::find(name))
}

/// True if a table of the kernel lists a word, if necessary after loading the module.
fn kernel_has(table: &str, word: &str, module: &str) -> bool {
    let listed = || {
        fs::read_to_string(table)
            .unwrap_or_default()
            .lines()
            .any(|line| line.split_whitespace().next_back() == Some(word))
    };
    // Loads the module if it is not loaded yet; if that fails, the table does not list the word.
    listed() || (tools::run("modprobe", &["-q", module]).is_ok() && listed())
}

fn running_kernel() -> Option<(u32, u32)> {
    release(&fs::read_to_string("/proc/sys/kernel/osrelease").ok()?)
}

/// Returns the first two numbers of a kernel's release.
fn release(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit());
    let mut next = || numbers.next()?.parse().ok();
    Some((next()?, next()?))
}

/// True if this process has a capability, by its bit in CapEff.
fn capable(bit: u32) -> bool {
    fs::read_to_string("/proc/self/status")
        .unwrap_or_default()
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .is_some_and(|bits| bits >> bit & 1 == 1)
}

/// Checks all requirements; returns false if the test must be skipped, after printing that.
///
/// # Panics
/// In CI (`CI=true`), where a skip is a failure unless the kernel lacks the part.
pub fn met(test: &str, needs: &[Need]) -> bool {
    for need in needs {
        if let Err(missing) = need.check() {
            let ci = std::env::var("CI").is_ok_and(|value| value == "true");
            assert!(
                !ci || missing.kernel,
                "{test} cannot be skipped in CI: {}",
                missing.reason
            );
            skipped(test, &missing.reason);
            return false;
        }
    }
    true
}

/// Prints that a test is skipped, bypassing the test runner's capture, and records it for the summary.
pub fn skipped(test: &str, reason: &str) {
    let line = format!("SKIPPED {test}: {reason}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
    if let Some(path) = std::env::var_os("DRIVEBAY_SKIPPED") {
        let note = fs::OpenOptions::new().create(true).append(true).open(path);
        let _ = note.and_then(|mut file| file.write_all(line.as_bytes()));
    }
}

/// True if tests on drives that take about a minute are run too (`hwtests/all-tests --long` sets DRIVEBAY_LONG).
pub fn is_long() -> bool {
    std::env::var_os("DRIVEBAY_LONG").is_some()
}

/// Returns from the test if the condition is true, and prints that it is skipped, with the reason.
#[macro_export]
macro_rules! left_out {
    ($is:expr, $reason:expr) => {
        if $is {
            fn here() {}
            let name = ::std::any::type_name_of_val(&here)
                .trim_end_matches("::here")
                .trim_end_matches("::{{closure}}");
            $crate::need::skipped(name, $reason);
            return;
        }
    };
}

/// Skips a test on drives that takes about a minute, with a message, unless `hwtests/all-tests --long` runs.
#[macro_export]
macro_rules! long_on_drives {
    () => {
        $crate::left_out!(
            !$crate::need::is_long(),
            "takes long; hwtests/all-tests --long runs it"
        );
    };
}

/// Returns from the test if a requirement is not met.
///
/// `need!(root, loop, tool "mkfs.xfs", fs "xfs", sanity)`
#[macro_export]
macro_rules! need {
    (@list [$($done:expr,)*]) => { [$($done),*] };
    (@list [$($done:expr,)*] root $(, $($rest:tt)*)?) => {
        $crate::need!(@list [$($done,)* $crate::need::Need::Root,] $($($rest)*)?)
    };
    (@list [$($done:expr,)*] loop $(, $($rest:tt)*)?) => {
        $crate::need!(@list [$($done,)* $crate::need::Need::Loop,] $($($rest)*)?)
    };
    (@list [$($done:expr,)*] network $(, $($rest:tt)*)?) => {
        $crate::need!(@list [$($done,)* $crate::need::Need::Network,] $($($rest)*)?)
    };
    (@list [$($done:expr,)*] crypt $(, $($rest:tt)*)?) => {
        $crate::need!(@list [$($done,)* $crate::need::Need::Crypt,] $($($rest)*)?)
    };
    (@list [$($done:expr,)*] sanity $(, $($rest:tt)*)?) => {
        $crate::need!(@list [$($done,)* $crate::need::Need::Sanity,] $($($rest)*)?)
    };
    (@list [$($done:expr,)*] promtool $(, $($rest:tt)*)?) => {
        $crate::need!(@list [$($done,)* $crate::need::Need::Promtool,] $($($rest)*)?)
    };
    (@list [$($done:expr,)*] prometheus $(, $($rest:tt)*)?) => {
        $crate::need!(@list [$($done,)* $crate::need::Need::Prometheus,] $($($rest)*)?)
    };
    (@list [$($done:expr,)*] clients $(, $($rest:tt)*)?) => {
        $crate::need!(@list [$($done,)* $crate::need::Need::Clients,] $($($rest)*)?)
    };
    (@list [$($done:expr,)*] layout $layout:literal $(, $($rest:tt)*)?) => {
        $crate::need!(@list [$($done,)* $crate::need::Need::Layout($layout),] $($($rest)*)?)
    };
    (@list [$($done:expr,)*] kernel $version:literal $(, $($rest:tt)*)?) => {
        $crate::need!(@list [$($done,)* $crate::need::Need::Kernel($version),] $($($rest)*)?)
    };
    (@list [$($done:expr,)*] tool $tool:literal $(, $($rest:tt)*)?) => {
        $crate::need!(@list [$($done,)* $crate::need::Need::Tool($tool),] $($($rest)*)?)
    };
    (@list [$($done:expr,)*] fs $fs:literal $(, $($rest:tt)*)?) => {
        $crate::need!(@list [$($done,)* $crate::need::Need::Filesystem($fs),] $($($rest)*)?)
    };
    ($($needs:tt)*) => {{
        // The name of the function around it, which is that of the test.
        fn here() {}
        let name = ::std::any::type_name_of_val(&here)
            .trim_end_matches("::here")
            .trim_end_matches("::{{closure}}");
        if !$crate::need::met(name, &$crate::need!(@list [] $($needs)*)) {
            return;
        }
    }};
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_tool_is_named_and_is_not_the_kernels_fault() {
        let missing = Need::Tool("no-such-tool-anywhere").check().unwrap_err();
        assert!(missing.reason.contains("no-such-tool-anywhere"));
        assert!(!missing.kernel);
    }

    #[test]
    fn kernels_are_compared_by_their_numbers() {
        assert_eq!(release("6.1.0-28-amd64"), Some((6, 1)));
        assert!(Need::Kernel("3.10").check().is_ok());
        assert!(Need::Kernel("99.0").check().is_err_and(|it| it.kernel));
    }

    #[test]
    fn a_missing_filesystem_is_the_kernels() {
        let missing = Need::Filesystem("no-such-filesystem").check().unwrap_err();
        assert!(missing.kernel);
    }
}
