use kube::core::Status;

use super::*;
use drivebay_objects::drive::Condition;

fn api_error(code: u16, replaces: bool) -> WriteError {
    let status = Status::failure("no", "Reason").with_code(code);
    WriteError::of(&kube::Error::Api(status.boxed()), replaces)
}

fn failed() -> Result<WrittenObject, WriteError> {
    Err(api_error(500, true))
}

fn updated() -> Result<WrittenObject, WriteError> {
    Ok(WrittenObject {
        result: WriteResult::Updated,
        object: None,
    })
}

#[test]
fn an_object_that_another_client_changed_or_deleted_is_a_conflict() {
    assert!(matches!(api_error(409, true), WriteError::Conflict));
    assert!(matches!(api_error(404, true), WriteError::Conflict));
    // A creation: the cluster has no such resource.
    assert!(matches!(api_error(404, false), WriteError::Failed(_)));
}

#[test]
fn invalid_contents_are_refused_and_other_errors_are_failures() {
    for code in [400, 422] {
        assert!(matches!(api_error(code, true), WriteError::Refused(_)));
    }
    for code in [403, 413, 429, 500] {
        assert!(matches!(api_error(code, true), WriteError::Failed(_)));
    }
    let service = kube::Error::Service("connection refused".into());
    assert!(matches!(
        WriteError::of(&service, true),
        WriteError::Unreachable(_)
    ));
}

#[test]
fn an_object_whose_write_failed_is_set_aside_for_ten_minutes_while_others_are_written() {
    let start = Instant::now();
    for result in [failed(), Err(api_error(422, true))] {
        let mut writes = FailedWrites::default();
        writes.record("wwn-a", &result, start);
        writes.record("wwn-b", &updated(), start);
        let almost = start + SET_ASIDE - Duration::from_secs(1);
        for (now, expected) in [(start, true), (almost, true), (start + SET_ASIDE, false)] {
            assert_eq!(writes.is_set_aside("wwn-a", now), expected, "{result:?}");
            assert!(!writes.is_set_aside("wwn-b", now), "{result:?}");
        }
    }
}

#[test]
fn an_object_that_fails_again_is_set_aside_again() {
    let start = Instant::now();
    let mut writes = FailedWrites::default();
    writes.record("wwn-a", &failed(), start);
    writes.record("wwn-a", &failed(), start + SET_ASIDE);
    assert!(writes.is_set_aside("wwn-a", start + SET_ASIDE * 2 - Duration::from_secs(1)));
    assert!(!writes.is_set_aside("wwn-a", start + SET_ASIDE * 2));
}

#[test]
fn an_unanswered_write_is_set_aside_until_the_api_server_answers_another_one() {
    let start = Instant::now();
    for unanswered in [WriteError::Timeout, WriteError::Unreachable(String::new())] {
        let mut writes = FailedWrites::default();
        writes.record("wwn-a", &Err(unanswered), start);
        writes.record("wwn-b", &failed(), start);
        assert!(writes.is_set_aside("wwn-a", start));
        writes.record("wwn-c", &updated(), start);
        assert!(!writes.is_set_aside("wwn-a", start));
        assert!(writes.is_set_aside("wwn-b", start));
    }
}

#[test]
fn a_conflict_is_not_set_aside() {
    let mut writes = FailedWrites::default();
    writes.record("wwn-a", &Err(WriteError::Conflict), Instant::now());
    assert!(!writes.is_set_aside("wwn-a", Instant::now()));
}

#[test]
fn expired_failures_are_removed_and_recent_ones_are_kept() {
    let start = Instant::now();
    let mut writes = FailedWrites::default();
    writes.record("wwn-a", &failed(), start);
    writes.record("wwn-b", &failed(), start + SET_ASIDE);
    writes.remove_expired(start + SET_ASIDE);
    let names: Vec<&String> = writes.0.keys().collect();
    assert_eq!(names, ["wwn-b"]);
}

#[test]
fn a_disconnected_node_changes_one_condition_once() {
    let condition = |type_: &str| Condition {
        type_: type_.into(),
        status: "True".into(),
        last_transition_time: "then".into(),
        ..Condition::default()
    };
    let status = DriveStatus {
        node: "n1".into(),
        health: "GOOD".into(),
        conditions: vec![condition("Healthy"), condition(AGENT_CONNECTED)],
        ..DriveStatus::default()
    };
    let first = disconnected(status.clone(), 60);
    assert_eq!(first.conditions[0], status.conditions[0]);
    assert_eq!(first.conditions[1].status, "False");
    assert_eq!(first.conditions[1].last_transition_time, format_time(60));
    assert_eq!(
        (&*first.health, &*first.updated),
        ("GOOD", &*format_time(60))
    );
    let again = disconnected(first.clone(), 120);
    assert_eq!(again.conditions, first.conditions);
}
