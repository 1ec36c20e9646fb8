use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::carve::gpt::Entry;
use crate::model::{
    ERASING_TYPE, ErasePolicy, Mode, Record, RecordState, VOLUME_TYPE, drive::PartitionFacts,
};

const SIZE: u64 = 100 * MIB;

fn table() -> Table {
    Table::fresh(Uuid::from_u128(1), Uuid::from_u128(2), SIZE, 512).unwrap()
}

fn mib(start: u64, len: u64) -> Extent {
    Extent { start: start * MIB, len: len * MIB }
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
    RecordState::Erasing { erase_guid: Uuid::from_u128(0xe), done_bytes }
}

#[test]
fn the_last_extent_is_usable_and_the_backup_table_is_not() {
    for sector in [512, 4096] {
        let table = Table::fresh(Uuid::nil(), Uuid::nil(), SIZE, sector).unwrap();
        assert_eq!(usable(&table), mib(5, 94));
        // A drive whose end is not aligned keeps the rest of its last mebibyte as slack.
        let table = Table::fresh(Uuid::nil(), Uuid::nil(), SIZE + 64 * 1024, sector).unwrap();
        assert_eq!(usable(&table), mib(5, 95));
    }
    assert_eq!(claimable_bytes(SIZE, 512), 94 * MIB);
    assert_eq!(claimable_bytes(MIB, 512), 0);
}

#[test]
fn agreement_is_a_volume() {
    let at = mib(5, 10);
    let view = reconcile(&table().with(2, live(7, at)), &[record(7, at, RecordState::New)], &[kernel(2, at)]);
    let volume = &view.volumes[0];
    assert_eq!((volume.number, volume.device.as_deref(), volume.dev), (Some(2), Some("x2"), Some((259, 2))));
    assert_eq!((&volume.ambiguous, view.steps.len(), view.strangers.len()), (&None, 0, 0));
    assert_eq!(view.free, [mib(15, 84)]);
}

#[test]
fn an_intent_is_completed_or_undone() {
    let (at, to) = (mib(5, 10), mib(5, 20));
    let uuid = Uuid::from_u128(7);
    let growing = Record { growing_to: Some(to), ..record(7, at, RecordState::Block) };
    let erase = live(7, at).with_identity(ERASING_TYPE, Uuid::from_u128(0xe));
    for (entry, record, expected) in [
        (None, record(7, at, RecordState::Creating), Step::Undo { uuid, number: None }),
        (Some(live(7, at)), record(7, at, RecordState::Creating), Step::Undo { uuid, number: Some(2) }),
        (Some(live(7, at)), growing.clone(), Step::CancelGrow { uuid }),
        (Some(live(7, to)), growing, Step::FinishGrow { uuid }),
        (Some(live(7, at)), record(7, at, erasing(0)), Step::MarkErasing { uuid, number: 2, erase_guid: Uuid::from_u128(0xe) }),
        (None, record(7, at, erasing(at.len)), Step::DropErased { uuid }),
        (Some(live(7, at)), record(7, at, RecordState::New), Step::AddPartition { number: 2, extent: at }),
    ] {
        let table = table().with(2, entry.unwrap_or(Entry::UNUSED));
        let view = reconcile(&table, &[record.clone()], &[]);
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
        ("live, elsewhere", vec![live(7, mib(6, 10))], vec![r(RecordState::Block)]),
        ("live, longer", vec![live(7, to)], vec![r(RecordState::Block)]),
        ("creating, other extent", vec![live(7, to)], vec![r(RecordState::Creating)]),
        ("other type", vec![live(7, at).with_identity(Uuid::from_u128(9), Uuid::from_u128(7))], vec![r(RecordState::New)]),
        ("live in the record, erasing in the table", vec![erase], vec![r(RecordState::New)]),
        ("half erased, no entry", vec![], vec![r(erasing(5))]),
        ("two entries", vec![live(7, at), live(7, mib(50, 10))], vec![r(RecordState::New)]),
        ("two records", vec![live(7, at)], vec![r(RecordState::New), r(RecordState::New)]),
        ("out of range", vec![], vec![record(7, mib(98, 5), RecordState::Creating)]),
        ("over the label", vec![], vec![record(7, mib(4, 5), RecordState::Creating)]),
        ("not aligned", vec![], vec![record(7, Extent { start: 5 * MIB + 1, len: MIB }, RecordState::Creating)]),
        ("overflow", vec![], vec![record(7, Extent { start: 5 * MIB, len: u64::MAX / MIB * MIB }, RecordState::Creating)]),
        ("overlaps a stranger", vec![live(7, at), live(8, mib(14, 3))], vec![r(RecordState::New)]),
        ("grows into a stranger", vec![live(7, at), live(8, mib(16, 3))], vec![Record { growing_to: Some(to), ..r(RecordState::New) }]),
        ("shrinks", vec![live(7, at)], vec![Record { growing_to: Some(mib(5, 2)), ..r(RecordState::New) }]),
    ];
    for (name, entries, records) in cases {
        let mut table = table();
        for (number, entry) in (2..).zip(entries) {
            table = table.with(number, entry);
        }
        let view = reconcile(&table, &records, &[]);
        assert!(view.volumes.iter().all(|volume| volume.ambiguous.is_some()), "{name}");
        assert_eq!(view.steps, [], "{name}");
        for record in &records {
            assert!(view.free.iter().all(|&run| !overlap(run, record.extent)), "{name}: its space is offered");
        }
        for (_, entry) in table.partitions() {
            assert!(view.free.iter().all(|&run| !overlap(run, entry.extent(512))), "{name}: an entry's space is offered");
        }
    }
}

#[test]
fn two_volumes_over_the_same_bytes_are_both_ambiguous() {
    let table = table().with(2, live(7, mib(5, 10))).with(3, live(8, mib(14, 3)));
    let records = [record(7, mib(5, 10), RecordState::New), record(8, mib(14, 3), RecordState::New)];
    let view = reconcile(&table, &records, &[]);
    assert!(view.volumes.iter().all(|volume| volume.ambiguous.is_some()));
}

#[test]
fn an_entry_without_a_record_is_a_stranger_and_keeps_its_space() {
    let view = reconcile(&table().with(5, live(9, mib(20, 10))), &[], &[kernel(5, mib(20, 10))]);
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
    assert!(view.volumes[0].ambiguous.as_deref().unwrap().contains("the kernel has x2"));
    assert_eq!(view.steps, [Step::RemovePartition { number: 2 }]);
    assert_eq!(view.free, [mib(17, 82)]);
    // Shorter at the same place: it has grown since.
    let view = reconcile(&table, &records, &[kernel(2, mib(5, 4))]);
    assert_eq!(view.steps, [Step::ResizePartition { number: 2, extent: at }]);
    assert_eq!(view.volumes[0].ambiguous, None);
    // One that no entry knows.
    let view = reconcile(&table, &records, &[kernel(2, at), kernel(9, mib(50, 1))]);
    assert_eq!(view.steps, [Step::RemovePartition { number: 9 }]);
    assert_eq!(view.free, [mib(15, 35), mib(51, 48)]);
}

#[test]
fn only_our_own_change_explains_two_different_copies() {
    let (at, to) = (mib(5, 10), mib(5, 20));
    let erase = live(7, at).with_identity(ERASING_TYPE, Uuid::from_u128(0xe));
    let growing = Record { growing_to: Some(to), ..record(7, at, RecordState::Block) };
    for (old, new, record, expected) in [
        (Entry::UNUSED, live(7, at), record(7, at, RecordState::Creating), true),
        (Entry::UNUSED, live(7, at), record(7, at, RecordState::New), false),
        (Entry::UNUSED, live(7, to), record(7, at, RecordState::Creating), false),
        (Entry::UNUSED, live(8, at), record(7, at, RecordState::Creating), false),
        (live(7, at), live(7, to), growing.clone(), true),
        (live(7, at), live(7, mib(5, 30)), growing, false),
        (live(7, at), erase, record(7, at, erasing(0)), true),
        (live(7, at), erase, record(7, at, RecordState::New), false),
        (erase, Entry::UNUSED, record(7, at, erasing(at.len)), true),
        (erase, Entry::UNUSED, record(7, at, erasing(5)), false),
        (live(7, at), Entry::UNUSED, record(7, at, erasing(at.len)), false),
    ] {
        assert_eq!(explains(&[record.clone()], &old, &new, 512), expected, "{record:?}");
        assert_eq!(explains(&[record], &new, &old, 512), expected);
    }
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
            match first_fit(&free, size * MIB) {
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
