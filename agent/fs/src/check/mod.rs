//! Read-only checks of filesystems with reliable results: a result counts only if the filesystem did not change meanwhile
//! and its log was replayed.
//!
//! `plan` decides how a volume can be checked now, `schedule` when it is due, `repeated` what several runs on a live device
//! have in common, `verdict` which conditions follow: all purely. `job` runs in the drive's worker. `crate::decode`
//! interprets a tool's exit code and output. Results outlive the agent in `state::checked`. The task that runs checks is
//! `health::checks`; `volumes::checks` ends a volume's check before a call on it.

pub mod job;
pub mod plan;
pub mod repeated;
pub mod schedule;
pub mod verdict;
