//! A drive that is in use or unsuitable for volumes is refused for the right reasons, and none of its bytes changes.

use std::{collections::BTreeSet, fmt::Write, time::Duration};

use drivebay_hwtests::{
    MIB, digest,
    lab::{DriveSpec, Machine},
    wait,
};
use drivebay_model::RejectCode::{self as Code, *};
use drivebay_proto::agent::Drive;

use super::stand::{booted, codes, named};

/// A drive in use: the shell script that prepares it, with its device node as `$D`, and the codes that must be among the reasons.
struct Row {
    name: &'static str,
    mib: u64,
    make: &'static str,
    codes: &'static [Code],
}

const fn row(name: &'static str, codes: &'static [Code], make: &'static str) -> Row {
    Row {
        name,
        mib: 96,
        make,
        codes,
    }
}

const EXT4: &str = "mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 $D";

const ROWS: &[Row] = &[
    row("of-ext4", &[Filesystem], EXT4),
    Row {
        mib: 320,
        ..row("of-xfs", &[Filesystem], "mkfs.xfs -q $D")
    },
    Row {
        mib: 128,
        ..row("of-btrfs", &[Filesystem], "mkfs.btrfs -q $D")
    },
    row(
        "of-mounted",
        &[Filesystem, Mounted, Busy],
        "mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 $D; mkdir /mnt/m; mount -o noatime $D /mnt/m",
    ),
    row("of-pv", &[LvmPv], "pvcreate -q $D"),
    row("of-vg", &[LvmPv], "vgcreate -q others $D"),
    row(
        "of-lv",
        &[LvmPv, Holders, Busy],
        "vgcreate -q busy $D; lvcreate -q -n one -L 16m busy",
    ),
    row(
        "of-md",
        &[RaidMember, Holders, Busy],
        "mdadm -q --create /dev/md/on --run --force --level=0 --raid-devices=1 $D",
    ),
    row(
        "of-md-off",
        &[RaidMember],
        "mdadm -q --create /dev/md/off --run --force --level=0 --raid-devices=1 $D; mdadm -q --stop /dev/md/off",
    ),
    row(
        "of-luks",
        &[Luks],
        "echo key >/run/key; cryptsetup -q luksFormat --pbkdf pbkdf2 --pbkdf-force-iterations 1000 --key-file /run/key $D",
    ),
    row(
        "of-luks-on",
        &[Luks, Holders, Busy],
        "cryptsetup -q luksFormat --pbkdf pbkdf2 --pbkdf-force-iterations 1000 --key-file /run/key $D; \
         cryptsetup -q open --key-file /run/key $D secret",
    ),
    row(
        "of-swap",
        &[Swap, SwapInUse, Busy],
        "mkswap -q $D; swapon $D",
    ),
    row(
        "of-dm",
        &[Holders, Busy],
        "dmsetup create over --table \"0 65536 linear $D 0\"",
    ),
    row(
        "of-mpath",
        &[MultipathMember, Holders, Busy],
        "modprobe dm-multipath; dmsetup create mp --uuid mpath-36000c \
         --table \"0 $(blockdev --getsz $D) multipath 0 0 1 1 service-time 0 1 1 $D 1\"",
    ),
    row(
        "of-gpt",
        &[PartitionTable, HasPartitions],
        "sgdisk -n1:2048:8191 $D; partprobe $D || blockdev --rereadpt $D",
    ),
    row(
        "of-mbr",
        &[PartitionTable, HasPartitions],
        "echo 2048,4096,83 | sfdisk -q --label dos $D",
    ),
    row(
        "of-part",
        &[PartitionTable, HasPartitions, Mounted, Busy],
        "sgdisk -n1:2048:0 $D; udevadm settle; mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 ${D}1; \
         mkdir /mnt/p; mount -o noatime ${D}1 /mnt/p",
    ),
    row(
        "of-raw",
        &[NotBlank],
        "echo rows of a database | dd of=$D bs=1M seek=3",
    ),
    row(
        "of-offline",
        &[NotRunning],
        "echo offline >/sys/class/block/${D#/dev/}/device/state",
    ),
    row("of-locked", &[ReadOnly], "blockdev --setro $D"),
    // Plugged in with the property, below.
    row("of-readonly", &[ReadOnly], "true"),
    row("00000000", &[NoStableIdentity], "true"),
    row("of-usb", &[Removable], "true"),
    row("of-zones", &[Zoned], "true"),
    row("of-network", &[Remote], "true"),
];

/// Time limit for probing all drives.
pub(crate) const PROBED: Duration = Duration::from_secs(240);

const ODD: [&str; 4] = ["of-usb", "of-zones", "of-network", "00000000"];

/// Returns the drives of the rows, still blank; those that exist only by qemu's arguments are in [odd_drives].
pub(crate) fn drives() -> Vec<DriveSpec> {
    let mut drives = vec![DriveSpec::virtio("anonymous", 96 * MIB).serial("00000000")];
    for row in ROWS.iter().filter(|row| !ODD.contains(&row.name)) {
        let drive = DriveSpec::scsi(row.name, row.mib * MIB);
        drives.push(match row.name {
            "of-readonly" => drive.read_only(),
            _ => drive,
        });
    }
    drives
}

/// Returns the qemu arguments of a USB stick and a zoned drive. Both read as zeros, whatever is written.
pub(crate) fn odd_drives() -> Vec<String> {
    [
        "-blockdev driver=null-co,node-name=zeros1,size=134217728,read-zeroes=on",
        "-device qemu-xhci,id=usb",
        "-device usb-storage,bus=usb.0,drive=zeros1,serial=of-usb,removable=on",
        "-blockdev driver=null-co,node-name=zeros2,size=1073741824,read-zeroes=on",
        "-device nvme,id=zones,bus=pcie.0,serial=of-zones",
        "-device nvme-ns,bus=zones,drive=zeros2,zoned=on,zoned.zone_size=67108864",
    ]
    .iter()
    .flat_map(|words| words.split(' '))
    .map(str::to_owned)
    .collect()
}

/// An NVMe drive of another node, reached over TCP; here the other node is this machine.
const NETWORK: &str = r"
modprobe nvmet-tcp; modprobe nvme-tcp
truncate -s 96M /root/remote.img
cd /sys/kernel/config/nvmet
mkdir subsystems/remote ports/1
echo 1 >subsystems/remote/attr_allow_any_host
echo of-network >subsystems/remote/attr_serial
mkdir subsystems/remote/namespaces/1
losetup -f --show /root/remote.img | tr -d '\n' >subsystems/remote/namespaces/1/device_path
echo 1 >subsystems/remote/namespaces/1/enable
cd ports/1
echo tcp >addr_trtype; echo ipv4 >addr_adrfam; echo 127.0.0.1 >addr_traddr; echo 4420 >addr_trsvcid
ln -s /sys/kernel/config/nvmet/subsystems/remote subsystems/remote
nvme connect -t tcp -a 127.0.0.1 -s 4420 -n remote
";

/// Prepares each drive as its row specifies.
pub(crate) fn prepare(machine: &Machine) {
    let mut script = format!(
        "set -e\nexec 2>&1\nudevadm settle\n{NETWORK}cd /\n\
         drive() {{ lsblk -dno NAME,SERIAL | awk -v serial=$1 '$2 == serial {{ print \"/dev/\" $1 }}'; }}\n"
    );
    for row in ROWS {
        let Row { name, make, .. } = row;
        writeln!(script, "echo {name}; D=$(drive {name}); test -b $D; {make}").unwrap();
    }
    script.push_str("sync; udevadm settle\n");
    let ran = machine
        .guest()
        .try_run(&script, Duration::from_secs(300))
        .unwrap();
    assert!(ran.ok(), "{}", ran.stdout);
}

fn distinct_codes(drive: &Drive) -> BTreeSet<&str> {
    codes(drive).into_iter().collect()
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn whatever_is_in_use_is_refused_for_the_right_reasons_and_not_a_byte_of_it_changes() {
    let held = booted().await;
    let lab = held.as_ref().unwrap();
    // Forty drives of an emulated machine: some are probed again before all have responded.
    let inventory = wait::until_async(PROBED, "every drive is probed", async || {
        let inventory = lab.inventory().await;
        let silent = inventory
            .drives
            .iter()
            .any(|drive| drive.state == "unprobed");
        (!silent).then_some(inventory)
    })
    .await;
    let mut wrong = Vec::new();
    for row in ROWS {
        let Some(drive) = inventory.drives.iter().find(|drive| named(row.name)(drive)) else {
            wrong.push(format!("{} is not listed", row.name));
            continue;
        };
        println!("{}: {} {:?}", row.name, drive.id, codes(drive));
        let missing = row
            .codes
            .iter()
            .any(|code| !distinct_codes(drive).contains(code.as_str()));
        if drive.state != "rejected" || missing {
            wrong.push(format!(
                "{}: {:?} not among {drive:#?}",
                row.name, row.codes
            ));
        }
    }
    let of = |name: &str| {
        inventory
            .drives
            .iter()
            .find(|drive| drive.kernel_name == name)
    };
    // An LV is a part of the use of its drive, and not a separate device here.
    if let Some(lv) = of("dm-0") {
        wrong.push(format!("the LV dm-0 is listed: {lv:#?}"));
    }
    for (name, code) in [
        ("vda", SystemDrive),
        ("dm-1", NotADisk),
        ("md127", NotADisk),
    ] {
        if !of(name).is_some_and(|drive| distinct_codes(drive).contains(code.as_str())) {
            wrong.push(format!("{name}: {code} not among {:#?}", of(name)));
        }
    }
    let hidden = |drive: &Drive| {
        drive.kernel_name.contains('c') && distinct_codes(drive).contains("HiddenPath")
    };
    if !inventory.drives.iter().any(hidden) {
        wrong.push("no path is hidden".to_owned());
    }
    if !wrong.is_empty() {
        let all: Vec<_> = inventory
            .drives
            .iter()
            .map(|drive| (&drive.kernel_name, &drive.id, codes(drive)))
            .collect();
        panic!("{}\n{all:#?}", wrong.join("\n"));
    }

    let drives = drives();
    let files: Vec<_> = drives
        .iter()
        .map(|spec| lab.machine.drive(spec.name()).file().to_owned())
        .collect();
    lab.guest().run("sync");
    let before = digest::of_all(&files).unwrap();
    for _ in 0..3 {
        lab.rescan().await;
    }
    for row in ROWS {
        let id = named(row.name);
        let drive = lab.drive_where(id).await.unwrap();
        assert!(drive.state != "available", "{drive:?}");
    }
    lab.guest().run("sync");
    assert_eq!(digest::of_all(&files).unwrap(), before);
}
