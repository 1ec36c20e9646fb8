//! Duplicates: several volumes of one CSI name, because two controllers that saw different agents were sent one create, or because a
//! drive was moved here from another cluster.
//!
//! One of them answers every CreateVolume of the name. Another one is removed only with proof that it can never be used; else it is
//! a finding. The proof must hold for ten times `--away-grace`, by this process's own clock.

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use drivebay_proto::{
    agent::{DeleteUnusedVolumeRequest, Volume},
    words::{Mode, VolumeState},
};
use tokio_util::sync::CancellationToken;

use super::{Agent, Agents, copies::generation};
use crate::{
    call::{CHANGE_DEADLINE, CallError, call},
    catalog::{Key, Node},
    inventory::Inventory,
    peer_log::printable_sentence,
};

/// Multiple of `--away-grace` after which a duplicate is removed: by then every controller has seen every connected node.
const GRACES: u32 = 10;

/// One volume of a name, with the facts that decide about it.
#[derive(Debug, Clone)]
pub struct Candidate {
    pub key: Key,
    pub volume: Volume,
    /// True if its agent is connected and has scanned every drive.
    pub is_there: bool,
    /// Name of the PersistentVolume that names it, on any node: its drive may have been moved from there.
    pub named_by: Option<Box<str>>,
}

impl Candidate {
    /// True if it may hold data. A raw volume always may, since no record says that it was never written.
    fn may_be_used(&self) -> bool {
        let volume = &self.volume;
        let is_new = volume.known_state() == Some(VolumeState::New)
            && volume.known_mode() == Some(Mode::Mount);
        !is_new || volume.published || !volume.mounts.is_empty()
    }

    fn is_of(&self, pv: &str) -> bool {
        self.named_by.as_deref() == Some(pv)
    }
}

/// Reason why a volume that shares its name is not removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Kept {
    #[error(
        "this controller does not follow PersistentVolumes (run --kubernetes), so it cannot tell which one is in use: find out, and delete the other with `drivebay-agent volume delete` on its node"
    )]
    NotFollowed,
    #[error(
        "no PersistentVolume of this name uses either: if none is to be made, delete both with `drivebay-agent volume delete` on their nodes"
    )]
    NoneNamed,
    #[error("the PersistentVolume of this name uses this one")]
    InUse,
    #[error(
        "another PersistentVolume names this one: decide which PersistentVolume is to stay, and delete the other"
    )]
    NamedTwice,
    #[error(
        "the PersistentVolume of this name uses the other one, whose agent is disconnected or does not report it as usable: bring that node back first"
    )]
    OtherAway,
    #[error(
        "the PersistentVolume of this name uses the other one; the agent of this one is disconnected or its drive was moved: bring its node back"
    )]
    Away,
    #[error(
        "the PersistentVolume of this name uses the other one, but this one may hold data: look at it, and delete it with `drivebay-agent volume delete` on its node"
    )]
    MayHoldData,
}

/// Returns the volume that answers every CreateVolume of the name: the one that the PersistentVolume of this name uses, else one
/// that may hold data, else one on a node that is `allowed`, else the oldest. The result does not depend on which agents are
/// connected, except between two places of one volume. Pure.
pub fn chosen<'a>(
    name: &str,
    candidates: &'a [Candidate],
    allowed: impl Fn(&str) -> bool,
) -> Option<&'a Candidate> {
    // The node that a drive was moved from has no current data about it.
    let is_elsewhere = |one: &Candidate| {
        let mut others = candidates.iter();
        !one.is_there && others.any(|other| other.is_there && other.key.uuid == one.key.uuid)
    };
    let there = candidates.iter().filter(|one| !is_elsewhere(one));
    there.min_by_key(|one| {
        let at = one.volume.created_at;
        (
            !one.is_of(name),
            !one.may_be_used(),
            !allowed(&one.key.node),
            if at == 0 { u64::MAX } else { at },
            // Of one volume on two nodes, the one of the higher generation.
            Reverse(generation(&one.volume)),
            &one.key,
        )
    })
}

/// Decides whether this volume of a name can never be used and may be removed. Returns the key of the volume that is used instead.
/// `is_followed`: true if all PersistentVolumes were read. Pure.
pub fn judge<'a>(
    name: &str,
    one: &Candidate,
    all: &'a [Candidate],
    is_followed: bool,
) -> Result<&'a Key, Kept> {
    if !is_followed {
        return Err(Kept::NotFollowed);
    }
    if one.is_of(name) {
        return Err(Kept::InUse);
    }
    if one.named_by.is_some() {
        return Err(Kept::NamedTwice);
    }
    let other = all
        .iter()
        .find(|other| other.is_of(name) && other.key.uuid != one.key.uuid);
    let other = other.ok_or(Kept::NoneNamed)?;
    if !other.is_there || !other.volume.is_usable() {
        return Err(Kept::OtherAway);
    }
    let places = all.iter().filter(|at| at.key.uuid == one.key.uuid).count();
    if !one.is_there || places != 1 || one.key.node == other.key.node {
        return Err(Kept::Away);
    }
    if one.may_be_used() || one.volume.manual {
        return Err(Kept::MayHoldData);
    }
    Ok(&other.key)
}

/// Decision about one volume that shares its name.
#[derive(Debug, Clone)]
struct Finding {
    name: Box<str>,
    others: Vec<Key>,
    /// Key of the volume that is used instead of this, and the time since which that holds.
    removable: Result<(Key, Instant), Kept>,
}

/// A volume that is to be removed, and the one that is used instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    pub name: Box<str>,
    pub remove: Key,
    pub used: Key,
}

/// All volumes that share their name with another one.
#[derive(Debug, Default)]
pub struct Duplicates {
    findings: Mutex<BTreeMap<Key, Finding>>,
}

impl Duplicates {
    /// Replaces all findings. `groups`: each name that several volumes have, with those volumes.
    fn update(&self, groups: Vec<(String, Vec<Candidate>)>, is_followed: bool, now: Instant) {
        let mut findings = self.findings.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::take(&mut *findings);
        for (name, all) in groups {
            for one in &all {
                let others = all.iter().map(|other| &other.key);
                let others = others.filter(|other| other.uuid != one.key.uuid);
                let since = |used: &Key| match before.get(&one.key).map(|of| &of.removable) {
                    Some(Ok((before, since))) if before == used => *since,
                    _ => now,
                };
                let removable = judge(&name, one, &all, is_followed);
                let finding = Finding {
                    name: name.as_str().into(),
                    others: others.cloned().collect(),
                    removable: removable.map(|used| (used.clone(), since(used))),
                };
                if !before.contains_key(&one.key) {
                    let id = one.key.id_text();
                    tracing::warn!(
                        volume = id,
                        name,
                        "volume shares its name with another volume"
                    );
                }
                findings.insert(one.key.clone(), finding);
            }
        }
    }

    /// Returns the text of the finding about this volume; None if no other volume has its name.
    pub fn of(&self, key: &Key) -> Option<String> {
        let findings = self.findings.lock().unwrap_or_else(PoisonError::into_inner);
        let finding = findings.get(key)?;
        let others: Vec<String> = finding.others.iter().map(Key::id_text).collect();
        let why = match &finding.removable {
            Ok(_) => "the PersistentVolume of this name uses the other one, and this one was never used: it is removed by itself"
                .to_owned(),
            Err(kept) => kept.to_string(),
        };
        Some(format!(
            "two volumes of one name: {} is also volume {}; {why}",
            finding.name,
            others.join(", ")
        ))
    }

    /// Returns the number of volumes that share their name, by node.
    pub fn counts(&self) -> BTreeMap<Node, u64> {
        let findings = self.findings.lock().unwrap_or_else(PoisonError::into_inner);
        let mut counts = BTreeMap::new();
        for key in findings.keys() {
            *counts.entry(key.node.clone()).or_default() += 1;
        }
        counts
    }

    fn due(&self, grace: Duration, now: Instant) -> Vec<Due> {
        let findings = self.findings.lock().unwrap_or_else(PoisonError::into_inner);
        let due = findings.iter().filter_map(|(key, finding)| {
            let (used, since) = finding.removable.as_ref().ok()?;
            (now.saturating_duration_since(*since) >= grace).then(|| Due {
                name: finding.name.clone(),
                remove: key.clone(),
                used: used.clone(),
            })
        });
        due.collect()
    }
}

impl Agents {
    /// Returns the volumes of this name as candidates.
    pub fn candidates(&self, name: &str) -> Vec<Candidate> {
        let volumes = self.catalog().named(name);
        volumes
            .into_iter()
            .map(|(key, volume)| self.candidate(key, volume))
            .collect()
    }

    fn candidate(&self, key: Key, volume: Volume) -> Candidate {
        let complete = |agent: Arc<Agent>| agent.read_inventory(Inventory::complete);
        let named_by = self.expected().named_by(key.uuid).map(Into::into);
        Candidate {
            is_there: self.get(&key.node).is_some_and(complete),
            key,
            volume,
            named_by,
        }
    }

    /// Updates the findings from the catalog.
    pub fn find_duplicates(&self) {
        let is_followed = self.expected().complete();
        let groups = self.catalog().shared_names().into_iter().map(|name| {
            let all = self.candidates(&name);
            (name, all)
        });
        // One uuid at two places is a single volume whose drive was moved.
        let groups = groups.filter(|(_, all)| {
            let mut uuids = all.iter().map(|one| one.key.uuid);
            let first = uuids.next();
            uuids.any(|uuid| Some(uuid) != first)
        });
        let groups = groups.collect();
        self.duplicates()
            .update(groups, is_followed, Instant::now());
    }

    /// Returns the duplicates that were removable for the whole grace. Before removing one, the caller must check the orchestrator's
    /// current PersistentVolumes.
    pub fn due_duplicates(&self) -> Vec<Due> {
        let grace = self.inner.away_grace * GRACES;
        self.duplicates().due(grace, Instant::now())
    }

    /// Deletes a duplicate if it is still one; its agent deletes it only if its own record says that it was never used. Returns true
    /// if it was deleted.
    pub async fn remove_duplicate(&self, due: &Due) -> bool {
        let (volume, used) = (due.remove.id_text(), due.used.id_text());
        let name = &*due.name;
        let all = self.candidates(name);
        let one = all.iter().find(|one| one.key == due.remove);
        let is_followed = self.expected().complete();
        let now = one.map(|one| judge(name, one, &all, is_followed));
        if now != Some(Ok(&due.used)) {
            return false;
        }
        match self.remove_unused(due).await {
            Ok(()) => {
                tracing::warn!(
                    volume,
                    name,
                    used,
                    "duplicate volume deleted; it was never used"
                );
                true
            }
            Err(error) => {
                let error = printable_sentence(&error.to_string());
                tracing::warn!(volume, name, used, %error, "cannot delete a duplicate volume; will retry");
                false
            }
        }
    }

    async fn remove_unused(&self, due: &Due) -> Result<(), CallError> {
        let node = &due.remove.node;
        let agent = self.get(node).ok_or_else(|| CallError::NotConnected {
            node: node.to_string(),
        })?;
        let instance = agent.instance();
        let mut client = agent.client()?;
        let request = DeleteUnusedVolumeRequest {
            id: due.remove.id_text(),
            name: due.name.to_string(),
        };
        let answer = call(CHANGE_DEADLINE, async move {
            client.delete_unused_volume(request).await
        });
        agent.shows(&instance, answer.await?.revision).await;
        Ok(())
    }
}

/// Searches for duplicates and copies once per `--away-grace`, until `stop`.
pub async fn follow(agents: Agents, stop: CancellationToken) {
    loop {
        agents.find_duplicates();
        agents.find_copies();
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(agents.away_grace()) => {}
        }
    }
}

#[cfg(test)]
#[path = "duplicates_tests.rs"]
mod tests;
