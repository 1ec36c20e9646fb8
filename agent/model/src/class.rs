//! A class: a named set of drives, with their layout and policies.

use std::path::Path;

use serde::{Deserialize, Serialize};

pub use drivebay_proto::words::Layout;

use super::{DriveFacts, DriveRef, FsType, Media, Transport, Verdict, by_id};

/// Policy by which a class chooses among its drives and, with layout `partition`, among the free runs of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// The emptiest drive, and a position that leaves each neighbour room to expand.
    #[default]
    Spread,
    /// The fullest drive on which the volume fits, and the smallest free run: large runs stay whole.
    Pack,
}

impl Placement {
    /// Returns the word in the config and in tables.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Spread => "spread",
            Self::Pack => "pack",
        }
    }
}

/// Condition on a drive's bytes before the drive is claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClaimPolicy {
    /// No signature, and every sampled block is zero.
    #[default]
    Blank,
    /// No signature; other data on the drive is lost.
    SignatureFree,
}

/// Erasure of a deleted volume's space before it is free again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ErasePolicy {
    /// All of it is zeroed.
    #[default]
    Zero,
    /// Only signatures are erased: fast, and the next tenant can read the rest.
    Signatures,
}

/// Space that may be given to a raw volume, which exposes all its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RawSpace {
    /// Only space that was zeroed and read back. If the drive does not zero on command, the volume waits for it.
    #[default]
    Zeroed,
    /// Any free space, if zeros would have to be written: a former owner's data may be in it.
    Sampled,
}

/// Verdicts at which the agent moves the volumes off a drive without an operator's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Evacuation {
    /// No verdict: an operator evacuates.
    #[default]
    Manual,
    /// Drives with a verdict of BAD.
    Bad,
    /// Drives with a verdict of SUSPECT or BAD.
    Suspect,
}

impl Evacuation {
    /// Returns the word in the config.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Manual => "manual",
            Self::Bad => "bad",
            Self::Suspect => "suspect",
        }
    }

    /// True if a drive with this verdict is evacuated; never for UNKNOWN and GOOD.
    pub fn covers(self, verdict: Verdict) -> bool {
        match self {
            Self::Manual => false,
            Self::Bad => verdict == Verdict::Bad,
            Self::Suspect => verdict.weight() > 0,
        }
    }
}

/// Conditions on the drives of a class. Every condition that is given must hold; a selector without any selects no drive.
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
    /// True if at least one condition is given, and every one that is given holds for this drive.
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

    /// True if drives are selected by identity or by path, which a drive without a stable identity needs.
    pub fn is_explicit(&self) -> bool {
        !self.drive.is_empty() || !self.path.is_empty()
    }
}

/// True if a pattern of `Selector::drive` matches the drive's identity, its device node or one of its by-id links.
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

/// True if a pattern that is written as a path of a node matches. Others never do, so that a pattern like `*` does not match more than
/// before.
fn is_node(pattern: &str, drive: &DriveFacts) -> bool {
    pattern.starts_with("/dev/") && glob(pattern, &DriveRef::from(drive).node().to_string_lossy())
}

/// True if the pattern matches the whole text: `*` matches any run of characters, `?` any single character.
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

/// A class of the config, validated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassConfig {
    /// Name by which StorageClasses refer to it.
    pub name: String,
    pub select: Selector,
    /// Layout of the next drive that is claimed; claimed ones keep theirs.
    pub layout: Layout,
    pub placement: Placement,
    /// The class with the higher priority takes a drive that two classes select; with equal ones the drive is rejected as AmbiguousClass.
    pub priority: i32,
    pub claim: ClaimPolicy,
    pub erase: ErasePolicy,
    pub raw_space: RawSpace,
    pub evacuate: Evacuation,
    /// Filesystem of volumes whose request names none.
    pub fs_type: FsType,
    /// Additional mkfs arguments, one per element.
    pub mkfs_options: Vec<String>,
    /// Additional mount options, one per element.
    pub mount_options: Vec<String>,
    /// True if removable and USB drives may be claimed.
    pub allow_removable: bool,
    /// True if XFS retries a failing metadata write forever instead of shutting down.
    pub xfs_retry_forever: bool,
    /// Layout `lvm`: free space that the snapshot for checking a mounted volume may take, bytes; 0: no such snapshot is made.
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
            // A pattern that does not begin with the directory of the links matches none of them.
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
