//! Follows the PersistentVolumes of this driver and the nodes on which the kubelet has registered its agent.
//!
//! Both are listed in pages, then watched. CSINodes are used instead of Nodes: they name the drivers of a node, and are deleted with it.

use std::{collections::BTreeSet, fmt::Debug, sync::Arc, time::Duration};

use drivebay_proto::VolumeId;
use k8s_openapi::api::{core::v1::PersistentVolume, storage::v1::CSINode};
use kube::{
    Api, Client, Resource,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event, watcher},
    },
};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio_stream::StreamExt;
use tokio_util::sync::CancellationToken;

use drivebay_service::{
    agents::Agents,
    expected::{ClaimedBy, ExpectedVolume},
    peer_log::printable,
};

/// Objects per page. Each page is dropped before the next one is requested.
const PAGE: u32 = 500;
/// Interval of listing expected volumes again: those of a node are needed again after `node remember`.
const REFRESH: Duration = Duration::from_secs(60);

/// The lists that were read whole.
#[derive(Debug, Clone, Copy, Default)]
struct Read {
    volumes: bool,
    nodes: bool,
}

/// Follows PersistentVolumes and CSINodes until `stop`. `complete` turns true when both lists were read whole.
pub async fn follow(
    client: Client,
    driver: String,
    agents: Agents,
    complete: watch::Sender<bool>,
    stop: CancellationToken,
) {
    let read = watch::Sender::new(Read::default());
    let volumes = async {
        let mut listed = Vec::new();
        watch_all::<PersistentVolume>(&client, &agents, "PersistentVolumes", |event| {
            if volume_event(&agents, &driver, &mut listed, event) {
                read.send_modify(|read| read.volumes = true);
            }
        })
        .await;
    };
    let nodes = async {
        let mut listed = BTreeSet::new();
        watch_all::<CSINode>(&client, &agents, "CSINodes", |event| {
            if node_event(&agents, &driver, &mut listed, event) {
                read.send_modify(|read| read.nodes = true);
            }
        })
        .await;
    };
    let whole = async {
        let mut read = read.subscribe();
        if read
            .wait_for(|read| read.volumes && read.nodes)
            .await
            .is_ok()
        {
            agents.set_expected_complete();
            complete.send_replace(true);
            let nodes = agents.expected().nodes().len();
            tracing::info!(nodes, "volumes and nodes read from Kubernetes");
        }
        loop {
            tokio::time::sleep(REFRESH).await;
            agents.refresh_expected();
        }
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = async { tokio::join!(volumes, nodes, whole); } => {}
    }
}

/// Passes all events of a kind of object to `take_in`. Retries errors with an increasing delay.
pub(super) async fn watch_all<K>(
    client: &Client,
    agents: &Agents,
    what: &'static str,
    mut take_in: impl FnMut(Event<K>),
) where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let config = watcher::Config::default().page_size(PAGE);
    let events = watcher(Api::<K>::all(client.clone()), config);
    let mut events = std::pin::pin!(events.default_backoff());
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => take_in(event),
            Err(error) if agents.peer_log().allows("API server", what) => {
                let error = printable(&error.to_string());
                tracing::warn!(resource = what, %error, "cannot follow Kubernetes objects; will retry");
            }
            Err(_) => {}
        }
    }
}

// Applies an event. Returns true at the end of a complete list.
fn volume_event(
    agents: &Agents,
    driver: &str,
    listed: &mut Vec<(VolumeId, ExpectedVolume)>,
    event: Event<PersistentVolume>,
) -> bool {
    match event {
        Event::Init => listed.clear(),
        Event::InitApply(pv) => listed.extend(expected(pv, driver)),
        Event::InitDone => {
            agents.expect_volumes(std::mem::take(listed));
            return true;
        }
        Event::Apply(pv) => {
            if let Some((id, volume)) = expected(pv, driver) {
                agents.expect_volume(&id, volume);
            }
        }
        Event::Delete(pv) => {
            if let Some((id, volume)) = expected(pv, driver) {
                agents.unexpect_volume(&id, &volume.pv);
            }
        }
    }
    false
}

fn node_event(
    agents: &Agents,
    driver: &str,
    listed: &mut BTreeSet<Arc<str>>,
    event: Event<CSINode>,
) -> bool {
    match event {
        Event::Init => listed.clear(),
        Event::InitApply(node) => listed.extend(node_id(&node, driver).map(Arc::from)),
        Event::InitDone => {
            agents.expect_nodes(std::mem::take(listed));
            return true;
        }
        Event::Apply(node) => {
            if let Some(id) = node_id(&node, driver) {
                agents.expect_node(id);
            }
        }
        // The node itself was deleted. A missing registration of the agent, as while the agent is replaced, does not count.
        Event::Delete(node) => {
            // The registration may have been removed before; a node's id is its name in Kubernetes.
            let name = node.metadata.name.as_deref();
            if let Some(id) = node_id(&node, driver).or(name) {
                agents.unexpect_node(id);
            }
        }
    }
    false
}

/// Returns the id of the volume that this PersistentVolume names; None if it is of another driver, or malformed.
fn expected(pv: PersistentVolume, driver: &str) -> Option<(VolumeId, ExpectedVolume)> {
    let name = pv.metadata.name?;
    let spec = pv.spec?;
    let csi = spec.csi.filter(|csi| csi.driver == driver)?;
    let id: VolumeId = csi.volume_handle.parse().ok()?;
    let claim = spec.claim_ref.and_then(|claim| {
        Some(ClaimedBy {
            name: format!("{}/{}", claim.namespace?, claim.name?).into(),
            uid: claim.uid?.into(),
        })
    });
    let volume = ExpectedVolume {
        pv: name.into(),
        claim,
    };
    Some((id, volume))
}

/// Returns the id under which this driver is registered on the node; None if it is not.
fn node_id<'a>(node: &'a CSINode, driver: &str) -> Option<&'a str> {
    let of_driver = node.spec.drivers.iter().find(|of| of.name == driver)?;
    Some(&of_driver.node_id)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::storage::v1::{CSINodeDriver, CSINodeSpec};

    use super::*;
    use drivebay_service::{agents::ForgottenNodes, notes::Notes};

    #[test]
    fn a_node_that_goes_after_its_registration_is_not_expected_any_more() {
        let none = watch::Sender::new(ForgottenNodes::new()).subscribe();
        let agents = Agents::new(none, Notes::in_memory());
        let mut listed = BTreeSet::new();
        let node = |registered: bool| {
            let driver = CSINodeDriver {
                name: "d".into(),
                node_id: "n1".into(),
                ..CSINodeDriver::default()
            };
            let mut node = CSINode {
                spec: CSINodeSpec {
                    drivers: registered.then_some(driver).into_iter().collect(),
                },
                ..CSINode::default()
            };
            node.metadata.name = Some("n1".into());
            node
        };
        let mut happens = |event| {
            node_event(&agents, "d", &mut listed, event);
            agents.expected().has_node("n1")
        };
        assert!(happens(Event::Apply(node(true))));
        // The agent is being replaced.
        assert!(happens(Event::Apply(node(false))));
        assert!(!happens(Event::Delete(node(false))));
    }
}
