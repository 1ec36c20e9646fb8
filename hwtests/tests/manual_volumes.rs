//! Hosts without an orchestrator: volumes are created, mounted, expanded and deleted by commands, beside CSI, and drives are released.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests run tools and fail loudly"
)]

mod manual_volumes {
    pub(crate) mod beside_csi;
    pub(crate) mod drives;
    pub(crate) mod erased;
    pub(crate) mod helpers;
    pub(crate) mod kept;
    pub(crate) mod life;
    pub(crate) mod nomad;
    pub(crate) mod quarantine;
    pub(crate) mod shown;
}
