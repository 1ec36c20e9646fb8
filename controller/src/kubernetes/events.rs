//! Creates the Kubernetes events that are due, a few at a time.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use drivebay_proto::{VolumeId, agent::Drive};
use k8s_openapi::{
    api::{core::v1::ObjectReference, events::v1::Event},
    apimachinery::pkg::apis::meta::v1::MicroTime,
    jiff::Timestamp,
};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{
    copies::{self, Shared},
    notices::{Claimed, Notice, Object, due},
    snapshots::AgeLimits,
};
use drivebay_service::{
    agents::{Agent, Agents},
    catalog::{Catalog, Key, Node},
    inventory::Inventory,
    peer_log::printable,
};
use drivebay_view::{drives::in_trouble, unix_seconds};

/// Time between two passes over all nodes.
const EVERY: Duration = Duration::from_secs(30);
/// Largest number of events created in one pass. The rest are created in later ones.
const MAX_AT_ONCE: usize = 50;
/// The same for one node, and for volumes on two nodes, so that no node delays the others.
const MAX_OF_NODE: usize = 10;
/// Time limit of a call to the API server. An event that is late is created again in the next pass.
const DEADLINE: Duration = Duration::from_secs(10);
/// Namespace of the events of Nodes, which have none of their own.
const NODE_NAMESPACE: &str = "default";
/// Snapshots read under one lock of the catalog; updates can happen in between.
const PAGE: usize = 1024;

/// State kept between passes.
#[derive(Debug, Default)]
struct Kept {
    // Digests of the due events that were created, or that the API server refused for their contents.
    reported: BTreeSet<String>,
    limits: BTreeMap<Node, AgeLimits>,
}

/// Creates the events that are due once per interval, until `stop`. Waits until the expected volumes were listed.
pub async fn report_events(
    client: Client,
    driver: String,
    agents: Agents,
    stop: CancellationToken,
) {
    let reporting = async {
        let mut kept = Kept::default();
        loop {
            tokio::time::sleep(EVERY).await;
            // Whose claims they are is not known before.
            if agents.expected().complete() {
                report_once(&client, &driver, &agents, &mut kept).await;
            }
        }
    };
    stop.run_until_cancelled(reporting).await;
}

async fn report_once(client: &Client, driver: &str, agents: &Agents, kept: &mut Kept) {
    let Kept { reported, limits } = kept;
    for one in limits.values_mut() {
        one.forget(reported);
    }
    let mut by_node = with_snapshots(agents.catalog());
    let (mut due, mut new) = (BTreeSet::new(), Vec::new());
    let mut add = |notices: Vec<Notice>| {
        due.extend(notices.iter().map(|notice| notice.digest.clone()));
        let unreported = |notice: &Notice| !reported.contains(&notice.digest);
        new.extend(notices.into_iter().filter(unreported).take(MAX_OF_NODE));
    };
    add(copies::due(&shared(agents)));
    for agent in agents.all() {
        let with_snapshots = by_node.remove(&agent.node_id()).unwrap_or_default();
        add(of_node(agents, &agent, with_snapshots, limits));
        tokio::task::yield_now().await;
    }
    reported.retain(|digest| due.contains(digest));
    for notice in new.into_iter().take(MAX_AT_ONCE) {
        let made = tokio::time::timeout(DEADLINE, make(client, driver, &notice)).await;
        let (error, goes_on) = match made {
            Ok(Ok(())) => {
                reported.insert(notice.digest);
                continue;
            }
            Ok(Err(error)) => {
                // It will not take this one later, either; what it does not let us do may be allowed later.
                let refused = is_refused(&error);
                if refused {
                    reported.insert(notice.digest);
                }
                (printable(&error.to_string()), refused)
            }
            Err(_) => (format!("no answer within {} s", DEADLINE.as_secs()), false),
        };
        if agents.peer_log().allows("API server", "events") {
            tracing::warn!(reason = notice.reason, %error, "cannot create a Kubernetes event");
        }
        if !goes_on {
            return;
        }
    }
}

/// Returns the volumes that have snapshots which exist for CSI, by node.
fn with_snapshots(catalog: &Catalog) -> BTreeMap<Node, BTreeSet<Uuid>> {
    let mut all: BTreeMap<Node, BTreeSet<Uuid>> = BTreeMap::new();
    let mut last = None;
    loop {
        let page = catalog.snapshots_after(last.as_ref(), PAGE);
        for Key { uuid, node } in page.iter().map(|place| &place.volume) {
            all.entry(node.clone()).or_default().insert(*uuid);
        }
        match page.last() {
            Some(place) if page.len() == PAGE => last = Some(place.key.clone()),
            _ => return all,
        }
    }
}

/// Returns the volumes on two nodes, with the PersistentVolumes that name one of the copies.
fn shared(agents: &Agents) -> Vec<Shared> {
    let volumes = agents.shared_volumes().into_iter();
    let with_expected = volumes.map(|volume| Shared {
        expected: agents.expected_copies(&volume),
        volume,
    });
    with_expected.collect()
}

/// Returns the events that are due for one node; none unless its agent is connected and has scanned every drive. `with_snapshots`:
/// its volumes that have snapshots.
fn of_node(
    agents: &Agents,
    agent: &Agent,
    with_snapshots: BTreeSet<Uuid>,
    limits: &mut BTreeMap<Node, AgeLimits>,
) -> Vec<Notice> {
    // The last report of a disconnected agent is old; CSI reports `NodeUnreachable` of each of its volumes.
    if !agent.read_inventory(Inventory::complete) {
        // Nothing is listed for a forgotten node.
        if !agent.read_inventory(Inventory::listed) {
            limits.remove(&agent.node_id());
        }
        return Vec::new();
    }
    let limits = limits.entry(agent.node_id()).or_default();
    let (drives, mut uuids) = agent.read_inventory(|inventory| {
        let moves = inventory.with_moves();
        // The event of a move names both drives, also if they are GOOD.
        let is_named = |drive: &Drive| !moves.is_empty() || in_trouble(drive);
        let drives: Vec<Drive> = inventory.drives().filter(is_named).collect();
        let is_any_due = drives.iter().any(in_trouble) || inventory.has_deleted();
        let uuids = match is_any_due {
            true => inventory.volumes(),
            false => moves,
        };
        (drives, uuids)
    });
    uuids.extend(with_snapshots);
    uuids.extend(limits.volumes());
    let volumes: Vec<Claimed> = uuids
        .into_iter()
        .filter_map(|uuid| {
            let volume = agents.catalog().get(&Key {
                uuid,
                node: agent.node_id(),
            })?;
            let id = VolumeId {
                uuid,
                node: agent.node().to_owned(),
            };
            let claim = agents
                .expected()
                .volume(&id)
                .and_then(|pv| pv.claim.clone());
            Some(Claimed { volume, claim })
        })
        .collect();
    limits.follow(agent.node(), &volumes, unix_seconds());
    let mut notices = due(agent.node(), &drives, &volumes);
    notices.extend_from_slice(limits.due());
    notices
}

async fn make(client: &Client, driver: &str, notice: &Notice) -> Result<(), kube::Error> {
    let (namespace, name, regarding) = match &notice.object {
        Object::Node(node) => {
            let regarding = ObjectReference {
                api_version: Some("v1".into()),
                kind: Some("Node".into()),
                name: Some(node.clone()),
                // As the kubelet's events have it, which `kubectl describe node` looks for.
                uid: Some(node.clone()),
                ..ObjectReference::default()
            };
            (NODE_NAMESPACE, node.as_str(), regarding)
        }
        Object::Claim(claim) => {
            let Some((namespace, name)) = claim.name.split_once('/') else {
                return Ok(());
            };
            let regarding = ObjectReference {
                api_version: Some("v1".into()),
                kind: Some("PersistentVolumeClaim".into()),
                namespace: Some(namespace.to_owned()),
                name: Some(name.to_owned()),
                uid: Some(claim.uid.to_string()),
                ..ObjectReference::default()
            };
            (namespace, name, regarding)
        }
    };
    let type_ = match notice.is_warning {
        true => "Warning",
        false => "Normal",
    };
    // A name has 253 characters at most.
    let short = &name[..name.floor_char_boundary(200)];
    let event = Event {
        metadata: ObjectMeta {
            name: Some(format!(
                "{}.{}",
                short.trim_end_matches(['.', '-']),
                notice.digest
            )),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        action: Some("Report".into()),
        event_time: Some(MicroTime(Timestamp::now())),
        note: Some(notice.note.clone()),
        reason: Some(notice.reason.into()),
        regarding: Some(regarding),
        reporting_controller: Some(driver.to_owned()),
        reporting_instance: Some("drivebay-controller".into()),
        type_: Some(type_.into()),
        ..Event::default()
    };
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    match events.create(&PostParams::default(), &event).await {
        // Created already, by another controller or by this one before its restart; or the namespace is being deleted.
        Err(kube::Error::Api(status)) if is_reported_or_gone(&status) => Ok(()),
        made => made.map(drop),
    }
}

fn is_reported_or_gone(status: &kube::core::Status) -> bool {
    match status.code {
        404 | 409 => true,
        // A namespace that is being deleted takes no event, and says so as if it were forbidden.
        403 => status.message.contains("being terminated"),
        _ => false,
    }
}

// Because of what is in it, and not of who asks, or of when.
fn is_refused(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 400 | 422))
}
