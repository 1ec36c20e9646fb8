use uuid::Uuid;

use super::*;
use drivebay_model::{
    DriveState, Extent, Layout, MIB, RecordState, samples,
    unreadable::{LocatedPiece, WindowRead},
};

const KIB: u64 = 1024;

fn extent(start: u64, len: u64) -> Extent {
    Extent { start, len }
}

fn ranges_of(ranges: &[(u64, u64)]) -> UnreadableRanges {
    let failed: Vec<Extent> = ranges.iter().map(|(at, len)| extent(*at, *len)).collect();
    let mut all = UnreadableRanges::default();
    all.take(&WindowRead {
        done: failed.clone(),
        failed,
    });
    all
}

fn in_use() -> RecordState {
    RecordState::Fs {
        fs_type: drivebay_model::FsType::Ext4,
        fs_uuid: Uuid::from_u128(1),
        mounted: true,
    }
}

/// Volume 7 from 8 MiB, 1 GiB long; volume 8 from 2 GiB.
fn drive() -> Drive {
    let mut placed = vec![samples::placed(7, in_use()), samples::placed(8, in_use())];
    placed[1].record.extent.start = 2 << 30;
    let contents = samples::contents(1, 1, placed, 0);
    let mut drive = samples::drive("sda", DriveState::Claimed, Some(contents));
    drive.facts.size_bytes = 4 << 30;
    drive
}

fn files(names: &[&str]) -> Holds {
    Holds::Files {
        files: names.iter().map(|name| (*name).to_owned()).collect(),
        more: 0,
    }
}

fn words(ranges: &[UnreadableRange]) -> Vec<(u64, u64, Option<u128>, u64, &'static str)> {
    let words = ranges.iter().map(|range| {
        let volume = range.volume.map(|volume| volume.as_u128());
        let Extent { start, len } = range.extent;
        (
            start,
            len,
            volume,
            range.offset,
            range.holds.content().as_str(),
        )
    });
    words.collect()
}

#[test]
fn what_touches_is_one_range_and_what_reads_again_is_none() {
    let mut ranges = ranges_of(&[(4096, 512), (4608, 512), (0, 512), (4096, 1024)]);
    assert_eq!(ranges.ranges(), [extent(0, 512), extent(4096, 1024)]);
    // The middle of the second reads.
    ranges.take(&WindowRead {
        done: vec![extent(4096, 512)],
        failed: vec![],
    });
    assert_eq!(ranges.ranges(), [extent(0, 512), extent(4608, 512)]);
    ranges.take(&WindowRead {
        done: vec![extent(0, 1 << 20)],
        failed: vec![extent(512, 512)],
    });
    assert_eq!(ranges.ranges(), [extent(512, 512)]);
    ranges.take(&WindowRead {
        done: vec![extent(0, 4096)],
        failed: vec![],
    });
    assert_eq!(ranges, UnreadableRanges::default());
}

#[test]
fn a_drive_that_reads_nowhere_has_a_bounded_number_of_bounded_ranges() {
    let mut ranges = UnreadableRanges::default();
    for place in 0..1000 {
        let failed = vec![extent(place * 2 * MIB, 2 * MIB), extent(place * MIB, 512)];
        ranges.take(&WindowRead {
            done: vec![],
            failed,
        });
    }
    assert_eq!(ranges.ranges().len(), MOST_RANGES);
    assert!(ranges.has_more());
    let all = ranges.ranges();
    assert!(all.windows(2).all(|two| two[0].end() <= two[1].start));
    ranges.take(&WindowRead {
        done: vec![extent(0, u64::MAX)],
        failed: vec![],
    });
    assert!(ranges.is_empty() && !ranges.has_more());
}

#[test]
fn a_range_is_of_drivebay_of_free_space_or_of_a_volume() {
    let mut drive = drive();
    let contents = drive.contents.as_mut().unwrap();
    contents
        .strangers
        .push(("windows".into(), extent(3 << 30, MIB)));
    let end = 4 << 30;
    let ranges = ranges_of(&[
        (0, 512),
        (MIB + 512, 512),
        // The label's end, what lies behind it, and a volume's beginning.
        (5 * MIB - 512, 1024),
        (8 * MIB - 512, 1024),
        (2 << 30, 4096),
        (3 << 30, 512),
        (end - 512, 512),
    ]);
    let described = describe(&drive, &ranges, &Located::new());
    assert_eq!(
        words(&described),
        [
            (0, 512, None, 0, "drivebay-metadata"),
            (MIB + 512, 512, None, 0, "drivebay-metadata"),
            (5 * MIB - 512, 512, None, 0, "drivebay-metadata"),
            (5 * MIB, 512, None, 0, "unallocated"),
            (8 * MIB - 512, 512, None, 0, "unallocated"),
            (8 * MIB, 512, Some(7), 0, "unknown"),
            (2 << 30, 4096, Some(8), 0, "unknown"),
            (3 << 30, 512, None, 0, "foreign"),
            (end - 512, 512, None, 0, "drivebay-metadata"),
        ]
    );
    drive.contents = None;
    let described = describe(&drive, &ranges, &Located::new());
    assert!(described.iter().all(|one| one.holds == Holds::NotClaimed));
    assert_eq!(described.len(), ranges.ranges().len());
}

#[test]
fn a_range_of_a_logical_volume_is_found_in_its_pieces_and_lvm_metadata_is_named() {
    let mut drive = drive();
    let contents = drive.contents.as_mut().unwrap();
    contents.layout = Layout::Lvm;
    for (placed, pieces) in contents.volumes.iter_mut().zip([
        vec![extent(100 * MIB, MIB), extent(10 * MIB, MIB)],
        vec![extent(11 * MIB, MIB)],
    ]) {
        placed.dm_uuid = Some("LVM-x".into());
        placed.pieces = pieces;
    }
    let ranges = ranges_of(&[
        (512, 512),
        (4 * MIB, 512),
        // The end of a volume's second piece, and the next volume.
        (11 * MIB - 512, 1024),
        (100 * MIB + 512, 512),
    ]);
    let described = describe(&drive, &ranges, &Located::new());
    assert_eq!(
        words(&described),
        [
            (512, 512, None, 0, "drivebay-metadata"),
            (4 * MIB, 512, None, 0, "drivebay-metadata"),
            (11 * MIB - 512, 512, Some(7), 2 * MIB - 512, "unknown"),
            (11 * MIB, 512, Some(8), 0, "unknown"),
            (100 * MIB + 512, 512, Some(7), 512, "unknown"),
        ]
    );
}

#[test]
fn what_the_filesystem_answered_is_of_its_part_of_the_range() {
    let drive = drive();
    let ranges = ranges_of(&[(8 * MIB + 64 * KIB, 16 * KIB)]);
    let volume = Uuid::from_u128(7);
    let piece = |start: u64, len: u64, holds| LocatedPiece {
        extent: extent(start * KIB, len * KIB),
        holds,
    };
    let answered = vec![
        piece(64, 4, files(&["/a"])),
        piece(68, 4, files(&["/a"])),
        piece(72, 4, Holds::FilesystemFree),
    ];
    let located = Located::from([(volume, answered)]);
    let described = describe(&drive, &ranges, &located);
    let at = 8 * MIB;
    assert_eq!(
        words(&described),
        [
            (at + 64 * KIB, 8 * KIB, Some(7), 64 * KIB, "files"),
            (at + 72 * KIB, 4 * KIB, Some(7), 72 * KIB, "filesystem-free"),
            (at + 76 * KIB, 4 * KIB, Some(7), 76 * KIB, "unknown"),
        ]
    );
    assert_eq!(
        to_locate(&described, volume),
        [extent(64 * KIB, 16 * KIB)],
        "all of it is asked again"
    );
    assert_eq!(to_locate(&described, Uuid::from_u128(8)), []);
}

#[test]
fn what_has_no_filesystem_is_not_queried() {
    let mut drive = drive();
    for (state, word) in [
        (RecordState::New, "unformatted"),
        (RecordState::Block, "raw-block"),
        (
            RecordState::Erasing {
                erase_guid: Uuid::from_u128(9),
                done_bytes: 0,
            },
            "erasing",
        ),
    ] {
        drive.contents.as_mut().unwrap().volumes[0].record.state = state;
        let described = describe(&drive, &ranges_of(&[(8 * MIB, 512)]), &Located::new());
        assert_eq!(words(&described), [(8 * MIB, 512, Some(7), 0, word)]);
        assert_eq!(to_locate(&described, Uuid::from_u128(7)), []);
    }
}

#[test]
fn the_condition_has_the_number_of_files_and_names_none() {
    let drive = drive();
    let range = |holds| UnreadableRange {
        extent: extent(0, 512),
        volume: Some(Uuid::from_u128(7)),
        offset: 0,
        holds,
    };
    let unknown = || Holds::Unknown {
        why: "no reverse mapping".into(),
    };
    let many = Holds::Files {
        files: vec!["/a".into(), "/b".into()],
        more: 3,
    };
    for (holds, expected) in [
        (vec![files(&["/secret"])], "1 file is affected"),
        (
            vec![files(&["/secret"]), files(&["/secret", "/b"])],
            "2 files are affected",
        ),
        (vec![many], "5 files are affected"),
        (vec![Holds::FilesystemFree], "no file is affected"),
        (
            vec![Holds::FilesystemMetadata, files(&["/secret"])],
            "1 file is affected, filesystem metadata is affected",
        ),
        (
            vec![unknown()],
            "which files are affected cannot be told of all of it",
        ),
        (
            vec![Holds::Unknown {
                why: NOT_LOOKED_UP.into(),
            }],
            "affected files are being looked up",
        ),
    ] {
        let ranges: Vec<_> = holds.into_iter().map(range).collect();
        let result = condition(&drive, &ranges).unwrap();
        assert_eq!(result.reason, Reason::ReadFailed);
        assert!(
            result
                .message
                .contains(&format!(" do not read: {expected}; ")),
            "{}",
            result.message
        );
        assert!(!result.message.contains("secret"), "{}", result.message);
    }
    assert_eq!(condition(&drive, &[]), None);
    assert_eq!(finding(&UnreadableRanges::default()), None);
    assert!(finding(&ranges_of(&[(0, 512)])).is_some());
}

#[test]
fn lost_sectors_are_listed_where_they_are_now_with_their_files_and_lose_data() {
    let drive = drive();
    let contents = drive.contents.as_ref().unwrap();
    let mut placed = contents.volumes[0].clone();
    // As an LV of two pieces.
    placed.dm_uuid = Some("LVM-7".into());
    placed.pieces = vec![extent(100 * MIB, MIB), extent(8 * MIB, 1023 * MIB)];
    assert!(lost(&placed, &Located::new()).is_empty());
    let ranges = [extent(MIB - 4 * KIB, 8 * KIB), extent(MIB + 64 * KIB, 512)];
    drivebay_model::lost::keep(Some(&ranges), &mut placed.record.parameters);
    let at = |start, len, holds| LocatedPiece {
        extent: extent(start, len),
        holds,
    };
    let located = Located::from([(
        placed.record.uuid,
        vec![
            at(MIB - 4 * KIB, 6 * KIB, files(&["/db"])),
            at(MIB + 2 * KIB, 2 * KIB, Holds::FilesystemFree),
        ],
    )]);
    let all = lost(&placed, &located);
    assert_eq!(
        words(&all),
        [
            (
                101 * MIB - 4 * KIB,
                4 * KIB,
                Some(7),
                MIB - 4 * KIB,
                "files"
            ),
            (8 * MIB, 2 * KIB, Some(7), MIB, "files"),
            (
                8 * MIB + 2 * KIB,
                2 * KIB,
                Some(7),
                MIB + 2 * KIB,
                "filesystem-free"
            ),
            (8 * MIB + 64 * KIB, 512, Some(7), MIB + 64 * KIB, "unknown"),
        ]
    );
    let condition = lost_condition(&all).unwrap();
    assert_eq!(condition.reason, Reason::SectorsLost);
    assert_eq!(condition.status.as_str(), "DATA_LOSS");
    for words in ["8.5 KiB of this volume", "1 file is affected", "looked up"] {
        assert!(condition.message.contains(words), "{}", condition.message);
    }
    assert_eq!(lost_condition(&[]), None);
    // Nothing of a deleted volume is lost.
    placed.record.state = RecordState::Erasing {
        erase_guid: Uuid::nil(),
        done_bytes: 0,
    };
    assert!(lost(&placed, &located).is_empty());
}
