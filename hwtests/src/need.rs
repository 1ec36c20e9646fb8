//! What a test needs of its machine, and what happens when it is not there: a visible
//! skip, or, in CI, a failure, except where the kernel itself lacks the part.

use std::{fs, io::Write};

use crate::tools;

/// One thing a test needs.
#[derive(Debug, Clone, Copy)]
pub enum Need {
    /// User 0.
    Root,
    /// Loop devices.
    Loop,
    /// A program in PATH or a system directory.
    Tool(&'static str),
    /// A filesystem the kernel can mount.
    Filesystem(&'static str),
    /// A capability that root may lack, as in most containers: its name and its bit.
    Capability(&'static str, u32),
    /// Network namespaces, and leave to make them.
    Network,
    /// The conformance suite.
    Sanity,
    /// Prometheus' checker of scrapes and rules.
    Promtool,
    /// Prometheus itself, and its exporter of a host's figures.
    Prometheus,
    /// Clients in Go and Python, of the libraries that Kubernetes and its users dial with.
    Clients,
    /// A kernel of this version or newer, such as "5.17".
    Kernel(&'static str),
    /// A layout: the test is about how this one lies on a drive.
    Layout(&'static str),
}

/// Growing a mounted ext4 asks for it; XFS and btrfs are content with CAP_SYS_ADMIN.
pub const SYS_RESOURCE: Need = Need::Capability("CAP_SYS_RESOURCE", 24);

/// Why a need is not met.
#[derive(Debug)]
pub struct Missing {
    /// What, and how to get it.
    pub reason: String,
    /// No package helps: this kernel does not have it.
    pub kernel: bool,
}

impl Need {
    /// Looks.
    ///
    /// # Errors
    /// What is missing.
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
            // Like a kernel without the part: no package helps.
            Self::Capability(name, bit) if !capable(bit) => {
                missing(true, format!("root lacks {name} here (a container?)"))
            }
            // Like a kernel without the part: a container that may not make networks.
            Self::Network => match crate::netns::Space::new() {
                Ok(_) => Ok(()),
                Err(error) => missing(true, format!("network namespaces cannot be made: {error}")),
            },
            // Like a kernel without the part: the test is about something else than what is run.
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

/// Where the conformance suite is: CSI_SANITY, target/tools, or PATH.
pub fn sanity() -> Option<std::path::PathBuf> {
    fetched("CSI_SANITY", "csi-sanity")
}

/// Where promtool is: PROMTOOL, target/tools, or PATH.
pub fn promtool() -> Option<std::path::PathBuf> {
    fetched("PROMTOOL", "promtool")
}

/// Where Prometheus and node_exporter are: PROMETHEUS and NODE_EXPORTER, target/tools, or PATH.
pub fn prometheus() -> Option<[std::path::PathBuf; 2]> {
    Some([
        fetched("PROMETHEUS", "prometheus")?,
        fetched("NODE_EXPORTER", "prometheus-node-exporter")?,
    ])
}

/// The clients in other languages, each as a program and its first arguments: DRIVEBAY_DIAL_GO, or target/tools;
/// DRIVEBAY_DIAL_PYTHON, a Python that has grpcio, or the one in target/tools.
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

/// Whether a table of the kernel lists a word, after asking for the module.
fn kernel_has(table: &str, word: &str, module: &str) -> bool {
    let listed = || {
        fs::read_to_string(table)
            .unwrap_or_default()
            .lines()
            .any(|line| line.split_whitespace().next_back() == Some(word))
    };
    // The module may only not be loaded yet; when loading fails the table says so.
    listed() || (tools::run("modprobe", &["-q", module]).is_ok() && listed())
}

fn running_kernel() -> Option<(u32, u32)> {
    release(&fs::read_to_string("/proc/sys/kernel/osrelease").ok()?)
}

/// The first two numbers of a kernel's release.
fn release(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit());
    let mut next = || numbers.next()?.parse().ok();
    Some((next()?, next()?))
}

/// Whether this process has a capability, by its bit in CapEff.
fn capable(bit: u32) -> bool {
    fs::read_to_string("/proc/self/status")
        .unwrap_or_default()
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .is_some_and(|bits| bits >> bit & 1 == 1)
}

/// Checks all; false means: skipped, and said so.
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

/// Says that a test is skipped, past the test runner's capture, and notes it for the summary.
pub fn skipped(test: &str, reason: &str) {
    let line = format!("SKIPPED {test}: {reason}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
    if let Some(path) = std::env::var_os("DRIVEBAY_SKIPPED") {
        let note = fs::OpenOptions::new().create(true).append(true).open(path);
        let _ = note.and_then(|mut file| file.write_all(line.as_bytes()));
    }
}

/// Whether what takes about a minute on drives is tested too (`hwtests/all-tests --long` sets DRIVEBAY_LONG).
pub fn is_long() -> bool {
    std::env::var_os("DRIVEBAY_LONG").is_some()
}

/// Returns from the test when it is to be left out, and says so with the reason.
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

/// Leaves a test on drives that takes about a minute for `hwtests/all-tests --long`, and says so.
#[macro_export]
macro_rules! long_on_drives {
    () => {
        $crate::left_out!(
            !$crate::need::is_long(),
            "takes long; hwtests/all-tests --long runs it"
        );
    };
}

/// Returns from the test when something it needs is missing.
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
        // The name of the function this stands in: tests are named after what must hold.
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
