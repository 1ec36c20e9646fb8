//! The life of drives: scanned before they are used, wiped after confirmation, unplugged and plugged, damaged, copied, moved between nodes,
//! and filled to the last MiB. Data that is not provably Drivebay's is never overwritten.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests run tools and fail loudly"
)]

mod drives {
    pub(crate) mod adopting;
    pub(crate) mod anti_affinity;
    pub(crate) mod automatic;
    pub(crate) mod clones;
    pub(crate) mod copies;
    pub(crate) mod cordon;
    pub(crate) mod failing;
    pub(crate) mod held;
    pub(crate) mod helpers;
    pub(crate) mod hotplug;
    pub(crate) mod interrupted;
    pub(crate) mod layouts;
    pub(crate) mod moves;
    pub(crate) mod moves_beside;
    pub(crate) mod moves_failing;
    pub(crate) mod placement;
    pub(crate) mod plan;
    pub(crate) mod raw;
    pub(crate) mod space;
    pub(crate) mod tables;
    pub(crate) mod wiping;
}
