//! Validation of CSI requests, for the Controller service here and the Node service
//! of the agent: names, capabilities, sizes, parameters.
//!
//! Each result follows from the request alone, not from existing volumes.

use std::collections::{BTreeMap, HashMap};

use drivebay_proto::{csi, names};

pub mod anti_affinity;

pub use crate::capability::{Access, Capability, capabilities, capability};
use crate::new_volume::{CopyUnreadable, encryption};
use drivebay_common::{
    mount_flags::{OptionError, mount_flags},
    units::size_beside,
};

/// Longest string of a request, bytes (CSI: 128 unless a field says otherwise).
pub const MAX_STRING_BYTES: usize = 128;
/// Largest map of a request, and largest list of mount flags, bytes of keys and values (CSI).
pub const MAX_MAP_BYTES: usize = 4096;

/// A request that cannot be served, whatever exists: the caller has to change it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRequest {
    /// A field that must be there is not.
    #[error("{field} is missing")]
    Missing { field: &'static str },
    /// A string over its limit.
    #[error("{field} is {bytes} bytes long; at most {limit} are allowed")]
    TooLong {
        field: &'static str,
        /// Length of the string, bytes.
        bytes: usize,
        /// Largest length that is accepted, bytes; differs by field.
        limit: usize,
    },
    /// A control character where text is expected.
    #[error("{field} holds a control character, which is not allowed")]
    ControlCharacter { field: &'static str },
    /// A capability without block or mount.
    #[error("volume_capability.access_type is missing: say block or mount")]
    NoAccessType,
    /// A capability without an access mode, or with one that CSI does not know.
    #[error("volume_capability.access_mode is missing or not known")]
    NoAccessMode,
    /// An access mode over several nodes.
    #[error(
        "volume_capability.access_mode {mode} is not supported: a local volume is reachable from one node; use a SINGLE_NODE mode (ReadWriteOnce or ReadWriteOncePod)"
    )]
    MultiNode {
        /// The mode, as CSI writes it.
        mode: &'static str,
    },
    /// Both block and mount in one request.
    #[error("volume_capabilities ask for both block and mount; a volume is one or the other")]
    MixedAccess,
    /// Two capabilities with two filesystems, or a capability and a parameter.
    #[error(
        "the request names two filesystems, {first} and {second}: of volume_capabilities and parameters fsType and csi.storage.k8s.io/fstype all that name one must name the same"
    )]
    MixedFilesystems {
        /// Name from [`names::FILESYSTEMS`]; never equal to `second`.
        first: &'static str,
        second: &'static str,
    },
    /// A filesystem that Drivebay does not make.
    #[error(
        "{field} {fs_type:?} is not supported; the filesystems are {}",
        filesystems()
    )]
    UnknownFilesystem {
        field: &'static str,
        fs_type: String,
    },
    /// The VOLUME_MOUNT_GROUP field, which is not advertised.
    #[error("volume_capability.mount.volume_mount_group is not supported; use the pod's fsGroup")]
    MountGroup,
    /// A mount option that no volume may have.
    #[error("{field}: {refused}")]
    MountFlag {
        field: &'static str,
        refused: OptionError,
    },
    /// A StorageClass parameter that does not exist.
    #[error(
        "parameters: {key:?} is not known; the parameters are {}. Correct the StorageClass",
        names::PARAMETERS.join(", ")
    )]
    UnknownParameter { key: String },
    /// A parameter whose value cannot be used.
    #[error("parameters: {key} is not usable: {reason}. Correct the StorageClass")]
    BadParameter {
        key: &'static str,
        /// Completes "is not usable: ".
        reason: &'static str,
    },
    /// A pattern over names of claims that cannot be used.
    #[error(
        "parameters: antiAffinityPattern {pattern:?} is not usable: {reason}. Correct the StorageClass"
    )]
    BadPattern {
        pattern: String,
        /// Error of the pattern's parser, or the rule that it breaks.
        reason: String,
    },
    /// A pattern over names of claims, and no name.
    #[error(
        "parameters: antiAffinityPattern needs the claim's {key}, which the provisioner adds with --extra-create-metadata"
    )]
    NoClaimName {
        /// The parameter that is missing.
        key: &'static str,
    },
    /// The request has mutable parameters (VolumeAttributesClass); none are supported.
    #[error("mutable_parameters are not supported; remove the VolumeAttributesClass")]
    MutableParameters,
    /// An unknown parameter of a VolumeSnapshotClass or VolumeGroupSnapshotClass.
    #[error(
        "parameters: {key:?} is not known; the parameters are {}. Correct the VolumeSnapshotClass or VolumeGroupSnapshotClass",
        names::SNAPSHOT_PARAMETERS.join(", ")
    )]
    UnknownSnapshotParameter { key: String },
    /// A parameter of a VolumeSnapshotClass or VolumeGroupSnapshotClass with an invalid value.
    #[error(
        "parameters: {key} {value:?} is not usable: {reason}. Correct the VolumeSnapshotClass or VolumeGroupSnapshotClass"
    )]
    BadSnapshotParameter {
        key: &'static str,
        value: String,
        /// Completes "is not usable: ", with a valid value.
        reason: &'static str,
    },
    /// Bounds of a snapshot's reserve that no size is in.
    #[error(
        "parameters: mostReserve {} is less than leastReserve {}. Correct the VolumeSnapshotClass or VolumeGroupSnapshotClass",
        size_beside(*most, *least),
        size_beside(*least, *most)
    )]
    ReserveBounds {
        /// Value of leastReserve, bytes; more than `most`.
        least: u64,
        /// Value of mostReserve, bytes; above 0, and less than `least`.
        most: u64,
    },
    /// A list with more entries than are allowed.
    #[error("{field} has {count} entries; at most {limit} are allowed")]
    TooMany {
        field: &'static str,
        count: usize,
        limit: usize,
    },
    /// A list with a duplicate entry.
    #[error("{field} names {value:?} twice; name each once")]
    Repeated { field: &'static str, value: String },
    /// A size or a count below zero.
    #[error("{field} is negative ({value})")]
    Negative { field: &'static str, value: i64 },
    /// A range that no size is in.
    #[error(
        "capacity_range.limit_bytes {} is less than capacity_range.required_bytes {}",
        size_beside(*limit, *required),
        size_beside(*required, *limit)
    )]
    LimitBelowRequired {
        /// required_bytes of the request; more than `limit`.
        required: u64,
        /// limit_bytes of the request; above 0, since 0 means no limit.
        limit: u64,
    },
    /// A driver name outside CSI's rules.
    #[error(
        "driver name {name:?} is not allowed: at most 63 letters, digits, '.' and '-', first and last a letter"
    )]
    DriverName { name: String },
}

impl InvalidRequest {
    /// True for a well-formed wish that Drivebay does not grant, false for a malformed request.
    /// ValidateVolumeCapabilities answers the first with OK and a message, and the
    /// Node service answers it with FAILED_PRECONDITION, a mount option with INVALID_ARGUMENT.
    pub fn is_unsupported(&self) -> bool {
        match self {
            Self::MultiNode { .. }
            | Self::MixedAccess
            | Self::MixedFilesystems { .. }
            | Self::UnknownFilesystem { .. }
            | Self::MountGroup
            | Self::MountFlag { .. }
            | Self::UnknownParameter { .. }
            | Self::BadParameter { .. }
            | Self::BadPattern { .. }
            | Self::NoClaimName { .. }
            | Self::MutableParameters
            | Self::UnknownSnapshotParameter { .. }
            | Self::BadSnapshotParameter { .. }
            | Self::ReserveBounds { .. } => true,
            Self::Missing { .. }
            | Self::TooLong { .. }
            | Self::ControlCharacter { .. }
            | Self::NoAccessType
            | Self::NoAccessMode
            | Self::TooMany { .. }
            | Self::Repeated { .. }
            | Self::Negative { .. }
            | Self::LimitBelowRequired { .. }
            | Self::DriverName { .. } => false,
        }
    }
}

/// The filesystems that Drivebay makes, for texts.
pub(crate) fn filesystems() -> String {
    names::FILESYSTEMS.map(|(name, _)| name).join(", ")
}

/// Non-empty, whatever it holds. Volume ids need no more: one that Drivebay never gave out is unknown, not malformed.
pub fn required<'a>(field: &'static str, text: &'a str) -> Result<&'a str, InvalidRequest> {
    if text.is_empty() {
        return Err(InvalidRequest::Missing { field });
    }
    Ok(text)
}

/// At most `limit` bytes and without control characters; may be empty.
pub fn text<'a>(
    field: &'static str,
    text: &'a str,
    limit: usize,
) -> Result<&'a str, InvalidRequest> {
    if text.len() > limit {
        return Err(InvalidRequest::TooLong {
            field,
            bytes: text.len(),
            limit,
        });
    }
    if text.chars().any(char::is_control) {
        return Err(InvalidRequest::ControlCharacter { field });
    }
    Ok(text)
}

/// A CSI name of a volume or a snapshot: 1 to 128 bytes of any Unicode but control characters.
pub fn volume_name(name: &str) -> Result<&str, InvalidRequest> {
    text("name", required("name", name)?, MAX_STRING_BYTES)
}

/// The filesystem of this name, or None for an empty one.
pub fn filesystem(
    field: &'static str,
    fs_type: &str,
) -> Result<Option<&'static str>, InvalidRequest> {
    text(field, fs_type, MAX_STRING_BYTES)?;
    if fs_type.is_empty() {
        return Ok(None);
    }
    names::FILESYSTEMS
        .iter()
        .find(|(name, _)| *name == fs_type)
        .map(|(name, _)| Some(*name))
        .ok_or_else(|| InvalidRequest::UnknownFilesystem {
            field,
            fs_type: fs_type.to_owned(),
        })
}

/// A driver name as CSI and csi-sanity want it: `[A-Za-z][-A-Za-z0-9.]{0,61}[A-Za-z]`.
pub fn driver_name(name: &str) -> Result<&str, InvalidRequest> {
    let bytes = name.as_bytes();
    let letter = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphabetic);
    let fits = (2..=63).contains(&bytes.len())
        && letter(bytes.first())
        && letter(bytes.last())
        && bytes
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.'));
    if !fits {
        return Err(InvalidRequest::DriverName {
            name: name.chars().take(MAX_STRING_BYTES).collect(),
        });
    }
    Ok(name)
}

/// A valid capacity_range, bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SizeRange {
    /// At least this; 0: no lower limit.
    pub required: u64,
    /// At most this; None: no limit.
    pub limit: Option<u64>,
}

/// The range as unsigned numbers; an absent one says nothing.
pub fn capacity_range(range: Option<&csi::CapacityRange>) -> Result<SizeRange, InvalidRequest> {
    let Some(range) = range else {
        return Ok(SizeRange::default());
    };
    let unsigned = |field, value: i64| {
        u64::try_from(value).map_err(|_| InvalidRequest::Negative { field, value })
    };
    let required = unsigned("capacity_range.required_bytes", range.required_bytes)?;
    let limit = unsigned("capacity_range.limit_bytes", range.limit_bytes)?;
    size_range(required, limit)
}

/// The range of these bytes; a limit of 0 is none.
pub(crate) fn size_range(required: u64, limit: u64) -> Result<SizeRange, InvalidRequest> {
    if limit != 0 && limit < required {
        return Err(InvalidRequest::LimitBelowRequired { required, limit });
    }
    Ok(SizeRange {
        required,
        limit: (limit != 0).then_some(limit),
    })
}

/// As [`capacity_range`], for a request that is about nothing else: it must say something.
pub fn required_capacity_range(
    range: Option<&csi::CapacityRange>,
) -> Result<SizeRange, InvalidRequest> {
    let parsed = capacity_range(range)?;
    if parsed == SizeRange::default() {
        return Err(InvalidRequest::Missing {
            field: "capacity_range",
        });
    }
    Ok(parsed)
}

/// A page size: 0 for the server's choice.
pub fn max_entries(value: i32) -> Result<Option<usize>, InvalidRequest> {
    let entries = usize::try_from(value).map_err(|_| InvalidRequest::Negative {
        field: "max_entries",
        value: value.into(),
    })?;
    Ok((entries != 0).then_some(entries))
}

/// Refuses a map that is larger than CSI allows.
pub fn map_size(field: &'static str, map: &HashMap<String, String>) -> Result<(), InvalidRequest> {
    let bytes = map.iter().map(|(key, value)| key.len() + value.len()).sum();
    if bytes > MAX_MAP_BYTES {
        return Err(InvalidRequest::TooLong {
            field,
            bytes,
            limit: MAX_MAP_BYTES,
        });
    }
    Ok(())
}

/// The parameters of a StorageClass, taken apart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Parameters {
    /// The class of drives; None if the StorageClass names none.
    pub class: Option<String>,
    /// Filesystem for capabilities that name none.
    pub fs_type: Option<&'static str>,
    /// Words that replace the class's mkfs options.
    pub mkfs_options: Vec<String>,
    /// Added to the class's mount options.
    pub mount_options: Vec<String>,
    /// All of the above as given, to be kept with the volume. The provisioner's own keys are left out.
    pub kept: BTreeMap<String, String>,
}

/// Reads CreateVolume's parameters; an unknown one is an error, so that a typing mistake is not a default.
pub fn parameters(map: &HashMap<String, String>) -> Result<Parameters, InvalidRequest> {
    map_size("parameters", map)?;
    let mut parsed = Parameters::default();
    let mut reserved_fs_type = None;
    // Sorted, so that of two mistakes the same one is always reported.
    for (key, value) in map.iter().collect::<BTreeMap<_, _>>() {
        match key.as_str() {
            names::PARAM_CLASS => {
                text("parameters.class", value, MAX_STRING_BYTES)?;
                if value.is_empty() {
                    return Err(InvalidRequest::BadParameter {
                        key: names::PARAM_CLASS,
                        reason: "it is empty; name a class, or leave the parameter out",
                    });
                }
                parsed.class = Some(value.clone());
            }
            names::PARAM_FS_TYPE => parsed.fs_type = filesystem("parameters.fsType", value)?,
            names::PARAM_MKFS_OPTIONS => parsed.mkfs_options = mkfs_options(value)?,
            // Checked below, together.
            names::PARAM_ANTI_AFFINITY_PATTERN | names::PARAM_ANTI_AFFINITY => {}
            names::PARAM_MOUNT_OPTIONS => parsed.mount_options = mount_options(value)?,
            names::PARAM_COPY_UNREADABLE => {
                CopyUnreadable::parse(value)?;
            }
            names::PARAM_ENCRYPTION => encryption(value)?,
            names::RESERVED_FS_TYPE => {
                reserved_fs_type = filesystem("parameters.csi.storage.k8s.io/fstype", value)?;
            }
            name if names::CREATE_METADATA.contains(&name) => continue,
            _ => return Err(InvalidRequest::UnknownParameter { key: key.clone() }),
        }
        parsed.kept.insert(key.clone(), value.clone());
    }
    anti_affinity::check(map)?;
    parsed.fs_type = one_filesystem(parsed.fs_type, reserved_fs_type)?;
    Ok(parsed)
}

/// The filesystem that two places of a request name, which must be one.
pub fn one_filesystem(
    first: Option<&'static str>,
    second: Option<&'static str>,
) -> Result<Option<&'static str>, InvalidRequest> {
    match (first, second) {
        (Some(first), Some(second)) if first != second => {
            Err(InvalidRequest::MixedFilesystems { first, second })
        }
        (first, second) => Ok(first.or(second)),
    }
}

/// Options for mkfs, separated by spaces.
///
/// mkfs takes its device as a plain operand, so neither a path nor a second plain
/// word after a plain word may pass: it could name another device.
pub fn mkfs_options(options: &str) -> Result<Vec<String>, InvalidRequest> {
    let key = names::PARAM_MKFS_OPTIONS;
    text("parameters.mkfsOptions", options, MAX_MAP_BYTES)?;
    let bad = |reason| InvalidRequest::BadParameter { key, reason };
    if options.contains(['/', '\\']) {
        return Err(bad("paths are not allowed in it"));
    }
    let mut after_option = false;
    for word in options.split_whitespace() {
        let option = word.starts_with('-');
        if !option && !after_option {
            return Err(bad("every word must be an option or the value of one"));
        }
        after_option = option && word != "--";
    }
    Ok(words(options, ' '))
}

/// Mount options, separated by commas.
pub fn mount_options(options: &str) -> Result<Vec<String>, InvalidRequest> {
    let field = "parameters.mountOptions";
    text(field, options, MAX_MAP_BYTES)?;
    let words = words(options, ',');
    mount_flags(&words).map_err(|refused| InvalidRequest::MountFlag { field, refused })?;
    Ok(words)
}

/// The parts of a text between separators, without white space around them; none of them is empty.
pub(crate) fn words(text: &str, separator: char) -> Vec<String> {
    let words = text.split(separator).map(str::trim);
    let words = words.filter(|word| !word.is_empty());
    words.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_name_is_what_csi_and_its_checker_allow() {
        for (name, good) in [
            ("csi.drivebay.io", true),
            ("a-b", true),
            ("", false),
            ("a", false),
            ("csi.drivebay.1", false),
            ("-a", false),
            ("a_b", false),
            (&"a".repeat(63), true),
            (&"a".repeat(64), false),
        ] {
            assert_eq!(driver_name(name).is_ok(), good, "{name}");
        }
    }

    #[test]
    fn the_parameters_are_taken_apart_and_the_provisioners_own_are_not_kept() {
        let given = [
            ("class", "hdd"),
            ("fsType", "xfs"),
            ("csi.storage.k8s.io/fstype", "xfs"),
            ("mkfsOptions", "-m reflink=1"),
            ("mountOptions", "noatime,nodiratime"),
            ("csi.storage.k8s.io/pvc/name", "claim"),
        ];
        let given = given.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let parsed = parameters(&HashMap::from(given));
        let fields = parsed.as_ref().map(|all| {
            let options = (all.mkfs_options.join("|"), all.mount_options.join("|"));
            (all.class.as_deref(), all.fs_type, options, all.kept.len())
        });
        let options = ("-m|reflink=1".to_owned(), "noatime|nodiratime".to_owned());
        assert_eq!(fields, Ok((Some("hdd"), Some("xfs"), options, 5)));
    }

    #[test]
    fn an_empty_class_and_two_filesystems_are_refused() {
        let of = |given: &[(&str, &str)]| {
            let owned = given
                .iter()
                .map(|(key, value)| ((*key).into(), (*value).into()));
            parameters(&owned.collect())
        };
        assert!(matches!(
            of(&[("class", "")]),
            Err(InvalidRequest::BadParameter { .. })
        ));
        let two = of(&[("fsType", "xfs"), ("csi.storage.k8s.io/fstype", "ext4")]);
        assert!(matches!(two, Err(InvalidRequest::MixedFilesystems { .. })));
        let one = of(&[("fsType", ""), ("csi.storage.k8s.io/fstype", "ext4")]);
        assert_eq!(one.map(|all| all.fs_type), Ok(Some("ext4")));
    }

    #[test]
    fn mkfs_options_cannot_name_a_device() {
        for (options, good) in [
            ("", true),
            ("-m 0 -O ^has_journal -E lazy_itable_init=0", true),
            ("-i size=512 -K", true),
            ("--csum xxhash", true),
            ("sda", false),
            ("-F -- sda", false),
            ("-m 0 sda", false),
            ("-J device=/dev/sda", false),
            ("-l logdev=/dev/sda", false),
        ] {
            assert_eq!(mkfs_options(options).is_ok(), good, "{options}");
        }
    }
}
