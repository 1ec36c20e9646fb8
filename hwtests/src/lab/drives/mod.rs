//! Drives of a virtual machine: specifications, and created drives that are plugged and unplugged.

mod error;
mod qemu;
mod slots;
mod spec;

use std::{
    fs::File,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::{Value, json};

use super::{
    nbd::{NbdDrive, NbdOptions},
    qmp::{Qmp, QmpError},
};

pub use error::DriveError;
pub use slots::{ROOT_PORTS, bus_args, root_port};
pub use spec::{Backend, DriveSpec, Kind};

/// Longest time for a guest to release a drive; it is slow under TCG.
const UNPLUG: Duration = Duration::from_secs(90);

/// Shell commands for the guest as root, after which Linux trusts the EUI-64 of qemu's NVMe drives, present and future ones. It distrusts
/// that PCI device by default because old versions had none (the quirk `NVME_QUIRK_BOGUS_NID`). No such drive may be in use.
pub const TRUST_EUI: &str = "modprobe nvme && cd /sys/bus/pci/drivers/nvme && echo 1b36 0010 ffffffff ffffffff 0 0 0 > new_id \
    && for d in 0000:*; do [ -e $d ] && echo $d > unbind && echo $d > bind; done; true";

/// A created drive, plugged into a machine or not.
#[derive(Debug)]
pub struct LabDrive {
    spec: DriveSpec,
    file: PathBuf,
    nbd: Option<NbdDrive>,
}

/// Returns qemu's arguments for drives that are present at power on. They take slots in this order, except for those that request one; the
/// guest names drives of a kind in the order of their slots, as far as its naming has an order.
///
/// # Errors
/// Two request the same slot, or there are too few.
pub fn boot_args(drives: &[&LabDrive]) -> Result<Vec<String>, DriveError> {
    let taken = slots::assign(drives.iter().map(|drive| &drive.spec))?;
    let args = drives.iter().zip(taken);
    Ok(args
        .flat_map(|(drive, slot)| drive.boot_args(slot))
        .collect())
}

impl DriveSpec {
    /// Creates the drive in this directory: `<name>.img`, and `<name>.nbd` if it is served.
    ///
    /// # Errors
    /// Its kind does not support the specification, or a file cannot be created.
    pub fn make(mut self, dir: &Path) -> Result<LabDrive, DriveError> {
        self.check()?;
        let file = dir.join(format!("{}.img", self.name));
        let made = File::create_new(&file).and_then(|made| made.set_len(self.bytes));
        made.map_err(|source| DriveError::File {
            path: file.clone(),
            source,
        })?;
        if let Some(contents) = self.contents.take() {
            contents(&file).map_err(|source| DriveError::Contents {
                drive: self.name.clone(),
                source,
            })?;
        }
        let nbd = match self.backend {
            Backend::File => None,
            Backend::Nbd { volatile, trim } => {
                let options = NbdOptions {
                    volatile,
                    sector: self.logical,
                    trim,
                };
                let socket = dir.join(format!("{}.nbd", self.name));
                Some(NbdDrive::serve(&file, &socket, &options)?)
            }
        };
        Ok(LabDrive {
            spec: self,
            file,
            nbd,
        })
    }
}

impl LabDrive {
    /// Returns its name, which is also its id in qemu.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// Returns its kind, which determines its bus and whether it has hotplug.
    pub fn kind(&self) -> Kind {
        self.spec.kind
    }

    /// Returns its backing file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// True if this process serves it and can inject faults.
    pub fn is_served(&self) -> bool {
        self.nbd.is_some()
    }

    /// Returns the control of its faults and counters.
    ///
    /// # Panics
    /// When it is a plain file: ask for `served()`.
    pub fn nbd(&self) -> &NbdDrive {
        let name = self.name();
        self.nbd
            .as_ref()
            .unwrap_or_else(|| panic!("{name} is a plain file; faults need served()"))
    }

    /// Sets the slot for the next plugging or boot; None: the next free one.
    pub fn move_to(&mut self, slot: Option<u8>) {
        self.spec.slot = slot;
    }

    /// Returns qemu's arguments for this drive at power on, in this slot.
    pub fn boot_args(&self, slot: u8) -> Vec<String> {
        let mut args = vec!["-blockdev".to_owned(), self.blockdev().to_string()];
        for device in qemu::boot_devices(&self.spec, slot) {
            args.extend(["-device".to_owned(), device.to_string()]);
        }
        args
    }

    fn blockdev(&self) -> Value {
        qemu::blockdev(
            &self.spec,
            &self.file,
            self.nbd.as_ref().map(NbdDrive::socket),
        )
    }

    fn node(&self) -> String {
        qemu::node(&self.spec)
    }

    /// True if its namespace stays in qemu when its controller is unplugged: for an NVMe drive with an EUI-64.
    fn namespace_stays(&self) -> bool {
        self.spec.kind == Kind::Nvme && self.spec.eui64.is_some()
    }

    /// Plugs it into a running machine. The guest detects it a moment later.
    ///
    /// # Errors
    /// The kind has no hotplug, no slot is free, or qemu refused.
    pub fn plug(&self, qmp: &mut Qmp) -> Result<(), DriveError> {
        let name = self.name().to_owned();
        if self.spec.kind == Kind::Sata {
            return Err(DriveError::NoHotplug { drive: name });
        }
        let to_error = |source| self.qmp_error("plugging in", source);
        let machine = slots::read(qmp).map_err(to_error)?;
        let slot = machine.place(&self.spec)?;
        if self.namespace_stays() {
            if !machine.has(&qemu::namespace_id(&self.spec)) {
                return Err(DriveError::EuiNotBooted { drive: name });
            }
            qmp.execute("device_add", qemu::controller(&self.spec, slot))
                .map_err(to_error)?;
            return Ok(());
        }
        qmp.execute("blockdev-add", self.blockdev())
            .map_err(to_error)?;
        if let Err(refused) = qmp.execute("device_add", qemu::controller(&self.spec, slot)) {
            // The first error is the one to report.
            let _ = qmp.execute("blockdev-del", json!({"node-name": self.node()}));
            return Err(to_error(refused));
        }
        Ok(())
    }

    /// Unplugs it, and waits until the guest has released it.
    ///
    /// # Errors
    /// The kind has no hotplug; the drive hangs or is cut (qemu would wait for its requests with the whole machine stopped: `resume` or
    /// `die` first); or the guest does not release it.
    pub fn unplug(&self, qmp: &mut Qmp) -> Result<(), DriveError> {
        let name = self.name().to_owned();
        if self.spec.kind == Kind::Sata {
            return Err(DriveError::NoHotplug { drive: name });
        }
        if self.nbd.as_ref().is_some_and(|nbd| nbd.is_silent()) {
            return Err(DriveError::Silent { drive: name });
        }
        let to_error = |source| self.qmp_error("unplugging", source);
        qmp.execute("device_del", json!({"id": name}))
            .map_err(to_error)?;
        let names = ["DEVICE_DELETED", "DEVICE_UNPLUG_GUEST_ERROR"];
        let event = qmp
            .event("DEVICE_DELETED", UNPLUG, |event| {
                names.contains(&event.name.as_str()) && event.data["device"] == name.as_str()
            })
            .map_err(to_error)?;
        if event.name != "DEVICE_DELETED" {
            return Err(DriveError::GuestKeeps { drive: name });
        }
        if !self.namespace_stays() {
            qmp.execute("blockdev-del", json!({"node-name": self.node()}))
                .map_err(to_error)?;
        }
        Ok(())
    }

    /// Sets the critical warning of an NVMe drive's SMART log, a set of bits: 0x01 spare, 0x02 temperature, 0x04 reliability, 0x08
    /// read-only, 0x10 volatile memory backup. The guest gets no event: it sees the bits when it reads the log.
    ///
    /// # Errors
    /// Not NVMe (qemu has no such fault for others), or not plugged in.
    pub fn set_smart_warning(&self, qmp: &mut Qmp, bits: u8) -> Result<(), DriveError> {
        if self.spec.kind != Kind::Nvme {
            return Err(self.spec.cannot("have a SMART warning"));
        }
        let property = json!({
            "path": format!("/machine/peripheral/{}", self.name()),
            "property": "smart_critical_warning",
            "value": bits,
        });
        qmp.execute("qom-set", property)
            .map_err(|source| self.qmp_error("setting the SMART warning of", source))?;
        Ok(())
    }

    fn qmp_error(&self, doing: &'static str, source: QmpError) -> DriveError {
        DriveError::Qmp {
            doing,
            drive: self.name().to_owned(),
            source,
        }
    }
}

/// Swaps the requested slots of two drives of a kind.
pub fn swap_slots(one: &mut LabDrive, other: &mut LabDrive) {
    std::mem::swap(&mut one.spec.slot, &mut other.spec.slot);
}
