//! mkfs options: an allow list per filesystem.
//!
//! Options that name another device, a file, the UUID (Drivebay plans it) or a dry run are not on it, nor are `-f`/`-F`:
//! what they override never exists when Drivebay formats.

use drivebay_common::mount_flags::{MAX_BYTES, OptionError, check_text};

use super::kind::{self, Allowed, Value};
use drivebay_model::FsType;

/// Checks further mkfs arguments, one per element; errs if one is not on the list. `-b 4096`, `-b4096` and
/// `--nodesize=16384` are all accepted, a value without its option is not.
pub fn check_mkfs_options(fs_type: FsType, options: &[String]) -> Result<(), OptionError> {
    let table = kind::of(fs_type).facts().mkfs_options;
    if options.iter().map(String::len).sum::<usize>() > MAX_BYTES {
        return Err(OptionError::new(
            &options[0],
            "all options together may have at most 4096 bytes",
        ));
    }
    let mut rest = options.iter();
    while let Some(element) = rest.next() {
        check_text(element)?;
        if !element.starts_with('-') {
            return Err(OptionError::new(
                element,
                "it is a bare word where an option was expected",
            ));
        }
        let (Allowed(_, kind), attached) = find(table, element).ok_or_else(|| {
            OptionError::new(
                element,
                "it is not among the mkfs options that a volume may have",
            )
        })?;
        let value = match (kind, attached) {
            (Value::None, None) => continue,
            (Value::None, Some(_)) => return Err(OptionError::new(element, "it takes no value")),
            (_, Some(value)) => value,
            (_, None) => {
                let value = rest
                    .next()
                    .ok_or_else(|| OptionError::new(element, "its value is missing"))?;
                check_text(value)?;
                value
            }
        };
        check_value(element, kind, value)?;
    }
    Ok(())
}

/// Returns the table's row for this element, and its attached value.
fn find<'a>(
    table: &'static [Allowed],
    element: &'a str,
) -> Option<(&'static Allowed, Option<&'a str>)> {
    let (name, attached) = if element.starts_with("--") {
        element
            .split_once('=')
            .map_or((element, None), |(name, value)| (name, Some(value)))
    } else {
        let end = element
            .char_indices()
            .nth(2)
            .map_or(element.len(), |(at, _)| at);
        (
            &element[..end],
            Some(&element[end..]).filter(|value| !value.is_empty()),
        )
    };
    table
        .iter()
        .find(|Allowed(names, _)| names.contains(&name))
        .map(|row| (row, attached))
}

fn check_value(option: &str, kind: &Value, value: &str) -> Result<(), OptionError> {
    let refuse = |why| Err(OptionError::new(&format!("{option} {value}"), why));
    if value.is_empty() || value.starts_with('-') {
        return refuse("its value is missing");
    }
    // No option on the list takes a path, so a slash can only be an attempt to name one.
    if value.contains('/') {
        return refuse("a value may not name a path");
    }
    match kind {
        Value::None | Value::Word => Ok(()),
        Value::OneOf(words) if words.contains(&value) => Ok(()),
        Value::OneOf(_) => refuse("this value is not among those that a volume may have"),
        Value::Keys(keys) => {
            let is_allowed =
                |part: &str| keys.contains(&part.split('=').next().unwrap_or_default());
            if value.split(',').all(is_allowed) {
                Ok(())
            } else {
                refuse("one of its keys is not among those that a volume may have")
            }
        }
        Value::Not(words) => {
            if value
                .split(',')
                .any(|part| part.is_empty() || words.contains(&part))
            {
                refuse("one of its features is not among those that a volume may have")
            } else {
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(fs_type: FsType, options: &[&str]) -> Result<(), OptionError> {
        check_mkfs_options(
            fs_type,
            &options.iter().map(|&o| o.to_owned()).collect::<Vec<_>>(),
        )
    }

    #[test]
    fn usual_options_are_allowed_in_every_spelling() {
        for (fs_type, options) in [
            (
                FsType::Ext4,
                &[
                    "-b",
                    "4096",
                    "-i16384",
                    "-O",
                    "^metadata_csum,fast_commit",
                    "-E",
                    "stride=16,discard",
                ][..],
            ),
            (FsType::Ext4, &["-J", "size=64", "-m", "1", "-L", "data"]),
            (
                FsType::Xfs,
                &[
                    "-d",
                    "su=64k,sw=4",
                    "-m",
                    "reflink=0",
                    "-i",
                    "size=1024",
                    "-l",
                    "size=64m",
                ],
            ),
            (
                FsType::Btrfs,
                &["--nodesize=16384", "-d", "single", "--csum", "xxhash", "-M"],
            ),
            (FsType::Xfs, &[]),
        ] {
            assert_eq!(check(fs_type, options), Ok(()), "{options:?}");
        }
    }

    #[test]
    fn all_options_together_have_at_most_4096_bytes() {
        let label = "x".repeat(MAX_BYTES - 2);
        assert_eq!(check(FsType::Ext4, &["-L", &label]), Ok(()));
        let longer = format!("{label}x");
        assert!(check(FsType::Ext4, &["-L", &longer]).is_err());
        // Also when no single one is long.
        let many = vec!["-j"; MAX_BYTES / 2];
        assert_eq!(check(FsType::Ext4, &many), Ok(()));
        let more = vec!["-j"; MAX_BYTES];
        assert!(check(FsType::Ext4, &more).is_err());
    }

    #[test]
    fn options_that_name_devices_or_undo_our_care_are_refused() {
        for (fs_type, options) in [
            (FsType::Ext4, &["-F"][..]),
            (FsType::Ext4, &["-n"]),
            (FsType::Ext4, &["-U", "random"]),
            (FsType::Ext4, &["-J", "device=/dev/sda"]),
            (FsType::Ext4, &["-Jdevice=UUID=x"]),
            (FsType::Ext4, &["-d", "/etc"]),
            (FsType::Ext4, &["-E", "offset=4096"]),
            (FsType::Ext4, &["-O", "^has_journal"]),
            (FsType::Ext4, &["-O", "journal_dev"]),
            (FsType::Ext4, &["-S"]),
            (FsType::Ext4, &["-b"]),
            (FsType::Ext4, &["-b", "-F"]),
            (FsType::Ext4, &["/dev/sda"]),
            (FsType::Ext4, &["4096"]),
            (FsType::Ext4, &["-b", "4096", "/dev/sda"]),
            (FsType::Ext4, &["-L", "a b"]),
            (FsType::Ext4, &["-L", "a\nb"]),
            (FsType::Ext4, &["-z", "undo"]),
            (FsType::Ext4, &["--"]),
            (FsType::Ext4, &["-"]),
            (FsType::Ext4, &[""]),
            (FsType::Xfs, &["-f"]),
            (FsType::Xfs, &["-N"]),
            (FsType::Xfs, &["-l", "logdev=/dev/sda"]),
            (FsType::Xfs, &["-l", "size=1,logdev=sda"]),
            (FsType::Xfs, &["-r", "rtdev=/dev/sda"]),
            (FsType::Xfs, &["-d", "name=/dev/sda"]),
            (FsType::Xfs, &["-d", "file,size=1g"]),
            (
                FsType::Xfs,
                &["-m", "uuid=b5cc6d5e-5ea6-4a0b-9d8c-4b5c6b1c5d6e"],
            ),
            (FsType::Xfs, &["-p", "proto"]),
            (FsType::Xfs, &["-c", "options=/etc/passwd"]),
            (FsType::Btrfs, &["-f"]),
            (FsType::Btrfs, &["-r", "/etc"]),
            (FsType::Btrfs, &["--rootdir=/etc"]),
            (FsType::Btrfs, &["-U", "x"]),
            (FsType::Btrfs, &["-d", "raid1"]),
            (FsType::Btrfs, &["-b", "1"]),
            (FsType::Btrfs, &["-Mx"]),
        ] {
            assert!(check(fs_type, options).is_err(), "{options:?}");
        }
    }
}
