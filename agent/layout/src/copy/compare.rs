//! Compares a copy with its original, both read from their drives again.
//!
//! The source is read twice, so a copy takes at least twice as long as one pass over it; so does
//! `dd` where its reads and writes do not overlap.

use std::{mem, thread};

use drivebay_sys::direct::is_of_medium;

use super::{
    CopyError,
    ahead::Reader,
    engine::{Copy, Memories, Written, at_source, at_target},
    spans::Span,
};
use crate::{
    device::{Device, Medium},
    jobs::CopyProgress,
};

impl<S, T> Copy<'_, S, T>
where
    S: Medium + Sync + ?Sized,
    T: Device + Sync + ?Sized,
{
    /// Compares the written spans with the source. Spans that differ are written once more; errs
    /// with `Differs` if one still does.
    pub(super) fn confirm(
        &self,
        written: &[Written],
        progress: &mut CopyProgress,
        memory: &Memories,
        begin: &mut dyn FnMut(&str),
    ) -> Result<(), CopyError> {
        let differing = self.compare(written, memory, begin)?;
        if differing.is_empty() {
            return Ok(());
        }
        for (_, at) in &differing {
            tracing::warn!(drive = %self.target.id, at, "copied bytes do not read back; writing them once more");
        }
        let spans: Vec<Span> = differing.into_iter().map(|(span, _)| span).collect();
        let mut again = Vec::new();
        thread::scope(|scope| {
            let reader = Reader::start(scope, self.source.dev, &memory.source, at_source(&spans));
            for span in &spans {
                begin("copy volume: write again");
                let what = "copying again";
                let mut piece = reader.next().map_err(self.source_error(what))?;
                mem::replace(&mut piece.read, Ok(())).map_err(self.source_error(what))?;
                self.write_span(*span, piece, None, progress, &mut again)?;
            }
            Ok(())
        })?;
        self.flush(begin)?;
        match self.compare(&again, memory, begin)?.first() {
            None => Ok(()),
            Some((_, at)) => Err(CopyError::Differs {
                drive: self.target.id.to_string(),
                at: *at,
            }),
        }
    }

    /// Reads the written spans from both drives again. Returns those that differ, each with the
    /// volume's first byte that does.
    fn compare(
        &self,
        written: &[Written],
        memory: &Memories,
        begin: &mut dyn FnMut(&str),
    ) -> Result<Vec<(Span, u64)>, CopyError> {
        let (of_source, of_target) = ("comparing with a copy", "reading a copy back");
        let spans: Vec<Span> = written.iter().map(|written| written.span).collect();
        let mut differing = Vec::new();
        thread::scope(|scope| {
            let source = Reader::start(scope, self.source.dev, &memory.source, at_source(&spans));
            let target = Reader::start(scope, self.target.dev, &memory.target, at_target(&spans));
            for Written { span, crc } in written {
                begin("copy volume: compare");
                let mut here = source.next().map_err(self.source_error(of_source))?;
                let mut there = target.next().map_err(self.target_error(of_target))?;
                mem::replace(&mut there.read, Ok(())).map_err(self.target_error(of_target))?;
                let copied = there.bytes(0, span.len);
                let copied = copied.map_err(self.target_error(of_target))?;
                let at = match mem::replace(&mut here.read, Ok(())) {
                    Ok(()) => {
                        let original = here.bytes(0, span.len);
                        first_difference(original.map_err(self.source_error(of_source))?, copied)
                    }
                    // The source was read once, so its bytes are not lost if it cannot be read
                    // again: the checksum decides.
                    Err(error) if is_of_medium(&error) => {
                        (crc32fast::hash(copied) != *crc).then_some(0)
                    }
                    Err(error) => return Err(self.source_error(of_source)(error)),
                };
                differing.extend(at.map(|at| (*span, span.at + at)));
            }
            Ok(differing)
        })
    }
}

fn first_difference(a: &[u8], b: &[u8]) -> Option<u64> {
    if a == b {
        return None;
    }
    let at = a.iter().zip(b).position(|(a, b)| a != b);
    Some(at.unwrap_or(0) as u64)
}
