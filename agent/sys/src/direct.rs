//! Reads and writes that bypass the page cache, and the aligned memory they need.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
};

/// Alignment of start, length and memory of direct reads and writes, in bytes: enough for every logical sector size and DMA alignment that
/// Linux reports.
pub const ALIGN: u64 = 4096;
/// Bytes of the largest single read or write through a bounce buffer.
const PIECE: usize = 1 << 20;

/// Memory that begins at a multiple of `ALIGN`.
#[derive(Debug)]
pub struct Aligned {
    memory: Vec<u8>,
    skip: usize,
    len: usize,
}

impl Aligned {
    /// Allocates `len` bytes of zeros, which begin at a multiple of `ALIGN`.
    pub fn new(len: usize) -> Self {
        let align = ALIGN as usize;
        let memory = vec![0; len + align];
        let skip = memory.as_ptr().align_offset(align).min(align);
        Self { memory, skip, len }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.skip..self.skip + self.len]
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.skip..self.skip + self.len]
    }
}

/// Reads a block device by its node, past the page cache. Offset and length are multiples of `ALIGN`.
pub fn read_node(node: &Path, offset: u64, len: usize) -> io::Result<Vec<u8>> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECT | libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK)
        .open(node)?;
    let mut bytes = vec![0; len];
    read(&file, offset, &mut bytes)?;
    Ok(bytes)
}

/// True if direct I/O can use this memory without a bounce buffer.
fn is_aligned(memory: &[u8]) -> bool {
    memory.as_ptr().align_offset(ALIGN as usize) == 0
}

/// Fills `buf` from the medium: in one read without a copy if `buf` is aligned (`Aligned`), else in pieces of `PIECE`.
pub(super) fn read(file: &File, offset: u64, buf: &mut [u8]) -> io::Result<()> {
    if is_aligned(buf) {
        return file.read_exact_at(buf, offset);
    }
    let mut bounce = Aligned::new(buf.len().min(PIECE));
    let mut at = offset;
    for part in buf.chunks_mut(PIECE) {
        let aligned = &mut bounce.bytes_mut()[..part.len()];
        file.read_exact_at(aligned, at)?;
        part.copy_from_slice(aligned);
        at += part.len() as u64;
    }
    Ok(())
}

/// Writes `data` past the page cache: in one write without a copy if it is aligned (`Aligned`), else in pieces of `PIECE`.
pub(super) fn write(file: &File, offset: u64, data: &[u8]) -> io::Result<()> {
    if is_aligned(data) {
        return file.write_all_at(data, offset);
    }
    let mut bounce = Aligned::new(data.len().min(PIECE));
    let mut at = offset;
    for part in data.chunks(PIECE) {
        let aligned = &mut bounce.bytes_mut()[..part.len()];
        aligned.copy_from_slice(part);
        file.write_all_at(aligned, at)?;
        at += part.len() as u64;
    }
    Ok(())
}

/// Writes zeros over a run, past the page cache. Offset and length in bytes.
pub(super) fn write_zeros(file: &File, offset: u64, len: u64) -> io::Result<()> {
    let zeros = Aligned::new(usize::try_from(len).unwrap_or(PIECE).min(PIECE));
    let mut done = 0;
    while done < len {
        let piece = usize::try_from(len - done)
            .unwrap_or(PIECE)
            .min(zeros.bytes().len());
        file.write_all_at(&zeros.bytes()[..piece], offset + done)?;
        done += piece as u64;
    }
    Ok(())
}

/// True for errors that the kernel reports for an unreadable range of the medium; others concern the device or the call.
pub fn is_of_medium(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EIO | libc::ENODATA | libc::EREMOTEIO | libc::EILSEQ | libc::EBADMSG)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_aligned_and_as_long_as_requested() {
        for len in [0, 1, 512, 1 << 20] {
            let buffer = Aligned::new(len);
            assert_eq!(buffer.bytes().len(), len);
            assert_eq!(buffer.bytes().as_ptr() as usize % ALIGN as usize, 0);
        }
    }

    #[test]
    fn a_run_longer_than_a_piece_is_read_written_and_zeroed_whole() {
        let file = tempfile::tempfile().unwrap();
        let data: Vec<u8> = (0..2 * PIECE + 512)
            .map(|at| (at % 251) as u8 + 1)
            .collect();
        write(&file, 512, &data).unwrap();
        let mut back = vec![0; data.len()];
        read(&file, 512, &mut back).unwrap();
        assert!(back == data);
        // The same into aligned memory, without a copy.
        let mut aligned = Aligned::new(data.len());
        read(&file, 512, aligned.bytes_mut()).unwrap();
        assert!(aligned.bytes() == data);
        aligned.bytes_mut().reverse();
        write(&file, 512, aligned.bytes()).unwrap();
        read(&file, 512, &mut back).unwrap();
        assert!(back.iter().eq(data.iter().rev()));
        aligned.bytes_mut().reverse();
        write(&file, 512, aligned.bytes()).unwrap();
        write_zeros(&file, 1024, data.len() as u64 - 1024).unwrap();
        read(&file, 512, &mut back).unwrap();
        assert_eq!(back[..512], data[..512]);
        assert!(back[512..data.len() - 512].iter().all(|byte| *byte == 0));
        assert_eq!(back[data.len() - 512..], data[data.len() - 512..]);
    }
}
