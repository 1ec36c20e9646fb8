//! What a test asks of a drive, checked against what qemu's device of that kind can be.

use std::{fmt, path::Path};

use super::{super::nbd::Trim, DriveError};
use crate::Trouble;

/// The kinds of drives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An NVMe controller with one namespace. Its model and firmware are qemu's.
    Nvme,
    /// On the chipset's AHCI; there from power on only. Its logical sector is 512.
    Sata,
    /// On a virtio-scsi bus; it looks like SAS but for the transport.
    Scsi,
    /// virtio-blk: a serial and nothing more.
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

/// What is behind a drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// A sparse file: fast, without faults. qemu's locks keep it to one machine at a time.
    File,
    /// The same file, served by this process with faults at the test's command.
    Nbd {
        /// With a volatile cache; the guest sees "write back" and flushes.
        volatile: bool,
        /// What a TRIM does.
        trim: Trim,
    },
}

/// Contents written to a drive before it is plugged in.
type Contents = Box<dyn FnOnce(&Path) -> Result<(), Trouble> + Send>;

/// A drive to be made.
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
    /// A blank drive without moving parts, of 512-byte sectors, backed by a file; its serial is its name.
    /// One character ("a") is no identity to the product, as zeros are none: name it with more.
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

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its kind.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// As `new`.
    pub fn nvme(name: &str, bytes: u64) -> Self {
        Self::new(Kind::Nvme, name, bytes)
    }

    /// As `new`.
    pub fn sata(name: &str, bytes: u64) -> Self {
        Self::new(Kind::Sata, name, bytes)
    }

    /// As `new`.
    pub fn scsi(name: &str, bytes: u64) -> Self {
        Self::new(Kind::Scsi, name, bytes)
    }

    /// As `new`.
    pub fn virtio(name: &str, bytes: u64) -> Self {
        Self::new(Kind::Virtio, name, bytes)
    }

    /// With this serial number: 20 characters, SCSI 36.
    #[must_use]
    pub fn serial(mut self, serial: &str) -> Self {
        serial.clone_into(&mut self.serial);
        self
    }

    /// With this world wide name, a NAA (its first digit is 5): SATA and SCSI.
    #[must_use]
    pub fn wwn(mut self, wwn: u64) -> Self {
        self.wwn = Some(wwn);
        self
    }

    /// With this EUI-64: NVMe. Linux believes it after [`TRUST_EUI`](super::TRUST_EUI) only, and the drive must be there at power on.
    /// An NGUID is not in qemu before version 9.
    #[must_use]
    pub fn eui64(mut self, eui64: u64) -> Self {
        self.eui64 = Some(eui64);
        self
    }

    /// With this model: SATA (40 characters) and SCSI (16).
    #[must_use]
    pub fn model(mut self, model: &str) -> Self {
        self.model = Some(model.to_owned());
        self
    }

    /// With this firmware revision: SATA (8 characters) and SCSI (4).
    #[must_use]
    pub fn firmware(mut self, firmware: &str) -> Self {
        self.firmware = Some(firmware.to_owned());
        self
    }

    /// A disk that turns so often a minute: SATA and SCSI. The others say what they always say (virtio-blk: rotational).
    #[must_use]
    pub fn rotating(mut self, rpm: u16) -> Self {
        self.rpm = Some(rpm);
        self
    }

    /// With sectors of this size: logical, and physical at least as large. 512 or 4096.
    #[must_use]
    pub fn sector(mut self, logical: u32, physical: u32) -> Self {
        (self.logical, self.physical) = (logical, physical);
        self
    }

    /// In this slot of its kind (NVMe and virtio: PCIe root port, shared; SATA: port; SCSI: target). Without: the lowest free one.
    #[must_use]
    pub fn slot(mut self, slot: u8) -> Self {
        self.slot = Some(slot);
        self
    }

    /// Write-protected: SCSI and virtio.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.read_only = true;
        self
    }

    /// Served by this process, with a volatile write cache and faults at command.
    #[must_use]
    pub fn served(mut self) -> Self {
        self.backend = Backend::Nbd {
            volatile: true,
            trim: Trim::Keeps,
        };
        self
    }

    /// With this behind it.
    #[must_use]
    pub fn backend(mut self, backend: Backend) -> Self {
        self.backend = backend;
        self
    }

    /// With contents: the closure is given the backing file.
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

    /// Refuses what the device cannot be, rather than make another one.
    pub(super) fn check(&self) -> Result<(), DriveError> {
        let named = self
            .name
            .starts_with(|first: char| first.is_ascii_alphabetic())
            && self
                .name
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'));
        // qemu's node names have 31 characters, and "-disk" is added.
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
    /// Shell, for the guest as root, to run before a drive of this kind hangs for longer than 30 s: it raises the time after which
    /// Linux resets the device, which qemu would answer by waiting for its requests with the whole machine stopped.
    /// None: Linux waits for ever by itself (virtio).
    pub fn patience(self, device: &str) -> Option<String> {
        let name = device.trim_start_matches("/dev/");
        match self {
            // Milliseconds. A drive with an EUI-64 has its requests on the path's device.
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
