//! Maps the bytes of a volume to both drives of a copy. Pure.

use drivebay_model::{Extent, runs};

use crate::plan;

/// Bytes of a volume that are contiguous on both drives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    /// Offset in the volume, bytes.
    pub(super) at: u64,
    /// Offset on the source drive, bytes.
    pub(super) source: u64,
    /// Offset on the target drive, bytes.
    pub(super) target: u64,
    pub(super) len: u64,
}

impl Span {
    pub(super) fn end(self) -> u64 {
        self.at.saturating_add(self.len)
    }

    /// Returns the parts that are in none of these ranges of the volume, in order.
    pub(super) fn without(self, ranges: &[Extent]) -> Vec<Self> {
        let whole = Extent {
            start: self.at,
            len: self.len,
        };
        let parts = runs::without(&[whole], ranges).into_iter();
        let part = |part: Extent| Self {
            at: part.start,
            source: self.source + (part.start - self.at),
            target: self.target + (part.start - self.at),
            len: part.len,
        };
        parts.map(part).collect()
    }
}

/// Splits the bytes `from..to` of a volume into spans of at most `piece` bytes, in order and
/// without gaps. They end before `to` if the runs of either drive do.
pub(super) fn spans(
    source: &[Extent],
    target: &[Extent],
    from: u64,
    to: u64,
    piece: u64,
) -> Vec<Span> {
    let mut spans = Vec::new();
    let mut at = from;
    while at < to
        && piece > 0
        && let (Some(here), Some(there)) = (plan::at(source, at), plan::at(target, at))
    {
        let len = here.len.min(there.len).min(to - at).min(piece);
        spans.push(Span {
            at,
            source: here.start,
            target: there.start,
            len,
        });
        at += len;
    }
    spans
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn runs() -> impl Strategy<Value = Vec<Extent>> {
        let run = (0_u64..1000, 0_u64..20).prop_map(|(start, len)| Extent { start, len });
        prop::collection::vec(run, 0..6)
    }

    /// Offset on the drive of each byte of a volume.
    fn bytes(runs: &[Extent]) -> Vec<u64> {
        runs.iter().flat_map(|run| run.start..run.end()).collect()
    }

    proptest! {
        #[test]
        fn spans_cover_each_byte_once_and_stay_in_one_run_on_both_drives(
            source in runs(), target in runs(), from in 0_u64..50, len in 0_u64..80, piece in 1_u64..9,
        ) {
            let (here, there) = (bytes(&source), bytes(&target));
            let to = from + len;
            let mut at = from;
            for span in spans(&source, &target, from, to, piece) {
                prop_assert_eq!(span.at, at);
                prop_assert!((1..=piece).contains(&span.len));
                for i in 0..span.len {
                    let byte = (span.at + i) as usize;
                    prop_assert_eq!(here[byte], span.source + i);
                    prop_assert_eq!(there[byte], span.target + i);
                }
                at = span.end();
            }
            prop_assert_eq!(at, to.min(here.len().min(there.len()) as u64).max(from));
        }
    }

    #[test]
    fn unreadable_ranges_are_cut_out_of_a_span_on_both_drives() {
        let span = Span {
            at: 100,
            source: 1000,
            target: 5000,
            len: 50,
        };
        let bad = |start, len| Extent { start, len };
        let part = |at, len| Span {
            at,
            source: 900 + at,
            target: 4900 + at,
            len,
        };
        assert_eq!(span.without(&[bad(0, 100), bad(150, 9)]), [span]);
        assert_eq!(
            span.without(&[bad(90, 20), bad(120, 5)]),
            [part(110, 10), part(125, 25)]
        );
        assert_eq!(span.without(&[bad(100, 50)]), []);
    }
}
