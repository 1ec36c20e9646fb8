//! The model: the possible states of one volume name, and what a call and its answer make of them. Pure.
//!
//! A name has one state while everything is certain, and several after a call whose outcome is unknown; the next observation
//! keeps those that agree with it. An answer that none of the states allows is a defect.

use std::collections::{BTreeMap, BTreeSet};

use drivebay_hwtests::MIB;
use tonic::Code;

use super::steps::{Call, Class, Kind, Mkfs, Spec, TARGETS};

/// Access at a target that a volume is published at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Writable,
    ReadOnly,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Volume {
    /// Volume id. None until it is observed: the answer to the creation was lost.
    pub(crate) id: Option<String>,
    pub(crate) kind: Kind,
    pub(crate) class: Class,
    pub(crate) bytes: u64,
    /// Shelf name of the drive. None until it is observed.
    pub(crate) drive: Option<String>,
    pub(crate) staged: bool,
    pub(crate) published: [Option<Access>; TARGETS as usize],
    /// True if mkfs may have been run on the volume.
    pub(crate) touched: bool,
    /// True if the volume was mounted once; mkfs must never run on it again.
    pub(crate) mounted: bool,
    /// Seed of the written data, by file number or, in a raw volume, by offset in bytes.
    pub(crate) data: BTreeMap<u64, u64>,
}

/// One possible state of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum State {
    Absent,
    Present(Volume),
}

/// Facts of the last observation that answers depend on.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facts {
    /// Shelf names of the plugged drives.
    pub(crate) plugged: BTreeSet<String>,
    /// Shelf names of the drives that have a copy plugged in beside them.
    pub(crate) copied: BTreeSet<String>,
    /// True if the agent may not have seen the copies yet.
    pub(crate) copies_unseen: bool,
    /// Size of the largest volume that fits, bytes, by class.
    pub(crate) largest: BTreeMap<Class, u64>,
    /// Size that each volume could be expanded to in place, bytes, by id.
    pub(crate) growth: BTreeMap<String, u64>,
    /// True if a concurrent call may take space.
    pub(crate) contended: bool,
    /// True if root can grow a mounted ext4 on this machine.
    pub(crate) grows_ext4: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Sent {
    pub(crate) call: Call,
    /// Volume id in the request.
    pub(crate) id: String,
    /// Kind of volume that the request's capability stands for.
    pub(crate) kind: Kind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    Created {
        id: String,
        bytes: u64,
    },
    Expanded {
        bytes: u64,
        on_node: bool,
    },
    Grown {
        bytes: u64,
    },
    Usage {
        total: u64,
    },
    Done,
    Refused(Code, String),
    /// Outcome unknown: the caller cancelled the call, or the agent was killed.
    Lost,
}

impl Answer {
    /// True if the caller must repeat the call; its outcome is unknown.
    pub(crate) fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::Lost
                | Self::Refused(
                    Code::Aborted
                        | Code::Unavailable
                        | Code::DeadlineExceeded
                        | Code::Cancelled
                        | Code::Unknown,
                    _
                )
        )
    }

    fn is(&self, code: Code) -> bool {
        matches!(self, Self::Refused(actual, _) if *actual == code)
    }
}

impl Volume {
    fn new(spec: Spec, id: Option<String>) -> Self {
        Self {
            id,
            kind: spec.kind,
            class: spec.class,
            bytes: u64::from(spec.mib) * MIB,
            drive: None,
            staged: false,
            published: [None; TARGETS as usize],
            touched: false,
            mounted: false,
            data: BTreeMap::new(),
        }
    }

    fn is_away(&self, facts: &Facts) -> bool {
        self.drive
            .as_ref()
            .is_some_and(|drive| !facts.plugged.contains(drive))
    }

    fn is_copied(&self, facts: &Facts) -> bool {
        self.drive
            .as_ref()
            .is_some_and(|drive| facts.copied.contains(drive))
    }

    /// True if the volume's filesystem is mounted or its device is bound anywhere.
    pub(crate) fn in_use(&self) -> bool {
        (self.staged && self.kind != Kind::Block) || self.published.iter().any(Option::is_some)
    }

    fn serves(&self, spec: Spec) -> bool {
        let required = u64::from(spec.mib) * MIB;
        self.kind == spec.kind
            && self.class == spec.class
            && self.bytes >= required
            && !(spec.exact && self.bytes > required)
    }
}

impl State {
    /// Returns the states possible after a retryable answer: the state before, or with any part of the request done.
    fn in_doubt(&self, sent: &Sent) -> Vec<Self> {
        let mut all = vec![self.clone()];
        match (self, sent.call) {
            (Self::Absent, Call::Create(spec)) => all.push(Self::Present(Volume::new(spec, None))),
            (Self::Absent, _) => {}
            (Self::Present(volume), call) => {
                let it = volume.id.as_deref() == Some(sent.id.as_str());
                match call {
                    Call::Delete | Call::DeleteFormer if it && !volume.in_use() => {
                        all.push(Self::Absent);
                    }
                    Call::Stage(_) if it => {
                        let mut formatted = volume.clone();
                        formatted.touched = true;
                        let mut staged = formatted.clone();
                        staged.staged = true;
                        staged.mounted = true;
                        all = vec![Self::Present(formatted), Self::Present(staged)];
                    }
                    // Applies to the path, not to the id.
                    Call::Unstage if it => {
                        let mut unstaged = volume.clone();
                        unstaged.staged = false;
                        all.push(Self::Present(unstaged));
                    }
                    Call::Publish { target, read_only } if it && volume.can_publish() => {
                        let mut published = volume.clone();
                        let access = access(read_only);
                        published.published[usize::from(target)].get_or_insert(access);
                        all.push(Self::Present(published));
                    }
                    Call::Unpublish { target } if it => {
                        let mut unpublished = volume.clone();
                        unpublished.published[usize::from(target)] = None;
                        all.push(Self::Present(unpublished));
                    }
                    Call::Expand { mib } if it => {
                        let mut grown = volume.clone();
                        grown.bytes = grown.bytes.max(u64::from(mib) * MIB);
                        all.push(Self::Present(grown));
                    }
                    _ => {}
                }
            }
        }
        all
    }

    /// Returns the possible states after this answer; none if the answer is wrong.
    pub(crate) fn after(&self, sent: &Sent, answer: &Answer, facts: &Facts) -> Vec<Self> {
        if answer.is_retryable() {
            return self.in_doubt(sent);
        }
        match self {
            Self::Absent => self.after_on_absent(sent, answer, facts),
            Self::Present(volume) => {
                let meant = matches!(sent.call, Call::Create(_))
                    || volume.id.as_deref() == Some(sent.id.as_str());
                if meant {
                    volume.after(sent, answer, facts)
                } else {
                    self.after_on_another(sent, answer)
                }
            }
        }
    }

    fn after_on_absent(&self, sent: &Sent, answer: &Answer, facts: &Facts) -> Vec<Self> {
        match (sent.call, answer) {
            (Call::Create(spec), Answer::Created { id, bytes }) => {
                let volume = Volume::new(spec, Some(id.clone()));
                if *bytes != volume.bytes {
                    return Vec::new();
                }
                vec![Self::Present(volume)]
            }
            (Call::Create(spec), answer) if answer.is(Code::ResourceExhausted) => {
                let largest = facts.largest.get(&spec.class).copied().unwrap_or(0);
                let full = largest < u64::from(spec.mib) * MIB;
                if full || facts.contended {
                    vec![self.clone()]
                } else {
                    Vec::new()
                }
            }
            (Call::Create(_), _) => Vec::new(),
            _ => self.after_on_another(sent, answer),
        }
    }

    /// Returns the possible states after a call with an id that no volume has (any more).
    fn after_on_another(&self, sent: &Sent, answer: &Answer) -> Vec<Self> {
        let right = match sent.call {
            Call::Create(_) => false,
            Call::Delete | Call::DeleteFormer | Call::Unstage | Call::Unpublish { .. } => {
                *answer == Answer::Done
            }
            _ => answer.is(Code::NotFound),
        };
        // A late unmount applies to its path, where the name's present volume may be mounted.
        if right && let (Self::Present(volume), true) = (self, sent.call.unmounts()) {
            let mut left = volume.clone();
            left.unmount(sent.call);
            return vec![Self::Present(left), self.clone()];
        }
        right.then(|| self.clone()).into_iter().collect()
    }
}

impl Call {
    fn unmounts(self) -> bool {
        matches!(self, Self::Unstage | Self::Unpublish { .. })
    }
}

fn access(read_only: bool) -> Access {
    if read_only {
        Access::ReadOnly
    } else {
        Access::Writable
    }
}

impl Volume {
    /// True if the volume can be published. A raw volume's device is bound whether or not it was staged.
    fn can_publish(&self) -> bool {
        self.staged || self.kind == Kind::Block
    }

    fn unmount(&mut self, call: Call) {
        match call {
            Call::Unstage => self.staged = false,
            Call::Unpublish { target } => self.published[usize::from(target)] = None,
            _ => {}
        }
    }

    /// Returns the states after a final answer to a call for this volume; none if the answer is wrong. While a copy of its drive is plugged
    /// in, only unmounting changes the volume.
    fn after(&self, sent: &Sent, answer: &Answer, facts: &Facts) -> Vec<State> {
        let alone = || self.after_alone(sent, answer, facts);
        if !self.is_copied(facts) || sent.call.unmounts() {
            return alone().into_iter().collect();
        }
        let unchanged = State::Present(self.clone());
        if answer.is(Code::FailedPrecondition) {
            return vec![unchanged];
        }
        let touched = |state: &State| match state {
            State::Present(volume) => State::Present(Self {
                touched: self.touched,
                mounted: self.mounted,
                ..volume.clone()
            }),
            State::Absent => State::Absent,
        };
        let after = alone().filter(|after| facts.copies_unseen || touched(after) == unchanged);
        after.into_iter().collect()
    }

    /// Returns the state after a final answer for a volume whose drive has no copy; None if the answer is wrong.
    fn after_alone(&self, sent: &Sent, answer: &Answer, facts: &Facts) -> Option<State> {
        let mut next = self.clone();
        let right = match sent.call {
            Call::Create(spec) => match answer {
                Answer::Created { id, bytes } => {
                    self.serves(spec)
                        && self.id.as_ref().is_none_or(|expected| expected == id)
                        && *bytes == self.bytes
                        && {
                            next.id = Some(id.clone());
                            true
                        }
                }
                answer => answer.is(Code::AlreadyExists) && !self.serves(spec),
            },
            Call::Delete | Call::DeleteFormer => {
                if *answer == Answer::Done && !self.in_use() {
                    return Some(State::Absent);
                }
                // A tool of the concurrent call, such as mkfs.btrfs, reads every partition of the node.
                answer.is(Code::FailedPrecondition) && (self.in_use() || facts.contended)
            }
            Call::Stage(mkfs) => {
                let fails = matches!(mkfs, Mkfs::FailsAtOnce | Mkfs::FailsAfterwards);
                let formats = self.kind != Kind::Block && !self.mounted;
                next.touched = true;
                if *answer == Answer::Done {
                    next.staged = true;
                    next.mounted = true;
                    !(fails && formats && !self.touched)
                } else {
                    answer.is(Code::Internal) && fails && formats
                }
            }
            Call::Unstage | Call::Unpublish { .. } => {
                next.unmount(sent.call);
                *answer == Answer::Done
            }
            Call::Publish { target, read_only } => {
                let access = access(read_only);
                let at = &mut next.published[usize::from(target)];
                let before = at.replace(access);
                let same = before.is_none_or(|before| before == access);
                let wanted = if !self.can_publish() {
                    answer.is(Code::FailedPrecondition)
                } else if same {
                    *answer == Answer::Done
                } else {
                    answer.is(Code::AlreadyExists)
                };
                if *answer != Answer::Done {
                    next = self.clone();
                }
                wanted
            }
            Call::Expand { mib } => {
                let required = u64::from(mib) * MIB;
                match answer {
                    Answer::Expanded { bytes, on_node } => {
                        next.bytes = self.bytes.max(required);
                        *bytes == next.bytes && *on_node == (self.kind != Kind::Block)
                    }
                    answer => {
                        let most = self.id.as_ref().and_then(|id| facts.growth.get(id));
                        let fits = most.is_some_and(|most| *most >= required);
                        answer.is(Code::OutOfRange)
                            && required > self.bytes
                            && (!fits || facts.contended)
                    }
                }
            }
            Call::Grow => {
                if self.staged || self.kind == Kind::Block {
                    let refused = self.kind == Kind::Ext4 && !facts.grows_ext4;
                    *answer == (Answer::Grown { bytes: self.bytes })
                        || (refused && answer.is(Code::Internal))
                } else {
                    answer.is(Code::NotFound)
                }
            }
            Call::Stats { target } => match (self.published[usize::from(target)], answer) {
                (Some(_), Answer::Usage { total }) if self.kind == Kind::Block => {
                    *total == self.bytes
                }
                (Some(_), Answer::Usage { total }) => 0 < *total && *total <= self.bytes,
                (Some(_), _) => false,
                // No state of the volume changes; a target published before a kill may be missing.
                (None, answer) => {
                    answer.is(Code::NotFound) || matches!(answer, Answer::Usage { .. })
                }
            },
        };
        right.then_some(State::Present(next))
    }
}

/// True if a volume that is not in use may be reported as in use: a process that scans every partition of the machine, such as mkfs.btrfs,
/// may hold its partition open. This must be temporary.
pub(crate) fn may_be_open(states: &[State], sent: &Sent, answer: &Answer, facts: &Facts) -> bool {
    let is_free = |volume: &Volume| !volume.in_use() && !volume.is_copied(facts);
    matches!(sent.call, Call::Delete)
        && answer.is(Code::FailedPrecondition)
        && states
            .iter()
            .all(|state| matches!(state, State::Present(volume) if is_free(volume)))
}

/// True if a retryable code is the final answer for now: the volume's drive is missing, or has a copy.
pub(crate) fn stays_unavailable(states: &[State], sent: &Sent, facts: &Facts) -> bool {
    states.iter().any(|state| match state {
        State::Present(volume) => {
            let meant = matches!(sent.call, Call::Create(_))
                || volume.id.as_deref() == Some(sent.id.as_str());
            meant && (volume.is_away(facts) || volume.is_copied(facts))
        }
        State::Absent => false,
    })
}

/// Returns the possible states after two concurrent calls, which may run in either order.
pub(crate) fn after_both(
    state: &State,
    first: (&Sent, &Answer),
    second: (&Sent, &Answer),
    facts: &Facts,
) -> Vec<State> {
    let in_order = |a: (&Sent, &Answer), b: (&Sent, &Answer)| {
        let between = state.after(a.0, a.1, facts);
        let after = between
            .iter()
            .flat_map(|state| state.after(b.0, b.1, facts));
        after.collect::<Vec<_>>()
    };
    let mut all = in_order(first, second);
    for state in in_order(second, first) {
        if !all.contains(&state) {
            all.push(state);
        }
    }
    all
}
