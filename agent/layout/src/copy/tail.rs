//! The end of a copy that is larger than its original: zeros.

use drivebay_model::{DriveId, Extent, MIB, Zeroing};

use super::{CopyError, rate::Rate};
use crate::{device::Device, jobs::CopyProgress, plan, space};

/// Zeroed and read back at once, bytes.
const PIECE: u64 = 64 * MIB;

/// Target of a copy: the place that was created for it, which may be larger than its original.
pub(super) struct Tail<'a, D: ?Sized> {
    pub(super) dev: &'a D,
    pub(super) id: &'a DriveId,
    /// In the volume's order.
    pub(super) runs: &'a [Extent],
    pub(super) zeroing: Zeroing,
}

impl<D: Device + ?Sized> Tail<'_, D> {
    /// Zeroes the bytes behind the first `copied` ones once those are copied, for the time that `rate` allows, but at least one piece.
    /// Bytes before `from`, where the step began, were zeroed by an earlier step.
    pub(super) fn zero(
        &self,
        copied: u64,
        from: u64,
        progress: &mut CopyProgress,
        rate: &mut Rate,
        begin: &mut dyn FnMut(&str),
    ) -> Result<(), CopyError> {
        progress.total_bytes = drivebay_model::runs::bytes(self.runs);
        if progress.done_bytes < copied || !progress.unreadable.is_empty() {
            return Ok(());
        }
        progress.done_bytes = progress.done_bytes.max(from.min(progress.total_bytes));
        let what = "zeroing the end of a copy";
        while let Some(left) = plan::at(self.runs, progress.done_bytes) {
            begin("copy volume: zero its end");
            let run = Extent {
                len: left.len.min(PIECE),
                ..left
            };
            space::make_zeros(self.dev, self.id, run, self.zeroing, what)
                .map_err(CopyError::Target)?;
            progress.done_bytes += run.len;
            progress.written_bytes += run.len;
            rate.copied(run.len);
            if rate.is_over() {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{device::Medium, fake::FakeDrive};

    #[test]
    fn what_lies_behind_the_original_becomes_zeros_and_nothing_before_it() {
        let drive = FakeDrive::new(16 * MIB, 512);
        let run = Extent {
            start: MIB,
            len: 4 * MIB,
        };
        drive.write_at(run.start, &vec![7; 4 << 20]).unwrap();
        let id = DriveId("wwn-1".into());
        let tail = Tail {
            dev: &drive,
            id: &id,
            runs: &[run],
            zeroing: Zeroing::Command,
        };
        let mut progress = CopyProgress {
            done_bytes: MIB,
            total_bytes: 3 * MIB,
            written_bytes: 0,
            unreadable: Vec::new(),
            source_writes: None,
        };
        let mut rate = Rate::new(60_000, None);
        // Not before all of the original is copied.
        tail.zero(3 * MIB, 0, &mut progress, &mut rate, &mut |_| {})
            .unwrap();
        assert_eq!((progress.done_bytes, progress.total_bytes), (MIB, 4 * MIB));
        progress.done_bytes = 3 * MIB;
        tail.zero(3 * MIB, MIB, &mut progress, &mut rate, &mut |_| {})
            .unwrap();
        assert_eq!(progress.done_bytes, 4 * MIB);
        let mut read = vec![0; 4 << 20];
        drive.read_at(run.start, &mut read).unwrap();
        let (before, behind) = read.split_at(3 << 20);
        assert!(before.iter().all(|byte| *byte == 7));
        assert!(behind.iter().all(|byte| *byte == 0));
    }

    #[test]
    fn zeroing_that_takes_several_steps_goes_on_where_the_last_one_ended() {
        let drive = FakeDrive::new(16 * MIB, 512);
        let id = DriveId("wwn-1".into());
        let run = |start| Extent {
            start: start * MIB,
            len: 2 * MIB,
        };
        let runs = [run(1), run(4), run(8)];
        let tail = Tail {
            dev: &drive,
            id: &id,
            runs: &runs,
            zeroing: Zeroing::Command,
        };
        let mut from = MIB;
        for expected in [2, 4, 6] {
            // Bytes before `from` must not be zeroed again.
            drive.write_at(MIB, &vec![7; 15 << 20]).unwrap();
            let mut progress = CopyProgress {
                done_bytes: MIB,
                total_bytes: MIB,
                written_bytes: 0,
                unreadable: Vec::new(),
                source_writes: None,
            };
            // No time left: one piece, which ends at the end of its run.
            let mut rate = Rate::new(0, None);
            tail.zero(MIB, from, &mut progress, &mut rate, &mut |_| {})
                .unwrap();
            assert_eq!(progress.done_bytes, expected * MIB);
            assert_eq!(progress.written_bytes, progress.done_bytes - from);
            let byte = |of_volume: u64| {
                let at = plan::at(&runs, of_volume).unwrap();
                let mut sector = [0; 512];
                drive.read_at(at.start, &mut sector).unwrap();
                sector[0]
            };
            assert_eq!([MIB - 512, from - 512].map(byte), [7, 7]);
            let done = progress.done_bytes;
            assert_eq!([from, done - 512].map(byte), [0, 0]);
            from = done;
        }
    }
}
