//! The payload: JSON, in types of its own, so that the format does not change with the model. Every
//! object keeps the fields that this version does not know.
//!
//! ```json
//! {
//!   "label": {
//!     "drive_uuid": "…",      random, made at claim; the GPT's disk GUID
//!     "cluster": "…",         cluster the drive belongs to
//!     "node": "…",            node that claimed it
//!     "class": "…",           class it was claimed for
//!     "drive_id": "…",        the drive's identity at claim. ("free_space" of earlier versions says nothing)
//!     "cordon": {             absent unless the drive takes no new volumes:
//!       "at": 0,              since when, seconds since 1970
//!       "by": "…",            the operator
//!       "reason": "…"         the operator's
//!     }
//!   },
//!   "records": [{
//!     "uuid": "…",            identity; the GUID of its partition while it lives
//!     "name": "…",            the CSI name
//!     "class": "…",           class it was asked from
//!     "mode": "mount",        "mount" or "block"
//!     "fs_type": "ext4",      asked for: "ext4", "xfs", "btrfs"; null for block
//!     "mkfs_options": [],     further arguments, one per element
//!     "mount_options": [],    further options, one per element
//!     "parameters": {},       the request's parameters, text to text
//!     "erase": "zero",        "zero" or "signatures"
//!     "requested_bytes": 0,   size asked for at creation
//!     "start": 0, "len": 0,   where it lies, bytes from the start of the drive
//!     "growing_to_len": null, intent to have this length; the table has either
//!     "state": {
//!       "is": "fs",           "creating", "new", "fs", "block", "erasing"; "elsewhere" while the volume does not live here,
//!                             which an earlier version refuses to read
//!       "was": "fs",          elsewhere: which of the others it is
//!       "fs_type": "ext4",    fs: what it is being or was made with
//!       "fs_uuid": "…",       fs: planned before mkfs
//!       "mounted": true,      fs: it was mounted once, and is never made again
//!       "erase_guid": "…",    erasing: GUID of its partition from now on
//!       "done_bytes": 0       erasing: durable zeros from its start
//!     },
//!     "place": {              absent for a volume that never moved: its part in a move
//!       "is": "live",         "live", "incoming", "leaving", "moved"
//!       "generation": 2,      of the volume here; leaving, moved: of its copy
//!       "drive_uuid": "…",    label of the other drive; absent for a live volume that came from none
//!       "drive_id": "…"       identity of the other drive
//!     }
//!   }]
//! }
//! ```

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use drivebay_model::{
    Cordon, DriveId, ErasePolicy, Extent, FsType, Label, Mode, Peer, PlaceState, Record,
    RecordState,
};

/// The contents of a label.
#[derive(Debug, Clone, PartialEq)]
pub struct Content {
    /// Minor version: 0 if this version created it, else the one it was read with; never lowered.
    pub minor: u16,
    pub label: Label,
    pub records: Vec<Stored>,
    label_extra: Map<String, Value>,
    extra: Map<String, Value>,
}

/// A record, with its fields that this version does not know.
#[derive(Debug, Clone, PartialEq)]
pub struct Stored {
    pub record: Record,
    extra: Map<String, Value>,
    state_extra: Map<String, Value>,
    place_extra: Map<String, Value>,
}

impl From<Record> for Stored {
    fn from(record: Record) -> Self {
        Self {
            record,
            extra: Map::new(),
            state_extra: Map::new(),
            place_extra: Map::new(),
        }
    }
}

impl Content {
    /// Returns the first contents of a drive's label, without records.
    pub fn new(label: Label) -> Self {
        Self {
            minor: 0,
            label,
            records: Vec::new(),
            label_extra: Map::new(),
            extra: Map::new(),
        }
    }

    /// Returns the record of this volume; None if there is none.
    pub fn record(&self, uuid: Uuid) -> Option<&Record> {
        self.records
            .iter()
            .map(|stored| &stored.record)
            .find(|record| record.uuid == uuid)
    }

    /// Returns the contents with one record changed; unchanged if there is no such record.
    pub fn with(&self, uuid: Uuid, change: impl FnOnce(&mut Record)) -> Self {
        let mut content = self.clone();
        if let Some(stored) = content
            .records
            .iter_mut()
            .find(|stored| stored.record.uuid == uuid)
        {
            change(&mut stored.record);
        }
        content
    }

    /// Returns the contents without one record.
    pub fn without(&self, uuid: Uuid) -> Self {
        let mut content = self.clone();
        content.records.retain(|stored| stored.record.uuid != uuid);
        content
    }

    pub(super) fn encode(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(&RawContent {
            label: RawLabel {
                drive_uuid: self.label.drive_uuid,
                cluster: self.label.cluster.clone(),
                node: self.label.node.clone(),
                class: self.label.class.clone(),
                drive_id: self.label.drive_id.0.clone(),
                cordon: self.label.cordon.clone(),
                extra: self.label_extra.clone(),
            },
            records: self.records.iter().map(RawRecord::from).collect(),
            extra: self.extra.clone(),
        })
    }

    pub(super) fn decode(payload: &[u8]) -> Result<Self, serde_json::Error> {
        let raw: RawContent = serde_json::from_slice(payload)?;
        Ok(Self {
            minor: 0,
            label: Label {
                drive_uuid: raw.label.drive_uuid,
                cluster: raw.label.cluster,
                node: raw.label.node,
                class: raw.label.class,
                drive_id: DriveId(raw.label.drive_id),
                cordon: raw.label.cordon,
            },
            records: raw
                .records
                .into_iter()
                .map(Stored::try_from)
                .collect::<Result<_, _>>()?,
            label_extra: raw.label.extra,
            extra: raw.extra,
        })
    }
}

#[derive(Serialize, Deserialize)]
struct RawContent {
    label: RawLabel,
    records: Vec<RawRecord>,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

#[derive(Serialize, Deserialize)]
struct RawLabel {
    drive_uuid: Uuid,
    cluster: String,
    node: String,
    class: String,
    drive_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cordon: Option<Cordon>,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

#[derive(Serialize, Deserialize)]
struct RawRecord {
    uuid: Uuid,
    name: String,
    class: String,
    mode: Mode,
    fs_type: Option<FsType>,
    mkfs_options: Vec<String>,
    mount_options: Vec<String>,
    parameters: BTreeMap<String, String>,
    erase: ErasePolicy,
    requested_bytes: u64,
    start: u64,
    len: u64,
    growing_to_len: Option<u64>,
    state: RawState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    place: Option<RawPlace>,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Is {
    Creating,
    New,
    Fs,
    Block,
    Erasing,
    Elsewhere,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum PlaceIs {
    Live,
    Incoming,
    Leaving,
    Moved,
}

#[derive(Serialize, Deserialize)]
struct RawPlace {
    is: PlaceIs,
    generation: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    drive_uuid: Option<Uuid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    drive_id: Option<String>,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

impl RawPlace {
    /// Converts a place; None for a volume that never moved.
    fn of(place: &PlaceState, extra: &Map<String, Value>) -> Option<Self> {
        if place.is_first() {
            return None;
        }
        let peer = place.peer();
        Some(Self {
            is: match place {
                PlaceState::Live { .. } => PlaceIs::Live,
                PlaceState::Incoming { .. } => PlaceIs::Incoming,
                PlaceState::Leaving { .. } => PlaceIs::Leaving,
                PlaceState::Moved { .. } => PlaceIs::Moved,
            },
            generation: place.generation(),
            drive_uuid: peer.map(|peer| peer.label),
            drive_id: peer.map(|peer| peer.drive.0.clone()),
            extra: extra.clone(),
        })
    }

    /// Converts back; None if the other drive is missing and the place needs one.
    fn state(&self) -> Option<PlaceState> {
        let generation = self.generation;
        let peer = self.drive_uuid.zip(self.drive_id.clone());
        let peer = peer.map(|(label, drive)| Peer {
            label,
            drive: DriveId(drive),
        });
        Some(match self.is {
            PlaceIs::Live => PlaceState::Live {
                generation,
                from: peer,
            },
            PlaceIs::Incoming => PlaceState::Incoming {
                generation,
                from: peer?,
            },
            PlaceIs::Leaving => PlaceState::Leaving {
                generation,
                to: peer?,
            },
            PlaceIs::Moved => PlaceState::Moved {
                generation,
                to: peer?,
            },
        })
    }
}

#[derive(Serialize, Deserialize)]
struct RawState {
    is: Is,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    was: Option<Is>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fs_type: Option<FsType>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fs_uuid: Option<Uuid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mounted: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    erase_guid: Option<Uuid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    done_bytes: Option<u64>,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

impl From<&Stored> for RawRecord {
    fn from(stored: &Stored) -> Self {
        let record = stored.record.clone();
        let mut state = RawState {
            is: Is::Creating,
            was: None,
            fs_type: None,
            fs_uuid: None,
            mounted: None,
            erase_guid: None,
            done_bytes: None,
            extra: stored.state_extra.clone(),
        };
        match record.state {
            RecordState::Creating => {}
            RecordState::New => state.is = Is::New,
            RecordState::Fs {
                fs_type,
                fs_uuid,
                mounted,
            } => {
                state.is = Is::Fs;
                state.fs_type = Some(fs_type);
                state.fs_uuid = Some(fs_uuid);
                state.mounted = Some(mounted);
            }
            RecordState::Block => state.is = Is::Block,
            RecordState::Erasing {
                erase_guid,
                done_bytes,
            } => {
                state.is = Is::Erasing;
                state.erase_guid = Some(erase_guid);
                state.done_bytes = Some(done_bytes);
            }
        }
        if !record.place.is_live() {
            state.was = Some(state.is);
            state.is = Is::Elsewhere;
        }
        Self {
            place: RawPlace::of(&record.place, &stored.place_extra),
            uuid: record.uuid,
            name: record.name,
            class: record.class,
            mode: record.mode,
            fs_type: record.fs_type,
            mkfs_options: record.mkfs_options,
            mount_options: record.mount_options,
            parameters: record.parameters,
            erase: record.erase,
            requested_bytes: record.requested_bytes,
            start: record.extent.start,
            len: record.extent.len,
            growing_to_len: record.growing_to.map(|extent| extent.len),
            state,
            extra: stored.extra.clone(),
        }
    }
}

impl TryFrom<RawRecord> for Stored {
    type Error = serde_json::Error;

    fn try_from(raw: RawRecord) -> Result<Self, Self::Error> {
        let lacks =
            |what: &str| serde::de::Error::custom(format!("record {} lacks {what}", raw.uuid));
        let place = match &raw.place {
            None => PlaceState::default(),
            Some(place) => place.state().ok_or_else(|| lacks("place.drive_uuid"))?,
        };
        let is = match raw.state.is {
            Is::Elsewhere => raw.state.was.ok_or_else(|| lacks("state.was"))?,
            is => is,
        };
        if matches!(raw.state.is, Is::Elsewhere) == place.is_live() {
            return Err(lacks("a place that fits its state"));
        }
        let state = match is {
            Is::Elsewhere => return Err(lacks("state.was")),
            Is::Creating => RecordState::Creating,
            Is::New => RecordState::New,
            Is::Fs => RecordState::Fs {
                fs_type: raw.state.fs_type.ok_or_else(|| lacks("state.fs_type"))?,
                fs_uuid: raw.state.fs_uuid.ok_or_else(|| lacks("state.fs_uuid"))?,
                mounted: raw.state.mounted.ok_or_else(|| lacks("state.mounted"))?,
            },
            Is::Block => RecordState::Block,
            Is::Erasing => RecordState::Erasing {
                erase_guid: raw
                    .state
                    .erase_guid
                    .ok_or_else(|| lacks("state.erase_guid"))?,
                done_bytes: raw
                    .state
                    .done_bytes
                    .ok_or_else(|| lacks("state.done_bytes"))?,
            },
        };
        Ok(Self {
            record: Record {
                uuid: raw.uuid,
                name: raw.name,
                class: raw.class,
                mode: raw.mode,
                fs_type: raw.fs_type,
                mkfs_options: raw.mkfs_options,
                mount_options: raw.mount_options,
                parameters: raw.parameters,
                erase: raw.erase,
                requested_bytes: raw.requested_bytes,
                extent: Extent {
                    start: raw.start,
                    len: raw.len,
                },
                growing_to: raw.growing_to_len.map(|len| Extent {
                    start: raw.start,
                    len,
                }),
                state,
                place,
            },
            extra: raw.extra,
            state_extra: raw.state.extra,
            place_extra: raw.place.map(|place| place.extra).unwrap_or_default(),
        })
    }
}
