//! A class: a named set of drives and how they are carved.

use std::path::Path;

use serde::{Deserialize, Serialize};

pub use drivebay_proto::words::Layout;

use super::{DriveFacts, DriveRef, FsType, Media, Transport, Verdict, by_id};

/// How a class chooses among its drives and, with layout `partition`, among the free places of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// The emptiest drive, and a place that leaves each neighbour room to grow.
    #[default]
    Spread,
    /// The fullest drive that fits, and the smallest piece: large pieces stay whole.
    Pack,
}

impl Placement {
    /// The word in the config and in tables.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Spread => "spread",
            Self::Pack => "pack",
        }
    }
}

/// What must be true of a drive's bytes before it is claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClaimPolicy {
    /// No signature, and zeros wherever it is looked.
    #[default]
    Blank,
    /// No signature; whatever else is there is the operator's to lose.
    SignatureFree,
}

/// What is done to a deleted volume's space before it is offered again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ErasePolicy {
    /// Zeros, all of it.
    #[default]
    Zero,
    /// Only signatures: fast, and the next tenant can read the rest.
    Signatures,
}

/// What a raw volume, which shows all its bytes, may be made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RawSpace {
    /// Of space that was zeroed and read back alone. Where the drive does not zero on command, it is waited for.
    #[default]
    Zeroed,
    /// Where zeros would have to be written, of any free space: a former owner's data may be in it.
    Sampled,
}

/// Which verdict has the agent move the volumes off a drive without an operator's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Evacuation {
    /// None: an operator evacuates.
    #[default]
    Manual,
    /// BAD.
    Bad,
    /// SUSPECT or BAD.
    Suspect,
}

impl Evacuation {
    /// The word in the config.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Manual => "manual",
            Self::Bad => "bad",
            Self::Suspect => "suspect",
        }
    }

    /// Whether a drive with this verdict is evacuated. UNKNOWN and GOOD never are.
    pub fn covers(self, verdict: Verdict) -> bool {
        match self {
            Self::Manual => false,
            Self::Bad => verdict == Verdict::Bad,
            Self::Suspect => verdict.weight() > 0,
        }
    }
}

/// Which drives a class takes. Every condition that is given must hold; a class with none selects nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Selector {
    /// Any of these media.
    pub media: Vec<Media>,
    /// Any of these transports.
    pub transport: Vec<Transport>,
    /// Any of these patterns (`*`, `?`) matches the model.
    pub model: Vec<String>,
    /// Any of these patterns matches the identity; one that begins with /dev/, the node or a link below /dev/disk/by-id.
    pub drive: Vec<String>,
    /// Any of these patterns matches the sysfs path, the kernel name, or a loop device's backing file; one that begins with
    /// /dev/, the node.
    pub path: Vec<String>,
    /// At least this many bytes.
    pub min_bytes: Option<u64>,
    /// At most this many bytes.
    pub max_bytes: Option<u64>,
}

impl Selector {
    /// Whether every condition given holds for this drive, and at least one is given.
    pub fn selects(&self, drive: &DriveFacts) -> bool {
        if *self == Self::default() {
            return false;
        }
        let any = |patterns: &[String], fits: &dyn Fn(&String) -> bool| {
            patterns.is_empty() || patterns.iter().any(fits)
        };
        (self.media.is_empty() || self.media.contains(&drive.media))
            && (self.transport.is_empty() || self.transport.contains(&drive.transport))
            && any(&self.model, &|pattern| glob(pattern, &drive.model))
            && any(&self.drive, &|pattern| names(pattern, drive))
            && any(&self.path, &|pattern| leads_to(pattern, drive))
            && self.min_bytes.is_none_or(|min| drive.size_bytes >= min)
            && self.max_bytes.is_none_or(|max| drive.size_bytes <= max)
    }

    /// Whether the drive is named itself, by identity or by path: what a drive with no identity of its own needs.
    pub fn is_explicit(&self) -> bool {
        !self.drive.is_empty() || !self.path.is_empty()
    }
}

/// Whether a pattern of `drive` matches.
pub fn names(pattern: &str, drive: &DriveFacts) -> bool {
    glob(pattern, &drive.id.0)
        || is_node(pattern, drive)
        || (pattern.starts_with(by_id::DIR)
            && by_id::links(drive).iter().any(|link| glob(pattern, link)))
}

fn leads_to(pattern: &str, drive: &DriveFacts) -> bool {
    let backing = drive.backing_file.as_deref().map(Path::to_string_lossy);
    glob(pattern, &drive.sysfs_path)
        || glob(pattern, &drive.kernel_name)
        || glob(pattern, &backing.unwrap_or_default())
        || is_node(pattern, drive)
}

/// Only what is written as a node's path: a pattern like `*` must not get to mean more.
fn is_node(pattern: &str, drive: &DriveFacts) -> bool {
    pattern.starts_with("/dev/") && glob(pattern, &DriveRef::from(drive).node().to_string_lossy())
}

/// Shell-like match of the whole text: `*` any run, `?` any one character.
pub fn glob(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(&c) if c == '?' || c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match star {
                Some((at, from)) => {
                    star = Some((at, from + 1));
                    p = at + 1;
                    t = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|&c| c == '*')
}

/// A class as the config has it, checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassConfig {
    /// Name, as StorageClasses use it.
    pub name: String,
    /// Which drives.
    pub select: Selector,
    /// How the next drive is carved; claimed ones keep theirs.
    pub layout: Layout,
    /// Which drive and which place a new volume gets.
    pub placement: Placement,
    /// The higher one takes a drive that two classes select; equal is AmbiguousClass.
    pub priority: i32,
    /// What must be true of the bytes.
    pub claim: ClaimPolicy,
    /// What deleting does to the bytes.
    pub erase: ErasePolicy,
    /// What raw volumes are made of.
    pub raw_space: RawSpace,
    /// When volumes are moved off a failing drive without a request.
    pub evacuate: Evacuation,
    /// Filesystem when nobody names one.
    pub fs_type: FsType,
    /// Further mkfs arguments, one per element.
    pub mkfs_options: Vec<String>,
    /// Further mount options, one per element.
    pub mount_options: Vec<String>,
    /// Removable and USB drives too.
    pub allow_removable: bool,
    /// XFS retries a failing metadata write for ever instead of shutting down.
    pub xfs_retry_forever: bool,
    /// Layout `lvm`: bytes of free space that the snapshot by which a mounted volume is checked may take; 0: none is made.
    pub check_reserve_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::{Selector, glob};
    use crate::{DriveFacts, Transport, samples};

    #[test]
    fn a_drive_is_selected_by_identity_node_or_by_id_link() {
        let drive = DriveFacts {
            transport: Transport::Sata,
            model: "ST4000NM0025".into(),
            serial: "ZC1A2B3C".into(),
            wwn: "naa.5000c500a1b2c3d4".into(),
            ..samples::facts("sda")
        };
        for (pattern, by_drive, by_path) in [
            ("wwn-sda", true, false),
            ("/dev/disk/by-id/wwn-0x5000c500a1b2c3d4", true, false),
            ("/dev/disk/by-id/ata-ST4000NM0025_ZC1A2B3C", true, false),
            ("/dev/disk/by-id/ata-ST4000*", true, false),
            (
                "/dev/disk/by-id/ata-ST4000NM0025_ZC1A2B3C-part1",
                false,
                false,
            ),
            ("/dev/sda", true, true),
            ("/dev/sdb", false, false),
            ("sda", false, true),
            // What meant less before it could name a link means no more now.
            ("*ZC1A2B3C", false, false),
            ("*", true, true),
        ] {
            let of = |drive, path| Selector {
                drive,
                path,
                ..Selector::default()
            };
            let pattern = || vec![pattern.to_owned()];
            let selects = [of(pattern(), vec![]), of(vec![], pattern())];
            let selects = selects.map(|it| it.selects(&drive));
            assert_eq!(selects, [by_drive, by_path], "{:?}", pattern());
        }
    }

    #[test]
    fn a_pattern_matches_the_whole_text() {
        for (pattern, text, expected) in [
            ("", "", true),
            ("*", "", true),
            ("wwn-*", "wwn-0x5", true),
            ("wwn-*", "xwwn-0x5", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("*.img", "/x/d0.img", true),
            ("*a*b", "xaxxbxb", true),
            ("*a*b", "xaxxbx", false),
        ] {
            assert_eq!(glob(pattern, text), expected, "{pattern} {text}");
        }
    }
}
