//! Copies the bytes of a volume and compares them. Reads no records: the caller decides which
//! ranges are read and written.

use std::{io, mem, thread, time::Instant};

use drivebay_model::{
    DriveId, Extent,
    lost::{self, SECTOR},
    runs,
};
use drivebay_sys::direct::{ALIGN, is_of_medium};
use uuid::Uuid;

use super::{
    CopyError,
    ahead::{Memory, Piece, Reader},
    rate::Rate,
    spans::{Span, spans},
};
use crate::{
    device::{Device, Medium},
    error::{LayoutError, io_error},
    jobs::CopyProgress,
};

/// After a failed read the piece is read again in blocks of this many bytes: the physical sector of
/// nearly every drive.
pub(super) const BLOCK: u64 = ALIGN;

/// Number of unreadable ranges after which a step ends.
pub(super) const MOST_UNREADABLE: usize = 1024;

/// One of the two drives.
#[derive(Debug)]
pub(super) struct Side<'a, D: ?Sized> {
    pub(super) dev: &'a D,
    pub(super) id: &'a DriveId,
    /// Ranges of the volume's bytes on this drive, in the volume's order.
    pub(super) runs: &'a [Extent],
}

/// A copy from one drive to another.
#[derive(Debug)]
pub(super) struct Copy<'a, S: ?Sized, T: ?Sized> {
    pub(super) source: Side<'a, S>,
    pub(super) target: Side<'a, T>,
    /// True: the target may have the same bytes already, so they are read first, and only what
    /// differs is written.
    pub(super) may_match: bool,
    /// Ranges of the volume without data that could be lost.
    pub(super) holds_nothing: &'a [Extent],
    /// Ranges of the volume whose data is lost.
    pub(super) lost: &'a [Extent],
    /// The volume that is copied to, which marks name.
    pub(super) volume: Uuid,
}

/// Bytes that were written, and must read back.
#[derive(Debug, Clone, Copy)]
pub(super) struct Written {
    pub(super) span: Span,
    /// CRC-32 of the bytes as they were read from the source.
    pub(super) crc: u32,
}

/// Buffers for reading ahead on both drives.
#[derive(Debug)]
pub(super) struct Memories {
    pub(super) source: Memory,
    pub(super) target: Memory,
}

impl<S, T> Copy<'_, S, T>
where
    S: Medium + Sync + ?Sized,
    T: Device + Sync + ?Sized,
{
    /// Copies from this byte of the volume on until the time is over, but at least one piece. Calls
    /// `begin` before every step that may take long.
    pub(super) fn run(
        &self,
        from_bytes: u64,
        rate: &mut Rate,
        begin: &mut dyn FnMut(&str),
    ) -> Result<CopyProgress, CopyError> {
        let total = runs::bytes(self.source.runs);
        let mut progress = CopyProgress {
            done_bytes: from_bytes.min(total) / BLOCK * BLOCK,
            total_bytes: total,
            written_bytes: 0,
            unreadable: Vec::new(),
            source_writes: None,
        };
        let new = || Memory::new(rate.piece());
        let making = "making room for what is read ahead";
        let memory = Memories {
            source: new().map_err(self.source_error(making))?,
            target: new().map_err(self.target_error(making))?,
        };
        while progress.done_bytes < total {
            let (end, written) = self.copy(&mut progress, &memory, rate, begin)?;
            self.flush(begin)?;
            self.confirm(&written, &mut progress, &memory, begin)?;
            progress.done_bytes = end;
            if rate.is_over() || has_too_many(&progress.unreadable) {
                break;
            }
        }
        Ok(progress)
    }

    /// Copies the next range, or the part of it for which there is time. Returns its end, and the
    /// spans that were written.
    fn copy(
        &self,
        progress: &mut CopyProgress,
        memory: &Memories,
        rate: &mut Rate,
        begin: &mut dyn FnMut(&str),
    ) -> Result<(u64, Vec<Written>), CopyError> {
        let (from, piece) = (progress.done_bytes, rate.piece());
        let to = from.saturating_add(rate.range()).min(progress.total_bytes);
        let all = spans(self.source.runs, self.target.runs, from, to, piece);
        let mut end = from;
        let mut written = Vec::new();
        thread::scope(|scope| {
            let source = Reader::start(scope, self.source.dev, &memory.source, at_source(&all));
            let target = self
                .may_match
                .then(|| Reader::start(scope, self.target.dev, &memory.target, at_target(&all)));
            for span in &all {
                begin("copy volume");
                let mut here = source.next().map_err(self.source_error("copying"))?;
                let there = target.as_ref().map(Reader::next).transpose();
                let there = there.map_err(self.target_error("reading an earlier copy"))?;
                let mut tried = *span;
                match mem::replace(&mut here.read, Ok(())) {
                    Ok(()) => {}
                    Err(error) if is_of_medium(&error) => {
                        let unreadable = &mut progress.unreadable;
                        tried.len = self.read_blocks(*span, &mut here, unreadable, rate, begin)?;
                    }
                    Err(error) => return Err(self.source_error("copying")(error)),
                }
                self.write_span(tried, here, there, progress, &mut written)?;
                end = tried.end();
                rate.copied(tried.len);
                if tried != *span || rate.is_over() || has_too_many(&progress.unreadable) {
                    break;
                }
            }
            Ok((end, written))
        })
    }

    /// Writes the readable parts of a span, except those that the target has already according to
    /// `there`.
    pub(super) fn write_span(
        &self,
        span: Span,
        mut here: Piece<'_>,
        mut there: Option<Piece<'_>>,
        progress: &mut CopyProgress,
        written: &mut Vec<Written>,
    ) -> Result<(), CopyError> {
        let what = "reading an earlier copy";
        if let Some(there) = &mut there {
            mem::replace(&mut there.read, Ok(())).map_err(self.target_error(what))?;
        }
        for part in span.without(&progress.unreadable) {
            let from = part.at - span.at;
            let data = here.bytes(from, part.len);
            let data = data.map_err(self.source_error("copying"))?;
            if let Some(there) = &mut there {
                let there = there.bytes(from, part.len);
                if there.map_err(self.target_error(what))? == data {
                    continue;
                }
            }
            self.write(part, data, progress, written)?;
        }
        Ok(())
    }

    /// Reads a span block by block after reading it as a whole failed, and adds the unreadable
    /// blocks to `unreadable`. Blocks that need not be read become zeros or marks: a drive takes
    /// seconds for each bad one. Returns the bytes that were tried: all, unless the time is over or
    /// too many ranges are unreadable.
    fn read_blocks(
        &self,
        span: Span,
        piece: &mut Piece<'_>,
        unreadable: &mut Vec<Extent>,
        rate: &Rate,
        begin: &mut dyn FnMut(&str),
    ) -> Result<u64, CopyError> {
        // A time limit of its own: that of the step may be over already, and a drive takes seconds
        // for each unreadable block.
        let began = Instant::now();
        let mut done = 0;
        while done < span.len {
            begin("copy volume: read blocks");
            let at = span.source + done;
            let len = (BLOCK - at % BLOCK).min(span.len - done);
            let of_volume = Extent {
                start: span.at + done,
                len,
            };
            let is_given_up = self.is_given_up(of_volume);
            let read = piece.bytes(done, len).and_then(|block| match is_given_up {
                true => {
                    self.give_up(of_volume, block);
                    Ok(())
                }
                false => self.source.dev.read_at(at, block),
            });
            let is_bad = match read {
                Ok(()) => false,
                Err(error) if is_of_medium(&error) => true,
                Err(error) => return Err(self.source_error("copying")(error)),
            };
            if is_bad {
                add(unreadable, span.at + done, len);
            }
            done += len;
            let is_over = began.elapsed() >= rate.budget();
            if is_bad && (is_over || has_too_many(unreadable)) {
                break;
            }
        }
        Ok(done)
    }

    fn is_given_up(&self, block: Extent) -> bool {
        let with_data = runs::without(&[block], self.holds_nothing);
        runs::without(&with_data, self.lost).is_empty()
    }

    /// Fills a block with marks where data is lost, else with zeros.
    fn give_up(&self, block: Extent, bytes: &mut [u8]) {
        let sectors = (block.start..).step_by(SECTOR as usize);
        for (start, sector) in sectors.zip(bytes.chunks_mut(SECTOR as usize)) {
            let here = Extent { start, len: SECTOR };
            match self.lost.iter().any(|lost| lost.overlap(here).is_some()) {
                true => sector.copy_from_slice(&lost::mark(self.volume, start)),
                false => sector.fill(0),
            }
        }
    }

    fn write(
        &self,
        span: Span,
        data: &[u8],
        progress: &mut CopyProgress,
        written: &mut Vec<Written>,
    ) -> Result<(), CopyError> {
        let done = self.target.dev.write_at(span.target, data);
        done.map_err(self.target_error("writing a copy"))?;
        progress.written_bytes += span.len;
        let crc = crc32fast::hash(data);
        written.push(Written { span, crc });
        Ok(())
    }

    pub(super) fn flush(&self, begin: &mut dyn FnMut(&str)) -> Result<(), CopyError> {
        begin("copy volume: flush");
        let done = self.target.dev.flush();
        done.map_err(self.target_error("flushing a copy"))
    }

    pub(super) fn source_error(&self, what: &'static str) -> impl FnOnce(io::Error) -> CopyError {
        side_error(self.source.id, what, CopyError::Source)
    }

    pub(super) fn target_error(&self, what: &'static str) -> impl FnOnce(io::Error) -> CopyError {
        side_error(self.target.id, what, CopyError::Target)
    }
}

fn side_error(
    id: &DriveId,
    what: &str,
    side: fn(LayoutError) -> CopyError,
) -> impl FnOnce(io::Error) -> CopyError + use<> {
    let error = io_error(id, what);
    move |source| side(error(source))
}

pub(super) fn at_source(spans: &[Span]) -> impl Iterator<Item = Extent> + Send {
    spans.iter().map(|span| Extent {
        start: span.source,
        len: span.len,
    })
}

pub(super) fn at_target(spans: &[Span]) -> impl Iterator<Item = Extent> + Send {
    spans.iter().map(|span| Extent {
        start: span.target,
        len: span.len,
    })
}

fn has_too_many(unreadable: &[Extent]) -> bool {
    unreadable.len() >= MOST_UNREADABLE
}

/// Adds a range, which must be behind all others; joins it with the last one if they touch.
fn add(ranges: &mut Vec<Extent>, start: u64, len: u64) {
    match ranges.last_mut() {
        Some(last) if last.end() == start => last.len += len,
        _ => ranges.push(Extent { start, len }),
    }
}
