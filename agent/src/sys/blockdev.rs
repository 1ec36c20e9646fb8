//! Block devices: direct reads and writes, sizes, flock, BLKPG, zeroing.
