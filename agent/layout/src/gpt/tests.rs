use proptest::prelude::*;

use super::*;
use crate::{
    device::{Device, Medium},
    fake::FakeDrive,
};
use drivebay_model::VOLUME_TYPE;

const SIZE: u64 = 64 * MIB;

fn drive(sector: u64) -> (FakeDrive, Table) {
    let drive = FakeDrive::new(SIZE, sector);
    let table = Table::fresh(Uuid::from_u128(1), Uuid::from_u128(2), SIZE, sector).unwrap();
    create(&drive, &table).unwrap();
    drive.settle();
    (drive, table)
}

fn volume(number: u32, sector: u64) -> Entry {
    let extent = Extent {
        start: (5 + u64::from(number)) * MIB,
        len: MIB,
    };
    Entry::new(
        VOLUME_TYPE,
        Uuid::from_u128(100 + u128::from(number)),
        extent,
        sector,
    )
}

/// Repairs the table as `ReadDrive` with repair does if every difference is explained.
fn repaired(drive: &FakeDrive) -> Table {
    match read(drive).unwrap() {
        GptCopies::Whole(table) => return table,
        GptCopies::One { table, damaged, .. } => write_copy(drive, &table, damaged).unwrap(),
        GptCopies::Differ { backup, .. } => write_copy(drive, &backup, Which::Primary).unwrap(),
        other => panic!("{other:?}"),
    }
    match read(drive).unwrap() {
        GptCopies::Whole(table) => table,
        other => panic!("after repair: {other:?}"),
    }
}

#[test]
fn an_entry_keeps_what_it_was_given() {
    for sector in [512, 4096] {
        let entry = volume(7, sector);
        assert_eq!(entry.type_guid(), VOLUME_TYPE);
        assert_eq!(entry.guid(), Uuid::from_u128(107));
        assert_eq!(
            entry.extent(sector),
            Extent {
                start: 12 * MIB,
                len: MIB
            }
        );
        assert_eq!(entry.name(), "drivebay");
    }
}

#[test]
fn a_blank_drive_has_no_table() {
    assert_eq!(read(&FakeDrive::new(SIZE, 512)).unwrap(), GptCopies::None);
}

#[test]
fn a_drive_too_small_for_the_label_gets_no_table() {
    assert_eq!(Table::fresh(Uuid::nil(), Uuid::nil(), 6 * MIB, 512), None);
    assert!(Table::fresh(Uuid::nil(), Uuid::nil(), 7 * MIB, 512).is_some());
}

#[test]
fn any_damage_to_one_copy_is_found_and_repaired_from_the_other() {
    for sector in [512_u64, 4096] {
        let (drive, table) = drive(sector);
        let table = table.with(2, volume(2, sector));
        write(&drive, &table).unwrap();
        let array = ARRAY_BYTES / sector;
        for (offset, which) in [
            (sector, Which::Primary),
            (sector + 16, Which::Primary),
            (sector + 60, Which::Primary),
            (2 * sector + 130, Which::Primary),
            (2 * sector + ARRAY_BYTES - 1, Which::Primary),
            (table.last_lba * sector + 3, Which::Backup),
            ((table.last_lba - array) * sector + 40, Which::Backup),
        ] {
            let (hurt, _) = drive.after_cut(drive.log_len(), || true);
            hurt.rot(offset, 0x40);
            match read(&hurt).unwrap() {
                GptCopies::One {
                    table: valid,
                    damaged,
                    ..
                } => {
                    assert_eq!((valid, damaged), (table.clone(), which), "offset {offset}");
                }
                other => panic!("offset {offset}: {other:?}"),
            }
            assert_eq!(repaired(&hurt), table);
        }
    }
}

#[test]
fn damage_to_both_copies_is_not_an_empty_drive() {
    let (drive, table) = drive(512);
    drive.rot(512 + 20, 1);
    drive.rot(table.last_lba * 512 + 20, 1);
    assert!(matches!(read(&drive).unwrap(), GptCopies::Damaged(_)));
}

#[test]
fn a_table_for_a_larger_drive_is_damaged() {
    let (large, table) = drive(512);
    let small = FakeDrive::new(SIZE / 2, 512);
    let mut start = vec![0; 64 * 512];
    large.read_at(0, &mut start).unwrap();
    small.write_at(0, &start).unwrap();
    assert!(table.last_lba > SIZE / 2 / 512);
    assert!(matches!(read(&small).unwrap(), GptCopies::Damaged(_)));
}

#[test]
fn every_crash_while_writing_ends_with_the_old_or_the_new_table() {
    for sector in [512, 4096] {
        let (drive, table) = drive(sector);
        // Another program's entry, and one with attributes, must be kept byte for byte.
        let mut foreign = volume(9, sector);
        foreign.put(48, &[7; 8]);
        let old = table.with(3, volume(3, sector)).with(9, foreign);
        write(&drive, &old).unwrap();
        drive.settle();
        let new = old.with(3, Entry::UNUSED).with(20, volume(20, sector));
        write(&drive, &new).unwrap();
        assert!(!drive.is_dirty());
        let mut seed = 1_u64;
        for at in 0..=drive.log_len() {
            for mode in 0..40 {
                let (cut, _) = drive.after_cut(at, || {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    match mode {
                        0 => false,
                        1 => true,
                        _ => seed >> 63 == 1,
                    }
                });
                let after = repaired(&cut);
                assert!(after == old || after == new, "cut before event {at}");
                assert_eq!(after.entry(9), Some(foreign));
            }
        }
    }
}

proptest! {
    #[test]
    fn a_table_reads_back_as_written(slots in prop::collection::btree_set(2_u32..=50, 0..20), large in any::<bool>()) {
        let sector = if large { 4096 } else { 512 };
        let (drive, mut table) = drive(sector);
        for &number in &slots {
            table = table.with(number, volume(number, sector));
        }
        write(&drive, &table).unwrap();
        prop_assert_eq!(read(&drive).unwrap(), GptCopies::Whole(table.clone()));
        let numbers: Vec<u32> = table.partitions().map(|(number, _)| number).collect();
        prop_assert_eq!(numbers, std::iter::once(1).chain(slots).collect::<Vec<_>>());
    }
}

#[test]
fn what_reads_of_a_bad_block_of_a_table_is_kept() {
    let drive = FakeDrive::new(SIZE, 512);
    let table = Table::fresh(Uuid::from_u128(1), Uuid::from_u128(2), SIZE, 512).unwrap();
    create(&drive, &table).unwrap();
    assert_eq!(first_sector(&drive).unwrap(), FirstSector::Protective);
    // Only the header: the protective MBR before it, and the entries behind it, can be read.
    drive.unreadable.set(Some(Extent {
        start: 512,
        len: 512,
    }));
    clear_unreadable(&drive, &table, Which::Primary).unwrap();
    assert_eq!(first_sector(&drive).unwrap(), FirstSector::Protective);
    let mut entries = vec![0; 512];
    drive.read_at(1024, &mut entries).unwrap();
    assert!(entries.starts_with(&LABEL_TYPE.to_bytes_le()));
    let mut header = vec![0; 512];
    drive.read_at(512, &mut header).unwrap();
    assert!(header.iter().all(|byte| *byte == 0));
}

#[test]
fn bad_bits_in_a_protective_mbr_are_distinguished_from_another_table() {
    let drive = FakeDrive::new(SIZE, 512);
    let table = Table::fresh(Uuid::from_u128(1), Uuid::from_u128(2), SIZE, 512).unwrap();
    let first = |change: &dyn Fn(&mut [u8])| {
        let mut mbr = protective_mbr(&table);
        change(&mut mbr);
        drive.write_at(0, &mbr).unwrap();
        first_sector(&drive).unwrap()
    };
    assert_eq!(first(&|_| ()), FirstSector::Protective);
    assert_eq!(first(&|mbr| mbr.fill(0)), FirstSector::Blank);
    for bit in 0..8 {
        // The last byte of the signature, and the type of the entry.
        assert_eq!(first(&|mbr| mbr[511] ^= 1 << bit), FirstSector::Damaged);
        assert_eq!(first(&|mbr| mbr[450] ^= 1 << bit), FirstSector::Damaged);
    }
    assert_eq!(first(&|mbr| mbr[256..].fill(0xa5)), FirstSector::Damaged);
    let partition = |mbr: &mut [u8]| {
        mbr[450] = 0x83;
        mbr[454..458].copy_from_slice(&2048u32.to_le_bytes());
    };
    assert_eq!(first(&partition), FirstSector::Foreign);
    // A boot sector, whose entries belong to its program.
    assert_eq!(first(&|mbr| mbr[446..510].fill(0)), FirstSector::Foreign);
}
