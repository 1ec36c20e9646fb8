//! Sends the deletes that were acknowledged while a node was forgotten to the node when it has returned.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use drivebay_proto::agent::DeleteVolumeRequest;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use drivebay_service::{
    agents::{Agent, Agents},
    call::{CHANGE_DEADLINE, CallError, call},
    inventory::Inventory,
    notes::Notes,
    peer_log::printable_sentence,
};

/// Interval between two attempts.
const TICK: Duration = Duration::from_secs(10);

/// Sends pending deletes to connected nodes, until `stop`. A delete is repeated until the agent has recorded it.
pub async fn deliver(agents: Agents, stop: CancellationToken) {
    // One task per node: a node that does not answer delays no other one.
    let mut tasks: BTreeMap<String, AbortOnDropHandle<()>> = BTreeMap::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(TICK) => {}
        }
        tasks.retain(|_, task| !task.is_finished());
        for agent in agents.all() {
            let deletes = agents.notes().undelivered_deletes(agent.node());
            if deletes.is_empty()
                || tasks.contains_key(agent.node())
                || !agent.read_inventory(Inventory::complete)
            {
                continue;
            }
            let node = agent.node().to_owned();
            let task = tokio::spawn(deliver_to(agent, deletes, agents.notes().clone()));
            tasks.insert(node, AbortOnDropHandle::new(task));
        }
    }
}

async fn deliver_to(agent: Arc<Agent>, deletes: Vec<String>, notes: Notes) {
    for id in deletes {
        match quarantine(&agent, &id).await {
            Ok(()) => {
                tracing::warn!(
                    node = agent.node(),
                    volume = id,
                    "volume deleted while its node was forgotten; the node quarantines it and erases it after the delay"
                );
                notes.delete_delivered(&id);
            }
            Err(error) => {
                let error = printable_sentence(&error.to_string());
                tracing::error!(
                    node = agent.node(),
                    volume = id,
                    %error,
                    "cannot record the delete of a volume on a returned node; will retry"
                );
            }
        }
    }
}

async fn quarantine(agent: &Arc<Agent>, id: &str) -> Result<(), CallError> {
    let mut client = agent.client()?;
    let request = DeleteVolumeRequest {
        id: id.to_owned(),
        quarantine: true,
    };
    let response = async move { client.delete_volume(request).await };
    call(CHANGE_DEADLINE, response).await.map(|_| ())
}
