//! One row of the table: a drive with volumes in use, a call, the step at which it hangs, and the result.

use std::{
    fs,
    time::{Duration, Instant},
};

use drivebay_hwtests::{
    MIB, csi,
    hang::{DriveRequest, Hang, HungDrive, Kind},
    node::{Node, Placed},
    tree, wait,
};
use tokio::{task::JoinHandle, time::timeout};
use tonic::Status;

use crate::call::{Call, Subject, make, repeated};

/// Time limit of a call that needs nothing from a hung drive: less than the shortest deadline of a step that does (10 s), so that it cannot
/// have waited for one.
pub(crate) const PROMPT: Duration = Duration::from_secs(8);
/// Time limit for unstaging a hung volume, with all repeats: the kubelet's call lasts two minutes.
const LEAVE: Duration = Duration::from_secs(90);
/// Time limit for the call to reach the step at which it hangs.
const BEGUN: Duration = Duration::from_secs(20);
/// A repair is retried by the next scan that finds the drive responding.
const REPAIRED: Duration = Duration::from_secs(60);
/// Contents of the volumes that no call concerns.
const KEPT: &str = "kept";

/// Parameters of a row.
#[derive(Debug, Clone)]
pub(crate) struct Spec {
    pub(crate) call: Call,
    pub(crate) hang: Hang,
}

/// Time of the agent's restart: while the calls wait for their answers, or afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Restart {
    BeforeAnswers,
    AfterAnswers,
}

/// Result of a row.
#[derive(Debug, Clone, Default)]
pub(crate) struct Outcome {
    pub(crate) call: String,
    pub(crate) at: String,
    pub(crate) answer: String,
    pub(crate) left: String,
    pub(crate) again: String,
    pub(crate) back: String,
    /// Descriptions of the defects.
    pub(crate) wrong: Vec<String>,
}

type Answer = (Result<Option<Placed>, Status>, Duration);

pub(crate) struct Row {
    pub(crate) spec: Spec,
    pub(crate) drive: HungDrive,
    /// Second drive of the class, if the call has one.
    _second: Option<HungDrive>,
    pub(crate) node: Node,
    pub(crate) subject: Subject,
    pub(crate) outcome: Outcome,
    others: Vec<Placed>,
    running: Option<JoinHandle<Answer>>,
    /// True if the call returned OK while the drive hung.
    is_done: bool,
}

impl Drop for Row {
    fn drop(&mut self) {
        // Before everything else, or the rest would never end.
        self.drive.resume();
    }
}

impl Row {
    pub(crate) fn new(
        spec: Spec,
        number: usize,
        drive: HungDrive,
        second: Option<HungDrive>,
        node: Node,
    ) -> Self {
        let outcome = Outcome {
            call: format!("{:?}", spec.call),
            at: format!("{:?}", spec.hang),
            ..Outcome::default()
        };
        Self {
            spec,
            drive,
            _second: second,
            node,
            subject: Subject {
                class: class(number),
                name: format!("subject{number}"),
                volume: None,
            },
            outcome,
            others: Vec::new(),
            running: None,
            is_done: false,
        }
    }

    /// Creates the other volumes, in use, and the state that the call needs, on a drive that responds.
    pub(crate) async fn prepare(mut self) -> Self {
        let call = self.spec.call;
        if call.has_others() {
            let kinds = [
                ("ext4", 64, csi::mount("ext4")),
                ("xfs", 304, csi::mount("xfs")),
                ("block", 16, csi::block()),
            ];
            for (kind, size, how) in kinds {
                let name = format!("{}-{kind}", self.subject.class);
                let made = make(&self.node, &self.subject.class, &name, size * MIB, &how).await;
                let volume = self.node.place(&made.unwrap(), &name, &how);
                self.node.use_volume(&volume).await;
                if kind == "block" {
                    write_block(&volume);
                } else {
                    let kept = volume.target.join("kept");
                    fs::write(&kept, KEPT).unwrap();
                    fs::File::open(&kept).unwrap().sync_all().unwrap();
                }
                self.others.push(volume);
            }
        }
        call.prepare(&self.node, &mut self.subject, &self.drive)
            .await;
        self
    }

    /// Makes the call while nothing hangs, and returns its requests to the drive.
    pub(crate) async fn count(mut self) -> (Self, Vec<DriveRequest>) {
        self.drive.watch();
        let answer = self.spec.call.make(&self.node, &self.subject).await;
        let call = self.spec.call;
        match answer {
            Ok(made) => self.subject.volume = self.subject.volume.take().or(made),
            // A repair that returns ABORTED while it runs.
            Err(_) if call == Call::StageRepair => {}
            Err(status) => panic!("{call:?} while nothing hangs: {status}"),
        }
        if call == Call::Delete {
            self.node.erased().await;
        }
        if call == Call::Repair {
            self.is_repaired().await.unwrap();
        }
        let requests = self.drive.requests();
        (self, requests)
    }

    /// Dirties the other filesystems, hangs the drive, and begins the call. Returns when the call hangs or has returned.
    pub(crate) async fn strike(mut self) -> Self {
        for volume in &self.others {
            if volume.target.is_dir() {
                fs::write(volume.target.join("dirty"), vec![7; 1 << 18]).unwrap();
            }
        }
        self.drive.hang_on(self.spec.hang.clone());
        let (call, node, subject) = (self.spec.call, self.node.clone(), self.subject.clone());
        let running = tokio::spawn(async move {
            let begun = Instant::now();
            (call.make(&node, &subject).await, begun.elapsed())
        });
        wait::poll_async(BEGUN, async || {
            (self.drive.hanging() > 0 || running.is_finished()).then_some(())
        })
        .await;
        self.outcome.at = match self.drive.first_hanging() {
            Some(request) => format!("{} {}", described(&self.spec.hang), self.place(&request)),
            None => format!("{} (nothing is asked of it)", described(&self.spec.hang)),
        };
        self.running = Some(running);
        self
    }

    /// Returns the structure that a request concerns.
    fn place(&self, request: &DriveRequest) -> String {
        let kind = match request.kind {
            Kind::Read => "read",
            Kind::Write => "write",
            Kind::Flush => return "flush".to_owned(),
        };
        let size = self.drive.drive_ref().unwrap().size_bytes;
        let place = match request.bytes.start {
            at if at < MIB => "table",
            at if at < 3 * MIB => "label slot 0",
            at if at < 5 * MIB => "label slot 1",
            at if at >= size - MIB => "backup table",
            _ => "volume",
        };
        format!("{kind} {place}")
    }

    /// Waits for the answer to the call until its deadline.
    pub(crate) async fn answered(mut self) -> Self {
        let Some(running) = self.running.take() else {
            return self;
        };
        let Some(deadline) = self.spec.call.deadline() else {
            "waits".clone_into(&mut self.outcome.answer);
            return self;
        };
        match timeout(deadline, running).await {
            Ok(answer) => {
                let (answer, took) = answer.unwrap();
                self.outcome.answer = format!("{} {:.1} s", code(&answer), took.as_secs_f64());
                self.judge(answer);
            }
            Err(_) => {
                self.outcome.answer = "none".to_owned();
                let limit = deadline.as_secs();
                self.outcome.wrong.push(format!("no answer in {limit} s"));
            }
        }
        self
    }

    /// Records the call's answer if it came before the agent was killed.
    pub(crate) async fn cut_off(mut self) -> Self {
        let Some(running) = self.running.take() else {
            return self;
        };
        if running.is_finished() {
            self.running = Some(running);
            return self.answered().await;
        }
        running.abort();
        "cut off".clone_into(&mut self.outcome.answer);
        self
    }

    fn judge(&mut self, answer: Result<Option<Placed>, Status>) {
        match answer {
            Ok(made) => {
                self.is_done = true;
                self.subject.volume = self.subject.volume.take().or(made);
            }
            Err(status) if self.spec.call.may_answer(status.code()) => {}
            Err(status) => self.outcome.wrong.push(format!("answered {status}")),
        }
    }

    /// Repeats the call while the drive still hangs and another agent runs.
    pub(crate) async fn again(mut self) -> Self {
        let Some(deadline) = self.spec.call.deadline() else {
            return self;
        };
        let begun = Instant::now();
        let call = self.spec.call;
        match timeout(deadline, call.make(&self.node, &self.subject)).await {
            Ok(answer) => {
                let took = begun.elapsed().as_secs_f64();
                self.outcome.again = format!("{} {took:.1} s", code(&answer));
                self.judge(answer);
            }
            Err(_) => {
                self.outcome.again = "none".to_owned();
                let limit = deadline.as_secs();
                let wrong = format!("no answer in {limit} s after the restart");
                self.outcome.wrong.push(wrong);
            }
        }
        self
    }

    /// Unpublishes these of the other volumes promptly, and unstages them before the time limit.
    pub(crate) async fn leave(mut self, which: std::ops::Range<usize>) -> Self {
        let begun = Instant::now();
        let mut leaving = tokio::task::JoinSet::new();
        for volume in self.others.get(which).unwrap_or_default().to_vec() {
            let csi = self.node.csi.clone();
            leaving.spawn(async move {
                let mut wrong = Vec::new();
                let unpublished = timeout(PROMPT, async {
                    while csi.unpublish(&volume.id, &volume.target).await.is_err() {
                        tokio::time::sleep(Duration::from_millis(250)).await;
                    }
                });
                if unpublished.await.is_err() {
                    wrong.push(format!("{} is not unpublished at once", volume.id));
                }
                let unstaged = timeout(LEAVE, async {
                    while csi.unstage(&volume.id, &volume.staging).await.is_err() {
                        tokio::time::sleep(Duration::from_millis(500)).await;
                    }
                });
                if unstaged.await.is_err() {
                    wrong.push(format!("{} is not unstaged in time", volume.id));
                }
                for path in [&volume.target, &volume.staging] {
                    if tree::mounted_times(path) > 0 {
                        wrong.push(format!("{} is still mounted", path.display()));
                    }
                }
                wrong
            });
        }
        if leaving.is_empty() {
            return self;
        }
        self.outcome
            .wrong
            .extend(leaving.join_all().await.into_iter().flatten());
        let took = begun.elapsed().as_secs_f64();
        if !self.outcome.left.is_empty() {
            self.outcome.left.push_str(", ");
        }
        self.outcome.left.push_str(&format!("{took:.1} s"));
        self
    }

    /// Resumes the drive: what was answered with OK has happened, the repeated call does the rest, and no data is lost.
    pub(crate) async fn back(mut self) -> Self {
        let begun = Instant::now();
        let call = self.spec.call;
        self.drive.resume();
        if self.is_done
            && !matches!(call, Call::Claim | Call::Create | Call::CreateEither)
            && let Some(lacks) = call.lacks(&self.node, &self.subject).await
        {
            self.outcome.wrong.push(format!("OK, and {lacks}"));
        }
        match repeated(async || call.make(&self.node, &self.subject).await).await {
            Ok(made) => self.subject.volume = self.subject.volume.take().or(made),
            Err(status) => self.outcome.wrong.push(format!("repeated: {status}")),
        }
        if call == Call::Repair
            && let Err(why) = self.is_repaired().await
        {
            self.outcome.wrong.push(why);
        }
        let nameless = Subject {
            volume: None,
            ..self.subject.clone()
        };
        let subject = match call {
            Call::Claim | Call::Create | Call::CreateEither => nameless,
            _ => self.subject.clone(),
        };
        if let Some(lacks) = call.lacks(&self.node, &subject).await {
            self.outcome.wrong.push(format!("in the end: {lacks}"));
        }
        if let Err(why) = call.is_usable(&self.node, &self.subject).await {
            self.outcome.wrong.push(why);
        }
        for volume in &self.others {
            if let Err(why) = self.is_kept(volume).await {
                self.outcome.wrong.push(format!("{}: {why}", volume.id));
            }
        }
        self.outcome.back = format!("{:.1} s", begun.elapsed().as_secs_f64());
        self
    }

    /// Waits for the backup table to be restored.
    async fn is_repaired(&self) -> Result<(), String> {
        let size = self.drive.drive_ref().unwrap().size_bytes;
        let repaired = wait::poll_async(REPAIRED, async || {
            let mut is = false;
            let read = |header: &mut [u8]| is = header.starts_with(b"EFI PART");
            self.drive.alter(size - 512, 512, read).unwrap();
            is.then_some(())
        });
        repaired.await.ok_or("not repaired".to_owned())
    }

    /// Stages one of the other volumes and verifies its contents.
    async fn is_kept(&self, volume: &Placed) -> Result<(), String> {
        let csi = &self.node.csi;
        let message = |status: Status| status.to_string();
        let staged = repeated(async || {
            csi.stage(&volume.id, &volume.staging, &volume.capability)
                .await
        });
        staged.await.map_err(message)?;
        let published = csi.publish(
            &volume.id,
            &volume.staging,
            &volume.target,
            &volume.capability,
            false,
        );
        published.await.map_err(message)?;
        let held = match volume.target.is_dir() {
            true => fs::read_to_string(volume.target.join("kept")),
            false => read_block(volume),
        };
        csi.unpublish(&volume.id, &volume.target)
            .await
            .map_err(message)?;
        csi.unstage(&volume.id, &volume.staging)
            .await
            .map_err(message)?;
        match held.as_deref() {
            Ok(KEPT) => Ok(()),
            other => Err(format!("its data: {other:?}")),
        }
    }
}

pub(crate) fn class(number: usize) -> String {
    format!("hung{number}")
}

fn described(hang: &Hang) -> String {
    match hang {
        Hang::All => "all:".to_owned(),
        Hang::Writes => "writes:".to_owned(),
        Hang::Flushes => "flushes:".to_owned(),
        Hang::After(n) => format!("request {}:", n + 1),
        Hang::Flushed(n) => format!("behind flush {n}:"),
        Hang::WritesTo(bytes) => format!("writes to {}-{}:", bytes.start, bytes.end),
    }
}

fn code(answer: &Result<Option<Placed>, Status>) -> String {
    match answer {
        Ok(_) => "OK".to_owned(),
        Err(status) => format!("{:?}", status.code()),
    }
}

fn write_block(volume: &Placed) {
    use std::os::unix::fs::FileExt;
    let node = fs::File::options()
        .write(true)
        .open(&volume.target)
        .unwrap();
    node.write_all_at(KEPT.as_bytes(), MIB).unwrap();
    node.sync_all().unwrap();
}

fn read_block(volume: &Placed) -> std::io::Result<String> {
    use std::os::unix::fs::FileExt;
    let mut bytes = vec![0; KEPT.len()];
    fs::File::open(&volume.target)?.read_exact_at(&mut bytes, MIB)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
