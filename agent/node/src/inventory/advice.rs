//! Advice to wipe a drive. Given only here, and only for a drive that was read and on which nothing of ours was
//! recognised. Pure.

use drivebay_model::{Drive, DriveState, Reject, RejectCode};

/// Returns the reason as it is shown, with the advice to wipe the drive where that makes it usable.
pub(super) fn detail(drive: &Drive, reject: &Reject) -> String {
    let Reject { code, detail } = reject;
    match is_cured_by_wiping(*code) && !may_be_ours(drive) {
        true => format!("{detail}; wipe the drive if its data is not needed"),
        false => detail.clone(),
    }
}

/// True if something of ours was recognised on the drive, or may be there and could not be read.
fn may_be_ours(drive: &Drive) -> bool {
    use RejectCode as Code;
    drive.state != DriveState::Rejected
        || drive.contents.is_some()
        || drive.trouble.is_some()
        || drive.rejects.iter().any(|reject| {
            matches!(
                reject.code,
                Code::OursElsewhere
                    | Code::OursDamaged
                    | Code::SectorSizeChanged
                    | Code::DuplicateIdentity
                    | Code::Unreadable
                    | Code::ProbeFailed
            )
        })
}

fn is_cured_by_wiping(code: RejectCode) -> bool {
    use RejectCode as Code;
    matches!(
        code,
        Code::PartitionTable
            | Code::HasPartitions
            | Code::GptDamaged
            | Code::Filesystem
            | Code::LvmPv
            | Code::RaidMember
            | Code::Luks
            | Code::Bitlocker
            | Code::Zfs
            | Code::Bluestore
            | Code::Bcache
            | Code::Swap
            | Code::Jbd
            | Code::Vdo
            | Code::Stratis
            | Code::Drbd
            | Code::OtherSignature
            | Code::Ambivalent
            | Code::NotBlank
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use drivebay_model::samples;

    fn drive(codes: &[RejectCode]) -> Drive {
        let mut drive = samples::drive("sda", DriveState::Rejected, None);
        let rejects = codes.iter().map(|&code| Reject {
            code,
            detail: "x".into(),
        });
        drive.rejects = rejects.collect();
        drive
    }

    fn details(drive: &Drive) -> String {
        let all = drive.rejects.iter().map(|one| detail(drive, one));
        all.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn wiping_is_advised_only_where_nothing_of_ours_was_recognised_and_everything_was_read() {
        use RejectCode as Code;
        assert!(details(&drive(&[Code::Filesystem])).contains("wipe the drive"));
        assert!(details(&drive(&[Code::NotSelected, Code::NotBlank])).contains("wipe"));
        assert!(!details(&drive(&[Code::NotSelected, Code::SystemDrive])).contains("wipe"));
        for ours in [
            Code::OursElsewhere,
            Code::OursDamaged,
            Code::SectorSizeChanged,
            Code::DuplicateIdentity,
            Code::Unreadable,
            Code::ProbeFailed,
        ] {
            let all = [
                Code::Filesystem,
                Code::HasPartitions,
                Code::GptDamaged,
                Code::NotBlank,
                ours,
            ];
            assert!(!details(&drive(&all)).contains("wipe"), "{ours}");
        }
        let mut read = drive(&[Code::HasPartitions]);
        read.contents = Some(samples::contents(1, 1, vec![], 0));
        assert!(!details(&read).contains("wipe"));
    }
}
