//! Controllers and agents of a cluster, each on a separate host: behaviour when cables are unplugged, hosts vanish, controllers are killed
//! during a call, and unauthenticated clients connect. Real TCP and TLS, through network namespaces.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests run tools and fail loudly"
)]

#[path = "cluster/admission.rs"]
mod admission;
#[path = "cluster/attacks.rs"]
mod attacks;
#[path = "cluster/away.rs"]
mod away;
#[path = "cluster/certificates.rs"]
mod certificates;
#[path = "cluster/doubt.rs"]
mod doubt;
#[path = "cluster/helpers.rs"]
mod helpers;
#[path = "cluster/network.rs"]
mod network;
#[path = "cluster/replicas.rs"]
mod replicas;
#[path = "cluster/strangers.rs"]
mod strangers;
