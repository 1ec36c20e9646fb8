//! Facts from recorded sysfs trees, one per way a disk can be attached.

use std::{fs, os::unix::fs::symlink, path::Path};

use super::*;
use drivebay_model::{Bay, Transport};

/// A sysfs tree under construction.
struct Tree(tempfile::TempDir);

impl Tree {
    fn new() -> Self {
        let tree = Self(tempfile::tempdir().unwrap());
        fs::create_dir_all(tree.root().join("class/block")).unwrap();
        tree
    }

    fn root(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, path: &str, bytes: &[u8]) {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    /// Adds a disk of 1 GiB at `devices/<place>/block/<name>` (or at `place` itself if it ends with the name).
    fn disk(&self, place: &str, name: &str, attributes: &[(&str, &str)]) -> String {
        let at = if place.ends_with(name) {
            format!("devices/{place}")
        } else {
            format!("devices/{place}/block/{name}")
        };
        for (attribute, value) in [
            ("size", "2097152"),
            ("ro", "0"),
            ("removable", "0"),
            ("hidden", "0"),
            ("dev", "8:0"),
            ("diskseq", "7"),
            ("queue/rotational", "0"),
            ("queue/logical_block_size", "512"),
            ("queue/physical_block_size", "4096"),
            ("queue/zoned", "none"),
        ] {
            self.write(
                &format!("{at}/{attribute}"),
                format!("{value}\n").as_bytes(),
            );
        }
        fs::create_dir_all(self.root().join(&at).join("holders")).unwrap();
        if !at.contains("/virtual/") {
            let device = self.root().join("devices").join(place);
            symlink(&device, self.root().join(&at).join("device")).unwrap();
        }
        for (attribute, value) in attributes {
            self.write(
                &format!("{at}/{attribute}"),
                format!("{value}\n").as_bytes(),
            );
        }
        symlink(
            self.root().join(&at),
            self.root().join("class/block").join(name),
        )
        .unwrap();
        at
    }

    fn only(&self) -> DriveFacts {
        let mut disks = enumerate(self.root()).unwrap();
        assert_eq!(disks.len(), 1, "{disks:?}");
        disks.remove(0)
    }
}

const RUNNING: (&str, &str) = ("device/state", "running");

#[test]
fn a_sata_hdd_is_known_by_its_wwn() {
    let tree = Tree::new();
    tree.disk(
        "pci0000:00/0000:00:17.0/ata1/host0/target0:0:0/0:0:0:0",
        "sda",
        &[
            RUNNING,
            ("device/wwid", "naa.5000c500a1b2c3d4"),
            ("device/vendor", "ATA     "),
            ("device/model", "ST4000NM0025-1V4"),
            ("device/rev", "SN05"),
            ("queue/rotational", "1"),
        ],
    );
    let facts = tree.only();
    assert_eq!(facts.id.0, "wwn-0x5000c500a1b2c3d4");
    assert_eq!(
        (facts.transport, facts.media),
        (Transport::Sata, Media::Hdd)
    );
    assert_eq!(
        (
            facts.size_bytes,
            facts.logical_sector,
            facts.physical_sector
        ),
        (1 << 30, 512, 4096)
    );
    assert_eq!(
        facts.sysfs_path,
        "/sys/devices/pci0000:00/0000:00:17.0/ata1/host0/target0:0:0/0:0:0:0/block/sda"
    );
    assert!(
        facts.identity_is_stable && facts.virtual_kind.is_none() && facts.not_running.is_none()
    );
}

#[test]
fn a_drive_is_the_one_that_was_meant_by_each_identity_that_it_may_have() {
    let tree = Tree::new();
    let at = tree.disk(
        "pci0000:00/0000:00:17.0/ata1/host0/target0:0:0/0:0:0:0",
        "sda",
        &[RUNNING, ("device/wwid", "naa.5000c500a1b2c3d4")],
    );
    tree.write(&format!("{at}/device/vpd_pg80"), b"\0\x80\0\x04ZC12");
    let facts = identify(tree.root(), "sda").unwrap();
    let is = |id: &str| facts.is(&DriveId(id.into()));
    assert!(is("wwn-0x5000c500a1b2c3d4") && is("wwn-0x5000c500a1b2c3d4_ZC12"));
    assert!(is("wwn-0x5000c500a1b2c3d4.sda"));
    assert!(!is("wwn-0x5000c500a1b2c3d4.sdb") && !is("wwn-0x5000c500a1b2c3d4_ZC34"));
}

#[test]
fn a_sas_ssd_without_wwid_is_known_by_its_serial_page() {
    let tree = Tree::new();
    let at = tree.disk(
        "pci0000:3a/0000:3a:00.0/host1/port-1:0/end_device-1:0/target1:0:0/1:0:0:0",
        "sdb",
        &[
            ("device/state", "offline"),
            ("device/vendor", "SEAGATE"),
            ("device/model", "XS3840SE70104"),
        ],
    );
    tree.write(
        &format!("{at}/device/vpd_pg80"),
        b"\0\x80\0\x0c  HLV0A1B2C3",
    );
    let facts = tree.only();
    assert_eq!(facts.id.0, "serial-XS3840SE70104_HLV0A1B2C3");
    assert_eq!(facts.transport, Transport::Sas);
    assert_eq!(facts.not_running.as_deref(), Some("offline"));
}

#[test]
fn an_nvme_drive_is_known_by_eui_or_nguid_and_else_by_serial_and_namespace() {
    for (attributes, id) in [
        (
            &[("wwid", "eui.0025385b71b00001")][..],
            "eui-0025385b71b00001",
        ),
        (
            &[("wwid", "eui.36483331545001390025384100000001")][..],
            "nguid-36483331545001390025384100000001",
        ),
        (
            &[("wwid", "nvme.144d-5334-53414d-00000002"), ("nsid", "2")][..],
            "serial-SAMSUNG_X_S4_ns2",
        ),
        (
            &[("wwid", "eui.0100000000000000")][..],
            "serial-SAMSUNG_X_S4",
        ),
        (
            &[
                ("wwid", "eui.01000000010000000000000000000000"),
                ("nguid", "01000000-0100-0000-0000-000000000000"),
                ("eui", "00 25 38 5b 71 b0 00 01"),
            ][..],
            "eui-0025385b71b00001",
        ),
    ] {
        let tree = Tree::new();
        let at = tree.disk(
            "pci0000:00/0000:00:1d.0/0000:02:00.0/nvme/nvme0/nvme0n1",
            "nvme0n1",
            attributes,
        );
        fs::remove_file(tree.root().join(&at).join("device")).unwrap();
        for (name, value) in [
            ("transport", "pcie"),
            ("state", "live"),
            ("model", "SAMSUNG X"),
            ("serial", "S4"),
            ("firmware_rev", "1.0"),
        ] {
            tree.write(&format!("{at}/device/{name}"), value.as_bytes());
        }
        let facts = tree.only();
        assert_eq!(facts.id.0, id);
        assert_eq!(
            (facts.transport, facts.media, facts.firmware.as_str()),
            (Transport::Nvme, Media::Nvme, "1.0")
        );
        assert_eq!((facts.virtual_kind, facts.not_running), (None, None));
    }
}

#[test]
fn an_nvme_head_takes_transport_and_state_from_its_controllers() {
    for (transport, states, expected) in [
        ("pcie", ["live", "dead"], (Transport::Nvme, None)),
        ("tcp", ["live", "live"], (Transport::NvmeOf, None)),
        (
            "pcie",
            ["dead", "dead"],
            (Transport::Nvme, Some("dead".to_owned())),
        ),
    ] {
        let tree = Tree::new();
        let at = tree.disk(
            "virtual/nvme-subsystem/nvme-subsys0/nvme0n1",
            "nvme0n1",
            &[("wwid", "eui.0025385b71b00001")],
        );
        tree.write(&format!("{at}/device/subsysnqn"), b"nqn.x");
        for (number, state) in states.iter().enumerate() {
            tree.write(
                &format!("{at}/device/nvme{number}/transport"),
                transport.as_bytes(),
            );
            tree.write(&format!("{at}/device/nvme{number}/state"), state.as_bytes());
        }
        let facts = tree.only();
        assert_eq!((facts.transport, facts.not_running), expected);
        assert_eq!(facts.virtual_kind, None, "a head is a real drive");
    }
}

#[test]
fn a_hidden_nvme_path_has_no_device_number_and_is_listed_as_hidden() {
    let tree = Tree::new();
    let at = tree.disk(
        "pci0000:00/0000:00:1d.0/nvme/nvme0/nvme0c0n1",
        "nvme0c0n1",
        &[("hidden", "1")],
    );
    fs::remove_file(tree.root().join(at).join("dev")).unwrap();
    let facts = tree.only();
    assert!(facts.hidden);
    assert_eq!((facts.major, facts.minor), (0, 0));
}

#[test]
fn a_usb_stick_takes_its_serial_from_the_usb_device_and_keeps_luns_apart() {
    let tree = Tree::new();
    tree.write("devices/pci0000:00/0000:00:14.0/usb2/2-1/idVendor", b"0781");
    tree.write(
        "devices/pci0000:00/0000:00:14.0/usb2/2-1/serial",
        b"4C530001",
    );
    tree.disk(
        "pci0000:00/0000:00:14.0/usb2/2-1/2-1:1.0/host6/target6:0:0/6:0:0:1",
        "sdc",
        &[RUNNING, ("device/model", "Ultra Fit"), ("removable", "1")],
    );
    let facts = tree.only();
    assert_eq!(facts.id.0, "serial-Ultra_Fit_4C530001_lun1");
    assert_eq!(facts.transport, Transport::Usb);
    assert!(facts.removable);
}

#[test]
fn network_disks_are_distinguished_from_local_ones() {
    for (place, expected) in [
        (
            "platform/host3/session1/target3:0:0/3:0:0:1",
            Transport::Iscsi,
        ),
        (
            "pci0000:00/0000:00:03.0/host7/rport-7:0-0/target7:0:0/7:0:0:5",
            Transport::Fc,
        ),
        ("pci0000:00/0000:00:04.0/virtio1", Transport::Virtio),
        (
            "pci0000:00/0000:00:05.0/virtio2/host2/target2:0:0/2:0:0:0",
            Transport::Virtio,
        ),
        (
            "pci0000:00/0000:00:06.0/host4/target4:2:0/4:2:0:0",
            Transport::Scsi,
        ),
    ] {
        let tree = Tree::new();
        tree.disk(place, "sdd", &[RUNNING]);
        assert_eq!(tree.only().transport, expected, "{place}");
    }
    let tree = Tree::new();
    tree.disk(
        "virtual/nvme-fabrics/ctl/nvme1/nvme1n1",
        "nvme1n1",
        &[("device/transport", "tcp"), ("device/state", "live")],
    );
    assert_eq!(tree.only().transport, Transport::NvmeOf);
}

#[test]
fn a_drive_without_any_name_is_known_by_its_place_only() {
    let tree = Tree::new();
    tree.disk("pci0000:00/0000:00:04.0/virtio1", "vda", &[]);
    let facts = tree.only();
    assert_eq!(facts.id.0, "path-devices-pci0000:00-0000:00:04.0-virtio1");
    assert!(!facts.identity_is_stable);
}

#[test]
fn a_partitions_number_is_in_its_name() {
    let disks = [
        ("sda", "sda2"),
        ("nvme0n1", "nvme0n1p2"),
        ("loop7", "loop7p2"),
    ];
    for (disk, name) in disks {
        assert_eq!(super::partition_name(disk, 2), name);
        assert_eq!(super::partition_number(disk, name), Some(2));
    }
    for (disk, name) in [
        ("sda", "sda"),
        ("sda", "sdap2"),
        ("sda", "sdaa2"),
        ("sda", "sda02"),
        ("sda", "sdb2"),
        ("loop7", "loop72"),
        ("nvme0n1", "nvme0n1"),
        ("sda", "size"),
    ] {
        assert_eq!(super::partition_number(disk, name), None, "{name}");
    }
}

#[test]
fn a_partition_is_missing_only_on_a_disk_that_is_there() {
    let tree = Tree::new();
    let at = tree.disk(
        "pci0000:00/0000:00:17.0/ata1/host0/target0:0:0/0:0:0:0",
        "sda",
        &[RUNNING],
    );
    for (name, value) in [("dev", "8:2"), ("start", "2048"), ("size", "4096")] {
        tree.write(&format!("{at}/sda2/{name}"), value.as_bytes());
    }
    let of = |disk, number| super::partition_of(tree.root(), disk, number);
    assert_eq!(of("sda", 2).unwrap().unwrap().start_bytes, 2048 * 512);
    assert_eq!(of("sda", 3).unwrap(), None);
    assert!(of("sdb", 2).is_err());
    assert!(super::partitions_of(tree.root(), "sdb").is_err());
}

#[test]
fn an_lv_is_no_disk_but_what_holds_one() {
    let tree = Tree::new();
    let at = tree.disk("virtual/block/loop3", "loop3", &[]);
    tree.write(&format!("{at}/holders/dm-0"), b"");
    let lv = [("dm/uuid", "LVM-aabb")];
    tree.disk("virtual/block/dm-0", "dm-0", &lv);
    let listed = tree.only();
    assert_eq!(listed.kernel_name, "loop3");
    assert_eq!(listed.holders[0].dm_uuid.as_deref(), Some("LVM-aabb"));
    // It can be read by name.
    let lv = read(tree.root(), "dm-0").unwrap();
    assert_eq!(lv.virtual_kind.as_deref(), Some("dm"));
}

#[test]
fn partitions_and_the_holders_of_disk_and_partitions_are_listed() {
    let tree = Tree::new();
    let at = tree.disk(
        "pci0000:00/0000:00:17.0/ata1/host0/target0:0:0/0:0:0:0",
        "sda",
        &[RUNNING],
    );
    for (name, value) in [
        ("partition", "2"),
        ("dev", "8:2"),
        ("start", "2048"),
        ("size", "4096"),
        ("ro", "0"),
    ] {
        tree.write(&format!("{at}/sda2/{name}"), value.as_bytes());
    }
    tree.write(&format!("{at}/sda2/holders/md127"), b"");
    tree.write(&format!("{at}/holders/dm-0"), b"");
    symlink(
        tree.root().join(&at).join("sda2"),
        tree.root().join("class/block/sda2"),
    )
    .unwrap();
    tree.disk(
        "virtual/block/dm-0",
        "dm-0",
        &[("dm/uuid", "mpath-35000c5")],
    );
    let disks = enumerate(tree.root()).unwrap();
    assert_eq!(
        disks
            .iter()
            .map(|disk| disk.kernel_name.as_str())
            .collect::<Vec<_>>(),
        ["dm-0", "sda"],
        "partitions are not disks"
    );
    assert_eq!(disks[0].virtual_kind.as_deref(), Some("dm"));
    let sda = &disks[1];
    assert_eq!(
        (
            sda.partitions[0].number,
            sda.partitions[0].start_bytes,
            sda.partitions[0].size_bytes
        ),
        (2, 1 << 20, 2 << 20)
    );
    assert_eq!(
        sda.holders,
        [
            Holder {
                held: "sda".into(),
                name: "dm-0".into(),
                dm_uuid: Some("mpath-35000c5".into())
            },
            Holder {
                held: "sda2".into(),
                name: "md127".into(),
                dm_uuid: None
            },
        ]
    );
    assert!(read(tree.root(), "sda2").unwrap().is_partition);
}

#[test]
fn a_loop_device_is_known_by_its_file() {
    let tree = Tree::new();
    tree.disk(
        "virtual/block/loop3",
        "loop3",
        &[("loop/backing_file", "/srv/my disks/a.img")],
    );
    let facts = tree.only();
    assert_eq!(
        facts.id.0,
        format!("loop-a.img-{:08x}", crc32fast::hash(b"/srv/my disks/a.img"))
    );
    assert_eq!(
        (
            facts.transport,
            facts.virtual_kind.as_deref(),
            facts.identity_is_stable
        ),
        (Transport::Loop, Some("loop"), true)
    );
}

#[test]
fn kinds_of_virtual_devices_are_recognized_by_name_and_place() {
    for (name, kind) in [
        ("zram0", "zram"),
        ("md127", "md"),
        ("md_d0", "md"),
        ("bcache0", "bcache"),
        ("drbd1", "drbd"),
        ("zd16", "zd"),
        ("newkind9", "newkind"),
    ] {
        let tree = Tree::new();
        tree.disk(&format!("virtual/block/{name}"), name, &[]);
        assert_eq!(tree.only().virtual_kind.as_deref(), Some(kind), "{name}");
    }
    let tree = Tree::new();
    tree.disk("rbd/0", "rbd0", &[]);
    assert_eq!(
        tree.only().virtual_kind.as_deref(),
        Some("rbd"),
        "rbd is not under /sys/devices/virtual"
    );
}

#[test]
fn a_device_that_is_gone_is_left_out_and_a_broken_one_is_an_error() {
    let tree = Tree::new();
    symlink(
        tree.root().join("devices/gone"),
        tree.root().join("class/block/sdx"),
    )
    .unwrap();
    // A dangling link is a device that is being removed.
    fs::remove_file(tree.root().join("class/block/sdx")).unwrap();
    assert_eq!(
        read(tree.root(), "sdx").unwrap_err().kind(),
        ErrorKind::NotFound
    );
    assert!(enumerate(tree.root()).unwrap().is_empty());
    let at = tree.disk(
        "pci0000:00/0000:00:17.0/ata1/host0/target0:0:0/0:0:0:0",
        "sda",
        &[RUNNING],
    );
    tree.write(&format!("{at}/size"), b"lots");
    assert_eq!(
        enumerate(tree.root()).unwrap_err().kind(),
        ErrorKind::InvalidData
    );
    fs::remove_file(tree.root().join(&at).join("ro")).unwrap();
    tree.write(&format!("{at}/size"), b"8");
    assert!(
        enumerate(tree.root()).is_err(),
        "a disk that does not say whether it is read-only is not guessed at"
    );
    assert_eq!(
        read(tree.root(), "../x").unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
}

#[test]
fn a_sas_drives_place_in_its_enclosure_is_read_and_the_enclosure_is_not_queried() {
    let tree = Tree::new();
    let place =
        "pci0000:3a/0000:3a:00.0/host1/port-1:0/expander-1:0/end_device-1:0:4/target1:0:4/1:0:4:0";
    tree.disk(
        place,
        "sdb",
        &[RUNNING, ("device/wwid", "naa.5000c500a1b2c3d4")],
    );
    assert_eq!(tree.only().bay, Bay::default());
    let enclosure =
        "devices/pci0000:3a/0000:3a:00.0/host1/expander-1:0/1:0:12:0/enclosure/1:0:12:0";
    tree.write(&format!("{enclosure}/id"), b"0x500304800a1b2c3f\n");
    tree.write(&format!("{enclosure}/Slot04/slot"), b"4\n");
    // Reading this attribute, for which the kernel queries the enclosure, would fail: it is a directory here.
    fs::create_dir_all(tree.root().join(enclosure).join("Slot04/locate")).unwrap();
    let device = tree.root().join("devices").join(place);
    symlink(
        tree.root().join(enclosure).join("Slot04"),
        device.join("enclosure_device:Slot04"),
    )
    .unwrap();
    let bay = tree.only().bay;
    assert_eq!(bay.describe(), "slot 4 of enclosure 0x500304800a1b2c3f");
    // Slots of an enclosure without numbers have names.
    fs::remove_file(tree.root().join(enclosure).join("Slot04/slot")).unwrap();
    fs::remove_file(tree.root().join(enclosure).join("id")).unwrap();
    assert_eq!(
        tree.only().bay.describe(),
        "slot Slot04 of enclosure 1:0:12:0"
    );
    // The enclosure is removed while its link exists: the drive is listed without a location.
    fs::remove_dir_all(tree.root().join(enclosure)).unwrap();
    assert_eq!(tree.only().bay, Bay::default());
}

#[test]
fn an_nvme_drives_pcie_slot_is_the_nearest_one_on_its_way() {
    let tree = Tree::new();
    tree.disk(
        "pci0000:3a/0000:3a:02.0/0000:3c:00.0/nvme/nvme0/nvme0n1",
        "nvme0n1",
        &[
            ("wwid", "eui.0025385b21404321"),
            ("device/transport", "pcie"),
        ],
    );
    assert_eq!(tree.only().bay, Bay::default());
    tree.write("bus/pci/slots/7/address", b"0000:3c:00\n");
    tree.write("bus/pci/slots/1/address", b"0000:3a:02\n");
    assert_eq!(tree.only().bay.describe(), "PCIe slot 7");
    fs::remove_dir_all(tree.root().join("bus/pci/slots/7")).unwrap();
    assert_eq!(tree.only().bay.describe(), "PCIe slot 1");
}
