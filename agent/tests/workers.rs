//! The worker pool with real worker processes: deadlines, Busy and Stuck, cancel, death, and what
//! a new agent finds of the old one.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a failed helper is a failed test"
)]

use std::{
    fs,
    io::{Read, Write},
    os::unix::{fs::PermissionsExt, process::ExitStatusExt},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use drivebay_model::DriveId;
use drivebay_sys::{process, start::start_worker};
use drivebay_worker::{
    Pool, PoolConfig, RunError, Slot, SlotStatus,
    drill::{Act, Drill, DrillError},
};
use tempfile::TempDir;
use tokio::time::sleep;

const LONG: Duration = Duration::from_secs(20);
const FG: Slot = Slot::Foreground;

fn program() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_drivebay-agent"))
}

fn config(dir: &Path) -> PoolConfig {
    PoolConfig {
        program: program(),
        notes_dir: dir.join("notes"),
        fork: true,
        idle: Duration::from_secs(60),
        spare: 8,
        stuck_after: Duration::from_secs(30),
        queue: 4,
    }
}

struct Rig {
    pool: Pool,
    dir: TempDir,
}

async fn rig(change: impl FnOnce(&mut PoolConfig)) -> Rig {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path());
    change(&mut config);
    let pool = Pool::new(config).await.unwrap();
    Rig { pool, dir }
}

fn drive(name: &str) -> DriveId {
    DriveId(format!("loop-{name}"))
}

fn step(name: &str) -> Act {
    Act::Step(name.to_owned())
}

fn notes(dir: &Path) -> usize {
    fs::read_dir(dir.join("notes")).unwrap().count()
}

fn exists(pid: i32) -> bool {
    process::stat(pid).unwrap().is_some()
}

/// Waits for something that must come true soon.
async fn until(what: &str, mut is: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !is() {
        assert!(Instant::now() < end, "not within 10 s: {what}");
        sleep(Duration::from_millis(5)).await;
    }
}

impl Rig {
    async fn run(
        &self,
        name: &str,
        acts: Vec<Act>,
        limit: Duration,
    ) -> Result<u32, RunError<DrillError>> {
        self.pool.run((&drive(name), FG), Drill(acts), limit).await
    }

    /// Starts a job and waits until it is in its step `ready`.
    async fn start(
        &self,
        name: &str,
        mut acts: Vec<Act>,
        limit: Duration,
    ) -> tokio::task::JoinHandle<Result<u32, RunError<DrillError>>> {
        acts.insert(0, step("ready"));
        let (pool, id) = (self.pool.clone(), drive(name));
        let job = tokio::spawn(async move { pool.run((&id, FG), Drill(acts), limit).await });
        until("the job is in its step", || {
            self.status(name)
                .is_some_and(|status| status.step.as_deref() == Some("drill: ready"))
        })
        .await;
        job
    }

    fn status(&self, name: &str) -> Option<SlotStatus> {
        self.pool
            .status()
            .into_iter()
            .find(|slot| slot.key.drive() == Some(&drive(name)))
    }

    fn pid(&self, name: &str) -> i32 {
        self.status(name).and_then(|status| status.pid).unwrap()
    }
}

#[tokio::test]
async fn jobs_of_one_drive_share_a_worker_and_drives_do_not() {
    let rig = rig(|_| {}).await;
    let first = rig
        .run("a", vec![step("x"), Act::Log("said".into())], LONG)
        .await
        .unwrap();
    let second = rig.run("a", vec![], LONG).await.unwrap();
    let other = rig.run("b", vec![], LONG).await.unwrap();
    assert_eq!(first, second);
    assert_ne!(first, other);
    assert_ne!(first, std::process::id());
    assert_eq!(notes(rig.dir.path()), 2);
    let status = rig.status("a").unwrap();
    assert_eq!(
        (status.step, status.stuck, status.waiting),
        (None, false, 0)
    );
    rig.pool.shutdown(Duration::from_secs(5)).await;
    assert_eq!((rig.pool.status(), notes(rig.dir.path())), (vec![], 0));
    assert!(matches!(
        rig.run("a", vec![], LONG).await,
        Err(RunError::Stopping)
    ));
}

#[tokio::test]
async fn of_many_drives_a_few_workers_stay_idle_and_the_others_leave() {
    let rig = rig(|config| config.spare = 2).await;
    // Of a slot that no call comes to again and again.
    let run = async |name| {
        let id = drive(name);
        let ran = rig.pool.run((&id, Slot::Stage), Drill(vec![]), LONG);
        ran.await.unwrap()
    };
    let names = ["a", "b", "c", "d", "e"];
    let mut pids = Vec::new();
    for name in names {
        pids.push(run(name).await);
    }
    until("two are left", || rig.pool.status().len() == 2).await;
    let left: Vec<u32> = rig
        .pool
        .status()
        .iter()
        .map(|of| of.pid.unwrap() as u32)
        .collect();
    assert!(
        left.iter().all(|pid| pids.contains(pid)),
        "{left:?} {pids:?}"
    );
    assert_eq!(notes(rig.dir.path()), 2);
    // They are the next job's, and one that left is started again.
    for name in names {
        run(name).await;
    }
    until("two are left again", || rig.pool.status().len() == 2).await;
    // One that is kept for a call that comes again stays also where there are enough.
    for name in names {
        rig.run(name, vec![], LONG).await.unwrap();
    }
    sleep(Duration::from_millis(200)).await;
    let status = rig.pool.status();
    let kept = status
        .iter()
        .filter(|of| of.key.slot == FG && of.pid.is_some());
    assert_eq!(kept.count(), 5);
}

#[tokio::test]
async fn a_jobs_own_error_comes_back_typed() {
    let rig = rig(|_| {}).await;
    let path = PathBuf::from("/proc/no/such/place");
    let error = rig
        .run("a", vec![Act::Touch(path)], LONG)
        .await
        .unwrap_err();
    assert!(matches!(&error, RunError::Job(DrillError(text)) if text.contains("No such file")));
    let mapped = error.map_job(|DrillError(text)| std::io::Error::other(text));
    assert!(matches!(mapped, RunError::Job(_)));
}

#[tokio::test]
async fn a_worker_inherits_nothing_but_its_socket_and_its_log() {
    let dir = tempfile::tempdir().unwrap();
    // An open file without close-on-exec, as a careless library would leave it.
    let file = fs::File::create(dir.path().join("lock")).unwrap();
    nix::fcntl::fcntl(
        &file,
        nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty()),
    )
    .unwrap();
    let pool = Pool::new(config(dir.path())).await.unwrap();
    let pid = pool
        .run((&drive("a"), FG), Drill(vec![]), LONG)
        .await
        .unwrap();
    let mut fds: Vec<_> = fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let target = fs::read_link(entry.path()).unwrap();
            let kind = target
                .to_string_lossy()
                .split('[')
                .next()
                .unwrap()
                .to_owned();
            (entry.file_name().into_string().unwrap(), kind)
        })
        .collect();
    fds.sort();
    let want = [
        ("0", "/dev/null"),
        ("1", "/dev/null"),
        ("2", "pipe:"),
        ("3", "socket:"),
    ];
    let want: Vec<_> = want
        .map(|(fd, kind)| (fd.to_owned(), kind.to_owned()))
        .into();
    assert_eq!(fds, want);

    let stat = process::stat(pid.cast_signed()).unwrap().unwrap();
    assert_eq!(stat.session, stat.pid);
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let mask = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap()
    };
    // Ignored: SIGPIPE (13) alone, which Rust's runtime ignores in every program. 32 and 33 are
    // the C library's own and out of reach.
    let ignored = mask("SigIgn:") & !(0b11 << 31);
    assert_eq!((mask("SigBlk:"), ignored), (0, 1 << 12));
    assert_eq!(
        fs::read_link(format!("/proc/{pid}/cwd")).unwrap(),
        Path::new("/")
    );
    drop(file);
}

#[tokio::test]
async fn a_job_is_killed_at_its_deadline_with_its_tools_and_the_slot_is_free_again() {
    let rig = rig(|_| {}).await;
    let begun = Instant::now();
    let limit = Duration::from_millis(700);
    let job = rig.start("a", vec![Act::Tool(77)], limit).await;
    let pid = rig.pid("a");
    let ticks = process::stat(pid).unwrap().unwrap().start_ticks;
    until("the tool runs", || {
        process::remains(pid, ticks).unwrap().len() == 2
    })
    .await;
    let tools = process::remains(pid, ticks).unwrap();
    let error = job.await.unwrap().unwrap_err();
    assert!(
        matches!(&error, RunError::Deadline { limit_ms: 700, step, job: "drill", .. } if step == "ready")
    );
    assert!(begun.elapsed() >= limit && begun.elapsed() < limit + Duration::from_millis(1200));
    for tool in tools {
        let alive = process::stat(tool.pid)
            .unwrap()
            .filter(|stat| stat.state != 'Z');
        assert_eq!(
            alive.filter(|stat| stat.start_ticks == tool.start_ticks),
            None
        );
    }
    assert_eq!(notes(rig.dir.path()), 0);
    let next = rig.run("a", vec![], LONG).await.unwrap();
    assert_ne!(next.cast_signed(), pid);
}

#[tokio::test]
async fn busy_is_one_who_waited_and_stuck_is_one_old_step() {
    let rig = rig(|config| config.stuck_after = Duration::from_millis(800)).await;
    let acts = vec![
        Act::PauseMs(500),
        step("two"),
        Act::PauseMs(500),
        step("three"),
        Act::PauseMs(60_000),
    ];
    let job = rig.start("a", acts, LONG).await;
    let begun = Instant::now();
    let busy = rig
        .run("a", vec![], Duration::from_millis(100))
        .await
        .unwrap_err();
    assert!(
        matches!(&busy, RunError::Busy { step, .. } if step == "drill: ready"),
        "{busy}"
    );
    assert!(begun.elapsed() < Duration::from_millis(400));

    // Its steps are young although the job is old: this caller waits on, until one is not.
    let stuck = rig.run("a", vec![], LONG).await.unwrap_err();
    assert!(
        matches!(&stuck, RunError::Stuck { step, .. } if step == "drill: three"),
        "{stuck}"
    );
    let waited = begun.elapsed();
    assert!(
        waited >= Duration::from_millis(1600) && waited < Duration::from_secs(4),
        "{waited:?}"
    );
    let begun = Instant::now();
    assert!(matches!(
        rig.run("a", vec![], LONG).await,
        Err(RunError::Stuck { .. })
    ));
    assert!(begun.elapsed() < Duration::from_millis(100));
    assert!(rig.status("a").unwrap().stuck);

    // Another drive, and another slot of this one, never hear of it.
    let begun = Instant::now();
    rig.run("b", vec![], LONG).await.unwrap();
    rig.pool
        .run((&drive("a"), Slot::Unmount), Drill(vec![]), LONG)
        .await
        .unwrap();
    assert!(begun.elapsed() < Duration::from_secs(2));

    rig.pool.cancel((&drive("a"), FG)).await;
    assert!(matches!(
        job.await.unwrap(),
        Err(RunError::Cancelled { job: "drill", .. })
    ));
    rig.run("a", vec![], LONG).await.unwrap();
}

#[tokio::test]
async fn the_queue_is_bounded_and_keeps_its_order() {
    let rig = rig(|config| config.queue = 2).await;
    let mark = rig.dir.path().join("mark");
    let job = rig
        .start("a", vec![Act::PauseMs(400), Act::Touch(mark.clone())], LONG)
        .await;
    let waiting: Vec<_> = (0..2)
        .map(|_| {
            let pool = rig.pool.clone();
            tokio::spawn(async move { pool.run((&drive("a"), FG), Drill(vec![]), LONG).await })
        })
        .collect();
    until("two wait", || {
        rig.status("a").is_some_and(|status| status.waiting == 2)
    })
    .await;
    let begun = Instant::now();
    assert!(matches!(
        rig.run("a", vec![], LONG).await,
        Err(RunError::Busy { .. })
    ));
    assert!(begun.elapsed() < Duration::from_millis(200));
    for job in [job].into_iter().chain(waiting) {
        job.await.unwrap().unwrap();
        assert!(mark.exists());
    }
}

#[tokio::test]
async fn a_job_outlives_the_caller_that_went_away() {
    let rig = rig(|_| {}).await;
    let mark = rig.dir.path().join("mark");
    let queued = rig.dir.path().join("queued");
    let running = rig
        .start("a", vec![Act::PauseMs(300), Act::Touch(mark.clone())], LONG)
        .await;
    let behind = {
        let (pool, acts) = (rig.pool.clone(), vec![Act::Touch(queued.clone())]);
        tokio::spawn(async move { pool.run((&drive("a"), FG), Drill(acts), LONG).await })
    };
    until("one waits", || {
        rig.status("a").is_some_and(|status| status.waiting == 1)
    })
    .await;
    running.abort();
    behind.abort();
    assert!(running.await.unwrap_err().is_cancelled() && !mark.exists());
    until("both jobs came to their end", || {
        mark.exists() && queued.exists()
    })
    .await;
}

#[tokio::test]
async fn cancel_ends_the_running_job_and_leaves_those_who_wait() {
    let rig = rig(|_| {}).await;
    let job = rig
        .start("a", vec![Act::PauseMs(60_000)], Duration::from_secs(120))
        .await;
    let pid = rig.pid("a");
    let waiting = {
        let pool = rig.pool.clone();
        tokio::spawn(async move { pool.run((&drive("a"), FG), Drill(vec![]), LONG).await })
    };
    until("one waits", || {
        rig.status("a").is_some_and(|status| status.waiting == 1)
    })
    .await;
    rig.pool.cancel((&drive("a"), FG)).await;
    assert!(!exists(pid), "cancel returned before the worker was gone");
    assert!(matches!(
        job.await.unwrap(),
        Err(RunError::Cancelled { .. })
    ));
    assert_ne!(waiting.await.unwrap().unwrap().cast_signed(), pid);
    // Nothing runs: nothing to cancel, no wait.
    rig.pool.cancel((&drive("a"), FG)).await;
    rig.pool.cancel((&drive("never"), FG)).await;
}

#[tokio::test]
async fn a_worker_that_dies_fails_its_job_only() {
    let rig = rig(|_| {}).await;
    let job = rig.start("a", vec![Act::PauseMs(60_000)], LONG).await;
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(rig.pid("a")),
        nix::sys::signal::SIGKILL,
    )
    .unwrap();
    let error = job.await.unwrap().unwrap_err();
    assert!(
        matches!(&error, RunError::Worker { why, .. } if why == "it was killed by signal 9"),
        "{error}"
    );

    let error = rig.run("a", vec![Act::Exit(9)], LONG).await.unwrap_err();
    assert!(
        matches!(&error, RunError::Worker { why, .. } if why == "it exited with code 9"),
        "{error}"
    );

    let error = rig.run("a", vec![Act::Panic], LONG).await.unwrap_err();
    assert!(
        matches!(&error, RunError::Worker { why, .. } if why == "the job panicked: as told"),
        "{error}"
    );

    // One that dies without work is not noticed by anybody.
    let pid = rig.run("a", vec![], LONG).await.unwrap().cast_signed();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::SIGKILL).unwrap();
    until("it is reaped", || !exists(pid)).await;
    rig.run("a", vec![], LONG).await.unwrap();
}

#[tokio::test]
async fn an_idle_worker_is_let_go_and_its_slot_forgotten() {
    let rig = rig(|config| config.idle = Duration::from_millis(150)).await;
    let pid = rig.run("a", vec![], LONG).await.unwrap().cast_signed();
    assert!(exists(pid));
    until("it exits", || !exists(pid)).await;
    until("its slot is forgotten", || rig.pool.status().is_empty()).await;
    assert_eq!(notes(rig.dir.path()), 0);
    rig.run("a", vec![], LONG).await.unwrap();
}

/// True if the process has the file open.
fn has_open(pid: i32, path: &Path) -> bool {
    let open = fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten();
    open.flatten()
        .any(|link| fs::read_link(link.path()).is_ok_and(|to| to == path))
}

#[tokio::test]
async fn what_a_worker_holds_stays_open_until_it_is_dismissed() {
    let rig = rig(|config| {
        config.idle = Duration::from_millis(10);
        config.spare = 0;
    })
    .await;
    let (first, second) = (rig.dir.path().join("first"), rig.dir.path().join("second"));
    fs::write(&first, b"").unwrap();
    fs::write(&second, b"").unwrap();
    let id = drive("a");
    let keep = async |path: &Path| {
        let job = Drill(vec![Act::Keep(path.to_owned())]);
        let pid = rig.pool.run((&id, Slot::Hold), job, LONG).await.unwrap();
        pid.cast_signed()
    };
    let pid = keep(&first).await;
    // Others leave at once.
    let other = rig.run("a", vec![], LONG).await.unwrap().cast_signed();
    until("the other worker leaves", || !exists(other)).await;
    assert!(has_open(pid, &first));
    // One thing at a time.
    assert_eq!(keep(&second).await, pid);
    assert!(!has_open(pid, &first) && has_open(pid, &second));
    rig.pool.dismiss((&id, Slot::Hold)).await;
    assert!(!exists(pid));
    until("its slot is forgotten", || rig.pool.status().is_empty()).await;
    // Without a worker a dismissal has no effect: the worker of the next job stays.
    rig.pool.dismiss((&id, Slot::Hold)).await;
    let pid = keep(&first).await;
    assert!(rig.pool.status().iter().any(|slot| slot.pid == Some(pid)));
    // What could not be opened is not held, and what was opened before still is.
    let fail = async |name: &str| {
        let job = Drill(vec![Act::Keep(rig.dir.path().join("missing"))]);
        let failed = rig.pool.run((&drive(name), Slot::Hold), job, LONG).await;
        assert!(matches!(failed, Err(RunError::Job(_))), "{failed:?}");
    };
    fail("a").await;
    fail("b").await;
    until("the one that holds nothing leaves", || {
        rig.status("b").is_none()
    })
    .await;
    assert!(has_open(pid, &first));
    // Dismissed while it works.
    let working = Drill(vec![step("ready"), Act::PauseMs(60_000)]);
    let (pool, key) = (rig.pool.clone(), id.clone());
    let job = tokio::spawn(async move { pool.run((&key, Slot::Hold), working, LONG).await });
    until("it works", || {
        rig.status("a").is_some_and(|status| status.step.is_some())
    })
    .await;
    rig.pool.dismiss((&id, Slot::Hold)).await;
    assert!(matches!(
        job.await.unwrap(),
        Err(RunError::Cancelled { .. })
    ));
    assert!(!exists(pid));
}

#[tokio::test]
async fn shutdown_lets_jobs_end_until_its_limit_and_kills_the_rest() {
    let rig = rig(|_| {}).await;
    let short = rig.start("a", vec![Act::PauseMs(300)], LONG).await;
    let long = rig.start("b", vec![Act::PauseMs(60_000)], LONG).await;
    let pid = rig.pid("b");
    let begun = Instant::now();
    rig.pool.shutdown(Duration::from_millis(900)).await;
    assert!(begun.elapsed() < Duration::from_millis(1950));
    short.await.unwrap().unwrap();
    assert!(matches!(long.await.unwrap(), Err(RunError::Stopping)));
    assert!(!exists(pid));
    assert_eq!(notes(rig.dir.path()), 0);
}

/// Sends these bytes to a new worker without a pool, and returns its exit status.
async fn talk(bytes: &[u8]) -> std::process::ExitStatus {
    let mut started = start_worker(&program(), &[]).unwrap();
    started.socket.set_nonblocking(false).unwrap();
    started.socket.write_all(bytes).unwrap();
    started.socket.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    started.socket.read_to_end(&mut answer).unwrap();
    started.child.wait().await.unwrap()
}

#[tokio::test]
async fn a_worker_survives_no_garbage_and_never_crashes_on_it() {
    assert_eq!(talk(b"").await.code(), Some(0));
    for garbage in [
        &b"\xff\xff\xff\xff"[..],
        b"\x05\0\0\0[1,2]",
        b"\x10\0\0\0{}",
        b"abc",
    ] {
        let status = talk(garbage).await;
        assert_eq!(
            (status.code(), status.signal()),
            (Some(3), None),
            "{garbage:?}"
        );
    }
}

#[tokio::test]
async fn a_worker_that_speaks_nonsense_fails_the_job_and_is_killed() {
    for answer in [
        "printf 'no frame at all' >&0; sleep 60",
        r"printf '\377\377\377\377' >&0; sleep 60",
    ] {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("script");
        fs::write(
            &script,
            format!("#!/bin/sh\nhead -c 4 <&0 >/dev/null\n{answer}\n"),
        )
        .unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        let mut config = config(dir.path());
        config.program = script;
        config.fork = false;
        let pool = Pool::new(config).await.unwrap();
        let error = pool
            .run((&drive("a"), FG), Drill(vec![]), LONG)
            .await
            .unwrap_err();
        assert!(
            matches!(&error, RunError::Worker { why, .. } if why.contains("frame")),
            "{error}"
        );
        assert_eq!(pool.status(), vec![]);
    }
}

#[tokio::test]
async fn a_program_that_cannot_be_started_is_an_error_of_the_worker() {
    let rig = rig(|config| config.program = "/no/such/program".into()).await;
    let error = rig.run("a", vec![], LONG).await.unwrap_err();
    assert!(
        matches!(&error, RunError::Worker { why, .. } if why.contains("could not be started")),
        "{error}"
    );
    assert!(
        std::process::Command::new(program())
            .arg("worker")
            .stdin(std::process::Stdio::null())
            .status()
            .unwrap()
            .code()
            == Some(2)
    );
}

#[tokio::test]
async fn a_worker_of_an_earlier_agent_is_killed_before_anything_else() {
    let rig = rig(|_| {}).await;
    let job = rig.start("a", vec![Act::PauseMs(60_000)], LONG).await;
    let pid = rig.pid("a");
    let begun = Instant::now();
    let mut config = config(rig.dir.path());
    config.idle = Duration::from_secs(1);
    let next = Pool::new(config).await.unwrap();
    assert!(begun.elapsed() < Duration::from_millis(2500));
    assert!(matches!(job.await.unwrap(), Err(RunError::Worker { .. })));
    assert!(!exists(pid));
    assert_eq!(next.status(), vec![]);
    next.run((&drive("a"), FG), Drill(vec![]), LONG)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_process_that_only_has_a_noted_number_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("notes")).unwrap();
    let mut child = std::process::Command::new("sleep")
        .arg("60")
        .spawn()
        .unwrap();
    let pid = child.id().cast_signed();
    let stat = process::stat(pid).unwrap().unwrap();
    let note = serde_json::json!({
        "boot_id": process::boot_id().unwrap(), "pid": pid, "start_ticks": stat.start_ticks + 1,
        "drive": "loop-a", "slot": "foreground",
    });
    let path = dir.path().join("notes/foreground-loop-a.json");
    fs::write(&path, note.to_string()).unwrap();
    let pool = Pool::new(config(dir.path())).await.unwrap();
    assert_eq!(child.try_wait().unwrap(), None, "a stranger was killed");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!path.exists());
    pool.run((&drive("a"), FG), Drill(vec![]), LONG)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_note_that_cannot_be_read_blocks_its_slot_until_it_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("notes")).unwrap();
    let path = dir.path().join("notes/foreground-loop-a.json");
    fs::write(&path, "{").unwrap();
    let pool = Pool::new(config(dir.path())).await.unwrap();
    let run = async |name| pool.run((&drive(name), FG), Drill(vec![]), LONG).await;
    assert!(matches!(run("a").await, Err(RunError::Stuck { .. })));
    run("b").await.unwrap();
    fs::remove_file(&path).unwrap();
    until("the slot is free", || {
        pool.status()
            .iter()
            .all(|slot| slot.key.drive() != Some(&drive("a")))
    })
    .await;
    run("a").await.unwrap();
}
