//! Drive objects in a real Kubernetes cluster: kubectl's output, their return after deletion, and the number of requests to the API
//! server; DriveTasks; and the page. Run by hwtests/kubernetes, which starts the cluster.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed helper is a failed test"
)]

#[path = "kubernetes_drives/acknowledged.rs"]
mod acknowledged;
#[path = "kubernetes_drives/load.rs"]
mod load;
#[path = "kubernetes_drives/page.rs"]
mod page;
#[path = "kubernetes_drives/plugin.rs"]
mod plugin;
#[path = "kubernetes_drives/shown.rs"]
mod shown;
#[path = "kubernetes_drives/tasks.rs"]
mod tasks;
