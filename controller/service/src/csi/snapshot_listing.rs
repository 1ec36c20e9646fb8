//! ListSnapshots, page by page.

use drivebay_proto::{VolumeId, csi};
use prost::Message;
use tonic::Code;

use super::snapshots::{shown, shown_as};
use crate::{
    agents::{Agents, Found, LookupError, parse},
    catalog::{Key, is_answered},
    expected::EXPECTED,
    page::{MAX_ENTRIES, page},
};
use drivebay_csi::{status::HasCode, topology::TopologyKey};

/// One page of ListSnapshots, in the order of ids; `from`: after this one. What its filters name and is certainly not there is no
/// error; what may be there and is not known is one.
pub(super) fn list_snapshots(
    agents: &Agents,
    key: &TopologyKey,
    request: &csi::ListSnapshotsRequest,
    from: Option<&VolumeId>,
    max_entries: Option<usize>,
) -> Result<csi::ListSnapshotsResponse, LookupError> {
    let (id, volume) = (&request.snapshot_id, &request.source_volume_id);
    let mut listed = match (id.is_empty(), volume.is_empty()) {
        (true, true) => after(agents, key, from),
        (true, false) => unless_absent(of_volume(agents, key, volume))?.unwrap_or_default(),
        (false, _) => {
            let found = unless_absent(agents.snapshot(id))?;
            let shown = found.map(|found| shown_as(id, found, key));
            let wanted = shown.filter(|one| volume.is_empty() || is_of(one, volume));
            wanted.into_iter().collect()
        }
    };
    let last = from.map(VolumeId::to_string).unwrap_or_default();
    listed.retain(|snapshot| snapshot.snapshot_id > last);
    let entries = listed
        .into_iter()
        .map(|snapshot| csi::list_snapshots_response::Entry {
            snapshot: Some(snapshot),
        });
    let id_of = |entry: &csi::list_snapshots_response::Entry| {
        let snapshot = entry.snapshot.as_ref();
        snapshot.map_or_else(String::new, |snapshot| snapshot.snapshot_id.clone())
    };
    let (entries, next_token) = page(entries, max_entries, Message::encoded_len, id_of);
    Ok(csi::ListSnapshotsResponse {
        entries,
        next_token,
    })
}

/// Those of all nodes after this one: as many as a page may need, and one more. Of a disconnected node as last reported.
fn after(agents: &Agents, key: &TopologyKey, from: Option<&VolumeId>) -> Vec<csi::Snapshot> {
    let from = from.map(Key::from);
    let places = agents
        .catalog()
        .snapshots_after(from.as_ref(), MAX_ENTRIES + 1);
    let all = places.into_iter().filter_map(|place| {
        let snapshot = place.snapshot()?;
        let volume = place.volume.id_text();
        Some(shown(snapshot, volume, &place.key.node, key))
    });
    all.collect()
}

/// Those of this volume, by id. The caller knows the volume by the id it asked for.
fn of_volume(
    agents: &Agents,
    key: &TopologyKey,
    id: &str,
) -> Result<Vec<csi::Snapshot>, LookupError> {
    let Found { agent, volume, .. } = agents.volume_of_csi(id)?;
    if volume.state == EXPECTED {
        // Nobody but an orchestrator has said that it exists, so its snapshots are not known.
        let node = agent.node().to_owned();
        return Err(LookupError::NodeNeverSeen { node });
    }
    let snapshots = volume.snapshots.into_iter().filter(is_answered);
    let shown = snapshots.map(|snapshot| shown(snapshot, id.to_owned(), agent.node(), key));
    let mut all: Vec<csi::Snapshot> = shown.collect();
    all.sort_unstable_by(|one, other| one.snapshot_id.cmp(&other.snapshot_id));
    Ok(all)
}

/// Whether the snapshot is of the volume of this id, on whatever node both are.
fn is_of(snapshot: &csi::Snapshot, volume: &str) -> bool {
    let wanted = parse(volume);
    wanted.is_ok_and(|wanted| {
        parse(&snapshot.source_volume_id).is_ok_and(|volume| volume.uuid == wanted.uuid)
    })
}

/// None: it does not exist, for certain.
fn unless_absent<T>(found: Result<T, LookupError>) -> Result<Option<T>, LookupError> {
    match found {
        Err(error) if error.code() == Code::NotFound => Ok(None),
        found => found.map(Some),
    }
}

#[cfg(test)]
#[path = "snapshot_listing_tests.rs"]
mod tests;
