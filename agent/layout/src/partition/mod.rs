//! The `partition` layout: reads a drive, completes interrupted changes, and makes each change in
//! an order in which a crash at any point loses nothing.
//!
//! Each change writes the intent to the label, durably; the table, backup copy first; the kernel's
//! partitions (BLKPG); and the result to the label, durably. `session` reads and repairs, `change`
//! changes; both use `Device` and `Kernel`, so that tests can cut the power of a drive in memory
//! after every write. `claim` claims a drive, `begun` recognises a claim that was interrupted
//! before its table.

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
pub(super) mod tests;

pub use session::Session;
#[cfg(test)]
mod zeroing_tests;
