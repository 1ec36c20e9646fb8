//! Metrics and their server, shared by controller and agent.
//!
//! `families` collects the series of one scrape without duplicates, `rpc` counts calls as they end, `server` serves it all over HTTP,
//! `listen` parses addresses, `listener` binds them and accepts connections, also for other HTTP servers, `certificate` has the validity of
//! the own certificate. A scrape reads memory and /proc/self, and nothing else: it starts no process, does no I/O on a drive and waits for
//! no peer.

pub mod certificate;
pub mod families;
pub mod listen;
pub mod listener;
pub mod rpc;
pub mod server;

pub use certificate::Certificate;
pub use families::{Def, Families};
pub use listen::Listen;
pub use listener::{Connection, Listener};
pub use server::{Exposed, Pages, serve};

use families::{gauge, one};

const BUILD: Def = gauge(
    "drivebay_build_info",
    "Program and version, in labels; always 1.",
    &["component", "version"],
);

const READY: Def = gauge(
    "drivebay_ready",
    "1 if the program is ready: drives are scanned (agent), or an agent is connected (controller); else 0.",
    &[],
);

/// Definitions that both programs share.
pub const DEFINITIONS: &[Def] = &[
    BUILD,
    READY,
    certificate::NOT_BEFORE,
    certificate::EXPIRATION,
];

/// Adds the series `drivebay_build_info`, with these labels and the value 1. `component`: `agent` or `controller`.
pub fn build(into: &mut Families, component: &str, version: &str) {
    into.put(&BUILD, &[component, version], one());
}
