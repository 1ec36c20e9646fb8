//! Rows of the table, and defects of an answer.

use drivebay_hwtests::{Csi, MIB, Node, csi, rig::Placed};
use drivebay_proto::csi::VolumeCapability;
use tonic::{Code, Response, Status};

/// Minimum length of a readable message, bytes.
const SENTENCE: usize = 12;

/// Volumes and clients that the rows use, and the defects found.
pub(crate) struct Ground {
    /// Client of Identity and Node.
    pub(crate) csi: Csi,
    /// Client of Controller: the agent itself if it is headless, or a controller.
    pub(crate) controller: Csi,
    pub(crate) files: Placed,
    pub(crate) raw: Placed,
    /// A volume that stays unstaged while the others are staged.
    pub(crate) unstaged: Placed,
    rows: usize,
    wrong: Vec<String>,
}

impl Ground {
    /// Creates the volumes, before the first row.
    pub(crate) async fn new(node: &Node, controller: &Csi) -> Self {
        let make = async |name: &str, capability: VolumeCapability| {
            let made = controller.create(name, 64 * MIB, &capability).await;
            node.place(&made.unwrap(), name, &capability)
        };
        Self {
            csi: node.csi.clone(),
            controller: controller.clone(),
            files: make("files", csi::mount("ext4")).await,
            raw: make("raw", csi::block()).await,
            unstaged: make("unstaged", csi::mount("ext4")).await,
            rows: 0,
            wrong: Vec::new(),
        }
    }

    /// Records an answer that must be an error with one of these codes and a readable message.
    pub(crate) fn row<T: std::fmt::Debug>(
        &mut self,
        rpc: &str,
        what: &str,
        codes: &[Code],
        answer: Result<Response<T>, Status>,
    ) {
        self.rows += 1;
        let trouble = match answer {
            Ok(answer) => {
                let answer = format!("{:?}", answer.into_inner());
                Some(format!("expected {codes:?}, got OK: {answer}"))
            }
            Err(status) => judge(&status, codes),
        };
        if let Some(trouble) = trouble {
            self.wrong.push(format!("{rpc}, {what}: {trouble}"));
        }
    }

    /// Records an answer whose code must be exactly this one, OK included.
    pub(crate) fn exactly<T: std::fmt::Debug>(
        &mut self,
        rpc: &str,
        what: &str,
        code: Code,
        answer: Result<Response<T>, Status>,
    ) {
        match code {
            Code::Ok => self.fine(rpc, what, answer),
            code => self.row(rpc, what, &[code], answer),
        }
    }

    /// Records an answer that must be OK.
    pub(crate) fn fine<T>(&mut self, rpc: &str, what: &str, answer: Result<Response<T>, Status>) {
        self.rows += 1;
        if let Err(status) = answer {
            self.wrong
                .push(format!("{rpc}, {what}: expected OK, got {status:?}"));
        }
    }

    /// Returns the number of rows, and the defects.
    pub(crate) fn verdict(self) -> (usize, Vec<String>) {
        (self.rows, self.wrong)
    }
}

fn judge(status: &Status, codes: &[Code]) -> Option<String> {
    let message = status.message();
    if !codes.contains(&status.code()) {
        return Some(format!("expected {codes:?}, got {status:?}"));
    }
    if message.len() < SENTENCE || !message.contains(' ') {
        return Some(format!("nobody can act on {message:?}"));
    }
    if message.len() > 2048 {
        return Some(format!("a message of {} bytes", message.len()));
    }
    if message.chars().any(drivebay_common::text::acts) {
        return Some(format!("control characters in {message:?}"));
    }
    if !status.details().is_empty() {
        return Some("status.details must be empty".to_owned());
    }
    None
}

/// Strings that no field of CSI may carry.
pub(crate) fn control_strings() -> Vec<(&'static str, String)> {
    vec![
        ("a newline", "pvc\n1".to_owned()),
        ("a NUL", "pvc\0".to_owned()),
        ("an escape", "pvc\u{1b}[31m".to_owned()),
        ("a delete character", "pvc\u{7f}".to_owned()),
        ("a C1 control character", "pvc\u{85}".to_owned()),
    ]
}

/// Mount flags that change more than the parameters of a mount.
pub(crate) fn hostile_flags() -> Vec<(&'static str, String)> {
    [
        "bind",
        "rbind",
        "move",
        "remount",
        "loop",
        "loop=/dev/loop0",
        "offset=1048576",
        "noatime,bind",
        "shared",
        "noload",
        "norecovery",
        "-o",
        "--bind",
        "-t ext4",
        "noatime\nbind",
        "a b",
        "",
        "device=/dev/sda",
        "logdev=/dev/sda",
        "journal_path=/dev/sda",
        "helper=evil",
        "x-mount.mkdir",
        "$(reboot)",
    ]
    .into_iter()
    .map(|flag| ("a hostile mount flag", flag.to_owned()))
    .collect()
}

/// A well-formed id of no volume.
pub(crate) const UNKNOWN: &str = "00000000-0000-4000-8000-000000000000@node1";
