//! Detects an interrupted change of the UUID by the beginning of the log. Pure.
//!
//! xfs_db first rewrites the whole log, with the new UUID, and then writes the superblocks. In between, the kernel refuses
//! the filesystem, and xfs_db refuses to start again or starts with a cycle that the kernel refuses. xfs_repair -L makes a
//! log that matches the superblock and all metadata. Offsets: struct xfs_dsb (fs/xfs/libxfs/xfs_format.h), struct
//! xlog_rec_header (xfs_log_format.h).

use uuid::Uuid;

/// XLOG_HEADER_MAGIC_NUM: the block begins a record.
const RECORD: u32 = 0xFEED_BABE;
/// sb_versionnum without its flags: there are checksums, and sequence numbers with them.
const VERSION_5: u16 = 5;

/// Returns the bytes of a big-endian field; None if they are beyond the end.
fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    field(bytes, at).map(u32::from_be_bytes)
}

/// Returns the byte at which the log begins, by the device's first bytes; None if they are no superblock of XFS.
pub(super) fn begins_at(head: &[u8]) -> Option<u64> {
    if field(head, 0)? != *b"XFSB" {
        return None;
    }
    let start = field(head, 48).map(u64::from_be_bytes)?;
    let group_bits = u32::from(*head.get(124)?);
    let group = start.checked_shr(group_bits)?;
    let block = start - group.checked_shl(group_bits)?;
    let before = group.checked_mul(u64::from(u32_at(head, 84)?))?;
    let blocks = before.checked_add(block)?;
    blocks.checked_mul(u64::from(u32_at(head, 4)?))
}

/// True if xfs_db, while giving the filesystem this UUID, or xfs_repair after it, was interrupted while it rewrote the log.
/// `first`: the log's first block. xfs_db rewrites the log only if nothing in it is left to be replayed.
pub(super) fn was_cut_off(head: &[u8], first: &[u8], to: Uuid) -> bool {
    let Some(word) = u32_at(first, 0) else {
        return false;
    };
    if word == RECORD && field(first, 304) == Some(*to.as_bytes()) {
        return true;
    }
    // The first block has the latest cycle, and the superblock was changed in no later one.
    let cycle = match word {
        RECORD => u32_at(first, 4).unwrap_or_default(),
        word => word,
    };
    let version = field(head, 100).map(u16::from_be_bytes).unwrap_or_default() & 0xF;
    let least = match version {
        VERSION_5 => u32_at(head, 240).unwrap_or_default().max(1),
        _ => 1,
    };
    cycle < least
}

#[cfg(test)]
mod tests {
    use super::*;

    const TO: Uuid = Uuid::from_u128(0x1122_3344_5566_7788_99AA_BBCC_DDEE_FF00);

    /// 4 KiB blocks, groups of 65,000 of them, the log in the second one; last changed in the cycle `lsn`.
    fn head(version: u16, lsn: u32) -> Vec<u8> {
        let mut head = vec![0_u8; 4096];
        let mut put = |at: usize, bytes: &[u8]| head[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, b"XFSB");
        put(4, &4096_u32.to_be_bytes());
        put(48, &((1_u64 << 16) + 7).to_be_bytes());
        put(84, &65_000_u32.to_be_bytes());
        put(100, &(0xB4A0 | version).to_be_bytes());
        put(124, &[16]);
        put(240, &lsn.to_be_bytes());
        head
    }

    fn record(cycle: u32, uuid: Uuid) -> Vec<u8> {
        let mut first = vec![0_u8; 512];
        first[..4].copy_from_slice(&RECORD.to_be_bytes());
        first[4..8].copy_from_slice(&cycle.to_be_bytes());
        first[304..320].copy_from_slice(uuid.as_bytes());
        first
    }

    #[test]
    fn the_log_lies_in_its_allocation_group() {
        assert_eq!(begins_at(&head(5, 1)), Some((65_000 + 7) * 4096));
        assert_eq!(begins_at(&[0; 4096]), None);
        assert_eq!(begins_at(b"XFSB"), None);
        let mut absurd = head(5, 1);
        absurd[124] = 64;
        assert_eq!(begins_at(&absurd), None);
    }

    #[test]
    fn only_a_log_that_was_being_made_anew_is_taken_for_one() {
        let old = Uuid::from_u128(1);
        let body = |cycle: u32| [&cycle.to_be_bytes()[..], &[0; 508]].concat();
        for (version, lsn, first, expected) in [
            // As the kernel leaves it: a record begins there, or continues from the end of the log.
            (5, 3, record(3, old), false),
            (5, 3, record(4, old), false),
            (5, 3, body(3), false),
            (5, 0, record(1, old), false),
            (4, 0, record(1, old), false),
            // xfs_db: zeros, then records of the new UUID.
            (5, 3, vec![0; 512], true),
            (5, 0, vec![0; 512], true),
            (4, 0, vec![0; 512], true),
            (5, 3, record(4, TO), true),
            (4, 0, record(1, TO), true),
            // xfs_repair: it begins from the first cycle, until it has seen all metadata.
            (5, 3, record(1, old), true),
            (5, 3, vec![], false),
        ] {
            let cut_off = was_cut_off(&head(version, lsn), &first, TO);
            assert_eq!(cut_off, expected, "{version} {lsn} {:?}", first.get(..8));
        }
    }
}
