//! Workers: short-lived child processes that do everything that can block on a drive.
//!
//! A thread stuck in D state keeps its whole process alive after SIGKILL, with its locks and ports;
//! a stuck child process leaves the agent able to run and to be restarted. Each drive has slots
//! (`Slot`), and each slot at most one child per lane. `job` defines a unit of work and `protocol`
//! its messages; `pool` is the agent's side and `child` the worker's, which gets the table of jobs.
//! Behind the pool, `table` decides (which job waits, which one gets Busy or Stuck), `slot` runs
//! the jobs of one slot, `handle` is one running child, and `notes` finds it again after a restart
//! of the agent; `key` addresses a worker. Workers are forked by a server (`sys::worker_server`),
//! so that they share memory.

#![allow(
    missing_docs,
    reason = "a field's name and type say what it is; a comment adds a unit, a rule or a reason"
)]
#![cfg_attr(test, allow(clippy::expect_used, clippy::panic, clippy::unwrap_used))]
#![forbid(unsafe_code)]

pub mod child;
#[cfg(debug_assertions)]
pub mod drill;
#[cfg(test)]
#[path = "../../../proto/golden.rs"]
mod golden;
mod handle;
pub mod job;
mod key;
pub mod notes;
pub mod pool;
pub mod protocol;
pub mod read;
mod slot;
mod table;
mod terms;

pub use job::{Context, Job};
pub use key::{JobTarget, Lane, WorkerKey};
pub use pool::{Pool, PoolConfig, RunError, SPARE, Slot, SlotStatus};
