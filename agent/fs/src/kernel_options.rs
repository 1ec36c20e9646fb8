//! Checks mount options with the kernel before anything is formatted or mounted: each is set in a filesystem context of
//! which no superblock is made.
//!
//! The kernel checks the name and the value of each option. Rules about several options, and values that a filesystem
//! compares with others or with what is on the device, are checked by mount(2) alone (XFS: `logbufs`). An option that cannot
//! be checked is not refused.

use std::{io, time::Duration};

use tokio::{sync::Semaphore, time::timeout};

use super::options::MountFlags;
use drivebay_model::{FsType, cause::chain};
use drivebay_sys::{fscontext::FsContext, offload::offload};

/// Limit of a check: fsopen(2) may load a module from a slow system drive.
const ANSWER: Duration = Duration::from_secs(5);
/// Limit of concurrent checks, so that no threads accumulate while a module cannot be loaded.
static QUESTIONS: Semaphore = Semaphore::const_new(2);
/// No filesystem has this option. A context that accepts it does not check options until the mount.
const NO_OPTION: &str = "drivebay_no_such_option";

/// Result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OptionsCheck {
    /// Each of them by itself is an option of this filesystem.
    Accepted,
    /// At least one is not an option of this filesystem.
    Refused {
        /// All refused options, separated by commas.
        options: String,
        /// Reason in the kernel's words.
        why: String,
    },
    /// The options could not be checked.
    NotChecked { why: String },
}

/// Checks the options. May block while a module is loaded; accesses no drive that holds volumes.
pub fn check(fs_type: FsType, flags: &MountFlags) -> OptionsCheck {
    if flags.data.is_empty() {
        return OptionsCheck::Accepted;
    }
    refused(fs_type, &flags.data).unwrap_or_else(|error| OptionsCheck::NotChecked {
        why: format!("fsopen(2) of {fs_type} failed: {}", chain(&error)),
    })
}

/// Checks the options on a thread of its own. Returns `NotChecked` if that takes too long.
pub async fn check_on_thread(fs_type: FsType, flags: MountFlags) -> OptionsCheck {
    if flags.data.is_empty() {
        return OptionsCheck::Accepted;
    }
    let not_checked = |error: io::Error| OptionsCheck::NotChecked { why: chain(&error) };
    let Ok(Ok(turn)) = timeout(ANSWER, QUESTIONS.acquire()).await else {
        return not_checked(io::ErrorKind::TimedOut.into());
    };
    offload("mount-options", ANSWER, move || {
        // Released when the kernel has answered, not when the result is no longer awaited.
        let _turn = turn;
        check(fs_type, &flags)
    })
    .await
    .unwrap_or_else(not_checked)
}

fn refused(fs_type: FsType, options: &[String]) -> io::Result<OptionsCheck> {
    if FsContext::open(fs_type.as_str())?
        .set(NO_OPTION, None)
        .is_ok()
    {
        let why = format!("this kernel reads the options of {fs_type} only when it mounts");
        return Ok(OptionsCheck::NotChecked { why });
    }
    let context = FsContext::open(fs_type.as_str())?;
    // As in a mount, where a second source is refused.
    context.set("source", Some("none"))?;
    let (mut names, mut reasons) = (Vec::new(), Vec::new());
    for option in options {
        // mount(2) removes the quotes of an SELinux context.
        let given = match option.split_once('=') {
            Some((key, value)) => context.set(key, Some(&value.replace('"', ""))),
            None => context.set(option, None),
        };
        let errors = context.errors().join(", ");
        if let Err(error) = given {
            names.push(option.as_str());
            reasons.push(match errors.is_empty() {
                true => format!("{fs_type}: {error}"),
                false => errors,
            });
        }
    }
    Ok(match names.as_slice() {
        [] => OptionsCheck::Accepted,
        names => OptionsCheck::Refused {
            options: names.join(","),
            why: reasons.join("; "),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse_mount_flags;

    fn checked(fs_type: FsType, options: &[&str]) -> OptionsCheck {
        let options: Vec<String> = options.iter().map(|&it| it.to_owned()).collect();
        check(fs_type, &parse_mount_flags(&options).unwrap())
    }

    /// True if this kernel can check options: as root, with the filesystem.
    fn answers(fs_type: FsType) -> bool {
        !matches!(
            checked(fs_type, &["discard"]),
            OptionsCheck::NotChecked { .. }
        )
    }

    #[test]
    fn the_kernel_names_each_option_that_it_refuses() {
        if !answers(FsType::Ext4) {
            return;
        }
        assert_eq!(
            checked(FsType::Ext4, &["noatime,discard", "commit=30"]),
            OptionsCheck::Accepted
        );
        let OptionsCheck::Refused { options, why } =
            checked(FsType::Ext4, &["nobarier,discard,commit=soon,ro"])
        else {
            panic!("refused")
        };
        assert_eq!(options, "nobarier,commit=soon");
        assert!(
            why.starts_with("ext4: Unknown parameter 'nobarier'; "),
            "{why}"
        );
        assert!(why.contains("Bad value for 'commit'"), "{why}");
        // Another device than the volume's own.
        assert!(matches!(
            checked(FsType::Ext4, &["source=/dev/sda"]),
            OptionsCheck::Refused { .. }
        ));
    }

    #[test]
    fn each_filesystem_is_checked_for_its_own_options() {
        for (fs_type, own, others) in [
            (FsType::Ext4, "data=ordered", "logbsize=64k"),
            (FsType::Xfs, "logbsize=64k", "data=ordered"),
            (FsType::Btrfs, "compress=zstd", "logbsize=64k"),
        ] {
            if !answers(fs_type) {
                continue;
            }
            assert_eq!(
                checked(fs_type, &[own]),
                OptionsCheck::Accepted,
                "{fs_type}"
            );
            let refused = checked(fs_type, &[others]);
            assert!(matches!(refused, OptionsCheck::Refused { .. }), "{fs_type}");
        }
    }

    #[test]
    fn a_value_that_is_compared_with_others_is_checked_only_by_mount() {
        if answers(FsType::Xfs) {
            assert_eq!(
                checked(FsType::Xfs, &["logbufs=99"]),
                OptionsCheck::Accepted
            );
        }
    }

    #[tokio::test]
    async fn flags_of_the_mount_itself_are_not_checked() {
        let flags = parse_mount_flags(&["noatime,nodev,ro".to_owned()]).unwrap();
        assert_eq!(
            check_on_thread(FsType::Ext4, flags).await,
            OptionsCheck::Accepted
        );
    }
}
