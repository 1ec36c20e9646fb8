//! The thread that owns libudev: kernel uevents of block devices, debounced and coalesced.
//!
//! Listens to the *kernel* group (works with no udevd and in a pod's network namespace) and to
//! udevd's processed events as an extra. Only kernel names cross to the rest of the agent.

use std::{collections::BTreeSet, io, time::Duration};

use tokio::sync::mpsc;

/// Kernel names of disks that something happened to; a partition's event counts for its disk.
pub type Changed = BTreeSet<String>;

/// How events are gathered.
#[derive(Debug, Clone)]
pub struct UdevConfig {
    /// Quiet time that ends a batch.
    pub debounce: Duration,
    /// A batch is handed over after this long even when events go on.
    pub at_most: Duration,
}

/// Starts the thread; it ends when the receiver is dropped. The channel is bounded: while the
/// receiver is slow, names coalesce in the thread.
pub fn watch(config: UdevConfig) -> io::Result<mpsc::Receiver<Changed>> {
    let _ = config;
    todo!()
}
