//! JSON of the fleet and its changes, with the claims that a reader may see. Pure.

use hyper::body::Bytes;
use serde::Serialize;

use crate::{
    access::Visibility,
    live::{Change, Fleet},
    model::{Drive, DriveFacts, Node},
};

#[derive(Serialize)]
struct DriveJson<'a> {
    #[serde(flatten)]
    facts: &'a DriveFacts,
    findings: &'a [String],
    volumes: u64,
    claims: Vec<&'a str>,
}

fn drive<'a>(drive: &'a Drive, visibility: &Visibility) -> DriveJson<'a> {
    let claims = drive.claims.iter().map(|claim| &**claim);
    DriveJson {
        facts: &drive.facts,
        findings: &drive.findings,
        volumes: drive.volumes,
        claims: claims.filter(|claim| visibility.shows(claim)).collect(),
    }
}

// The duration at this moment.
fn node(node: &Node, now: u64) -> Node {
    Node {
        away_seconds: node.away_since.map(|since| now.saturating_sub(since)),
        ..node.clone()
    }
}

#[derive(Serialize)]
struct FleetJson<'a> {
    revision: u64,
    at: u64,
    nodes: Vec<Node>,
    drives: Vec<DriveJson<'a>>,
}

pub(crate) fn fleet(fleet: &Fleet, visibility: &Visibility) -> Bytes {
    let drives = fleet.nodes.values().flat_map(|entry| &entry.drives);
    let json = FleetJson {
        revision: fleet.revision,
        at: fleet.at,
        nodes: (fleet.nodes.values())
            .map(|entry| node(&entry.node, fleet.at))
            .collect(),
        drives: drives.map(|one| drive(one, visibility)).collect(),
    };
    self::json(&json)
}

#[derive(Serialize)]
struct RemovedJson<'a> {
    node: &'a str,
    id: &'a str,
}

#[derive(Serialize)]
struct ChangeJson<'a> {
    revision: u64,
    nodes: Vec<Node>,
    drives: Vec<DriveJson<'a>>,
    removed: Vec<RemovedJson<'a>>,
}

pub(crate) fn change(change: &Change, visibility: &Visibility) -> Bytes {
    let now = drivebay_view::unix_seconds();
    let removed = change.removed.iter();
    let json = ChangeJson {
        revision: change.revision,
        nodes: change.nodes.iter().map(|one| node(one, now)).collect(),
        drives: change
            .drives
            .iter()
            .map(|one| drive(one, visibility))
            .collect(),
        removed: removed.map(|(node, id)| RemovedJson { node, id }).collect(),
    };
    event("change", &self::json(&json))
}

/// Returns an event of `text/event-stream`. JSON has no line breaks outside of strings, and escapes those in them.
pub(crate) fn event(name: &str, data: &[u8]) -> Bytes {
    let mut text = Vec::with_capacity(data.len() + name.len() + 16);
    text.extend_from_slice(b"event: ");
    text.extend_from_slice(name.as_bytes());
    text.extend_from_slice(b"\ndata: ");
    text.extend_from_slice(data);
    text.extend_from_slice(b"\n\n");
    text.into()
}

/// Returns the value as JSON. Its types serialize without errors: their maps have text keys, and no float of theirs is refused.
pub(crate) fn json(value: &impl Serialize) -> Bytes {
    serde_json::to_vec(value).unwrap_or_default().into()
}

/// Leaves out what the reader may not see.
pub(crate) fn claims(claims: &mut Vec<String>, visibility: &Visibility) {
    claims.retain(|claim| visibility.shows(claim));
}
