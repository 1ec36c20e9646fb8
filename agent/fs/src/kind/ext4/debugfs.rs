//! Parses the output of `debugfs`. Pure. Names of files are given by tenants, and may hold anything but a slash and a zero
//! byte.

use std::collections::BTreeMap;

/// Inodes below this number are the filesystem's own, except the root directory.
const FIRST_INODE: u64 = 11;
const ROOT: u64 = 2;

/// Owner of a block, by `icheck`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockOwner {
    /// A file or directory.
    Inode(u64),
    /// The journal, or another file of the filesystem's own.
    Metadata,
    /// No file: free, or part of the filesystem's structures.
    None,
}

/// Parses the output of `icheck`: a line for each block, `block<TAB>inode` or `block<TAB><block not found>`. Blocks without
/// a result are left out.
pub fn icheck(output: &str) -> BTreeMap<u64, BlockOwner> {
    let lines = output.lines().filter_map(|line| {
        let (block, owner) = line.split_once('\t')?;
        let owner = match owner.trim() {
            "<block not found>" => BlockOwner::None,
            number => match number.parse().ok()? {
                0 => return None,
                ROOT => BlockOwner::Inode(ROOT),
                own if own < FIRST_INODE => BlockOwner::Metadata,
                inode => BlockOwner::Inode(inode),
            },
        };
        Some((block.trim().parse().ok()?, owner))
    });
    lines.collect()
}

/// Parses the output of `ncheck` for one inode: `inode<TAB>path`, a line for each of its names. Returns its first name; None
/// if it has none. A name with a line break is returned whole, since nothing else can follow.
pub fn ncheck(output: &str, inode: u64) -> Option<String> {
    let (_, rest) = output.split_once("Inode\tPathname\n")?;
    let start = format!("{inode}\t");
    let path = rest.strip_prefix(&start)?;
    // Another name of the inode.
    let end = path.find(&format!("\n{start}")).unwrap_or(path.len());
    let path = path.get(..end)?;
    let path = path.strip_suffix('\n').unwrap_or(path);
    // Since 1.41 debugfs writes two slashes before a name in the root directory.
    let path = path.trim_start_matches('/');
    Some(format!("/{path}"))
}

/// Parses the output of `testb`: true for blocks that are in use. Blocks without a result are left out.
pub fn testb(output: &str) -> BTreeMap<u64, bool> {
    let lines = output.lines().filter_map(|line| {
        let (block, state) = line.strip_prefix("Block ")?.split_once(' ')?;
        let used = match state.trim() {
            "marked in use" => true,
            "not in use" => false,
            _ => return None,
        };
        Some((block.parse().ok()?, used))
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_block_is_a_files_the_journals_or_no_ones() {
        let output =
            "Block\tInode number\n8865\t12\n100\t<block not found>\n1000\t8\n9\t2\nx\ty\n7\t0\n";
        let expected = [
            (8865, BlockOwner::Inode(12)),
            (100, BlockOwner::None),
            (1000, BlockOwner::Metadata),
            (9, BlockOwner::Inode(2)),
        ];
        assert_eq!(icheck(output), expected.into());
    }

    #[test]
    fn a_name_is_taken_whole_and_is_never_another_inodes() {
        for (output, expected) in [
            (
                "Inode\tPathname\n12\t/db/base/2619\n",
                Some("/db/base/2619"),
            ),
            ("Inode\tPathname\n12\t//file\n", Some("/file")),
            ("Inode\tPathname\n12\t/a\n12\t/b\n", Some("/a")),
            (
                "Inode\tPathname\n12\t/a\n13\t/etc/passwd\n",
                Some("/a\n13\t/etc/passwd"),
            ),
            ("Inode\tPathname\n", None),
            ("Inode\tPathname\n13\t/other\n", None),
            ("", None),
        ] {
            assert_eq!(ncheck(output, 12).as_deref(), expected, "{output:?}");
        }
    }

    #[test]
    fn a_block_is_in_use_or_not_or_it_is_not_known() {
        let output = "Block 100 marked in use\nBlock 101 not in use\nBlock x not in use\n";
        assert_eq!(testb(output), [(100, true), (101, false)].into());
        assert!(testb("debugfs: Filesystem not open\n").is_empty());
    }
}
