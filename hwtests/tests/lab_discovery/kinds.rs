//! Each kind of drive is listed with the properties with which it was plugged in and that the host's own tools report.

use drivebay_hwtests::{
    MIB,
    lab::{DriveSpec, Guest, Kind},
    wait,
};
use drivebay_proto::agent::Drive;
use serde_json::Value;

use super::{
    refused::PROBED,
    stand::{booted, codes, named},
};

const SIZE: u64 = 128 * MIB;
const EUI: u64 = 0x0025_38b1_0000_0042;
const SATA_WWN: u64 = 0x5000_c500_8765_4321;
const SATA_SSD_WWN: u64 = 0x5000_c500_8765_4322;
const SCSI_WWN: u64 = 0x5000_c500_1234_5678;

/// A drive's properties when it is plugged in, and those that the agent must list.
struct Row {
    name: &'static str,
    kind: Kind,
    sectors: (u32, u32),
    wwn: Option<u64>,
    model: &'static str,
    firmware: &'static str,
    rpm: Option<u16>,
    id: &'static str,
    media: &'static str,
    transport: &'static str,
}

const NVME: Row = Row {
    name: "nvme-512",
    kind: Kind::Nvme,
    sectors: (512, 512),
    wwn: None,
    model: "QEMU NVMe Ctrl",
    firmware: "",
    rpm: None,
    id: "serial-QEMU_NVMe_Ctrl_nvme-512",
    media: "nvme",
    transport: "nvme",
};
const SATA: Row = Row {
    name: "sata-hdd",
    kind: Kind::Sata,
    sectors: (512, 512),
    wwn: Some(SATA_WWN),
    model: "SATA disk of a long name",
    firmware: "FW7.1",
    rpm: Some(7200),
    id: "wwn-0x5000c50087654321",
    media: "hdd",
    transport: "sata",
};
const SCSI: Row = Row {
    name: "scsi-hdd",
    kind: Kind::Scsi,
    sectors: (512, 512),
    wwn: Some(SCSI_WWN),
    model: "Disk 9000",
    firmware: "F1.2",
    rpm: Some(10_000),
    id: "wwn-0x5000c50012345678",
    media: "hdd",
    // A virtio-scsi bus: SAS has a transport class of its own, which no qemu device has.
    transport: "virtio",
};
// virtio-blk reports every disk as rotational.
const VIRTIO: Row = Row {
    name: "virtio-512",
    kind: Kind::Virtio,
    sectors: (512, 512),
    wwn: None,
    model: "virtio",
    firmware: "",
    rpm: None,
    id: "serial-virtio_virtio-512",
    media: "hdd",
    transport: "virtio",
};

const ROWS: [Row; 9] = [
    NVME,
    Row {
        name: "nvme-4096",
        sectors: (4096, 4096),
        id: "serial-QEMU_NVMe_Ctrl_nvme-4096",
        ..NVME
    },
    Row {
        name: "nvme-eui",
        wwn: Some(EUI),
        id: "eui-002538b100000042",
        ..NVME
    },
    SATA,
    Row {
        name: "sata-ssd",
        sectors: (512, 4096),
        wwn: Some(SATA_SSD_WWN),
        rpm: None,
        id: "wwn-0x5000c50087654322",
        media: "ssd",
        ..SATA
    },
    SCSI,
    Row {
        name: "scsi-4096",
        sectors: (4096, 4096),
        wwn: None,
        rpm: None,
        id: "serial-Disk_9000_scsi-4096",
        media: "ssd",
        ..SCSI
    },
    VIRTIO,
    Row {
        name: "virtio-4096",
        sectors: (4096, 4096),
        id: "serial-virtio_virtio-4096",
        ..VIRTIO
    },
];

/// Returns the drives of all rows, blank.
pub(crate) fn drives() -> Vec<DriveSpec> {
    let plugged = |row: &Row| {
        let mut drive =
            DriveSpec::new(row.kind, row.name, SIZE).sector(row.sectors.0, row.sectors.1);
        if let Some(wwn) = row.wwn {
            drive = match row.kind {
                Kind::Nvme => drive.eui64(wwn),
                _ => drive.wwn(wwn),
            };
        }
        if matches!(row.kind, Kind::Sata | Kind::Scsi) {
            drive = drive.model(row.model).firmware(row.firmware);
        }
        match row.rpm {
            Some(rpm) => drive.rotating(rpm),
            None => drive,
        }
    };
    ROWS.iter().map(plugged).collect()
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn each_kind_of_drive_is_listed_as_it_was_plugged_and_as_the_hosts_tools_see_it() {
    let held = booted().await;
    let lab = held.as_ref().unwrap();
    for row in &ROWS {
        let visible =
            |drive: &Drive| named(row.name)(drive) && !codes(drive).contains(&"HiddenPath");
        let what = format!("{} is available", row.name);
        let drive = wait::until_async(PROBED, &what, async || {
            let drive = lab.drive_where(visible).await;
            drive.filter(|drive| drive.state == "available")
        })
        .await;
        assert_eq!(drive.id, row.id);
        assert_eq!(drive.model, row.model, "{}", row.name);
        assert_eq!(drive.size_bytes, SIZE, "{}", row.name);
        let sectors = (drive.logical_sector_bytes, drive.physical_sector_bytes);
        assert_eq!(sectors, row.sectors, "{}", row.name);
        assert_eq!(drive.media, row.media, "{}", row.name);
        assert_eq!(drive.transport, row.transport, "{}", row.name);
        assert!(drive.firmware.starts_with(row.firmware), "{drive:?}");
        let wwn = row.wwn.map(|wwn| format!("{wwn:016x}")).unwrap_or_default();
        assert_eq!(
            drive
                .wwn
                .trim_start_matches(|c: char| !c.is_ascii_digit() || c == '0'),
            wwn.trim_start_matches('0'),
            "{drive:?}"
        );
        agrees(lab.guest(), &drive);
    }
}

/// lsblk, udev and smartctl report the same.
fn agrees(guest: &Guest, drive: &Drive) {
    let node = format!("/dev/{}", drive.kernel_name);
    let output = guest.run(&format!("lsblk --nodeps --bytes --json -O {node}"));
    let report: Value = serde_json::from_str(&output).unwrap();
    let listed = &report["blockdevices"][0];
    assert_eq!(listed["size"], drive.size_bytes, "{listed}");
    assert_eq!(listed["log-sec"], drive.logical_sector_bytes, "{listed}");
    assert_eq!(listed["phy-sec"], drive.physical_sector_bytes, "{listed}");
    assert_eq!(listed["serial"], drive.serial.as_str(), "{listed}");
    // NVMe is a separate medium here; lsblk only reports whether a device is rotational.
    assert_eq!(listed["rota"], drive.media == "hdd", "{listed}");
    let text = |key: &str| listed[key].as_str().unwrap_or_default().trim().to_owned();
    if !text("tran").is_empty() {
        assert_eq!(text("tran"), drive.transport, "{listed}");
    }
    if drive.transport != "virtio" || !drive.firmware.is_empty() {
        assert_eq!(text("model"), drive.model, "{listed}");
    }

    let properties = guest.run(&format!("udevadm info --query=property --name={node}"));
    let property = |key: &str| {
        let mut lines = properties.lines();
        lines.find_map(|line| line.strip_prefix(key)?.strip_prefix('=').map(str::to_owned))
    };
    if let Some(wwn) = property("ID_WWN")
        && drive.transport != "nvme"
    {
        assert_eq!(drive.id, format!("wwn-{wwn}"), "{properties}");
    }
    for key in ["ID_SERIAL_SHORT", "ID_SCSI_SERIAL"] {
        if let Some(serial) = property(key).filter(|serial| !serial.starts_with("5000")) {
            assert_eq!(serial, drive.serial, "{key} of {properties}");
        }
    }
    if let Some(revision) = property("ID_REVISION") {
        assert_eq!(revision, drive.firmware, "{properties}");
    }
    if drive.transport == "virtio" && drive.firmware.is_empty() {
        return; // virtio-blk has no SMART.
    }
    let ran = guest.ran(&format!("smartctl --json -i {node}"));
    let smart: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(ran.code, 0, "{smart}");
    assert_eq!(smart["serial_number"], drive.serial.as_str(), "{smart}");
    assert_eq!(smart["user_capacity"]["bytes"], drive.size_bytes, "{smart}");
    if let Some(firmware) = smart["firmware_version"].as_str() {
        assert_eq!(firmware, drive.firmware, "{smart}");
    }
    let turns = smart["rotation_rate"].as_u64().unwrap_or(0) > 0;
    assert_eq!(turns, drive.media == "hdd", "{smart}");
}
