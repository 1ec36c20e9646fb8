//! What can happen to a node, as values: printed, saved as regressions, generated and shrunk by proptest.

use proptest::{
    collection, option,
    prelude::{Just, Strategy, any},
    prop_oneof,
};
use serde::{Deserialize, Serialize};

/// Volume names: few, so that most steps meet a volume that something has happened to.
pub(crate) const NAMES: u8 = 3;
/// Targets that a volume can be published at.
pub(crate) const TARGETS: u8 = 2;
/// Places in a volume that data is written to.
pub(crate) const PLACES: u8 = 3;

/// What a volume is used as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Kind {
    Ext4,
    Xfs,
    Btrfs,
    Block,
}

impl Kind {
    /// Its filesystem, in CSI's words.
    pub(crate) fn fs_type(self) -> Option<&'static str> {
        match self {
            Self::Ext4 => Some("ext4"),
            Self::Xfs => Some("xfs"),
            Self::Btrfs => Some("btrfs"),
            Self::Block => None,
        }
    }
}

/// Which of the node's classes; `settings` of the bed says what drives it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Class {
    /// Two small drives, soon full.
    Small,
    /// One drive with room for XFS and btrfs.
    Large,
}

/// What CreateVolume asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Spec {
    pub(crate) kind: Kind,
    pub(crate) class: Class,
    pub(crate) mib: u16,
    /// limit_bytes is the size itself.
    pub(crate) exact: bool,
}

/// How mkfs behaves during a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Mkfs {
    Plain,
    /// Takes 0.3 s longer.
    Slow,
    /// Fails, and has not begun.
    FailsAtOnce,
    /// Fails when it has made the filesystem.
    FailsAfterwards,
}

/// An RPC about one volume name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Call {
    Create(Spec),
    Delete,
    /// DeleteVolume of the id that the name had before its present one.
    DeleteFormer,
    Stage(Mkfs),
    Unstage,
    Publish {
        target: u8,
        read_only: bool,
    },
    Unpublish {
        target: u8,
    },
    /// ControllerExpandVolume to this size.
    Expand {
        mib: u16,
    },
    /// NodeExpandVolume at the staging path.
    Grow,
    /// NodeGetVolumeStats at a target.
    Stats {
        target: u8,
    },
}

/// A drive of the bed, by its number; from the count of drives on, the copy of each.
pub(crate) type DriveNumber = u8;

/// One step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Step {
    /// A call, until it has a final answer.
    Call(u8, Call),
    /// Two calls at the same time.
    Pair((u8, Call), (u8, Call)),
    /// A call whose caller gives up after so many milliseconds, and then repeats it.
    Cut(u8, Call, u16),
    /// A call in the middle of which, after so many milliseconds, the agent is killed and started again; then it is repeated, or not.
    Kill(u8, Call, u16, bool),
    /// Data is written to a place of the published volume.
    Write(u8, u8, u64),
    /// The agent is stopped or killed, maybe a drive is pulled or plugged meanwhile, and started again.
    Restart {
        kill: bool,
        toggle: Option<DriveNumber>,
    },
    /// The agent is stopped or killed, maybe a drive is pulled or plugged meanwhile, and started again; the call is sent as soon
    /// as its socket listens.
    Hasty {
        kill: bool,
        toggle: Option<DriveNumber>,
        name: u8,
        call: Call,
    },
    /// A drive is pulled, if nothing on it is in use, or plugged; or a copy of one, which may be out of date.
    Toggle(DriveNumber),
    /// Rescan.
    Rescan,
    /// ListVolumes in pages of so many, while a call runs.
    List(u8, u8, Call),
}

impl Step {
    /// Steps that do less than this one.
    pub(crate) fn simpler(self) -> Vec<Self> {
        let call = |(name, call): (u8, Call)| Self::Call(name, call);
        match self {
            Self::Pair(first, second) => vec![call(first), call(second)],
            Self::Cut(name, of, _) | Self::List(_, name, of) | Self::Kill(name, of, _, false) => {
                vec![call((name, of))]
            }
            Self::Kill(name, of, ms, true) => {
                vec![call((name, of)), Self::Kill(name, of, ms, false)]
            }
            Self::Restart {
                kill,
                toggle: Some(drive),
            } => vec![Self::Toggle(drive), Self::Restart { kill, toggle: None }],
            Self::Restart {
                kill: true,
                toggle: None,
            } => vec![Self::Restart {
                kill: false,
                toggle: None,
            }],
            Self::Hasty {
                kill,
                toggle,
                name,
                call,
            } => vec![Self::Restart { kill, toggle }, Self::Call(name, call)],
            Self::Call(name, Call::Stage(mkfs)) if mkfs != Mkfs::Plain => {
                vec![Self::Call(name, Call::Stage(Mkfs::Plain))]
            }
            _ => Vec::new(),
        }
    }
}

fn spec() -> impl Strategy<Value = Spec> {
    let small = (
        prop_oneof![Just(Kind::Ext4), Just(Kind::Block)],
        prop_oneof![4 => Just(Class::Small), 1 => Just(Class::Large)],
        prop_oneof![Just(16u16), Just(24), Just(40), Just(72)],
    );
    let large = prop_oneof![
        Just((Kind::Xfs, Class::Large, 300u16)),
        Just((Kind::Btrfs, Class::Large, 256)),
    ];
    let any_of = prop_oneof![6 => small, 1 => large];
    (any_of, prop_oneof![5 => Just(false), 1 => Just(true)]).prop_map(
        |((kind, class, mib), exact)| Spec {
            kind,
            class,
            mib,
            exact,
        },
    )
}

fn mkfs() -> impl Strategy<Value = Mkfs> {
    prop_oneof![
        8 => Just(Mkfs::Plain),
        1 => Just(Mkfs::Slow),
        1 => Just(Mkfs::FailsAtOnce),
        1 => Just(Mkfs::FailsAfterwards),
    ]
}

fn call() -> impl Strategy<Value = Call> {
    let target = || 0..TARGETS;
    prop_oneof![
        7 => spec().prop_map(Call::Create),
        1 => Just(Call::Delete),
        1 => Just(Call::DeleteFormer),
        6 => mkfs().prop_map(Call::Stage),
        2 => Just(Call::Unstage),
        6 => (target(), prop_oneof![3 => Just(false), 1 => Just(true)])
            .prop_map(|(target, read_only)| Call::Publish { target, read_only }),
        2 => target().prop_map(|target| Call::Unpublish { target }),
        3 => prop_oneof![Just(24u16), Just(32), Just(64), Just(320), Just(4000)]
            .prop_map(|mib| Call::Expand { mib }),
        1 => Just(Call::Grow),
        1 => target().prop_map(|target| Call::Stats { target }),
    ]
}

fn step(drives: DriveNumber) -> impl Strategy<Value = Step> {
    let name = || 0..NAMES;
    let pair =
        (name(), name(), any::<bool>(), call(), call()).prop_map(|(a, b, same, first, second)| {
            // Mostly about one name: names have little to do with each other.
            Step::Pair((a, first), (if same { a } else { b }, second))
        });
    prop_oneof![
        24 => (name(), call()).prop_map(|(name, call)| Step::Call(name, call)),
        6 => pair,
        3 => (name(), call(), 0u16..60).prop_map(|(name, call, ms)| Step::Cut(name, call, ms)),
        2 => (name(), call(), 0u16..90, any::<bool>())
            .prop_map(|(name, call, ms, again)| Step::Kill(name, call, ms, again)),
        8 => (name(), 0..PLACES, any::<u64>())
            .prop_map(|(name, place, seed)| Step::Write(name, place, seed)),
        1 => (any::<bool>(), option::of(0..drives))
            .prop_map(|(kill, toggle)| Step::Restart { kill, toggle }),
        3 => (any::<bool>(), option::of(0..drives), name(), call())
            .prop_map(|(kill, toggle, name, call)| Step::Hasty { kill, toggle, name, call }),
        4 => (0..drives).prop_map(Step::Toggle),
        1 => Just(Step::Rescan),
        1 => (1u8..4, name(), call()).prop_map(|(page, name, call)| Step::List(page, name, call)),
    ]
}

/// So many steps on a node with so many drives, copies included.
pub(crate) fn steps(count: usize, drives: DriveNumber) -> impl Strategy<Value = Vec<Step>> {
    collection::vec(step(drives), count)
}
