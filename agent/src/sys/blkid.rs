//! libblkid: low-level probing of one device, superblocks and tables, with forced GPT.
