//! A CreateVolumeGroupSnapshot request, parsed once: by the controller from CSI's message, by an agent from the controller's. Pure.

use std::collections::BTreeSet;

use drivebay_proto::{agent, csi};

use crate::{
    new_snapshot::{Parameters, Reserve},
    new_volume::{InvalidField, agent_name},
    validate::{self, InvalidRequest, MAX_STRING_BYTES},
};

/// Largest number of volumes in a group. All of them are suspended until the last one is.
pub const MAX_MEMBERS: usize = 32;

/// Snapshots of several volumes, to be taken at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewGroupSnapshot {
    /// CSI name of the group, 1 to 128 bytes without control characters.
    pub name: String,
    /// Ids of the volumes, 1 to [`MAX_MEMBERS`], each once, in the order of the request. Not empty, and otherwise not checked: an id
    /// that Drivebay never issued is found not to exist.
    pub volume_ids: Vec<String>,
    /// Applies to each of the snapshots.
    pub reserve: Reserve,
    /// Age at which all snapshots are deleted, seconds, at least 60; None: never.
    pub max_age: Option<u64>,
}

/// The list of volumes is invalid.
enum BadList {
    Missing,
    TooMany,
    /// An id that is in the list twice, truncated.
    Repeated(String),
}

fn check_list(ids: &[String]) -> Result<(), BadList> {
    if ids.is_empty() || ids.iter().any(String::is_empty) {
        return Err(BadList::Missing);
    }
    if ids.len() > MAX_MEMBERS {
        return Err(BadList::TooMany);
    }
    let mut before = BTreeSet::new();
    match ids.iter().find(|id| !before.insert(*id)) {
        Some(twice) => Err(BadList::Repeated(
            twice.chars().take(MAX_STRING_BYTES).collect(),
        )),
        None => Ok(()),
    }
}

impl TryFrom<csi::CreateVolumeGroupSnapshotRequest> for NewGroupSnapshot {
    type Error = InvalidRequest;

    fn try_from(request: csi::CreateVolumeGroupSnapshotRequest) -> Result<Self, InvalidRequest> {
        validate::volume_name(&request.name)?;
        let volume_ids = request.source_volume_ids;
        let field = "source_volume_ids";
        check_list(&volume_ids).map_err(|bad| match bad {
            BadList::Missing => InvalidRequest::Missing { field },
            BadList::TooMany => InvalidRequest::TooMany {
                field,
                count: volume_ids.len(),
                limit: MAX_MEMBERS,
            },
            BadList::Repeated(value) => InvalidRequest::Repeated { field, value },
        })?;
        let Parameters { reserve, max_age } = Parameters::try_from(&request.parameters)?;
        Ok(Self {
            name: request.name,
            volume_ids,
            reserve,
            max_age,
        })
    }
}

impl NewGroupSnapshot {
    /// Returns the agent's request for this group. `volume_ids`: the ids that the agent reports for the volumes.
    pub fn agent_request(&self, volume_ids: Vec<String>) -> agent::CreateGroupSnapshotRequest {
        agent::CreateGroupSnapshotRequest {
            name: self.name.clone(),
            volume_ids,
            reserve_percent: self.reserve.percent,
            least_reserve_bytes: self.reserve.least,
            most_reserve_bytes: self.reserve.most.unwrap_or(0),
            max_age_seconds: Some(self.max_age.unwrap_or(0)),
        }
    }
}

impl TryFrom<agent::CreateGroupSnapshotRequest> for NewGroupSnapshot {
    type Error = InvalidField;

    fn try_from(request: agent::CreateGroupSnapshotRequest) -> Result<Self, InvalidField> {
        agent_name(&request.name)?;
        let volume_ids = request.volume_ids;
        check_list(&volume_ids).map_err(|bad| InvalidField {
            field: "volume_ids",
            why: match bad {
                BadList::Missing => "is missing".to_owned(),
                BadList::TooMany => {
                    let count = volume_ids.len();
                    format!("must be at most {MAX_MEMBERS}, got {count}")
                }
                BadList::Repeated(id) => format!("{id:?} is there twice"),
            },
        })?;
        let Parameters { reserve, max_age } = Parameters::from_agent(
            request.reserve_percent,
            request.least_reserve_bytes,
            request.most_reserve_bytes,
            request.max_age_seconds,
        )?;
        Ok(Self {
            name: request.name,
            volume_ids,
            reserve,
            max_age,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(
        edit: impl Fn(&mut csi::CreateVolumeGroupSnapshotRequest),
    ) -> csi::CreateVolumeGroupSnapshotRequest {
        let mut request = csi::CreateVolumeGroupSnapshotRequest {
            name: "group-1".into(),
            source_volume_ids: vec!["b@n".into(), "a@n".into()],
            ..csi::CreateVolumeGroupSnapshotRequest::default()
        };
        edit(&mut request);
        request
    }

    #[test]
    fn an_agent_parses_from_the_controllers_request_what_the_controller_parsed() {
        let given = [
            ("reserve", "5%"),
            ("leastReserve", "1GiB"),
            ("mostReserve", "2GiB"),
            ("maxAge", "12h"),
            ("csi.storage.k8s.io/volumegroupsnapshot/name", "g"),
            ("csi.storage.k8s.io/volumegroupsnapshot/namespace", "n"),
            ("csi.storage.k8s.io/volumegroupsnapshotcontent/name", "c"),
        ];
        let given = given.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let requested = request(|r| r.parameters = given.clone().into());
        let requested = NewGroupSnapshot::try_from(requested).unwrap();
        let reserve = Reserve {
            percent: 5,
            least: 1 << 30,
            most: Some(2 << 30),
        };
        assert_eq!(requested.reserve, reserve);
        assert_eq!(requested.max_age, Some(12 * 3600));
        assert_eq!(requested.volume_ids, ["b@n", "a@n"]);
        let wire = requested.agent_request(requested.volume_ids.clone());
        assert_eq!(NewGroupSnapshot::try_from(wire), Ok(requested));
        let kept = NewGroupSnapshot::try_from(request(|r| {
            r.parameters.insert("maxAge".into(), "none".into());
        }));
        let kept = kept.unwrap();
        let wire = kept.agent_request(vec!["a@n".into()]);
        assert_eq!(wire.max_age_seconds, Some(0));
        assert_eq!(NewGroupSnapshot::try_from(wire).unwrap().max_age, None);
    }

    #[test]
    fn a_group_has_a_name_and_1_to_32_volumes_each_once() {
        type Edit = fn(&mut csi::CreateVolumeGroupSnapshotRequest);
        let rows: [(&str, Edit); 7] = [
            ("name is missing", |r| r.name.clear()),
            ("name is 129 bytes long", |r| r.name = "x".repeat(129)),
            ("source_volume_ids is missing", |r| {
                r.source_volume_ids.clear()
            }),
            ("source_volume_ids is missing", |r| {
                r.source_volume_ids.push(String::new());
            }),
            (
                "source_volume_ids has 33 entries; at most 32 are allowed",
                |r| r.source_volume_ids = (0..33).map(|n| format!("{n}@n")).collect(),
            ),
            ("source_volume_ids names \"a@n\" twice", |r| {
                r.source_volume_ids.push("a@n".into());
            }),
            ("\"class\" is not known", |r| {
                r.parameters.insert("class".into(), "hdd".into());
            }),
        ];
        for (text, edit) in rows {
            let refused = NewGroupSnapshot::try_from(request(edit)).unwrap_err();
            assert!(refused.to_string().contains(text), "{refused}");
        }
        let most = request(|r| r.source_volume_ids = (0..32).map(|n| format!("{n}@n")).collect());
        assert!(NewGroupSnapshot::try_from(most).is_ok());
    }

    #[test]
    fn an_agent_refuses_a_field_in_the_words_of_its_own_protocol() {
        type Change = fn(&mut agent::CreateGroupSnapshotRequest);
        let rows: [(&str, Change); 7] = [
            ("name: must have 1 to 128 bytes", |r| r.name.clear()),
            ("volume_ids: is missing", |r| r.volume_ids.clear()),
            ("volume_ids: is missing", |r| {
                r.volume_ids.push(String::new())
            }),
            ("volume_ids: must be at most 32, got 33", |r| {
                r.volume_ids = (0..33).map(|n| n.to_string()).collect();
            }),
            ("volume_ids: \"a\" is there twice", |r| {
                r.volume_ids.push("a".into());
            }),
            ("reserve_percent: must be at most 100, got 101", |r| {
                r.reserve_percent = 101;
            }),
            (
                "max_age_seconds: must be 0 (never) or at least 60, got 1",
                |r| r.max_age_seconds = Some(1),
            ),
        ];
        let good = agent::CreateGroupSnapshotRequest {
            name: "g".into(),
            volume_ids: vec!["a".into()],
            ..agent::CreateGroupSnapshotRequest::default()
        };
        assert!(NewGroupSnapshot::try_from(good.clone()).is_ok());
        for (text, change) in rows {
            let mut request = good.clone();
            change(&mut request);
            let refused = NewGroupSnapshot::try_from(request).unwrap_err();
            assert_eq!(refused.to_string(), text);
        }
    }
}
