use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::gpt::Entry;
use drivebay_model::{
    ERASING_TYPE, ErasePolicy, Mode, Record, RecordState, VOLUME_TYPE, drive::PartitionFacts,
};

const SIZE: u64 = 100 * MIB;

fn table() -> Table {
    Table::fresh(Uuid::from_u128(1), Uuid::from_u128(2), SIZE, 512).unwrap()
}

fn mib(start: u64, len: u64) -> Extent {
    Extent {
        start: start * MIB,
        len: len * MIB,
    }
}

fn record(n: u128, extent: Extent, state: RecordState) -> Record {
    Record {
        uuid: Uuid::from_u128(n),
        name: format!("v{n}"),
        class: "c".into(),
        mode: Mode::Block,
        fs_type: None,
        mkfs_options: vec![],
        mount_options: vec![],
        parameters: Default::default(),
        erase: ErasePolicy::Zero,
        requested_bytes: extent.len,
        extent,
        growing_to: None,
        place: Default::default(),
        state,
    }
}

fn live(n: u128, extent: Extent) -> Entry {
    Entry::new(VOLUME_TYPE, Uuid::from_u128(n), extent, 512)
}

fn kernel(number: u32, extent: Extent) -> PartitionFacts {
    PartitionFacts {
        kernel_name: format!("x{number}"),
        number,
        start_bytes: extent.start,
        size_bytes: extent.len,
        major: 259,
        minor: number,
    }
}

fn erasing(done_bytes: u64) -> RecordState {
    RecordState::Erasing {
        erase_guid: Uuid::from_u128(0xe),
        done_bytes,
    }
}

#[test]
fn the_last_extent_is_usable_and_the_backup_table_is_not() {
    for sector in [512, 4096] {
        let table = Table::fresh(Uuid::nil(), Uuid::nil(), SIZE, sector).unwrap();
        assert_eq!(usable(&table), mib(5, 94));
        // If the drive's end is not aligned, the rest of its last MiB is unused.
        let table = Table::fresh(Uuid::nil(), Uuid::nil(), SIZE + 64 * 1024, sector).unwrap();
        assert_eq!(usable(&table), mib(5, 95));
    }
    assert_eq!(claimable_bytes(SIZE, 512), 94 * MIB);
    assert_eq!(claimable_bytes(MIB, 512), 0);
}

#[test]
fn usable_space_begins_and_ends_as_in_the_table_to_the_sector() {
    for sector in [512, 4096] {
        // The backup table: the entry array, and the header behind it.
        let backup = crate::gpt::ARRAY_BYTES + sector;
        let fresh = |size| Table::fresh(Uuid::nil(), Uuid::nil(), size, sector).unwrap();
        assert_eq!(usable(&fresh(SIZE + backup)), mib(5, 95));
        assert_eq!(usable(&fresh(SIZE + backup - sector)), mib(5, 94));
        // A table that reserves more space than Drivebay's.
        let table = Table {
            first_usable: 6 * MIB / sector + 1,
            ..fresh(SIZE)
        };
        assert_eq!(usable(&table), mib(7, 92));
    }
}

#[test]
fn an_unaligned_run_takes_every_extent_that_it_touches() {
    let unaligned = |start, len| Extent { start, len };
    assert_eq!(aligned(mib(7, 2)), mib(7, 2));
    assert_eq!(aligned(unaligned(7 * MIB + 512, 512)), mib(7, 1));
    assert_eq!(aligned(unaligned(7 * MIB + 512, MIB)), mib(7, 2));
    assert_eq!(aligned(unaligned(7 * MIB, MIB + 1)), mib(7, 2));
    let occupied = [unaligned(7 * MIB + 512, 512)];
    assert_eq!(
        free_runs(mib(5, 10), &occupied),
        [mib(5, 2), mib(8, 7)],
        "the neighbours of a foreign partition are whole extents"
    );
}

#[test]
fn an_empty_run_occupies_nothing() {
    for at in [5, 9, 15] {
        assert_eq!(free_runs(mib(5, 10), &[mib(at, 0)]), [mib(5, 10)]);
    }
    let inside = Extent {
        start: 9 * MIB + 512,
        len: 0,
    };
    assert_eq!(free_runs(mib(5, 10), &[inside]), [mib(5, 10)]);
}

#[test]
fn sizes_are_rounded_up_to_whole_extents_and_never_to_none() {
    for (size, expected) in [
        (0, Some(MIB)),
        (1, Some(MIB)),
        (MIB, Some(MIB)),
        (MIB + 1, Some(2 * MIB)),
        (u64::MAX, None),
    ] {
        assert_eq!(rounded(size), expected, "{size}");
    }
}

#[test]
fn a_volume_may_grow_by_exactly_the_free_run_behind_it() {
    let volume = mib(7, 10);
    assert_eq!(growth_limit(&[mib(5, 2), mib(17, 3)], volume), 13 * MIB);
    assert_eq!(growth_limit(&[mib(5, 2), mib(18, 3)], volume), 10 * MIB);
    assert_eq!(growth_limit(&[], volume), 10 * MIB);
}

#[test]
fn runs_overlap_when_they_share_a_byte_and_not_when_they_touch() {
    let huge = Extent {
        start: MIB,
        len: u64::MAX,
    };
    for (a, b, expected) in [
        (mib(5, 10), mib(14, 3), true),
        (mib(5, 10), mib(7, 1), true),
        (mib(5, 10), mib(5, 10), true),
        (mib(5, 10), mib(15, 3), false),
        (mib(5, 10), mib(40, 3), false),
        // One byte, at the end and behind it.
        (
            mib(5, 10),
            Extent {
                start: 15 * MIB - 1,
                len: 1,
            },
            true,
        ),
        (
            mib(5, 10),
            Extent {
                start: 15 * MIB,
                len: 1,
            },
            false,
        ),
        // An empty run has no byte in common with another.
        (mib(5, 10), mib(7, 0), false),
        (mib(5, 10), mib(5, 0), false),
        (mib(5, 0), mib(5, 0), false),
        // A record may contain any numbers.
        (huge, mib(5, 10), true),
        (huge, mib(0, 1), false),
    ] {
        assert_eq!(overlap(a, b), expected, "{a:?} {b:?}");
        assert_eq!(overlap(b, a), expected, "{b:?} {a:?}");
    }
}

#[test]
fn agreement_is_a_volume() {
    let at = mib(5, 10);
    let view = reconcile(
        &table().with(2, live(7, at)),
        &[record(7, at, RecordState::New)],
        &[kernel(2, at)],
    );
    let volume = &view.volumes[0];
    assert_eq!(
        (volume.number, volume.device.as_deref(), volume.dev),
        (Some(2), Some("x2"), Some((259, 2)))
    );
    assert_eq!(
        (&volume.ambiguous, view.steps.len(), view.strangers.len()),
        (&None, 0, 0)
    );
    assert_eq!(view.free, [mib(15, 84)]);
}

#[test]
fn an_intent_is_completed_or_undone() {
    let (at, to) = (mib(5, 10), mib(5, 20));
    let uuid = Uuid::from_u128(7);
    let growing = Record {
        growing_to: Some(to),
        ..record(7, at, RecordState::Block)
    };
    let erase = live(7, at).with_identity(ERASING_TYPE, Uuid::from_u128(0xe));
    for (entry, record, expected) in [
        (
            None,
            record(7, at, RecordState::Creating),
            Step::Undo { uuid, number: None },
        ),
        (
            Some(live(7, at)),
            record(7, at, RecordState::Creating),
            Step::Undo {
                uuid,
                number: Some(2),
            },
        ),
        (
            Some(live(7, at)),
            growing.clone(),
            Step::CancelGrow { uuid },
        ),
        (Some(live(7, to)), growing, Step::FinishGrow { uuid }),
        (
            Some(live(7, at)),
            record(7, at, erasing(0)),
            Step::MarkErasing {
                uuid,
                number: 2,
                erase_guid: Uuid::from_u128(0xe),
            },
        ),
        (
            None,
            record(7, at, erasing(at.len)),
            Step::DropErased { uuid },
        ),
        (
            Some(live(7, at)),
            record(7, at, RecordState::New),
            Step::AddPartition {
                number: 2,
                extent: at,
            },
        ),
    ] {
        let table = table().with(2, entry.unwrap_or(Entry::UNUSED));
        let view = reconcile(&table, std::slice::from_ref(&record), &[]);
        assert_eq!(view.volumes[0].ambiguous, None, "{record:?}");
        assert_eq!(view.steps.first(), Some(&expected));
    }
    let view = reconcile(&table().with(2, erase), &[record(7, at, erasing(3))], &[]);
    assert_eq!((view.steps.len(), &view.volumes[0].ambiguous), (0, &None));
}

#[test]
fn disagreement_is_ambiguous_and_gets_no_step() {
    let (at, to) = (mib(5, 10), mib(5, 20));
    let r = |state| record(7, at, state);
    let erase = live(7, at).with_identity(ERASING_TYPE, Uuid::from_u128(0xe));
    let cases: Vec<(&str, Vec<Entry>, Vec<Record>)> = vec![
        ("live, no entry", vec![], vec![r(RecordState::New)]),
        (
            "live, elsewhere",
            vec![live(7, mib(6, 10))],
            vec![r(RecordState::Block)],
        ),
        (
            "live, longer",
            vec![live(7, to)],
            vec![r(RecordState::Block)],
        ),
        (
            "creating, other extent",
            vec![live(7, to)],
            vec![r(RecordState::Creating)],
        ),
        (
            "other type",
            vec![live(7, at).with_identity(Uuid::from_u128(9), Uuid::from_u128(7))],
            vec![r(RecordState::New)],
        ),
        (
            "live in the record, erasing in the table",
            vec![erase],
            vec![r(RecordState::New)],
        ),
        ("half erased, no entry", vec![], vec![r(erasing(5))]),
        (
            "two entries",
            vec![live(7, at), live(7, mib(50, 10))],
            vec![r(RecordState::New)],
        ),
        (
            "two records",
            vec![live(7, at)],
            vec![r(RecordState::New), r(RecordState::New)],
        ),
        (
            "out of range",
            vec![],
            vec![record(7, mib(98, 5), RecordState::Creating)],
        ),
        (
            "over the label",
            vec![],
            vec![record(7, mib(4, 5), RecordState::Creating)],
        ),
        (
            "not aligned",
            vec![],
            vec![record(
                7,
                Extent {
                    start: 5 * MIB + 1,
                    len: MIB,
                },
                RecordState::Creating,
            )],
        ),
        (
            "empty",
            vec![],
            vec![record(7, mib(5, 0), RecordState::Creating)],
        ),
        (
            "length not aligned",
            vec![],
            vec![record(
                7,
                Extent {
                    start: 5 * MIB,
                    len: MIB + 512,
                },
                RecordState::Creating,
            )],
        ),
        (
            "deleted, its entry under its old GUID",
            vec![live(7, at).with_identity(ERASING_TYPE, Uuid::from_u128(7))],
            vec![r(erasing(0))],
        ),
        (
            "deleted, its entry under its old type",
            vec![live(7, at).with_identity(VOLUME_TYPE, Uuid::from_u128(0xe))],
            vec![r(erasing(0))],
        ),
        ("deleted, longer", vec![live(7, to)], vec![r(erasing(0))]),
        (
            "being erased, elsewhere",
            vec![erase.with_extent(mib(30, 10), 512)],
            vec![r(erasing(0))],
        ),
        (
            "grown to a third length",
            vec![live(7, mib(5, 30))],
            vec![Record {
                growing_to: Some(to),
                ..r(RecordState::New)
            }],
        ),
        (
            "grows from elsewhere",
            vec![live(7, at)],
            vec![Record {
                growing_to: Some(mib(6, 20)),
                ..r(RecordState::New)
            }],
        ),
        (
            "overflow",
            vec![],
            vec![record(
                7,
                Extent {
                    start: 5 * MIB,
                    len: u64::MAX / MIB * MIB,
                },
                RecordState::Creating,
            )],
        ),
        (
            "overlaps a stranger",
            vec![live(7, at), live(8, mib(14, 3))],
            vec![r(RecordState::New)],
        ),
        (
            "grows into a stranger",
            vec![live(7, at), live(8, mib(16, 3))],
            vec![Record {
                growing_to: Some(to),
                ..r(RecordState::New)
            }],
        ),
        (
            "shrinks",
            vec![live(7, at)],
            vec![Record {
                growing_to: Some(mib(5, 2)),
                ..r(RecordState::New)
            }],
        ),
    ];
    for (name, entries, records) in cases {
        let mut table = table();
        for (number, entry) in (2..).zip(entries) {
            table = table.with(number, entry);
        }
        let view = reconcile(&table, &records, &[]);
        assert!(
            view.volumes.iter().all(|volume| volume.ambiguous.is_some()),
            "{name}"
        );
        assert_eq!(view.steps, [], "{name}");
        for record in &records {
            assert!(
                view.free.iter().all(|&run| !overlap(run, record.extent)),
                "{name}: its space is offered"
            );
        }
        for (_, entry) in table.partitions() {
            assert!(
                view.free
                    .iter()
                    .all(|&run| !overlap(run, entry.extent(512))),
                "{name}: an entry's space is offered"
            );
        }
    }
}

/// An administrator who has to repair it needs both places, or to know that the entry's identity is
/// wrong.
#[test]
fn the_reason_of_an_ambiguous_volume_has_its_places_in_table_and_record() {
    let (at, to) = (mib(5, 10), mib(5, 20));
    let erase = live(7, to).with_identity(ERASING_TYPE, Uuid::from_u128(0xe));
    let reason = |entry, state| {
        let view = reconcile(&table().with(2, entry), &[record(7, at, state)], &[]);
        view.volumes[0].ambiguous.clone().unwrap()
    };
    for (entry, state) in [
        (live(7, to), RecordState::Block),
        (live(7, to), RecordState::Creating),
        (live(7, to), erasing(0)),
        (erase, erasing(0)),
    ] {
        let message = reason(entry, state);
        for number in [at.start, at.len, to.len, 2] {
            assert!(message.contains(&number.to_string()), "{message}");
        }
        assert!(
            message.contains(", 10 MiB (10485760 bytes) long"),
            "{message}"
        );
    }
    let other = live(7, at).with_identity(Uuid::from_u128(9), Uuid::from_u128(7));
    for state in [RecordState::New, RecordState::Creating, erasing(0)] {
        let message = reason(other, state);
        assert!(message.contains("type or GUID"), "{message}");
    }
    // With the right length too, the identity is wrong.
    let other = other.with_extent(to, 512);
    let message = reason(other, RecordState::Creating);
    assert!(message.contains("type or GUID"), "{message}");
}

#[test]
fn two_volumes_over_the_same_bytes_are_both_ambiguous() {
    let table = table()
        .with(2, live(7, mib(5, 10)))
        .with(3, live(8, mib(14, 3)));
    let records = [
        record(7, mib(5, 10), RecordState::New),
        record(8, mib(14, 3), RecordState::New),
    ];
    let view = reconcile(&table, &records, &[]);
    assert!(view.volumes.iter().all(|volume| volume.ambiguous.is_some()));
}

#[test]
fn two_records_of_one_identity_are_both_ambiguous_wherever_they_lie() {
    let (here, there) = (mib(5, 10), mib(40, 5));
    let table = table().with(2, live(7, here)).with(3, live(8, mib(60, 1)));
    let records = [
        record(7, here, RecordState::New),
        record(7, there, RecordState::New),
        record(8, mib(60, 1), RecordState::New),
    ];
    let view = reconcile(&table, &records, &[]);
    for placed in &view.volumes {
        let twice = placed.record.uuid == Uuid::from_u128(7);
        let message = placed.ambiguous.as_deref();
        assert_eq!(message, twice.then_some("two records have its identity"));
    }
}

#[test]
fn an_entry_without_a_record_is_a_stranger_and_keeps_its_space() {
    let view = reconcile(
        &table().with(5, live(9, mib(20, 10))),
        &[],
        &[kernel(5, mib(20, 10))],
    );
    assert_eq!(view.strangers, [("drivebay".to_owned(), mib(20, 10))]);
    assert_eq!(view.free, [mib(5, 15), mib(30, 69)]);
    assert_eq!(view.steps, []);
}

#[test]
fn what_the_kernel_has_wrong_is_taken_from_it_and_not_used_until_then() {
    let at = mib(5, 10);
    let table = table().with(2, live(7, at));
    let records = [record(7, at, RecordState::New)];
    let view = reconcile(&table, &records, &[kernel(2, mib(5, 12))]);
    assert!(
        view.volumes[0]
            .ambiguous
            .as_deref()
            .unwrap()
            .contains("the kernel has x2")
    );
    assert_eq!(view.steps, [Step::RemovePartition { number: 2 }]);
    assert_eq!(view.free, [mib(17, 82)]);
    // Shorter at the same place: the volume has grown since.
    let view = reconcile(&table, &records, &[kernel(2, mib(5, 4))]);
    assert_eq!(
        view.steps,
        [Step::ResizePartition {
            number: 2,
            extent: at
        }]
    );
    assert_eq!(view.volumes[0].ambiguous, None);
    // A partition without an entry.
    let view = reconcile(&table, &records, &[kernel(2, at), kernel(9, mib(50, 1))]);
    assert_eq!(view.steps, [Step::RemovePartition { number: 9 }]);
    assert_eq!(view.free, [mib(15, 35), mib(51, 48)]);
}

#[test]
fn a_kernel_partition_elsewhere_is_taken_away_even_when_it_is_shorter() {
    let at = mib(5, 10);
    let table = table().with(2, live(7, at));
    let records = [record(7, at, RecordState::New)];
    for extent in [mib(6, 4), mib(6, 9), mib(30, 10)] {
        let view = reconcile(&table, &records, &[kernel(2, extent)]);
        assert_eq!(view.steps, [Step::RemovePartition { number: 2 }]);
        assert!(view.volumes[0].ambiguous.is_some(), "{extent:?}");
        assert_eq!(view.volumes[0].device, None, "{extent:?}");
    }
}

#[test]
fn a_deleted_volume_has_no_device_and_the_kernel_loses_its_partition_once() {
    let at = mib(5, 10);
    let uuid = Uuid::from_u128(7);
    let erase_guid = Uuid::from_u128(0xe);
    let erase = live(7, at).with_identity(ERASING_TYPE, erase_guid);
    let number = 2;
    let removed = [Step::RemovePartition { number }];
    let marked = [Step::MarkErasing {
        uuid,
        number,
        erase_guid,
    }];
    let undone = [Step::Undo {
        uuid,
        number: Some(number),
    }];
    for (entry, state, expected) in [
        // Marked already, and an administrator gave it to the kernel again.
        (erase, erasing(3), &removed),
        // The step itself removes it: the entry must not change before.
        (live(7, at), erasing(0), &marked),
        (live(7, at), RecordState::Creating, &undone),
    ] {
        let records = [record(7, at, state)];
        let view = reconcile(&table().with(number, entry), &records, &[kernel(2, at)]);
        assert_eq!(view.steps, expected);
        assert_eq!(view.volumes[0].device, None);
        // If the kernel has no partition, none is added.
        let view = reconcile(&table().with(number, entry), &records, &[]);
        assert!(
            !view
                .steps
                .iter()
                .any(|step| matches!(step, Step::AddPartition { .. }))
        );
    }
}

#[test]
fn a_volume_whose_growing_is_not_settled_keeps_its_device() {
    let (at, to) = (mib(5, 10), mib(5, 20));
    let uuid = Uuid::from_u128(7);
    let records = [Record {
        growing_to: Some(to),
        ..record(7, at, RecordState::Block)
    }];
    for (entry, step) in [
        (at, Step::CancelGrow { uuid }),
        (to, Step::FinishGrow { uuid }),
    ] {
        let table = table().with(2, live(7, entry));
        let view = reconcile(&table, &records, &[kernel(2, entry)]);
        assert_eq!(view.volumes[0].device.as_deref(), Some("x2"));
        assert_eq!(view.steps, [step]);
        assert_eq!(view.free, [mib(25, 74)], "its growth is still reserved");
    }
}

#[test]
fn only_our_own_change_explains_two_different_copies() {
    let (at, to) = (mib(5, 10), mib(5, 20));
    let erase = live(7, at).with_identity(ERASING_TYPE, Uuid::from_u128(0xe));
    let growing = Record {
        growing_to: Some(to),
        ..record(7, at, RecordState::Block)
    };
    for (old, new, record, expected) in [
        (
            Entry::UNUSED,
            live(7, at),
            record(7, at, RecordState::Creating),
            true,
        ),
        (
            Entry::UNUSED,
            live(7, at),
            record(7, at, RecordState::New),
            false,
        ),
        (
            Entry::UNUSED,
            live(7, to),
            record(7, at, RecordState::Creating),
            false,
        ),
        (
            Entry::UNUSED,
            live(8, at),
            record(7, at, RecordState::Creating),
            false,
        ),
        (live(7, at), live(7, to), growing.clone(), true),
        (live(7, at), live(7, mib(5, 30)), growing, false),
        (live(7, at), erase, record(7, at, erasing(0)), true),
        (live(7, at), erase, record(7, at, RecordState::New), false),
        (erase, Entry::UNUSED, record(7, at, erasing(at.len)), true),
        (erase, Entry::UNUSED, record(7, at, erasing(5)), false),
        (
            live(7, at),
            Entry::UNUSED,
            record(7, at, erasing(at.len)),
            false,
        ),
        // Another deletion than the recorded one, another type, another place.
        (
            live(7, at),
            live(7, at).with_identity(ERASING_TYPE, Uuid::from_u128(0xf)),
            record(7, at, erasing(0)),
            false,
        ),
        (
            live(7, at),
            live(7, at).with_identity(Uuid::from_u128(5), Uuid::from_u128(0xe)),
            record(7, at, erasing(0)),
            false,
        ),
        (
            live(7, at),
            erase.with_extent(to, 512),
            record(7, at, erasing(0)),
            false,
        ),
        (live(8, at), erase, record(7, at, erasing(0)), false),
        // Both are as the change leaves them, but another field of the entry changed with it.
        (
            live(7, at),
            unnamed(erase, at),
            record(7, at, erasing(0)),
            false,
        ),
        (
            live(7, at),
            unnamed(live(7, to), to),
            Record {
                growing_to: Some(to),
                ..record(7, at, RecordState::Block)
            },
            false,
        ),
        // The same entry on both sides is not a change.
        (
            live(7, at),
            live(7, at),
            record(7, at, RecordState::Creating),
            false,
        ),
    ] {
        assert_eq!(
            explains(std::slice::from_ref(&record), &old, &new, 512),
            expected,
            "{record:?}"
        );
        assert_eq!(explains(&[record], &new, &old, 512), expected);
    }
}

/// Returns the same partition without the name that every entry of Drivebay has.
fn unnamed(entry: Entry, extent: Extent) -> Entry {
    Entry::UNUSED
        .with_identity(entry.type_guid(), entry.guid())
        .with_extent(extent, 512)
}

proptest! {
    #[test]
    fn free_and_used_account_for_everything(
        size in (8 * MIB..200 * MIB).prop_map(|size| size / 4096 * 4096),
        large in any::<bool>(),
        wanted in prop::collection::vec(1_u64..40, 0..12),
        freed in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
    ) {
        let sector = if large { 4096 } else { 512 };
        let table = Table::fresh(Uuid::nil(), Uuid::nil(), size, sector).unwrap();
        let room = usable(&table);
        prop_assert!(room.start >= LABEL_EXTENT.end());
        prop_assert!(room.end() <= (table.last_usable + 1) * sector);
        prop_assert!((table.last_usable + 1) * sector - room.end() < MIB);
        let mut placed: Vec<Extent> = Vec::new();
        for size in wanted {
            let free = free_runs(room, &placed);
            match place(&free, &[], size * MIB, drivebay_model::Placement::Pack) {
                Some(extent) => {
                    prop_assert!(placed.iter().all(|&other| !overlap(other, extent)));
                    prop_assert!(extent.start >= room.start && extent.end() <= room.end());
                    placed.push(extent);
                }
                None => prop_assert!(free.iter().all(|run| run.len < size * MIB)),
            }
        }
        for index in freed {
            if !placed.is_empty() {
                placed.swap_remove(index.index(placed.len()));
            }
        }
        let free = free_runs(room, &placed);
        let sum = |runs: &[Extent]| runs.iter().map(|run| run.len).sum::<u64>();
        prop_assert_eq!(sum(&free) + sum(&placed), room.len);
        for run in &free {
            prop_assert!(run.start % MIB == 0 && run.len % MIB == 0 && run.len > 0);
            prop_assert!(placed.iter().all(|&other| !overlap(other, *run)));
        }
        for &extent in &placed {
            let limit = growth_limit(&free, extent);
            let grown = Extent { len: limit, ..extent };
            prop_assert!(limit >= extent.len);
            prop_assert!(placed.iter().filter(|&&other| other != extent).all(|&other| !overlap(other, grown)));
        }
    }
}

#[test]
fn a_byte_of_several_runs_is_found_in_its_own() {
    let run = |start: u64, len: u64| Extent {
        start: start * MIB,
        len: len * MIB,
    };
    let runs = [run(8, 1), run(28, 10)];
    assert_eq!(at(&runs, 0), Some(run(8, 1)));
    assert_eq!(at(&runs, MIB), Some(run(28, 10)));
    assert_eq!(at(&runs, 3 * MIB), Some(run(30, 8)));
    assert_eq!(at(&runs, 11 * MIB), None);
}
