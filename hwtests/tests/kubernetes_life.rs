//! Drivebay's life in a real Kubernetes: installed, replaced, killed, upgraded and uninstalled while pods use volumes. Run by
//! hwtests/kubernetes, which starts the cluster; no scenario leaves a volume or data behind.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed helper is a failed test"
)]

#[path = "kubernetes_life/absent.rs"]
mod absent;
#[path = "kubernetes_life/certificates.rs"]
mod certificates;
#[path = "kubernetes_life/host.rs"]
mod host;
#[path = "kubernetes_life/identity.rs"]
mod identity;
#[path = "kubernetes_life/install.rs"]
mod install;
#[path = "kubernetes_life/restart.rs"]
mod restart;
#[path = "kubernetes_life/uninstall.rs"]
mod uninstall;
#[path = "kubernetes_life/writer.rs"]
mod writer;

pub use writer::Writer;
