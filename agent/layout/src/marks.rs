//! Determines whether a drive belongs to Drivebay, from the structures that only Drivebay writes.
//! Read before any other signature, by readers that need one good copy of each structure. The bytes
//! of a volume belong to its user: none of them takes precedence over a mark of Drivebay.

use std::io;

use super::{
    device::{self, Medium},
    gpt::{self, Which},
    lvm::{self, backup, metadata, plan},
    record,
};
use drivebay_model::{Layout, MIB};

/// The beginning of a tag of Drivebay in a VG's LVM metadata, in quotes.
const TAG: &[u8] = b"\"drivebay.";

/// Result of reading a drive's marks.
#[derive(Debug, PartialEq, Eq)]
pub enum Mark {
    /// No mark of Drivebay; the LVM metadata found.
    None(metadata::PvContents),
    /// A drive of Drivebay with this layout.
    Ours(Layout),
    /// A drive of Drivebay whose table was written while it had sectors of this many bytes. It has
    /// another sector size now.
    OtherSector(u64),
    /// Marks of both layouts: which one is valid is unknown.
    Both,
}

/// Reads a drive's marks.
///
/// An LVM volume may own the last bytes of its drive, so that a user can write a backup table
/// there: a backup table alone is not a mark if the drive has a volume group of Drivebay. Errs if a
/// range cannot be read that may hold a mark.
pub fn read<D: Medium + ?Sized>(dev: &D) -> io::Result<Mark> {
    let (pv, table) = (metadata::read(dev), gpt::read(dev));
    let by_pv = pv.as_ref().is_ok_and(lvm::is_ours);
    let (by_table, by_backup) = match &table {
        Ok(gpt::GptCopies::Whole(table)) => (table.is_ours(), false),
        Ok(gpt::GptCopies::One { table, damaged, .. }) => match damaged {
            Which::Primary => (false, table.is_ours()),
            Which::Backup => (table.is_ours(), false),
        },
        Ok(gpt::GptCopies::Differ { primary, backup }) => (primary.is_ours(), backup.is_ours()),
        _ => (false, false),
    };
    match (by_pv, by_table, by_backup) {
        (true, true, _) => Ok(Mark::Both),
        (true, false, _) => Ok(Mark::Ours(Layout::Lvm)),
        (false, true, _) | (false, _, true) => Ok(Mark::Ours(Layout::Partition)),
        (false, false, false) => {
            table?;
            match gpt::written_sector(dev)? {
                Some(written) => Ok(Mark::OtherSector(written)),
                None => pv.map(Mark::None),
            }
        }
    }
}

/// Returns a description of a structure that only Drivebay writes, on a drive without a valid mark:
/// such a drive was damaged or partly wiped. Errs if a range cannot be read that may hold a trace.
pub fn traces<D: Medium + ?Sized>(dev: &D) -> io::Result<Option<&'static str>> {
    let searches: [(&'static str, &dyn Fn() -> io::Result<bool>); 3] = [
        ("a Drivebay label", &|| record::has_traces(dev)),
        ("a copy of our LVM metadata", &|| {
            backup::has_traces(dev, plan::COPIES)
        }),
        ("Drivebay LVM metadata", &|| has_tags(dev)),
    ];
    device::first(searches.map(|(what, search)| search().map(|exists| exists.then_some(what))))
}

/// True if there is a text with Drivebay's tags where its LVM metadata areas are. Texts are never
/// erased, only overwritten.
fn has_tags<D: Medium + ?Sized>(dev: &D) -> io::Result<bool> {
    let end = plan::METADATA_END.min(dev.size() / MIB * MIB);
    let mut piece = vec![0; MIB as usize];
    device::any((0..end).step_by(MIB as usize).map(|start| {
        dev.read_at(start, &mut piece)?;
        Ok(memchr::memmem::find(&piece, TAG).is_some())
    }))
}
