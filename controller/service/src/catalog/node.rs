//! A node's id, shared by the keys of all its volumes, with the connection state of its agent.

use std::{
    borrow::Borrow,
    cmp::Ordering,
    fmt,
    hash::{Hash, Hasher},
    ops::Deref,
    sync::{
        Arc,
        atomic::{self, AtomicBool},
    },
};

/// A node id. Clones share the connection flag. Compared, ordered and hashed as the text of the id.
///
/// A list of all volumes needs the connection state of each volume's node, and reads it from the key without a lookup.
#[derive(Clone)]
pub struct Node(Arc<Shared>);

struct Shared {
    connected: AtomicBool,
    id: Box<str>,
}

impl Node {
    /// True if the agent has sent an inventory update and its session has not ended since. Otherwise the node's inventory has
    /// the time of disconnection.
    pub fn is_connected(&self) -> bool {
        self.0.connected.load(atomic::Ordering::Relaxed)
    }

    pub(crate) fn set_connected(&self, connected: bool) {
        self.0.connected.store(connected, atomic::Ordering::Relaxed);
    }
}

impl From<&str> for Node {
    fn from(id: &str) -> Self {
        Self(Arc::new(Shared {
            connected: AtomicBool::new(false),
            id: id.into(),
        }))
    }
}

impl Deref for Node {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0.id
    }
}

impl Borrow<str> for Node {
    fn borrow(&self) -> &str {
        self
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Node {}

impl PartialOrd for Node {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Node {
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(&**other)
    }
}

// Consistent with `str`, since maps with node keys are indexed by text.
impl Hash for Node {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}
