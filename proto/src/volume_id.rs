//! The CSI volume id: `<uuid>@<node id>`.
//!
//! The uuid is random per creation, so that a late delete of one volume can never hit another of the same name; the node id names the agent
//! that serves it.

use std::{fmt, str::FromStr};

use uuid::Uuid;

/// Identity of one volume in the whole cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeId {
    /// Random, per creation; also the GUID of its partition.
    pub uuid: Uuid,
    /// Node that created it: 1 to 63 characters, label syntax.
    pub node: String,
}

/// A text that is no valid id, so Drivebay never issued it.
///
/// Callers treat such an id as unknown (NOT_FOUND, or OK for delete), never as a malformed request.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("not a Drivebay volume id (expected <uuid>@<node>)")]
pub struct ParseVolumeIdError;

impl fmt::Display for VolumeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.uuid.as_hyphenated(), self.node)
    }
}

impl FromStr for VolumeId {
    type Err = ParseVolumeIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (uuid, node) = text.split_once('@').ok_or(ParseVolumeIdError)?;
        if !is_node_id(node) {
            return Err(ParseVolumeIdError);
        }
        let parsed = Uuid::try_parse(uuid).map_err(|_| ParseVolumeIdError)?;
        // One volume, one spelling: the braced, simple and upper-case forms are not ids.
        if parsed.as_hyphenated().to_string() != uuid {
            return Err(ParseVolumeIdError);
        }
        Ok(Self {
            uuid: parsed,
            node: node.to_owned(),
        })
    }
}

/// True if this can be a node id: 1 to 63 characters in Kubernetes label-value syntax, because it is also a topology value.
pub fn is_node_id(text: &str) -> bool {
    let edge = |b: u8| b.is_ascii_alphanumeric();
    let bytes = text.as_bytes();
    (1..=63).contains(&bytes.len())
        && bytes.first().copied().is_some_and(edge)
        && bytes.last().copied().is_some_and(edge)
        && bytes
            .iter()
            .all(|&b| edge(b) || matches!(b, b'-' | b'_' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_back_as_it_was_written() -> Result<(), ParseVolumeIdError> {
        let id = VolumeId {
            uuid: Uuid::from_u128(0x1234),
            node: "rack1.node-7".into(),
        };
        assert_eq!(id.to_string().parse::<VolumeId>()?, id);
        Ok(())
    }

    #[test]
    fn only_one_spelling_of_an_id_is_accepted() {
        for text in [
            "",
            "@n",
            "x@n",
            "00000000-0000-0000-0000-000000001234",
            "00000000-0000-0000-0000-000000001234@",
            "00000000-0000-0000-0000-000000001234@-n",
            "00000000000000000000000000001234@n",
            "{00000000-0000-0000-0000-000000001234}@n",
            "00000000-0000-0000-0000-00000000ABCD@n",
            "00000000-0000-0000-0000-000000001234@n/../x",
            "00000000-0000-0000-0000-000000001234@n@m",
        ] {
            assert_eq!(text.parse::<VolumeId>(), Err(ParseVolumeIdError), "{text}");
        }
    }
}
