//! Tells the events that are due, a few at a time.

use std::{collections::BTreeSet, time::Duration};

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

use super::notices::{Claimed, Notice, Object, due};
use drivebay_service::{
    agents::{Agent, Agents},
    catalog::Key,
    inventory::Inventory,
    peer_log::printable,
};
use drivebay_view::drives::in_trouble;

/// Between two looks at all nodes.
const EVERY: Duration = Duration::from_secs(30);
/// Events made at each look. The rest are made at the next ones.
const MAX_AT_ONCE: usize = 50;
/// Of them, of one node: none keeps the others waiting.
const MAX_OF_NODE: usize = 10;
/// The API server answers within this, or is asked again at the next look.
const DEADLINE: Duration = Duration::from_secs(10);
/// Where events of Nodes are, which have no namespace.
const NODE_NAMESPACE: &str = "default";

/// Tells what is due, until `stop`.
pub async fn tell(client: Client, driver: String, agents: Agents, stop: CancellationToken) {
    let telling = async {
        let mut told = BTreeSet::new();
        loop {
            tokio::time::sleep(EVERY).await;
            // Whose claims they are is not known before.
            if agents.expected().complete() {
                tell_once(&client, &driver, &agents, &mut told).await;
            }
        }
    };
    stop.run_until_cancelled(telling).await;
}

async fn tell_once(client: &Client, driver: &str, agents: &Agents, told: &mut BTreeSet<String>) {
    let (mut due, mut new) = (BTreeSet::new(), Vec::new());
    for agent in agents.all() {
        let mut of_this = 0;
        for notice in of_node(agents, &agent) {
            due.insert(notice.digest.clone());
            if of_this < MAX_OF_NODE && !told.contains(&notice.digest) {
                of_this += 1;
                new.push(notice);
            }
        }
        tokio::task::yield_now().await;
    }
    told.retain(|digest| due.contains(digest));
    for notice in new.into_iter().take(MAX_AT_ONCE) {
        let made = tokio::time::timeout(DEADLINE, make(client, driver, &notice)).await;
        let (error, goes_on) = match made {
            Ok(Ok(())) => {
                told.insert(notice.digest);
                continue;
            }
            Ok(Err(error)) => {
                // It will not take this one later, either; what it does not let us do may be allowed later.
                let refused = is_refused(&error);
                if refused {
                    told.insert(notice.digest);
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

fn of_node(agents: &Agents, agent: &Agent) -> Vec<Notice> {
    // What an absent agent said last is old; that it is absent is said of every volume.
    if !agent.look(Inventory::complete) {
        return Vec::new();
    }
    let (drives, uuids) = agent.look(|inventory| {
        let moves = inventory.with_moves();
        // A move is told with both its drives, however well they are.
        let is_named = |drive: &Drive| !moves.is_empty() || in_trouble(drive);
        let drives: Vec<Drive> = inventory.drives().filter(is_named).collect();
        let is_any_told = drives.iter().any(in_trouble) || inventory.has_deleted();
        let uuids = match is_any_told {
            true => inventory.volumes(),
            false => moves,
        };
        (drives, uuids)
    });
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
    due(agent.node(), &drives, &volumes)
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
        // Told already, by another controller or by this one before it was started again; or the namespace is going.
        Err(kube::Error::Api(status)) if is_told_or_gone(&status) => Ok(()),
        made => made.map(drop),
    }
}

fn is_told_or_gone(status: &kube::core::Status) -> bool {
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
