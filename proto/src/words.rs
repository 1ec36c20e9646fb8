//! Closed sets of words in the agent's and the controller's protocol. The wire has strings, so that each side reads what a newer
//! one sends: a word that is not of its set is of such a peer. What messages say in them: `known.rs`.

/// `SET { Variant = "word", }`: an enum for each closed set of words.
#[macro_export]
macro_rules! words {
    ($($(#[$set:meta])* $name:ident { $($(#[$about:meta])* $word:ident = $text:literal,)+ })+) => { $(
        $(#[$set])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, ::serde::Serialize, ::serde::Deserialize)]
        pub enum $name { $($(#[$about])* #[serde(rename = $text)] $word,)+ }

        impl $name {
            /// Every one.
            pub const ALL: &[Self] = &[$(Self::$word,)+];

            /// The word on the wire, in tables, JSON and metrics; the same as in serde.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$word => $text,)+ }
            }

            /// None: a word of another version, or none.
            pub fn parse(word: &str) -> Option<Self> {
                match word { $($text => Some(Self::$word),)+ _ => None }
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    )+ };
}

words! {
    /// What kind of medium.
    Media {
        /// queue/rotational = 1.
        Hdd = "hdd",
        /// Not rotational, not NVMe.
        Ssd = "ssd",
        /// Behind an NVMe controller.
        Nvme = "nvme",
    }

    /// How the drive is attached.
    Transport {
        /// ATA behind libata.
        Sata = "sata",
        /// SCSI over SAS.
        Sas = "sas",
        /// NVMe over PCIe.
        Nvme = "nvme",
        /// USB mass storage or UAS.
        Usb = "usb",
        /// virtio-blk, or a virtio-scsi disk.
        Virtio = "virtio",
        /// MMC or eMMC.
        Mmc = "mmc",
        /// Other local SCSI (RAID controllers and so on).
        Scsi = "scsi",
        /// A loop device.
        Loop = "loop",
        /// iSCSI.
        Iscsi = "iscsi",
        /// Fibre Channel.
        Fc = "fc",
        /// NVMe over a network.
        NvmeOf = "nvme-of",
        /// None of the above.
        Unknown = "unknown",
    }

    /// Whether a drive holds our volumes, could, may not, or is missing.
    DriveState {
        /// Carries our label for this cluster and node.
        Claimed = "claimed",
        /// Selected by one class and provably blank; nothing was written to it.
        Available = "available",
        /// May not be used; the rejects say why.
        Rejected = "rejected",
        /// Known from before, and seen not to be present.
        Missing = "missing",
        /// Known from before, and not scanned since the agent's start: it may be present or missing.
        NotScanned = "not-scanned",
        /// Present, and gives no answer.
        Unprobed = "unprobed",
    }

    /// What the evidence adds up to. Ordered from well to ill.
    #[derive(Default)]
    Verdict {
        /// Nothing is known for or against it.
        #[default]
        Unknown = "UNKNOWN",
        /// SMART passed, and there are no findings.
        Good = "GOOD",
        /// There are findings: no new volumes.
        Suspect = "SUSPECT",
        /// It fails: no new volumes, and the data should leave it.
        Bad = "BAD",
    }

    /// Whether a drive was polled for SMART data since the agent started or the drive was plugged in.
    #[derive(Default)]
    PollState {
        /// It was, or it is not monitored: it is in no class, missing, or of a kind without SMART.
        #[default]
        Polled = "polled",
        /// It was not: what it said of itself, its verdict too, is the last known. UNKNOWN of a drive that gave no answer in time.
        LastKnown = "last-known",
        /// It was not, and nothing is known of it: it takes no new volumes until it has answered, or failed to.
        Awaited = "awaited",
    }

    /// What a range of a drive holds that does not read.
    RangeContent {
        /// Drivebay's own: its label, the partition table, LVM's metadata or a copy of it.
        DrivebayMetadata = "drivebay-metadata",
        /// Space of the drive that no volume has.
        Unallocated = "unallocated",
        /// A partition or logical volume that Drivebay did not make.
        Foreign = "foreign",
        /// The drive is not claimed.
        NotClaimed = "not-claimed",
        /// A deleted volume that is being erased.
        Erasing = "erasing",
        /// A volume that has no filesystem yet.
        Unformatted = "unformatted",
        /// A raw block volume: only its user knows.
        RawBlock = "raw-block",
        /// Data or extent maps of files and directories.
        Files = "files",
        /// Structures of the filesystem that belong to no one file.
        FilesystemMetadata = "filesystem-metadata",
        /// Free space of the filesystem.
        FilesystemFree = "filesystem-free",
        /// It cannot be told.
        Unknown = "unknown",
    }

    /// How bad a condition of a volume is, in the words of CSI 1.13.
    Status {
        /// It can be used, with less than it should have.
        Degraded = "DEGRADED",
        /// It cannot be used.
        Inaccessible = "INACCESSIBLE",
        /// Data is lost or damaged.
        DataLoss = "DATA_LOSS",
    }

    /// How a drive is carved.
    #[derive(Default)]
    Layout {
        /// GPT: a label partition, then one partition per volume. For hosts without device-mapper.
        Partition = "partition",
        /// LVM: a volume group of its own per drive, one linear logical volume per volume.
        #[default]
        Lvm = "lvm",
    }

    /// How a volume is used; fixed at creation.
    Mode {
        /// With a filesystem, mounted.
        Mount = "mount",
        /// Raw; never formatted.
        Block = "block",
    }

    /// Where a volume is in its life, as shown.
    VolumeState {
        /// Created, never formatted or published.
        New = "new",
        /// In use or ready for it.
        Ready = "ready",
        /// It is being made as a copy of a snapshot or of another volume, and was answered to nobody.
        Copying = "copying",
        /// Deleted; its space is being erased.
        Erasing = "erasing",
        /// Record and table disagree.
        Ambiguous = "ambiguous",
        /// Deleted while its drive was away; erased after a delay.
        Quarantined = "quarantined",
        /// Its drive is missing, or cannot be read.
        Missing = "missing",
        /// Its drive was not scanned since the agent's start.
        NotScanned = "not-scanned",
    }

    /// Whether a snapshot can be copied to a volume.
    SnapshotState {
        /// Not answered to anybody yet: taken away if it is not completed.
        Creating = "creating",
        /// It holds its volume as it was.
        Ready = "ready",
        /// More was written to its volume than it has room for: it is lost.
        Overflowed = "overflowed",
        /// What is recorded of it and what the kernel has disagree.
        Ambiguous = "ambiguous",
    }

    /// How a filesystem was checked.
    CheckMethod {
        /// The volume itself, mounted nowhere.
        Unmounted = "unmounted",
        /// A short-lived snapshot with its log replayed.
        Snapshot = "snapshot",
        /// btrfs' own read-only scrub of the mounted filesystem.
        Scrub = "scrub",
        /// Several runs on the live device; only what every run says counts. Not to be trusted.
        Repeated = "repeated",
    }

    /// The outcome of a check, without what it found.
    CheckResult {
        /// Nothing wrong was found.
        Clean = "clean",
        /// The filesystem is damaged.
        Corrupt = "corrupt",
        /// Nothing is known from it.
        Inconclusive = "inconclusive",
        /// It was not begun: there is no way to check it now that could be believed.
        NotCheckable = "not-checkable",
    }

    /// With what the latencies of a drive are compared.
    #[derive(Default)]
    Peers {
        /// With drives of its model.
        Model = "model",
        /// With drives of its medium, since there are too few of its model.
        Media = "media",
        /// With nothing: its own past is shown, and nothing is found.
        #[default]
        TooFew = "nothing",
    }

    /// How far the move of a volume to another drive is.
    MovePhase {
        /// For the volume to be unstaged, for its turn, or for another attempt.
        Waiting = "waiting",
        /// The data is being copied and compared.
        Copying = "copying",
        /// The copy is whole; records are being changed.
        Completing = "completing",
        /// The volume lives on the target; the old place is kept for a while.
        Moved = "moved",
        /// It is not known which place is the newer one.
        InDoubt = "in-doubt",
    }

    /// How a node stands with the controller.
    NodeState {
        /// Its agent is connected.
        Connected = "connected",
        /// Its agent is connected and still scans its drives.
        Starting = "starting",
        /// Its agent was connected.
        Away = "away",
        /// It was given up.
        Forgotten = "forgotten",
    }

    /// What became of a connection of an agent.
    ConnectionOutcome {
        /// It was let in.
        Connected = "connected",
        /// It was not let in.
        Refused = "refused",
        /// It is over.
        Ended = "ended",
    }
}

impl DriveState {
    /// The drive was seen to be present since the agent's start: its facts, such as its kernel name, are of now.
    pub fn is_present(self) -> bool {
        !matches!(self, Self::Missing | Self::NotScanned)
    }

    /// Its free space is offered to volumes.
    pub fn offers_space(self) -> bool {
        matches!(self, Self::Claimed | Self::Available)
    }
}

impl Verdict {
    /// Severity; UNKNOWN is none.
    pub fn weight(self) -> u8 {
        match self {
            Self::Good | Self::Unknown => 0,
            Self::Suspect => 1,
            Self::Bad => 2,
        }
    }

    /// Whether new volumes may be put on it.
    pub fn takes_new_volumes(self) -> bool {
        matches!(self, Self::Unknown | Self::Good)
    }
}

impl NodeState {
    /// Its drives and volumes are known from before: its agent is not connected.
    pub fn is_absent(self) -> bool {
        matches!(self, Self::Away | Self::Forgotten)
    }
}
