//! Mounting and unmounting through system calls, and what kind of thing a path is.
