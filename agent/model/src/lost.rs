//! Lost sectors of a volume that moved: they could not be read on an earlier drive, and read as errors on this one until they are written.
//!
//! The ranges are kept among the volume's parameters, which both layouts preserve. On the drive each such sector has a mark in place of its
//! data; a sector without its mark was written since, and is not lost any more, whatever is recorded. While a volume has the parameter, also
//! with no range left, a mapped device over its partition or LV is what is mounted and published: it answers reads of lost sectors with
//! errors (`drivebay_layout::lost`).

use std::{collections::BTreeMap, fmt::Write as _};

use drivebay_proto::names;
use uuid::Uuid;

use super::{Extent, Record, runs};

/// Bytes of a sector: the unit of the ranges, and of marks. Every logical sector of a drive is a multiple of it.
pub const SECTOR: u64 = 512;
/// Most ranges of one volume: each is two targets in the table of its mapped device, and at most 33 bytes of its record.
pub const MOST_RANGES: usize = 128;
/// Most bytes of one volume in all, which are read whenever something was written to it.
pub const MOST_BYTES: u64 = 16 << 20;

/// Returns the ranges by the parameters that are kept with a volume, relative to its start, in order; None: the volume has no mapped device
/// for them. What is not understood counts as the whole volume: nothing of it is served as data.
pub fn of(kept: &BTreeMap<String, String>) -> Option<Vec<Extent>> {
    let text = kept.get(names::KEPT_LOST_SECTORS)?;
    Some(parse(text).unwrap_or_else(|| {
        vec![Extent {
            start: 0,
            len: u64::MAX,
        }]
    }))
}

/// Replaces the ranges among the parameters that are kept with a volume; None: it has none, and needs no mapped device.
pub fn keep(lost: Option<&[Extent]>, parameters: &mut BTreeMap<String, String>) {
    match lost {
        Some(lost) => parameters.insert(names::KEPT_LOST_SECTORS.to_owned(), text(lost)),
        None => parameters.remove(names::KEPT_LOST_SECTORS),
    };
}

/// True if so much can be kept of one volume.
pub fn fit(lost: &[Extent]) -> bool {
    lost.len() <= MOST_RANGES && runs::bytes(lost) <= MOST_BYTES
}

/// Start and length of each range in sectors, in hexadecimal: `1f0+8,2000+10`.
fn text(lost: &[Extent]) -> String {
    let mut text = String::new();
    for range in lost {
        let separator = if text.is_empty() { "" } else { "," };
        let (start, len) = (range.start / SECTOR, range.len / SECTOR);
        // Writing to a string does not fail.
        let _ = write!(text, "{separator}{start:x}+{len:x}");
    }
    text
}

fn parse(text: &str) -> Option<Vec<Extent>> {
    let bytes = |sectors: &str| u64::from_str_radix(sectors, 16).ok()?.checked_mul(SECTOR);
    let ranges = text.split(',').filter(|range| !range.is_empty());
    ranges
        .map(|range| {
            let (start, len) = range.split_once('+')?;
            Some(Extent {
                start: bytes(start)?,
                len: bytes(len)?,
            })
        })
        .collect()
}

/// Returns the contents of a lost sector on the drive: it names the volume and the byte of the volume at which it is, so that no other
/// sector has it, and a copy of it elsewhere is no mark.
pub fn mark(volume: Uuid, at: u64) -> [u8; SECTOR as usize] {
    let mut mark = [0; SECTOR as usize];
    let text = format!("Drivebay: lost when it moved: volume {volume} byte {at}\n");
    mark.iter_mut()
        .zip(text.bytes())
        .for_each(|(to, from)| *to = from);
    mark
}

/// Returns the ranges among the whole sectors of `bytes` that have their mark. `at`: byte of the volume at which they begin, a multiple of
/// `SECTOR`.
pub fn marked(volume: Uuid, at: u64, bytes: &[u8]) -> Vec<Extent> {
    let sectors = (at..).step_by(SECTOR as usize);
    let sectors = sectors.zip(bytes.chunks_exact(SECTOR as usize));
    let marked = sectors.filter(|(at, sector)| *sector == mark(volume, *at));
    let marked = marked.map(|(start, _)| Extent { start, len: SECTOR });
    runs::joined(marked.collect())
}

/// Returns the device-mapper name, and uuid, of the mapped device of a volume with lost sectors.
pub fn device_name(volume: Uuid) -> String {
    format!("{DEVICE_NAME}{volume}")
}

/// Prefix of that name.
const DEVICE_NAME: &str = "drivebay-lost-";

/// Returns the volume from the name of such a device; None if it is not one.
pub fn volume_of(device_name: &str) -> Option<Uuid> {
    device_name.strip_prefix(DEVICE_NAME)?.parse().ok()
}

impl Record {
    /// Returns the lost sectors, as `of` does.
    pub fn lost(&self) -> Option<Vec<Extent>> {
        of(&self.parameters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, len: u64) -> Extent {
        Extent { start, len }
    }

    #[test]
    fn ranges_are_kept_with_the_volume_and_are_no_part_of_its_request() {
        let mut kept = BTreeMap::from([("class".to_owned(), "fast".to_owned())]);
        let requested = kept.clone();
        assert_eq!(of(&kept), None);
        for lost in [vec![], vec![range(512, 4096), range(1 << 30, 512)]] {
            keep(Some(&lost), &mut kept);
            assert_eq!(of(&kept), Some(lost));
            assert_eq!(crate::created_for::requested(&kept), requested);
        }
        keep(None, &mut kept);
        assert_eq!(kept, requested);
    }

    #[test]
    fn what_is_not_understood_is_the_whole_volume_and_not_none_of_it() {
        for text in ["x", "1", "1+", "1+2;3+4", "ffffffffffffffff+1"] {
            let kept = BTreeMap::from([(names::KEPT_LOST_SECTORS.to_owned(), text.to_owned())]);
            assert_eq!(of(&kept), Some(vec![range(0, u64::MAX)]), "{text}");
        }
    }

    #[test]
    fn only_a_sector_with_the_mark_of_its_own_place_is_lost() {
        let volume = Uuid::from_u128(7);
        let mut bytes = vec![0; 8 * 512];
        for sector in [1, 2, 5] {
            let mark = mark(volume, 4096 + sector * 512);
            bytes[sector as usize * 512..][..512].copy_from_slice(&mark);
        }
        let lost = [range(4096 + 512, 1024), range(4096 + 5 * 512, 512)];
        assert_eq!(marked(volume, 4096, &bytes), lost);
        // One that was copied to another place, one byte that was written, another volume.
        assert_eq!(marked(volume, 0, &bytes), []);
        assert_eq!(marked(Uuid::from_u128(8), 4096, &bytes), []);
        bytes[512 + 300] = 1;
        assert_eq!(
            marked(volume, 4096, &bytes),
            [range(4096 + 1024, 512), lost[1]]
        );
        let longest = mark(Uuid::from_u128(u128::MAX), u64::MAX);
        assert_eq!(longest.last(), Some(&0));
    }

    #[test]
    fn as_much_is_kept_as_a_table_and_a_record_have_room_for() {
        let many: Vec<Extent> = (0..MOST_RANGES as u64)
            .map(|n| range(n * 8192, 4096))
            .collect();
        assert!(fit(&many) && fit(&[]) && fit(&[range(0, MOST_BYTES)]));
        assert!(!fit(&[range(0, MOST_BYTES + 512)]));
        let more = [many, vec![range(1 << 40, 512)]].concat();
        assert!(!fit(&more));
    }

    #[test]
    fn the_device_is_named_after_its_volume() {
        let volume = Uuid::from_u128(9);
        assert_eq!(volume_of(&device_name(volume)), Some(volume));
        assert_eq!(volume_of("drivebay-crypt-7"), None);
        assert!(device_name(volume).len() < 128);
    }
}
