//! A CreateSnapshot request, parsed once: by the controller from CSI's message, by an agent from the controller's. Pure.

use std::collections::{BTreeMap, HashMap};

use drivebay_common::units::size_beside;
use drivebay_proto::{agent, csi, names};

use crate::{
    new_volume::{InvalidField, agent_name},
    validate::{self, InvalidRequest, MAX_STRING_BYTES},
};

/// The largest share of a volume's size that its snapshot's reserve can be, in hundredths.
const MAX_PERCENT: u32 = 100;
/// Units of sizes, bytes. A bare "G" is none: it could be binary or decimal.
const UNITS: [(&str, u64); 12] = [
    ("B", 1),
    ("kB", 1000),
    ("KB", 1000),
    ("KiB", 1 << 10),
    ("MB", 1_000_000),
    ("MiB", 1 << 20),
    ("GB", 1_000_000_000),
    ("GiB", 1 << 30),
    ("TB", 1_000_000_000_000),
    ("TiB", 1 << 40),
    ("PB", 1_000_000_000_000_000),
    ("PiB", 1 << 50),
];

/// A snapshot to be created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSnapshot {
    pub name: String,
    /// The volume that it is of. Any text: one that Drivebay never gave out is of no volume.
    pub volume_id: String,
    pub reserve: Reserve,
}

/// Room for what is written to a volume while it has the snapshot: a share of the volume's size, within bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reserve {
    /// Hundredths of the volume's size, 1 to 100.
    pub percent: u32,
    /// At least this, bytes; 0: no such bound.
    pub least: u64,
    /// At most this, bytes: above 0, and not below `least`.
    pub most: Option<u64>,
}

impl Default for Reserve {
    fn default() -> Self {
        Self {
            percent: names::DEFAULT_RESERVE_PERCENT,
            least: 0,
            most: None,
        }
    }
}

impl TryFrom<&HashMap<String, String>> for Reserve {
    type Error = InvalidRequest;

    /// Reads a VolumeSnapshotClass's parameters; an unknown one is an error, so that a typing mistake is not a default.
    fn try_from(parameters: &HashMap<String, String>) -> Result<Self, InvalidRequest> {
        validate::map_size("parameters", parameters)?;
        let mut reserve = Self::default();
        // Sorted, so that of two mistakes the same one is always reported.
        for (key, value) in parameters.iter().collect::<BTreeMap<_, _>>() {
            match key.as_str() {
                names::PARAM_SNAPSHOT_RESERVE => reserve.percent = percent(value)?,
                names::PARAM_SNAPSHOT_LEAST => {
                    reserve.least = size(names::PARAM_SNAPSHOT_LEAST, value)?;
                }
                names::PARAM_SNAPSHOT_MOST => {
                    reserve.most = Some(size(names::PARAM_SNAPSHOT_MOST, value)?);
                }
                known if names::SNAPSHOT_METADATA.contains(&known) => {}
                _ => {
                    return Err(InvalidRequest::UnknownSnapshotParameter { key: key.clone() });
                }
            }
        }
        match reserve.most {
            Some(most) if most < reserve.least => Err(InvalidRequest::ReserveBounds {
                least: reserve.least,
                most,
            }),
            _ => Ok(reserve),
        }
    }
}

/// The digits that a text begins with, and the rest of it.
fn number(text: &str) -> (&str, &str) {
    let digits = text.find(|c: char| !c.is_ascii_digit());
    text.split_at(digits.unwrap_or(text.len()))
}

/// "20%".
fn percent(text: &str) -> Result<u32, InvalidRequest> {
    validate::text("parameters.reserve", text, MAX_STRING_BYTES)?;
    let parsed: Option<u32> = match number(text) {
        (digits, "%") => digits.parse().ok(),
        _ => None,
    };
    let parsed = parsed.filter(|percent| (1..=MAX_PERCENT).contains(percent));
    parsed.ok_or_else(|| InvalidRequest::BadSnapshotParameter {
        key: names::PARAM_SNAPSHOT_RESERVE,
        value: text.to_owned(),
        reason: "write a share of the volume's size in whole percent, from 1% to 100%",
    })
}

/// "1GiB".
fn size(key: &'static str, text: &str) -> Result<u64, InvalidRequest> {
    validate::text("parameters", text, MAX_STRING_BYTES)?;
    let (digits, unit) = number(text);
    let unit = UNITS.iter().find(|(name, _)| *name == unit.trim_start());
    let bytes = unit.and_then(|(_, factor)| digits.parse::<u64>().ok()?.checked_mul(*factor));
    let bytes = bytes.filter(|bytes| *bytes > 0);
    bytes.ok_or_else(|| InvalidRequest::BadSnapshotParameter {
        key,
        value: text.to_owned(),
        reason: "write a whole number above 0 and its unit, like 1GiB (binary) or 1GB (decimal)",
    })
}

impl TryFrom<csi::CreateSnapshotRequest> for NewSnapshot {
    type Error = InvalidRequest;

    /// Its `accessibility_requirements` are not looked at.
    fn try_from(request: csi::CreateSnapshotRequest) -> Result<Self, InvalidRequest> {
        validate::volume_name(&request.name)?;
        validate::required("source_volume_id", &request.source_volume_id)?;
        let reserve = Reserve::try_from(&request.parameters)?;
        Ok(Self {
            name: request.name,
            volume_id: request.source_volume_id,
            reserve,
        })
    }
}

impl NewSnapshot {
    /// The agent's request for this snapshot, of the volume that the agent knows by this id.
    pub fn agent_request(&self, volume_id: &str) -> agent::CreateSnapshotRequest {
        agent::CreateSnapshotRequest {
            name: self.name.clone(),
            volume_id: volume_id.to_owned(),
            reserve_percent: self.reserve.percent,
            least_reserve_bytes: self.reserve.least,
            most_reserve_bytes: self.reserve.most.unwrap_or(0),
        }
    }
}

impl TryFrom<agent::CreateSnapshotRequest> for NewSnapshot {
    type Error = InvalidField;

    fn try_from(request: agent::CreateSnapshotRequest) -> Result<Self, InvalidField> {
        let invalid = |field, why| Err(InvalidField { field, why });
        agent_name(&request.name)?;
        if request.volume_id.is_empty() {
            return invalid("volume_id", "is missing".to_owned());
        }
        let percent = match request.reserve_percent {
            0 => names::DEFAULT_RESERVE_PERCENT,
            percent if percent <= MAX_PERCENT => percent,
            percent => {
                let why = format!("must be at most {MAX_PERCENT}, got {percent}");
                return invalid("reserve_percent", why);
            }
        };
        let (least, most) = (request.least_reserve_bytes, request.most_reserve_bytes);
        if most != 0 && most < least {
            let why = format!(
                "{} is less than least_reserve_bytes {}",
                size_beside(most, least),
                size_beside(least, most)
            );
            return invalid("most_reserve_bytes", why);
        }
        Ok(Self {
            name: request.name,
            volume_id: request.volume_id,
            reserve: Reserve {
                percent,
                least,
                most: (most != 0).then_some(most),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(parameters: &[(&str, &str)]) -> csi::CreateSnapshotRequest {
        let parameters = parameters
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        csi::CreateSnapshotRequest {
            name: "snapshot-1".into(),
            source_volume_id: "v@n".into(),
            parameters: parameters.collect(),
            ..csi::CreateSnapshotRequest::default()
        }
    }

    #[test]
    fn an_agent_parses_from_the_controllers_request_what_the_controller_parsed() {
        for (parameters, percent, least, most) in [
            (&[("mostReserve", "2GB")][..], 20, 0, Some(2_000_000_000)),
            (&[], 20, 0, None),
            (
                &[("reserve", "100%"), ("leastReserve", "1 GiB")],
                100,
                1 << 30,
                None,
            ),
            (
                &[
                    ("reserve", "1%"),
                    ("leastReserve", "64MiB"),
                    ("mostReserve", "64MiB"),
                    ("csi.storage.k8s.io/volumesnapshot/name", "s"),
                    ("csi.storage.k8s.io/volumesnapshot/namespace", "n"),
                    ("csi.storage.k8s.io/volumesnapshotcontent/name", "c"),
                ],
                1,
                64 << 20,
                Some(64 << 20),
            ),
        ] {
            let requested = NewSnapshot::try_from(request(parameters)).unwrap();
            let reserve = Reserve {
                percent,
                least,
                most,
            };
            assert_eq!(requested.reserve, reserve, "{parameters:?}");
            let wire = requested.agent_request(&requested.volume_id);
            assert_eq!(NewSnapshot::try_from(wire), Ok(requested));
        }
    }

    #[test]
    fn a_parameter_that_is_unknown_or_cannot_be_used_is_refused_with_what_to_write() {
        for (parameters, text) in [
            (&[("reserve", "0%")][..], "from 1% to 100%"),
            (&[("reserve", "101%")], "from 1% to 100%"),
            (&[("reserve", "20")], "from 1% to 100%"),
            (&[("reserve", "+20%")], "from 1% to 100%"),
            (&[("reserve", "2.5%")], "from 1% to 100%"),
            (&[("reserve", "%")], "from 1% to 100%"),
            (&[("reserve", "")], "from 1% to 100%"),
            (&[("leastReserve", "1G")], "like 1GiB"),
            (&[("leastReserve", "1024")], "like 1GiB"),
            (&[("leastReserve", "0GiB")], "like 1GiB"),
            (&[("mostReserve", "GiB")], "like 1GiB"),
            (&[("mostReserve", "99999PiB")], "like 1GiB"),
            (&[("mostReserve", "-1GiB")], "like 1GiB"),
            (
                &[("leastReserve", "2GiB"), ("mostReserve", "1GiB")],
                "mostReserve 1 GiB is less than leastReserve 2 GiB",
            ),
            (
                &[("Reserve", "20%")],
                "\"Reserve\" is not known; the parameters are reserve, leastReserve, mostReserve",
            ),
            (&[("byHand", "true")], "\"byHand\" is not known"),
        ] {
            let refused = NewSnapshot::try_from(request(parameters)).unwrap_err();
            let refused = refused.to_string();
            assert!(refused.contains(text), "{refused}");
            assert!(refused.contains("VolumeSnapshotClass"), "{refused}");
        }
    }

    #[test]
    fn a_name_and_a_volume_are_required() {
        let edited = |edit: fn(&mut csi::CreateSnapshotRequest)| {
            let mut request = request(&[]);
            edit(&mut request);
            NewSnapshot::try_from(request).unwrap_err()
        };
        let missing = |field| InvalidRequest::Missing { field };
        assert_eq!(edited(|r| r.name.clear()), missing("name"));
        let no_volume = edited(|r| r.source_volume_id.clear());
        assert_eq!(no_volume, missing("source_volume_id"));
        let long = edited(|r| r.name = "x".repeat(129));
        assert!(matches!(long, InvalidRequest::TooLong { .. }));
    }

    #[test]
    fn an_agent_refuses_a_field_in_the_words_of_its_own_protocol() {
        type Change = fn(&mut agent::CreateSnapshotRequest);
        let rows: [(&str, Change); 5] = [
            ("name: must have 1 to 128 bytes", |r| r.name.clear()),
            ("name: holds control characters", |r| r.name = "a\nb".into()),
            ("volume_id: is missing", |r| r.volume_id.clear()),
            ("reserve_percent: must be at most 100, got 101", |r| {
                r.reserve_percent = 101;
            }),
            (
                "most_reserve_bytes: 1 B is less than least_reserve_bytes 2 B",
                |r| (r.least_reserve_bytes, r.most_reserve_bytes) = (2, 1),
            ),
        ];
        let good = agent::CreateSnapshotRequest {
            name: "s".into(),
            volume_id: "v".into(),
            ..agent::CreateSnapshotRequest::default()
        };
        let parsed = NewSnapshot::try_from(good.clone());
        assert_eq!(parsed.map(|parsed| parsed.reserve), Ok(Reserve::default()));
        for (text, change) in rows {
            let mut request = good.clone();
            change(&mut request);
            let refused = NewSnapshot::try_from(request).unwrap_err();
            assert_eq!(refused.to_string(), text);
        }
    }
}
