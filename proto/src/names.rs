//! Names that appear on the wire and in StorageClasses: the driver's name, its
//! topology key, the parameters it knows.

/// Default CSI driver name. At most 63 characters, begins and ends with a letter.
pub const DRIVER_NAME: &str = "csi.drivebay.io";

/// Newest version of the protocol between controller and agent that is spoken here.
pub const AGENT_PROTOCOL: u32 = 1;
/// Oldest version of it that is still supported: a release supports its own and the one before.
pub const OLDEST_AGENT_PROTOCOL: u32 = 1;

/// True if two parties support a common version of the agent's protocol. `a` and `b`: the newest and the oldest version that each
/// supports; 0, of a party that does not say, counts as version 1.
pub fn protocols_meet(a: (u32, u32), b: (u32, u32)) -> bool {
    let at_least_one = |(newest, oldest): (u32, u32)| (newest.max(1), oldest.max(1));
    let ((a_new, a_old), (b_new, b_old)) = (at_least_one(a), at_least_one(b));
    a_new >= b_old && b_new >= a_old
}

/// Audience of the ServiceAccount tokens by which agents prove to a controller on which node they are.
pub const TOKEN_AUDIENCE: &str = "drivebay-controller";

/// Topology key whose value is the node id. Immutable per node: the kubelet writes it as a node label.
pub fn topology_key(driver: &str) -> String {
    format!("{driver}/node")
}

/// StorageClass parameter: the class of the drives that the volume may be on. Required unless the node has exactly one class.
pub const PARAM_CLASS: &str = "class";
/// StorageClass parameter: filesystem, when the capability names none (the provisioner strips the prefixed one).
pub const PARAM_FS_TYPE: &str = "fsType";
/// StorageClass parameter: further options for mkfs, separated by spaces; replaces the class's.
pub const PARAM_MKFS_OPTIONS: &str = "mkfsOptions";
/// StorageClass parameter: further mount options, separated by commas; added to the class's.
pub const PARAM_MOUNT_OPTIONS: &str = "mountOptions";

/// StorageClass parameter: a pattern over claim names, whose capture is the anti-affinity group of a volume in its namespace.
pub const PARAM_ANTI_AFFINITY_PATTERN: &str = "antiAffinityPattern";
/// StorageClass parameter: whether the volumes of a group must lie on different drives, or should.
pub const PARAM_ANTI_AFFINITY: &str = "antiAffinity";
/// Value of [`PARAM_ANTI_AFFINITY`], the default: volumes of a group share a drive if there is no other space.
pub const ANTI_AFFINITY_SOFT: &str = "soft";
/// Value of [`PARAM_ANTI_AFFINITY`]: a volume is refused if there is space only on drives of other volumes of its group.
pub const ANTI_AFFINITY_HARD: &str = "hard";

/// StorageClass parameter: handling of blocks that cannot be read on the source of a copy.
pub const PARAM_COPY_UNREADABLE: &str = "copyUnreadable";
/// Value of [`PARAM_COPY_UNREADABLE`], the default: the volume is not created.
pub const COPY_UNREADABLE_FAIL: &str = "fail";
/// Value of [`PARAM_COPY_UNREADABLE`]: the volume has zeros in their place.
pub const COPY_UNREADABLE_ZEROS: &str = "zeros";

/// StorageClass parameter: encryption of the volume. Absent: it is not encrypted.
pub const PARAM_ENCRYPTION: &str = "encryption";
/// Value of [`PARAM_ENCRYPTION`]: LUKS2, opened by the secret that a stage call brings.
pub const ENCRYPTION_LUKS2: &str = "luks2";
/// Bytes of its drive that an encrypted volume takes besides its size: a LUKS2 header with two copies of its metadata and the key slots.
/// The default of cryptsetup, which gets it as an option all the same.
pub const ENCRYPTION_HEADER_BYTES: u64 = 16 << 20;
/// Key of the secret by which a volume is opened, in the secrets of a stage call.
pub const SECRET_PASSPHRASE: &str = "passphrase";
/// Key of the same secret: the passphrase until now, from which a volume's key slots are changed at its next stage.
pub const SECRET_PREVIOUS: &str = "previousPassphrase";

/// Every parameter CreateVolume accepts.
pub const PARAMETERS: [&str; 8] = [
    PARAM_CLASS,
    PARAM_FS_TYPE,
    PARAM_MKFS_OPTIONS,
    PARAM_MOUNT_OPTIONS,
    PARAM_ANTI_AFFINITY_PATTERN,
    PARAM_ANTI_AFFINITY,
    PARAM_COPY_UNREADABLE,
    PARAM_ENCRYPTION,
];

/// Among the parameters that are kept with an encrypted volume, the UUID of its LUKS2 header.
pub const KEPT_ENCRYPTION_HEADER: &str = "encryptionHeader";

/// Among the parameters that are kept with a volume, the group it belongs to. Not one that a StorageClass can have. It is
/// there, and not in a field of its own, because every release keeps and compares a volume's parameters.
pub const KEPT_ANTI_AFFINITY_GROUP: &str = "antiAffinityGroup";

/// Among the parameters that are kept with a volume, the claim that it was created for. Neither this nor the next four are
/// parameters that a StorageClass can have.
pub const KEPT_CLAIM: &str = "claim";
/// Among the parameters that are kept with a volume, the namespace of the claim that it was created for; absent if none is known.
pub const KEPT_CLAIM_NAMESPACE: &str = "claimNamespace";
/// The PersistentVolume, where its name is not the volume's.
pub const KEPT_PERSISTENT_VOLUME: &str = "persistentVolume";
/// Name of the dynamic host volume in Nomad.
pub const KEPT_NOMAD_VOLUME: &str = "nomadVolume";
/// Nomad's namespace of it.
pub const KEPT_NOMAD_NAMESPACE: &str = "nomadNamespace";
/// These five: for people and metrics, and not a part of the request that a repeat is compared with.
pub const KEPT_CREATED_FOR: [&str; 5] = [
    KEPT_CLAIM,
    KEPT_CLAIM_NAMESPACE,
    KEPT_PERSISTENT_VOLUME,
    KEPT_NOMAD_VOLUME,
    KEPT_NOMAD_NAMESPACE,
];

/// Among the parameters that are kept with a volume: it was made by hand, on its node. Its value is "true".
pub const KEPT_MANUAL: &str = "byHand";

/// Among the parameters that are kept with a volume: when it was created, seconds since 1970.
pub const KEPT_CREATED_AT: &str = "createdAt";

/// Among the parameters that are kept with a volume: the uuid of the snapshot that it was made as a copy of.
pub const KEPT_SOURCE_SNAPSHOT: &str = "sourceSnapshot";
/// The same of a volume.
pub const KEPT_SOURCE_VOLUME: &str = "sourceVolume";
/// Of a copy with a filesystem: the UUIDs that it can have until its first stage gives it its own, with commas between them.
pub const KEPT_COPIED_FS: &str = "copiedFilesystem";
/// Of a copy of an encrypted volume: the UUIDs that its header can have until its first stage, in the same way.
pub const KEPT_COPIED_HEADER: &str = "copiedEncryptionHeader";
/// Number of bytes of a copy that could not be read on its source, and are zeros in the copy.
pub const KEPT_UNREADABLE_BYTES: &str = "copyUnreadableBytes";
/// Of a volume that moved: its sectors that could not be read on the drive it left, as `start+count` in hexadecimal with commas between
/// them. Empty: none is left, and the volume still has the mapped device that answered reads of them with errors.
pub const KEPT_LOST_SECTORS: &str = "lostSectors";

/// VolumeSnapshotClass parameter: room for what is written to a volume while it has the snapshot, as a share of its size ("20%").
pub const PARAM_SNAPSHOT_RESERVE: &str = "reserve";
/// VolumeSnapshotClass parameter: at least so much ("1GiB").
pub const PARAM_SNAPSHOT_LEAST: &str = "leastReserve";
/// VolumeSnapshotClass parameter: at most so much.
pub const PARAM_SNAPSHOT_MOST: &str = "mostReserve";
/// VolumeSnapshotClass parameter: age at which a snapshot is deleted ("7d"; "none": never).
pub const PARAM_SNAPSHOT_MAX_AGE: &str = "maxAge";
/// Every parameter CreateSnapshot and CreateVolumeGroupSnapshot accept.
pub const SNAPSHOT_PARAMETERS: [&str; 4] = [
    PARAM_SNAPSHOT_RESERVE,
    PARAM_SNAPSHOT_LEAST,
    PARAM_SNAPSHOT_MOST,
    PARAM_SNAPSHOT_MAX_AGE,
];
/// Default age at which a snapshot is deleted, seconds: one week. Limited because a snapshot slows writes to its volume.
pub const DEFAULT_SNAPSHOT_MAX_AGE: u64 = 7 * 24 * 3600;
/// Default reserve of a snapshot, in hundredths of its volume's size.
pub const DEFAULT_RESERVE_PERCENT: u32 = 20;

/// Metadata keys that the snapshotter adds to the parameters with `--extra-create-metadata`, of snapshots and of group snapshots.
pub const SNAPSHOT_METADATA: [&str; 6] = [
    "csi.storage.k8s.io/volumesnapshot/name",
    "csi.storage.k8s.io/volumesnapshot/namespace",
    "csi.storage.k8s.io/volumesnapshotcontent/name",
    "csi.storage.k8s.io/volumegroupsnapshot/name",
    "csi.storage.k8s.io/volumegroupsnapshot/namespace",
    "csi.storage.k8s.io/volumegroupsnapshotcontent/name",
];

/// Filesystems Drivebay makes, as mount(2) and CSI write them, with the smallest device in bytes that
/// mkfs accepts with its defaults and that leaves room for data (mkfs.xfs 6.1 refuses under 300 MiB,
/// btrfs cannot be resized below 256 MiB; ext4 by choice).
pub const FILESYSTEMS: [(&str, u64); 3] =
    [("ext4", 16 << 20), ("xfs", 300 << 20), ("btrfs", 256 << 20)];

/// Smallest device in bytes for this filesystem; None for one that Drivebay does not make.
pub fn smallest_filesystem(fs_type: &str) -> Option<u64> {
    FILESYSTEMS
        .iter()
        .find(|(name, _)| *name == fs_type)
        .map(|(_, bytes)| *bytes)
}

/// Size of a volume when the request names none, bytes.
pub const DEFAULT_VOLUME_BYTES: u64 = 1 << 30;

/// The provisioner's own key for the filesystem. It strips it; other callers may not.
pub const RESERVED_FS_TYPE: &str = "csi.storage.k8s.io/fstype";

/// Metadata key of the claim's name.
pub const CLAIM_NAME: &str = "csi.storage.k8s.io/pvc/name";
/// Metadata key of the claim's namespace.
pub const CLAIM_NAMESPACE: &str = "csi.storage.k8s.io/pvc/namespace";

/// Metadata key of the PersistentVolume's name.
pub const PERSISTENT_VOLUME_NAME: &str = "csi.storage.k8s.io/pv/name";

/// Key of the pod's name in the volume context of NodePublishVolume, where the CSIDriver object has `podInfoOnMount`.
pub const POD_NAME: &str = "csi.storage.k8s.io/pod.name";
/// Key of the pod's namespace in it.
pub const POD_NAMESPACE: &str = "csi.storage.k8s.io/pod.namespace";

/// Metadata keys that the provisioner adds with `--extra-create-metadata`.
pub const CREATE_METADATA: [&str; 3] = [CLAIM_NAME, CLAIM_NAMESPACE, PERSISTENT_VOLUME_NAME];
