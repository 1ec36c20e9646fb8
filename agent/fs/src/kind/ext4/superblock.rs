//! Parses the few superblock fields that are needed without mounting. Pure. Offsets are those of the kernel's documentation
//! (filesystems/ext4, "Super Block").

const AT: usize = 1024;
const MAGIC: u16 = 0xEF53;
/// s_state: the kernel saw an error in the filesystem.
const ERROR_FS: u16 = 2;
/// s_feature_incompat: the journal must be replayed.
const RECOVER: u32 = 4;
/// s_feature_incompat: the seed of metadata checksums is stored, s_checksum_seed.
const CSUM_SEED: u32 = 0x2000;
/// s_feature_ro_compat: metadata has checksums.
const METADATA_CSUM: u32 = 0x400;
/// s_feature_ro_compat: backups only in groups 0, 1 and powers of 3, 5, 7.
const SPARSE_SUPER: u32 = 1;

/// Little-endian fields of a superblock that begins at `base`.
struct Fields<'a> {
    head: &'a [u8],
    base: usize,
}

impl Fields<'_> {
    fn u16(&self, at: usize) -> Option<u16> {
        let at = self.base + at;
        Some(u16::from_le_bytes(
            self.head.get(at..at + 2)?.try_into().ok()?,
        ))
    }

    fn u32(&self, at: usize) -> Option<u32> {
        let at = self.base + at;
        Some(u32::from_le_bytes(
            self.head.get(at..at + 4)?.try_into().ok()?,
        ))
    }
}

/// Superblock, as far as it is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Superblock {
    /// s_state has EXT4_ERROR_FS: the filesystem needs a check.
    pub errors: bool,
    /// s_feature_incompat has RECOVER: the journal has changes that are not in the filesystem's structures yet.
    pub needs_recovery: bool,
    /// The filesystem was mounted before (s_mtime or s_mnt_count is set).
    pub ever_mounted: bool,
    /// Checksums of metadata are seeded with the UUID: with another UUID, all would change.
    pub seeded_by_uuid: bool,
    pub blocks: u64,
    /// Bytes of a block.
    pub block_size: u64,
    first_data_block: u64,
    blocks_per_group: u64,
    inode_blocks_per_group: u64,
    reserved_gdt_blocks: u64,
    descriptor_size: u64,
    sparse_super: bool,
}

impl Superblock {
    /// True if neither a check nor a replay of the journal will change the structures of the unmounted filesystem.
    pub fn is_settled(&self) -> bool {
        !self.errors && !self.needs_recovery
    }
}

/// Parses the superblock in a device's first bytes, [HEAD_BYTES](crate::device::HEAD_BYTES); None if there is none.
pub fn parse(head: &[u8]) -> Option<Superblock> {
    let sb = Fields { head, base: AT };
    if sb.u16(0x38)? != MAGIC {
        return None;
    }
    let block_size = 1024_u64
        .checked_shl(sb.u32(0x18)?)
        .filter(|&size| (1024..=65536).contains(&size))?;
    let is_64bit = sb.u32(0x60)? & 0x80 != 0;
    let high = if is_64bit {
        u64::from(sb.u32(0x150)?) << 32
    } else {
        0
    };
    let inode_size = u64::from(sb.u16(0x58)?);
    Some(Superblock {
        errors: sb.u16(0x3A)? & ERROR_FS != 0,
        needs_recovery: sb.u32(0x60)? & RECOVER != 0,
        seeded_by_uuid: sb.u32(0x64)? & METADATA_CSUM != 0 && sb.u32(0x60)? & CSUM_SEED == 0,
        ever_mounted: sb.u32(0x2C)? != 0 || sb.u16(0x34)? != 0,
        blocks: high | u64::from(sb.u32(0x4)?),
        block_size,
        first_data_block: u64::from(sb.u32(0x14)?),
        blocks_per_group: u64::from(sb.u32(0x20)?).max(1),
        inode_blocks_per_group: (u64::from(sb.u32(0x28)?) * inode_size).div_ceil(block_size),
        reserved_gdt_blocks: u64::from(sb.u16(0xCE)?),
        descriptor_size: if is_64bit {
            u64::from(sb.u16(0xFE)?).max(32)
        } else {
            32
        },
        sparse_super: sb.u32(0x64)? & SPARSE_SUPER != 0,
    })
}

impl Superblock {
    /// Returns the number of blocks that resize2fs would give the filesystem on a device of this size: whole pages, and no
    /// last group that is too small to hold its own metadata (resize2fs drops such a group).
    pub fn blocks_on(&self, device_bytes: u64) -> u64 {
        const PAGE: u64 = 4096;
        let blocks = device_bytes / PAGE * PAGE / self.block_size;
        let in_groups = blocks.saturating_sub(self.first_data_block);
        let groups = in_groups.div_ceil(self.blocks_per_group);
        let rest = in_groups % self.blocks_per_group;
        let mut overhead = 2 + self.inode_blocks_per_group;
        if self.has_backup(groups.saturating_sub(1)) {
            overhead += 1
                + groups
                    .saturating_mul(self.descriptor_size)
                    .div_ceil(self.block_size)
                + self.reserved_gdt_blocks;
        }
        if groups > 1 && rest > 0 && rest < overhead + 50 {
            blocks - rest
        } else {
            blocks
        }
    }

    fn has_backup(&self, group: u64) -> bool {
        let power_of = |base: u64| {
            let mut n = base;
            while n < group {
                n = n.saturating_mul(base);
            }
            n == group
        };
        !self.sparse_super || group <= 1 || [3, 5, 7].into_iter().any(power_of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{device::HEAD_BYTES, kind::of};
    use drivebay_model::FsType;

    /// 4 KiB blocks, 32,768 a group, as mke2fs makes them.
    fn head(blocks: u32) -> Vec<u8> {
        let mut head = vec![0_u8; HEAD_BYTES];
        let mut put = |at: usize, bytes: &[u8]| {
            head[1024 + at..1024 + at + bytes.len()].copy_from_slice(bytes)
        };
        put(0x38, &MAGIC.to_le_bytes());
        put(0x4, &blocks.to_le_bytes());
        put(0x18, &2_u32.to_le_bytes());
        put(0x20, &32768_u32.to_le_bytes());
        put(0x28, &8192_u32.to_le_bytes());
        put(0x58, &256_u16.to_le_bytes());
        put(0x64, &SPARSE_SUPER.to_le_bytes());
        head
    }

    #[test]
    fn the_error_flag_is_detected() {
        let mut head = head(1000);
        assert!(!parse(&head).unwrap().errors);
        head[1024 + 0x3A] = 1;
        assert!(!parse(&head).unwrap().errors, "clean is not an error");
        head[1024 + 0x3A] = 3;
        assert!(parse(&head).unwrap().errors);
        assert!(!parse(&head).unwrap().is_settled());
    }

    #[test]
    fn a_journal_that_is_not_replayed_is_detected() {
        let mut head = head(1000);
        assert!(parse(&head).unwrap().is_settled());
        // extents and filetype, as every ext4 has.
        head[1024 + 0x60] = 0x42;
        assert!(parse(&head).unwrap().is_settled());
        head[1024 + 0x60] = 0x46;
        assert!(!parse(&head).unwrap().is_settled());
    }

    #[test]
    fn only_checksums_without_a_stored_seed_begin_with_the_uuid() {
        for (incompat, ro_compat, expected) in [
            (0, 0, false),
            (0, METADATA_CSUM, true),
            (CSUM_SEED, METADATA_CSUM, false),
            (CSUM_SEED, 0, false),
        ] {
            let mut head = head(1000);
            head[1024 + 0x60..][..4].copy_from_slice(&incompat.to_le_bytes());
            head[1024 + 0x64..][..4].copy_from_slice(&ro_compat.to_le_bytes());
            let seeded = parse(&head).unwrap().seeded_by_uuid;
            assert_eq!(seeded, expected, "{incompat:x} {ro_compat:x}");
        }
    }

    #[test]
    fn a_group_too_small_for_its_metadata_does_not_count() {
        let sb = parse(&head(32768 * 4)).unwrap();
        let block = 4096;
        assert_eq!(sb.blocks_on(32768 * 4 * block), 32768 * 4);
        assert_eq!(
            sb.blocks_on((32768 * 4 + 10) * block),
            32768 * 4,
            "ten blocks are no group"
        );
        assert_eq!(sb.blocks_on((32768 * 4 + 8192) * block), 32768 * 4 + 8192);
        assert_eq!(sb.blocks_on(100 * block), 100);
    }

    #[test]
    fn only_what_was_never_mounted_is_unfinished() {
        let mut ext = head(1000);
        assert!(of(FsType::Ext4).is_unfinished(&ext));
        ext[1024 + 0x34] = 1;
        assert!(!of(FsType::Ext4).is_unfinished(&ext));
        let mut xfs = vec![0_u8; HEAD_BYTES];
        assert!(!of(FsType::Xfs).is_unfinished(&xfs));
        xfs[..4].copy_from_slice(b"XFSB");
        assert!(!of(FsType::Xfs).is_unfinished(&xfs));
        xfs[126] = 1;
        assert!(of(FsType::Xfs).is_unfinished(&xfs));
        assert!(!of(FsType::Btrfs).is_unfinished(&xfs));
    }

    #[test]
    fn nonsense_is_no_superblock() {
        assert_eq!(parse(&[]), None);
        assert_eq!(parse(&[0; HEAD_BYTES]), None);
        assert_eq!(parse(&vec![0xFF; HEAD_BYTES]), None);
    }
}
