//! Metrics and their server, shared by controller and agent.
//!
//! `families` collects series of one scrape so that none is there twice, `rpc` counts calls as they end, `server`
//! serves it all over HTTP, `listen` says where, `certificate` says when one's own expires. A scrape reads memory and
//! /proc/self, and nothing else: it starts no process, asks no drive and waits for nobody.

pub mod certificate;
pub mod families;
pub mod listen;
pub mod rpc;
pub mod server;

pub use certificate::Certificate;
pub use families::{Def, Families};
pub use listen::Listen;
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

/// The definitions that both programs share.
pub const DEFINITIONS: &[Def] = &[
    BUILD,
    READY,
    certificate::NOT_BEFORE,
    certificate::EXPIRATION,
];

/// What runs here.
pub fn build(into: &mut Families, component: &str, version: &str) {
    into.put(&BUILD, &[component, version], one());
}
