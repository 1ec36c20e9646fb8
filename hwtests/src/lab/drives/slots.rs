//! Slots of drives: their assignment at power on, and the free ones of a running machine.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{
    super::qmp::{Qmp, QmpError},
    DriveError, DriveSpec, Kind,
};

/// Number of PCIe root ports, for NVMe and virtio drives.
pub const ROOT_PORTS: u8 = 12;
/// Number of ports of q35's AHCI.
const SATA_PORTS: u8 = 6;
/// Number of targets of virtio-scsi that qemu can address.
const SCSI_TARGETS: u8 = 255;
/// Bus of the SCSI drives.
pub(super) const SCSI_BUS: &str = "scsi0.0";

/// Returns the id of a root port.
pub fn root_port(slot: u8) -> String {
    format!("slot{slot}")
}

/// Returns qemu's arguments for the buses that drives need. The AHCI, `ide.0` to `ide.5`, is part of q35.
pub fn bus_args() -> Vec<String> {
    let scsi = "virtio-scsi-pci,id=scsi0".to_owned();
    let ports = (0..ROOT_PORTS).map(|slot| {
        let number = slot + 1;
        let id = root_port(slot);
        format!("pcie-root-port,id={id},chassis={number},slot={number}")
    });
    std::iter::once(scsi)
        .chain(ports)
        .flat_map(|device| ["-device".to_owned(), device])
        .collect()
}

/// A bus; its drives share one set of slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Bus {
    Pcie,
    Sata,
    Scsi,
}

impl Bus {
    fn of(kind: Kind) -> (Self, u8) {
        match kind {
            Kind::Nvme | Kind::Virtio => (Self::Pcie, ROOT_PORTS),
            Kind::Sata => (Self::Sata, SATA_PORTS),
            Kind::Scsi => (Self::Scsi, SCSI_TARGETS),
        }
    }
}

/// The slots that are taken.
#[derive(Debug, Default)]
struct Taken(BTreeSet<(Bus, u8)>);

impl Taken {
    /// Takes the requested slot. Errs if it is taken or does not exist.
    fn requested(&mut self, spec: &DriveSpec, slot: u8) -> Result<u8, DriveError> {
        let (bus, count) = Bus::of(spec.kind);
        if slot < count && self.0.insert((bus, slot)) {
            return Ok(slot);
        }
        Err(DriveError::Slot {
            drive: spec.name.clone(),
            kind: spec.kind,
            slot,
        })
    }

    /// Takes the lowest free slot. Errs if there is none.
    fn lowest(&mut self, spec: &DriveSpec) -> Result<u8, DriveError> {
        let (bus, count) = Bus::of(spec.kind);
        (0..count)
            .find(|&slot| self.0.insert((bus, slot)))
            .ok_or_else(|| DriveError::Full {
                drive: spec.name.clone(),
                kind: spec.kind,
            })
    }
}

/// Returns a slot for each drive: the requested one, else the lowest free one, in the order of the drives.
pub(super) fn assign<'a>(
    drives: impl Iterator<Item = &'a DriveSpec> + Clone,
) -> Result<Vec<u8>, DriveError> {
    let mut taken = Taken::default();
    for drive in drives.clone() {
        if let Some(slot) = drive.slot {
            taken.requested(drive, slot)?;
        }
    }
    drives
        .map(|drive| drive.slot.map_or_else(|| taken.lowest(drive), Ok))
        .collect()
}

/// Devices of a running machine, as reported by qemu.
#[derive(Debug)]
pub(super) struct Machine {
    devices: BTreeSet<String>,
    taken: BTreeSet<(Bus, u8)>,
}

impl Machine {
    pub(super) fn has(&self, device: &str) -> bool {
        self.devices.contains(device)
    }

    /// Returns the slot for a further drive.
    pub(super) fn place(&self, spec: &DriveSpec) -> Result<u8, DriveError> {
        let mut taken = Taken(self.taken.clone());
        match spec.slot {
            Some(slot) => taken.requested(spec, slot),
            None => taken.lowest(spec),
        }
    }
}

/// Reads the devices and their slots from qemu.
pub(super) fn read(qmp: &mut Qmp) -> Result<Machine, QmpError> {
    let mut machine = Machine {
        devices: BTreeSet::new(),
        taken: BTreeSet::new(),
    };
    let listed = qmp.execute("qom-list", json!({"path": "/machine/peripheral"}))?;
    for child in listed.as_array().into_iter().flatten() {
        let text = |key: &str| child[key].as_str().unwrap_or_default();
        let Some(kind) = text("type").strip_prefix("child<") else {
            continue;
        };
        let id = text("name").to_owned();
        // These devices have no bus.
        if !kind.starts_with("nvme-subsys") {
            let path = format!("/machine/peripheral/{id}");
            let bus = get(qmp, &path, "parent_bus")?;
            let bus = bus.as_str().unwrap_or_default().rsplit('/').next();
            let bus = bus.unwrap_or_default();
            if bus == SCSI_BUS {
                let target = get(qmp, &path, "scsi-id")?.as_u64();
                if let Some(target) = target.and_then(|target| u8::try_from(target).ok()) {
                    machine.taken.insert((Bus::Scsi, target));
                }
            } else if let Some(slot) = (0..ROOT_PORTS).find(|&slot| root_port(slot) == bus) {
                machine.taken.insert((Bus::Pcie, slot));
            }
        }
        machine.devices.insert(id);
    }
    Ok(machine)
}

fn get(qmp: &mut Qmp, path: &str, property: &str) -> Result<Value, QmpError> {
    qmp.execute("qom-get", json!({"path": path, "property": property}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(drives: &[DriveSpec]) -> Result<Vec<u8>, DriveError> {
        assign(drives.iter())
    }

    #[test]
    fn slots_follow_the_list_around_those_that_were_requested() {
        let drives = [
            DriveSpec::nvme("a", 1 << 20),
            DriveSpec::scsi("b", 1 << 20),
            DriveSpec::virtio("c", 1 << 20),
            DriveSpec::nvme("d", 1 << 20).slot(1),
            DriveSpec::sata("e", 1 << 20),
        ];
        assert_eq!(slots(&drives).unwrap(), [0, 0, 2, 1, 0]);
    }

    #[test]
    fn a_slot_is_one_drives_only() {
        let both = [
            DriveSpec::nvme("a", 1 << 20).slot(3),
            DriveSpec::virtio("b", 1 << 20).slot(3),
        ];
        let refused = slots(&both).unwrap_err().to_string();
        assert_eq!(refused, "b: virtio slot 3 is taken or does not exist");
        let seven: Vec<DriveSpec> = (0..7)
            .map(|number| DriveSpec::sata(&format!("s{number}"), 1 << 20))
            .collect();
        assert!(matches!(slots(&seven), Err(DriveError::Full { .. })));
    }

    #[test]
    fn what_a_device_cannot_be_is_refused() {
        let refused = |spec: DriveSpec| spec.check().unwrap_err().to_string();
        let nvme = || DriveSpec::nvme("n", 1 << 20);
        let cannot = "n: qemu's NVMe drives cannot";
        assert_eq!(refused(nvme().wwn(5)), format!("{cannot} have a WWN"));
        assert_eq!(
            refused(nvme().rotating(5400)),
            format!("{cannot} choose to rotate")
        );
        for odd in [
            nvme().model("X"),
            nvme().serial(""),
            nvme().serial("123456789012345678901"),
            nvme().sector(4096, 512),
            DriveSpec::nvme("n", 4095),
            DriveSpec::nvme("a b", 1 << 20),
            DriveSpec::nvme("n", 0),
            DriveSpec::sata("s", 1 << 20).sector(4096, 4096),
            DriveSpec::scsi("s", 1 << 20).eui64(1),
            DriveSpec::scsi("s", 1 << 20).model("more than sixteen"),
            DriveSpec::virtio("v", 1 << 20).firmware("1"),
        ] {
            assert!(odd.check().is_err(), "{odd:?}");
        }
        DriveSpec::scsi("s", 1 << 20)
            .wwn(0x5000_c500_1234_5678)
            .model("sixteen letters!")
            .firmware("F1.2")
            .rotating(7200)
            .sector(4096, 4096)
            .check()
            .unwrap();
    }
}
