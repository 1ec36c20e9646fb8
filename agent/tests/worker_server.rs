//! The worker server with real processes: what a forked worker is and shares, and that jobs go on when the server dies,
//! hangs, or cannot be had.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a failed helper is a failed test"
)]

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use drivebay_model::DriveId;
use drivebay_sys::process;
use drivebay_worker::{
    Pool, PoolConfig, RunError, Slot,
    drill::{Act, Drill, DrillError},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tempfile::TempDir;

const LONG: Duration = Duration::from_secs(60);
/// Memory that an idle worker of a debug build has for itself, in KiB; executed it has three times as much.
const PRIVATE: u64 = 512;

struct Rig {
    pool: Pool,
    _dir: TempDir,
}

async fn rig(change: impl FnOnce(&mut PoolConfig, &Path)) -> Rig {
    let dir = tempfile::tempdir().unwrap();
    let mut config = PoolConfig {
        program: PathBuf::from(env!("CARGO_BIN_EXE_drivebay-agent")),
        notes_dir: dir.path().join("notes"),
        fork: true,
        idle: LONG,
        spare: 8,
        stuck_after: LONG,
        queue: 4,
    };
    change(&mut config, dir.path());
    let pool = Pool::new(config).await.unwrap();
    Rig { pool, _dir: dir }
}

impl Rig {
    async fn run(&self, drive: &str, acts: Vec<Act>) -> Result<i32, RunError<DrillError>> {
        let drive = DriveId(format!("loop-{drive}"));
        let limit = Duration::from_millis(300);
        let limit = match acts.iter().any(|act| matches!(act, Act::Tool(_))) {
            true => limit,
            false => LONG,
        };
        let ran = self
            .pool
            .run((&drive, Slot::Foreground), Drill(acts), limit);
        ran.await.map(u32::cast_signed)
    }

    fn server(&self) -> i32 {
        self.pool.server().unwrap()
    }
}

fn signal(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).unwrap();
}

fn arguments(pid: i32) -> Vec<String> {
    let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap();
    let all = line.trim_end_matches('\0').split('\0');
    all.skip(1).map(|word| word.trim().to_owned()).collect()
}

/// Returns the private memory of a process, KiB.
fn private(pid: i32) -> u64 {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let lines = rollup.lines().filter(|line| line.starts_with("Private_"));
    let numbers = lines.map(|line| line.split_whitespace().nth(1).unwrap());
    numbers.map(|number| number.parse::<u64>().unwrap()).sum()
}

fn exists(pid: i32) -> bool {
    process::stat(pid).unwrap().is_some()
}

/// Children of this process that ended and are not reaped.
fn zombies() -> Vec<i32> {
    let own = std::process::id().cast_signed();
    let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let name = entry.unwrap().file_name();
        name.to_str()?.parse::<i32>().ok()
    });
    let all = pids.filter_map(|pid| process::stat(pid).unwrap());
    all.filter(|process| process.parent == own && process.state == 'Z')
        .map(|process| process.pid)
        .collect()
}

/// Orphans are reaped when a worker ends: until something is so, one does.
async fn until_reaped(rig: &Rig, what: &str, mut is: impl FnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !is() {
        assert!(Instant::now() < end, "not in time: {what}");
        rig.run("last", vec![Act::Exit(0)]).await.unwrap_err();
    }
}

#[tokio::test]
async fn a_forked_worker_is_the_agents_child_and_the_process_list_names_its_drive() {
    let rig = rig(|_, _| {}).await;
    let pid = rig.run("a", vec![]).await.unwrap();
    let stat = process::stat(pid).unwrap().unwrap();
    assert_eq!(stat.parent, std::process::id().cast_signed());
    assert_eq!((stat.session, stat.threads), (pid, 1));
    assert_eq!(arguments(pid), ["worker", "foreground", "loop-a"]);
    assert_eq!(arguments(rig.server())[0], "worker-server");
    let server = process::stat(rig.server()).unwrap().unwrap();
    assert_eq!((server.session, server.threads), (server.pid, 1));
    let program = |pid: i32| fs::read_link(format!("/proc/{pid}/exe")).unwrap();
    assert_eq!(program(pid), program(rig.server()));
}

#[tokio::test]
async fn an_idle_worker_has_little_memory_of_its_own() {
    let forked = rig(|_, _| {}).await;
    let executed = rig(|config, _| config.fork = false).await;
    let acts = || vec![Act::Step("x".into()), Act::Log("a line".into())];
    let (mut of_forked, mut of_executed) = (0, 0);
    // Several: a page of the program that one alone has touched counts as its own.
    for drive in ["a", "b", "c"].into_iter().cycle().take(6) {
        of_forked = private(forked.run(drive, acts()).await.unwrap());
        of_executed = private(executed.run(drive, acts()).await.unwrap());
    }
    println!("forked {of_forked} KiB, executed {of_executed} KiB");
    assert!(of_forked <= PRIVATE, "{of_forked} KiB");
    assert!(of_forked * 2 <= of_executed, "executed: {of_executed} KiB");
}

#[tokio::test]
async fn a_server_that_died_is_replaced_and_its_workers_go_on() {
    let rig = rig(|_, _| {}).await;
    let (worker, server) = (rig.run("a", vec![]).await.unwrap(), rig.server());
    signal(server, Signal::SIGKILL);
    let other = rig.run("b", vec![]).await.unwrap();
    assert_ne!(rig.server(), server);
    assert_eq!(arguments(other), ["worker", "foreground", "loop-b"]);
    assert_eq!(rig.run("a", vec![]).await.unwrap(), worker);
    assert!(matches!(
        rig.run("a", vec![Act::Exit(9)]).await.unwrap_err(),
        RunError::Worker { why, .. } if why == "it exited with code 9"
    ));
    until_reaped(&rig, "the server that died", || !exists(server)).await;
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_killed_and_the_job_runs() {
    let rig = rig(|_, _| {}).await;
    rig.run("a", vec![]).await.unwrap();
    let server = rig.server();
    signal(server, Signal::SIGSTOP);
    let pids = tokio::join!(rig.run("b", vec![]), rig.run("c", vec![]));
    assert_ne!(pids.0.unwrap(), pids.1.unwrap());
    assert_ne!(rig.server(), server);
    until_reaped(&rig, "the server that hung", || !exists(server)).await;
}

#[tokio::test]
async fn without_a_server_workers_are_executed() {
    let rig = rig(|config, dir| {
        let script = dir.join("script");
        let program = config.program.display();
        fs::write(
            &script,
            format!("#!/bin/sh\n[ $1 = worker ] && exec {program} \"$@\"\necho no server >&2\n"),
        )
        .unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        config.program = script;
    })
    .await;
    let pid = rig.run("a", vec![]).await.unwrap();
    assert_eq!(rig.pool.server(), None);
    assert_eq!(arguments(pid), ["worker", "foreground", "loop-a"]);
    assert_eq!(rig.run("a", vec![]).await.unwrap(), pid);
}

#[tokio::test]
async fn many_jobs_leave_neither_processes_nor_zombies() {
    let rig = rig(|config, _| config.idle = Duration::from_millis(1)).await;
    for round in 0..10 {
        rig.run("a", vec![]).await.unwrap();
        rig.run("b", vec![Act::Exit(3)]).await.unwrap_err();
        // Killed at its deadline; its tool dies with it and is left to the agent.
        let late = rig.run(&format!("c{round}"), vec![Act::Tool(600)]).await;
        assert!(matches!(late, Err(RunError::Deadline { .. })));
    }
    until_reaped(&rig, "all that ended", || zombies().is_empty()).await;
}
