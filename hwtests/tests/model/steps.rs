//! Steps that can happen to a node, as values: printed, saved as regressions, generated and shrunk by proptest.

use proptest::{
    collection, option,
    prelude::{Just, Strategy, any},
    prop_oneof,
};
use serde::{Deserialize, Serialize};

/// Number of volume names: few, so that most steps meet a volume with a history.
pub(crate) const NAMES: u8 = 3;
/// Number of targets that a volume can be published at.
pub(crate) const TARGETS: u8 = 2;
/// Number of places in a volume that data is written to.
pub(crate) const PLACES: u8 = 3;

/// Filesystem of a volume, or a raw volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Kind {
    Ext4,
    Xfs,
    Btrfs,
    Block,
}

impl Kind {
    /// Returns the filesystem's name in CSI; None for a raw volume.
    pub(crate) fn fs_type(self) -> Option<&'static str> {
        match self {
            Self::Ext4 => Some("ext4"),
            Self::Xfs => Some("xfs"),
            Self::Btrfs => Some("btrfs"),
            Self::Block => None,
        }
    }
}

/// Class of a drive, by the configuration of the fixture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Class {
    /// Two small drives, soon full.
    Small,
    /// One drive with space for XFS and btrfs.
    Large,
}

/// Parameters of CreateVolume; `mib` is required_bytes, MiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Spec {
    pub(crate) kind: Kind,
    pub(crate) class: Class,
    pub(crate) mib: u16,
    /// True if limit_bytes equals the size.
    pub(crate) exact: bool,
}

/// Behaviour of mkfs during a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Mkfs {
    Plain,
    /// Takes 0.3 s longer.
    Slow,
    /// Fails before it starts.
    FailsAtOnce,
    /// Fails after it has made the filesystem.
    FailsAfterwards,
}

/// An RPC for one volume name.
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

/// Number of a drive of the testbed; from the count of drives on, the copy of each.
pub(crate) type DriveNumber = u8;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Step {
    /// A call, repeated until its answer is final.
    Call(u8, Call),
    /// Two calls at the same time, for two volume names or the same one. Neither is repeated.
    Pair((u8, Call), (u8, Call)),
    /// A call that its caller cancels after this many milliseconds and then repeats.
    Cut(u8, Call, u16),
    /// A call during which, after this many milliseconds, the agent is killed and restarted; the call is then repeated, or not.
    Kill(u8, Call, u16, bool),
    /// Writes data to a place of the published volume.
    Write(u8, u8, u64),
    /// Stops or kills the agent, may unplug or plug a drive meanwhile, and starts the agent again.
    Restart {
        kill: bool,
        toggle: Option<DriveNumber>,
    },
    /// Stops or kills the agent, may unplug or plug a drive meanwhile, and starts the agent again; the call is sent as soon as the socket
    /// listens.
    Hasty {
        kill: bool,
        toggle: Option<DriveNumber>,
        name: u8,
        call: Call,
    },
    /// Unplugs a drive on which nothing is in use, or plugs one; or a copy of one, which may be outdated.
    Toggle(DriveNumber),
    Rescan,
    /// ListVolumes with this page size, while a call runs.
    List(u8, u8, Call),
}

impl Step {
    /// Returns the steps that do less than this one, for shrinking.
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
            // Both calls mostly use one name, since volumes hardly affect each other.
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

/// Returns a strategy for `count` steps on a node with this many drives, copies included.
pub(crate) fn steps(count: usize, drives: DriveNumber) -> impl Strategy<Value = Vec<Step>> {
    collection::vec(step(drives), count)
}
