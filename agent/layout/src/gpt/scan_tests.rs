//! Whole and damaged tables, made with gptman, an independent implementation.

use std::io::Cursor;

use gptman::{GPT, GPTPartitionEntry};
use proptest::prelude::*;

use super::*;

const SIZE: usize = 4 << 20;

fn disk(sector: u64, kinds: &[Uuid]) -> Vec<u8> {
    let mut cursor = Cursor::new(vec![0_u8; SIZE]);
    let mut gpt = GPT::new_from(&mut cursor, sector, Uuid::from_u128(7).into_bytes()).unwrap();
    for (index, kind) in kinds.iter().enumerate() {
        let start = 1024 * 1024 / sector + index as u64 * 64;
        gpt[index as u32 + 1] = GPTPartitionEntry {
            partition_type_guid: kind.to_bytes_le(),
            unique_partition_guid: Uuid::from_u128(index as u128 + 1).to_bytes_le(),
            starting_lba: start,
            ending_lba: start + 63,
            attribute_bits: 0,
            partition_name: "x".into(),
        };
    }
    gpt.write_into(&mut cursor).unwrap();
    GPT::write_protective_mbr_into(&mut cursor, sector).unwrap();
    cursor.into_inner()
}

/// Contents of a drive, and its sector size in bytes.
struct Image<'a>(&'a [u8], u32);

impl Medium for Image<'_> {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let at = offset as usize;
        buf.copy_from_slice(&self.0[at..at + buf.len()]);
        Ok(())
    }
    fn size(&self) -> u64 {
        self.0.len() as u64
    }
    fn sector(&self) -> u64 {
        u64::from(self.1)
    }
}

fn scan_image(image: &[u8], sector: u32) -> GptScan {
    scan(&Image(image, sector)).unwrap()
}

fn damage(image: &[u8], sector: u32) -> String {
    match scan_image(image, sector).state {
        GptState::Damaged(why) => why,
        other => panic!("{other:?}"),
    }
}

const LINUX: Uuid = uuid::uuid!("0fc63daf-8483-4772-8e79-3d69d8477de4");

#[test]
fn zeros_have_no_table() {
    assert_eq!(
        scan_image(&vec![0; SIZE], 512),
        GptScan {
            state: GptState::None,
            ours: false,
            types: vec![]
        }
    );
    assert_eq!(
        scan_image(&[0; 1024], 512).state,
        GptState::None,
        "too small for one"
    );
}

#[test]
fn a_whole_table_is_whole_whatever_the_sector_size() {
    for sector in [512, 4096] {
        let result = scan_image(&disk(sector, &[LINUX]), sector as u32);
        assert_eq!(
            result,
            GptScan {
                state: GptState::Whole,
                ours: false,
                types: vec![LINUX.to_string()]
            }
        );
        assert_eq!(
            scan_image(&disk(sector, &[]), sector as u32).state,
            GptState::Whole,
            "an empty table is a table"
        );
    }
}

#[test]
fn only_a_label_partition_in_first_place_makes_a_table_ours() {
    assert!(scan_image(&disk(512, &[LABEL_TYPE, LINUX]), 512).ours);
    assert!(!scan_image(&disk(512, &[LINUX, LABEL_TYPE]), 512).ours);
}

#[test]
fn each_kind_of_damage_is_named_and_a_valid_copy_still_identifies_its_owner() {
    type Harm = fn(&mut Vec<u8>);
    let cases: [(&str, Harm, bool); 9] = [
        ("checksum of its header", |image| image[512 + 56] ^= 1, true),
        (
            "checksum of its entries",
            |image| image[1024 + 200] ^= 1,
            true,
        ),
        ("only its backup", |image| image[512..1024].fill(0), true),
        (
            "backup copy is missing",
            |image| image[SIZE - 512..].fill(0),
            true,
        ),
        (
            "backup copy is damaged",
            |image| image[SIZE - 512 + 40] ^= 1,
            true,
        ),
        (
            "protective MBR is missing",
            |image| image[..512].fill(0),
            true,
        ),
        ("hybrid", |image| image[446 + 16 + 4] = 0x83, true),
        ("only a protective MBR", |image| image[512..].fill(0), false),
        (
            "header says it has",
            |image| image[512 + 12..512 + 16].fill(0xff),
            true,
        ),
    ];
    for (word, harm, ours) in cases {
        let mut image = disk(512, &[LABEL_TYPE]);
        harm(&mut image);
        let why = damage(&image, 512);
        assert!(why.contains(word), "{word}: {why}");
        assert_eq!(scan_image(&image, 512).ours, ours, "{word}");
    }
}

#[test]
fn copies_that_are_each_valid_but_differ_are_damage() {
    let mut image = disk(512, &[LABEL_TYPE]);
    let other = disk(512, &[LABEL_TYPE, LINUX]);
    image[SIZE - 33 * 512..].copy_from_slice(&other[SIZE - 33 * 512..]);
    assert!(damage(&image, 512).contains("differ"));
}

#[test]
fn a_drive_that_grew_and_one_with_other_sectors_are_damage() {
    let mut grown = disk(512, &[LINUX]);
    grown.resize(SIZE * 2, 0);
    assert!(damage(&grown, 512).contains("not at the end"));
    assert!(damage(&disk(512, &[LINUX]), 4096).contains("sectors of 512"));
    assert!(damage(&disk(4096, &[LINUX]), 512).contains("sectors of 4096"));
}

proptest! {
    #[test]
    fn no_flipped_byte_of_a_table_makes_it_vanish(at in 0_usize..1024 + 16384, bit in 0_u8..8) {
        let mut image = disk(512, &[LABEL_TYPE]);
        image[at] ^= 1 << bit;
        prop_assert_ne!(scan_image(&image, 512).state, GptState::None);
    }

    #[test]
    fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 512)) {
        let mut image = vec![0; SIZE];
        image[512..1024].copy_from_slice(&bytes);
        image[512..520].copy_from_slice(b"EFI PART");
        scan_image(&image, 512);
    }
}
