//! Effects of the chart's values in a real Kubernetes: each test installs the chart with its values and checks the effect. Run by
//! hwtests/kubernetes, which starts the cluster.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed helper is a failed test"
)]

#[path = "kubernetes_chart/configuration.rs"]
mod configuration;
#[path = "kubernetes_chart/databases.rs"]
mod databases;
#[path = "kubernetes_chart/operator.rs"]
mod operator;
#[path = "kubernetes_chart/quickstart.rs"]
mod quickstart;
#[path = "kubernetes_chart/renamed.rs"]
mod renamed;
#[path = "kubernetes_chart/root.rs"]
mod root;
