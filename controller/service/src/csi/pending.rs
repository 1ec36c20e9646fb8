//! CSI names that are being created, so that one name is never sent to two nodes.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

/// The names of one kind of thing. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pending(Arc<Mutex<BTreeSet<String>>>);

/// Frees the name when it is dropped.
#[derive(Debug)]
pub(crate) struct Guard(Pending, String);

impl Pending {
    /// Takes the name; None: it is taken.
    pub(crate) fn enter(&self, name: &str) -> Option<Guard> {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_free = names.insert(name.to_owned());
        is_free.then(|| Guard(self.clone(), name.to_owned()))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let Self(Pending(names), name) = self;
        names
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(name);
    }
}
