//! qemu's description of a drive: the same JSON on the command line and over QMP.

use std::path::Path;

use serde_json::{Value, json};

use super::{Backend, DriveSpec, Kind, slots};

/// Returns the name of the block node that a drive's device uses.
pub(super) fn node(spec: &DriveSpec) -> String {
    format!("{}-disk", spec.name)
}

/// Returns the id of the namespace of an NVMe drive with a separate one.
pub(super) fn namespace_id(spec: &DriveSpec) -> String {
    format!("{}-ns", spec.name)
}

fn subsystem_id(spec: &DriveSpec) -> String {
    format!("{}-subsys", spec.name)
}

/// Returns the backend of the device, for `-blockdev` and `blockdev-add`.
pub(super) fn blockdev(spec: &DriveSpec, file: &Path, socket: Option<&Path>) -> Value {
    let below = match socket {
        // Without a reconnect delay: a server that rejects qemu is an error at once, one that is silent keeps requests waiting.
        Some(socket) => json!({
            "driver": "nbd",
            "reconnect-delay": 0,
            "server": {"type": "unix", "path": socket},
        }),
        // Data that qemu wrote survives qemu, so flushing the host's disk is unnecessary.
        None => json!({
            "driver": "file",
            "filename": file,
            "discard": "unmap",
            "cache": {"direct": false, "no-flush": true},
        }),
    };
    let mut top =
        json!({"driver": "raw", "node-name": node(spec), "discard": "unmap", "file": below});
    if spec.read_only {
        top["read-only"] = true.into();
        top["file"]["read-only"] = true.into();
    }
    top
}

/// Returns all devices of a drive that is present at power on.
pub(super) fn boot_devices(spec: &DriveSpec, slot: u8) -> Vec<Value> {
    let controller = controller(spec, slot);
    let Some(eui64) = spec.eui64 else {
        return vec![controller];
    };
    let subsystem = json!({"driver": "nvme-subsys", "id": subsystem_id(spec), "nqn": spec.name});
    let mut namespace = json!({
        "driver": "nvme-ns",
        "id": namespace_id(spec),
        "bus": spec.name,
        "nsid": 1,
        "eui64": eui64,
        // Otherwise qemu generates one, different at each start.
        "uuid": "00000000-0000-0000-0000-000000000000",
    });
    disk(&mut namespace, spec);
    vec![subsystem, controller, namespace]
}

/// Returns the device that is plugged in, for `-device` and `device_add`.
pub(super) fn controller(spec: &DriveSpec, slot: u8) -> Value {
    let mut device = json!({"id": spec.name, "serial": spec.serial});
    let port = slots::root_port(slot);
    let rotation = spec.rpm.unwrap_or(1); // 1: does not rotate (ATA and SCSI say it so).
    let add = match (spec.kind, spec.eui64) {
        (Kind::Nvme, Some(_)) => {
            return merged(
                device,
                json!({"driver": "nvme", "bus": port, "subsys": subsystem_id(spec)}),
            );
        }
        (Kind::Nvme, None) => json!({"driver": "nvme", "bus": port}),
        (Kind::Virtio, _) => json!({"driver": "virtio-blk-pci", "bus": port}),
        (Kind::Sata, _) => json!({
            "driver": "ide-hd", "bus": format!("ide.{slot}"), "unit": 0, "rotation_rate": rotation,
        }),
        (Kind::Scsi, _) => json!({
            "driver": "scsi-hd", "bus": slots::SCSI_BUS, "channel": 0, "scsi-id": slot, "lun": 0,
            "rotation_rate": rotation,
        }),
    };
    device = merged(device, add);
    if spec.kind != Kind::Nvme {
        // Errors are reported to the guest; by default qemu stops the machine when the host's disk is full.
        device = merged(device, json!({"rerror": "report", "werror": "report"}));
    }
    if let Some(wwn) = spec.wwn {
        device["wwn"] = wwn.into();
    }
    if let Some(model) = &spec.model {
        let key = if spec.kind == Kind::Scsi {
            "product"
        } else {
            "model"
        };
        device[key] = model.as_str().into();
    }
    if let Some(firmware) = &spec.firmware {
        device["ver"] = firmware.as_str().into();
    }
    disk(&mut device, spec);
    device
}

/// Adds the properties of the device that holds the medium.
fn disk(device: &mut Value, spec: &DriveSpec) {
    let volatile = !matches!(
        spec.backend,
        Backend::Nbd {
            volatile: false,
            ..
        }
    );
    device["drive"] = node(spec).into();
    device["logical_block_size"] = spec.logical.into();
    device["physical_block_size"] = spec.physical.into();
    device["write-cache"] = if volatile { "on" } else { "off" }.into();
}

fn merged(mut into: Value, from: Value) -> Value {
    if let (Value::Object(into), Value::Object(from)) = (&mut into, from) {
        into.extend(from);
    }
    into
}
