//! One change at a time per volume and per name: a second caller is answered with ABORTED instead of queueing.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
};

/// What is guarded.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Key {
    /// A CSI name, while it is being created.
    Name(String),
    /// A volume.
    Volume(uuid::Uuid),
    /// A path, for unmounting volumes that nobody knows any more.
    Path(std::path::PathBuf),
    /// A drive, while it is wiped.
    Drive(crate::model::DriveId),
}

/// All guards of a node.
#[derive(Debug, Default, Clone)]
pub struct Guards(Arc<Mutex<HashSet<Key>>>);

/// Held by the task that does the change; freed when it ends, whatever way.
#[derive(Debug)]
pub struct Guard {
    all: Guards,
    key: Key,
}

impl Guards {
    /// The guard, or None while somebody else holds it.
    pub fn take(&self, key: Key) -> Option<Guard> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.insert(key.clone()).then(|| Guard {
            all: self.clone(),
            key,
        })
    }

    /// Whether somebody holds it.
    pub fn is_held(&self, key: &Key) -> bool {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.contains(key)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.all
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_caller_is_refused_until_the_first_is_done() {
        let guards = Guards::default();
        let first = guards.take(Key::Name("a".into()));
        assert!(first.is_some());
        assert!(guards.take(Key::Name("a".into())).is_none());
        assert!(guards.take(Key::Name("b".into())).is_some());
        drop(first);
        assert!(guards.take(Key::Name("a".into())).is_some());
    }
}
