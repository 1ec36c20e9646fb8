//! Combines several runs on a live device: only a complaint of every run counts. Pure.
//!
//! csi-baremetal proposed this. It is off by default because it proves nothing: on a busy filesystem all of 40 runs
//! complained (linux.md §4), and a complaint about what is still in the log is the same in each.

use drivebay_model::CheckOutcome;

use crate::{
    decode::{Checker, complaints, decode},
    tools::idle::End,
};

/// Returns the common outcome of several runs. `ends`: at least one.
pub fn together(checker: &Checker, ends: &[End]) -> CheckOutcome {
    let mut common: Option<Vec<String>> = None;
    for end in ends {
        let End::Exited {
            code,
            stdout,
            stderr,
        } = end
        else {
            return decode(checker, end);
        };
        if *code == 0 {
            return CheckOutcome::Clean;
        }
        let messages = complaints(checker, &format!("{stdout}\n{stderr}"));
        common = Some(match common {
            None => messages,
            Some(before) => before
                .into_iter()
                .filter(|complaint| messages.contains(complaint))
                .collect(),
        });
    }
    match common.unwrap_or_default().into_iter().next() {
        None => CheckOutcome::Clean,
        Some(what) => CheckOutcome::Corrupt {
            what: format!(
                "{what} (in each of {} runs on the mounted filesystem)",
                ends.len()
            ),
            mendable: false,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::{ext4::E2FSCK, xfs::XFS_REPAIR};
    use drivebay_model::Inconclusive;

    fn run(code: i32, text: &str) -> End {
        End::Exited {
            code,
            stdout: text.to_owned(),
            stderr: String::new(),
        }
    }

    #[test]
    fn only_what_every_run_reports_counts() {
        let both = |a: &str, b: &str| together(&E2FSCK, &[run(4, a), run(4, b)]);
        assert_eq!(
            both("Inode 7 is bad", "Inode 8 is bad"),
            CheckOutcome::Clean
        );
        let CheckOutcome::Corrupt { what, .. } = both("Inode 7 is bad\nx", "y\nInode 7 is bad")
        else {
            panic!("both say that inode 7 is bad");
        };
        assert!(
            what.starts_with("Inode 7 is bad (in each of 2 runs"),
            "{what}"
        );
        assert_eq!(
            together(&E2FSCK, &[run(4, "x"), run(0, "x")]),
            CheckOutcome::Clean
        );
    }

    #[test]
    fn addresses_of_the_tool_itself_do_not_make_runs_differ() {
        let end_at = |at: &str| {
            run(
                1,
                &format!("Metadata CRC error detected at {at}, xfs_agf block 0x1/0x200"),
            )
        };
        let outcome = together(&XFS_REPAIR, &[end_at("0x1234"), end_at("0xabcd")]);
        assert!(
            matches!(outcome, CheckOutcome::Corrupt { .. }),
            "{outcome:?}"
        );
    }

    #[test]
    fn a_run_that_did_not_end_by_itself_proves_nothing() {
        let outcome = together(&E2FSCK, &[run(4, "x"), End::Killed]);
        assert!(
            matches!(
                outcome,
                CheckOutcome::Inconclusive {
                    why: Inconclusive::Killed,
                    ..
                }
            ),
            "{outcome:?}"
        );
    }
}
