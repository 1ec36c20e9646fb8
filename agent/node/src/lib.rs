//! A node: which drives it has and which volumes are on them, what it remembers of those that are away, and what is done
//! with a volume. Decisions follow from drives' contents and the table of mounts.

pub mod inventory;
pub mod keeper;
pub mod lock;
pub mod offline;
pub mod preparation;
pub mod state;
pub mod survey_loop;
pub mod tasks;
pub mod volumes;
