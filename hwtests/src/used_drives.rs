//! Table of the ways in which a drive can be in use: the setup of each, and the reject codes that are required.

use std::fs;

use drivebay_model::{LABEL_TYPE, RejectCode as Code};

use crate::fixtures::{Bench, MIB, Made, run};

/// A drive that must not be claimed.
pub struct Row {
    /// Description of the drive.
    pub name: &'static str,
    /// Reject codes that the drive must have; it may have others too.
    pub codes: &'static [Code],
    /// Size of the drive, bytes.
    pub bytes: u64,
    /// Sets up the drive.
    pub make: fn(&mut Bench) -> Made,
}

const fn row(name: &'static str, codes: &'static [Code], make: fn(&mut Bench) -> Made) -> Row {
    Row {
        name,
        codes,
        bytes: 80 * MIB,
        make,
    }
}

/// All rows that can be set up on a loop drive.
pub const ROWS: &[Row] = &[
    // Filesystems, by their own mkfs.
    row("ext4", &[Code::Filesystem], |b| {
        b.tool("mkfs.ext4", &["-Fq"])
    }),
    Row {
        bytes: 320 * MIB,
        ..row("xfs", &[Code::Filesystem], |b| b.tool("mkfs.xfs", &["-fq"]))
    },
    Row {
        bytes: 128 * MIB,
        ..row("btrfs", &[Code::Filesystem], |b| {
            b.tool("mkfs.btrfs", &["-fq"])
        })
    },
    row("vfat", &[Code::Filesystem], |b| b.tool("mkfs.vfat", &[])),
    row(
        "ext4 whose superblock has a wrong checksum",
        &[Code::Filesystem],
        |b| {
            b.tool("mkfs.ext4", &["-Fq"])?;
            b.write(1024 + 0x78, b"damaged")
        },
    ),
    row("external ext journal", &[Code::Jbd], |b| {
        b.tool("mke2fs", &["-Fq", "-O", "journal_dev"])
    }),
    // Swap.
    row("swap space", &[Code::Swap], |b| b.tool("mkswap", &["-q"])),
    row(
        "swap in use",
        &[Code::Swap, Code::SwapInUse, Code::SystemDrive, Code::Busy],
        |b| {
            b.tool("mkswap", &["-q"])?;
            b.swap_on()
        },
    ),
    // LVM.
    row("orphan PV", &[Code::LvmPv], |b| b.lvm("pvcreate", &["-qq"])),
    row("PV in a VG", &[Code::LvmPv], |b| {
        b.lvm("vgcreate", &["-qq", "drivebay_reject_matrix"])
    }),
    // By hand: an LVM label with a wrong checksum in the third sector, as a damaged PV has it.
    row("damaged LVM label", &[Code::LvmPv], |b| {
        b.write(1024, b"LABELONE")
    }),
    // md. By hand, since mdadm --create needs the md driver: the superblocks as mdadm writes them.
    row("md 0.90 member", &[Code::RaidMember], |b| {
        let mut block = vec![0; 4096];
        for (word, value) in [
            (0, 0xa92b_4efc_u32),
            (1, 0),
            (2, 90),
            (7, 1),
            (8, 40960),
            (9, 2),
            (10, 2),
        ] {
            block[word * 4..word * 4 + 4].copy_from_slice(&value.to_le_bytes());
        }
        b.write(80 * MIB - 64 * 1024, &block)
    }),
    row("md 1.0 member", &[Code::RaidMember], |b| {
        md_1(b, 80 * MIB - 8192)
    }),
    row("md 1.2 member", &[Code::RaidMember], |b| md_1(b, 4096)),
    // LUKS, by cryptsetup.
    row("LUKS 1", &[Code::Luks], |b| luks(b, "luks1")),
    row("LUKS 2", &[Code::Luks], |b| luks(b, "luks2")),
    row("LUKS 2 whose first header is gone", &[Code::Luks], |b| {
        luks(b, "luks2")?;
        b.write(0, &[0; 4096])
    }),
    // By hand from here on: their tools are not free, not packaged, or need a kernel module.
    row("BitLocker", &[Code::Bitlocker], |b| {
        b.write(0, b"\xeb\x58\x90-FVE-FS-")?;
        b.write(176, &MIB.to_le_bytes())?;
        b.write(MIB, b"-FVE-FS-\0\0\x02\0")
    }),
    row("ZFS, the first label only", &[Code::Zfs], |b| {
        b.write(0x4000, &ZFS_LIST)
    }),
    row("ZFS, one uberblock at the end", &[Code::Zfs], |b| {
        b.write(80 * MIB - 128 * 1024, &0x00ba_b10c_u64.to_le_bytes())
    }),
    row("Ceph BlueStore", &[Code::Bluestore], |b| {
        b.write(
            0,
            b"bluestore block device\n12345678-1234-1234-1234-123456789abc\n",
        )
    }),
    row("bcache", &[Code::Bcache], |b| {
        b.write(4096 + 8, &8_u64.to_le_bytes())?;
        b.write(
            4096 + 24,
            b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81",
        )
    }),
    row("VDO", &[Code::Vdo], |b| {
        b.write(0, b"dmvdo001\x05\0\0\0\x04\0\0\0")
    }),
    row("Stratis", &[Code::Stratis], |b| {
        b.write(512 + 4, b"!Stra0tis\x86\xff\x02^\x41rh")
    }),
    row("DRBD", &[Code::Drbd], |b| {
        b.write(80 * MIB - 4096 + 60, b"\x83\x74\x02\x6b")
    }),
    row(
        "dm-verity hashes, a signature without a code of its own",
        &[Code::OtherSignature],
        |b| b.write(0, b"verity\0\0\x01\0\0\0\x01\0\0\0"),
    ),
    row(
        "two signatures that exclude each other",
        &[Code::Ambivalent, Code::Filesystem, Code::Swap],
        |b| {
            // By hand: no tool leaves the other's signature alone.
            b.tool("mkfs.vfat", &[])?;
            let mut header = vec![0; 12];
            header[0] = 1; // version
            header[4..8].copy_from_slice(&20479_u32.to_le_bytes()); // last page
            b.write(1024, &header)?;
            b.write(4086, b"SWAPSPACE2")
        },
    ),
    // Partition tables.
    row("MBR with a partition", &[Code::PartitionTable], |b| {
        sfdisk(b, "label: dos\n2048,4096,83\n")
    }),
    row("empty MBR", &[Code::PartitionTable], |b| {
        sfdisk(b, "label: dos\n")
    }),
    row("empty GPT", &[Code::PartitionTable], |b| {
        b.tool("sgdisk", &["-o"])
    }),
    row(
        "GPT with an ESP",
        &[Code::PartitionTable, Code::SystemDrive],
        |b| b.tool("sgdisk", &["-n1:2048:8191", "-t1:ef00"]),
    ),
    row("hybrid MBR", &[Code::GptDamaged], |b| {
        b.tool("sgdisk", &["-n1:2048:8191", "-n2:8192:0"])?;
        b.tool("sgdisk", &["-h1"])
    }),
    row(
        "GPT whose protective MBR was zeroed",
        &[Code::PartitionTable, Code::GptDamaged],
        |b| {
            gpt(b)?;
            b.write(0, &[0; 512])
        },
    ),
    row("protective MBR only", &[Code::GptDamaged], |b| {
        gpt(b)?;
        b.write(512, &[0; 33 * 512])?;
        b.write(80 * MIB - 33 * 512, &[0; 33 * 512])
    }),
    row(
        "GPT with a damaged primary header",
        &[Code::GptDamaged],
        |b| {
            gpt(b)?;
            b.write(512 + 56, b"damaged")
        },
    ),
    row("GPT with its backup only", &[Code::GptDamaged], |b| {
        gpt(b)?;
        b.write(0, &[0; 34 * 512])
    }),
    row(
        "GPT with a damaged backup header",
        &[Code::GptDamaged],
        |b| {
            gpt(b)?;
            b.write(80 * MIB - 512 + 56, b"damaged")
        },
    ),
    row(
        "GPT with a wrong checksum of its entries",
        &[Code::GptDamaged],
        |b| {
            gpt(b)?;
            b.write(1024 + 56, b"n\0a\0m\0e\0")
        },
    ),
    row("GPT whose valid copies differ", &[Code::GptDamaged], |b| {
        gpt(b)?;
        let backup = b.read(80 * MIB - 33 * 512, 33 * 512)?;
        b.tool("sgdisk", &["-n2:16384:20479"])?;
        b.write(80 * MIB - 33 * 512, &backup)
    }),
    row(
        "partitions in the kernel without a table",
        &[Code::PhantomTable, Code::HasPartitions],
        |b| b.add_partition(1, 2048, 4096),
    ),
    row(
        "partitions in the kernel with their table",
        &[Code::PartitionTable, Code::HasPartitions],
        |b| {
            gpt(b)?;
            b.add_partition(1, 2048, 4096)
        },
    ),
    // Raw data that no library knows.
    row("raw data at the start", &[Code::NotBlank], |b| {
        b.write(5 * MIB + 17, b"rows of a database")
    }),
    row("raw data in the middle", &[Code::NotBlank], |b| {
        // Longer than the distance between two samples.
        b.write(38 * MIB, &vec![0x5a; 2 * MIB as usize])
    }),
    row("raw data at the end", &[Code::NotBlank], |b| {
        b.write(80 * MIB - 1, b"x")
    }),
    // In use.
    row(
        "mounted",
        &[Code::Filesystem, Code::Mounted, Code::Busy],
        |b| {
            b.tool("mkfs.ext4", &["-Fq"])?;
            b.mount().map(drop)
        },
    ),
    Row {
        bytes: 128 * MIB,
        ..row("mounted btrfs", &[Code::Filesystem, Code::Mounted], |b| {
            b.tool("mkfs.btrfs", &["-fq"])?;
            b.mount().map(drop)
        })
    },
    row("held exclusively", &[Code::Busy], Bench::hold),
    row(
        "the same file on two devices",
        &[Code::DuplicateIdentity],
        |b| {
            b.attach(&[])?;
            b.attach(&[]).map(drop)
        },
    ),
    // What the device itself is.
    row("read-only", &[Code::ReadOnly], |b| {
        b.attach(&["-r"]).map(drop)
    }),
    Row {
        bytes: 32 * MIB,
        ..row("too small", &[Code::TooSmall], |_| Ok(()))
    },
    Row {
        bytes: 0,
        ..row("without size", &[Code::ZeroSize], |_| Ok(()))
    },
    row("unreadable at its end", &[Code::Unreadable], |b| {
        // The file is truncated below its device: reads beyond its end fail with EIO.
        b.device()?;
        fs::OpenOptions::new()
            .write(true)
            .open(b.file())?
            .set_len(MIB)?;
        Ok(())
    }),
];

/// Creates a drive with Drivebay's label partition; `label` is written to the partition's start.
pub fn labelled(bench: &mut Bench, label: &[u8]) -> Made {
    bench.tool("sgdisk", &["-n1:2048:+4M", &format!("-t1:{LABEL_TYPE}")])?;
    bench.write(MIB, label)
}

const ZFS_LIST: [u8; 12] = [1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

fn gpt(bench: &mut Bench) -> Made {
    bench.tool("sgdisk", &["-n1:2048:8191"])
}

fn md_1(bench: &mut Bench, at: u64) -> Made {
    let mut block = vec![0; 256];
    block[..4].copy_from_slice(&0xa92b_4efc_u32.to_le_bytes());
    block[4] = 1;
    block[128 + 16..128 + 24].copy_from_slice(&(at / 512).to_le_bytes());
    bench.write(at, &block)
}

fn luks(bench: &mut Bench, kind: &str) -> Made {
    let key = bench.dir().join("key");
    fs::write(&key, "a key for a test")?;
    let key = key.to_string_lossy().into_owned();
    let (file, iterations) = (
        bench.file().to_string_lossy().into_owned(),
        "--pbkdf-force-iterations=1000",
    );
    let mut args = vec![
        "luksFormat",
        "-q",
        "--type",
        kind,
        iterations,
        "--key-file",
        &key,
    ];
    if kind == "luks2" {
        args.push("--pbkdf=pbkdf2");
    }
    args.push(&file);
    run("cryptsetup", &args).map(drop)
}

fn sfdisk(bench: &mut Bench, script: &str) -> Made {
    let path = bench.dir().join("script");
    fs::write(&path, script)?;
    let file = bench.file();
    run(
        "sh",
        &[
            "-c",
            "sfdisk -q \"$0\" < \"$1\"",
            &file.to_string_lossy(),
            &path.to_string_lossy(),
        ],
    )
    .map(drop)
}
