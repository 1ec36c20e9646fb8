//! The checksums of btrfs. Pure. Of XXH64 as much as a superblock needs, which has whole stripes.

use ring::digest::{SHA256, digest};

/// The checksum of this type (BTRFS_CSUM_TYPE_*), as it is stored. None: the type is not known.
pub(super) fn of(kind: u16, data: &[u8]) -> Option<Vec<u8>> {
    Some(match kind {
        0 => crc32c(data).to_le_bytes().to_vec(),
        1 => xxh64(data).to_le_bytes().to_vec(),
        2 => digest(&SHA256, data).as_ref().to_vec(),
        3 => blake2b(data),
        _ => return None,
    })
}

/// RFC 3720, appendix B.4.
fn crc32c(data: &[u8]) -> u32 {
    let bit = |crc: u32| (crc >> 1) ^ if crc & 1 == 1 { 0x82F6_3B78 } else { 0 };
    !data.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| bit(crc))
    })
}

/// With seed 0, of whole stripes of 32 bytes; what is left behind them is not counted.
fn xxh64(data: &[u8]) -> u64 {
    const P1: u64 = 0x9E37_79B1_85EB_CA87;
    const P2: u64 = 0xC2B2_AE3D_27D4_EB4F;
    const P3: u64 = 0x1656_67B1_9E37_79F9;
    const P4: u64 = 0x85EB_CA77_C2B2_AE63;
    let round = |lane: u64, input: u64| {
        let sum = lane.wrapping_add(input.wrapping_mul(P2));
        sum.rotate_left(31).wrapping_mul(P1)
    };
    let mut lanes = [P1.wrapping_add(P2), P2, 0, 0_u64.wrapping_sub(P1)];
    let (stripes, _) = data.as_chunks::<32>();
    for stripe in stripes {
        for (lane, word) in lanes.iter_mut().zip(stripe.as_chunks::<8>().0) {
            *lane = round(*lane, u64::from_le_bytes(*word));
        }
    }
    let turned = lanes.iter().zip([1, 7, 12, 18]);
    let sum = turned.fold(0_u64, |sum, (lane, by)| {
        sum.wrapping_add(lane.rotate_left(by))
    });
    let merged = lanes.iter().fold(sum, |hash, lane| {
        (hash ^ round(0, *lane)).wrapping_mul(P1).wrapping_add(P4)
    });
    let hash = merged.wrapping_add(stripes.len() as u64 * 32);
    let hash = (hash ^ (hash >> 33)).wrapping_mul(P2);
    let hash = (hash ^ (hash >> 29)).wrapping_mul(P3);
    hash ^ (hash >> 32)
}

/// BLAKE2b of 32 bytes, without a key (RFC 7693); not of nothing.
fn blake2b(data: &[u8]) -> Vec<u8> {
    let mut state = IV;
    // Length of the answer, no key, no tree.
    state[0] ^= 0x0101_0020;
    let mut done = 0;
    let mut blocks = data.chunks(128).peekable();
    while let Some(bytes) = blocks.next() {
        done += bytes.len() as u64;
        let mut block = bytes.to_vec();
        block.resize(128, 0);
        compress(&mut state, &block, done, blocks.peek().is_none());
    }
    let bytes = state.iter().flat_map(|word| word.to_le_bytes());
    bytes.take(32).collect()
}

const IV: [u64; 8] = [
    0x6A09_E667_F3BC_C908,
    0xBB67_AE85_84CA_A73B,
    0x3C6E_F372_FE94_F82B,
    0xA54F_F53A_5F1D_36F1,
    0x510E_527F_ADE6_82D1,
    0x9B05_688C_2B3E_6C1F,
    0x1F83_D9AB_FB41_BD6B,
    0x5BE0_CD19_137E_2179,
];

const SIGMA: [[usize; 16]; 10] = [
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
    [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
    [11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4],
    [7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8],
    [9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13],
    [2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9],
    [12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11],
    [13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10],
    [6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5],
    [10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0],
];

/// Columns, then diagonals.
const MIXED: [[usize; 4]; 8] = [
    [0, 4, 8, 12],
    [1, 5, 9, 13],
    [2, 6, 10, 14],
    [3, 7, 11, 15],
    [0, 5, 10, 15],
    [1, 6, 11, 12],
    [2, 7, 8, 13],
    [3, 4, 9, 14],
];

/// Takes a block of 128 bytes into the state, the bytes of which, with all before them, are `done`.
fn compress(state: &mut [u64; 8], block: &[u8], done: u64, is_last: bool) {
    let mut words = [0; 16];
    for (word, bytes) in words.iter_mut().zip(block.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    let mut v = [0; 16];
    for (to, from) in v.iter_mut().zip(state.iter().chain(&IV)) {
        *to = *from;
    }
    v[12] ^= done;
    if is_last {
        v[14] = !v[14];
    }
    for order in SIGMA.iter().chain(SIGMA.iter().take(2)) {
        for ([a, b, c, d], [x, y]) in MIXED.into_iter().zip(order.as_chunks::<2>().0) {
            v[a] = v[a].wrapping_add(v[b]).wrapping_add(words[*x]);
            v[d] = (v[d] ^ v[a]).rotate_right(32);
            v[c] = v[c].wrapping_add(v[d]);
            v[b] = (v[b] ^ v[c]).rotate_right(24);
            v[a] = v[a].wrapping_add(v[b]).wrapping_add(words[*y]);
            v[d] = (v[d] ^ v[a]).rotate_right(16);
            v[c] = v[c].wrapping_add(v[d]);
            v[b] = (v[b] ^ v[c]).rotate_right(63);
        }
    }
    let (low, high) = v.split_at(8);
    for (word, (low, high)) in state.iter_mut().zip(low.iter().zip(high)) {
        *word ^= low ^ high;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Made with other implementations, of as many bytes as a superblock's checksum is of.
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
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
    }
}
