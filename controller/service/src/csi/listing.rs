//! ListVolumes and ControllerListVolumeHealth, page by page.

use std::{collections::HashMap, ops::Range};

use drivebay_proto::{
    VolumeId,
    csi::{self, list_volumes_response},
    encoded,
};
use prost::{Message, bytes::Bytes};

use super::{
    attach::Attached,
    encode::Healthy,
    volumes::{status, volume, volume_health},
};
use crate::{
    agents::Agents,
    catalog::{Entry, Key, Marks, Node, is_read},
    page::{MAX_ENTRIES, page},
};
use drivebay_csi::{health::HealthApi, health::Whereabouts, topology::TopologyKey};

/// Bytes reserved for an entry; most take less.
const ENTRY: usize = 256;

/// A volume of a list. `now_on`: the node to which its drive was moved.
struct Listed {
    key: Key,
    entry: Entry,
    away: bool,
    now_on: Option<String>,
}

impl Listed {
    fn at(&self) -> Whereabouts<'_> {
        match &self.now_on {
            Some(now) => Whereabouts::Moved {
                from: &self.key.node,
                now,
            },
            None if self.away => Whereabouts::Away,
            None => Whereabouts::Here,
        }
    }

    /// Appends the encoded entry of ListVolumes.
    fn encode(&self, key: &TopologyKey, attached: &Attached, api: HealthApi, into: &mut Vec<u8>) {
        let node = &self.key.node;
        // A list of a million consists mostly of healthy volumes, of which only a few fields are decoded.
        if !self.entry.marks.troubled && !self.away {
            let (id, brief) = (self.key.id_text(), self.entry.brief());
            let healthy = Healthy {
                published: brief.published || attached.contains(&id),
                id: &id,
                node,
                class: &brief.class,
                size_bytes: brief.size_bytes,
                source_snapshot: &brief.source_snapshot,
                source_volume: &brief.source_volume,
                condition: api.legacy(),
            };
            return healthy.encode(key, into);
        }
        let shown = self.entry.decode(&self.key);
        let (published_node_ids, volume_condition) = status(&shown, node, self.at(), attached, api);
        let entry = list_volumes_response::Entry {
            volume: Some(volume(shown, node, key)),
            status: Some(list_volumes_response::VolumeStatus {
                published_node_ids,
                volume_condition,
            }),
        };
        entry.encode_raw(into);
    }
}

/// Returns the volumes of all nodes in the order of ids, after this one: one more than the largest page.
fn after(
    agents: &Agents,
    after: Option<&VolumeId>,
    mut keep: impl FnMut(Marks, bool) -> bool,
) -> Vec<Listed> {
    let after = after.map(Key::from);
    // Looked up once for each disconnected node, not for each of its volumes, since a page may skip all of them.
    let mut by_node: HashMap<Node, bool> = HashMap::new();
    let mut away = |key: &Key| {
        if key.node.is_connected() {
            return false;
        }
        *by_node.entry(key.node.clone()).or_insert_with(|| {
            let agent = agents.get(&key.node);
            agent.is_none_or(|agent| agent.unreachable())
        })
    };
    let entries = agents
        .catalog()
        .after(after.as_ref(), MAX_ENTRIES + 1, |key, marks| {
            marks.listed && keep(marks, away(key))
        });
    entries
        .into_iter()
        .map(|(key, entry)| {
            let away = away(&key);
            let is_unread = || entry.marks.troubled && !is_read(&entry.decode(&key));
            let moved = match away || is_unread() {
                true => agents.elsewhere(&key.id()),
                false => None,
            };
            Listed {
                away,
                now_on: moved.map(|(agent, _)| agent.node().to_owned()),
                key,
                entry,
            }
        })
        .collect()
}

/// Returns one page of ListVolumes, after `from`.
pub(super) fn list_volumes(
    agents: &Agents,
    key: &TopologyKey,
    attached: &Attached,
    api: HealthApi,
    from: Option<&VolumeId>,
    max_entries: Option<usize>,
) -> encoded::ListVolumesResponse {
    let listed = after(agents, from, |_, _| true);
    let expected = max_entries.unwrap_or(MAX_ENTRIES).min(listed.len());
    let mut buffer = Vec::with_capacity(ENTRY * expected);
    let entries = listed.into_iter().map(|listed| {
        let begin = buffer.len();
        listed.encode(key, attached, api, &mut buffer);
        (begin..buffer.len(), listed.key)
    });
    let (entries, next_token) = page(
        entries,
        max_entries,
        |(range, _): &(Range<usize>, Key)| range.len(),
        |(_, key)| key.id_text(),
    );
    let buffer = Bytes::from(buffer);
    let entries = entries.into_iter().map(|(range, _)| buffer.slice(range));
    encoded::ListVolumesResponse {
        entries: entries.collect(),
        next_token,
    }
}

/// Returns one page of ControllerListVolumeHealth, after `from`: only volumes with trouble or on unreachable nodes.
pub(super) fn list_health(
    agents: &Agents,
    from: Option<&VolumeId>,
    max_entries: Option<usize>,
) -> csi::ControllerListVolumeHealthResponse {
    let listed = after(agents, from, |marks, away| marks.troubled || away);
    let entries = listed.into_iter().map(|listed| {
        let volume = listed.entry.decode(&listed.key);
        volume_health(&volume, listed.at())
    });
    let (entries, next_token) = page(entries, max_entries, Message::encoded_len, |of| {
        of.volume_id.clone()
    });
    csi::ControllerListVolumeHealthResponse {
        entries,
        next_token,
    }
}

#[cfg(test)]
#[path = "listing_tests.rs"]
mod tests;
