//! A CreateVolume request, parsed once: by the controller from CSI's message, by an agent from the controller's or a person's.
//! Both messages become the same type by the same rules; only the texts of refusals are those of their protocols. Pure.

use std::collections::{BTreeMap, HashMap};

use drivebay_common::{mount_flags::mount_flags, units::size_beside};
use drivebay_proto::{
    agent::{self, Class, CreatedFor},
    csi, names,
};

use crate::{
    size::SizeRules,
    source::Source,
    validate::{self, Access, InvalidRequest, Parameters, SizeRange},
};

/// Sizes that an agent is asked for are multiples of this, bytes.
const AGENT_EXTENT_BYTES: u64 = 1 << 20;

/// A volume to be created.
#[derive(Debug, Clone, PartialEq)]
pub struct NewVolume {
    pub name: String,
    /// Class of drives; None: the only one there is.
    pub class: Option<String>,
    pub content: Content,
    /// An agent is asked for the exact size as `required`, a multiple of 1 MiB above 0.
    pub range: SizeRange,
    /// Source of its contents; None: it is empty.
    pub source: Option<Source>,
    /// Those of the request and the anti-affinity group; kept with the volume, and compared when a request is repeated.
    pub parameters: BTreeMap<String, String>,
    /// Kept with the volume as well, and not compared.
    pub created_for: CreatedFor,
    /// Created by a person on the node, not through CSI.
    pub manual: bool,
}

/// Handling of 4 KiB blocks that cannot be read on the source of a copy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CopyUnreadable {
    /// The volume is not created if there is such a block.
    #[default]
    Fail,
    /// The volume has zeros in their place, and their number of bytes is kept with it ([`unreadable_bytes`]).
    Zeros,
}

impl CopyUnreadable {
    /// Parses the value of the StorageClass parameter; an unknown one is an error.
    pub fn parse(value: &str) -> Result<Self, InvalidRequest> {
        match value {
            names::COPY_UNREADABLE_FAIL => Ok(Self::Fail),
            names::COPY_UNREADABLE_ZEROS => Ok(Self::Zeros),
            _ => Err(InvalidRequest::BadParameter {
                key: names::PARAM_COPY_UNREADABLE,
                reason: "write fail, so that what does not read everywhere is not copied, or zeros, so that the copy has zeros there",
            }),
        }
    }

    /// Returns the requested handling from the parameters that are kept with a volume; `Fail` if absent or invalid.
    pub fn of(parameters: &BTreeMap<String, String>) -> Self {
        let value = parameters.get(names::PARAM_COPY_UNREADABLE);
        let parsed = value.and_then(|value| Self::parse(value).ok());
        parsed.unwrap_or_default()
    }
}

/// Checks the value of the StorageClass parameter; an unknown one is an error, so that a typing mistake does not leave a volume unencrypted.
pub(crate) fn encryption(value: &str) -> Result<(), InvalidRequest> {
    match value {
        names::ENCRYPTION_LUKS2 => Ok(()),
        _ => Err(InvalidRequest::BadParameter {
            key: names::PARAM_ENCRYPTION,
            reason: "write luks2, or leave it out for volumes that are not encrypted",
        }),
    }
}

/// Returns the number of bytes that could not be read on a copy's source and are zeros in the copy, from the parameters that are kept
/// with the volume. 0: all of the source was read, or the volume is no copy.
pub fn unreadable_bytes(kept: &BTreeMap<String, String>) -> u64 {
    let bytes = kept.get(names::KEPT_UNREADABLE_BYTES);
    bytes.and_then(|bytes| bytes.parse().ok()).unwrap_or(0)
}

/// Access mode of a new volume, with the parameters of that mode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// A raw device; never formatted.
    Block,
    Mount {
        /// One of `names::FILESYSTEMS`; None: the class's.
        fs_type: Option<&'static str>,
        /// Words for mkfs. They replace the class's unless there are none.
        mkfs_options: Vec<String>,
        /// Added to the class's.
        mount_options: Vec<String>,
        /// Mount flags of the capabilities: checked at creation, and not kept, since each stage brings its own.
        mount_flags: Vec<String>,
    },
}

impl Content {
    /// A filesystem without options.
    pub fn mount(fs_type: Option<&'static str>) -> Self {
        Self::Mount {
            fs_type,
            mkfs_options: Vec::new(),
            mount_options: Vec::new(),
            mount_flags: Vec::new(),
        }
    }

    /// Combines capabilities and parameters. A block volume has none of the options.
    ///
    /// # Errors
    /// Both name a filesystem, and they differ.
    pub fn new(access: Access, parameters: &Parameters) -> Result<Self, InvalidRequest> {
        Ok(match access {
            Access::Block => Self::Block,
            Access::Mount { fs_type, flags } => Self::Mount {
                fs_type: validate::one_filesystem(fs_type, parameters.fs_type)?,
                mkfs_options: parameters.mkfs_options.clone(),
                mount_options: parameters.mount_options.clone(),
                mount_flags: flags,
            },
        })
    }

    /// The word in the agent's protocol: `block` or `mount`.
    pub fn mode(&self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::Mount { .. } => "mount",
        }
    }

    /// The filesystem a volume of this class gets; None for block, or if the class names one that is not known here.
    pub fn filesystem(&self, class: &Class) -> Option<&'static str> {
        match self {
            Self::Block => None,
            Self::Mount { fs_type, .. } => fs_type.or_else(|| {
                let mut filesystems = names::FILESYSTEMS.iter().map(|(name, _)| *name);
                filesystems.find(|name| *name == class.fs_type)
            }),
        }
    }

    /// The size rules of this class for such a volume.
    pub fn size_rules(&self, class: &Class) -> SizeRules {
        SizeRules {
            extent: class.extent_bytes,
            smallest: class.smallest_volume_bytes,
            fs_type: self.filesystem(class),
        }
    }
}

impl TryFrom<csi::CreateVolumeRequest> for NewVolume {
    type Error = InvalidRequest;

    fn try_from(request: csi::CreateVolumeRequest) -> Result<Self, InvalidRequest> {
        let name = validate::volume_name(&request.name)?.to_owned();
        let access = validate::capabilities(&request.volume_capabilities)?;
        let range = validate::capacity_range(request.capacity_range.as_ref())?;
        let parsed = validate::parameters(&request.parameters)?;
        let content = Content::new(access, &parsed)?;
        let group = validate::anti_affinity::group(&request.parameters)?;
        let mut parameters = parsed.kept;
        // Kept with the volume, on its drive: the agent reads it again from there.
        parameters.extend(group.map(|group| (names::KEPT_ANTI_AFFINITY_GROUP.to_owned(), group)));
        if !request.mutable_parameters.is_empty() {
            return Err(InvalidRequest::MutableParameters);
        }
        let source = request.volume_content_source.map(Source::try_from);
        let source = source.transpose()?;
        Ok(Self {
            name,
            class: parsed.class,
            content,
            range,
            source,
            parameters,
            created_for: created_for(&request.parameters),
            manual: false,
        })
    }
}

fn created_for(parameters: &HashMap<String, String>) -> CreatedFor {
    let metadata = |key| parameters.get(key).cloned().unwrap_or_default();
    CreatedFor {
        claim: metadata(names::CLAIM_NAME),
        namespace: metadata(names::CLAIM_NAMESPACE),
        persistent_volume: metadata(names::PERSISTENT_VOLUME_NAME),
        ..CreatedFor::default()
    }
}

/// A field of an agent's CreateVolumeRequest, CreateSnapshotRequest or CreateGroupSnapshotRequest that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {why}")]
pub struct InvalidField {
    pub field: &'static str,
    pub why: String,
}

impl TryFrom<agent::CreateVolumeRequest> for NewVolume {
    type Error = InvalidField;

    /// The controller has checked its request already, but the drives are the agent's. What options a kind of filesystem may
    /// be made with is for the agent to check.
    fn try_from(request: agent::CreateVolumeRequest) -> Result<Self, InvalidField> {
        let invalid = |field: &'static str, why: String| InvalidField { field, why };
        agent_name(&request.name)?;
        let is_block = match request.mode.as_str() {
            "mount" => false,
            "block" => true,
            other => {
                let why = format!("{other:?} is neither mount nor block");
                return Err(invalid("mode", why));
            }
        };
        let fs_type = validate::filesystem("fs_type", &request.fs_type).map_err(|_| {
            let (given, supported) = (&request.fs_type, validate::filesystems());
            let why = format!("filesystem {given:?} is not known; there are {supported}");
            invalid("fs_type", why)
        })?;
        let range = agent_range(request.required_bytes, request.limit_bytes)?;
        let mkfs_options = validate::words(&request.mkfs_options, ' ');
        if fs_type.is_none() && !mkfs_options.is_empty() && !is_block {
            let why = "need a filesystem: name one with fsType".to_owned();
            return Err(invalid("mkfsOptions", why));
        }
        let mount_options = validate::words(&request.mount_options, ',');
        for (field, flags) in [
            ("mountOptions", &mount_options),
            ("volume_capabilities", &request.mount_flags),
        ] {
            mount_flags(flags).map_err(|error| invalid(field, error.to_string()))?;
        }
        let copy_unreadable = request.parameters.get(names::PARAM_COPY_UNREADABLE);
        if let Some(value) = copy_unreadable
            && CopyUnreadable::parse(value).is_err()
        {
            let (fail, zeros) = (names::COPY_UNREADABLE_FAIL, names::COPY_UNREADABLE_ZEROS);
            let why = format!("{value:?} is neither {fail} nor {zeros}");
            return Err(invalid(names::PARAM_COPY_UNREADABLE, why));
        }
        if let Some(value) = request.parameters.get(names::PARAM_ENCRYPTION)
            && encryption(value).is_err()
        {
            let why = format!("{value:?} is not {}", names::ENCRYPTION_LUKS2);
            return Err(invalid(names::PARAM_ENCRYPTION, why));
        }
        let content = match is_block {
            true => Content::Block,
            false => Content::Mount {
                fs_type,
                mkfs_options,
                mount_options,
                mount_flags: request.mount_flags,
            },
        };
        let source = Source::from_fields(request.source_snapshot, request.source_volume)?;
        Ok(Self {
            name: request.name,
            class: Some(request.class),
            content,
            range,
            source,
            parameters: request.parameters.into_iter().collect(),
            created_for: request.created_for.unwrap_or_default(),
            manual: false,
        })
    }
}

/// Checks the CSI name in a request to an agent.
pub(crate) fn agent_name(name: &str) -> Result<(), InvalidField> {
    let why = match validate::volume_name(name) {
        Ok(_) => return Ok(()),
        Err(InvalidRequest::ControlCharacter { .. }) => "holds control characters",
        Err(_) => "must have 1 to 128 bytes",
    };
    Err(InvalidField {
        field: "name",
        why: why.to_owned(),
    })
}

fn agent_range(required: u64, limit: u64) -> Result<SizeRange, InvalidField> {
    if required == 0 || !required.is_multiple_of(AGENT_EXTENT_BYTES) {
        return Err(InvalidField {
            field: "required_bytes",
            why: format!("must be a multiple of 1 MiB above 0, got {required} bytes"),
        });
    }
    validate::size_range(required, limit).map_err(|_| InvalidField {
        field: "limit_bytes",
        why: format!(
            "{} is less than required_bytes {}",
            size_beside(limit, required),
            size_beside(required, limit)
        ),
    })
}

impl NewVolume {
    /// True if the volume is to be encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.parameters.contains_key(names::PARAM_ENCRYPTION)
    }

    /// The agent's request for this volume, of this class and exact size in bytes.
    pub fn agent_request(&self, class: &str, bytes: u64) -> agent::CreateVolumeRequest {
        let (source_snapshot, source_volume) = Source::into_fields(self.source.clone());
        let mut request = agent::CreateVolumeRequest {
            name: self.name.clone(),
            class: class.to_owned(),
            required_bytes: bytes,
            limit_bytes: self.range.limit.unwrap_or(0),
            mode: self.content.mode().to_owned(),
            parameters: self.parameters.clone().into_iter().collect(),
            created_for: Some(self.created_for.clone()),
            source_snapshot,
            source_volume,
            ..agent::CreateVolumeRequest::default()
        };
        if let Content::Mount {
            fs_type,
            mkfs_options,
            mount_options,
            mount_flags,
        } = &self.content
        {
            request.fs_type = fs_type.unwrap_or_default().to_owned();
            request.mkfs_options = mkfs_options.join(" ");
            request.mount_options = mount_options.join(",");
            request.mount_flags.clone_from(mount_flags);
        }
        request
    }
}

#[cfg(test)]
#[path = "new_volume_tests.rs"]
mod tests;
