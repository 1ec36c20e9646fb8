//! Findings about zeroing a drive, from what is recorded on the drive. Pure.

use drivebay_model::{Drive, Finding, Verdict, Zeroing, finding::Code};

/// Adds findings about zeroing to the drive's health. A drive that does not keep zeros gets the verdict BAD.
pub(super) fn judge(drive: &mut Drive) {
    let zeroing = drive
        .contents
        .as_ref()
        .map(|contents| contents.space.zeroing);
    let health = &mut drive.health;
    match zeroing {
        None | Some(Zeroing::Command) => {}
        Some(Zeroing::Written) => health.conditions.push(Finding::new(
            Code::ZeroCommandIgnored,
            "it answers success to commands to zero and keeps what it had; Drivebay writes zeros to it instead, which takes \
             longer. Look for newer firmware",
        )),
        Some(Zeroing::Fails) => {
            health.verdict = Verdict::Bad;
            health.findings.push(Finding::new(
                Code::ZerosNotKept,
                "zeros that were written to it did not read back, so what it is given may be lost and deleted data stays \
                 readable; deleted volumes on it are not erased any more. Move its volumes to other drives and replace it",
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drivebay_model::{DriveState, samples};

    #[test]
    fn a_drive_that_ignores_commands_to_zero_has_a_condition_and_one_that_keeps_no_zeros_is_bad() {
        let judged = |zeroing| {
            let mut contents = samples::contents(1, 1, vec![], 0);
            contents.space.zeroing = zeroing;
            let mut drive = samples::drive("sda", DriveState::Claimed, Some(contents));
            judge(&mut drive);
            drive.health
        };
        assert_eq!(judged(Zeroing::Command), Default::default());
        let written = judged(Zeroing::Written);
        assert!(written.verdict.takes_new_volumes());
        assert!(written.conditions[0].is(Code::ZeroCommandIgnored));
        let fails = judged(Zeroing::Fails);
        assert!(!fails.verdict.takes_new_volumes());
        assert!(fails.findings[0].is(Code::ZerosNotKept));
    }
}
