//! Tasks with a key each. The key of a panicked task is returned too, so that the work on its drive or volume is retried instead of being
//! waited for indefinitely.

use std::{collections::HashMap, future::Future};

use tokio::task::{Id, JoinSet};

/// Running tasks, by key.
#[derive(Debug)]
pub struct Tasks<K, T> {
    running: JoinSet<T>,
    of: HashMap<Id, K>,
}

impl<K, T> Default for Tasks<K, T> {
    fn default() -> Self {
        Self {
            running: JoinSet::new(),
            of: HashMap::new(),
        }
    }
}

impl<K, T: Send + 'static> Tasks<K, T> {
    /// Returns the number of running tasks.
    pub fn count(&self) -> usize {
        self.running.len()
    }

    /// True if a task of `of` runs, or has ended and was not returned yet.
    pub fn has(&self, of: &K) -> bool
    where
        K: PartialEq,
    {
        self.of.values().any(|one| one == of)
    }

    /// Starts a task. When it has ended or panicked, [`next`](Self::next) returns `of`, which several tasks may have. Must be called within
    /// a Tokio runtime.
    pub fn spawn(&mut self, of: K, task: impl Future<Output = T> + Send + 'static) {
        let id = self.running.spawn(task).id();
        self.of.insert(id, of);
    }

    /// Returns the next task that has ended, with its answer; without one if it panicked, which is logged. None when
    /// there are no tasks. Cancel safe.
    pub async fn next(&mut self) -> Option<(K, Option<T>)> {
        loop {
            let (id, answer) = match self.running.join_next_with_id().await? {
                Ok((id, answer)) => (id, Some(answer)),
                Err(error) => {
                    tracing::error!(%error, "internal task failed; this is a bug in Drivebay, please report it");
                    (error.id(), None)
                }
            };
            if let Some(of) = self.of.remove(&id) {
                return Some((of, answer));
            }
        }
    }

    /// Detaches all tasks, which continue to run.
    pub fn detach_all(&mut self) {
        self.running.detach_all();
        self.of.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn whose_task_has_panicked_is_known() {
        let mut tasks = Tasks::default();
        assert_eq!(tasks.next().await, None);
        tasks.spawn("well", async { 1 });
        tasks.spawn("panics", async { panic!("as it shall") });
        assert_eq!(tasks.count(), 2);
        assert_eq!(
            ["well", "panics", "other"].map(|of| tasks.has(&of)),
            [true, true, false]
        );
        let mut results = [tasks.next().await, tasks.next().await];
        results.sort();
        assert_eq!(results, [Some(("panics", None)), Some(("well", Some(1)))]);
        assert_eq!((tasks.count(), tasks.next().await), (0, None));
        assert!(!tasks.has(&"well"));
    }
}
