//! Tells the events that are due, a few at a time.

use std::{collections::BTreeSet, time::Duration};

use drivebay_proto::VolumeId;
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
use crate::{
    agents::{Agent, Agents},
    catalog::Key,
    cli::drives::in_trouble,
    inventory::Inventory,
    peer_log::printable,
};

/// Between two looks at all nodes.
const EVERY: Duration = Duration::from_secs(30);
/// Events made at each look. The rest are made at the next ones.
const MAX_AT_ONCE: usize = 50;
/// Where events of Nodes are, which have no namespace.
const NODE_NAMESPACE: &str = "default";

/// Tells what is due, until `stop`.
pub async fn tell(client: Client, driver: String, agents: Agents, stop: CancellationToken) {
    let mut told = BTreeSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
        // Whose claims they are is not known yet.
        if !agents.expected().complete() {
            continue;
        }
        let mut all = Vec::new();
        for agent in agents.all() {
            all.extend(of_node(&agents, &agent));
            tokio::task::yield_now().await;
        }
        told.retain(|digest| all.iter().any(|notice| notice.digest == *digest));
        let new = all
            .into_iter()
            .filter(|notice| !told.contains(&notice.digest));
        let new: Vec<Notice> = new.take(MAX_AT_ONCE).collect();
        for notice in new {
            match make(&client, &driver, &notice).await {
                Ok(()) => {
                    told.insert(notice.digest);
                }
                Err(error) => {
                    if agents.peer_log().allows("API server", "events") {
                        let error = printable(&error.to_string());
                        tracing::warn!(%error, "cannot create a Kubernetes event; will retry");
                    }
                    break;
                }
            }
        }
    }
}

fn of_node(agents: &Agents, agent: &Agent) -> Vec<Notice> {
    // What an absent agent said last is old; that it is absent is said of every volume.
    if !agent.look(Inventory::complete) {
        return Vec::new();
    }
    let (drives, uuids) = agent.look(|inventory| {
        let drives: Vec<_> = inventory
            .drives()
            .filter(|drive| in_trouble(drive))
            .cloned()
            .collect();
        let looked_at = !drives.is_empty() || inventory.has_deleted();
        let uuids = if looked_at {
            inventory.volumes()
        } else {
            BTreeSet::new()
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
        type_: Some("Warning".into()),
        ..Event::default()
    };
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    match events.create(&PostParams::default(), &event).await {
        // Told already, by another controller or by this one before it was started again; or the namespace is going.
        Err(kube::Error::Api(status))
            if matches!(status.code, 403 | 404 | 409) && !forbidden(&status) =>
        {
            Ok(())
        }
        made => made.map(drop),
    }
}

// A namespace that is being deleted takes no event, and says so with this code, too.
fn forbidden(status: &kube::core::Status) -> bool {
    status.code == 403 && !status.message.contains("being terminated")
}
