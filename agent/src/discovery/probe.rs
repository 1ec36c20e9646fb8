//! The worker job that reads a drive's signatures and samples its blankness. It writes nothing.

use serde::{Deserialize, Serialize};

use crate::model::{Cause, ClaimPolicy, DriveRef};
use crate::worker::{Context, Job};

/// Looks at the bytes of a whole drive.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Probe {
    /// The drive.
    pub drive: DriveRef,
    /// Whether the zero samples are needed (the policy of the class that selects it; None: signatures only).
    pub policy: Option<ClaimPolicy>,
}

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

/// The state of a GPT, both copies read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum GptState {
    /// No trace of one.
    None,
    /// Both copies valid and equal.
    Whole,
    /// What is wrong.
    Damaged(String),
}

/// Whether the sampled bytes are zeros.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Blankness {
    /// Zeros in the first and last 16 MiB and in 64 spread samples.
    Blank,
    /// Something at this byte offset.
    DataAt(u64),
    /// Not looked at (not asked for, or a signature was found first).
    NotSampled,
}

/// What a look at the bytes found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probed {
    /// Bytes, from BLKGETSIZE64.
    pub size_bytes: u64,
    /// The kernel says read-only (BLKROGET).
    pub read_only: bool,
    /// O_EXCL was refused: mounted, held, or opened exclusively.
    pub busy: bool,
    /// Signatures of superblocks and tables.
    pub signatures: Signatures,
    /// The GPT.
    pub gpt: GptState,
    /// The table starts with our label partition's type.
    pub ours: bool,
    /// The type GUIDs of all its GPT partitions, lower case (ESP and root types give a system drive away).
    pub gpt_types: Vec<String>,
    /// Zeros or not.
    pub blankness: Blankness,
}

/// Why a probe failed. Says nothing about what is on the drive.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum ProbeError {
    /// The device at this name is not the expected drive any more.
    #[error("drive {drive} is not at /dev/{kernel_name} any more ({seen})")]
    NotThisDrive {
        /// Expected identity.
        drive: String,
        /// Where it was looked for.
        kernel_name: String,
        /// What was there.
        seen: String,
    },
    /// Open failed.
    #[error("cannot open /dev/{kernel_name}")]
    Open {
        /// Kernel name.
        kernel_name: String,
        /// Why.
        #[source]
        source: Cause,
    },
    /// The medium does not read.
    #[error("cannot read /dev/{kernel_name} at byte {offset}")]
    Read {
        /// Kernel name.
        kernel_name: String,
        /// Where.
        offset: u64,
        /// Why.
        #[source]
        source: Cause,
    },
    /// libblkid failed.
    #[error("libblkid failed on /dev/{kernel_name} ({what})")]
    Blkid {
        /// Kernel name.
        kernel_name: String,
        /// Which call.
        what: String,
        /// Why.
        #[source]
        source: Cause,
    },
}

impl Job for Probe {
    const NAME: &'static str = "probe";
    type Answer = Probed;
    type Error = ProbeError;
    fn run(self, _context: &mut Context) -> Result<Probed, ProbeError> {
        todo!()
    }
}
