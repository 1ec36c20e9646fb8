//! Input from agents: inventory updates and identity. The peer may be an agent of another version, or no agent at all.

use drivebay_proto::agent::InventoryUpdate;
use prost::Message;
use tokio::sync::watch;

use super::{Target, recorded, seeds};
use crate::tls;
use drivebay_csi::health::{Whereabouts, entries, legacy};
use drivebay_service::{
    agents::{Agents, ForgottenNodes},
    catalog::Catalog,
    inventory::Inventory,
    notes::Notes,
    page,
};

const KNOWN: &[u8] = include_bytes!("seeds/golden0.known");
const NODE: &str = "golden0";

pub(super) fn targets() -> Vec<Target> {
    vec![
        Target {
            name: "inventory",
            run: inventory,
            seeds: updates,
            replays: 300,
        },
        Target {
            name: "certificates",
            run: certificate,
            seeds: || seeds([include_bytes!("node.der")]),
            replays: 1000,
        },
        Target {
            name: "page-tokens",
            run: token,
            seeds: || {
                seeds([
                    "after:a18c6218-0908-4fae-a836-f09eda5e3990@n1",
                    "after:",
                    "a18c6218-0908-4fae-a836-f09eda5e3990@n1",
                ])
            },
            replays: 2000,
        },
    ]
}

/// Concatenates updates, each preceded by its length (two bytes, little-endian).
fn updates() -> Vec<Vec<u8>> {
    let messages = recorded("WatchInventory response ");
    let framed = |update: &Vec<u8>| [&(update.len() as u16).to_le_bytes()[..], update].concat();
    let mut seeds: Vec<Vec<u8>> = messages.iter().map(framed).collect();
    seeds.push(messages.iter().flat_map(framed).collect());
    seeds
}

pub(super) fn split(data: &[u8]) -> Vec<InventoryUpdate> {
    let mut rest = data;
    let mut updates = Vec::new();
    while let Some((len, body)) = rest.split_first_chunk::<2>() {
        let len = usize::from(u16::from_le_bytes(*len)).min(body.len());
        let (update, after) = body.split_at(len);
        updates.extend(InventoryUpdate::decode(update));
        rest = after;
    }
    updates
}

/// The catalog contains exactly the inventory's volumes, and drops them with it; a snapshot of the inventory has the same contents.
fn inventory(data: &[u8]) {
    let catalog = Catalog::default();
    let mut inventory = Inventory::new(NODE.into());
    for update in split(data) {
        let volumes = inventory.volumes();
        if inventory.apply(update, &catalog).is_err() {
            assert_eq!(
                inventory.volumes(),
                volumes,
                "a refused update changes nothing"
            );
        }
        assert_eq!(inventory.volumes().len(), catalog.len());
        if let Some(dump) = inventory.dump(&catalog) {
            for volume in &dump.volumes {
                let health = entries(volume, Whereabouts::Here);
                let _ = legacy(&health);
            }
            let other = Catalog::default();
            let mut again = Inventory::new(NODE.into());
            again.apply(dump.clone(), &other).unwrap();
            assert_eq!(again.dump(&other), Some(dump));
        }
    }
    inventory.clear(&catalog);
    assert!(catalog.is_empty(), "volumes of a node that is gone");
}

/// Returns agents with one node, whose inventory is the input.
pub(super) fn with_node(
    update: Option<InventoryUpdate>,
) -> (watch::Sender<ForgottenNodes>, Agents) {
    let (keep, forgotten_nodes) = watch::channel(ForgottenNodes::new());
    let agents = Agents::new(forgotten_nodes, Notes::in_memory());
    let facts = drivebay_service::agents::Facts {
        node: NODE.to_owned(),
        identity: None,
        instance: "i".to_owned(),
        machine_id: String::new(),
        version: String::new(),
        address: String::new(),
        copies: false,
    };
    if let Some(update) = update {
        let _ = agents.recall(facts, update);
    }
    (keep, agents)
}

pub(super) fn golden() -> InventoryUpdate {
    let last_known = drivebay_proto::controller::LastKnown::decode(KNOWN).unwrap();
    last_known.inventory.unwrap()
}

/// An accepted certificate contains its node id verbatim, and the id is valid.
fn certificate(data: &[u8]) {
    let certificate = rustls::pki_types::CertificateDer::from(data);
    if let Ok(node) = tls::node_id(&certificate) {
        assert!(drivebay_proto::volume_id::is_node_id(&node), "{node:?}");
        assert!(data.windows(node.len()).any(|part| part == node.as_bytes()));
    }
    if let Ok(validity) = tls::validity(&certificate) {
        assert_eq!(tls::expires(&certificate), Ok(validity.until));
    }
}

fn token(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(Some(id)) = page::parse_token(&text) {
        assert_eq!(format!("after:{id}"), text);
    }
}
