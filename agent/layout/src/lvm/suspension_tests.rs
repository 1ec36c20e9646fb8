use std::sync::Weak;

use super::*;
use crate::lvm::aside::in_hand;

/// Outcome of an act, e.g. of `suspend a`, `EmptyStore b`, `is suspended a`.
enum Fate {
    Done,
    Fails,
    Panics,
    /// The act ends only after this other one is done.
    After(&'static str),
}

/// A device-mapper that records what was done, in order.
struct Kernel {
    done: Mutex<Vec<String>>,
    changed: Condvar,
    fate: Box<dyn Fn(&str) -> Fate + Send + Sync>,
}

impl Kernel {
    fn act(&self, act: &str) -> io::Result<()> {
        match (self.fate)(act) {
            Fate::Done => {}
            Fate::Fails => return Err(io::Error::other("refused")),
            Fate::Panics => panic!("as the test wants it"),
            Fate::After(other) => self.wait_for(other),
        }
        self.done.lock().unwrap().push(act.to_owned());
        self.changed.notify_all();
        Ok(())
    }

    fn wait_for(&self, act: &str) {
        let waits = |done: &mut Vec<String>| !done.iter().any(|one| one == act);
        let done = self.done.lock().unwrap();
        let waited = self.changed.wait_timeout_while(done, LONG, waits);
        assert!(!waited.unwrap().1.timed_out(), "{act}");
    }

    fn done(&self) -> Vec<String> {
        self.done.lock().unwrap().clone()
    }
}

struct Fake {
    name: &'static str,
    devices: [String; 2],
    kernel: Arc<Kernel>,
}

impl GroupMember for Fake {
    fn name(&self) -> &str {
        self.name
    }

    fn devices(&self) -> [&str; 2] {
        let [volume, snapshot] = &self.devices;
        [volume, snapshot]
    }

    fn above(&self) -> Option<&str> {
        None
    }

    fn undo_suspend(&self) -> io::Result<()> {
        self.kernel.act(&format!("undo suspend {}", self.name))
    }

    fn suspend(&self) -> io::Result<()> {
        self.kernel.act(&format!("suspend {}", self.name))
    }

    fn is_suspended(&self) -> io::Result<bool> {
        let act = format!("is suspended {}", self.name);
        Ok(!matches!((self.kernel.fate)(&act), Fate::Fails))
    }

    fn resume(&self) -> io::Result<()> {
        self.kernel.act(&format!("resume {}", self.name))
    }

    fn step(&self, step: Step) -> io::Result<()> {
        self.kernel.act(&format!("{step:?} {}", self.name))
    }

    fn give_up(&self) -> io::Result<()> {
        self.kernel.act(&format!("give up {}", self.name))
    }

    fn confirm(&self) -> Result<(), String> {
        let done = self.kernel.act(&format!("confirm {}", self.name));
        done.map_err(|error| format!("{}: {error}", self.name))
    }
}

const NAMES: [&str; 3] = ["a", "b", "c"];
const LONG: Duration = Duration::from_secs(20);
/// Long enough for every act that does not wait, even on a busy machine.
const SHORT: Duration = Duration::from_millis(500);

fn kernel(fate: impl Fn(&str) -> Fate + Send + Sync + 'static) -> Arc<Kernel> {
    Arc::new(Kernel {
        done: Mutex::default(),
        changed: Condvar::new(),
        fate: Box::new(fate),
    })
}

/// Unique per test, since all tests of the process share the list of `in_hand`.
fn device(test: &str, kind: &str, name: &str) -> String {
    format!("{test} {kind} {name}")
}

fn members(kernel: &Arc<Kernel>, test: &str) -> Vec<Arc<Fake>> {
    let member = |name| {
        Arc::new(Fake {
            name,
            devices: ["volume", "snapshot"].map(|kind| device(test, kind, name)),
            kernel: Arc::clone(kernel),
        })
    };
    NAMES.map(member).into()
}

/// Waits until no thread is left.
fn outlast(members: &[Weak<Fake>]) {
    let until = Instant::now() + LONG;
    while members.iter().any(|member| member.strong_count() > 0) {
        assert!(Instant::now() < until, "a thread is left");
        thread::yield_now();
    }
}

/// Returns the result of `at_one_moment`, and what was done until all threads had ended.
fn run(
    patience: Duration,
    fate: impl Fn(&str) -> Fate + Send + Sync + 'static,
) -> (Result<Duration, LayoutError>, Vec<String>) {
    let kernel = kernel(fate);
    let members = members(&kernel, "run");
    let left: Vec<Weak<Fake>> = members.iter().map(Arc::downgrade).collect();
    let result = at_one_moment(members, patience);
    outlast(&left);
    let done = kernel.done();
    assert_all_go_on(&done);
    (result, done)
}

/// Fails unless every volume that was suspended was resumed afterwards, and no other was.
fn assert_all_go_on(done: &[String]) {
    for name in NAMES {
        let at = |act: &str| -> Vec<usize> {
            let act = format!("{act} {name}");
            let all = done.iter().enumerate();
            all.filter(|(_, one)| **one == act)
                .map(|(at, _)| at)
                .collect()
        };
        let (suspended, resumed) = (at("suspend"), at("resume"));
        assert_eq!(suspended.len(), resumed.len(), "{name} of {done:?}");
        assert!(suspended <= resumed, "{name} of {done:?}");
    }
}

fn has_steps(done: &[String]) -> bool {
    let of_step = |act: &String| {
        STEPS
            .iter()
            .any(|step| act.starts_with(&format!("{step:?} ")))
    };
    done.iter().any(of_step)
}

fn why(result: Result<Duration, LayoutError>) -> String {
    match result {
        Err(LayoutError::NotTogether { why }) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "the sleep is the step that takes long"
)]
fn all_are_suspended_before_any_snapshot_begins_and_all_have_begun_before_any_is_resumed() {
    // An act that does not wait as it must is done within this time.
    const LASTS: Duration = Duration::from_millis(100);
    let log = Arc::new(Mutex::new(Vec::new()));
    let acts = Arc::clone(&log);
    let (result, _) = run(LONG, move |act| {
        if matches!(act, "suspend c" | "Begin b" | "is suspended c") {
            thread::sleep(LASTS);
        }
        acts.lock().unwrap().push(act.to_owned());
        Fate::Done
    });
    assert!(result.is_ok(), "{result:?}");
    let log = log.lock().unwrap().clone();
    let phases: [(&[&str], usize); 4] = [
        (&["suspend"], 1),
        // The order of restarting one snapshot.
        (
            &[
                "LoadError",
                "DropOld",
                "EmptyStore",
                "LoadSnapshot",
                "Begin",
            ],
            5,
        ),
        (&["is suspended"], 1),
        (&["resume", "confirm"], 2),
    ];
    let mut rest = log.as_slice();
    for (steps, count) in phases {
        let (now, later) = rest.split_at(count * NAMES.len());
        for name in NAMES {
            let of_name = now.iter().filter_map(|act| act.strip_suffix(name));
            let of_name: Vec<&str> = of_name.map(str::trim_end).collect();
            assert_eq!(of_name, steps, "{name} of {log:?}");
        }
        rest = later;
    }
    assert!(rest.is_empty(), "{log:?}");
}

#[test]
fn a_failure_of_any_step_of_any_member_resumes_all_that_were_suspended() {
    let steps = STEPS.map(|step| format!("{step:?}"));
    for what in steps.into_iter().chain(["suspend".to_owned()]) {
        for name in NAMES {
            let failing = format!("{what} {name}");
            let fails = failing.clone();
            let (result, done) = run(LONG, move |act| match act == fails {
                true => Fate::Fails,
                false => Fate::Done,
            });
            let why = why(result);
            assert!(why.contains("refused"), "{failing}: {why}");
            assert!(!done.contains(&failing));
            let gave_up = done.contains(&format!("give up {name}"));
            assert_eq!(gave_up, what != "suspend", "{failing}: {done:?}");
            let undone = done.contains(&format!("undo suspend {name}"));
            assert_eq!(undone, what == "suspend", "{failing}: {done:?}");
            assert!(
                what != "suspend" || !has_steps(&done),
                "{failing}: {done:?}"
            );
        }
    }
}

#[test]
fn what_stays_suspended_after_a_failed_suspend_is_named() {
    let (result, _) = run(LONG, |act| match act {
        "suspend b" | "undo suspend b" => Fate::Fails,
        _ => Fate::Done,
    });
    let Err(LayoutError::StillSuspended { why }) = result else {
        panic!("{result:?}")
    };
    assert_eq!(why, "resuming what is on b failed: refused");
}

#[test]
fn a_suspend_that_ends_after_the_deadline_is_undone_and_no_snapshot_begins() {
    let (result, done) = run(SHORT, |act| match act {
        "suspend b" => Fate::After("resume a"),
        _ => Fate::Done,
    });
    let why = why(result);
    assert!(
        why.starts_with("b did not stand still within 500 ms"),
        "{why}"
    );
    assert!(!has_steps(&done), "{done:?}");
    let at = |act: &str| done.iter().position(|one| one == act);
    assert!(at("resume a") < at("suspend b") && at("suspend b") < at("resume b"));
}

#[test]
fn a_suspend_that_hangs_is_named_in_time_and_keeps_nothing_of_the_other_members() {
    let kernel = kernel(|act| match act {
        "suspend b" => Fate::After("the drive answers"),
        _ => Fate::Done,
    });
    let members = members(&kernel, "hanging");
    let left: Vec<Weak<Fake>> = members.iter().map(Arc::downgrade).collect();
    let begun = Instant::now();
    let result = at_one_moment(members, SHORT);
    assert!(begun.elapsed() < SHORT + RESUME + LONG / 4);
    let Err(LayoutError::StillSuspended { why }) = result else {
        panic!("{result:?}")
    };
    assert_eq!(why, "suspending b has not ended");
    let done = kernel.done();
    for act in ["resume a", "resume c"] {
        assert!(done.iter().any(|one| one == act), "{done:?}");
    }
    outlast(&[left[0].clone(), left[2].clone()]);
    let has_in_hand = |name| in_hand().contains_key(&device("hanging", "volume", name));
    assert_eq!(NAMES.map(has_in_hand), [false, true, false]);
    assert!(left[1].strong_count() > 0, "its drive stays locked");
    kernel.act("the drive answers").unwrap();
    outlast(&left);
    assert!(!has_in_hand("b"));
    assert_all_go_on(&kernel.done());
    assert!(!has_steps(&kernel.done()));
}

#[test]
fn a_resume_that_hangs_is_named_in_time() {
    let kernel = kernel(|act| match act {
        "EmptyStore a" => Fate::Fails,
        "resume b" => Fate::After("the drive answers"),
        _ => Fate::Done,
    });
    let members = members(&kernel, "resuming");
    let left: Vec<Weak<Fake>> = members.iter().map(Arc::downgrade).collect();
    let result = at_one_moment(members, LONG);
    let Err(LayoutError::StillSuspended { why }) = result else {
        panic!("{result:?}")
    };
    assert_eq!(why, "resuming b has not ended");
    kernel.act("the drive answers").unwrap();
    outlast(&left);
    assert_all_go_on(&kernel.done());
}

#[test]
fn a_snapshot_that_is_not_confirmed_makes_the_group_unusable_and_is_named() {
    let (result, done) = run(LONG, |act| match act {
        "confirm b" => Fate::Fails,
        _ => Fate::Done,
    });
    assert_eq!(why(result), "b: refused");
    assert!(done.contains(&"confirm c".to_owned()), "{done:?}");
}

#[test]
fn a_step_that_hangs_keeps_no_volume_suspended_after_the_deadline() {
    let (result, done) = run(SHORT, |act| match act {
        "EmptyStore b" => Fate::After("resume b"),
        _ => Fate::Done,
    });
    assert!(why(result).contains("within 500 ms"));
    // The step that was blocked ends, and no further one follows.
    assert!(done.contains(&"EmptyStore b".to_owned()));
    assert!(done.contains(&"give up b".to_owned()), "{done:?}");
    assert!(!done.contains(&"LoadSnapshot b".to_owned()), "{done:?}");
}

#[test]
fn a_step_that_hangs_after_the_volumes_go_on_is_named_in_time() {
    let kernel = kernel(|act| match act {
        "EmptyStore b" => Fate::After("the drive answers"),
        _ => Fate::Done,
    });
    let members = members(&kernel, "renewing");
    let left: Vec<Weak<Fake>> = members.iter().map(Arc::downgrade).collect();
    let result = at_one_moment(members, SHORT);
    let Err(LayoutError::StillSuspended { why }) = result else {
        panic!("{result:?}")
    };
    assert_eq!(why, "beginning the snapshot of b anew has not ended");
    assert_all_go_on(&kernel.done());
    assert_eq!([0, 2].map(|at: usize| left[at].strong_count()), [0, 0]);
    assert!(in_hand().contains_key(&device("renewing", "snapshot", "b")));
    kernel.act("the drive answers").unwrap();
    outlast(&left);
    assert!(kernel.done().contains(&"give up b".to_owned()));
}

#[test]
fn a_snapshot_whose_device_may_stay_suspended_is_named() {
    let (result, _) = run(LONG, |act| match act {
        "DropOld b" | "give up b" => Fate::Fails,
        _ => Fate::Done,
    });
    let Err(LayoutError::StillSuspended { why }) = result else {
        panic!("{result:?}")
    };
    assert_eq!(why, "resuming the snapshot of b failed: refused");
}

#[test]
fn no_member_is_in_use_any_more_when_it_is_answered() {
    let kernel = kernel(|_| Fate::Done);
    let members = members(&kernel, "answered");
    let left: Vec<Weak<Fake>> = members.iter().map(Arc::downgrade).collect();
    assert!(at_one_moment(members, LONG).is_ok());
    assert!(left.iter().all(|one| one.strong_count() == 0));
}

#[test]
fn a_volume_that_another_program_resumed_makes_the_snapshots_unusable() {
    let (result, _) = run(LONG, |act| match act {
        "is suspended c" => Fate::Fails,
        _ => Fate::Done,
    });
    let why = why(result);
    assert!(why.contains("another program resumed c"), "{why}");
}

#[test]
fn a_volume_that_cannot_be_resumed_is_named_and_the_others_go_on() {
    let kernel = kernel(|act| match act {
        "resume b" => Fate::Fails,
        _ => Fate::Done,
    });
    let result = at_one_moment(members(&kernel, "failing"), LONG);
    let Err(LayoutError::StillSuspended { why }) = result else {
        panic!("{result:?}")
    };
    assert_eq!(why, "resuming b failed: refused");
    let done = kernel.done();
    for act in ["resume a", "resume c"] {
        assert!(done.iter().any(|one| one == act), "{done:?}");
    }
}

#[test]
fn a_panic_between_suspend_and_resume_leaves_no_volume_suspended() {
    let (result, done) = run(SHORT, |act| match act {
        "DropOld a" => Fate::Panics,
        _ => Fate::Done,
    });
    let why = why(result);
    assert!(why.contains("snapshot of a had not begun"), "{why}");
    assert!(done.contains(&"suspend a".to_owned()), "{done:?}");
}

#[test]
fn what_ends_before_it_has_begun_suspends_nothing() {
    let kernel = kernel(|_| Fate::Done);
    let members = members(&kernel, "ended");
    let hold = Hold::new(&members, LONG);
    // As when a later thread cannot be started.
    drop(Ending(&hold));
    for (at, member) in members.into_iter().enumerate() {
        hold.hold(at, Arc::clone(&member));
        hold.renew(at, member);
    }
    assert_eq!(kernel.done(), [""; 0]);
}
