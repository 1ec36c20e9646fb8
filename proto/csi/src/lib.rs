//! Rules of CSI beyond its messages that both programs share: validity of requests, supported capabilities, exact sizes, topology, and
//! health in either generation of the API. Pure.

#![forbid(unsafe_code)]
#![allow(
    missing_docs,
    reason = "a field's name and type say what it is; a comment adds a unit, a rule or a reason"
)]

mod capability;
pub mod health;
pub mod new_group_snapshot;
pub mod new_snapshot;
pub mod new_volume;
pub mod size;
pub mod source;
pub mod status;
pub mod topology;
pub mod validate;

pub use health::HealthApi;
pub use new_group_snapshot::NewGroupSnapshot;
pub use new_snapshot::{NewSnapshot, Reserve};
pub use new_volume::{Content, NewVolume};
pub use source::Source;
