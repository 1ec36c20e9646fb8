//! ListSnapshots, page by page.

use drivebay_proto::{VolumeId, csi};
use prost::Message;
use tonic::Code;

use super::snapshots::{shown, shown_as};
use crate::{
    agents::{Agents, LookupError, ReportedVolume, parse},
    catalog::{Key, is_answered},
    expected::EXPECTED,
    page::{MAX_ENTRIES, page},
};
use drivebay_csi::{status::HasCode, topology::TopologyKey};

/// Returns one page of ListSnapshots in the order of ids, after `from`. An id in the filters that certainly does not exist gives
/// an empty page; one whose existence is unknown is an error.
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
            let reported = unless_absent(agents.snapshot(id))?;
            let shown = reported.map(|reported| shown_as(id, reported, key));
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

/// Returns the snapshots of all nodes after this one: one more than the largest page. Those of a disconnected node are as last reported.
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

/// Returns the snapshots of this volume in the order of ids, with the requested id as their source.
fn of_volume(
    agents: &Agents,
    key: &TopologyKey,
    id: &str,
) -> Result<Vec<csi::Snapshot>, LookupError> {
    let ReportedVolume { agent, volume, .. } = agents.volume_of_csi(id)?;
    if volume.state == EXPECTED {
        // Known only from its PersistentVolume, so its snapshots are unknown.
        let node = agent.node().to_owned();
        return Err(LookupError::NodeNeverSeen { node });
    }
    if let Some(unknown) = LookupError::of_unread(&volume, agent.node()) {
        return Err(unknown);
    }
    let snapshots = volume.snapshots.into_iter().filter(is_answered);
    let shown = snapshots.map(|snapshot| shown(snapshot, id.to_owned(), agent.node(), key));
    let mut all: Vec<csi::Snapshot> = shown.collect();
    all.sort_unstable_by(|one, other| one.snapshot_id.cmp(&other.snapshot_id));
    Ok(all)
}

/// True if the snapshot is of the volume of this id, even if both have moved to another node.
fn is_of(snapshot: &csi::Snapshot, volume: &str) -> bool {
    let wanted = parse(volume);
    wanted.is_ok_and(|wanted| {
        parse(&snapshot.source_volume_id).is_ok_and(|volume| volume.uuid == wanted.uuid)
    })
}

/// Converts NOT_FOUND to None: the object certainly does not exist.
fn unless_absent<T>(result: Result<T, LookupError>) -> Result<Option<T>, LookupError> {
    match result {
        Err(error) if error.code() == Code::NotFound => Ok(None),
        result => result.map(Some),
    }
}

#[cfg(test)]
#[path = "snapshot_listing_tests.rs"]
mod tests;
