//! /proc/self/mountinfo (or another process's), parsed.
