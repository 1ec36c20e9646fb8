//! The worker job that reads a drive's signatures and samples whether it is blank. It writes
//! nothing.

mod blank;
pub mod magics;
pub mod remains;

use std::{cell::Cell, io};

use serde::{Deserialize, Serialize};

pub use crate::gpt::GptState;
use crate::{
    device::Medium,
    gpt::{self, is_our_mbr},
    lvm::metadata,
    marks::{self, Mark},
};
use drivebay_model::{Cause, ClaimPolicy, DriveRef, Layout, MIB, Signature, Signatures};
use drivebay_sys::{
    blkid,
    direct::{ALIGN, Aligned},
    diskread::DiskReader,
    drive::OpenError,
};
use drivebay_worker::{Context, Job};

/// Probes a whole drive. Writes nothing.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Probe {
    pub drive: DriveRef,
    /// Policy of the class that selects the drive, which decides if it is sampled for zeros; None: signatures only.
    pub policy: Option<ClaimPolicy>,
    /// True: signatures are searched for also on a drive of ours, which has nothing but a partition table if its claim was interrupted.
    pub past_own_table: bool,
}

/// Result of sampling for zeros.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Blankness {
    /// Zeros in the first and last 16 MiB and in 64 spread samples.
    Blank,
    /// A byte that is not zero, at this offset.
    DataAt(u64),
    /// Not sampled: not requested, or a signature was found first.
    NotSampled,
}

/// Result of probing a drive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probed {
    /// Size of the device, bytes: that of the requested `DriveRef`, which opening compares with BLKGETSIZE64.
    pub size_bytes: u64,
    /// True if the kernel reports the device as read-only (BLKROGET).
    pub read_only: bool,
    /// O_EXCL was refused: mounted, held, or opened exclusively. False of a drive that no class selects, and of one of ours: not
    /// asked.
    pub busy: bool,
    /// Signatures of superblocks and tables. Not searched for on a claimed drive: they belong to volumes.
    pub signatures: Signatures,
    /// The GPT. Not read on a claimed drive.
    pub gpt: GptState,
    /// Ours, and its layout: the table starts with our label partition's type, or an LVM PV has our VG (or the
    /// beginning of one).
    pub ours: Option<Layout>,
    /// The sector size that our table was written with, on a drive that has another one now.
    pub written_sector: Option<u64>,
    /// Traces of Drivebay on a drive that is not `ours`, in words.
    pub traces: Option<String>,
    /// Type GUIDs of all its GPT partitions, in lower case. ESP and root types identify a system drive.
    pub gpt_types: Vec<String>,
    pub blankness: Blankness,
}

/// Error of a probe. It is no evidence about the contents of the drive.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum ProbeError {
    /// The device at this name is not the expected drive any more.
    #[error("drive {drive} is not at /dev/{kernel_name} any more ({seen})")]
    NotThisDrive {
        /// Id of the drive that was expected at `kernel_name`.
        drive: String,
        /// Kernel name at which the drive was expected.
        kernel_name: String,
        /// Device that has this name now.
        seen: String,
    },
    /// The device could not be opened or verified, or its read-only flag or sector size could not be read.
    #[error("cannot open /dev/{kernel_name}")]
    Open {
        kernel_name: String,
        #[source]
        source: Cause,
    },
    /// Reading the device failed.
    #[error("cannot read /dev/{kernel_name} at byte {offset}")]
    Read {
        kernel_name: String,
        offset: u64,
        #[source]
        source: Cause,
    },
    /// libblkid could not probe the device, mostly because of a read error.
    #[error("libblkid failed on /dev/{kernel_name} ({what})")]
    Blkid {
        kernel_name: String,
        /// Name of the libblkid function that failed, or `opening`.
        what: String,
        #[source]
        source: Cause,
    },
}

/// libblkid's TYPE of an LVM PV.
pub const PV_KIND: &str = "LVM2_member";
/// Bytes that are always read at both ends, regardless of the policy: a drive that cannot be read
/// must not be claimed.
const ENDS_BYTES: u64 = MIB;

impl Job for Probe {
    const NAME: &'static str = "probe";
    type Answer = Probed;
    type Error = ProbeError;
    fn run(self, context: &mut Context) -> Result<Probed, ProbeError> {
        context.step("open");
        let mut disk =
            DiskReader::open(&self.drive, false).map_err(|error| self.not_opened(error))?;
        let read_only = disk.read_only().map_err(|error| self.failed(error))?;

        disk.uncached();
        let size = disk.size();
        let sector = disk.logical_sector().map_err(|error| self.failed(error))?;
        let medium = Uncached {
            disk: &disk,
            sector: u64::from(sector.max(512)),
            failed_at: Cell::new(0),
        };
        let failed = |error| self.read_error(medium.failed_at.get(), error);

        context.step("marks of ours");
        let marked = marks::read(&medium).map_err(failed);
        let traces = match (&marked, self.policy) {
            // No class selects the drive, so it will not be claimed.
            (Ok(Mark::Ours(_) | Mark::OtherSector(_)), _) | (_, None) => None,
            _ => marks::traces(&medium).map_err(failed)?,
        };
        let mut probed = Probed {
            size_bytes: size,
            read_only,
            busy: false,
            signatures: Signatures::Empty,
            gpt: GptState::None,
            ours: None,
            written_sector: None,
            traces: traces.map(str::to_owned),
            gpt_types: Vec::new(),
            blankness: Blankness::NotSampled,
        };
        let pv = match marked {
            Ok(Mark::None(pv)) => pv,
            Ok(Mark::Both) => {
                probed.traces = Some("Drivebay's marks of both layouts".to_owned());
                return Ok(probed);
            }
            Ok(Mark::OtherSector(written)) => {
                disk.verify().map_err(|error| self.not_opened(error))?;
                probed.written_sector = Some(written);
                return Ok(probed);
            }
            // Data at the places of tables and superblocks belongs to a volume, or is a spare copy:
            // it is not evidence.
            Ok(Mark::Ours(Layout::Partition)) if self.past_own_table => {
                metadata::read(&medium).map_err(failed)?
            }
            Ok(Mark::Ours(layout)) => {
                disk.verify().map_err(|error| self.not_opened(error))?;
                probed.ours = Some(layout);
                return Ok(probed);
            }
            Err(_) if probed.traces.is_some() => return Ok(probed),
            Err(error) => return Err(error),
        };

        context.step("is it held");
        probed.busy = self.is_held()?;

        context.step("read both ends");
        let ends = ENDS_BYTES.min(size);
        let head = self.read(&disk, 0, ends)?;
        // Direct reads must begin at a multiple of this.
        let tail_start = (size - ends) / ALIGN * ALIGN;
        let tail = self.read(&disk, tail_start, size - tail_start)?;

        context.step("libblkid");
        // Uses a descriptor of its own: libblkid reads with any alignment, which O_DIRECT refuses.
        let cached =
            DiskReader::open(&self.drive, false).map_err(|error| self.not_opened(error))?;
        let signatures = blkid::probe_file(cached.file(), &self.drive.node())
            .map_err(|error| self.blkid_error(error))?;
        let signatures = with_own(signatures, magics::find(size, &head, &tail));

        context.step("partition table");
        let gpt = gpt::scan(&medium).map_err(failed)?;

        let signatures = with_own(signatures, pv_signature(&pv));
        // A claim may have been interrupted before its first table: whether the drive has nothing
        // else must be checked.
        let begun = gpt.types.is_empty() && is_our_mbr(&head) && only_tables(&signatures);
        if gpt.ours || begun {
            probed.ours = Some(Layout::Partition);
            probed.traces = None;
        }

        let mut signatures = signatures;
        if signatures == Signatures::Empty
            && gpt.state == GptState::None
            && self.policy == Some(ClaimPolicy::SignatureFree)
        {
            context.step("remains of tables and filesystems");
            let mut read = |offset, len: usize| self.read(&disk, offset, len as u64);
            let remains = remains::find(size, &mut read)?;
            signatures = with_own(signatures, remains.into_iter().collect());
            for start in remains::FIRST_PARTITIONS {
                if signatures == Signatures::Empty && start < size {
                    signatures = blkid::probe_from(cached.file(), &self.drive.node(), start)
                        .map_err(|error| self.blkid_error(error))?;
                }
            }
        }
        let empty = signatures == Signatures::Empty && gpt.state == GptState::None;
        probed.blankness = if empty && self.policy == Some(ClaimPolicy::Blank) {
            blank::sample(
                size,
                |offset| context.step(&format!("sample at byte {offset}")),
                |offset, buffer| disk.read(offset, buffer),
            )
            .map_err(|(offset, error)| self.read_error(offset, error))?
        } else {
            Blankness::NotSampled
        };
        // The device's name may have been assigned to another device during the probe.
        disk.verify().map_err(|error| self.not_opened(error))?;
        Ok(Probed {
            signatures,
            gpt: gpt.state,
            gpt_types: gpt.types,
            ..probed
        })
    }
}

impl Probe {
    /// True if another process or device holds the drive. A drive that may be claimed is opened
    /// with O_EXCL for a moment, in which it can be neither mounted nor activated by others, and no
    /// partition of it be formatted; other drives, and claimed ones, never are.
    fn is_held(&self) -> Result<bool, ProbeError> {
        if self.policy.is_none() {
            return Ok(false);
        }
        match DiskReader::open(&self.drive, true) {
            Ok(_) => Ok(false),
            Err(OpenError::Busy(_)) => Ok(true),
            Err(error) => Err(self.not_opened(error)),
        }
    }

    fn read(&self, disk: &DiskReader, offset: u64, len: u64) -> Result<Vec<u8>, ProbeError> {
        let mut buffer = Aligned::new(len as usize);
        disk.read(offset, &mut buffer)
            .map_err(|error| self.read_error(offset, error))?;
        Ok(buffer.bytes().to_vec())
    }

    fn not_opened(&self, error: OpenError) -> ProbeError {
        match error {
            OpenError::NotThisDrive { seen: device, .. } => ProbeError::NotThisDrive {
                drive: self.drive.id.0.clone(),
                kernel_name: self.drive.kernel_name.clone(),
                seen: device,
            },
            OpenError::Gone { source, .. } | OpenError::Io { source, .. } => self.failed(source),
            OpenError::Busy(_) => self.failed(io::Error::from_raw_os_error(libc::EBUSY)),
        }
    }

    fn failed(&self, error: io::Error) -> ProbeError {
        ProbeError::Open {
            kernel_name: self.drive.kernel_name.clone(),
            source: error.into(),
        }
    }

    fn read_error(&self, offset: u64, error: io::Error) -> ProbeError {
        ProbeError::Read {
            kernel_name: self.drive.kernel_name.clone(),
            offset,
            source: error.into(),
        }
    }

    fn blkid_error(&self, error: blkid::BlkidError) -> ProbeError {
        let what = match &error {
            blkid::BlkidError::Probe { what, .. } => (*what).to_owned(),
            _ => "opening".to_owned(),
        };
        ProbeError::Blkid {
            kernel_name: self.drive.kernel_name.clone(),
            what,
            source: Cause::new(&error),
        }
    }
}

/// A drive read past the page cache. Stores the offset of the last failed read, for the error
/// message.
struct Uncached<'a> {
    disk: &'a DiskReader,
    sector: u64,
    failed_at: Cell<u64>,
}

impl Medium for Uncached<'_> {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let mut buffer = Aligned::new(buf.len());
        self.disk
            .read(offset, &mut buffer)
            .inspect_err(|_| self.failed_at.set(offset))?;
        buf.copy_from_slice(buffer.bytes());
        Ok(())
    }

    fn size(&self) -> u64 {
        self.disk.size()
    }

    fn sector(&self) -> u64 {
        self.sector
    }
}

/// True if only tables were found. With any other signature a mark in the first sector is a remnant
/// of an earlier claim, and the present contents decide.
pub fn only_tables(signatures: &Signatures) -> bool {
    match signatures {
        Signatures::Empty => true,
        Signatures::Found(all) => all.iter().all(|one| one.usage == blkid::USAGE_TABLE),
        Signatures::Ambiguous(_) => false,
    }
}

/// Returns a signature for an LVM label, also for a damaged one, which libblkid ignores.
pub fn pv_signature(contents: &metadata::PvContents) -> Vec<Signature> {
    let uuid = match contents {
        metadata::PvContents::NoPv => return Vec::new(),
        metadata::PvContents::Orphan(header) => header.uuid.clone(),
        metadata::PvContents::Vg(committed) => committed.header.uuid.clone(),
        metadata::PvContents::Torn(torn) => torn.header.uuid.clone(),
        metadata::PvContents::Damaged { header, .. } => header
            .as_ref()
            .map(|header| header.uuid.clone())
            .unwrap_or_default(),
    };
    vec![Signature {
        kind: PV_KIND.to_owned(),
        usage: "raid".to_owned(),
        uuid,
        label: String::new(),
        offset: None,
    }]
}

/// Merges libblkid's signatures with those that only Drivebay finds.
pub fn with_own(theirs: Signatures, own: Vec<Signature>) -> Signatures {
    let merge = |mut merged: Vec<Signature>| {
        for one in own.clone() {
            if !merged.iter().any(|existing| existing.kind == one.kind) {
                merged.push(one);
            }
        }
        merged
    };
    match theirs {
        Signatures::Empty if own.is_empty() => Signatures::Empty,
        Signatures::Empty => Signatures::Found(own),
        Signatures::Found(signatures) => Signatures::Found(merge(signatures)),
        Signatures::Ambiguous(signatures) => Signatures::Ambiguous(merge(signatures)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(kind: &str) -> Signature {
        Signature {
            kind: kind.into(),
            usage: "raid".into(),
            uuid: String::new(),
            label: String::new(),
            offset: None,
        }
    }

    #[test]
    fn a_claim_that_was_begun_has_nothing_but_tables() {
        let table = Signature {
            usage: blkid::USAGE_TABLE.into(),
            ..one("PMBR")
        };
        assert!(only_tables(&Signatures::Empty));
        assert!(only_tables(&Signatures::Found(vec![table.clone()])));
        assert!(!only_tables(&Signatures::Found(vec![table, one("btrfs")])));
        assert!(!only_tables(&Signatures::Ambiguous(vec![])));
    }

    #[test]
    fn an_lvm_label_is_a_signature_even_when_it_is_damaged() {
        assert_eq!(pv_signature(&metadata::PvContents::NoPv), []);
        let damaged = pv_signature(&metadata::PvContents::Damaged {
            why: "checksum".into(),
            header: None,
        });
        assert_eq!(damaged[0].kind, PV_KIND);
    }

    #[test]
    fn what_either_side_found_is_found() {
        let signatures = |kinds: &[&str]| kinds.iter().map(|kind| one(kind)).collect::<Vec<_>>();
        assert_eq!(with_own(Signatures::Empty, vec![]), Signatures::Empty);
        assert_eq!(
            with_own(Signatures::Empty, signatures(&["drbd"])),
            Signatures::Found(signatures(&["drbd"]))
        );
        assert_eq!(
            with_own(
                Signatures::Found(signatures(&["a"])),
                signatures(&["a", "b"])
            ),
            Signatures::Found(signatures(&["a", "b"]))
        );
        assert_eq!(
            with_own(Signatures::Ambiguous(vec![]), signatures(&["b"])),
            Signatures::Ambiguous(signatures(&["b"]))
        );
    }
}
