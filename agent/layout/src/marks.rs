//! Tells whether a drive is ours, by what Drivebay writes on drives: read before any other signature, by readers that
//! need one good copy of each structure. The bytes of a volume are its user's: none of them counts more than a mark of ours.

use std::io;

use super::{
    device::{self, Medium},
    gpt::{self, Which},
    lvm::{self, backup, metadata, plan},
    record,
};
use drivebay_model::{Layout, MIB};

/// How the tags in the LVM metadata of a VG of ours begin, in quotes.
const TAG: &[u8] = b"\"drivebay.";

/// What a drive's marks say.
#[derive(Debug, PartialEq, Eq)]
pub enum Mark {
    /// No mark of ours; the LVM metadata found.
    None(metadata::Found),
    /// Ours, with this layout.
    Ours(Layout),
    /// Ours, with a table that was written while the drive had sectors of this many bytes. It has others now.
    OtherSector(u64),
    /// Marks of both layouts: which one is valid is unknown.
    Both,
}

/// Whose the drive is.
///
/// An LVM volume may own the last bytes of its drive, so a backup table alone, which its user can write there, is no mark
/// beside a volume group of ours. An error: what does not read could be a mark.
pub fn read<D: Medium + ?Sized>(dev: &D) -> io::Result<Mark> {
    let (pv, table) = (metadata::read(dev), gpt::read(dev));
    let by_pv = pv.as_ref().is_ok_and(lvm::is_ours);
    let (by_table, by_backup) = match &table {
        Ok(gpt::Found::Whole(table)) => (table.is_ours(), false),
        Ok(gpt::Found::One { table, damaged, .. }) => match damaged {
            Which::Primary => (false, table.is_ours()),
            Which::Backup => (table.is_ours(), false),
        },
        Ok(gpt::Found::Differ { primary, backup }) => (primary.is_ours(), backup.is_ours()),
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

/// What only Drivebay writes, on a drive without a mark that says whose it is, in words: it was ours and is damaged, or a part
/// of it was wiped. An error: what does not read could be a trace.
pub fn traces<D: Medium + ?Sized>(dev: &D) -> io::Result<Option<&'static str>> {
    let looks: [(&'static str, &dyn Fn() -> io::Result<bool>); 3] = [
        ("a Drivebay label", &|| record::has_traces(dev)),
        ("a copy of our LVM metadata", &|| {
            backup::has_traces(dev, plan::COPIES)
        }),
        ("Drivebay LVM metadata", &|| has_tags(dev)),
    ];
    device::first(looks.map(|(what, look)| look().map(|found| found.then_some(what))))
}

/// Whether there is a text with our tags where our metadata areas are. Texts are never erased, only written over.
fn has_tags<D: Medium + ?Sized>(dev: &D) -> io::Result<bool> {
    let end = plan::METADATA_END.min(dev.size() / MIB * MIB);
    let mut piece = vec![0; MIB as usize];
    device::any((0..end).step_by(MIB as usize).map(|start| {
        dev.read_at(start, &mut piece)?;
        Ok(memchr::memmem::find(&piece, TAG).is_some())
    }))
}
