//! Closed sets of words in the protocols of the agent and the controller. They are strings on the wire, so that a peer can read those of a
//! newer version: a word that is not in its set is of a newer peer. `known.rs` parses the fields.

/// `SET { Variant = "word", }`: an enum for each closed set of words.
#[macro_export]
macro_rules! words {
    ($($(#[$set:meta])* $name:ident { $($(#[$about:meta])* $word:ident = $text:literal,)+ })+) => { $(
        $(#[$set])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, ::serde::Serialize, ::serde::Deserialize)]
        pub enum $name { $($(#[$about])* #[serde(rename = $text)] $word,)+ }

        impl $name {
            /// All words of the set, each once, in the order of declaration, which is that of `Ord`.
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
    /// Medium of a drive.
    Media {
        /// Not NVMe, and `queue/rotational` in sysfs is 1.
        Hdd = "hdd",
        /// Not rotational, not NVMe.
        Ssd = "ssd",
        /// Behind an NVMe controller.
        Nvme = "nvme",
    }

    /// Bus or network that attaches a drive.
    Transport {
        /// ATA behind libata.
        Sata = "sata",
        /// SCSI over SAS.
        Sas = "sas",
        /// NVMe over PCIe, or an Apple NVMe controller.
        Nvme = "nvme",
        /// USB mass storage or UAS.
        Usb = "usb",
        /// virtio-blk, or a virtio-scsi disk.
        Virtio = "virtio",
        /// MMC or eMMC.
        Mmc = "mmc",
        /// Other local SCSI (RAID controllers and so on).
        Scsi = "scsi",
        /// Loop device; counts as a drive only if the configuration of the agent allows loop devices.
        Loop = "loop",
        /// SCSI disk of an iSCSI session; gets the reject code `Remote`.
        Iscsi = "iscsi",
        /// SCSI disk behind a Fibre Channel remote port; gets the reject code `Remote`.
        Fc = "fc",
        /// NVMe over a network.
        NvmeOf = "nvme-of",
        /// None of the above.
        Unknown = "unknown",
    }

    /// Relation of a drive to Drivebay: holds its volumes, could, may not, or is missing.
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

    /// Health of a drive, derived from all evidence. Ordered from good to bad, UNKNOWN first.
    #[derive(Default)]
    Verdict {
        /// Nothing is known for or against it.
        #[default]
        Unknown = "UNKNOWN",
        /// SMART passed, and there are no findings.
        Good = "GOOD",
        /// There are findings: no new volumes.
        Suspect = "SUSPECT",
        /// Failing: no new volumes, and its volumes should be moved off it.
        Bad = "BAD",
    }

    /// Progress of SMART polling of a drive since the agent started or the drive was plugged in.
    #[derive(Default)]
    PollState {
        /// Polled, or not monitored: in no class, missing, or of a kind without SMART.
        #[default]
        Polled = "polled",
        /// Not polled yet: SMART data and verdict are those of the last successful poll. UNKNOWN if it gave no answer in time.
        LastKnown = "last-known",
        /// Not polled yet, and without persisted SMART data: takes no new volumes until its first poll has succeeded or timed out.
        Awaited = "awaited",
    }

    /// Contents of an unreadable range of a drive.
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
        /// The content cannot be determined; the detail of the range gives the reason.
        Unknown = "unknown",
    }

    /// Status of a condition of a volume, with the names of CSI 1.13.
    Status {
        /// Usable, with reduced redundancy, space or function.
        Degraded = "DEGRADED",
        /// The volume cannot be used, e.g. because its drive is missing or does not answer; no loss of data is known.
        Inaccessible = "INACCESSIBLE",
        /// Data is lost or damaged.
        DataLoss = "DATA_LOSS",
    }

    /// Layout of a claimed drive.
    #[derive(Default)]
    Layout {
        /// GPT: a label partition, then one partition per volume. For hosts without device-mapper.
        Partition = "partition",
        /// LVM: a volume group of its own per drive, one linear logical volume per volume.
        #[default]
        Lvm = "lvm",
    }

    /// Access mode of a volume; fixed at creation.
    Mode {
        /// With a filesystem, mounted.
        Mount = "mount",
        /// Raw block device, published as a device node; never formatted.
        Block = "block",
    }

    /// State of a volume, as shown.
    VolumeState {
        /// Created, never formatted or published.
        New = "new",
        /// In use or ready for it.
        Ready = "ready",
        /// Being made as a copy of a snapshot or of another volume; no CreateVolume has returned its id.
        Copying = "copying",
        /// Deleted; its space is being erased.
        Erasing = "erasing",
        /// Record and table disagree.
        Ambiguous = "ambiguous",
        /// Deleted while its drive was missing; erased after the quarantine.
        Quarantined = "quarantined",
        /// On a drive that is missing, or cannot be read.
        Missing = "missing",
        /// On a drive that was not scanned since the agent's start.
        NotScanned = "not-scanned",
    }

    /// State of a snapshot; only a `ready` one can be copied to a volume.
    SnapshotState {
        /// No CreateSnapshot has returned its id yet; removed if it is not completed.
        Creating = "creating",
        /// Complete: has the contents of its volume at the time of the snapshot.
        Ready = "ready",
        /// More was written to its volume than it has room for, or its store could not be written: it is lost.
        Overflowed = "overflowed",
        /// Record and kernel disagree.
        Ambiguous = "ambiguous",
    }

    /// Method of a filesystem check.
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
        /// Not started: no method gives a reliable result now.
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

    /// Phase of the move of a volume to another drive.
    MovePhase {
        /// For the volume to be unstaged, for its turn, or for another attempt.
        Waiting = "waiting",
        /// The data is being copied and compared.
        Copying = "copying",
        /// The copy is whole; records are being changed.
        Completing = "completing",
        /// The volume lives on the target; the old place is kept for a while.
        Moved = "moved",
        /// Unknown which of the places has the latest data; served from none.
        InDoubt = "in-doubt",
    }

    /// State of a node at the controller.
    NodeState {
        /// The agent is connected and has scanned its drives.
        Connected = "connected",
        /// The agent is connected and still scans its drives.
        Starting = "starting",
        /// The agent is disconnected.
        Away = "away",
        /// The operator has forgotten it: it is lost for good.
        Forgotten = "forgotten",
    }

    /// Outcome of a connection of an agent.
    ConnectionOutcome {
        /// A session of the agent began.
        Connected = "connected",
        /// The controller refused the agent or ended its session, because of its identity, protocol version, drives or updates, or a limit.
        Refused = "refused",
        /// Accepted earlier, and over.
        Ended = "ended",
    }
}

impl DriveState {
    /// True if the drive was present in a scan since the agent's start: its properties, such as its kernel name, are current.
    pub fn is_present(self) -> bool {
        !matches!(self, Self::Missing | Self::NotScanned)
    }

    /// True if its free space is available to volumes.
    pub fn offers_space(self) -> bool {
        matches!(self, Self::Claimed | Self::Available)
    }
}

impl Verdict {
    /// Returns the severity; 0 for GOOD and UNKNOWN.
    pub fn weight(self) -> u8 {
        match self {
            Self::Good | Self::Unknown => 0,
            Self::Suspect => 1,
            Self::Bad => 2,
        }
    }

    /// True if new volumes may be placed on the drive.
    pub fn takes_new_volumes(self) -> bool {
        matches!(self, Self::Unknown | Self::Good)
    }
}

impl NodeState {
    /// True if its agent is not connected: its drives and volumes are as last reported.
    pub fn is_absent(self) -> bool {
        matches!(self, Self::Away | Self::Forgotten)
    }
}
