//! Checksums of btrfs. Pure.

use blake2::{Blake2b, Digest, digest::consts::U32};
use crc::{CRC_32_ISCSI, Crc};
use ring::digest::{SHA256, digest};
use twox_hash::XxHash64;

const CRC32C: Crc<u32> = Crc::<u32>::new(&CRC_32_ISCSI);

/// Returns the checksum of this type (BTRFS_CSUM_TYPE_*), as it is stored; None if the type is unknown.
pub(super) fn of(kind: u16, data: &[u8]) -> Option<Vec<u8>> {
    Some(match kind {
        0 => CRC32C.checksum(data).to_le_bytes().to_vec(),
        1 => XxHash64::oneshot(0, data).to_le_bytes().to_vec(),
        2 => digest(&SHA256, data).as_ref().to_vec(),
        3 => Blake2b::<U32>::digest(data).to_vec(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    // Made with other implementations, of as many bytes as the checksum of a superblock covers.
    #[test]
    fn checksums_are_those_of_other_implementations() {
        let data: Vec<u8> = (0..4064_u32).map(|at| (at * 7 + 3) as u8).collect();
        let hex = |kind| {
            let sum = of(kind, &data)?;
            let digits = sum.iter().map(|byte| format!("{byte:02x}"));
            Some(digits.collect::<String>())
        };
        let expected = [
            "875eb24a",
            "f86e8f881b6ef0d5",
            "93c17909d9b1697cb35dd230b8805ef22567f522face2fb396dd68d0b407a8f2",
            "31a87aef095427b2a1ac9e53ab32e1d562fc15685e9166883ba55e6a51e0b296",
        ];
        for (kind, expected) in (0..).zip(expected) {
            assert_eq!(hex(kind), Some(expected.to_owned()), "{kind}");
        }
        assert_eq!(hex(4), None);
    }
}
