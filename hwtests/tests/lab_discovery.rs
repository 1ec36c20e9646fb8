//! Discovery of drives, on devices of real kernels: each kind is identified, a drive in use is refused, hotplug is detected, and scans have
//! no side effects.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests run tools and fail loudly"
)]

mod lab_discovery {
    pub(crate) mod host;
    pub(crate) mod kinds;
    pub(crate) mod pod;
    pub(crate) mod quiet;
    pub(crate) mod refused;
    pub(crate) mod rounds;
    pub(crate) mod stand;
}
