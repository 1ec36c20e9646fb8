//! Finding drives, on real kernels' devices: each kind is known for what it is, whatever is in use is refused, what
//! comes and goes is seen, and looking disturbs nobody.
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
