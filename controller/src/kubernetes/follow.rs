//! Follows the PersistentVolumes of this driver and the nodes on which the kubelet has registered its agent.
//!
//! Both are read in pages, then watched. CSINodes rather than Nodes: they name the drivers of a node, and go with it.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use drivebay_proto::VolumeId;
use k8s_openapi::api::{core::v1::PersistentVolume, storage::v1::CSINode};
use kube::{
    Api, Client,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event, watcher},
    },
};
use tokio::sync::watch;
use tokio_stream::StreamExt;
use tokio_util::sync::CancellationToken;

use crate::{
    agents::Agents,
    expected::{ClaimedBy, ExpectedVolume},
    peer_log::printable,
};

/// Objects asked for at a time: each page is let go of before the next is asked for.
const PAGE: u32 = 500;
/// Between two looks at what an operator may have remembered again.
const REFRESH: Duration = Duration::from_secs(60);

/// Which of the two lists were read whole.
#[derive(Debug, Clone, Copy, Default)]
struct Read {
    volumes: bool,
    nodes: bool,
}

/// Follows both until `stop`. `complete` turns true when both were read whole.
pub async fn follow(
    client: Client,
    driver: String,
    agents: Agents,
    complete: watch::Sender<bool>,
    stop: CancellationToken,
) {
    let read = watch::Sender::new(Read::default());
    let volumes = async {
        let events = watcher(Api::<PersistentVolume>::all(client.clone()), config());
        let mut events = std::pin::pin!(events.default_backoff());
        let mut listed = Vec::new();
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => {
                    if volume_event(&agents, &driver, &mut listed, event) {
                        read.send_modify(|read| read.volumes = true);
                    }
                }
                Err(error) => failed(&agents, "PersistentVolumes", &error),
            }
        }
    };
    let nodes = async {
        let events = watcher(Api::<CSINode>::all(client.clone()), config());
        let mut events = std::pin::pin!(events.default_backoff());
        let mut listed = BTreeSet::new();
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => {
                    if node_event(&agents, &driver, &mut listed, event) {
                        read.send_modify(|read| read.nodes = true);
                    }
                }
                Err(error) => failed(&agents, "CSINodes", &error),
            }
        }
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

fn config() -> watcher::Config {
    watcher::Config::default().page_size(PAGE)
}

fn failed(agents: &Agents, what: &'static str, error: &watcher::Error) {
    if agents.peer_log().allows("API server", what) {
        let error = printable(&error.to_string());
        tracing::warn!(resource = what, %error, "cannot follow Kubernetes objects; will retry");
    }
}

// Whether a list was read to its end.
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
        // The node itself is gone. A kubelet that takes the agent's registration back, as it does while the agent is
        // replaced, does not end it.
        Event::Delete(node) => {
            if let Some(id) = node_id(&node, driver) {
                agents.unexpect_node(id);
            }
        }
    }
    false
}

/// A volume of ours that this PersistentVolume names.
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

/// The node as our driver is known by there, when it is registered.
fn node_id<'a>(node: &'a CSINode, driver: &str) -> Option<&'a str> {
    let of_driver = node.spec.drivers.iter().find(|of| of.name == driver)?;
    Some(&of_driver.node_id)
}
