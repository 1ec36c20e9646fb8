use std::collections::BTreeSet;

use super::*;
use crate::kind::{
    btrfs::{BTRFS_CHECK, BTRFS_SCRUB},
    ext4::E2FSCK,
    xfs::XFS_REPAIR,
};

/// A recorded run: exit code, standard output, standard error.
fn recorded(name: &str) -> End {
    let path = format!(
        "{}/src/check/fixtures/{name}.txt",
        env!("CARGO_MANIFEST_DIR")
    );
    let text = std::fs::read_to_string(&path).expect(&path);
    let (code, rest) = text.split_once('\n').unwrap();
    let (stdout, stderr) = rest.split_once("--- stderr\n").unwrap();
    End::Exited {
        code: code.strip_prefix("exit ").unwrap().parse().unwrap(),
        stdout: stdout.strip_prefix("--- stdout\n").unwrap().to_owned(),
        stderr: stderr.to_owned(),
    }
}

fn of(name: &str) -> String {
    let checker = match name.split_once('-').unwrap() {
        ("ext4", _) => &E2FSCK,
        ("xfs", _) => &XFS_REPAIR,
        ("btrfs", rest) if rest.starts_with("scrub") => &BTRFS_SCRUB,
        _ => &BTRFS_CHECK,
    };
    match decode(checker, &recorded(name)) {
        CheckOutcome::Clean => "clean".to_owned(),
        CheckOutcome::Corrupt { what, mendable } => {
            format!(
                "corrupt{}: {what}",
                if mendable { " (mendable)" } else { "" }
            )
        }
        CheckOutcome::Inconclusive { why, .. } => why.as_str().to_owned(),
        CheckOutcome::NotCheckable { .. } => "not checkable".to_owned(),
    }
}

/// Every recording, and its outcome.
const TABLE: &[(&str, &str)] = &[
    ("ext4-clean", "clean"),
    (
        "ext4-bitmap",
        "corrupt: Block bitmap differences:  -(7000--7004)",
    ),
    // Exit code 0, and nothing was checked that a replay would change.
    ("ext4-dirty", "DirtyLog"),
    (
        "ext4-garbage-dir",
        "corrupt: Directory inode 114, block #0, offset 0: directory corrupted",
    ),
    (
        "ext4-no-super",
        "corrupt: ext2fs_open2: Bad magic number in super-block",
    ),
    (
        "ext4-all-zero",
        "corrupt: ext2fs_open2: Bad magic number in super-block",
    ),
    ("ext4-not-there", "CannotOpen"),
    (
        "ext4-short",
        "corrupt: The filesystem size (according to the superblock) is 65536 blocks",
    ),
    (
        "ext4-corrupt-inode",
        "corrupt: Entry '…' in / (2) has deleted/unused inode 12.",
    ),
    ("ext4-newer-compat", "ToolTooOld"),
    ("ext4-newer-incompat", "ToolTooOld"),
    ("ext4-newer-rocompat", "ToolTooOld"),
    ("xfs-clean", "clean"),
    ("xfs-dirty", "DirtyLog"),
    (
        "xfs-corrupt-root",
        "corrupt: imap claims a free inode 128 is in use, would correct imap and clear inode",
    ),
    (
        "xfs-corrupt-trash",
        "corrupt: Metadata CRC error detected, xfs_refcountbt block 0x78028/0x1000",
    ),
    (
        "xfs-no-super",
        "corrupt: bad primary superblock - bad magic number !!!",
    ),
    (
        "xfs-zero",
        "corrupt: bad primary superblock - bad magic number !!!",
    ),
    ("xfs-mounted", "InUse"),
    ("xfs-not-there", "CannotOpen"),
    ("xfs-newer-incompat", "ToolTooOld"),
    ("btrfs-clean", "clean"),
    (
        "btrfs-corrupt-fstree",
        "corrupt: checksum verify failed on 30457856 wanted 0x9a13b4dc found 0xfe066c2d",
    ),
    (
        "btrfs-corrupt-chunk",
        "corrupt: checksum verify failed on 22036480 wanted 0xb01b9ae2 found 0xed2004f1",
    ),
    (
        "btrfs-no-super",
        "corrupt: No valid Btrfs found on /dev/sdb2",
    ),
    ("btrfs-mounted", "InUse"),
    ("btrfs-not-there", "CannotOpen"),
    ("btrfs-newer", "ToolTooOld"),
    ("btrfs-scrub-clean", "clean"),
    ("btrfs-scrub-data", "corrupt: blocks with a wrong checksum"),
];

#[test]
fn every_recorded_end_of_every_tool_is_understood() {
    let wrong: Vec<_> = TABLE
        .iter()
        .filter_map(|(name, expected)| {
            let outcome = of(name);
            (outcome != *expected).then(|| format!("{name}: {outcome}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn no_recording_is_left_out_of_the_table() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/src/check/fixtures");
    let there: BTreeSet<String> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| {
            entry
                .unwrap()
                .file_name()
                .to_string_lossy()
                .replace(".txt", "")
        })
        .collect();
    let listed = TABLE.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(there, listed);
}

fn exited(code: i32, text: &str) -> End {
    End::Exited {
        code,
        stdout: String::new(),
        stderr: text.to_owned(),
    }
}

#[test]
fn what_was_not_read_is_never_damage() {
    let ends = [
        (
            &E2FSCK,
            exited(
                8,
                "e2fsck: Input/output error while trying to open /dev/sdb2",
            ),
        ),
        (
            &E2FSCK,
            exited(
                8,
                "/dev/sdb2 is in use.\ne2fsck: Cannot continue, aborting.",
            ),
        ),
        (
            &E2FSCK,
            exited(
                4,
                "Error reading block 33 (Input/output error) while reading inode.  Ignore error? no",
            ),
        ),
        (
            &E2FSCK,
            exited(
                8,
                "e2fsck: Attempt to read block from filesystem resulted in short read while trying to open x\nBad magic number in super-block",
            ),
        ),
        (&E2FSCK, exited(16, "Usage: e2fsck")),
        (&E2FSCK, exited(32, "e2fsck canceled.")),
        (
            &E2FSCK,
            exited(8, "e2fsck: Filesystem has unsupported feature(s)"),
        ),
        (
            &XFS_REPAIR,
            exited(1, "xfs_repair: read failed: Input/output error"),
        ),
        (
            &XFS_REPAIR,
            exited(1, "Phase 1 - find and verify superblock..."),
        ),
        (
            &XFS_REPAIR,
            exited(
                2,
                "ERROR: The filesystem has valuable metadata changes in a log which needs to be replayed.",
            ),
        ),
        (&XFS_REPAIR, exited(134, "Aborted")),
        (&BTRFS_CHECK, exited(1, "Opening filesystem to check...")),
        (&BTRFS_CHECK, exited(139, "")),
        (
            &BTRFS_SCRUB,
            exited(1, "ERROR: scrubbing failed: Inappropriate ioctl for device"),
        ),
        (
            &BTRFS_SCRUB,
            exited(
                1,
                "scrub canceled for x\nStatus: aborted\nError summary:    no errors found",
            ),
        ),
        (
            &BTRFS_SCRUB,
            exited(3, "Status: finished\nError summary:    read=7"),
        ),
        (&E2FSCK, End::Killed),
        (&XFS_REPAIR, End::TimedOut),
        (
            &BTRFS_CHECK,
            End::Missing {
                package: "btrfs-progs".into(),
            },
        ),
        (&E2FSCK, End::NotRun { why: "x".into() }),
    ];
    for (checker, end) in ends {
        let outcome = decode(checker, &end);
        assert!(
            matches!(outcome, CheckOutcome::Inconclusive { .. }),
            "{checker:?} {end:?}: {outcome:?}"
        );
    }
}

#[test]
fn a_tool_that_is_too_old_names_its_package_and_a_damaged_superblock_is_still_damage() {
    for (name, checker, package) in [
        ("ext4-newer-compat", &E2FSCK, "e2fsprogs"),
        ("xfs-newer-incompat", &XFS_REPAIR, "xfsprogs"),
        ("btrfs-newer", &BTRFS_CHECK, "btrfs-progs"),
    ] {
        let outcome = decode(checker, &recorded(name));
        let CheckOutcome::Inconclusive { detail, .. } = &outcome else {
            panic!("{name}: {outcome:?}");
        };
        assert!(
            detail.ends_with(&format!("upgrade package {package}")),
            "{detail}"
        );
    }
    let damaged = exited(
        12,
        "ext2fs_open2: Superblock checksum does not match superblock\ne2fsck: Superblock invalid, trying backup blocks...\nx has unsupported feature(s): FEATURE_C20",
    );
    let outcome = decode(&E2FSCK, &damaged);
    assert!(
        matches!(outcome, CheckOutcome::Corrupt { .. }),
        "{outcome:?}"
    );
}

#[test]
fn scrub_distinguishes_what_has_a_good_copy_from_what_is_lost() {
    let end = exited(
        0,
        "Status: finished\nError summary:    verify=1 csum=3\n  Corrected:      4\n  Uncorrectable:  0",
    );
    let expected = CheckOutcome::Corrupt {
        what: "metadata that contradicts itself, blocks with a wrong checksum".into(),
        mendable: true,
    };
    assert_eq!(decode(&BTRFS_SCRUB, &end), expected);
}

#[test]
fn scrub_counters_that_nobody_knows_are_no_corruption_without_a_word() {
    for name in ["hcsum", "xsuper", "reads"] {
        let text = format!("Status: finished\nError summary:    {name}=4");
        let outcome = decode(&BTRFS_SCRUB, &exited(3, &text));
        let CheckOutcome::Inconclusive { why, .. } = outcome else {
            panic!("{name}: {outcome:?}");
        };
        assert_eq!(why, Inconclusive::Unclear, "{name}");
    }
}

#[test]
fn a_complaint_holds_no_address_no_name_and_no_question() {
    for (line, expected) in [
        (
            "Metadata CRC error detected at 0x562c9bc85f80, xfs_agf block 0x1/0x200",
            "Metadata CRC error detected, xfs_agf block 0x1/0x200",
        ),
        (
            "Entry 'a b.txt' in / (2) has deleted/unused inode 12.  Clear? no",
            "Entry '…' in / (2) has deleted/unused inode 12.",
        ),
        (
            "entry \"secret\" at block 0 offset 80 in directory inode 131 references free inode 128",
            "entry \"…\" at block 0 offset 80 in directory inode 131 references free inode 128",
        ),
        (
            "Journal superblock doesn't exist\u{1b}[0m",
            "Journal superblock doesn't exist [0m",
        ),
    ] {
        assert_eq!(plain(line), expected);
    }
    assert_eq!(plain(&"ä".repeat(1000)).chars().count(), MESSAGE_CHARS);
}
