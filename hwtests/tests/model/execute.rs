//! Runs a step on the agent and on the model, which decides if the answer is correct.

use std::{
    fs,
    time::{Duration, Instant},
};

use drivebay_hwtests::{Csi, tools, wait};

use super::{
    calls, data,
    disk::Disk,
    observe,
    states::{Answer, Sent, State, after_both, may_be_open, stays_unavailable},
    steps::{Call, Kind, Mkfs, NAMES, Step, TARGETS},
    testbed::{DRIVE_COUNT, DRIVES, Testbed, copy_of, id_in, name_of},
};

/// Time limit for a final answer to a call that returns a retryable code, also on a busy machine.
const REPEATED: Duration = Duration::from_secs(60);
/// Time limit for a process that scans all partitions to close one.
const OPEN: Duration = Duration::from_secs(5);

impl Testbed {
    /// Runs one step and compares the node with the model. Errs with the first difference.
    pub(crate) async fn step(&mut self, step: Step) -> Result<(), String> {
        let at_once = match step {
            Step::Call(name, call) => {
                self.call(name, call).await?;
                true
            }
            Step::Pair(first, second) => {
                self.pair(first, second).await?;
                true
            }
            Step::Cut(name, call, ms) => {
                self.cut(name, call, ms).await?;
                true
            }
            Step::Kill(name, call, ms, again) => {
                self.kill(name, call, ms, again).await?;
                false
            }
            Step::Write(name, place, seed) => {
                data::write(self, name, place, seed)?;
                true
            }
            Step::Restart { kill, toggle } => {
                self.restart(kill, toggle).await?;
                false
            }
            Step::Hasty {
                kill,
                toggle,
                name,
                call,
            } => {
                self.hasty(kill, toggle, name, call).await?;
                true
            }
            Step::Toggle(drive) => {
                self.toggle(drive);
                false
            }
            Step::Rescan => {
                self.rig.rescan().await;
                true
            }
            Step::List(page, name, call) => {
                self.list(page, name, call).await?;
                true
            }
        };
        self.compare(at_once).await
    }

    /// Returns a call with the id that its name has now.
    fn sent(&self, name: u8, call: Call) -> Sent {
        let former = self.former[usize::from(name)].clone();
        let now = id_in(self.states(name));
        let id = match call {
            Call::DeleteFormer => former,
            _ => now.or(former),
        };
        let nobodys = || "00000000-0000-4000-8000-000000000000@node1".to_owned();
        Sent {
            call,
            id: id.unwrap_or_else(nobodys),
            kind: self
                .states(name)
                .iter()
                .find_map(|state| match state {
                    State::Present(volume) => Some(volume.kind),
                    State::Absent => None,
                })
                .unwrap_or(Kind::Ext4),
        }
    }

    /// Sets the behaviour of mkfs from the first of these calls that deviates from the plain one, and returns it.
    fn mkfs(&self, calls: &[Call]) -> Mkfs {
        let behaviours = calls.iter().filter_map(|call| match call {
            Call::Stage(mkfs) => Some(*mkfs),
            _ => None,
        });
        let mkfs = behaviours
            .into_iter()
            .find(|mkfs| *mkfs != Mkfs::Plain)
            .unwrap_or(Mkfs::Plain);
        let mode = match mkfs {
            Mkfs::Plain => "plain",
            Mkfs::Slow => "slow",
            Mkfs::FailsAtOnce => "at-once",
            Mkfs::FailsAfterwards => "afterwards",
        };
        fs::write(self.rig.dir().join("tools/mode"), mode).unwrap();
        mkfs
    }

    fn note(&mut self, sent: &Sent, answer: &Answer) {
        let call = format!("{:?}", sent.call);
        let call = call.split(['(', ' ']).next().unwrap_or_default();
        let answer = match answer {
            Answer::Refused(code, _) => format!("{code:?}"),
            Answer::Lost => "lost".to_owned(),
            _ => "ok".to_owned(),
        };
        *self.tally.entry(format!("{call} {answer}")).or_default() += 1;
    }

    /// Narrows the possible states of a name by an answer. Errs if no state allows the answer.
    fn answered(&mut self, name: u8, sent: &Sent, answer: &Answer) -> Result<(), String> {
        self.note(sent, answer);
        if may_be_open(self.states(name), sent, answer, &self.facts) {
            println!("model: {} is not in use, and {answer:?}", name_of(name));
            *self.tally.entry("Delete open".to_owned()).or_default() += 1;
            return Ok(());
        }
        let before = self.states(name);
        let after: Vec<State> = before
            .iter()
            .flat_map(|state| state.after(sent, answer, &self.facts))
            .collect();
        if after.is_empty() {
            return Err(format!(
                "{}: {sent:?} is answered with {answer:?} in {before:#?}; {:?}",
                name_of(name),
                self.facts
            ));
        }
        self.set(name, after);
        Ok(())
    }

    async fn call(&mut self, name: u8, call: Call) -> Result<(), String> {
        let sent = self.sent(name, call);
        self.mkfs(&[call]);
        self.repeat(name, &sent).await
    }

    /// Repeats a call until its answer is final.
    async fn repeat(&mut self, name: u8, sent: &Sent) -> Result<(), String> {
        let start = Instant::now();
        loop {
            let answer = calls::send(&self.rig.csi, &self.paths(name), sent).await;
            let final_for_now = matches!(answer, Answer::Refused(tonic::Code::Unavailable, _))
                && stays_unavailable(self.states(name), sent, &self.facts);
            if final_for_now {
                self.note(sent, &answer);
                return Ok(());
            }
            let is_open = may_be_open(self.states(name), sent, &answer, &self.facts);
            self.answered(name, sent, &answer)?;
            if !answer.is_retryable() && !is_open {
                return Ok(());
            }
            if start.elapsed() >= if is_open { OPEN } else { REPEATED } {
                return Err(format!(
                    "{}: {sent:?} is still answered with {answer:?}",
                    name_of(name)
                ));
            }
            tokio::time::sleep(wait::STEP).await;
        }
    }

    pub(crate) fn paths(&self, name: u8) -> calls::Paths {
        calls::Paths {
            name: name_of(name),
            staging: self.staging(name),
            targets: (0..TARGETS)
                .map(|target| self.target(name, target))
                .collect(),
        }
    }

    async fn pair(&mut self, first: (u8, Call), second: (u8, Call)) -> Result<(), String> {
        let mkfs = self.mkfs(&[first.1, second.1]);
        // Both calls share one mkfs.
        let same = |call| match call {
            Call::Stage(_) => Call::Stage(mkfs),
            call => call,
        };
        let sent = [
            self.sent(first.0, same(first.1)),
            self.sent(second.0, same(second.1)),
        ];
        let paths = [self.paths(first.0), self.paths(second.0)];
        let csi = self.rig.csi.clone();
        let (one, two) = tokio::join!(
            calls::send(&csi, &paths[0], &sent[0]),
            calls::send(&csi, &paths[1], &sent[1])
        );
        self.facts.contended = true;
        let result = self.both(first.0, second.0, &sent, &[one, two]);
        self.facts.contended = false;
        result
    }

    fn both(
        &mut self,
        a: u8,
        b: u8,
        sent: &[Sent; 2],
        answers: &[Answer; 2],
    ) -> Result<(), String> {
        if a != b {
            self.answered(a, &sent[0], &answers[0])?;
            return self.answered(b, &sent[1], &answers[1]);
        }
        for (sent, answer) in sent.iter().zip(answers) {
            self.note(sent, answer);
        }
        let (first, second) = ((&sent[0], &answers[0]), (&sent[1], &answers[1]));
        let after: Vec<State> = self
            .states(a)
            .iter()
            .flat_map(|state| after_both(state, first, second, &self.facts))
            .collect();
        if after.is_empty() {
            return Err(format!(
                "{}: {sent:?} at the same time are answered with {answers:?} in {:#?}",
                name_of(a),
                self.states(a)
            ));
        }
        self.set(a, after);
        Ok(())
    }

    async fn cut(&mut self, name: u8, call: Call, ms: u16) -> Result<(), String> {
        let sent = self.sent(name, call);
        let paths = self.paths(name);
        self.mkfs(&[call]);
        let limit = Duration::from_millis(ms.into());
        let answer = tokio::time::timeout(limit, calls::send(&self.rig.csi, &paths, &sent)).await;
        self.answered(name, &sent, &answer.unwrap_or(Answer::Lost))?;
        self.repeat(name, &sent).await
    }

    async fn kill(&mut self, name: u8, call: Call, ms: u16, again: bool) -> Result<(), String> {
        let sent = self.sent(name, call);
        let paths = self.paths(name);
        self.mkfs(&[call]);
        let csi: Csi = self.rig.csi.clone();
        let running = {
            let sent = sent.clone();
            tokio::spawn(async move { calls::send(&csi, &paths, &sent).await })
        };
        // The kill must hit the middle of the call.
        tokio::time::sleep(Duration::from_millis(ms.into())).await;
        self.rig.agent.kill9();
        let answer = running.await.map_err(|error| error.to_string())?;
        self.answered(name, &sent, &answer)?;
        self.start_again().await?;
        self.compare(false).await?;
        if again {
            self.repeat(name, &sent).await?;
        }
        Ok(())
    }

    /// Starts the agent again. Workers of its predecessor finish what they began.
    async fn start_again(&mut self) -> Result<(), String> {
        let started = self.rig.agent.start_unready().await;
        started.map_err(|error| error.to_string())?;
        self.is_started().await
    }

    async fn is_started(&mut self) -> Result<(), String> {
        let csi = self.rig.agent.until_ready().await;
        self.rig.csi = csi.map_err(|error| error.to_string())?;
        let start = Instant::now();
        while let Err(why) = observe::processes(self) {
            if start.elapsed() >= self.settled {
                return Err(why);
            }
            tokio::time::sleep(wait::STEP).await;
        }
        Ok(())
    }

    async fn restart(&mut self, kill: bool, toggle: Option<u8>) -> Result<(), String> {
        self.end_agent(kill, toggle)?;
        self.start_again().await
    }

    fn end_agent(&mut self, kill: bool, toggle: Option<u8>) -> Result<(), String> {
        if kill {
            self.rig.agent.kill9();
        } else {
            self.rig.agent.stop().map_err(|error| error.to_string())?;
        }
        if let Some(drive) = toggle {
            self.toggle(drive);
        }
        Ok(())
    }

    /// Sends a call to an agent that may not have scanned a drive yet. The answer must be as correct as any other, or retryable.
    async fn hasty(
        &mut self,
        kill: bool,
        toggle: Option<u8>,
        name: u8,
        call: Call,
    ) -> Result<(), String> {
        self.end_agent(kill, toggle)?;
        self.mkfs(&[call]);
        let csi = self.rig.agent.start_unready().await;
        let csi = csi.map_err(|error| error.to_string())?;
        let sent = self.sent(name, call);
        let answer = calls::send(&csi, &self.paths(name), &sent).await;
        self.facts.copies_unseen = true;
        let answered = self.answered(name, &sent, &answer);
        self.facts.copies_unseen = false;
        answered?;
        self.is_started().await?;
        self.compare(false).await?;
        if answer.is_retryable() {
            self.repeat(name, &sent).await?;
        }
        Ok(())
    }

    /// Unplugs or plugs a drive or a copy of one. A drive in use stays: the kernel keeps a loop device until its last user closes it.
    fn toggle(&mut self, number: u8) {
        let (name, ..) = DRIVES[usize::from(number % DRIVE_COUNT)];
        if number >= DRIVE_COUNT {
            self.toggle_copy(name);
        } else if self.facts.copied.contains(name) {
            // Without its original the copy would be served as the drive, with the contents it had when it was made.
        } else if self.facts.plugged.contains(name) {
            let in_use = self.states.iter().flatten().any(|state| match state {
                State::Present(volume) => volume.drive.as_deref() == Some(name) && volume.in_use(),
                State::Absent => false,
            });
            if !in_use {
                self.rig.shelf.pull(name);
                self.facts.plugged.remove(name);
            }
        } else {
            self.rig.shelf.plug(name).unwrap();
            self.facts.plugged.insert(name.to_owned());
        }
    }

    /// Unplugs the copy of a drive, or plugs one in beside its original. A copy is made once and becomes outdated.
    fn toggle_copy(&mut self, name: &str) {
        let copy = copy_of(name);
        let shelf = &mut self.rig.shelf;
        if self.facts.copied.remove(name) {
            shelf.pull(&copy);
            return;
        }
        let drives = shelf.drives();
        let Some(drive) = drives.iter().find(|drive| drive.name == name) else {
            return;
        };
        let is_claimed = Disk::read(&drive.device, drive.bytes).is_ok_and(|disk| disk.claimed);
        if !is_claimed {
            return;
        }
        let (original, copied) = (shelf.file(name), shelf.file(&copy));
        if !copied.exists() {
            shelf.flush().unwrap();
            let sparse = ["--sparse=always".into(), original.into(), copied.into()];
            tools::run::<std::ffi::OsString>("cp", &sparse).unwrap();
        }
        shelf.plug(&copy).unwrap();
        self.facts.copied.insert(name.to_owned());
    }

    /// Lists volumes in pages while another volume is called. Every volume that no call changes must be listed exactly once.
    async fn list(&mut self, page: u8, name: u8, call: Call) -> Result<(), String> {
        let sent = self.sent(name, call);
        let paths = self.paths(name);
        self.mkfs(&[call]);
        let (csi, most) = (self.rig.csi.clone(), i32::from(page));
        let (answer, listed) = tokio::join!(
            calls::send(&csi, &paths, &sent),
            calls::list_in_pages(&csi, most)
        );
        let listed = listed.map_err(|error| format!("ListVolumes: {error}"))?;
        for other in (0..NAMES).filter(|other| *other != name) {
            let Some(id) = id_in(self.states(other)) else {
                continue;
            };
            let times = listed.iter().filter(|one| **one == id).count();
            if times != 1 {
                return Err(format!("{id} is {times} times in the list {listed:?}"));
            }
        }
        self.answered(name, &sent, &answer)?;
        self.repeat(name, &sent).await
    }

    /// Verifies the data of every volume, and deletes all volumes.
    pub(crate) async fn finish(&mut self) -> Result<(), String> {
        for (at, (name, ..)) in (0u8..).zip(DRIVES) {
            if self.facts.copied.contains(name) {
                self.step(Step::Toggle(DRIVE_COUNT + at)).await?;
            }
            if !self.facts.plugged.contains(name) {
                self.step(Step::Toggle(at)).await?;
            }
        }
        for name in 0..NAMES {
            if id_in(self.states(name)).is_none() {
                continue;
            }
            let publish = Call::Publish {
                target: 0,
                read_only: false,
            };
            let unpublish = (0..TARGETS).map(|target| Call::Unpublish { target });
            for call in unpublish.clone().chain([Call::Stage(Mkfs::Plain), publish]) {
                self.call(name, call).await?;
            }
            self.compare(true).await?;
            for call in unpublish.chain([Call::Unstage, Call::Delete]) {
                self.call(name, call).await?;
            }
        }
        self.compare(true).await?;
        let panicked = self.rig.agent.log().contains("panicked at");
        if panicked {
            Err("the agent panicked".to_owned())
        } else {
            Ok(())
        }
    }
}
