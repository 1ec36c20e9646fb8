use super::*;
use drivebay_model::{Cause, Placement};
use drivebay_worker::JobTarget;

fn cause() -> Cause {
    Cause::from(std::io::Error::other("no"))
}

fn drive() -> String {
    "sda".to_owned()
}

fn no_space() -> RunError<LayoutError> {
    RunError::Job(LayoutError::NoSpace {
        drive: drive(),
        needed: 2,
        largest: 1,
    })
}

fn not_zeroed() -> RunError<LayoutError> {
    RunError::Job(LayoutError::NotZeroed {
        drive: drive(),
        zeroed: 0,
        needed: 1,
        runs: Vec::new(),
    })
}

fn stuck() -> RunError<LayoutError> {
    RunError::Stuck {
        target: JobTarget::Drive(DriveId(drive())),
        step: "write".to_owned(),
        age_s: 9,
    }
}

fn host() -> RunError<LayoutError> {
    RunError::Job(LayoutError::Host {
        drive: drive(),
        what: "reading mountinfo".to_owned(),
        source: cause(),
    })
}

#[test]
fn another_drive_is_tried_only_where_nothing_was_changed() {
    let io = RunError::Job(LayoutError::Io {
        drive: drive(),
        what: "writing the table".to_owned(),
        source: cause(),
    });
    let in_doubt = RunError::Job(LayoutError::InDoubt {
        drive: drive(),
        what: "a creation".to_owned(),
        source: cause(),
    });
    let lvm = RunError::Job(LayoutError::Lvm {
        drive: drive(),
        what: "lvcreate".to_owned(),
        source: cause(),
    });
    let late = RunError::Deadline {
        target: JobTarget::Drive(DriveId(drive())),
        job: "create",
        limit_ms: 1,
        step: "write".to_owned(),
    };
    let died = RunError::Worker {
        target: JobTarget::Drive(DriveId(drive())),
        job: "create",
        why: "killed".to_owned(),
    };
    let held = RunError::Job(LayoutError::Busy {
        drive: drive(),
        reason: "it is mounted".to_owned(),
    });
    for (error, expected) in [
        (no_space(), Next::TryAnother),
        (stuck(), Next::TryAnother),
        (host(), Next::TryAnother),
        (held, Next::TryAnother),
        (not_zeroed(), Next::ZeroAndTryAnother),
        (io, Next::InDoubt),
        (in_doubt, Next::InDoubt),
        (lvm, Next::InDoubt),
        (late, Next::InDoubt),
        (died, Next::InDoubt),
        (RunError::Stopping, Next::InDoubt),
    ] {
        assert_eq!(next(&error), expected, "{error}");
    }
}

#[test]
fn the_answer_is_the_failure_that_a_repeat_may_get_over_else_that_there_is_no_room() {
    let answer = |failures: Failures| {
        let need = Need {
            class: "bulk",
            bytes: 1 << 30,
            placement: Placement::Spread,
            group: None,
        };
        failures.answer(&Snapshot::default(), need, &BTreeSet::new())
    };
    let unformattable = || {
        Some(VolumeError::Invalid {
            field: "mkfs options",
            why: "mkfs refuses them".to_owned(),
        })
    };
    let nothing = answer(Failures::default());
    assert!(matches!(nothing, VolumeError::NoRoom { .. }), "{nothing}");
    let full = answer(Failures {
        refused: Some(no_space()),
        unformattable: unformattable(),
        ..Failures::default()
    });
    assert!(matches!(full, VolumeError::NoRoom { .. }), "{full}");
    let refused = answer(Failures {
        unformattable: unformattable(),
        ..Failures::default()
    });
    assert!(matches!(refused, VolumeError::Invalid { .. }), "{refused}");
    for error in [stuck(), host()] {
        let failed = answer(Failures {
            refused: Some(error),
            unformattable: unformattable(),
            ..Failures::default()
        });
        assert!(matches!(failed, VolumeError::Layout(_)), "{failed}");
    }
    let waiting = answer(Failures {
        refused: Some(no_space()),
        unzeroed: Some(not_zeroed()),
        ..Failures::default()
    });
    assert!(
        matches!(
            waiting,
            VolumeError::Layout(RunError::Job(LayoutError::NotZeroed { .. }))
        ),
        "{waiting}"
    );
}
