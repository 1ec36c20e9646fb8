//! Texts of the kernel and udev: the kernel log, mounts, events of devices and filesystems, identities that drives report.

use std::{os::unix::ffi::OsStrExt, path::Path};

use super::{Target, seeds};
use drivebay_evidence::kmsg;
use drivebay_fs::kind::ext4::superblock;
use drivebay_model::FsType;
use drivebay_sys::{
    fanotify, mountinfo,
    sysfs::{identity, vpd},
    uevent,
};

pub(super) fn targets() -> Vec<Target> {
    vec![
        Target {
            name: "kmsg",
            run: kmsg,
            seeds: records,
            replays: 2000,
        },
        Target {
            name: "mountinfo",
            run: mounts,
            seeds: mount_tables,
            replays: 2000,
        },
        Target {
            name: "uevents",
            run: uevents,
            seeds: || {
                seeds([
                    &b"change@/devices/virtual/block/loop0/loop0p1\0ACTION=change\0SUBSYSTEM=block\0DEVTYPE=partition\0"[..],
                    b"add@/devices/x\0SUBSYSTEM=net\0",
                    b"libudev\0\xfe\xed\xca\xfe",
                ])
            },
            replays: 2000,
        },
        Target {
            name: "fanotify",
            run: fanotify,
            seeds: events,
            replays: 2000,
        },
        Target {
            name: "vpd",
            run: vpd,
            seeds: pages,
            replays: 2000,
        },
        Target {
            name: "superblocks",
            run: superblocks,
            seeds: heads,
            replays: 2000,
        },
    ]
}

fn records() -> Vec<Vec<u8>> {
    seeds([
        "3,1234,5678901,-;critical medium error, dev sda, sector 2048 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2\n SUBSYSTEM=block\n DEVICE=b8:0",
        "3,1,2,-;I/O error, dev loop1, sector 40960 op 0x1:(WRITE) flags 0x800 phys_seg 1 prio class 0",
        "3,1,2,-;Buffer I/O error on dev dm-3, logical block 7, lost async page write",
        "2,1,2,-;EXT4-fs error (device sda2): ext4_lookup:1826: inode #2: comm ls: iget: checksum invalid",
        "2,1,2,-;EXT4-fs (sda2): Remounting filesystem read-only",
        "3,1,2,-;Aborting journal on device dm-0-8.",
        "1,1,2,-;XFS (sdb1): Metadata CRC error detected at xfs_agf_read_verify+0x70/0x120 [xfs], xfs_agf block 0x1",
        "2,1,2,-;BTRFS error (device loop0: state EA): parent transid verify failed on logical 30408704",
        "4,1,2,-;nvme nvme0: Device not ready; aborting reset, CSTS=0x1",
        "6,1,2,-;sd 2:0:0:0: [sdc] rejecting I/O to offline device",
        "12,9,9,-;a program's own words",
    ])
}

/// Asserts that a report names a device as the kernel does, for any line.
fn kmsg(data: &[u8]) {
    let record = String::from_utf8_lossy(data);
    let _ = kmsg::stamp(&record);
    if let Some(report) = kmsg::parse(&record) {
        let name = report.device.as_bytes();
        assert!((1..=32).contains(&name.len()), "{report:?}");
        assert!(
            !name
                .iter()
                .any(|byte| byte.is_ascii_control() || b" /".contains(byte))
        );
    }
}

fn mount_tables() -> Vec<Vec<u8>> {
    seeds([
        "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n",
        "1 0 8:1 / / rw shared:1 - ext4 /dev/a rw\n2 1 8:2 / /var\\040lib ro - xfs /dev/b rw,context=\"a,b\"\n3 2 0:5 /x /var\\040lib rw - btrfs /dev/c rw\n",
        "22 1 0:20 / /sys rw,nosuid shared:7 master:1 propagate_from:2 - sysfs sysfs rw\n",
        "1 1 8:1 / /a rw - ext4 /dev/a rw\n2 2 8:1 / /a rw - ext4 /dev/a rw\n1 2 8:1 / /a rw - ext4 /dev/a rw\n",
    ])
}

/// Escapes a path as the kernel does.
fn escaped(path: &Path) -> Vec<u8> {
    let escape = |byte: &u8| match byte {
        b' ' | b'\t' | b'\n' | b'\\' | b'#' => format!("\\{byte:03o}").into_bytes(),
        _ => vec![*byte],
    };
    path.as_os_str()
        .as_bytes()
        .iter()
        .flat_map(escape)
        .collect()
}

/// Asserts that each parsed row can be restored, and that each mount is at its path once.
fn mounts(data: &[u8]) {
    let Ok(entries) = mountinfo::parse(data) else {
        return;
    };
    for entry in &entries {
        let point = &entry.mount_point;
        assert_eq!(
            &mountinfo::unescape(&escaped(point)),
            point.as_os_str().as_bytes()
        );
        let here = mountinfo::mounts_at(&entries, point);
        let same = entries.iter().filter(|other| {
            other.mount_point.as_os_str().as_bytes() == point.as_os_str().as_bytes()
        });
        assert_eq!(here.len(), same.count());
        let _ = (entry.read_only(), entry.super_read_only());
    }
}

fn uevents(data: &[u8]) {
    if let uevent::Event::Block(event) = uevent::parse(data) {
        assert!(!event.action.contains('@'));
    }
}

fn events() -> Vec<Vec<u8>> {
    let info = |kind: u8, body: &[u8]| {
        let len = (4 + body.len()) as u16;
        [&[kind, 0][..], &len.to_ne_bytes(), body].concat()
    };
    let event = |mask: u64, infos: &[u8]| {
        let len = (24 + infos.len()) as u32;
        [
            &len.to_ne_bytes()[..],
            &[3, 0],
            &24_u16.to_ne_bytes(),
            &mask.to_ne_bytes(),
            &(-1_i32).to_ne_bytes(),
            &[0; 4],
            infos,
        ]
        .concat()
    };
    let fid = info(libc::FAN_EVENT_INFO_TYPE_FID, &[7; 20]);
    let errno = [(-5_i32).to_ne_bytes(), [1, 0, 0, 0]].concat();
    let error = info(libc::FAN_EVENT_INFO_TYPE_ERROR, &errno);
    let whole = event(libc::FAN_FS_ERROR, &[fid, error].concat());
    vec![
        [whole.clone(), event(libc::FAN_Q_OVERFLOW, &[])].concat(),
        whole,
    ]
}

fn fanotify(data: &[u8]) {
    if let Ok(events) = fanotify::parse(data) {
        assert!(events.len() <= data.len() / 24);
    }
}

fn pages() -> Vec<Vec<u8>> {
    let mut ata = vec![2, 1, 0, 68];
    ata.extend(b"ATA     ");
    ata.extend(format!("{:<40}{:>20}", "SAMSUNG MZ7LH960", "S45NNA0M").bytes());
    let naa = [1, 3, 0, 8, 0x50, 0x02, 0x53, 0x8e, 0x30, 0, 0, 1];
    let eui = [1, 2, 0, 8, 0x50, 0x02, 0x53, 0x8e, 0x30, 0, 0, 1];
    let page = |parts: &[&[u8]]| {
        let body = parts.concat();
        [&[0, 0x83][..], &(body.len() as u16).to_be_bytes(), &body].concat()
    };
    let mut identify = vec![0; 572];
    identify[106..114].copy_from_slice(b"XH5T4Q02");
    vec![
        page(&[&ata, &naa]),
        page(&[&eui, &[1, 0x13, 0, 2, 1, 2]]),
        b"\0\x80\0\x08  ZC1234".to_vec(),
        identify,
    ]
}

/// Asserts that an identity has only characters that are valid in file names and messages.
fn vpd(data: &[u8]) {
    let designators = vpd::designators(data);
    if let Some(wwn) = designators.wwn {
        let id = identity::from_wwn(&wwn).unwrap();
        assert!(
            id.bytes()
                .all(|c| c.is_ascii_alphanumeric() || b"-".contains(&c)),
            "{id}"
        );
    }
    for text in [vpd::unit_serial(data), vpd::ata_firmware(data)]
        .into_iter()
        .flatten()
    {
        assert_eq!(text.trim(), text);
        assert!(!text.is_empty());
    }
    if let Some(id) = identity::from_wwn(&String::from_utf8_lossy(data)) {
        assert!(!id.contains(['/', '\0', '\n']), "{id}");
    }
}

fn heads() -> Vec<Vec<u8>> {
    let mut ext4 = vec![0; 4096];
    let fields: [(usize, &[u8]); 7] = [
        (0x38, &[0x53, 0xef]),
        (0x4, &[0, 0, 2, 0]),
        (0x18, &[2]),
        (0x20, &[0, 0x80]),
        (0x28, &[0, 0x20]),
        (0x58, &[0, 1]),
        (0x64, &[1]),
    ];
    for (at, bytes) in fields {
        ext4[1024 + at..1024 + at + bytes.len()].copy_from_slice(bytes);
    }
    let mut large = ext4.clone();
    large[1024 + 0x60] = 0x80;
    large[1024 + 0x150] = 1;
    large[1024 + 0xfe] = 64;
    let mut xfs = vec![0; 512];
    xfs[..4].copy_from_slice(b"XFSB");
    xfs[126] = 1;
    // Groups of one block with the largest descriptors, whose number exceeds its type.
    let mut many = ext4.clone();
    many[1024 + 0x20..1024 + 0x24].copy_from_slice(&1_u32.to_le_bytes());
    many[1024 + 0x60] |= 0x80;
    many[1024 + 0x64] = 0;
    many[1024 + 0xFE..1024 + 0x100].copy_from_slice(&u16::MAX.to_le_bytes());
    vec![ext4, large, many, xfs]
}

/// Asserts that for any superblock, which a tenant can write, the filesystem is not larger than the device.
fn superblocks(data: &[u8]) {
    for kind in FsType::ALL {
        let _ = drivebay_fs::kind::of(kind).is_unfinished(data);
    }
    let Some(ext4) = superblock::parse(data) else {
        return;
    };
    // The largest device of Linux has 2^63 bytes.
    for bytes in [0, 1 << 20, (5 << 30) + 12_345, 1 << 50, 1 << 63] {
        let blocks = ext4.blocks_on(bytes);
        assert!(blocks <= bytes / ext4.block_size, "{blocks} on {bytes}");
    }
}
