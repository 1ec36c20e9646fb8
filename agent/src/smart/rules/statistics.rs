//! Where the ATA device statistics have what an attribute counts (ACS-4, 9.5): HGST, WD and Toshiba mostly lack 187.

use crate::smart::history::Counter;

/// Number of Reallocated Logical Sectors.
pub(in crate::smart) const REALLOCATED: (u64, u64) = (3, 32);
/// Number of Reported Uncorrectable Errors.
pub(in crate::smart) const UNCORRECTABLE: (u64, u64) = (4, 8);
/// Number of Interface CRC Errors.
pub(in crate::smart) const INTERFACE_CRC: (u64, u64) = (6, 24);

/// The counters that a page and an offset stand in for where the attribute is missing.
pub(in crate::smart) const COUNTERS: [(Counter, (u64, u64)); 3] = [
    (Counter::Reallocated, REALLOCATED),
    (Counter::ReportedUncorrect, UNCORRECTABLE),
    (Counter::InterfaceCrc, INTERFACE_CRC),
];
