//! Fingerprints of drives and volumes, and searches for patterns in them.

use std::{
    fs::File,
    hash::{DefaultHasher, Hash, Hasher},
    io::{self, Read, Seek, SeekFrom},
    os::fd::AsFd,
    path::{Path, PathBuf},
};

use nix::unistd::{Whence, lseek64};

/// Bytes of one read.
const BLOCK: usize = 64 * 1024;

/// Calls back with each block that may hold data, and its offset. Skips holes of sparse files.
fn each_block(path: &Path, mut visit: impl FnMut(u64, &[u8])) -> io::Result<()> {
    let mut file = File::open(path)?;
    let end = file.seek(SeekFrom::End(0))?;
    let mut buffer = vec![0; BLOCK];
    let mut at = 0;
    while at < end {
        // A device has no SEEK_DATA: it is read from here to its end.
        let data = match lseek64(
            file.as_fd(),
            i64::try_from(at).unwrap_or(i64::MAX),
            Whence::SeekData,
        ) {
            Ok(offset) => u64::try_from(offset).unwrap_or(0),
            Err(nix::Error::ENXIO) => break,
            Err(_) => at,
        };
        at = data - data % BLOCK as u64;
        file.seek(SeekFrom::Start(at))?;
        let wanted = BLOCK.min(usize::try_from(end - at).unwrap_or(BLOCK));
        let piece = &mut buffer[..wanted];
        file.read_exact(piece)?;
        visit(at, piece);
        at += wanted as u64;
    }
    Ok(())
}

/// True if all bytes are zero. Compares whole blocks: byte by byte it takes minutes for a drive in debug builds on an emulated machine.
pub fn is_zeros(bytes: &[u8]) -> bool {
    static ZEROS: [u8; BLOCK] = [0; BLOCK];
    bytes
        .chunks(BLOCK)
        .all(|piece| piece == &ZEROS[..piece.len()])
}

/// Returns a fingerprint of a file or device. Holes and zeros are equal.
///
/// # Errors
/// It cannot be read.
pub fn of(path: &Path) -> io::Result<u64> {
    let mut hasher = DefaultHasher::new();
    each_block(path, |at, piece| {
        if !is_zeros(piece) {
            at.hash(&mut hasher);
            piece.hash(&mut hasher);
        }
    })?;
    Ok(hasher.finish())
}

/// Returns the offsets of the blocks that contain a pattern. The pattern must not cross a 64 KiB boundary.
///
/// # Errors
/// It cannot be read.
pub fn find(path: &Path, pattern: &[u8]) -> io::Result<Vec<u64>> {
    let mut offsets = Vec::new();
    each_block(path, |at, piece| {
        if !is_zeros(piece) && piece.windows(pattern.len()).any(|window| window == pattern) {
            offsets.push(at);
        }
    })?;
    Ok(offsets)
}

/// Returns the fingerprints of several files, for comparing before and after.
///
/// # Errors
/// One of them cannot be read.
pub fn of_all(paths: &[PathBuf]) -> io::Result<Vec<(PathBuf, u64)>> {
    paths
        .iter()
        .map(|path| Ok((path.clone(), of(path)?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn holes_count_as_zeros_and_one_changed_byte_shows() {
        let dir = tempfile::tempdir().unwrap();
        let (sparse, full) = (dir.path().join("sparse"), dir.path().join("full"));
        let file = File::create(&sparse).unwrap();
        file.set_len(1 << 20).unwrap();
        std::fs::write(&full, vec![0u8; 1 << 20]).unwrap();
        assert_eq!(of(&sparse).unwrap(), of(&full).unwrap());
        file.write_all_at(b"x", 700_000).unwrap();
        assert_ne!(of(&sparse).unwrap(), of(&full).unwrap());
        assert_eq!(find(&sparse, b"x").unwrap(), [655_360]);
        assert!(find(&full, b"x").unwrap().is_empty());
        let mut bytes = vec![0; 3 * BLOCK + 7];
        assert!(is_zeros(&bytes));
        bytes[3 * BLOCK + 6] = 1;
        assert!(!is_zeros(&bytes));
    }
}
