//! Reads and writes that bypass the page cache, and the aligned memory they need.

use std::{
    alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error},
    fs::File,
    io,
    ops::{Deref, DerefMut},
    os::unix::fs::FileExt,
    ptr::NonNull,
};

/// Enough for every logical sector size and DMA alignment that Linux reports.
const ALIGN: usize = 4096;
/// Largest single read or write, so that a small buffer serves a large run.
const PIECE: usize = 1 << 20;

/// Zeroed bytes at an address that O_DIRECT accepts.
pub(super) struct AlignedBuf {
    ptr: NonNull<u8>,
    layout: Layout,
}

impl AlignedBuf {
    /// At least one aligned block, `len` rounded up to whole ones.
    pub(super) fn zeroed(len: usize) -> Self {
        let layout = Layout::from_size_align(len.max(1).next_multiple_of(ALIGN), ALIGN)
            .unwrap_or(Layout::new::<[u8; ALIGN]>());
        // SAFETY: the layout's size is never zero.
        let Some(ptr) = NonNull::new(unsafe { alloc_zeroed(layout) }) else {
            handle_alloc_error(layout)
        };
        Self { ptr, layout }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: allocated with this size, initialised with zeros, owned.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.layout.size()) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.layout.size()) }
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        // SAFETY: allocated with exactly this layout.
        unsafe { dealloc(self.ptr.as_ptr(), self.layout) }
    }
}

/// Fills `buf` from the medium.
pub(super) fn read(file: &File, offset: u64, buf: &mut [u8]) -> io::Result<()> {
    let mut bounce = AlignedBuf::zeroed(buf.len().min(PIECE));
    let mut at = offset;
    for part in buf.chunks_mut(PIECE) {
        let aligned = &mut bounce[..part.len()];
        file.read_exact_at(aligned, at)?;
        part.copy_from_slice(aligned);
        at += part.len() as u64;
    }
    Ok(())
}

/// Writes `data` past the page cache.
pub(super) fn write(file: &File, offset: u64, data: &[u8]) -> io::Result<()> {
    let mut bounce = AlignedBuf::zeroed(data.len().min(PIECE));
    let mut at = offset;
    for part in data.chunks(PIECE) {
        bounce[..part.len()].copy_from_slice(part);
        write_aligned(file, at, &bounce, part.len())?;
        at += part.len() as u64;
    }
    Ok(())
}

/// Writes the first `len` bytes of an aligned buffer.
pub(super) fn write_aligned(file: &File, offset: u64, data: &AlignedBuf, len: usize) -> io::Result<()> {
    file.write_all_at(&data[..len], offset)
}
