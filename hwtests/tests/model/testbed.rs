//! The system under test, an agent on loop drives, and the model, with their comparison.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    time::{Duration, Instant},
};

use drivebay_hwtests::{Agent, DriveSpec, MIB, Rig, Settings, Shelf, csi, need, shelf::Turn, wait};
use drivebay_proto::agent as wire;

use super::{
    data,
    fixture::tune,
    observe::{self, Observed},
    states::{Facts, State},
    steps::{Class, Kind, NAMES, TARGETS},
};

/// Shelf name, size and class of each drive.
pub(crate) const DRIVES: [(&str, u64, Class); 3] = [
    ("small-a", 160 * MIB, Class::Small),
    ("small-b", 112 * MIB, Class::Small),
    ("large-a", 1200 * MIB, Class::Large),
];
pub(crate) const DRIVE_COUNT: u8 = 3;

/// Returns the shelf name of a drive's copy, which no class selects.
pub(crate) fn copy_of(drive: &str) -> String {
    format!("copy-of-{drive}")
}

/// Number of answers, by kind.
pub(crate) type Tally = BTreeMap<String, u64>;

pub(crate) struct Testbed {
    pub(crate) rig: Rig,
    pub(super) states: Vec<Vec<State>>,
    /// Id that each name had before its present one.
    pub(super) former: Vec<Option<String>>,
    pub(super) facts: Facts,
    pub(crate) tally: Tally,
    /// Time limit for the node to agree with the model; a difference that lasts longer is a failure.
    pub(super) settled: Duration,
}

/// Returns the CSI name of a name's number.
pub(crate) fn name_of(name: u8) -> String {
    format!("v{name}")
}

/// Returns the class's name in the configuration.
pub(crate) fn class_name(class: Class) -> &'static str {
    match class {
        Class::Small => "demo",
        Class::Large => "large",
    }
}

/// Returns the uuid in a volume id.
pub(crate) fn uuid_of(id: &str) -> &str {
    id.split('@').next().unwrap_or_default()
}

/// Returns the kind of a volume as the agent reports it.
pub(crate) fn kind_of(volume: &wire::Volume) -> Option<Kind> {
    [Kind::Ext4, Kind::Xfs, Kind::Btrfs, Kind::Block]
        .into_iter()
        .find(|kind| kind.fs_type().unwrap_or_default() == volume.fs_type)
}

impl Testbed {
    pub(crate) async fn new(turn: &Turn, settled: Duration) -> Result<Self, String> {
        let mut shelf = Shelf::during(turn).unwrap();
        for (name, bytes, _) in DRIVES {
            shelf.add(DriveSpec::blank(name, bytes)).unwrap();
        }
        let mut settings = Settings::new(shelf.dir(), &shelf.pattern());
        tune(&mut settings);
        let agent = Agent::start(settings).await;
        let agent = agent.map_err(|error| error.to_string())?;
        let mut bed = Self {
            rig: Rig::of(agent, shelf).await,
            states: vec![vec![State::Absent]; usize::from(NAMES)],
            former: vec![None; usize::from(NAMES)],
            facts: Facts {
                plugged: DRIVES.map(|(name, ..)| name.to_owned()).into(),
                grows_ext4: need::SYS_RESOURCE.check().is_ok(),
                ..Facts::default()
            },
            tally: Tally::new(),
            settled,
        };
        bed.compare(false).await?;
        Ok(bed)
    }

    pub(crate) fn staging(&self, name: u8) -> PathBuf {
        self.rig.dir().join("kubelet/staging").join(name_of(name))
    }

    pub(crate) fn target(&self, name: u8, target: u8) -> PathBuf {
        let pod = format!("{}-{target}", name_of(name));
        self.rig.dir().join("kubelet/pods").join(pod).join("mount")
    }

    /// Returns every path at which a volume may be mounted.
    pub(crate) fn all_paths(&self) -> BTreeSet<PathBuf> {
        let targets = |name| (0..TARGETS).map(move |target| self.target(name, target));
        (0..NAMES)
            .flat_map(|name| targets(name).chain([self.staging(name)]))
            .collect()
    }

    pub(crate) fn class_of(&self, drive: &str) -> Class {
        let row = DRIVES.iter().find(|of| of.0 == drive);
        row.expect("a drive of this bed").2
    }

    pub(crate) fn states(&self, name: u8) -> &[State] {
        &self.states[usize::from(name)]
    }

    /// Compares the node with the model, and removes the states that the observation rules out. `at_once`: effects of answered calls must
    /// be visible already; otherwise they may follow, for example with a drive's event.
    pub(super) async fn compare(&mut self, at_once: bool) -> Result<(), String> {
        let start = Instant::now();
        if at_once {
            let states = self.compare_volumes().await?;
            self.learn(states);
            data::check(self)?;
        }
        let counted = loop {
            match self.count().await {
                Ok((states, counted)) => {
                    self.learn(states);
                    break counted;
                }
                Err(why) if start.elapsed() >= self.settled => return Err(why),
                Err(_) => tokio::time::sleep(wait::STEP).await,
            }
        };
        data::check(self)?;
        self.facts.largest = counted.largest;
        self.facts.growth = counted.growth;
        Ok(())
    }

    /// Counts the node's space, and observes volumes and mounts before and after it: an agent that is starting may revert what it reports
    /// first.
    async fn count(&self) -> Result<(Vec<Vec<State>>, observe::Counted), String> {
        let before = self.compare_volumes().await?;
        let counted = observe::count(self).await?;
        let after = self.compare_volumes().await?;
        if after != before {
            return Err(format!("{before:#?} became {after:#?}"));
        }
        Ok((after, counted))
    }

    async fn compare_volumes(&self) -> Result<Vec<Vec<State>>, String> {
        let observed = Observed::of(self).await?;
        let strays = observed.strays(self);
        if !strays.is_empty() {
            return Err(format!("stray mounts: {strays:?}"));
        }
        (0..NAMES)
            .map(|name| observed.narrow(self, name, self.states(name)))
            .collect()
    }

    fn learn(&mut self, states: Vec<Vec<State>>) {
        for (at, states) in states.into_iter().enumerate() {
            let before = id_in(&self.states[at]);
            if before.is_some() && id_in(&states) != before {
                self.former[at] = before;
            }
            self.states[at] = states;
        }
    }

    pub(super) fn set(&mut self, name: u8, states: Vec<State>) {
        let mut distinct: Vec<State> = Vec::new();
        for state in states {
            if !distinct.contains(&state) {
                distinct.push(state);
            }
        }
        let at = usize::from(name);
        let before = id_in(&self.states[at]);
        if before.is_some() && id_in(&distinct) != before {
            self.former[at] = before;
        }
        self.states[at] = distinct;
    }

    /// Returns the name's volume in every state that has one.
    pub(crate) fn each_here(
        &mut self,
        name: u8,
    ) -> impl Iterator<Item = &mut super::states::Volume> {
        self.states[usize::from(name)]
            .iter_mut()
            .filter_map(|state| match state {
                State::Present(volume) => Some(volume),
                State::Absent => None,
            })
    }
}

/// Returns the id that a name has, if any.
pub(super) fn id_in(states: &[State]) -> Option<String> {
    states.iter().find_map(|state| match state {
        State::Present(volume) => volume.id.clone(),
        State::Absent => None,
    })
}

/// Returns the capability that requests this kind of volume.
pub(crate) fn capability(kind: Kind) -> drivebay_proto::csi::VolumeCapability {
    kind.fs_type().map_or_else(csi::block, csi::mount)
}
