//! What happened in the last week: from inventories, the catalog and the sessions of agents. No agent is asked.

use std::sync::Arc;

use drivebay_proto::agent;
use drivebay_service::{agents::Agent, catalog::Key};
use drivebay_view::{drives::is_noise, unix_seconds};

use super::{AgentsSource, SCANNED, STRIDE};
use crate::{
    events::{self, Newest},
    model::{Event, Events},
};

impl AgentsSource {
    /// Reads all nodes with their drives, and the catalog.
    pub(super) async fn read_history(&self) -> Events {
        let mut newest = Newest::new(unix_seconds());
        let agents: Vec<Arc<Agent>> = self.shown().collect();
        for agent in agents {
            let node = agent.node();
            let (drives, findings) = agent.read_inventory(|inventory| {
                let drives = inventory.drives().filter(|drive| !is_noise(drive));
                let drives: Vec<agent::Drive> = drives.collect();
                (drives, inventory.findings().to_vec())
            });
            newest.add(events::of_node(node, &findings, &agent.history()));
            for drive in &drives {
                newest.add(events::of_drive(node, drive));
            }
            tokio::task::yield_now().await;
        }
        let (mut from, mut scanned): (Option<Key>, usize) = (None, 0);
        loop {
            let page = self.agents.catalog();
            let page = page.after(from.as_ref(), STRIDE, |_, marks| marks.exists);
            let is_last = page.len() < STRIDE;
            from = page.last().map(|(key, _)| key.clone());
            scanned += page.len();
            for (key, entry) in page {
                let volume = entry.decode(&key);
                let events = events::of_volume(&key.node, &volume).into_iter();
                let events: Vec<Event> = events.filter(|one| newest.is_recent(one)).collect();
                // Most volumes have none: their claims are not looked up.
                if !events.is_empty() {
                    let claim = self.claimed(&key, volume).claim;
                    let claim = Some(claim).filter(|claim| !claim.is_empty());
                    newest.add(events.into_iter().map(|one| Event {
                        claim: claim.clone(),
                        ..one
                    }));
                }
            }
            if is_last {
                break;
            }
            if scanned >= SCANNED {
                newest.is_incomplete();
                break;
            }
            tokio::task::yield_now().await;
        }
        newest.finish()
    }
}
