//! Superblock, as far as a change of the filesystem's UUID, and a search without a mount, need it. Pure. Offsets: struct btrfs_super_block
//! (include/uapi/linux/btrfs_tree.h).
//!
//! Blocks of metadata have the UUID that the filesystem was made with. From the first change on it is the metadata UUID, and
//! never changes.

use uuid::Uuid;

use super::checksum;

/// Size of a superblock.
pub(super) const BYTES: usize = 4096;
/// Offsets of the superblock and its copies, as far as the device is large enough (btrfs_sb_offset).
pub(super) const OFFSETS: [u64; 3] = [64 << 10, 64 << 20, 256 << 30];

/// Start of the bytes that the checksum covers.
const FSID: usize = 0x20;
const BYTENR: usize = 0x30;
const MAGIC: usize = 0x40;
const LOG_ROOT: usize = 0x60;
const NUM_DEVICES: usize = 0x88;
const INCOMPAT_FLAGS: usize = 0xBC;
const CSUM_TYPE: usize = 0xC4;
const METADATA_UUID: usize = 0x23B;
/// Flag BTRFS_FEATURE_INCOMPAT_METADATA_UUID (Linux 5.0): the metadata has the UUID at `METADATA_UUID`, not the one at
/// `FSID`.
const HAS_METADATA_UUID: u64 = 1 << 10;

/// Returns the bytes of a little-endian field; None if they are beyond the end.
fn field<const N: usize>(block: &[u8], at: usize) -> Option<[u8; N]> {
    block.get(at..at + N)?.try_into().ok()
}

fn u64_at(block: &[u8], at: usize) -> Option<u64> {
    field(block, at).map(u64::from_le_bytes)
}

fn put(block: &mut [u8], at: usize, bytes: &[u8]) {
    for (to, from) in block.iter_mut().skip(at).zip(bytes) {
        *to = *from;
    }
}

fn sum_of(block: &[u8]) -> Option<Vec<u8>> {
    let kind = field(block, CSUM_TYPE).map(u16::from_le_bytes)?;
    checksum::of(kind, block.get(FSID..BYTES)?)
}

/// True if the superblock read at this offset has a log tree: writes that are in no other tree yet. None if it is no superblock.
pub(super) fn has_log(block: &[u8], offset: u64) -> Option<bool> {
    sum_if_valid(block, offset).ok()?;
    u64_at(block, LOG_ROOT).map(|log| log != 0)
}

/// Returns the checksum of a superblock read at this offset. Errs with the reason if it is none, or damaged.
fn sum_if_valid(block: &[u8], offset: u64) -> Result<Vec<u8>, &'static str> {
    if field(block, MAGIC) != Some(*b"_BHRfS_M") || u64_at(block, BYTENR) != Some(offset) {
        return Err("it has no superblock");
    }
    let sum = sum_of(block).ok_or("its superblock has a checksum of an unknown type")?;
    match block.starts_with(&sum) {
        true => Ok(sum),
        false => Err("the checksum of its superblock is wrong"),
    }
}

/// Returns the superblock read at this offset, with the UUID `to` in place of `from`; unchanged if it has that already. Errs
/// with the reason if none may be written.
pub(super) fn with_uuid(
    block: &[u8],
    offset: u64,
    from: Uuid,
    to: Uuid,
) -> Result<Vec<u8>, &'static str> {
    let sum = sum_if_valid(block, offset)?;
    let fsid = field(block, FSID).map(Uuid::from_bytes);
    let (Some(fsid), Some(devices), Some(flags)) = (
        fsid.filter(|fsid| [from, to].contains(fsid)),
        u64_at(block, NUM_DEVICES),
        u64_at(block, INCOMPAT_FLAGS),
    ) else {
        return Err("its superblock has another UUID");
    };
    if devices != 1 {
        return Err("it is a part of a filesystem on several devices");
    }
    let mut changed = block.to_vec();
    if fsid == to {
        return Ok(changed);
    }
    if flags & HAS_METADATA_UUID == 0 {
        put(&mut changed, METADATA_UUID, fsid.as_bytes());
        let flags = flags | HAS_METADATA_UUID;
        put(&mut changed, INCOMPAT_FLAGS, &flags.to_le_bytes());
    }
    put(&mut changed, FSID, to.as_bytes());
    let sum = sum_of(&changed).unwrap_or(sum);
    put(&mut changed, 0, &sum);
    Ok(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: Uuid = Uuid::from_u128(0x11);
    const NEW: Uuid = Uuid::from_u128(0x22);
    const NEWER: Uuid = Uuid::from_u128(0x33);
    const AT: u64 = OFFSETS[0];

    fn sealed(mut block: Vec<u8>) -> Vec<u8> {
        let sum = sum_of(&block).unwrap();
        put(&mut block, 0, &sum);
        block
    }

    /// Bytes that are no field here are no zeros.
    fn block() -> Vec<u8> {
        let mut block: Vec<u8> = (0..BYTES).map(|at| (at * 13 + 5) as u8).collect();
        put(&mut block, 0, &[0; 32]);
        put(&mut block, FSID, OLD.as_bytes());
        put(&mut block, BYTENR, &AT.to_le_bytes());
        put(&mut block, MAGIC, b"_BHRfS_M");
        put(&mut block, NUM_DEVICES, &1_u64.to_le_bytes());
        put(&mut block, INCOMPAT_FLAGS, &0x341_u64.to_le_bytes());
        put(&mut block, CSUM_TYPE, &0_u16.to_le_bytes());
        put(&mut block, METADATA_UUID, &[0; 16]);
        sealed(block)
    }

    #[test]
    fn a_log_tree_is_reported_only_of_a_valid_superblock() {
        let with_log = |root: u64| {
            let mut block = block();
            put(&mut block, 0, &[0; 32]);
            put(&mut block, LOG_ROOT, &root.to_le_bytes());
            sealed(block)
        };
        assert_eq!(has_log(&with_log(0), AT), Some(false));
        assert_eq!(has_log(&with_log(30 << 20), AT), Some(true));
        assert_eq!(has_log(&with_log(0), AT + 1), None);
        let mut damaged = with_log(0);
        damaged[LOG_ROOT] ^= 1;
        assert_eq!(has_log(&damaged, AT), None);
        assert_eq!(has_log(&[], AT), None);
    }

    #[test]
    fn the_first_change_keeps_the_uuid_that_metadata_has_and_changes_nothing_else() {
        let before = block();
        let after = with_uuid(&before, AT, OLD, NEW).unwrap();
        assert_eq!(field(&after, FSID), Some(*NEW.as_bytes()));
        assert_eq!(field(&after, METADATA_UUID), Some(*OLD.as_bytes()));
        assert_eq!(u64_at(&after, INCOMPAT_FLAGS), Some(0x741));
        let mut back = after.clone();
        for (at, len) in [
            (0, 32),
            (FSID, 16),
            (INCOMPAT_FLAGS, 8),
            (METADATA_UUID, 16),
        ] {
            put(&mut back, at, &before[at..at + len]);
        }
        assert_eq!(back, before);
        assert_eq!(sealed(after.clone()), after);
        // The repeat.
        assert_eq!(with_uuid(&after, AT, OLD, NEW), Ok(after));
    }

    #[test]
    fn a_copy_of_a_copy_keeps_the_uuid_that_metadata_has() {
        let copy = with_uuid(&block(), AT, OLD, NEW).unwrap();
        let after = with_uuid(&copy, AT, NEW, NEWER).unwrap();
        assert_eq!(field(&after, FSID), Some(*NEWER.as_bytes()));
        assert_eq!(field(&after, METADATA_UUID), Some(*OLD.as_bytes()));
        assert_eq!(u64_at(&after, INCOMPAT_FLAGS), Some(0x741));
        assert_eq!(sealed(after.clone()), after);
    }

    #[test]
    fn every_type_of_checksum_is_made_anew() {
        for kind in 0..4_u16 {
            let mut before = block();
            put(&mut before, CSUM_TYPE, &kind.to_le_bytes());
            let after = with_uuid(&sealed(before), AT, OLD, NEW).unwrap();
            assert_eq!(sealed(after.clone()), after, "{kind}");
        }
    }

    #[test]
    fn what_is_not_the_copied_superblock_is_not_changed() {
        let spoilt = |at: usize, bytes: &[u8]| {
            let mut block = block();
            put(&mut block, at, bytes);
            sealed(block)
        };
        let mut torn = block();
        torn[1000] ^= 1;
        let mut unknown = block();
        put(&mut unknown, CSUM_TYPE, &9_u16.to_le_bytes());
        for (block, why) in [
            (vec![0; BYTES], "no superblock"),
            (Vec::new(), "no superblock"),
            (spoilt(BYTENR, &OFFSETS[1].to_le_bytes()), "no superblock"),
            (torn, "is wrong"),
            (unknown, "unknown type"),
            (spoilt(FSID, NEWER.as_bytes()), "another UUID"),
            (spoilt(NUM_DEVICES, &2_u64.to_le_bytes()), "several devices"),
        ] {
            let refused = with_uuid(&block, AT, OLD, NEW).unwrap_err();
            assert!(refused.contains(why), "{refused}: {why}");
        }
    }
}
