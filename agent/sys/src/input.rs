//! Input of a command: a file, or standard input.

use std::{
    fs::{self, File},
    io::{self, Read},
    os::unix::fs::FileTypeExt,
    path::Path,
};

/// True for a device node: a namespace or disk, or an NVMe controller (a character device).
pub fn is_device(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| {
        let kind = metadata.file_type();
        kind.is_block_device() || kind.is_char_device()
    })
}

/// Reads at most `most` bytes of a file, or of standard input if `path` is None.
pub fn read(path: Option<&Path>, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    match path {
        Some(path) => File::open(path)?.take(most).read_to_end(&mut bytes)?,
        None => io::stdin().lock().take(most).read_to_end(&mut bytes)?,
    };
    Ok(bytes)
}
