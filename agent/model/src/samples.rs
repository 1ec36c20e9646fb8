//! Drives and volumes for tests.

use uuid::Uuid;

use super::*;

/// Returns a plain drive with this kernel name and the identity `wwn-<name>`.
pub fn facts(name: &str) -> DriveFacts {
    DriveFacts {
        id: DriveId(format!("wwn-{name}")),
        identity_is_stable: true,
        kernel_name: name.into(),
        major: 8,
        minor: 0,
        diskseq: 1,
        model: "M".into(),
        serial: "S".into(),
        wwn: name.into(),
        firmware: "1".into(),
        size_bytes: 1 << 40,
        logical_sector: 512,
        physical_sector: 4096,
        media: Media::Hdd,
        transport: Transport::Sas,
        read_only: false,
        removable: false,
        hidden: false,
        zoned: false,
        is_partition: false,
        virtual_kind: None,
        not_running: None,
        holders: Vec::new(),
        partitions: Vec::new(),
        sysfs_path: "/sys/devices/x".into(),
        backing_file: None,
        bay: Default::default(),
    }
}

/// Returns a filesystem volume of 1 GiB in class `bulk`, named `pvc-<uuid>`.
pub fn placed(uuid: u128, state: RecordState) -> Placed {
    Placed {
        record: Record {
            uuid: Uuid::from_u128(uuid),
            name: format!("pvc-{uuid}"),
            class: "bulk".into(),
            mode: Mode::Mount,
            fs_type: Some(FsType::Ext4),
            mkfs_options: Vec::new(),
            mount_options: Vec::new(),
            parameters: Default::default(),
            erase: ErasePolicy::Zero,
            requested_bytes: 1 << 30,
            extent: Extent {
                start: 8 << 20,
                len: 1 << 30,
            },
            growing_to: None,
            state,
            place: Default::default(),
        },
        number: Some(2),
        device: Some("sda2".into()),
        dev: Some((8, 2)),
        dm_uuid: None,
        pieces: Vec::new(),
        mapping: None,
        snapshots: Vec::new(),
        ambiguous: None,
    }
}

/// Returns a snapshot of the volume with this number, named `snapshot-<uuid>`.
pub fn snapshot(uuid: u128, volume: u128) -> PlacedSnapshot {
    PlacedSnapshot {
        record: SnapshotRecord {
            uuid: Uuid::from_u128(uuid),
            name: format!("snapshot-{uuid}"),
            volume: Uuid::from_u128(volume),
            created_at: 1_800_000_000,
            size_bytes: 1 << 30,
            mode: Mode::Mount,
            fs: Some((FsType::Ext4, Uuid::from_u128(99))),
            expires_at: None,
            group: None,
            is_complete: true,
            is_lost: false,
        },
        device: Some("dm-7".into()),
        dev: Some((253, 7)),
        dm_uuid: format!("LVM-{uuid}"),
        reserve_bytes: 200 << 20,
        is_overflowed: false,
        ambiguous: None,
    }
}

/// Returns the contents of a drive whose label has this number, with one free run of `free` bytes.
pub fn contents(label: u128, sequence: u64, volumes: Vec<Placed>, free: u64) -> Contents {
    Contents {
        layout: crate::Layout::Partition,
        label: Label {
            drive_uuid: Uuid::from_u128(label),
            cluster: "default".into(),
            node: "n".into(),
            class: "bulk".into(),
            drive_id: DriveId("wwn-sda".into()),
            cordon: None,
        },
        sequence,
        read_at: Default::default(),
        volumes,
        free: vec![Extent {
            start: 2 << 30,
            len: free,
        }],
        space: Default::default(),
        usable_bytes: 1 << 40,
        extent_bytes: MIB,
        table_full: false,
        unmarked_bytes: 0,
        deleted_stores: Vec::new(),
        strangers: Vec::new(),
        notes: Vec::new(),
    }
}

/// Returns a class of this name with the defaults, which selects no drive.
pub fn class(name: &str) -> ClassConfig {
    ClassConfig {
        name: name.into(),
        select: Selector::default(),
        layout: Layout::Lvm,
        placement: Placement::default(),
        priority: 0,
        claim: ClaimPolicy::Blank,
        erase: ErasePolicy::Zero,
        raw_space: Default::default(),
        evacuate: Default::default(),
        fs_type: FsType::Ext4,
        mkfs_options: Vec::new(),
        mount_options: Vec::new(),
        allow_removable: false,
        xfs_retry_forever: false,
        check_reserve_bytes: 0,
    }
}

/// Returns a drive of class `bulk` in this state.
pub fn drive(name: &str, state: DriveState, contents: Option<Contents>) -> Drive {
    let facts = facts(name);
    Drive {
        id: facts.id.clone(),
        facts,
        state,
        class: Some("bulk".into()),
        rejects: Vec::new(),
        claimable_bytes: if state == DriveState::Available {
            1 << 40
        } else {
            0
        },
        contents,
        trouble: None,
        health: DriveHealth::default(),
    }
}

/// Returns a volume on a drive, ready and not in use.
pub fn volume(drive: &Drive, placed: Placed) -> Volume {
    Volume {
        uuid: placed.record.uuid,
        drive: drive.id.clone(),
        placed,
        copies: Vec::new(),
        state: VolumeState::Ready,
        in_use: false,
        conditions: Vec::new(),
        since: Default::default(),
        moving: None,
        mounts: Vec::new(),
        erasing: None,
        checks: Vec::new(),
        checking: None,
        unreadable: Vec::new(),
        snapshot_usage: Default::default(),
    }
}
