//! Source of a new volume that is made as a copy, in CSI's message and in the agent's fields. Pure.

use std::fmt;

use drivebay_proto::{
    agent,
    csi::{
        VolumeContentSource,
        volume_content_source::{SnapshotSource, Type, VolumeSource},
    },
};

use crate::{
    new_volume::InvalidField,
    validate::{self, InvalidRequest},
};

/// Id of the snapshot or volume whose contents a new volume gets. Not empty, and otherwise not checked: an id that Drivebay never issued
/// is found not to exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    Snapshot(String),
    Volume(String),
}

impl Source {
    pub fn id(&self) -> &str {
        match self {
            Self::Snapshot(id) | Self::Volume(id) => id,
        }
    }

    /// The same kind of source with another id.
    pub fn with_id(&self, id: String) -> Self {
        match self {
            Self::Snapshot(_) => Self::Snapshot(id),
            Self::Volume(_) => Self::Volume(id),
        }
    }

    /// Returns the source of this volume as its agent reports it; None: the volume was created empty.
    pub fn of(volume: &agent::Volume) -> Option<Self> {
        let set = |id: &String| (!id.is_empty()).then(|| id.clone());
        let snapshot = set(&volume.source_snapshot).map(Self::Snapshot);
        snapshot.or_else(|| set(&volume.source_volume).map(Self::Volume))
    }

    /// From the fields `source_snapshot` and `source_volume` of the agent's request, at most one of which is not empty.
    pub(crate) fn from_fields(
        snapshot: String,
        volume: String,
    ) -> Result<Option<Self>, InvalidField> {
        match (snapshot.is_empty(), volume.is_empty()) {
            (true, true) => Ok(None),
            (false, true) => Ok(Some(Self::Snapshot(snapshot))),
            (true, false) => Ok(Some(Self::Volume(volume))),
            (false, false) => Err(InvalidField {
                field: "source_volume",
                why: "there is a source_snapshot as well; a volume is a copy of one of them"
                    .to_owned(),
            }),
        }
    }

    /// The fields `source_snapshot` and `source_volume` of the agent's request.
    pub(crate) fn into_fields(source: Option<Self>) -> (String, String) {
        match source {
            None => Default::default(),
            Some(Self::Snapshot(id)) => (id, String::new()),
            Some(Self::Volume(id)) => (String::new(), id),
        }
    }
}

/// `snapshot ID` or `volume ID`.
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Snapshot(id) => write!(f, "snapshot {id}"),
            Self::Volume(id) => write!(f, "volume {id}"),
        }
    }
}

impl TryFrom<VolumeContentSource> for Source {
    type Error = InvalidRequest;

    fn try_from(source: VolumeContentSource) -> Result<Self, InvalidRequest> {
        match source.r#type {
            None => Err(InvalidRequest::Missing {
                field: "volume_content_source.type",
            }),
            Some(Type::Snapshot(SnapshotSource { snapshot_id })) => {
                let field = "volume_content_source.snapshot.snapshot_id";
                validate::required(field, &snapshot_id)?;
                Ok(Self::Snapshot(snapshot_id))
            }
            Some(Type::Volume(VolumeSource { volume_id })) => {
                validate::required("volume_content_source.volume.volume_id", &volume_id)?;
                Ok(Self::Volume(volume_id))
            }
        }
    }
}

impl From<Source> for VolumeContentSource {
    fn from(source: Source) -> Self {
        let kind = match source {
            Source::Snapshot(snapshot_id) => Type::Snapshot(SnapshotSource { snapshot_id }),
            Source::Volume(volume_id) => Type::Volume(VolumeSource { volume_id }),
        };
        Self { r#type: Some(kind) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_without_a_type_or_an_id_is_malformed_and_others_come_back_as_they_were() {
        let parse = |kind| Source::try_from(VolumeContentSource { r#type: kind });
        for (kind, field) in [
            (None, "volume_content_source.type"),
            (
                Some(Type::Snapshot(SnapshotSource::default())),
                "volume_content_source.snapshot.snapshot_id",
            ),
            (
                Some(Type::Volume(VolumeSource::default())),
                "volume_content_source.volume.volume_id",
            ),
        ] {
            assert_eq!(parse(kind), Err(InvalidRequest::Missing { field }));
        }
        for source in [Source::Snapshot("s".into()), Source::Volume("v".into())] {
            let sent = VolumeContentSource::from(source.clone());
            assert_eq!(Source::try_from(sent), Ok(source.clone()));
            let (source_snapshot, source_volume) = Source::into_fields(Some(source.clone()));
            let volume = agent::Volume {
                source_snapshot,
                source_volume,
                ..agent::Volume::default()
            };
            assert_eq!(Source::of(&volume), Some(source));
        }
        assert_eq!(Source::of(&agent::Volume::default()), None);
    }
}
