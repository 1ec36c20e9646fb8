//! Searches for data that a recovery tool would still find on a drive without current signatures:
//! tables that libblkid does not know, filesystems at the usual starts of partitions, and backups
//! of superblocks. Used if a class requires drives without a signature; if it requires blank ones,
//! they are read for any data instead.

use drivebay_model::{GIB, MIB, Signature};
use drivebay_sys::blkid::USAGE_TABLE;

/// Usual starts of the first partition, bytes: of DOS (sector 63), and of all later tools.
pub(super) const FIRST_PARTITIONS: [u64; 2] = [63 * 512, MIB];

const SECTOR: u64 = 512;
/// Reads must begin at a multiple of it: whole sectors of any size.
const BLOCK: u64 = 4096;
/// Number of sectors of which one has RDSK.
const AMIGA_SECTORS: u64 = 16;
const BSD: [u8; 4] = 0x8256_4557_u32.to_le_bytes();
const BSD_SWAPPED: [u8; 4] = 0x8256_4557_u32.to_be_bytes();

/// Searches a drive of `size` bytes. `read` returns the bytes at an offset, of the given length;
/// its errors are returned.
pub fn find<E>(
    size: u64,
    read: &mut dyn FnMut(u64, usize) -> Result<Vec<u8>, E>,
) -> Result<Option<Signature>, E> {
    if size < AMIGA_SECTORS * SECTOR {
        return Ok(None);
    }
    let head = read(0, (AMIGA_SECTORS * SECTOR) as usize)?;
    if let Some((kind, at)) = table(&head) {
        return Ok(Some(signature(kind, USAGE_TABLE, at)));
    }
    for (kind, at, magic_at, magic) in backups(size) {
        let start = at / BLOCK * BLOCK;
        let bytes = read(start, (2 * BLOCK).min(size - start) as usize)?;
        let skip = (at - start + magic_at) as usize;
        if bytes
            .get(skip..)
            .is_some_and(|part| part.starts_with(magic))
        {
            return Ok(Some(signature(kind, "filesystem", at)));
        }
    }
    Ok(None)
}

fn signature(kind: &str, usage: &str, offset: u64) -> Signature {
    Signature {
        kind: kind.to_owned(),
        usage: usage.to_owned(),
        uuid: String::new(),
        label: String::new(),
        offset: Some(offset),
    }
}

/// Searches the first sectors for a table, as GNU parted and the systems themselves write them.
fn table(head: &[u8]) -> Option<(&'static str, u64)> {
    let has = |at: u64, magic: &[u8]| {
        let part = usize::try_from(at).ok().and_then(|at| head.get(at..));
        part.is_some_and(|part| part.starts_with(magic))
    };
    let sectors = || (0..AMIGA_SECTORS).map(|sector| sector * SECTOR);
    let bsd = [0, 64, SECTOR, 8 * SECTOR];
    if let Some(at) = bsd
        .into_iter()
        .find(|at| has(*at, &BSD) || has(*at, &BSD_SWAPPED))
    {
        return Some(("bsd", at));
    }
    if let Some(at) = sectors().find(|at| has(*at, b"RDSK")) {
        return Some(("amiga", at));
    }
    if has(0, b"GNU Parted Loopback") {
        return Some(("loop", 0));
    }
    // The Atari's own tables have no magic. GNU parted's have one, and a partition has an id of
    // three letters.
    let first = head.get(..SECTOR as usize)?;
    let by_parted = first.windows(11).any(|part| part == b"PARTEDATARI");
    let by_partition = (0..4).any(|entry| {
        let entry = first.get(0x1c6 + 12 * entry..).unwrap_or_default();
        matches!(entry, [flag, a, b, c, ..] if flag & 1 == 1
            && [a, b, c].iter().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit()))
    });
    (by_parted || by_partition).then_some(("atari", 0x1c6))
}

/// Returns the places of superblocks' backups: kind, offset, offset of the magic within it, and the
/// magic.
fn backups(size: u64) -> Vec<(&'static str, u64, u64, &'static [u8])> {
    let mut places: Vec<(&'static str, u64, u64, &'static [u8])> = Vec::new();
    // ext2/3/4: the first block of groups 1, 3, 5, 7 (sparse_super); a group has 8 × block size blocks.
    for block in [1024_u64, 2048, 4096] {
        let first = u64::from(block == 1024);
        for group in [1, 3, 5, 7] {
            let at = (group * 8 * block + first) * block;
            places.push(("ext4", at, 56, &[0x53, 0xef]));
        }
    }
    // btrfs: 64 MiB and 256 GiB.
    for at in [64 * MIB, 256 * 1024 * MIB] {
        places.push(("btrfs", at, 64, b"_BHRfS_M"));
    }
    // XFS: each allocation group begins with one. mkfs makes 4 of up to 1 TiB each, 2 on very small drives, and more on arrays.
    for block in [4096_u64, 1024, 2048, 512] {
        let blocks = size / block;
        for groups in [4_u64, 2, 8, 16, 32] {
            for len in [blocks / groups, blocks.div_ceil(groups)] {
                places.push(("xfs", len * block, 0, b"XFSB"));
            }
        }
    }
    // mkfs.xfs's largest group: 1 TiB less a block.
    places.push(("xfs", 1024 * 1024 * MIB - 4096, 0, b"XFSB"));
    places.extend(others(size));
    places.retain(|(_, at, skip, magic)| at + skip + magic.len() as u64 <= size);
    places.sort_by_key(|place| place.1);
    places.dedup();
    places
}

/// Returns further offsets at which a drive that must be blank is read.
pub(super) fn places(size: u64) -> impl Iterator<Item = u64> {
    backups(size).into_iter().map(|(_, at, ..)| at)
}

/// Returns superblocks and their copies that libblkid does not search for, or accepts only with
/// more evidence.
fn others(size: u64) -> Vec<(&'static str, u64, u64, &'static [u8])> {
    const BCACHEFS: [&[u8]; 2] = [
        &[
            0xc6, 0x85, 0x73, 0xf6, 0x66, 0xce, 0x90, 0xa9, 0xd9, 0x6a, 0x60, 0xcf, 0x80, 0x3d,
            0xf7, 0xef,
        ],
        &[
            0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca, 0x82, 0x65, 0xf5, 0x7f, 0x48, 0xba,
            0x6d, 0x81,
        ],
    ];
    let sectors = size / SECTOR;
    // Counted from the end; 0 is the last sector.
    let from_end = |n: u64| sectors.saturating_sub(n + 1) * SECTOR;
    let mut places: Vec<(&'static str, u64, u64, &'static [u8])> = vec![
        ("geom", from_end(0), 0, b"GEOM::"),
        ("ntfs", from_end(0), 3, b"NTFS    "),
        ("ntfs", sectors / 2 * SECTOR, 3, b"NTFS    "),
        ("jfs", 0x8000, 0, b"JFS1"),
        ("jfs", 0xf000, 0, b"JFS1"),
        ("f2fs", 0x400, 0, &[0x10, 0x20, 0xf5, 0xf2]),
        ("f2fs", 0x1400, 0, &[0x10, 0x20, 0xf5, 0xf2]),
        (
            "nilfs2",
            (size / BLOCK).saturating_sub(1) * BLOCK,
            6,
            &[0x34, 0x34],
        ),
        ("sun", 0, 508, &[0xda, 0xbe]),
        ("vtoc", SECTOR, 12, &[0xee, 0xde, 0x0d, 0x60]),
        ("vxvm", 128 * SECTOR, 0, b"PRIV"),
        (
            "adaptec_raid_member",
            from_end(0),
            0,
            &[0x37, 0xfc, 0x4d, 0x1e],
        ),
    ];
    // Labels of Ceph's bluestore: 0, 1, 10, 100 and 1000 GiB.
    for gib in [0, 1, 10, 100, 1000] {
        places.push(("ceph_bluestore", gib * GIB, 0, b"bluestore block device"));
    }
    // Copies of boot sectors, for either size of sectors.
    for sector in [512, 4096] {
        places.push(("exfat", 12 * sector, 3, b"EXFAT   "));
        places.push(("vfat", 6 * sector, 0x52, b"FAT32   "));
    }
    for magic in [b"H+", b"HX", b"BD"] {
        places.push(("hfsplus", from_end(1), 0, magic));
    }
    // Windows' dynamic disks: a header in sector 6, and the database in the last MiB.
    for at in [6 * SECTOR, from_end(0), from_end(191)] {
        places.push(("ldm", at, 0, b"PRIVHEAD"));
    }
    for n in [2046, 2045, 2, 1] {
        places.push(("ldm", from_end(n), 0, b"TOCBLOCK"));
    }
    places.push(("ldm", from_end(2030), 0, b"VMDB"));
    // bcachefs: at 4 KiB, 1 MiB behind that, and in the last whole MiB of buckets.
    for magic in BCACHEFS {
        places.extend([4096, 4096 + MIB].map(|at| ("bcachefs", at, 24, magic)));
        for bucket in [SECTOR, MIB / 8, MIB / 4, MIB / 2, MIB, 2 * MIB] {
            let at = (size / bucket * bucket).saturating_sub(MIB);
            places.push(("bcachefs", at, 24, magic));
        }
    }
    // Sun's backups: the first odd sectors of the last track, in the geometries that are assumed
    // for drives.
    for (heads, track) in [(255, 63), (16, 63), (64, 32)] {
        let last = sectors / (heads * track) * heads * track;
        let at = |odd: u64| last.saturating_sub(track) + odd;
        places.extend([1, 3, 5, 7, 9].map(|odd| ("sun", at(odd) * SECTOR, 508, &[0xda, 0xbe][..])));
    }
    places
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    const SIZE: u64 = 300 * MIB;

    /// Returns the signature that is found on a drive of zeros with these bytes.
    fn find_signature(at: u64, bytes: &[u8]) -> Option<(String, u64)> {
        let mut read = |offset: u64, len: usize| {
            let mut out = vec![0; len];
            for (place, byte) in (at..).zip(bytes) {
                if (offset..offset + len as u64).contains(&place) {
                    out[(place - offset) as usize] = *byte;
                }
            }
            assert!(offset + len as u64 <= SIZE, "read beyond the end");
            Ok::<_, Infallible>(out)
        };
        let Ok(one) = find(SIZE, &mut read);
        one.map(|one| (one.kind, one.offset.unwrap()))
    }

    #[test]
    fn labels_of_bluestore_are_searched_for_as_far_as_they_lie() {
        let at: Vec<u64> = places(4000 * GIB).filter(|at| at % GIB == 0).collect();
        for gib in [0, 1, 10, 100, 1000] {
            assert!(at.contains(&(gib * GIB)), "{gib}");
        }
    }

    #[test]
    fn each_table_and_each_backup_is_found_and_zeros_are_nothing() {
        assert_eq!(find_signature(0, &[0; 512]), None);
        for (at, bytes, kind) in [
            (64, &BSD[..], "bsd"),
            (512, &BSD_SWAPPED[..], "bsd"),
            (1024, b"RDSK", "amiga"),
            (0, b"GNU Parted Loopback 0", "loop"),
            (0x1d3, b"PARTEDATARI", "atari"),
            (0x1c6, &[1, b'L', b'N', b'X'], "atari"),
            (8193 * 1024 + 56, &[0x53, 0xef], "ext4"),
            (3 * 8192 * 1024 + 1024 + 56, &[0x53, 0xef], "ext4"),
            (128 * MIB + 56, &[0x53, 0xef], "ext4"),
            (64 * MIB + 64, b"_BHRfS_M", "btrfs"),
            (SIZE - 512, b"GEOM::ELI", "geom"),
            (SIZE - 512 + 3, b"NTFS    ", "ntfs"),
            (0xf000, b"JFS1", "jfs"),
            (0x1400, &[0x10, 0x20, 0xf5, 0xf2], "f2fs"),
            (SIZE - 4096 + 6, &[0x34, 0x34], "nilfs2"),
            (508, &[0xda, 0xbe], "sun"),
            (512 + 12, &[0xee, 0xde, 0x0d, 0x60], "vtoc"),
            (12 * 512 + 3, b"EXFAT   ", "exfat"),
            (6 * 4096 + 0x52, b"FAT32   ", "vfat"),
            (SIZE - 1024, b"H+", "hfsplus"),
            (SIZE - MIB + 512, b"TOCBLOCK", "ldm"),
            (SIZE - 512, b"PRIVHEAD", "ldm"),
            (65536, b"PRIV", "vxvm"),
            (SIZE - 512, &[0x37, 0xfc, 0x4d, 0x1e], "adaptec_raid_member"),
            (
                4096 + MIB + 24,
                &[
                    0xc6, 0x85, 0x73, 0xf6, 0x66, 0xce, 0x90, 0xa9, 0xd9, 0x6a, 0x60, 0xcf, 0x80,
                    0x3d, 0xf7, 0xef,
                ],
                "bcachefs",
            ),
            (SIZE / 4, b"XFSB", "xfs"),
            (SIZE / 2, b"XFSB", "xfs"),
        ] {
            let one = find_signature(at, bytes).unwrap_or_else(|| panic!("{kind} at {at}"));
            assert_eq!(one.0, kind, "at {at}");
        }
    }
}
