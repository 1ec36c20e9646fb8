//! The `partition` layout at work: looks at a drive, completes what was interrupted, and makes
//! each change in an order that a crash at any point cannot turn into a loss.
//!
//! Every change is: intent in the label, durable; table, backup copy first; kernel (BLKPG);
//! result in the label, durable. `session` reads and repairs, `change` changes; both are written
//! over `Device` and `Kernel`, so that tests cut the power of a drive in memory after every
//! write. `claim` makes a drive ours, `begun` knows what an interrupted claim left before its table.

#[cfg(test)]
mod bad_blocks;
mod begun;
mod change;
pub(super) mod claim;
#[cfg(test)]
mod move_tests;
#[cfg(test)]
mod refusals;
mod session;
#[cfg(test)]
mod tests;

pub use session::Session;
#[cfg(test)]
mod zeroing_tests;
