//! The record of a drive's free space: which of it is zeros, and whether the drive zeroes on
//! command.
//!
//! It is kept on the drive, because it is valid on every node to which the drive is moved, and
//! beside the label, because it changes with each volume: in layout `lvm` a tag would cost an LVM
//! command each time. Losing it loses no data: nothing counts as zeroed then, and is zeroed again.
//!
//! A run is listed once it was zeroed, flushed and read back, and removed before a volume gets a
//! part of it; each version is durable before it is acted upon. So listed bytes are free, and
//! zeros.
//!
//! # Format
//! Two slots of 4 KiB, little-endian. Layout `partition`: the last 4 KiB of each slot of the label. Layout `lvm`: the last
//! 4 KiB of each half of the PV's bootloader area, which LVM leaves alone.
//!
//! | bytes        | what                                                              |
//! |--------------|-------------------------------------------------------------------|
//! | 0..8         | magic: `DRVBAYSP`                                                 |
//! | 8..12        | format: 1. One that is not known says nothing                     |
//! | 12..16       | number of runs                                                    |
//! | 16..24       | sequence; the valid slot with the higher one wins                 |
//! | 24..40       | UUID that the drive got at its claim: no other claim's is believed |
//! | 40..44       | 0: zeroes on command; 1: zeros are written; 2: they do not hold   |
//! | 44..64       | zeros                                                             |
//! | 64..         | runs: first byte, number of bytes                                 |
//! | last 4 bytes | CRC-32 (IEEE 802.3) of all before                                 |

use std::io;

use uuid::Uuid;

use super::device::{Device, Medium};
use drivebay_model::{Extent, Space, Zeroing, runs};

/// Bytes of a slot.
pub(super) const SLOT: u64 = 4 * 1024;
/// Byte offsets of the two slots.
pub(super) type Slots = [u64; 2];

const MAGIC: &[u8; 8] = b"DRVBAYSP";
const FORMAT: u32 = 1;
const HEADER: usize = 64;
/// Runs that fit into a slot. If there are more, the smallest are dropped, and zeroed again.
const MOST_RUNS: usize = (SLOT as usize - HEADER - 4) / 16;

/// Returns the record that was written under this claim of the drive. Without a valid slot nothing
/// counts as zeroed.
pub(super) fn read<D: Medium + ?Sized>(dev: &D, slots: Slots, drive: Uuid) -> Space {
    newest(dev, slots, drive)
        .map(|(_, space)| space)
        .unwrap_or_default()
}

fn newest<D: Medium + ?Sized>(dev: &D, slots: Slots, drive: Uuid) -> Option<(u64, Space)> {
    let read = |at| {
        let mut raw = vec![0; SLOT as usize];
        // A slot that cannot be read is not valid.
        dev.read_at(at, &mut raw).ok()?;
        decode(&raw, drive)
    };
    let versions = slots.into_iter().filter_map(read);
    versions.max_by_key(|(sequence, _)| *sequence)
}

/// Writes the record to both slots, one after the other, each flushed and verified by reading back.
pub(super) fn write<D: Device + ?Sized>(
    dev: &D,
    slots: Slots,
    drive: Uuid,
    space: &Space,
) -> io::Result<()> {
    let sequence = newest(dev, slots, drive).map_or(1, |(sequence, _)| sequence.wrapping_add(1));
    let raw = encode(sequence, drive, space);
    for at in slots {
        let mut back = vec![0; raw.len()];
        dev.write_at(at, &raw)?;
        dev.flush()?;
        dev.read_at(at, &mut back)?;
        if back != raw {
            return Err(io::Error::other("it did not read back as written"));
        }
    }
    Ok(())
}

fn encode(sequence: u64, drive: Uuid, space: &Space) -> Vec<u8> {
    let mut kept = runs::joined(space.zeroed.clone());
    kept.sort_by_key(|run| std::cmp::Reverse(run.len));
    kept.truncate(MOST_RUNS);
    kept.sort_unstable();
    let zeroing: u32 = match space.zeroing {
        Zeroing::Command => 0,
        Zeroing::Written => 1,
        Zeroing::Fails => 2,
    };
    let mut raw = Vec::with_capacity(SLOT as usize);
    raw.extend(MAGIC);
    raw.extend(FORMAT.to_le_bytes());
    raw.extend(u32::try_from(kept.len()).unwrap_or(0).to_le_bytes());
    raw.extend(sequence.to_le_bytes());
    raw.extend(drive.as_bytes());
    raw.extend(zeroing.to_le_bytes());
    raw.resize(HEADER, 0);
    for run in kept {
        raw.extend(run.start.to_le_bytes());
        raw.extend(run.len.to_le_bytes());
    }
    raw.resize(SLOT as usize - 4, 0);
    raw.extend(crc32fast::hash(&raw).to_le_bytes());
    raw
}

fn decode(raw: &[u8], drive: Uuid) -> Option<(u64, Space)> {
    let (body, crc) = raw.split_last_chunk::<4>()?;
    if !raw.starts_with(MAGIC) {
        return None;
    }
    if crc32fast::hash(body) != u32::from_le_bytes(*crc) {
        return None;
    }
    let u32_at = |at: usize| Some(u32::from_le_bytes(*raw.get(at..)?.first_chunk()?));
    let u64_at = |at: usize| Some(u64::from_le_bytes(*raw.get(at..)?.first_chunk()?));
    if u32_at(8)? != FORMAT || raw.get(24..40)? != drive.as_bytes() {
        return None;
    }
    let count = usize::try_from(u32_at(12)?).ok()?;
    let zeroing = match u32_at(40)? {
        0 => Zeroing::Command,
        1 => Zeroing::Written,
        2 => Zeroing::Fails,
        _ => return None,
    };
    let zeroed = (0..count.min(MOST_RUNS)).map(|n| {
        let at = HEADER + 16 * n;
        let (start, len) = (u64_at(at)?, u64_at(at + 8)?);
        Some(Extent { start, len })
    });
    let zeroed = zeroed.collect::<Option<_>>()?;
    Some((u64_at(16)?, Space { zeroed, zeroing }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeDrive;
    use drivebay_model::MIB;

    const SLOTS: Slots = [MIB, 3 * MIB];

    fn space(zeroing: Zeroing, all: &[(u64, u64)]) -> Space {
        let run = |(start, len): &(u64, u64)| Extent {
            start: start * MIB,
            len: len * MIB,
        };
        Space {
            zeroed: all.iter().map(run).collect(),
            zeroing,
        }
    }

    #[test]
    fn what_is_kept_reads_back_and_is_believed_of_its_own_claim_only() {
        let drive = FakeDrive::new(64 * MIB, 4096);
        let id = Uuid::new_v4();
        assert_eq!(read(&drive, SLOTS, id), Space::default());
        for zeroing in [Zeroing::Command, Zeroing::Written, Zeroing::Fails] {
            let kept = space(zeroing, &[(8, 4), (20, 1)]);
            write(&drive, SLOTS, id, &kept).unwrap();
            assert_eq!(read(&drive, SLOTS, id), kept);
            assert_eq!(read(&drive, SLOTS, Uuid::new_v4()), Space::default());
        }
        // Either slot may be lost; without both, nothing counts as zeroed.
        drive.rot(SLOTS[0] + 70, 1);
        assert_eq!(read(&drive, SLOTS, id).zeroed.len(), 2);
        drive.rot(SLOTS[1] + 70, 1);
        assert_eq!(read(&drive, SLOTS, id), Space::default());
    }

    #[test]
    fn a_power_cut_leaves_the_version_before_or_the_new_one_and_what_was_acknowledged_stays() {
        let drive = FakeDrive::new(64 * MIB, 512);
        let id = Uuid::new_v4();
        let (old, new) = (
            space(Zeroing::Command, &[(8, 40)]),
            space(Zeroing::Command, &[(24, 24)]),
        );
        write(&drive, SLOTS, id, &old).unwrap();
        drive.settle();
        write(&drive, SLOTS, id, &new).unwrap();
        drive.mark(1);
        for at in 0..=drive.log_len() {
            for kept in [false, true] {
                let mut n = 0;
                let (after, mark) = drive.after_cut(at, || {
                    n += 1;
                    kept && n % 2 == 0
                });
                let now = read(&after, SLOTS, id);
                assert!(now == old || now == new, "{at}: {now:?}");
                assert!(mark.is_none() || now == new, "{at}");
            }
        }
    }

    #[test]
    fn of_too_many_runs_the_smallest_are_let_go() {
        let drive = FakeDrive::new(64 * MIB, 512);
        let id = Uuid::new_v4();
        let run = |n: u64| Extent {
            start: n * 10 * MIB,
            len: MIB + n,
        };
        let all = Space {
            zeroed: (0..MOST_RUNS as u64 + 5).map(run).collect(),
            zeroing: Zeroing::Command,
        };
        write(&drive, SLOTS, id, &all).unwrap();
        assert_eq!(read(&drive, SLOTS, id).zeroed, all.zeroed[5..]);
    }
}
