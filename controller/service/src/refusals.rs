//! Counters of refused peers by reason, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::bounds::Bound;

macro_rules! reasons {
    ($($name:ident $word:literal),* $(,)?) => {
        /// Reason why a connection, a session or an update was refused or delayed.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Reason { $(#[allow(missing_docs)] $name),* }

        impl Reason {
            /// Every reason.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Returns the value of the metric's label `reason`.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $word),* }
            }
        }
    };
}

reasons! {
    Connections "connections",
    SourceConnections "source_connections",
    IdentityConnections "identity_connections",
    Handshake "handshake",
    Hello "hello",
    OtherNode "other_node",
    Token "token",
    Protocol "protocol",
    Connected "connected",
    NotItsDrives "not_its_drives",
    Updates "updates",
    Volumes "volumes",
    Drives "drives",
    Classes "classes",
    Bytes "bytes",
    Message "message",
    UpdateRate "update_rate",
    ForeignVolumes "foreign_volumes",
}

impl From<Bound> for Reason {
    fn from(bound: Bound) -> Self {
        match bound {
            Bound::Volumes => Self::Volumes,
            Bound::Drives => Self::Drives,
            Bound::Classes => Self::Classes,
            Bound::Bytes => Self::Bytes,
            Bound::Message => Self::Message,
        }
    }
}

/// Counts since the start of this process.
#[derive(Debug, Default)]
pub struct Refusals {
    counts: [AtomicU64; Reason::ALL.len()],
}

impl Refusals {
    pub fn count(&self, reason: Reason) {
        self.count_many(reason, 1);
    }

    pub fn count_many(&self, reason: Reason, more: u64) {
        if let Some(count) = self.counts.get(reason as usize) {
            count.fetch_add(more, Ordering::Relaxed);
        }
    }

    /// Returns the count of every reason, zero counts included.
    pub fn all(&self) -> impl Iterator<Item = (Reason, u64)> {
        let counts = self
            .counts
            .iter()
            .map(|count| count.load(Ordering::Relaxed));
        Reason::ALL.iter().copied().zip(counts)
    }
}
