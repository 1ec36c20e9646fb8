#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

#[test]
fn the_kernels_words_are_understood() {
    use Kind::*;
    for (text, kind, device, sector) in [
        // 5.10 and 6.x.
        (
            "blk_update_request: critical medium error, dev sda, sector 123456 op 0x0:(READ) flags 0x80700 phys_seg 1 prio class 0",
            MediumError,
            "sda",
            Some(123_456),
        ),
        (
            "critical medium error, dev nvme0n1, sector 8 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2",
            MediumError,
            "nvme0n1",
            Some(8),
        ),
        (
            "I/O error, dev vdb, sector 2048 op 0x1:(WRITE) flags 0x8800 phys_seg 1 prio class 2",
            IoError,
            "vdb",
            Some(2048),
        ),
        (
            "Buffer I/O error on dev dm-3, logical block 16, lost async page write",
            IoError,
            "dm-3",
            None,
        ),
        (
            "critical target error, dev sdb, sector 99 op 0x0:(READ) flags 0x800 phys_seg 1 prio class 2",
            IoError,
            "sdb",
            Some(99),
        ),
        (
            "reservation conflict error, dev sdb, sector 0 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2",
            IoError,
            "sdb",
            Some(0),
        ),
        (
            "Buffer I/O error on device sda1, logical block 12",
            IoError,
            "sda1",
            None,
        ),
        (
            "I/O error, dev sda, sector 18446744073709551615 op 0x1:(WRITE) flags 0x800 phys_seg 0 prio class 2",
            IoError,
            "sda",
            Some(u64::MAX),
        ),
        // A path of native NVMe multipath, which is hidden.
        (
            "I/O error, dev nvme0c1n2, sector 32545872 op 0x0:(READ) flags 0x80700 phys_seg 1 prio class 2",
            IoError,
            "nvme0n2",
            Some(32_545_872),
        ),
        (
            "critical medium error, dev nvme10c11n1, sector 984 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2",
            MediumError,
            "nvme10n1",
            Some(984),
        ),
        (
            "EXT4-fs (sda1): This should not happen!! Data will be lost",
            FilesystemError,
            "sda1",
            None,
        ),
        (
            "EXT4-fs (sda1): failed to convert unwritten extents to written extents -- potential data loss!  (inode 12, error -30)",
            FilesystemError,
            "sda1",
            None,
        ),
        (
            "JBD2: Detected IO errors while flushing file data on dm-3-8",
            FilesystemError,
            "dm-3",
            None,
        ),
        (
            "XFS (dm-2): Corruption warning: Metadata has LSN (1:2736) ahead of current LSN (1:120). Please unmount and run xfs_repair (>= v4.3) to resolve.",
            FilesystemCorrupt,
            "dm-2",
            None,
        ),
        (
            "XFS (dm-2): log mount/recovery failed: error -117",
            FilesystemCorrupt,
            "dm-2",
            None,
        ),
        (
            "XFS (dm-3): Failing async write on buffer block 0x1d4c0. Retrying async write.",
            FilesystemError,
            "dm-3",
            None,
        ),
        (
            "BTRFS: error (device sdb) in __btrfs_free_extent:3116: errno=-2 No such entry",
            FilesystemError,
            "sdb",
            None,
        ),
        (
            "BTRFS: error (device sdb: state A) in btrfs_commit_transaction:2466: errno=-5 IO failure (Error while writing out transaction)",
            FilesystemError,
            "sdb",
            None,
        ),
        (
            "EXT4-fs error (device sda2): ext4_find_entry:1662: inode #2: comm ls: reading directory lblock 0",
            FilesystemError,
            "sda2",
            None,
        ),
        (
            "EXT4-fs error (device dm-0) in ext4_reserve_inode_write:5764: Journal has aborted",
            FilesystemError,
            "dm-0",
            None,
        ),
        (
            "EXT4-fs (sda2): Remounting filesystem read-only",
            FilesystemReadOnly,
            "sda2",
            None,
        ),
        (
            "Aborting journal on device dm-1-8.",
            FilesystemReadOnly,
            "dm-1",
            None,
        ),
        (
            "Aborting journal on device nvme0n1p3-8.",
            FilesystemReadOnly,
            "nvme0n1p3",
            None,
        ),
        (
            "XFS (sdb1): Metadata corruption detected at xfs_dinode_verify.part.0+0x1f1/0x6f0 [xfs], inode 0x83 dinode",
            FilesystemCorrupt,
            "sdb1",
            None,
        ),
        (
            "XFS (dm-2): metadata I/O error in \"xfs_imap_to_bp+0x4f/0x70\" at daddr 0x40 len 32 error 5",
            FilesystemError,
            "dm-2",
            None,
        ),
        (
            "XFS (dm-2): Log I/O Error (0x2) detected at xlog_ioend_work+0x6e/0x70 [xfs] (fs/xfs/xfs_log.c:1378).  Shutting down filesystem.",
            FilesystemShutDown,
            "dm-2",
            None,
        ),
        (
            "XFS (loop1): User initiated shutdown received. Shutting down filesystem",
            FilesystemShutDown,
            "loop1",
            None,
        ),
        (
            "XFS (sdb1): Filesystem has been shut down due to log error (0x2).",
            FilesystemShutDown,
            "sdb1",
            None,
        ),
        (
            "BTRFS warning (device sdc1): csum failed root 5 ino 257 off 0 csum 0x98f94189 expected csum 0x12345678 mirror 1",
            FilesystemCorrupt,
            "sdc1",
            None,
        ),
        (
            "BTRFS info (device sdc1: state E): forced readonly",
            FilesystemReadOnly,
            "sdc1",
            None,
        ),
        (
            "BTRFS info (device sdc1 state EA): forced readonly",
            FilesystemReadOnly,
            "sdc1",
            None,
        ),
        (
            "BTRFS error (device dm-4): bdev /dev/mapper/x errs: wr 1, rd 0, flush 0, corrupt 0, gen 0",
            FilesystemError,
            "dm-4",
            None,
        ),
        (
            "BTRFS critical (device sdc1): corrupt leaf: root=1 block=30556160 slot=0, invalid root",
            FilesystemCorrupt,
            "sdc1",
            None,
        ),
        (
            "nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0xffff",
            DeviceLost,
            "nvme0",
            None,
        ),
        (
            "nvme nvme1: Disabling device after reset failure: -19",
            DeviceLost,
            "nvme1",
            None,
        ),
        (
            "sd 2:0:0:0: [sdc] rejecting I/O to offline device",
            DeviceLost,
            "sdc",
            None,
        ),
    ] {
        let record = format!("3,1234,5678901,-;{text}\n SUBSYSTEM=block\n DEVICE=b8:0");
        let expected = Report {
            kind,
            device: device.into(),
            sector,
        };
        assert_eq!(parse(&record), Some(expected), "{text}");
    }
}

#[test]
fn what_is_no_trouble_is_no_evidence() {
    for text in [
        "EXT4-fs (sda2): mounted filesystem 0b1c with ordered data mode. Quota mode: none.",
        "EXT4-fs (sda2): recovery complete",
        "XFS (sdb1): Mounting V5 Filesystem",
        "XFS (sdb1): Ending clean mount",
        "XFS (sdb1): Starting recovery (logdev: internal)",
        "BTRFS info (device sdc1): using crc32c (crc32c-intel) checksum algorithm",
        "critical target error, dev sdb, sector 3778028504 op 0x3:(DISCARD) flags 0x800 phys_seg 1 prio class 2",
        "I/O error, dev sda, sector 264192 op 0x3:(DISCARD) flags 0x800 phys_seg 1 prio class 2",
        "critical target error, dev sda, sector 2048 op 0x9:(WRITE_ZEROES) flags 0x8000000 phys_seg 0 prio class 2",
        "I/O error, dev sda, sector 0 op 0x5:(SECURE_ERASE) flags 0x800 phys_seg 1 prio class 2",
        "BTRFS error (device sdb): unrecognized mount option 'foo'",
        "BTRFS error (device sdb: state M): open_ctree failed: -22",
        "BTRFS error (device loop0p4): cannot mount because of unsupported optional features (0x10000000000)",
        "BTRFS error (device sda2): scrub: not finished on devid 1 with status: -125",
        "BTRFS error (device sda2): balance: reduces metadata redundancy, use --force if you want this",
        "BTRFS warning (device sdb): devid 2 uuid abc is missing",
        "XFS (sda1): Filesystem has duplicate UUID 3af6518b-8f14-4585-b513-949053e63a4c - can't mount",
        "XFS (sda1): log mount/recovery failed: error -22",
        "XFS (sdb1): Deprecated V4 format (crc=0) will not be supported after September 2030.",
        "EXT4-fs (sda1): error count since last fsck: 3",
        "EXT4-fs (sda1): Unrecognized mount option \"foo\" or missing value",
        "operation not supported error, dev loop0, sector 0 op 0x9:(WRITE_ZEROES) flags 0x800 phys_seg 0 prio class 0",
        "nvme nvme0: 8/0/0 default/read/poll queues",
        "sd 2:0:0:0: [sdc] Attached SCSI disk",
        "",
        "EXT4-fs error",
        "I/O error, dev ",
        "I/O error, dev ../../etc, sector 1",
    ] {
        assert_eq!(parse(&format!("6,1,1,-;{text}\n")), None, "{text}");
    }
}

#[test]
fn what_a_program_wrote_into_the_kernel_log_is_not_the_kernels_word() {
    let text = "EXT4-fs error (device sda2): forged";
    // Facility 1, user.
    assert_eq!(parse(&format!("11,1,1,-;{text}\n")), None);
    assert!(parse(&format!("2,1,1,-;{text}\n")).is_some());
}

proptest! {
    #[test]
    fn any_record_is_read_without_panic(text in ".*") {
        let _ = parse(&text);
        let _ = parse(&format!("3,1,1,-;{text}"));
        let _ = parse(&format!("3,1,1,-;XFS ({text}"));
        let _ = parse(&format!("3,1,1,-;I/O error, dev {text}"));
        let _ = parse(&format!("3,1,1,-;Aborting journal on device {text}"));
    }
}

#[test]
fn a_records_number_and_time_are_read() {
    let stamp = |record| super::stamp(record);
    let micros = std::time::Duration::from_micros;
    assert_eq!(
        stamp("6,339,5140900,-;NET: x"),
        Some((339, micros(5_140_900)))
    );
    assert_eq!(stamp("4,1,2,c,caller=T1;a;b"), Some((1, micros(2))));
    for record in [
        "",
        "6,339",
        "6,339,5140900",
        "6;x",
        "6,a,1,-;x",
        "6,1,b,-;x",
    ] {
        assert_eq!(stamp(record), None, "{record}");
    }
}
