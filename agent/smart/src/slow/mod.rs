//! Detection of slow drives. Pure: takes the kernel's counters of each minute, and returns the latency that each drive should have had and
//! which drives are slow.
//!
//! There are no thresholds in milliseconds. A drive is compared with the other drives of its kind on this node (IASO, ATC '19; PERSEUS,
//! FAST '23): `minute` has the kernel's counters and the load that derives from them, `law` the cost of a request by the medium's physics,
//! `reference` the latency of the peers at such a load, `tracker` the evidence against one drive, and `comparison` all drives together.
//! `report` is shown by metrics and commands.

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
