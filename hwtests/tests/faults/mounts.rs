//! Mounts that others take away or put in the way.
