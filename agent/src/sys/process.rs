//! Worker processes: start clean, signal, reap, and find again after a restart.
