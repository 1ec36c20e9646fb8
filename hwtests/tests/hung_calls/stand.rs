//! Many rows at a time on one agent, each with its own drive: they hang together, and none may affect another.

use std::{
    fs,
    future::Future,
    time::{Duration, Instant},
};

use drivebay_hwtests::{
    DriveSpec, GIB, MIB, Rig, csi,
    each::each,
    faults::{self, Outcomes},
    hang::{Hang, HungDrive, Kind, class_of},
};
use tokio::time::timeout;
use tonic::Status;

use crate::{
    call::{CALLS, Call, make},
    row::{Outcome, PROMPT, Restart, Row, Spec, class},
};

/// Number of rows at a time.
const BATCH: usize = 10;
/// Number of steps tried per call.
const STEPS: usize = 4;
const DRIVE: u64 = 1200 * MIB;

/// Results of all rows.
pub(crate) type Table = Outcomes<Outcome>;

impl faults::Outcome for Outcome {
    const HEAD: &'static [&'static str] =
        &["CALL", "HANGS AT", "ANSWER", "AGAIN", "OTHERS LEFT", "BACK"];

    fn cells(&self) -> Vec<String> {
        [
            &self.call,
            &self.at,
            &self.answer,
            &self.again,
            &self.left,
            &self.back,
        ]
        .map(String::clone)
        .into()
    }

    fn wrong(&self) -> &[String] {
        &self.wrong
    }
}

/// Fields are dropped in this order: the agent and the mounts before the drives.
struct Stand {
    rig: Rig,
    rows: Vec<Row>,
}

impl Drop for Stand {
    fn drop(&mut self) {
        // Before everything else, or the rest would never end.
        for row in &self.rows {
            row.drive.resume();
        }
    }
}

impl Stand {
    async fn new(specs: &[Spec]) -> Self {
        let drives: Vec<_> = specs
            .iter()
            .map(|spec| {
                let second = spec.call.has_a_second_drive();
                let drive = HungDrive::new(DRIVE).unwrap();
                // Larger: of two blank drives the smaller one is claimed first.
                let second = second.then(|| HungDrive::new(DRIVE + GIB).unwrap());
                (drive, second)
            })
            .collect();
        let class = |(n, (drive, second)): (usize, &(HungDrive, Option<HungDrive>))| {
            class_of(&class(n), "partition", [drive].into_iter().chain(second))
        };
        let more: String = drives.iter().enumerate().map(class).collect();
        let rig = Rig::tuned(vec![DriveSpec::blank("healthy", 4 * GIB)], |settings| {
            settings.more = more;
        })
        .await;
        for (drive, second) in &drives {
            rig.is_available(drive).await;
            if let Some(second) = second {
                rig.is_available(second).await;
            }
        }
        let row = |(n, ((drive, second), spec)): (usize, ((HungDrive, _), &Spec))| {
            Row::new(spec.clone(), n, drive, second, rig.node.clone())
        };
        let rows = drives.into_iter().zip(specs).enumerate().map(row).collect();
        Self { rig, rows }
    }

    /// Runs `act` on all rows concurrently.
    async fn each<F: Future<Output = Row> + 'static>(&mut self, act: impl Fn(Row) -> F) {
        self.rows = each(std::mem::take(&mut self.rows), act).await;
    }

    async fn restart(&mut self) -> Duration {
        let begun = Instant::now();
        self.rig.agent.kill9();
        self.rig.start_again().await;
        for row in &mut self.rows {
            row.node = self.rig.node.clone();
        }
        begun.elapsed()
    }
}

/// Runs the life of a volume on a responding drive. Returns its longest call; each must end within `limit`.
async fn beside(
    rig: &drivebay_hwtests::Node,
    name: &str,
    limit: Duration,
) -> (Duration, Vec<String>) {
    let mut longest = Duration::ZERO;
    let mut wrong = Vec::new();
    let mut timed = async |what: &str,
                           call: std::pin::Pin<
        Box<dyn Future<Output = Result<(), Status>> + Send + '_>,
    >| {
        let begun = Instant::now();
        match timeout(limit, call).await {
            Ok(Ok(())) => {}
            Ok(Err(status)) => wrong.push(format!("beside it, {what}: {status}")),
            Err(_) => {
                let limit = limit.as_secs();
                wrong.push(format!("beside it, {what} waits for {limit} s"));
            }
        }
        longest = longest.max(begun.elapsed());
    };
    let csi = &rig.csi;
    let how = csi::mount("ext4");
    let made = std::sync::Mutex::new(None);
    let create = async {
        let volume = make(rig, "demo", name, 64 * MIB, &how).await?;
        *made.lock().unwrap() = Some(rig.place(&volume, name, &how));
        Ok(())
    };
    timed("create", Box::pin(create)).await;
    let volume = made.lock().unwrap().take();
    if let Some(volume) = volume {
        let (id, staging, target) = (&volume.id, &volume.staging, &volume.target);
        timed("stage", Box::pin(csi.stage(id, staging, &how))).await;
        timed(
            "publish",
            Box::pin(csi.publish(id, staging, target, &how, false)),
        )
        .await;
        let write = async {
            fs::write(target.join("file"), "written")
                .map_err(|error| Status::internal(error.to_string()))
        };
        timed("write", Box::pin(write)).await;
        timed(
            "sample",
            Box::pin(async { csi.stats(id, target).await.map(drop) }),
        )
        .await;
        timed("unpublish", Box::pin(csi.unpublish(id, target))).await;
        timed("unstage", Box::pin(csi.unstage(id, staging))).await;
        timed("delete", Box::pin(csi.delete(id))).await;
    }
    timed("list", Box::pin(async { csi.list().await.map(drop) })).await;
    (longest, wrong)
}

/// Runs rows that hang together.
pub(crate) async fn run(specs: &[Spec], restart: Restart) -> Table {
    let begun = Instant::now();
    let log = |what: &str| eprintln!("{:6.1} s: {what}", begun.elapsed().as_secs_f64());
    let mut stand = Stand::new(specs).await;
    stand.each(Row::prepare).await;
    // Data written by others, such as a build, must not be waited for below.
    nix::unistd::sync();
    // A sample without cached data waits for the drive.
    fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
    // The machine's disk may be busy: time that a call takes while nothing hangs is no time spent waiting for a drive.
    let (bare, failed) = beside(&stand.rig.node, "beside-0", 8 * PROMPT).await;
    assert!(failed.is_empty(), "before anything hangs: {failed:?}");
    let limit = PROMPT + 2 * bare;
    log("prepared");
    stand.each(Row::strike).await;
    log("hanging");
    let node = stand.rig.node.clone();
    let (first, ()) = tokio::join!(
        beside(&node, "beside-1", limit),
        stand.each(|row| row.leave(0..1))
    );
    log("left, one of each");
    if restart == Restart::AfterAnswers {
        stand.each(Row::answered).await;
        log("answered");
    }
    stand.each(Row::cut_off).await;
    let ready = stand.restart().await;
    log("restarted");
    let node = stand.rig.node.clone();
    let (second, ()) = tokio::join!(beside(&node, "beside-2", limit), async {
        stand.each(|row| row.leave(1..3)).await;
        log("left, all");
        if restart == Restart::AfterAnswers {
            stand.each(Row::again).await;
            log("answered again");
        }
    });
    stand.each(Row::back).await;
    log("back");
    let mut table = Outcomes(stand.rows.iter().map(|row| row.outcome.clone()).collect());
    if stand.rows.iter().any(|row| !row.outcome.wrong.is_empty()) {
        eprintln!("{}", stand.rig.agent.log_tail());
    }
    let longest = first.0.max(second.0).as_secs_f64();
    table.0.push(Outcome {
        call: "beside these".to_owned(),
        at: format!("{} drives hang", specs.len()),
        answer: format!("OK {longest:.1} s at most"),
        again: format!("ready after {:.1} s", ready.as_secs_f64()),
        wrong: [first.1, second.1].concat(),
        ..Outcome::default()
    });
    table
}

/// Runs each step of each call, in batches.
pub(crate) async fn all_steps() -> Table {
    let only = std::env::var("DRIVEBAY_HUNG_CALLS").unwrap_or_default();
    let chosen = |call: &Call| format!("{call:?}").contains(&only);
    let calls: Vec<Call> = CALLS.into_iter().filter(chosen).collect();
    let mut specs = Vec::new();
    for calls in calls.chunks(BATCH) {
        specs.extend(steps(calls).await);
    }
    // Rows with equal deadlines hang together.
    specs.sort_by_key(|spec| spec.call.deadline());
    let mut table = Outcomes(Vec::new());
    for batch in specs.chunks(BATCH) {
        let rows = run(batch, Restart::AfterAnswers).await;
        table.0.extend(rows.print().0);
    }
    table
}

/// Returns the steps at which each call is made to hang, from its requests while nothing hangs.
async fn steps(calls: &[Call]) -> Vec<Spec> {
    let specs: Vec<Spec> = calls
        .iter()
        .map(|call| Spec {
            call: *call,
            hang: Hang::All,
        })
        .collect();
    let mut stand = Stand::new(&specs).await;
    stand.each(Row::prepare).await;
    fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
    let mut call_specs = Vec::new();
    let mut rows = Vec::new();
    for row in std::mem::take(&mut stand.rows) {
        let call = row.spec.call;
        let (row, requests) = row.count().await;
        rows.push(row);
        let count = |kind: Kind| {
            requests
                .iter()
                .filter(|request| request.kind == kind)
                .count()
        };
        let kinds = [Kind::Read, Kind::Write, Kind::Flush].map(count);
        println!(
            "{call:?}: {} reads, {} writes, {} flushes",
            kinds[0], kinds[1], kinds[2]
        );
        let total = requests.len() as u64;
        let mut hangs: Vec<Hang> = spread(total).into_iter().map(Hang::After).collect();
        if total == 0 {
            hangs.push(Hang::All);
        }
        if kinds[1] > 0 {
            hangs.push(Hang::Writes);
        }
        if kinds[2] > 0 {
            hangs.push(Hang::Flushes);
        }
        call_specs.extend(hangs.into_iter().map(|hang| Spec { call, hang }));
    }
    stand.rows = rows;
    call_specs
}

/// Returns the first, the last, and some steps between, evenly spaced.
fn spread(total: u64) -> Vec<u64> {
    let steps = (STEPS as u64).min(total);
    let mut all: Vec<u64> = (0..steps)
        .map(|step| step * (total - 1) / (steps - 1).max(1))
        .collect();
    all.dedup();
    all
}
