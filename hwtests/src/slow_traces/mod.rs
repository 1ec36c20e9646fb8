//! Generated minutes of drives that are healthy, loaded or slow, and the agent's accuracy in distinguishing them.
//!
//! `device` models a drive: the duration of a request by its medium, queue, state and slowdown. `load` generates its requests. `scenario`
//! combines several drives of a node and makes one of them slow. `evaluate` runs the agent's own comparison on the minutes and counts its
//! findings.
//!
//! The generator works second by second with queueing formulas, and shares no code and no constant with the agent's model.

mod device;
mod evaluate;
mod load;
mod scenario;

pub use evaluate::{Score, Table, evaluate, replay};
pub use scenario::{Scenario, Shape, Slowness};
