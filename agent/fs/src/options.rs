//! Checks mount options, and splits them into MS_* flags and the filesystem's own data string.
//!
//! The controller's code decides which options are refused by name, for both programs. The filesystem decides about the
//! others: an unknown word makes mount(2) fail with EINVAL.

use std::collections::BTreeMap;

pub use drivebay_common::mount_flags::OptionError;
use drivebay_common::mount_flags::mount_flags;
use drivebay_common::text::split_options;

use super::kind;
use drivebay_model::FsType;

impl From<OptionError> for super::jobs::FsError {
    fn from(error: OptionError) -> Self {
        Self::Option {
            option: error.option,
            why: error.why.to_owned(),
        }
    }
}

/// Mount options of which none is refused by name, split into flags for mount(2) and words that only the filesystem can
/// check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MountFlags {
    /// MS_* bits for mount(2), without MS_RDONLY.
    pub bits: u64,
    /// Options for the filesystem, in order.
    pub data: Vec<String>,
    /// True if `ro` comes after any `rw`.
    pub read_only: bool,
}

impl MountFlags {
    /// Returns the requested SELinux context, without quotes.
    pub fn context(&self) -> Option<String> {
        self.data
            .iter()
            .rev()
            .find_map(|option| option.strip_prefix("context="))
            .map(|value| value.replace('"', ""))
    }

    /// Returns the options of the mount itself that these flags result in, in the kernel's words.
    pub fn of_mount(&self) -> Vec<&'static str> {
        let set = |bit: u64| self.bits & bit != 0;
        let atime = if set(libc::MS_STRICTATIME) {
            None
        } else if set(libc::MS_NOATIME) {
            Some("noatime")
        } else {
            Some("relatime")
        };
        let plain = OF_MOUNT.iter().filter(|(bit, _)| set(*bit));
        plain.map(|(_, word)| *word).chain(atime).collect()
    }

    /// Returns the options of the filesystem itself, sorted by name; of several with the same name, the last.
    pub fn of_filesystem(&self) -> Vec<String> {
        let name = |option: &str| option.split('=').next().unwrap_or_default().to_owned();
        let set = OF_SUPERBLOCK.iter().filter(|(bit, _)| self.bits & bit != 0);
        let mut all: BTreeMap<String, String> = set
            .map(|(_, word)| ((*word).to_owned(), (*word).to_owned()))
            .collect();
        all.extend(
            self.data
                .iter()
                .map(|option| (name(option), option.clone())),
        );
        all.into_values().collect()
    }

    /// Returns the options of the mount and of the filesystem.
    pub fn all(&self) -> Vec<String> {
        let of_mount = self.of_mount().into_iter().map(str::to_owned);
        of_mount.chain(self.of_filesystem()).collect()
    }

    /// Returns the data string of mount(2): the default of this filesystem and these options.
    pub fn data_for(&self, fs_type: FsType) -> String {
        let default = kind::of(fs_type).default_option(&self.data);
        let requested = self.data.iter().map(String::as_str);
        default
            .into_iter()
            .chain(requested)
            .collect::<Vec<_>>()
            .join(",")
    }
}

/// Options that the kernel shows with each mount.
const OF_MOUNT: &[(u64, &str)] = &[
    (libc::MS_NOSUID, "nosuid"),
    (libc::MS_NODEV, "nodev"),
    (libc::MS_NOEXEC, "noexec"),
    (libc::MS_NOSYMFOLLOW, "nosymfollow"),
    (libc::MS_NODIRATIME, "nodiratime"),
];

/// Options of the whole filesystem, whichever of its mounts they were requested with.
const OF_SUPERBLOCK: &[(u64, &str)] = &[
    (libc::MS_SYNCHRONOUS, "sync"),
    (libc::MS_DIRSYNC, "dirsync"),
    (libc::MS_LAZYTIME, "lazytime"),
    (libc::MS_I_VERSION, "iversion"),
];

/// Returns those of a mount's own options that are compared; the kernel adds others.
pub fn compared_of_mount(options: &str) -> Vec<&str> {
    let is_compared = |word: &&str| {
        matches!(*word, "noatime" | "relatime") || OF_MOUNT.iter().any(|(_, one)| one == word)
    };
    split_options(options).filter(is_compared).collect()
}

/// Words that set (true) or clear (false) MS_* bits, as in mount(8).
const FLAG_WORDS: &[(&str, u64, bool)] = &[
    ("nosuid", libc::MS_NOSUID, true),
    ("suid", libc::MS_NOSUID, false),
    ("nodev", libc::MS_NODEV, true),
    ("dev", libc::MS_NODEV, false),
    ("noexec", libc::MS_NOEXEC, true),
    ("exec", libc::MS_NOEXEC, false),
    ("sync", libc::MS_SYNCHRONOUS, true),
    ("async", libc::MS_SYNCHRONOUS, false),
    ("dirsync", libc::MS_DIRSYNC, true),
    ("noatime", libc::MS_NOATIME, true),
    ("atime", libc::MS_NOATIME, false),
    ("nodiratime", libc::MS_NODIRATIME, true),
    ("diratime", libc::MS_NODIRATIME, false),
    ("relatime", libc::MS_RELATIME, true),
    ("norelatime", libc::MS_RELATIME, false),
    ("strictatime", libc::MS_STRICTATIME, true),
    ("nostrictatime", libc::MS_STRICTATIME, false),
    ("lazytime", libc::MS_LAZYTIME, true),
    ("nolazytime", libc::MS_LAZYTIME, false),
    ("iversion", libc::MS_I_VERSION, true),
    ("noiversion", libc::MS_I_VERSION, false),
    ("silent", libc::MS_SILENT, true),
    ("loud", libc::MS_SILENT, false),
    ("nosymfollow", libc::MS_NOSYMFOLLOW, true),
    ("symfollow", libc::MS_NOSYMFOLLOW, false),
];

/// Words for fstab and its readers, which mount(8) does not pass to the kernel either.
const DROPPED: &[&str] = &[
    "defaults", "auto", "noauto", "nofail", "_netdev", "nouser", "nogroup",
];

/// Checks the mount flags of a request or a class; errs if an option is refused by name. An element may hold several,
/// separated by commas; commas inside double quotes (an SELinux context's categories) do not separate. Later words win.
pub fn parse_mount_flags(flags: &[String]) -> Result<MountFlags, OptionError> {
    let mut parsed = MountFlags::default();
    for word in mount_flags(flags)? {
        let name = word.split_once('=').map_or(word, |(name, _)| name);
        if let Some(&(_, bits, set)) = FLAG_WORDS.iter().find(|(flag, ..)| *flag == word) {
            if set {
                parsed.bits |= bits;
            } else {
                parsed.bits &= !bits;
            }
        } else if word == "ro" || word == "rw" {
            parsed.read_only = word == "ro";
        } else if DROPPED.contains(&word)
            || name.starts_with("x-")
            || name.starts_with("X-")
            || name == "comment"
        {
            // Userspace words that mount(8) does not hand to the kernel either.
        } else {
            parsed.data.push(word.to_owned());
        }
    }
    Ok(parsed)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(flags: &[&str]) -> Result<MountFlags, OptionError> {
        parse_mount_flags(&flags.iter().map(|&f| f.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn flags_are_split_as_mount_does() {
        let parsed = parse(&[
            "noatime,nodev",
            "discard",
            "ro",
            "x-systemd.automount",
            "defaults",
            "nofail,_netdev",
            "suid",
        ])
        .unwrap();
        assert_eq!(parsed.bits, libc::MS_NOATIME | libc::MS_NODEV);
        assert_eq!(parsed.data, ["discard"]);
        assert!(parsed.read_only);
        assert!(!parse(&["ro", "rw"]).unwrap().read_only);
        assert_eq!(parse(&["noexec", "exec"]).unwrap().bits, 0);
        assert_eq!(parse(&[]).unwrap(), MountFlags::default());
    }

    #[test]
    fn options_are_compared_by_what_they_lead_to_and_not_by_how_they_are_written() {
        let of = |flags: &[&str]| {
            let parsed = parse(flags).unwrap();
            (parsed.of_mount(), parsed.of_filesystem())
        };
        assert_eq!(of(&[]), (vec!["relatime"], Vec::new()));
        assert_eq!(of(&["noatime,nodev"]), of(&["nodev", "suid", "noatime"]));
        assert_eq!(of(&["noatime", "strictatime"]).0, Vec::<&str>::new());
        assert_eq!(
            of(&["discard", "commit=5"]),
            of(&["commit=9,discard", "commit=5"])
        );
        assert_ne!(of(&["commit=5"]), of(&["commit=9"]));
        assert_ne!(of(&["sync"]).1, of(&[]).1);
        assert_eq!(
            of(&["nosuid", "nodev", "noexec"]).0,
            ["nosuid", "nodev", "noexec", "relatime"]
        );
    }

    #[test]
    fn hostile_options_are_refused_by_name() {
        for flag in [
            "",
            ",",
            "a,,b",
            "noatime,",
            "-o",
            "a b",
            "a\tb",
            "a\nb",
            "a\0b",
            "bind",
            "rbind",
            "move",
            "remount",
            "remount,rw",
            "loop",
            "loop=/dev/loop0",
            "offset=4096",
            "sizelimit=1",
            "logdev=/dev/sda",
            "rtdev=/dev/sda",
            "journal_path=/dev/sda",
            "journal_dev=0x801",
            "device=/dev/sda",
            "subvol=/x",
            "subvolid=5",
            "shared",
            "rprivate",
            "unbindable",
            "nouuid",
            "norecovery",
            "noload",
            "rescue=all",
            "errors=panic",
            "fatal_errors=panic",
            "X-mount.subdir=etc",
            "x-mount.mkdir",
            "noatime,bind",
            "user",
            "context=\"a",
            "discard=\"x\"",
            "=x",
            "sb=131073",
        ] {
            let error = parse(&[flag]).unwrap_err();
            assert!(
                !error.why.is_empty() && (flag.is_empty() || !error.option.is_empty()),
                "{flag:?}"
            );
        }
        assert!(parse(&["a".repeat(3000).as_str(), "b".repeat(1097).as_str()]).is_err());
    }

    #[test]
    fn a_quoted_context_keeps_its_commas() {
        let parsed =
            parse(&["context=\"system_u:object_r:container_file_t:s0:c1,c2\",noatime"]).unwrap();
        assert_eq!(
            parsed.context().unwrap(),
            "system_u:object_r:container_file_t:s0:c1,c2"
        );
        assert_eq!(parsed.bits, libc::MS_NOATIME);
        assert_eq!(
            parsed.data_for(FsType::Xfs),
            "context=\"system_u:object_r:container_file_t:s0:c1,c2\""
        );
    }

    #[test]
    fn ext4_stops_writing_after_an_error_unless_another_reaction_is_requested() {
        assert_eq!(
            parse(&["discard"]).unwrap().data_for(FsType::Ext4),
            "errors=remount-ro,discard"
        );
        assert_eq!(
            parse(&["errors=continue"]).unwrap().data_for(FsType::Ext4),
            "errors=continue"
        );
        assert_eq!(parse(&[]).unwrap().data_for(FsType::Btrfs), "subvolid=5");
    }

    proptest! {
        #[test]
        fn nothing_that_is_refused_reaches_the_kernel(flags in proptest::collection::vec("[a-z_=,\"\\-: ]{0,24}", 0..6)) {
            if let Ok(parsed) = parse_mount_flags(&flags) {
                for option in &parsed.data {
                    prop_assert!(!option.is_empty() && !option.starts_with('-'));
                    let one = std::slice::from_ref(option);
                    prop_assert_eq!(mount_flags(one), Ok(vec![option.as_str()]));
                }
            }
        }
    }
}
