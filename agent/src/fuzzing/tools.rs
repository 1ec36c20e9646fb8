//! Output of programs: smartctl, filesystem checkers, lvm.

use std::iter;

use super::{Input, Target, seeds};
use drivebay_fs::{
    affected::name::shown,
    check::repeated::together,
    decode::{complaints, decode},
    kind::{
        self,
        ext4::debugfs::{self, BlockOwner},
    },
    tools::idle::End,
};
use drivebay_model::CheckOutcome;
use drivebay_smart::{
    Acknowledgement, History, Outcome, Reading, Thresholds, facts, judge, rules::Verdict,
};
use drivebay_sys::lvm::report;

const REPORT: &str = include_str!("seeds/lvs-report.json");
const SMART: [&str; 6] = [
    include_str!("../../smart/src/fixtures/ata-hdd.json"),
    include_str!("../../smart/src/fixtures/ata-ssd.json"),
    include_str!("../../smart/src/fixtures/scsi-hdd-text-before.txt"),
    include_str!("../../smart/src/fixtures/scsi-ssd.json"),
    include_str!("../../smart/src/fixtures/nvme.json"),
    include_str!("../../smart/src/fixtures/open-failed.json"),
];
/// Bytes, more than any error text that is shown has.
const MAX_MESSAGE: usize = 400;

pub(super) fn targets() -> Vec<Target> {
    vec![
        Target {
            name: "smartctl",
            run: smartctl,
            seeds: || seeds(SMART),
            replays: 400,
        },
        Target {
            name: "fsck",
            run: fsck,
            seeds: outputs,
            replays: 1000,
        },
        Target {
            name: "debugfs",
            run: debugfs,
            seeds: || {
                seeds([
                    "Block\tInode number\n8865\t12\n100\t<block not found>\n1000\t8\n",
                    "Inode\tPathname\n12\t/db/base/2619\n12\t/link\n",
                    "Block 100 marked in use\nBlock 101 not in use\n",
                ])
            },
            replays: 1000,
        },
        Target {
            name: "lvm-report",
            run: lvm_report,
            seeds: || {
                seeds([
                    REPORT,
                    r#"{"report":[{"vg":[{"vg_uuid":"a-b","vg_name":"v","vg_seqno":"7","vg_extent_count":"10","vg_free_count":"4"}],"lv":[{"lv_uuid":"l","lv_name":"b","lv_size":"1048576"}]}]}"#,
                ])
            },
            replays: 500,
        },
    ]
}

/// Asserts that for any output of a drive three polls are evaluated, and the kept history reads back.
fn smartctl(data: &[u8]) {
    let Ok(facts) = facts::parse(data) else {
        return;
    };
    let _ = Reading::of(&facts, 512).after(&Reading::of(&facts, 4096));
    let mut history = History::default();
    let thresholds = Thresholds::default();
    let ack = Acknowledgement {
        by: "o".into(),
        note: "n".into(),
        ..Acknowledgement::default()
    };
    let outcome = Outcome::Answered(Box::new(facts));
    for (now, ack) in [(0, None), (1_800_000_000, Some(&ack)), (u64::MAX, None)] {
        let judged = judge(&outcome, &mut history, now, &thresholds, ack);
        assert!(judged.verdict != Verdict::Bad || !judged.reasons.is_empty());
    }
    let kept = history.to_json().unwrap();
    assert_eq!(History::from_json(&kept).unwrap(), history);
}

/// Seeds: checker and exit code, then the output.
fn outputs() -> Vec<Vec<u8>> {
    [
        (0, 4, "e2fsck 1.47.0 (5-Feb-2023)\nPass 1: Checking inodes, blocks, and sizes\nInode 12, i_blocks is 8, should be 16.  Fix? no\n\n/dev/loop0: ********** WARNING: Filesystem still has errors **********\n"),
        (0, 0, "Warning: skipping journal recovery because doing a read-only filesystem check.\n/dev/x: 11/65536 files (0.0% non-contiguous), 8859/262144 blocks\n"),
        (0, 8, "ext2fs_open2: Bad magic number in super-block\n"),
        (1, 1, "Phase 1 - find and verify superblock...\nMetadata CRC error detected at 0x55eae93c0029, xfs_agf block 0x1/0x200\nbad magic number\n"),
        (1, 1, "ERROR: The filesystem has valuable metadata changes in a log which needs to\nbe replayed.\n"),
        (2, 1, "Opening filesystem to check...\n[1/7] checking root items\nref mismatch on [30408704 16384] extent item 0, found 1\nERROR: errors found in extent allocation tree or chunk allocation\n"),
        (3, 3, "UUID: x\nStatus: finished\nDuration: 0:00:00\nError summary: csum=4\n  Corrected: 0\n  Uncorrectable: 4\n"),
        (3, 0, "Status: finished\nError summary: no errors found\n"),
        // Found: damage without a description.
        (3, 3, "Status: finished\nError summary: hcsum=4\n"),
    ]
    .map(|(checker, code, text)| [&[checker, code], text.as_bytes()].concat())
    .to_vec()
}

/// Asserts that a complaint is one short line, and that a run's complaints agree with themselves.
fn fsck(data: &[u8]) {
    let mut input = Input(data);
    let checkers: Vec<_> = kind::all()
        .flat_map(|kind| {
            let facts = kind.facts();
            let scrub = facts.scrub().map(|scrub| scrub.checker);
            iter::once(facts.checker).chain(scrub)
        })
        .collect();
    let checker = checkers[usize::from(input.byte()) % checkers.len()];
    let code = i32::from(input.byte());
    let text = String::from_utf8_lossy(input.0).into_owned();
    for complaint in complaints(checker, &text) {
        assert!(complaint.chars().count() <= MAX_MESSAGE && !complaint.contains('\n'));
    }
    let end = End::Exited {
        code,
        stdout: text,
        stderr: String::new(),
    };
    match decode(checker, &end) {
        CheckOutcome::Corrupt { what, .. } => {
            assert!(
                !what.is_empty() && what.chars().count() <= MAX_MESSAGE,
                "{what}"
            );
            assert!(!what.contains(char::is_control), "{what:?}");
        }
        CheckOutcome::Clean => assert_eq!(code, 0, "a code that is not 0 is not clean"),
        _ => {}
    }
    let _ = together(checker, &[end.clone(), end]);
}

/// Names in the output are tenants': asserts that a path is of the requested inode, and that the shown text cannot control a terminal.
fn debugfs(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let own = debugfs::icheck(&text)
        .into_values()
        .any(|owner| matches!(owner, BlockOwner::Inode(0 | 1 | 3..=10)));
    assert!(!own, "the filesystem's own inode passed for a file");
    let _ = debugfs::testb(&text);
    if let Some(path) = debugfs::ncheck(&text, 12) {
        assert!(path.starts_with('/') && text.contains("12\t"));
        let shown = shown(path.as_bytes());
        assert!(!shown.contains(char::is_control), "{shown:?}");
    }
}

fn lvm_report(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data)
        && let Ok(group) = report::parse(text)
    {
        assert!(group.lvs.is_sorted());
    }
}
