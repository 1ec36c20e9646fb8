use super::*;

#[test]
fn a_task_that_may_have_been_requested_stays_running_while_it_waits() {
    let status = |phase: &str| DriveTaskStatus {
        phase: phase.to_owned(),
        ..DriveTaskStatus::default()
    };
    for (before, after) in [
        ("", "Pending"),
        ("Pending", "Pending"),
        ("Running", "Running"),
    ] {
        let waits = waiting(status(before), "WaitingForNode", "it waits");
        assert_eq!(waits.phase, after, "{before}");
    }
}
