//! Drives that answer, late. Pure: the kernel's counters of each minute come in, what each drive should have taken and which
//! drives are slow comes out.
//!
//! There are no thresholds in milliseconds. A drive is compared with the other drives of its kind on this node (IASO, ATC '19;
//! PERSEUS, FAST '23): `minute` is what the kernel counted and the load that follows from it, `law` what a request costs by
//! the medium's physics, `reference` what the peers took for such a load, `tracker` how long a drive has been outside, and
//! `comparison` all drives together. `report` is what metrics and commands show.

mod comparison;
mod law;
mod minute;
mod reference;
mod report;
mod tracker;

pub use comparison::{Comparison, Input, Kept, Kind, PEERS};
pub use minute::{Counters, Direction, Flow, MIN_REQUESTS, Minute, Slice};
pub use report::{LatestSpeeds, Peers, Side, Slowdown, Speed, rounded};
pub use tracker::{Outcome, Tracker};

#[cfg(test)]
mod tests;
