//! Samples whether a device is blank: selects the bytes to read, and checks that they are zeros.

use std::io;

use super::{Blankness, remains};
use crate::{device, lvm::label};
use drivebay_model::{GIB, MIB};
use drivebay_sys::direct::{ALIGN, Aligned};

/// Bytes at each end that are read completely: partition tables, labels and superblocks of all
/// known formats are there.
const END_BYTES: u64 = 16 * MIB;
/// Number of samples in between, evenly spread.
const SAMPLES: u64 = 64;
/// Bytes of one sample.
const SAMPLE_BYTES: u64 = 64 * 1024;
/// Further samples where data usually begins: up to the first number of bytes, one at each multiple
/// of the second.
const DENSER: [(u64, u64); 2] = [(GIB, 32 * MIB), (16 * GIB, 512 * MIB)];
/// Bytes of the pieces in which the ends are read.
const PIECE_BYTES: u64 = MIB;

/// Returns the runs to read (offset, length in bytes), the ends first. Only at the device's end a
/// length may be unaligned.
pub(super) fn plan(size: u64) -> Vec<(u64, u64)> {
    let mut runs = Vec::new();
    let mut pieces = |from: u64, to: u64| {
        let mut at = from;
        while at < to {
            let len = PIECE_BYTES.min(to - at);
            runs.push((at, len));
            at += len;
        }
    };
    pieces(0, END_BYTES.min(size));
    let tail = (size.saturating_sub(END_BYTES) / ALIGN * ALIGN).max(END_BYTES.min(size));
    pieces(tail, size);
    let span = size.saturating_sub(SAMPLE_BYTES);
    for index in 0..SAMPLES {
        // In u128: a sample's number times a large drive's size.
        let at = u128::from(span) * u128::from(index) / u128::from(SAMPLES - 1);
        let at = at as u64 / ALIGN * ALIGN;
        runs.push((at, SAMPLE_BYTES.min(size - at)));
    }
    let denser = DENSER
        .into_iter()
        .flat_map(|(to, every)| (every..to).step_by(every as usize));
    for at in denser.chain(remains::places(size)) {
        let at = at / ALIGN * ALIGN;
        if at < size {
            runs.push((at, ALIGN.min(size - at)));
        }
    }
    runs
}

/// Offset of a failed read, and its error.
pub(super) type Unreadable = (u64, io::Error);

/// Reads every run, and stops at the first byte that is not zero, except what a claim that was
/// interrupted before its label leaves. Calls `step` with the offset before each read.
pub(super) fn sample(
    size: u64,
    mut step: impl FnMut(u64),
    read: impl Fn(u64, &mut Aligned) -> io::Result<()>,
) -> Result<Blankness, Unreadable> {
    let mut buffer = Aligned::new(0);
    for (offset, len) in plan(size) {
        step(offset);
        if buffer.bytes().len() as u64 != len {
            buffer = Aligned::new(len as usize);
        }
        read(offset, &mut buffer).map_err(|error| (offset, error))?;
        label::without_empty_area(offset, buffer.bytes_mut());
        if let Some(at) = device::nonzero(buffer.bytes()) {
            return Ok(Blankness::DataAt(offset + at as u64));
        }
    }
    Ok(Blankness::Blank)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{device::Medium, fake::FakeDrive, lvm::metadata};

    fn sample_image(image: &[u8]) -> Blankness {
        let read = |at: u64, buffer: &mut Aligned| {
            let len = buffer.bytes().len();
            buffer
                .bytes_mut()
                .copy_from_slice(&image[at as usize..at as usize + len]);
            Ok(())
        };
        sample(image.len() as u64, |_| {}, read).unwrap()
    }

    #[test]
    fn one_byte_at_either_end_or_in_a_sample_is_data() {
        let size = 80 * MIB as usize;
        assert_eq!(sample_image(&vec![0; size]), Blankness::Blank);
        let middle = ((size as u64 - SAMPLE_BYTES) * 31 / 63 / ALIGN * ALIGN) as usize;
        for at in [
            0,
            16 * MIB as usize - 1,
            middle + 100,
            size - 16 * MIB as usize,
            size - 1,
        ] {
            let mut image = vec![0; size];
            image[at] = 1;
            assert_eq!(sample_image(&image), Blankness::DataAt(at as u64));
        }
    }

    #[test]
    fn the_header_of_a_metadata_area_without_a_text_is_no_data_and_every_other_one_is() {
        let drive = FakeDrive::new(64 * MIB, 512);
        let image = |drive: &FakeDrive| {
            let mut image = vec![0; 64 * MIB as usize];
            drive.read_at(0, &mut image).unwrap();
            sample_image(&image)
        };
        label::write_area(&drive, label::AREA, label::NO_TEXT).unwrap();
        assert_eq!(image(&drive), Blankness::Blank);
        // A byte of it, and one beside it.
        for at in [label::AREA.start + 7, label::AREA.start + 512] {
            drive.rot(at, 1);
            assert!(matches!(image(&drive), Blankness::DataAt(_)), "{at}");
            drive.rot(at, 1);
        }
        let text = metadata::Location {
            offset: 512,
            size: 100,
            checksum: 7,
        };
        label::write_area(&drive, label::AREA, text).unwrap();
        assert!(matches!(image(&drive), Blankness::DataAt(_)));
    }

    #[test]
    fn labels_of_ceph_and_superblock_copies_are_read_and_the_first_gib_densely() {
        let runs = plan(4000 * GIB);
        let is_read = |at: u64| {
            runs.iter()
                .any(|(start, len)| (*start..start + len).contains(&at))
        };
        for at in [
            GIB,
            10 * GIB,
            100 * GIB,
            1000 * GIB,
            64 * MIB + 64,
            256 * GIB + 64,
            32 * MIB,
            992 * MIB,
        ] {
            assert!(is_read(at), "{at}");
        }
    }

    #[test]
    fn a_read_error_is_an_error_with_its_offset() {
        let (at, _) = sample(
            64 * MIB,
            |_| {},
            |at, _| {
                if at > 0 {
                    Err(io::Error::from_raw_os_error(5))
                } else {
                    Ok(())
                }
            },
        )
        .unwrap_err();
        assert_eq!(at, MIB);
    }

    proptest! {
        #[test]
        fn runs_are_aligned_inside_and_cover_both_ends(sectors in 8_u64..1 << 40) {
            let size = sectors * 512;
            let runs = plan(size);
            for (at, len) in &runs {
                prop_assert!(at % ALIGN == 0 && *len > 0 && at + len <= size);
                prop_assert!(len % ALIGN == 0 || at + len == size);
            }
            let covered = |at: u64| runs.iter().any(|(start, len)| (*start..start + len).contains(&at));
            for at in [0, END_BYTES.min(size) - 1, size - 1, size.saturating_sub(END_BYTES)] {
                prop_assert!(covered(at), "{at} of {size}");
            }
        }
    }
}
