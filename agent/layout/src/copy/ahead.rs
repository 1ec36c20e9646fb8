//! Reads pieces of a drive ahead of the thread that processes them, in a thread of its own.

use std::{
    io,
    sync::{
        Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, Sender, channel},
    },
    thread::Scope,
};

use drivebay_model::Extent;
use drivebay_sys::direct::Aligned;

use crate::device::Medium;

/// Pieces in memory: one that is processed, one that is read, and one between, so that neither
/// thread waits for the scheduler.
const PIECES: usize = 3;

/// Buffers of one reader.
#[derive(Debug)]
pub(super) struct Memory([Mutex<Aligned>; PIECES]);

impl Memory {
    /// Allocates buffers for pieces of up to `len` bytes.
    pub(super) fn new(len: u64) -> io::Result<Self> {
        let len = usize::try_from(len).map_err(io::Error::other)?;
        Ok(Self([(); PIECES].map(|()| Mutex::new(Aligned::new(len)))))
    }
}

/// A running reader. When this is dropped, its thread ends after the piece that it is reading.
#[derive(Debug)]
pub(super) struct Reader<'m> {
    memory: &'m Memory,
    filled: Receiver<(usize, io::Result<()>)>,
    free: Sender<usize>,
}

/// A piece that was read. Its buffer is reused for a later piece when this is dropped.
#[derive(Debug)]
pub(super) struct Piece<'r> {
    memory: MutexGuard<'r, Aligned>,
    index: usize,
    free: &'r Sender<usize>,
    /// Result of reading it.
    pub(super) read: io::Result<()>,
}

impl<'m> Reader<'m> {
    /// Starts a thread that reads these pieces in order.
    pub(super) fn start<'scope, 'env: 'scope, D: Medium + Sync + ?Sized>(
        scope: &'scope Scope<'scope, 'env>,
        dev: &'env D,
        memory: &'m Memory,
        pieces: impl IntoIterator<Item = Extent, IntoIter: Send + 'scope>,
    ) -> Self
    where
        'm: 'scope,
    {
        let (free, next_free) = channel();
        let (fill, filled) = channel();
        for index in 0..PIECES {
            // Fails only if the receiver is gone.
            let _ = free.send(index);
        }
        let mut pieces = pieces.into_iter();
        scope.spawn(move || {
            for index in next_free {
                let Some((piece, slot)) = pieces.next().zip(memory.0.get(index)) else {
                    break;
                };
                let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
                let read =
                    part(&mut slot, 0, piece.len).and_then(|bytes| dev.read_at(piece.start, bytes));
                drop(slot);
                if fill.send((index, read)).is_err() {
                    break;
                }
            }
        });
        Self {
            memory,
            filled,
            free,
        }
    }

    /// Returns the next piece. Fails if there is none.
    pub(super) fn next(&self) -> io::Result<Piece<'_>> {
        let next = self.filled.recv().ok();
        let next = next.and_then(|(index, read)| Some((index, read, self.memory.0.get(index)?)));
        let (index, read, slot) = next.ok_or_else(|| io::Error::other("nothing was read ahead"))?;
        Ok(Piece {
            memory: slot.lock().unwrap_or_else(PoisonError::into_inner),
            index,
            free: &self.free,
            read,
        })
    }
}

impl Piece<'_> {
    /// Returns `len` bytes, `from` the piece's start. Fails if they exceed its buffer.
    pub(super) fn bytes(&mut self, from: u64, len: u64) -> io::Result<&mut [u8]> {
        part(&mut self.memory, from, len)
    }
}

impl Drop for Piece<'_> {
    fn drop(&mut self) {
        // Fails only if the reader has ended.
        let _ = self.free.send(self.index);
    }
}

fn part(memory: &mut Aligned, from: u64, len: u64) -> io::Result<&mut [u8]> {
    let range = usize::try_from(from).ok().zip(usize::try_from(len).ok());
    let range = range.and_then(|(from, len)| Some(from..from.checked_add(len)?));
    let part = range.and_then(|range| memory.bytes_mut().get_mut(range));
    part.ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::{device::Device, fake::FakeDrive};

    const LEN: u64 = 4096;

    #[test]
    fn pieces_come_in_order_and_a_reader_that_is_not_needed_any_more_ends() {
        let drive = FakeDrive::new(20 * LEN, 4096);
        for i in 0..20 {
            drive.write_at(i * LEN, &[i as u8; LEN as usize]).unwrap();
        }
        let memory = Memory::new(LEN).unwrap();
        let piece = |i| Extent {
            start: i * LEN,
            len: LEN,
        };
        for wanted in [0, 1, 7, 20] {
            thread::scope(|scope| {
                let reader = Reader::start(scope, &drive, &memory, (0..20).rev().map(piece));
                for i in (0..20_u8).rev().take(wanted) {
                    let mut piece = reader.next().unwrap();
                    assert!(piece.read.is_ok());
                    assert_eq!(piece.bytes(0, LEN).unwrap(), [i; LEN as usize]);
                    assert!(piece.bytes(1, LEN).is_err());
                }
                assert_eq!(reader.next().is_ok(), wanted < 20);
            });
        }
    }

    #[test]
    fn a_piece_that_does_not_read_is_reported_and_the_next_one_comes() {
        let drive = FakeDrive::new(4 * LEN, 4096);
        let piece = |i| Extent {
            start: i * LEN,
            len: LEN,
        };
        drive.unreadable.set(Some(piece(1)));
        let memory = Memory::new(LEN).unwrap();
        thread::scope(|scope| {
            let reader = Reader::start(scope, &drive, &memory, (0..3).map(piece));
            for is_read in [true, false, true] {
                assert_eq!(reader.next().unwrap().read.is_ok(), is_read);
            }
        });
    }
}
