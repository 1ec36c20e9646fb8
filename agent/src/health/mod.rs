//! What is known of the health of drives and volumes: evidence, and what follows from it.
//!
//! `kmsg` reads the kernel's words, `attribute` finds whose they are, `stalls` sees requests that stand
//! still, `book` keeps what was seen and says what it adds up to, all purely; `watch` is the task that feeds them, `checks` the one that has filesystems checked.

pub mod attribute;
pub mod book;
pub mod checks;
pub mod kmsg;
pub mod smart;
pub mod stalls;
pub mod watch;

pub use book::Book;
