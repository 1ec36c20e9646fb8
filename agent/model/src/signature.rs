//! Signatures of superblocks and partition tables, as found by libblkid and by Drivebay's own readers.

use serde::{Deserialize, Serialize};

/// Result of probing a device for signatures. A probe that failed is an error, and none of these.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Signatures {
    /// Neither libblkid's safe probe nor its walk over all signatures found any.
    Empty,
    Found(Vec<Signature>),
    /// Signatures that exclude each other (libblkid's -2).
    Ambiguous(Vec<Signature>),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signature {
    /// libblkid TYPE or PTTYPE, or a word of Drivebay (`bluestore`, `ahdi`).
    pub kind: String,
    /// libblkid USAGE (`filesystem`, `raid`, `crypto`, `other`), or `partition-table`.
    pub usage: String,
    /// UUID, when it has one.
    pub uuid: String,
    /// Label, when it has one.
    pub label: String,
    /// Byte offset of the magic, when known.
    pub offset: Option<u64>,
}
