use super::*;
use drivebay_objects::task::{Cordon, DriveTaskSpec, DriveTaskStatus};

fn task(name: &str, phase: &str) -> DriveTask {
    let mut task = DriveTask::new(
        name,
        DriveTaskSpec {
            drive: name.to_owned(),
            cordon: Some(Cordon::default()),
            ..DriveTaskSpec::default()
        },
    );
    task.status = Some(DriveTaskStatus {
        phase: phase.to_owned(),
        ..DriveTaskStatus::default()
    });
    task
}

#[test]
fn a_deleted_task_is_kept_unless_it_was_never_sent() {
    let mut watched = Watched::default();
    for (name, phase) in [
        ("a", "Running"),
        ("b", "Succeeded"),
        ("c", "Pending"),
        ("d", "Failed"),
    ] {
        watched.apply(Event::Apply(task(name, phase)));
    }
    watched.apply(Event::Delete(task("a", "Running")));
    // The others are missing from the next list.
    watched.apply(Event::Init);
    watched.apply(Event::InitApply(task("e", "")));
    assert!(!watched.is_complete);
    watched.apply(Event::InitDone);
    assert!(watched.is_complete && watched.tasks.len() == 1);
    let kept: Vec<bool> = ["a", "b", "c", "d"]
        .map(|name| watched.deleted.contains_key(&key(&task(name, ""))))
        .into();
    assert_eq!(kept, [true, true, false, false]);
}

#[test]
fn the_number_of_remembered_tasks_is_bounded() {
    let mut watched = Watched::default();
    let before = now() - 60;
    for number in 0..MAX_DELETED {
        watched.deleted.insert(number.to_string(), before);
    }
    watched.apply(Event::Apply(task("a", "Succeeded")));
    watched.apply(Event::Delete(task("a", "Succeeded")));
    assert_eq!(watched.deleted.len(), MAX_DELETED);
    assert!(watched.deleted.contains_key(&key(&task("a", ""))));
}

#[test]
fn a_task_that_is_gone_leaves_unless_it_was_created_again() {
    let mut watched = Watched::default();
    let version = |version: &str| {
        let mut task = task("a", "Running");
        task.metadata.resource_version = Some(version.to_owned());
        task
    };
    watched.apply(Event::Apply(version("7")));
    watched.remove_version(&version("6"));
    assert_eq!(watched.tasks.len(), 1);
    watched.remove_version(&version("7"));
    assert!(watched.tasks.is_empty());
}
