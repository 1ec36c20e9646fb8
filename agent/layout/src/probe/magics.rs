//! Signatures that libblkid does not know, or accepts only with more evidence: searched for in the
//! first and last MiB, deliberately with less evidence than the format's own tools require. A false
//! positive refuses a free drive; a false negative destroys data.

use drivebay_model::Signature;

/// Searches for signatures. `head` are the first bytes of a device of `size` bytes, `tail` its last
/// ones (they may overlap).
pub fn find(size: u64, head: &[u8], tail: &[u8]) -> Vec<Signature> {
    let view = View { size, head, tail };
    [bluestore, zfs, lvm, md, drbd, stratis]
        .iter()
        .filter_map(|detector| detector(&view))
        .collect()
}

struct View<'a> {
    size: u64,
    head: &'a [u8],
    tail: &'a [u8],
}

impl View<'_> {
    /// Returns the bytes at an offset; None if they are not in `head` or `tail`.
    fn at(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let tail_start = self.size.checked_sub(self.tail.len() as u64)?;
        let range = |start: u64| {
            let from = usize::try_from(offset.checked_sub(start)?).ok()?;
            Some(from..from.checked_add(len)?)
        };
        range(0)
            .and_then(|range| self.head.get(range))
            .or_else(|| range(tail_start).and_then(|range| self.tail.get(range)))
    }

    fn begins(&self, offset: u64, magic: &[u8]) -> bool {
        self.at(offset, magic.len()) == Some(magic)
    }
}

fn signature(kind: &str, usage: &str, offset: u64) -> Option<Signature> {
    Some(Signature {
        kind: kind.to_owned(),
        usage: usage.to_owned(),
        uuid: String::new(),
        label: String::new(),
        offset: Some(offset),
    })
}

/// Ceph writes these 22 bytes first; libblkid before 2.38 does not know them.
fn bluestore(view: &View<'_>) -> Option<Signature> {
    view.begins(0, b"bluestore block device")
        .then(|| signature("ceph_bluestore", "other", 0))?
}

const KIB: u64 = 1024;
/// Magic of an uberblock, in the byte order of the host that wrote it.
const UBERBLOCK: u64 = 0x00ba_b10c;

/// ZFS has four labels of 256 KiB, two at each end. libblkid requires several uberblocks; here the
/// header of a label's name-value list, or a single uberblock, is enough.
fn zfs(view: &View<'_>) -> Option<Signature> {
    const LABEL: u64 = 256 * KIB;
    let end = view.size / LABEL * LABEL;
    let labels = [
        Some(0),
        Some(LABEL),
        end.checked_sub(2 * LABEL),
        end.checked_sub(LABEL),
    ];
    labels.into_iter().flatten().find_map(|label| {
        // XDR, in either byte order of the writer; version 0, unique names.
        let list = view.at(label + 16 * KIB, 12).is_some_and(|head| {
            head[0] == 1 && head[1] <= 1 && head[2..] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 1]
        });
        let uberblock = (0..128)
            .map(|slot| label + 128 * KIB + slot * KIB)
            .find(|at| {
                view.begins(*at, &UBERBLOCK.to_le_bytes())
                    || view.begins(*at, &UBERBLOCK.to_be_bytes())
            });
        let at = if list {
            Some(label + 16 * KIB)
        } else {
            uberblock
        };
        at.and_then(|at| signature("zfs_member", "filesystem", at))
    })
}

/// LVM writes its label to one of the first four sectors; libblkid also checks its checksum.
fn lvm(view: &View<'_>) -> Option<Signature> {
    (0..4)
        .map(|sector| sector * 512)
        .find(|at| view.begins(*at, b"LABELONE"))
        .and_then(|at| signature("LVM2_member", "raid", at))
}

/// md: 1.1 at the start, 1.2 at 4 KiB, 1.0 and 0.90 at the end. libblkid rejects a superblock that
/// does not name its own place (an image that was moved).
fn md(view: &View<'_>) -> Option<Signature> {
    const MAGIC: u32 = 0xa92b_4efc;
    let sectors = view.size / 512;
    let places = [
        Some(0),
        Some(4 * KIB),
        sectors.checked_sub(16).map(|sector| (sector & !7) * 512),
        (view.size & !(64 * KIB - 1)).checked_sub(64 * KIB),
    ];
    places
        .into_iter()
        .flatten()
        .find(|at| view.begins(*at, &MAGIC.to_le_bytes()) || view.begins(*at, &MAGIC.to_be_bytes()))
        .and_then(|at| signature("linux_raid_member", "raid", at))
}

/// DRBD's internal metadata is the last 4 KiB block; versions 8.0 to 9 have the magic at different
/// places in it.
fn drbd(view: &View<'_>) -> Option<Signature> {
    let block = (view.size & !(4 * KIB - 1)).checked_sub(4 * KIB)?;
    view.at(block, 512)?
        .chunks_exact(4)
        .any(|word| word[..3] == [0x83, 0x74, 0x02] && (0x67..=0x6d).contains(&word[3]))
        .then(|| signature("drbd", "raid", block))?
}

/// Stratis has its signature blocks in sectors 1 and 9; libblkid requires valid checksums.
fn stratis(view: &View<'_>) -> Option<Signature> {
    [1, 9]
        .map(|sector| sector * 512 + 4)
        .into_iter()
        .find(|at| view.begins(*at, b"!Stra0tis\x86\xff\x02^\x41rh"))
        .and_then(|at| signature("stratis", "other", at))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = 8 << 20;

    fn kinds(bytes: &[(usize, &[u8])]) -> Vec<String> {
        let mut image = vec![0_u8; SIZE];
        for (at, data) in bytes {
            image[*at..*at + data.len()].copy_from_slice(data);
        }
        find(SIZE as u64, &image[..1 << 20], &image[SIZE - (1 << 20)..])
            .into_iter()
            .map(|one| one.kind)
            .collect()
    }

    #[test]
    fn zeros_have_none() {
        assert!(kinds(&[]).is_empty());
        assert!(
            find(512, &[0; 512], &[0; 512]).is_empty(),
            "tiny devices are no trouble"
        );
    }

    #[test]
    fn each_place_of_each_magic_is_read() {
        let md = 0xa92b_4efc_u32.to_le_bytes();
        let nvlist = [1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        for (at, magic, kind) in [
            (0, &b"bluestore block device\n"[..], "ceph_bluestore"),
            (0x4000, &nvlist, "zfs_member"),
            (SIZE - 512 * 1024 + 0x4000, &nvlist, "zfs_member"),
            (
                SIZE - 128 * 1024,
                &0x00ba_b10c_u64.to_be_bytes(),
                "zfs_member",
            ),
            (1024, b"LABELONE", "LVM2_member"),
            (0, &md, "linux_raid_member"),
            (4096, &md, "linux_raid_member"),
            (SIZE - 8192, &md, "linux_raid_member"),
            (SIZE - 65536, &md, "linux_raid_member"),
            (9 * 512 + 4, b"!Stra0tis\x86\xff\x02^\x41rh", "stratis"),
            (SIZE - 4096 + 60, &[0x83, 0x74, 0x02, 0x6b], "drbd"),
        ] {
            assert_eq!(kinds(&[(at, magic)]), [kind], "{kind} at {at}");
        }
    }
}
