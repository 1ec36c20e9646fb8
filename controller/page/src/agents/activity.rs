//! Moves, copies, erases and checks: from the catalog, and from the agents of volumes that move or are copied.

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

use drivebay_proto::agent::{self, ListCopiesRequest, ListMovesRequest};
use drivebay_service::{agents::Agent, call::call, catalog::Key};
use tokio::task::{JoinError, JoinSet};

use super::{AgentsSource, DEADLINE, SCANNED, STRIDE};
use crate::{
    model::{Activity, Check},
    wire,
};

/// Agents that are asked at a time, and at most for one answer.
const CONCURRENT_REQUESTS: usize = 16;
const MAX_AGENTS: usize = 256;
/// Most entries of each list of an answer.
const ENTRIES: usize = 1000;

impl AgentsSource {
    /// Reads the catalog, and asks the agents of volumes that move or are copied.
    pub(super) async fn read_activity(&self) -> Activity {
        let mut activity = Activity::default();
        let mut copying: BTreeMap<String, Vec<agent::Volume>> = BTreeMap::new();
        let (mut from, mut scanned): (Option<Key>, usize) = (None, 0);
        loop {
            let page = self
                .agents
                .catalog()
                .after(from.as_ref(), STRIDE, |_, _| true);
            let is_last = page.len() < STRIDE;
            from = page.last().map(|(key, _)| key.clone());
            scanned += page.len();
            for (key, entry) in page {
                let volume = entry.decode(&key);
                activity.checks.extend(wire::checks(&key.node, &volume));
                activity.erases.extend(wire::erase(&key.node, &volume));
                if entry.marks.exists && !entry.marks.listed {
                    copying
                        .entry(key.node.to_string())
                        .or_default()
                        .push(volume);
                }
            }
            if activity.checks.len() > 4 * ENTRIES {
                cut_checks(&mut activity);
            }
            if is_last || scanned >= SCANNED {
                activity.more |= !is_last;
                break;
            }
            tokio::task::yield_now().await;
        }
        cut_checks(&mut activity);
        let moving = self.shown().filter(|agent| {
            let moves = agent.read_inventory(|inventory| !inventory.with_moves().is_empty());
            moves || copying.contains_key(agent.node())
        });
        let moving: Vec<Arc<Agent>> = moving.collect();
        activity.more |= moving.len() > MAX_AGENTS;
        let mut rest = moving.into_iter().take(MAX_AGENTS);
        let mut requests = JoinSet::new();
        loop {
            while requests.len() < CONCURRENT_REQUESTS
                && let Some(agent) = rest.next()
            {
                let copies = copying.remove(agent.node()).unwrap_or_default();
                requests.spawn(async move { of_agent(&agent, copies).await });
            }
            match requests.join_next().await {
                Some(answer) => add(&mut activity, answer),
                None => break,
            }
        }
        activity.silent.sort();
        for list in [&mut activity.moves, &mut activity.copies] {
            list.sort_by(|one, other| (&one.node, &one.volume).cmp(&(&other.node, &other.volume)));
            activity.more |= list.len() > ENTRIES;
            list.truncate(ENTRIES);
        }
        activity.more |= activity.erases.len() > ENTRIES;
        activity.erases.truncate(ENTRIES);
        activity
    }
}

/// Adds the moves and copies of one agent. After a panic they are missing, so there is more than is shown.
fn add(activity: &mut Activity, answer: Result<Activity, JoinError>) {
    match answer {
        Ok(of_one) => {
            activity.moves.extend(of_one.moves);
            activity.copies.extend(of_one.copies);
            activity.silent.extend(of_one.silent);
        }
        Err(error) => {
            tracing::error!(%error, "reading moves and copies of a node failed");
            activity.more = true;
        }
    }
}

// Keeps those that run, and the latest of the others.
fn cut_checks(activity: &mut Activity) {
    let rank = |one: &Check| Reverse((one.outcome == wire::RUNNING, one.at));
    activity.checks.sort_by_key(rank);
    activity.more |= activity.checks.len() > ENTRIES;
    activity.checks.truncate(ENTRIES);
}

/// Asks an agent for its moves and copies. `copying`: volumes that are being made as copies, by its inventory.
async fn of_agent(agent: &Agent, copying: Vec<agent::Volume>) -> Activity {
    let node = agent.node();
    let mut activity = Activity::default();
    let Ok(mut client) = agent.client() else {
        activity.silent.push(node.to_owned());
        return activity;
    };
    let mut is_silent = false;
    if agent.read_inventory(|inventory| !inventory.with_moves().is_empty()) {
        match call(DEADLINE, client.list_moves(ListMovesRequest {})).await {
            Ok(answer) => {
                let moves = answer.moves.into_iter().take(ENTRIES + 1);
                activity
                    .moves
                    .extend(moves.map(|one| wire::a_move(node, one)));
            }
            Err(error) => {
                tracing::debug!(%error, node, "moves of a node not read");
                is_silent = true;
            }
        }
    }
    if !copying.is_empty() {
        match call(DEADLINE, client.list_copies(ListCopiesRequest {})).await {
            Ok(answer) => {
                let copies = answer.copies.into_iter().take(ENTRIES + 1);
                activity
                    .copies
                    .extend(copies.map(|one| wire::copy(node, one, false)));
                let failed = answer.failed.into_iter().take(ENTRIES);
                activity
                    .copies
                    .extend(failed.map(|one| wire::copy(node, one, true)));
            }
            Err(error) => {
                tracing::debug!(%error, node, "copies of a node not read");
                is_silent = true;
            }
        }
    }
    if is_silent {
        activity.silent.push(node.to_owned());
    }
    activity
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_node_whose_reading_panics_leaves_the_others_and_marks_the_answer_as_incomplete() {
        let mut activity = Activity::default();
        let silent = Activity {
            silent: vec!["n1".into()],
            ..Activity::default()
        };
        add(&mut activity, tokio::spawn(async { silent }).await);
        assert!(!activity.more);
        let panics = tokio::spawn(async { panic!("of a test") });
        add(&mut activity, panics.await);
        assert!(activity.more);
        assert_eq!(activity.silent, ["n1"]);
    }
}
