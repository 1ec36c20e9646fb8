//! Tasks that each belong to something: when one panics it is known whose it was, so that its drive or volume is taken up
//! again instead of being waited for for ever.

use std::{collections::HashMap, future::Future};

use tokio::task::{Id, JoinSet};

/// Tasks by what they are for.
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
    /// How many there are.
    pub fn count(&self) -> usize {
        self.running.len()
    }

    /// Begins one.
    pub fn spawn(&mut self, of: K, task: impl Future<Output = T> + Send + 'static) {
        let id = self.running.spawn(task).id();
        self.of.insert(id, of);
    }

    /// The next one that has ended, with its answer; without one when it panicked, which is logged. None when there are
    /// none. May be cut off: nothing is lost.
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

    /// Lets them go on by themselves.
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
        let mut seen = [tasks.next().await, tasks.next().await];
        seen.sort();
        assert_eq!(seen, [Some(("panics", None)), Some(("well", Some(1)))]);
        assert_eq!((tasks.count(), tasks.next().await), (0, None));
    }
}
