//! The page in a real browser: drawn, live, searched, used by keyboard alone, in both themes and every width, with hostile names, and with
//! ten thousand drives. Times and memory are printed.
//!
//! Data is made up by `cargo run -p drivebay-page --example fake`, whose server and assets are the real ones;
//! `real` has the real controller with simulated nodes. DRIVEBAY_PAGE_SHOTS: a directory for screenshots.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests run tools and fail loudly"
)]

mod page {
    pub(crate) mod access;
    pub(crate) mod fleet;
    pub(crate) mod history;
    pub(crate) mod hostile;
    pub(crate) mod keyboard;
    pub(crate) mod live;
    pub(crate) mod load;
    pub(crate) mod look;
    pub(crate) mod partial;
    pub(crate) mod real;
    pub(crate) mod server;
}
