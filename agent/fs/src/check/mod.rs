//! Read-only checks of filesystems, made trustworthy: an answer is believed only where the filesystem stood still and
//! its log was replayed.
//!
//! `plan` says how a volume can be checked now, `schedule` when it is due, `repeated` what several runs on a live device have in common, `verdict` the conditions that follow: all purely. `job` is what runs in the drive's
//! worker. What a tool's exit code and text mean is in `crate::decode`. Results outlive the agent in `state::checked`. The task that
//! drives them is `health::checks`; that a call on a volume ends its check first is in `volumes::checks`.

pub mod job;
pub mod plan;
pub mod repeated;
pub mod schedule;
pub mod verdict;
