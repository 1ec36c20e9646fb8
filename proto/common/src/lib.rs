//! Code that both programs share besides the protocol: TLS between them, sockets with gRPC, CSI Identity, logging of calls, metrics and
//! their server, liveness and the service manager, tables for the command lines.

#![allow(
    missing_docs,
    reason = "a field's name and type say what it is; a comment adds a unit, a rule or a reason"
)]

pub mod answers;
pub mod authority;
pub mod breakable;
pub mod cli;
pub mod dial;
pub mod durations;
pub mod files;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
pub mod identity;
pub mod kept_placements;
pub mod limits;
pub mod liveness;
pub mod local;
pub mod logging;
pub mod manager;
pub mod metrics;
pub mod mount_flags;
pub mod paint;
pub mod parse;
pub mod pick;
pub mod printed;
pub mod progress;
pub mod query;
pub mod rpc;
pub mod sizes;
pub mod smart_names;
pub mod socket;
pub mod state_trouble;
pub mod table;
pub mod terminal;
pub mod text;
pub mod tls;
pub mod units;

pub use identity::{IdentityConfig, IdentityService};

/// Output of `--version`: the version, and in a release build the commit.
pub const VERSION: &str = env!("DRIVEBAY_VERSION");
