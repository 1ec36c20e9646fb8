//! Tasks as watched, and the specifications of those that were deleted.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use drivebay_objects::{task::DriveTask, times::now};
use kube::runtime::watcher::Event;

use super::plan::{Phase, TOO_OLD, key};

/// Most deleted tasks that are kept in memory, the latest.
const MAX_DELETED: usize = 10_000;

/// DriveTasks by name, as last watched. Tasks may be missing until `is_complete`.
#[derive(Debug, Default)]
pub(super) struct Watched {
    pub(super) tasks: BTreeMap<String, DriveTask>,
    listing: BTreeSet<String>,
    pub(super) is_complete: bool,
    // Specifications of deleted tasks that were not withdrawn while they were Pending, and when they were deleted.
    pub(super) deleted: BTreeMap<String, i64>,
}

impl Watched {
    pub(super) fn put(&mut self, task: DriveTask) -> String {
        let name = task.metadata.name.clone().unwrap_or_default();
        self.tasks.insert(name.clone(), task);
        name
    }

    /// Removes a task that the API server no longer has, unless a later version was watched meanwhile.
    pub(super) fn remove_version(&mut self, task: &DriveTask) {
        let name = task.metadata.name.as_deref().unwrap_or_default();
        let watched = self.tasks.get(name);
        if watched.is_some_and(|it| it.metadata.resource_version == task.metadata.resource_version)
        {
            self.remove(name);
        }
    }

    fn remove(&mut self, name: &str) {
        let Some(task) = self.tasks.remove(name) else {
            return;
        };
        if matches!(Phase::of(&task), Phase::Running | Phase::Succeeded) {
            self.deleted.insert(key(&task), now());
        }
        // A new task of the same specification is older than an hour by then.
        let oldest = now().saturating_sub(2 * TOO_OLD);
        self.deleted.retain(|_, at| *at >= oldest);
        while self.deleted.len() > MAX_DELETED {
            let oldest = self.deleted.iter().min_by_key(|(_, at)| **at);
            let Some(oldest) = oldest.map(|(key, _)| key.clone()) else {
                return;
            };
            self.deleted.remove(&oldest);
        }
    }

    pub(super) fn apply(&mut self, event: Event<DriveTask>) {
        match event {
            Event::Init => self.listing.clear(),
            Event::InitApply(task) => {
                let name = self.put(task);
                self.listing.insert(name);
            }
            Event::InitDone => {
                let listed = std::mem::take(&mut self.listing);
                let gone = self.tasks.keys().filter(|name| !listed.contains(*name));
                let gone: Vec<String> = gone.cloned().collect();
                gone.iter().for_each(|name| self.remove(name));
                self.is_complete = true;
            }
            Event::Apply(task) => {
                self.put(task);
            }
            Event::Delete(task) => self.remove(task.metadata.name.as_deref().unwrap_or_default()),
        }
    }
}

pub(super) fn lock(watched: &Mutex<Watched>) -> MutexGuard<'_, Watched> {
    watched.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "watched_tests.rs"]
mod tests;
