//! Drives as objects of a real Kubernetes: what kubectl shows of them, that they return, and what they cost the API server; and the
//! page. Run by hwtests/kubernetes, which starts the cluster.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed helper is a failed test"
)]

#[path = "kubernetes_drives/load.rs"]
mod load;
#[path = "kubernetes_drives/page.rs"]
mod page;
#[path = "kubernetes_drives/shown.rs"]
mod shown;
