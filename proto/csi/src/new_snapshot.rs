//! A CreateSnapshot request, parsed once: by the controller from CSI's message, by an agent from the controller's. Its parameters are
//! those of a group snapshot as well. Pure.

use std::collections::{BTreeMap, HashMap};

use drivebay_common::{durations::parse_duration, sizes::parse_size, units::size_beside};
use drivebay_proto::{agent, csi, names};

use crate::{
    new_volume::{InvalidField, agent_name},
    validate::{self, InvalidRequest, MAX_STRING_BYTES},
};

/// The largest share of a volume's size that its snapshot's reserve can be, in hundredths.
const MAX_PERCENT: u32 = 100;
/// The shortest age limit, seconds.
const LEAST_MAX_AGE: u64 = 60;

/// A snapshot to be created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSnapshot {
    pub name: String,
    /// The volume that it is of. Any text: one that Drivebay never gave out is of no volume.
    pub volume_id: String,
    pub reserve: Reserve,
    /// Age at which it is deleted, seconds, at least 60; None: never.
    pub max_age: Option<u64>,
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

/// The parameters of a VolumeSnapshotClass or VolumeGroupSnapshotClass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Parameters {
    pub(crate) reserve: Reserve,
    /// Age at which a snapshot is deleted, seconds, at least 60; None: never. Default: [`names::DEFAULT_SNAPSHOT_MAX_AGE`].
    pub(crate) max_age: Option<u64>,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            reserve: Reserve::default(),
            max_age: Some(names::DEFAULT_SNAPSHOT_MAX_AGE),
        }
    }
}

impl TryFrom<&HashMap<String, String>> for Parameters {
    type Error = InvalidRequest;

    /// Reads a class's parameters; an unknown one is an error, so that a typing mistake is not a default.
    fn try_from(parameters: &HashMap<String, String>) -> Result<Self, InvalidRequest> {
        validate::map_size("parameters", parameters)?;
        let mut parsed = Self::default();
        let reserve = &mut parsed.reserve;
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
                names::PARAM_SNAPSHOT_MAX_AGE => parsed.max_age = max_age(value)?,
                name if names::SNAPSHOT_METADATA.contains(&name) => {}
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
            _ => Ok(parsed),
        }
    }
}

impl Parameters {
    /// Parses the fields of the agent's requests. A percentage of 0, an upper bound of 0 and an absent age limit stand for the defaults.
    pub(crate) fn from_agent(
        reserve_percent: u32,
        least: u64,
        most: u64,
        max_age_seconds: Option<u64>,
    ) -> Result<Self, InvalidField> {
        let invalid = |field, why| Err(InvalidField { field, why });
        let percent = match reserve_percent {
            0 => names::DEFAULT_RESERVE_PERCENT,
            percent if percent <= MAX_PERCENT => percent,
            percent => {
                let why = format!("must be at most {MAX_PERCENT}, got {percent}");
                return invalid("reserve_percent", why);
            }
        };
        if most != 0 && most < least {
            let why = format!(
                "{} is less than least_reserve_bytes {}",
                size_beside(most, least),
                size_beside(least, most)
            );
            return invalid("most_reserve_bytes", why);
        }
        let max_age = match max_age_seconds {
            None => Self::default().max_age,
            Some(0) => None,
            Some(age @ LEAST_MAX_AGE..) => Some(age),
            Some(age) => {
                let why = format!("must be 0 (never) or at least {LEAST_MAX_AGE}, got {age}");
                return invalid("max_age_seconds", why);
            }
        };
        Ok(Self {
            reserve: Reserve {
                percent,
                least,
                most: (most != 0).then_some(most),
            },
            max_age,
        })
    }
}

/// Parses an age limit to whole seconds: a duration of at least a minute ("36h", "7d"), or "none", which is None.
///
/// # Errors
/// Anything else; the text gives the accepted forms.
pub fn parse_max_age(text: &str) -> Result<Option<u64>, &'static str> {
    if text == "none" {
        return Ok(None);
    }
    let age = parse_duration(text).ok().map(|age| age.as_secs());
    let age = age.filter(|age| *age >= LEAST_MAX_AGE);
    age.map(Some).ok_or(
        "write a duration of at least 1 minute, like 36h or 7d, or none to keep snapshots until they are deleted",
    )
}

fn bad(key: &'static str, value: &str, reason: &'static str) -> InvalidRequest {
    InvalidRequest::BadSnapshotParameter {
        key,
        value: value.to_owned(),
        reason,
    }
}

/// Parses the parameter `maxAge`, for example "7d".
fn max_age(text: &str) -> Result<Option<u64>, InvalidRequest> {
    validate::text("parameters.maxAge", text, MAX_STRING_BYTES)?;
    parse_max_age(text).map_err(|reason| bad(names::PARAM_SNAPSHOT_MAX_AGE, text, reason))
}

/// Parses the parameter `reserve`, for example "20%": whole percent of the volume's size, 1 to 100.
fn percent(text: &str) -> Result<u32, InvalidRequest> {
    validate::text("parameters.reserve", text, MAX_STRING_BYTES)?;
    let digits = text.strip_suffix('%');
    // A sign would parse.
    let digits = digits.filter(|digits| digits.starts_with(|c: char| c.is_ascii_digit()));
    let parsed: Option<u32> = digits.and_then(|digits| digits.parse().ok());
    let parsed = parsed.filter(|percent| (1..=MAX_PERCENT).contains(percent));
    parsed.ok_or_else(|| {
        let reason = "write a share of the volume's size in whole percent, from 1% to 100%";
        bad(names::PARAM_SNAPSHOT_RESERVE, text, reason)
    })
}

/// Parses the value of the parameter `key`, for example "1GiB", to bytes. Errs for 0 and for what [`parse_size`] refuses.
fn size(key: &'static str, text: &str) -> Result<u64, InvalidRequest> {
    validate::text("parameters", text, MAX_STRING_BYTES)?;
    let bytes = parse_size(text).ok().filter(|bytes| *bytes > 0);
    bytes.ok_or_else(|| {
        let reason = "write a size above 0 with its unit, like 1GiB (binary) or 1GB (decimal)";
        bad(key, text, reason)
    })
}

impl TryFrom<csi::CreateSnapshotRequest> for NewSnapshot {
    type Error = InvalidRequest;

    /// Ignores `accessibility_requirements`, which the caller must compare with the node of the volume.
    fn try_from(request: csi::CreateSnapshotRequest) -> Result<Self, InvalidRequest> {
        validate::volume_name(&request.name)?;
        validate::required("source_volume_id", &request.source_volume_id)?;
        let Parameters { reserve, max_age } = Parameters::try_from(&request.parameters)?;
        Ok(Self {
            name: request.name,
            volume_id: request.source_volume_id,
            reserve,
            max_age,
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
            max_age_seconds: Some(self.max_age.unwrap_or(0)),
        }
    }
}

impl TryFrom<agent::CreateSnapshotRequest> for NewSnapshot {
    type Error = InvalidField;

    fn try_from(request: agent::CreateSnapshotRequest) -> Result<Self, InvalidField> {
        agent_name(&request.name)?;
        if request.volume_id.is_empty() {
            return Err(InvalidField {
                field: "volume_id",
                why: "is missing".to_owned(),
            });
        }
        let Parameters { reserve, max_age } = Parameters::from_agent(
            request.reserve_percent,
            request.least_reserve_bytes,
            request.most_reserve_bytes,
            request.max_age_seconds,
        )?;
        Ok(Self {
            name: request.name,
            volume_id: request.volume_id,
            reserve,
            max_age,
        })
    }
}

#[cfg(test)]
#[path = "new_snapshot_tests.rs"]
mod tests;
