//! One hung drive affects neither the agent nor the other drives, and a restarted agent does not make it worse. Needs root, FUSE and loop
//! devices.

#![allow(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use drivebay_hwtests::{
    hang::{HungDrive, LoopDrive},
    program,
};
use drivebay_model::DriveRef;
use drivebay_sys::process;
use drivebay_worker::{
    Pool, PoolConfig, RunError, Slot, SlotStatus,
    drill::{Act, Drill, DrillError},
    read::{ReadError, ReadSample},
};
use tokio::{
    runtime::{Builder, Runtime},
    time::{sleep, timeout},
};

const SIZE: u64 = 64 << 20;
const FG: Slot = Slot::Foreground;
const AT_ONCE: Duration = Duration::from_millis(800);
/// Time that a call may exceed its deadline by: the second in which a killed worker must end.
const GRACE: Duration = Duration::from_millis(1800);

fn runtime() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

async fn pool(notes: &Path) -> Pool {
    let config = PoolConfig {
        program: program::agent().unwrap(),
        notes_dir: notes.to_owned(),
        fork: true,
        idle: Duration::from_secs(60),
        spare: 8,
        stuck_after: Duration::from_secs(3),
        queue: 8,
    };
    Pool::new(config).await.unwrap()
}

async fn read(pool: &Pool, drive: &DriveRef, limit: Duration) -> Result<u64, RunError<ReadError>> {
    let sample = ReadSample {
        drive: drive.clone(),
        offset: 1 << 20,
        len: 64 << 10,
    };
    pool.run((&drive.id, FG), sample, limit).await
}

async fn answers_at_once(pool: &Pool, drive: &DriveRef) {
    let begun = Instant::now();
    let answer = read(pool, drive, Duration::from_secs(5)).await;
    assert_eq!(answer.unwrap(), 64 << 10);
    assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
}

async fn is_stuck_at_once(pool: &Pool, drive: &DriveRef) {
    let begun = Instant::now();
    let error = read(pool, drive, Duration::from_secs(60))
        .await
        .unwrap_err();
    assert!(matches!(&error, RunError::Stuck { .. }), "{error}");
    assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
}

fn status(pool: &Pool, drive: &DriveRef) -> Option<SlotStatus> {
    pool.status()
        .into_iter()
        .find(|slot| slot.key.drive() == Some(&drive.id))
}

async fn until(what: &str, mut is: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(15);
    while !is() {
        assert!(Instant::now() < end, "not within 15 s: {what}");
        sleep(Duration::from_millis(10)).await;
    }
}

#[test]
fn a_hung_drive_hurts_neither_other_drives_nor_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let notes = dir.path().join("notes");
    let file = dir.path().join("healthy");
    fs::File::create(&file).unwrap().set_len(SIZE).unwrap();
    let healthy_loop = LoopDrive::attach(&file).unwrap();
    let healthy = healthy_loop.drive_ref().unwrap();
    let hang = HungDrive::new(SIZE).unwrap();
    let hung = hang.drive_ref().unwrap();
    let note = notes.join(format!("foreground-{}.json", hung.id));

    let first = runtime();
    let stuck_pid = first.block_on(async {
        let pool = pool(&notes).await;
        // The first call starts a worker; the others find it warm.
        read(&pool, &healthy, Duration::from_secs(5)).await.unwrap();
        read(&pool, &hung, Duration::from_secs(5)).await.unwrap();
        answers_at_once(&pool, &hung).await;

        hang.hang();
        let limit = Duration::from_millis(1500);
        let begun = Instant::now();
        let caller = tokio::spawn({
            let (pool, hung) = (pool.clone(), hung.clone());
            async move { read(&pool, &hung, limit).await }
        });
        until("the drive hangs", || hang.hanging() > 0).await;
        let pid = status(&pool, &hung).unwrap().pid.unwrap();
        until("the worker is in D state", || {
            process::stat(pid).unwrap().unwrap().state == 'D'
        })
        .await;

        // Busy, not Stuck: the step began recently.
        let busy = read(&pool, &hung, Duration::from_millis(100))
            .await
            .unwrap_err();
        assert!(matches!(&busy, RunError::Busy { .. }), "{busy}");
        answers_at_once(&pool, &healthy).await;

        let late = caller.await.unwrap().unwrap_err();
        assert!(
            matches!(&late, RunError::Deadline { step, .. } if step == "reading past the cache"),
            "{late}"
        );
        assert!(begun.elapsed() >= limit && begun.elapsed() < limit + GRACE);

        // SIGKILL had no effect, and the slot reports that.
        assert_eq!(process::stat(pid).unwrap().unwrap().state, 'D');
        for _ in 0..100 {
            is_stuck_at_once(&pool, &hung).await;
        }
        answers_at_once(&pool, &healthy).await;
        let slot = status(&pool, &hung).unwrap();
        assert!(slot.stuck && slot.pid == Some(pid));
        timeout(AT_ONCE, pool.cancel((&hung.id, FG))).await.unwrap();

        let begun = Instant::now();
        pool.shutdown(Duration::from_millis(500)).await;
        assert!(begun.elapsed() < Duration::from_millis(1600));
        pid
    });
    let begun = Instant::now();
    drop(first);
    assert!(
        begun.elapsed() < Duration::from_secs(1),
        "the runtime waited"
    );
    let noted = fs::read_to_string(&note).unwrap();
    assert!(noted.contains(&stuck_pid.to_string()));

    runtime().block_on(async {
        let begun = Instant::now();
        let pool = pool(&notes).await;
        assert!(begun.elapsed() < Duration::from_millis(2500));
        is_stuck_at_once(&pool, &hung).await;
        answers_soon(&pool, &healthy).await;
        answers_at_once(&pool, &healthy).await;
        let slot = status(&pool, &hung).unwrap();
        assert!(slot.stuck && slot.pid == Some(stuck_pid));
        assert_eq!(
            fs::read_to_string(&note).unwrap(),
            noted,
            "a second worker was started"
        );

        hang.resume();
        until("the slot is free", || status(&pool, &hung).is_none()).await;
        assert!(!note.exists());
        answers_soon(&pool, &hung).await;
        assert_ne!(status(&pool, &hung).unwrap().pid, Some(stuck_pid));
        pool.shutdown(Duration::from_secs(5)).await;
        assert_eq!(pool.status(), vec![]);
    });
}

/// Reads the drive within a time limit that includes the start of a worker.
async fn answers_soon(pool: &Pool, drive: &DriveRef) {
    read(pool, drive, Duration::from_secs(5)).await.unwrap();
}

#[test]
fn a_drive_that_answers_again_frees_its_slot_in_the_same_agent() {
    let hang = HungDrive::new(SIZE).unwrap();
    let hung = hang.drive_ref().unwrap();
    let dir = tempfile::tempdir().unwrap();
    runtime().block_on(async {
        let pool = pool(dir.path()).await;
        hang.hang();
        let late = read(&pool, &hung, Duration::from_millis(300))
            .await
            .unwrap_err();
        assert!(matches!(&late, RunError::Deadline { .. }), "{late}");
        is_stuck_at_once(&pool, &hung).await;
        hang.resume();
        until("the slot is free", || status(&pool, &hung).is_none()).await;
        answers_soon(&pool, &hung).await;
        pool.shutdown(Duration::from_secs(5)).await;
    });
}

/// Runs a tool of the worker that reads the drive, so that the tool and not the worker hangs.
async fn read_by_tool(
    pool: &Pool,
    drive: &DriveRef,
    tool_ms: u64,
    limit: Duration,
) -> Result<u32, RunError<DrillError>> {
    let acts = vec![Act::Read(drive.node(), tool_ms)];
    pool.run((&drive.id, FG), Drill(acts), limit).await
}

#[test]
fn a_slot_is_stuck_while_a_tool_of_its_dead_worker_hangs() {
    let hang = HungDrive::new(SIZE).unwrap();
    let hung = hang.drive_ref().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let first = runtime();
    let dead = first.block_on(async {
        let pool = pool(dir.path()).await;
        hang.hang();
        let caller = tokio::spawn({
            let (pool, hung) = (pool.clone(), hung.clone());
            async move { read_by_tool(&pool, &hung, 60_000, Duration::from_secs(2)).await }
        });
        until("the drive hangs", || hang.hanging() > 0).await;
        let pid = status(&pool, &hung).unwrap().pid.unwrap();
        let late = caller.await.unwrap().unwrap_err();
        assert!(matches!(&late, RunError::Deadline { .. }), "{late}");
        assert_eq!(
            process::stat(pid).unwrap(),
            None,
            "the worker could be killed"
        );
        is_stuck_at_once(&pool, &hung).await;
        pool.shutdown(Duration::ZERO).await;
        pid
    });
    drop(first);
    // A new agent finds no process with the noted id, but the tool in its session.
    runtime().block_on(async {
        let pool = pool(dir.path()).await;
        is_stuck_at_once(&pool, &hung).await;
        assert_eq!(status(&pool, &hung).unwrap().pid, Some(dead));
        hang.resume();
        until("the slot is free", || status(&pool, &hung).is_none()).await;
        answers_soon(&pool, &hung).await;
        pool.shutdown(Duration::from_secs(5)).await;
    });
}

#[test]
fn a_worker_that_leaves_a_hung_tool_behind_gets_no_more_work() {
    let hang = HungDrive::new(SIZE).unwrap();
    let hung = hang.drive_ref().unwrap();
    let dir = tempfile::tempdir().unwrap();
    runtime().block_on(async {
        let pool = pool(dir.path()).await;
        hang.hang();
        let failed = read_by_tool(&pool, &hung, 300, Duration::from_secs(20)).await;
        assert!(
            matches!(&failed, Err(RunError::Job(DrillError(why))) if why.contains("did not end")),
            "{failed:?}"
        );
        until("the slot is stuck", || {
            status(&pool, &hung).is_some_and(|slot| slot.stuck)
        })
        .await;
        is_stuck_at_once(&pool, &hung).await;
        hang.resume();
        until("the slot is free", || status(&pool, &hung).is_none()).await;
        answers_soon(&pool, &hung).await;
        pool.shutdown(Duration::from_secs(5)).await;
    });
}

#[test]
fn a_sample_is_not_read_from_another_drive_of_the_same_name() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::File::create(&file).unwrap().set_len(SIZE).unwrap();
    let drive = LoopDrive::attach(&file).unwrap();
    let right = drive.drive_ref().unwrap();
    runtime().block_on(async {
        let pool = pool(&dir.path().join("notes")).await;
        for change in [
            |drive: &mut DriveRef| drive.diskseq += 1,
            |drive: &mut DriveRef| drive.minor += 1,
            |drive: &mut DriveRef| drive.size_bytes -= 512,
            |drive: &mut DriveRef| drive.id.0.push('x'),
        ] {
            let mut wrong = right.clone();
            change(&mut wrong);
            let error = read(&pool, &wrong, Duration::from_secs(5))
                .await
                .unwrap_err();
            assert!(
                matches!(&error, RunError::Job(ReadError::NotThisDrive { .. })),
                "{error}"
            );
        }
        read(&pool, &right, Duration::from_secs(5)).await.unwrap();
        pool.shutdown(Duration::from_secs(5)).await;
    });
}
