//! Signatures of superblocks and tables, as libblkid and our own readers find them.

use serde::{Deserialize, Serialize};

/// What libblkid and we ourselves found. An error of the probe is not one of these answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Signatures {
    /// Nothing at all.
    Empty,
    /// These.
    Found(Vec<Signature>),
    /// Several that exclude each other (libblkid's -2).
    Ambiguous(Vec<Signature>),
}

/// One signature.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signature {
    /// libblkid TYPE or PTTYPE, or our own word (`bluestore`, `ahdi`).
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
