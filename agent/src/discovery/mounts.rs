//! mountinfo as the claim check needs it. A line that does not parse is an error, never skipped:
//! it could be the mount that holds the drive in question.

use std::io::{self, ErrorKind};

/// One line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mount {
    pub(super) dev: (u32, u32),
    pub(super) root: String,
    pub(super) point: String,
    pub(super) fs_type: String,
    pub(super) source: String,
}

/// All lines, in order.
pub(super) fn parse(text: &str) -> io::Result<Vec<Mount>> {
    text.lines()
        .filter(|line| !line.is_empty())
        .map(|line| {
            parse_line(line).ok_or_else(|| {
                io::Error::new(
                    ErrorKind::InvalidData,
                    format!("mountinfo has the line {line:?}; no drive can be claimed"),
                )
            })
        })
        .collect()
}

fn parse_line(line: &str) -> Option<Mount> {
    // Optional fields stand between the options and a lone dash. Fields are split at single spaces:
    // an empty source is an empty field.
    let (before, after) = line.split_once(" - ")?;
    let mut before = before.split(' ').skip(2);
    let (major, minor) = before.next()?.split_once(':')?;
    let (root, point) = (before.next()?, before.next()?);
    let mut after = after.split(' ');
    Some(Mount {
        dev: (major.parse().ok()?, minor.parse().ok()?),
        root: unescape(root),
        point: unescape(point),
        fs_type: after.next()?.to_owned(),
        source: unescape(after.next()?),
    })
}

/// The mount that a path lies on: the last one of those with the longest mount point above it.
pub(super) fn holding<'a>(mounts: &'a [Mount], path: &str) -> Option<&'a Mount> {
    mounts
        .iter()
        .filter(|mount| is_above(&mount.point, path))
        // The last of equals is the one on top; max_by_key takes the last.
        .max_by_key(|mount| mount.point.len())
}

fn is_above(point: &str, path: &str) -> bool {
    let point = point.trim_end_matches('/');
    path.strip_prefix(point)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Undoes the kernel's octal escapes (`\040`).
pub(super) fn unescape(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let code = (bytes[at] == b'\\')
            .then(|| bytes.get(at + 1..at + 4))
            .flatten()
            .and_then(|digits| {
                digits.iter().try_fold(0_u32, |sum, digit| {
                    matches!(digit, b'0'..=b'7').then(|| sum * 8 + u32::from(digit - b'0'))
                })
            })
            .and_then(|code| u8::try_from(code).ok());
        plain.push(code.unwrap_or(bytes[at]));
        at += if code.is_some() { 4 } else { 1 };
    }
    String::from_utf8_lossy(&plain).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_point_that_only_begins_alike_does_not_hold_the_path() {
        let mounts = parse("1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 8:2 / /var/lib rw - ext4 /dev/b rw\n3 1 8:3 / /var/library rw - ext4 /dev/c rw\n").unwrap();
        assert_eq!(holding(&mounts, "/var/lib/x").unwrap().source, "/dev/b");
        assert_eq!(holding(&mounts, "/var/libx").unwrap().source, "/dev/a");
        assert_eq!(holding(&mounts, "/").unwrap().source, "/dev/a");
    }

    #[test]
    fn escapes_and_optional_fields_are_understood() {
        assert_eq!(unescape(r"/a\040b\134c\04"), r"/a b\c\04");
        assert_eq!(unescape(r"\777"), r"\777");
        let one = &parse(
            "36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 shared:2 - ext3  rw,errors=continue\n",
        )
        .unwrap()[0];
        assert_eq!(
            (one.dev, one.point.as_str(), one.source.as_str()),
            ((98, 0), "/mnt 2", "")
        );
    }
}
