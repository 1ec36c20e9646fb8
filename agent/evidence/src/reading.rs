//! Chooses the place of a drive that is read next, and finds the volume there. Pure.

use uuid::Uuid;

use drivebay_model::{Drive, Placed};

/// Bytes of one sample.
pub const SAMPLE: u32 = 4096;
/// Returns the volume that has this byte of the drive.
pub fn volume_at(drive: &Drive, place: u64) -> Option<Uuid> {
    let has = |placed: &&Placed| {
        let mut pieces = placed.lies_at().iter();
        pieces.any(|piece| (piece.start..piece.end()).contains(&place))
    };
    let volumes = &drive.contents.as_ref()?.volumes;
    volumes.iter().find(has).map(|placed| placed.record.uuid)
}

/// Returns the byte offset of the next sample, chosen by two random numbers from 0 to 1: in Drivebay's label and table or in
/// a volume; anywhere on a drive that is not claimed.
pub fn place(drive: &Drive, which: f64, whereabouts: f64) -> u64 {
    let size = drive.facts.size_bytes;
    let within = |start: u64, len: u64| {
        let blocks = len / u64::from(SAMPLE);
        // Exact to the block on drives of up to 2^53 blocks.
        let block = (blocks as f64 * whereabouts) as u64;
        start + block.min(blocks.saturating_sub(1)) * u64::from(SAMPLE)
    };
    let of_volumes: Vec<(u64, u64)> = match &drive.contents {
        Some(contents) => contents
            .volumes
            .iter()
            .flat_map(Placed::lies_at)
            .map(|piece| (piece.start, piece.len))
            .collect(),
        None => vec![(0, size)],
    };
    // One sample in eight is of label and table, which lie before the first volume.
    if which < 0.125 || of_volumes.is_empty() {
        let first = of_volumes
            .iter()
            .map(|(start, _)| *start)
            .min()
            .unwrap_or(0);
        let mark = if first == 0 {
            drivebay_model::MIB
        } else {
            first
        };
        return within(0, mark.min(size));
    }
    let total: u64 = of_volumes.iter().map(|(_, len)| len).sum();
    let mut at = (total as f64 * ((which - 0.125) / 0.875)) as u64;
    for (start, len) in &of_volumes {
        if at < *len {
            return within(*start, *len).min(size.saturating_sub(1));
        }
        at -= len;
    }
    within(0, size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use drivebay_model::{DriveState, Extent, RecordState, samples};

    fn drive() -> Drive {
        let mut placed = vec![
            samples::placed(7, RecordState::New),
            samples::placed(8, RecordState::New),
        ];
        placed[1].record.extent.start = 2 << 30;
        let contents = samples::contents(1, 1, placed, 0);
        let mut drive = samples::drive("sda", DriveState::Claimed, Some(contents));
        drive.facts.size_bytes = 4 << 30;
        drive
    }

    #[test]
    fn a_record_with_impossible_numbers_does_not_hide_whose_a_place_is() {
        let mut drive = drive();
        let volumes = &mut drive.contents.as_mut().unwrap().volumes;
        volumes[0].record.extent.start = u64::MAX - 4096;
        for (place, volume) in [(0, None), (2 << 30, Some(8)), (u64::MAX, None)] {
            let expected = volume.map(Uuid::from_u128);
            assert_eq!(volume_at(&drive, place), expected, "{place}");
        }
    }

    #[test]
    fn a_place_of_a_logical_volume_is_in_one_of_its_pieces_wherever_they_lie() {
        let mut drive = drive();
        let volumes = &mut drive.contents.as_mut().unwrap().volumes;
        let piece = |start: u64, len: u64| Extent {
            start: start << 20,
            len: len << 20,
        };
        for (volume, pieces) in volumes
            .iter_mut()
            .zip([vec![piece(100, 1), piece(10, 1)], vec![piece(11, 1)]])
        {
            volume.dm_uuid = Some("LVM-x".to_owned());
            volume.pieces = pieces;
        }
        for (mib, expected) in [
            (9, None),
            (10, Some(7)),
            (11, Some(8)),
            (12, None),
            (100, Some(7)),
            (101, None),
            // Where the records of partitions would lie.
            (2048, None),
        ] {
            let uuid = volume_at(&drive, mib << 20);
            assert_eq!(uuid, expected.map(Uuid::from_u128), "at {mib} MiB");
        }
    }

    #[test]
    fn every_place_is_aligned_within_the_drive_and_of_our_mark_or_a_volume() {
        let (drive, mut counts) = (drive(), [0; 3]);
        for step in 0..1000 {
            let (which, whereabouts) =
                (f64::from(step) / 1000.0, f64::from(step * 7 % 1000) / 999.0);
            let place = place(&drive, which, whereabouts);
            assert_eq!(place % 4096, 0);
            assert!(place + 4096 <= drive.facts.size_bytes, "{place}");
            match volume_at(&drive, place).map(|uuid| uuid.as_u128()) {
                Some(7) => counts[1] += 1,
                Some(8) => counts[2] += 1,
                _ => {
                    assert!(place < 8 << 20, "{place}");
                    counts[0] += 1;
                }
            }
        }
        assert!(counts.iter().all(|count| *count > 100), "{counts:?}");
        let mut empty = drive.clone();
        empty.contents = None;
        assert!(place(&empty, 0.5, 1.0) + 4096 <= empty.facts.size_bytes);
    }
}
