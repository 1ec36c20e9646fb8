//! Suspends the volumes of a group for a bounded time, and restarts the snapshot of each while all of them are suspended.
//!
//! The snapshots are then of one point in time: a write on which another one depends was completed before that one began. If the dependent
//! write is in its snapshot, it was completed before its volume was suspended. The first write was therefore completed before any snapshot
//! restarted, and is in its own.
//!
//! Each volume has two threads, which are started before the first volume is suspended. One suspends the volume, waits for the result or
//! the deadline, and resumes it, so that a drive that does not answer delays its own volumes only, and a suspend that ends too late is
//! undone. The other restarts the snapshot: if that blocks, the first still resumes. A blocked thread is abandoned: it keeps the resources
//! of its member, e.g. the lock of its drive, and none of the other members'.

use std::{
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use super::aside::InHand;
use crate::error::LayoutError;
use drivebay_model::units::human_duration;

/// Longest time that volumes are suspended, whatever the caller requests.
const MOST: Duration = Duration::from_secs(60);
/// Limit of resuming the volumes after a failure.
const RESUME: Duration = Duration::from_secs(2);
/// Limit of resuming the volumes and flushing the stores after success; the flushes compete with all writes to the volumes.
const CONFIRM: Duration = Duration::from_secs(20);
/// Stack size of a thread, which makes only a few system calls, bytes.
const STACK: usize = 256 << 10;

/// A step of restarting a snapshot: its store is emptied, and it holds its volume as of the restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Loads a table that fails all I/O.
    LoadError,
    /// Swaps the table: the kernel drops the earlier snapshot, and which chunks it stored.
    DropOld,
    /// Zeroes the header of the store, durably.
    EmptyStore,
    /// Loads the snapshot's own table, for which the kernel makes a new header.
    LoadSnapshot,
    /// Swaps the table: the snapshot holds its volume as of now.
    Begin,
}

/// In the order of execution.
const STEPS: [Step; 5] = [
    Step::LoadError,
    Step::DropOld,
    Step::EmptyStore,
    Step::LoadSnapshot,
    Step::Begin,
];

impl Step {
    fn describe(self) -> &'static str {
        match self {
            Self::LoadError => "loading an empty table",
            Self::DropOld => "ending the earlier snapshot",
            Self::EmptyStore => "zeroing the header of the snapshot's store",
            Self::LoadSnapshot => "loading the snapshot's table",
            Self::Begin => "activating the snapshot",
        }
    }
}

/// A volume and its snapshot, as the kernel has them. Except `confirm`, no method may open a file, start a process or write to a log: each
/// may wait for a suspended volume.
pub(super) trait GroupMember: Send + Sync + 'static {
    /// Volume, device and drive, for messages.
    fn name(&self) -> &str;
    /// Device-mapper uuids of the volume's device and of the snapshot's.
    fn devices(&self) -> [&str; 2];
    /// Device-mapper uuid of the device on the volume that is suspended with it; None: there is none.
    fn above(&self) -> Option<&str>;
    fn suspend(&self) -> io::Result<()>;
    /// Resumes what a `suspend` that failed has suspended.
    fn undo_suspend(&self) -> io::Result<()>;
    fn is_suspended(&self) -> io::Result<bool>;
    fn resume(&self) -> io::Result<()>;
    fn step(&self, step: Step) -> io::Result<()>;
    /// Cleans up after a restart that is aborted: drops the loaded table, and resumes the snapshot's device if it is suspended.
    fn give_up(&self) -> io::Result<()>;
    /// Makes the result of the steps durable, with the volume resumed. Err: why the snapshot must not be used.
    fn confirm(&self) -> Result<(), String>;
}

/// Makes every snapshot hold its volume as of one point in time. Returns how long the volumes were suspended; takes at most `patience` and
/// `RESUME`, or `CONFIRM` on success. A member is dropped when its threads have ended.
///
/// # Errors
/// `NotTogether`: the snapshots must not be used; all volumes are resumed. `StillSuspended`: some are not, or an abandoned thread
/// (`aside::in_hand`) still suspends or resumes them.
pub(super) fn at_one_moment<M: GroupMember>(
    members: Vec<Arc<M>>,
    patience: Duration,
) -> Result<Duration, LayoutError> {
    let hold = Arc::new(Hold::new(&members, patience.min(MOST)));
    // No thread may wait forever, even if a later one cannot be started.
    let _ending = Ending(&hold);
    start(&hold, &members)
        .map_err(|error| not_together(format!("a thread did not start: {error}")))?;
    let begun = Instant::now();
    hold.run(&members, begun);
    drop(members);
    hold.finish(begun)
}

fn not_together(why: String) -> LayoutError {
    LayoutError::NotTogether { why }
}

fn start<M: GroupMember>(hold: &Arc<Hold>, members: &[Arc<M>]) -> io::Result<()> {
    let works: [fn(&Hold, usize, Arc<M>); 2] = [Hold::hold, Hold::renew];
    for (at, member) in members.iter().enumerate() {
        for work in works {
            let (hold, member) = (Arc::clone(hold), Arc::clone(member));
            let thread = thread::Builder::new().name("suspend".to_owned());
            thread
                .stack_size(STACK)
                .spawn(move || work(&hold, at, member))?;
        }
    }
    Ok(())
}

const UNFINISHED: &str = "it was ended before all snapshots had begun";

/// Progress of a volume, in this order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Stage {
    /// Suspending it has not ended, or has not begun.
    #[default]
    Running,
    /// Suspended; resuming it may have begun.
    Suspended,
    /// Resumed; confirming its snapshot has not ended.
    Resumed,
    /// The thread of the volume does nothing more.
    Ended,
}

#[derive(Debug, Clone, Copy, Default)]
struct MemberProgress {
    volume: Stage,
    /// True once all steps of restarting its snapshot have succeeded.
    has_begun: bool,
    /// True once its snapshot's device is not changed any more, after success or failure.
    is_renewed: bool,
}

#[derive(Debug, Default)]
struct Progress {
    /// Deadline until which volumes may be suspended; None until all threads are started.
    until: Option<Instant>,
    members: Vec<MemberProgress>,
    /// Result for all snapshots; set once, before the first volume is resumed.
    end: Option<Result<(), String>>,
    /// Time at which the last volume was resumed.
    resumed: Option<Instant>,
    /// Volumes and snapshots that could not be resumed, with the reason.
    stuck: Vec<String>,
    /// Reasons why restarted snapshots must not be used.
    unconfirmed: Vec<String>,
}

impl Progress {
    fn are_all(&self, is_so: impl Fn(&MemberProgress) -> bool) -> bool {
        self.members.iter().all(is_so)
    }
}

/// State shared by the threads of all members.
struct Hold {
    names: Vec<String>,
    patience: Duration,
    progress: Mutex<Progress>,
    changed: Condvar,
}

/// Sets the result to a failure when dropped, unless it is set already.
struct Ending<'h>(&'h Hold);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.end(Err(UNFINISHED.to_owned()));
    }
}

impl Hold {
    fn new<M: GroupMember>(members: &[Arc<M>], patience: Duration) -> Self {
        let progress = Progress {
            members: vec![MemberProgress::default(); members.len()],
            ..Progress::default()
        };
        Self {
            names: members.iter().map(|one| one.name().to_owned()).collect(),
            patience,
            progress: Mutex::new(progress),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn update(&self, change: impl FnOnce(&mut Progress)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    /// Sets the result, unless it is set already.
    fn end(&self, end: Result<(), String>) {
        self.update(|progress| {
            progress.end.get_or_insert(end);
        });
    }

    fn reach(&self, at: usize, stage: Stage) {
        self.update(|progress| {
            if let Some(member) = progress.members.get_mut(at) {
                member.volume = stage;
            }
        });
    }

    /// Waits until `is_so` is true, the result is set, or `until` is reached.
    fn wait(&self, until: Instant, is_so: impl Fn(&Progress) -> bool) -> MutexGuard<'_, Progress> {
        let left = until.saturating_duration_since(Instant::now());
        let waits = |progress: &mut Progress| progress.end.is_none() && !is_so(progress);
        let waited = self.changed.wait_timeout_while(self.lock(), left, waits);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Waits until all threads are started, and returns the deadline; None if the result is set already.
    fn begin(&self) -> Option<Instant> {
        let waits = |progress: &mut Progress| progress.until.is_none() && progress.end.is_none();
        let waited = self.changed.wait_while(self.lock(), waits);
        let progress = waited.unwrap_or_else(PoisonError::into_inner);
        progress.until.filter(|_| progress.end.is_none())
    }

    /// Returns the names of the members for which `is_so` is true, separated by commas.
    fn named(&self, progress: &Progress, is_so: impl Fn(&MemberProgress) -> bool) -> String {
        let all = self.names.iter().zip(&progress.members);
        let named = all.filter(|(_, member)| is_so(member));
        let named: Vec<&str> = named.map(|(name, _)| name.as_str()).collect();
        named.join(", ")
    }

    fn too_late(&self, progress: &Progress) -> String {
        let limit = human_duration(self.patience);
        let running = self.named(progress, |one| one.volume == Stage::Running);
        if !running.is_empty() {
            return format!(
                "{running} did not stand still within {limit}: much is still to be written to it, or its drive does not answer"
            );
        }
        let waiting = self.named(progress, |one| !one.has_begun);
        if waiting.is_empty() {
            return format!("it took longer than {limit}");
        }
        format!(
            "the snapshot of {waiting} had not begun within {limit}: its drive is busy, or does not answer"
        )
    }

    /// Lets the threads begin, and sets the result once all snapshots are restarted or the deadline is reached, unless a thread has set it.
    fn run<M: GroupMember>(&self, members: &[Arc<M>], now: Instant) {
        let until = now + self.patience;
        self.update(|progress| progress.until = Some(until));
        let progress = self.wait(until, |progress| progress.are_all(|one| one.has_begun));
        let all = match progress.are_all(|one| one.has_begun) {
            true => Ok(()),
            false => Err(self.too_late(&progress)),
        };
        drop(progress);
        // The threads resume their volumes only after the result is set.
        self.end(all.and_then(|()| still_suspended(members)));
    }

    /// Waits, for `CONFIRM` or `RESUME` at most, until all volumes are resumed and all snapshots confirmed.
    fn finish(&self, begun: Instant) -> Result<Duration, LayoutError> {
        let has_succeeded = self.lock().end == Some(Ok(()));
        let limit = match has_succeeded {
            true => CONFIRM,
            false => RESUME,
        };
        let has_ended = |one: &MemberProgress| one.volume == Stage::Ended && one.is_renewed;
        let waits = |progress: &mut Progress| !progress.are_all(has_ended);
        let waited = self.changed.wait_timeout_while(self.lock(), limit, waits);
        let progress = waited.unwrap_or_else(PoisonError::into_inner).0;
        let mut suspended = progress.stuck.clone();
        for (stage, what) in [
            (Stage::Running, "suspending"),
            (Stage::Suspended, "resuming"),
        ] {
            let late = self.named(&progress, |one| one.volume == stage);
            if !late.is_empty() {
                suspended.push(format!("{what} {late} has not ended"));
            }
        }
        let late = self.named(&progress, |one| !one.is_renewed);
        if !late.is_empty() {
            suspended.push(format!(
                "beginning the snapshot of {late} anew has not ended"
            ));
        }
        if !suspended.is_empty() {
            return Err(LayoutError::StillSuspended {
                why: suspended.join("; "),
            });
        }
        if let Some(Err(why)) = &progress.end {
            return Err(not_together(why.clone()));
        }
        let mut unconfirmed = progress.unconfirmed.clone();
        let late = self.named(&progress, |one| one.volume != Stage::Ended);
        if !late.is_empty() {
            unconfirmed.push(format!("flushing the snapshot of {late} has not ended"));
        }
        match unconfirmed.is_empty() {
            true => {
                let resumed = progress.resumed.unwrap_or(begun);
                Ok(resumed.saturating_duration_since(begun))
            }
            false => Err(not_together(unconfirmed.join("; "))),
        }
    }

    /// Suspends a volume, resumes it once the result is set, and confirms its snapshot after a success.
    fn hold<M: GroupMember>(&self, at: usize, member: Arc<M>) {
        let [volume, _] = member.devices();
        let devices = member.above().into_iter().chain([volume]);
        let in_hand: Vec<InHand> = devices
            .map(|device| InHand::take(device, member.name()))
            .collect();
        if self.suspend_and_resume(at, &*member) {
            self.reach(at, Stage::Resumed);
            let is_to_be_used = self.lock().end == Some(Ok(()));
            if is_to_be_used && let Err(why) = member.confirm() {
                self.update(|progress| progress.unconfirmed.push(why));
            }
        }
        drop(in_hand);
        // Dropped first: the caller must find the drive unlocked once the member has ended.
        drop(member);
        self.reach(at, Stage::Ended);
    }

    /// Suspends a volume until the result is set or the deadline is reached. True if it was suspended and is resumed.
    fn suspend_and_resume<M: GroupMember>(&self, at: usize, member: &M) -> bool {
        let Some(until) = self.begin() else {
            return false;
        };
        let name = member.name();
        if let Err(error) = member.suspend() {
            self.end(Err(format!("suspending {name} failed: {error}")));
            if let Err(error) = member.undo_suspend() {
                let why = format!("resuming what is on {name} failed: {error}");
                self.update(|progress| progress.stuck.push(why));
            }
            return false;
        }
        self.reach(at, Stage::Suspended);
        let mut progress = self.wait(until, |_| false);
        if progress.end.is_none() {
            progress.end = Some(Err(self.too_late(&progress)));
        }
        drop(progress);
        self.changed.notify_all();
        let resumed = member.resume();
        self.update(|progress| match &resumed {
            Ok(()) => progress.resumed = Some(Instant::now()),
            Err(error) => progress
                .stuck
                .push(format!("resuming {name} failed: {error}")),
        });
        resumed.is_ok()
    }

    fn give_up(&self, member: &impl GroupMember) {
        if let Err(error) = member.give_up() {
            let name = member.name();
            let why = format!("resuming the snapshot of {name} failed: {error}");
            self.update(|progress| progress.stuck.push(why));
        }
    }

    /// Restarts a snapshot once all volumes are suspended.
    fn renew<M: GroupMember>(&self, at: usize, member: Arc<M>) {
        let _renewing = Renewing(self, at);
        // Dropped before `_renewing`: the caller must find the drive unlocked once the member has ended.
        let member = member;
        let [_, snapshot] = member.devices();
        let _in_hand = InHand::take(snapshot, member.name());
        let Some(until) = self.begin() else {
            return;
        };
        let are_suspended =
            |progress: &Progress| progress.are_all(|one| one.volume == Stage::Suspended);
        let progress = self.wait(until, are_suspended);
        let is_ready = progress.end.is_none() && are_suspended(&progress);
        drop(progress);
        if !is_ready {
            return;
        }
        for step in STEPS {
            let has_ended = self.lock().end.is_some();
            if has_ended {
                return self.give_up(&*member);
            }
            if let Err(error) = member.step(step) {
                let (what, name) = (step.describe(), member.name());
                self.end(Err(format!("{what} of {name} failed: {error}")));
                return self.give_up(&*member);
            }
        }
        self.update(|progress| {
            if let Some(member) = progress.members.get_mut(at) {
                member.has_begun = true;
            }
        });
    }
}

/// Sets `MemberProgress::is_renewed` of a member when dropped.
struct Renewing<'h>(&'h Hold, usize);

impl Drop for Renewing<'_> {
    fn drop(&mut self) {
        let Self(hold, at) = *self;
        hold.update(|progress| {
            if let Some(member) = progress.members.get_mut(at) {
                member.is_renewed = true;
            }
        });
    }
}

fn still_suspended<M: GroupMember>(members: &[Arc<M>]) -> Result<(), String> {
    members.iter().try_for_each(|member| {
        let name = member.name();
        match member.is_suspended() {
            Ok(true) => Ok(()),
            Ok(false) => Err(format!("another program resumed {name} meanwhile")),
            Err(error) => Err(format!("reading the state of {name} failed: {error}")),
        }
    })
}

#[cfg(test)]
#[path = "suspension_tests.rs"]
mod tests;
