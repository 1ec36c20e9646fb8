//! Specification of a drive, checked against the capabilities of qemu's device of its kind.

use std::{fmt, path::Path};

use super::{super::nbd::Trim, DriveError};
use crate::Trouble;

/// Kind of a drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// NVMe controller with one namespace. Its model and firmware are qemu's.
    Nvme,
    /// SATA drive on the chipset's AHCI, without hotplug. Its logical sector is 512 bytes.
    Sata,
    /// SCSI drive on a virtio-scsi bus; it looks like SAS except for the transport.
    Scsi,
    /// virtio-blk drive, which has a serial only.
    Virtio,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nvme => "NVMe",
            Self::Sata => "SATA",
            Self::Scsi => "SCSI",
            Self::Virtio => "virtio",
        })
    }
}

/// Backend of a drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// Sparse file: fast, without faults. qemu's locks allow one machine at a time.
    File,
    /// The same file, served by this process with fault injection.
    Nbd {
        /// True for a volatile cache; the guest sees "write back" and flushes.
        volatile: bool,
        /// Effect of a TRIM.
        trim: Trim,
    },
}

/// Contents written to a drive before it is plugged in.
type Contents = Box<dyn FnOnce(&Path) -> Result<(), Trouble> + Send>;

/// Specification of a drive.
pub struct DriveSpec {
    pub(super) kind: Kind,
    pub(super) name: String,
    pub(super) bytes: u64,
    pub(super) serial: String,
    pub(super) wwn: Option<u64>,
    pub(super) eui64: Option<u64>,
    pub(super) model: Option<String>,
    pub(super) firmware: Option<String>,
    pub(super) rpm: Option<u16>,
    pub(super) logical: u32,
    pub(super) physical: u32,
    pub(super) slot: Option<u8>,
    pub(super) read_only: bool,
    pub(super) backend: Backend,
    pub(super) contents: Option<Contents>,
}

impl DriveSpec {
    /// Specifies a blank non-rotating drive with 512-byte sectors, backed by a file; its serial is its name. The product accepts neither a
    /// single character ("a") nor zeros as identity, so the name must be longer.
    pub fn new(kind: Kind, name: &str, bytes: u64) -> Self {
        Self {
            kind,
            name: name.to_owned(),
            bytes,
            serial: name.to_owned(),
            wwn: None,
            eui64: None,
            model: None,
            firmware: None,
            rpm: None,
            logical: 512,
            physical: 512,
            slot: None,
            read_only: false,
            backend: Backend::File,
            contents: None,
        }
    }

    /// Returns its name; also its id in qemu, and its serial number unless `serial` set another.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns its kind, which determines the properties that it can have.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Specifies an NVMe drive, like `new`.
    pub fn nvme(name: &str, bytes: u64) -> Self {
        Self::new(Kind::Nvme, name, bytes)
    }

    /// Specifies a SATA drive, like `new`.
    pub fn sata(name: &str, bytes: u64) -> Self {
        Self::new(Kind::Sata, name, bytes)
    }

    /// Specifies a SCSI drive, like `new`.
    pub fn scsi(name: &str, bytes: u64) -> Self {
        Self::new(Kind::Scsi, name, bytes)
    }

    /// Specifies a virtio-blk drive, like `new`.
    pub fn virtio(name: &str, bytes: u64) -> Self {
        Self::new(Kind::Virtio, name, bytes)
    }

    /// Sets the serial number: at most 20 characters, for SCSI 36.
    #[must_use]
    pub fn serial(mut self, serial: &str) -> Self {
        serial.clone_into(&mut self.serial);
        self
    }

    /// Sets the world wide name, an NAA identifier (first digit 5), for SATA and SCSI.
    #[must_use]
    pub fn wwn(mut self, wwn: u64) -> Self {
        self.wwn = Some(wwn);
        self
    }

    /// Sets the EUI-64, for NVMe. Linux trusts it only after [`TRUST_EUI`](super::TRUST_EUI), and the drive must be present at power on.
    /// qemu has no NGUID before version 9.
    #[must_use]
    pub fn eui64(mut self, eui64: u64) -> Self {
        self.eui64 = Some(eui64);
        self
    }

    /// Sets the model: for SATA (40 characters) and SCSI (16).
    #[must_use]
    pub fn model(mut self, model: &str) -> Self {
        self.model = Some(model.to_owned());
        self
    }

    /// Sets the firmware revision: for SATA (8 characters) and SCSI (4).
    #[must_use]
    pub fn firmware(mut self, firmware: &str) -> Self {
        self.firmware = Some(firmware.to_owned());
        self
    }

    /// Makes it a disk with this many rotations per minute: for SATA and SCSI. The other kinds report a fixed value (virtio-blk:
    /// rotational).
    #[must_use]
    pub fn rotating(mut self, rpm: u16) -> Self {
        self.rpm = Some(rpm);
        self
    }

    /// Sets the sector sizes, 512 or 4096 bytes; physical must be at least logical.
    #[must_use]
    pub fn sector(mut self, logical: u32, physical: u32) -> Self {
        (self.logical, self.physical) = (logical, physical);
        self
    }

    /// Requests this slot of its kind (NVMe and virtio: PCIe root port, shared; SATA: port; SCSI: target). Default: the lowest free one.
    #[must_use]
    pub fn slot(mut self, slot: u8) -> Self {
        self.slot = Some(slot);
        self
    }

    /// Makes it write-protected: for SCSI and virtio.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.read_only = true;
        self
    }

    /// Serves it by this process, with a volatile write cache and fault injection.
    #[must_use]
    pub fn served(mut self) -> Self {
        self.backend = Backend::Nbd {
            volatile: true,
            trim: Trim::Keeps,
        };
        self
    }

    /// Sets the backend; the default is `Backend::File`.
    #[must_use]
    pub fn backend(mut self, backend: Backend) -> Self {
        self.backend = backend;
        self
    }

    /// Sets the contents: the closure gets the backing file before the drive is plugged.
    #[must_use]
    pub fn holding(
        mut self,
        contents: impl FnOnce(&Path) -> Result<(), Trouble> + Send + 'static,
    ) -> Self {
        self.contents = Some(Box::new(contents));
        self
    }

    pub(super) fn cannot(&self, what: &'static str) -> DriveError {
        DriveError::Unsupported {
            drive: self.name.clone(),
            kind: self.kind,
            what,
        }
    }

    /// Errs for a specification that the device does not support.
    pub(super) fn check(&self) -> Result<(), DriveError> {
        let named = self
            .name
            .starts_with(|first: char| first.is_ascii_alphabetic())
            && self
                .name
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'));
        // qemu's node names have at most 31 characters, including "-disk".
        self.text("name", if named { &self.name } else { "" }, 26)?;
        let (serial, model, firmware) = match self.kind {
            Kind::Scsi => (36, 16, 4),
            Kind::Sata => (20, 40, 8),
            Kind::Nvme | Kind::Virtio => (20, 0, 0),
        };
        self.text("serial", &self.serial, serial)?;
        let ata_or_scsi = matches!(self.kind, Kind::Sata | Kind::Scsi);
        if let Some(text) = &self.model {
            self.only(ata_or_scsi, "have a model of their own")?;
            self.text("model", text, model)?;
        }
        if let Some(text) = &self.firmware {
            self.only(ata_or_scsi, "have a firmware of their own")?;
            self.text("firmware", text, firmware)?;
        }
        self.only(ata_or_scsi || self.rpm.is_none(), "choose to rotate")?;
        self.only(ata_or_scsi || self.wwn.is_none(), "have a WWN")?;
        let protectable = matches!(self.kind, Kind::Scsi | Kind::Virtio) || !self.read_only;
        self.only(protectable, "be write-protected")?;
        let nvme = self.kind == Kind::Nvme;
        self.only(nvme || self.eui64.is_none(), "have an EUI-64")?;
        let small = self.kind != Kind::Sata || self.logical == 512;
        self.only(small, "have logical sectors of 4096")?;
        let sizes = [512, 4096];
        let fits = sizes.contains(&self.logical)
            && sizes.contains(&self.physical)
            && self.logical <= self.physical
            && self.bytes > 0
            && self.bytes.is_multiple_of(self.physical.into());
        if fits {
            return Ok(());
        }
        Err(DriveError::Geometry {
            drive: self.name.clone(),
            bytes: self.bytes,
            logical: self.logical,
            physical: self.physical,
        })
    }

    fn only(&self, possible: bool, what: &'static str) -> Result<(), DriveError> {
        if possible {
            Ok(())
        } else {
            Err(self.cannot(what))
        }
    }

    fn text(&self, what: &'static str, text: &str, limit: usize) -> Result<(), DriveError> {
        let printable = text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        if printable && (1..=limit).contains(&text.len()) {
            return Ok(());
        }
        Err(DriveError::Text {
            drive: self.name.clone(),
            what,
            limit,
        })
    }
}

impl fmt::Debug for DriveSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DriveSpec")
            .field("kind", &self.kind)
            .field("name", &self.name)
            .field("bytes", &self.bytes)
            .field("slot", &self.slot)
            .field("backend", &self.backend)
            .finish_non_exhaustive()
    }
}

impl Kind {
    /// Returns shell commands for the guest as root, to run before a drive of this kind hangs for longer than 30 s: they raise the timeout
    /// after which Linux resets the device, since qemu would handle a reset by waiting for its requests with the whole machine stopped.
    /// None if Linux has no such timeout (virtio).
    pub fn patience(self, device: &str) -> Option<String> {
        let name = device.trim_start_matches("/dev/");
        match self {
            // In milliseconds. A drive with an EUI-64 has its requests on the path's device.
            Self::Nvme => Some(format!(
                "for q in /sys/class/block/{name}/queue /sys/class/block/$(echo {name} | sed s/n1/c*n1/)/queue; do \
                 [ ! -w $q/io_timeout ] || echo 3600000 > $q/io_timeout; done"
            )),
            Self::Sata => Some(format!(
                "echo 3600 > /sys/class/block/{name}/device/timeout"
            )),
            Self::Scsi | Self::Virtio => None,
        }
    }
}
