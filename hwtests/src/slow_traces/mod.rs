//! Made-up minutes of drives that are healthy, loaded or slow, and how well the agent tells them apart.
//!
//! `device` is a drive: how long a request takes by its medium, its queue, its state and its slowdown. `load` is what is asked of
//! it. `scenario` puts several drives of a node together and makes one of them slow. `evaluate` feeds the agent's own
//! comparison with the minutes and counts what it finds.
//!
//! The generator works second by second with queueing formulas, and shares no code and no constant with the agent's model.

mod device;
mod evaluate;
mod load;
mod scenario;

pub use evaluate::{Score, Table, evaluate, replay};
pub use scenario::{Scenario, Shape, Slowness};
