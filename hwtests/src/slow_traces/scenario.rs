//! A node: several drives under their loads, one of which may become slow.

use drivebay_model::{DriveId, Media};
use drivebay_smart::slow::{Input, Kind, Minute};
use fastrand::Rng;

use super::{
    device::{Device, Model, Seconds, between},
    load::{Load, Offered, Profile},
};

/// Shape of a slowdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Shape {
    /// Reads and writes, during the whole slowdown.
    Constant,
    /// Two of three minutes, at least five in total.
    Bursts,
    /// Reads only, during the whole slowdown.
    ReadsOnly,
    /// While the agent erases a deleted volume on the drive.
    DuringErase,
}

impl Shape {
    /// Every shape once; `evaluate` takes them in turn.
    pub const ALL: [Self; 4] = [
        Self::Constant,
        Self::Bursts,
        Self::ReadsOnly,
        Self::DuringErase,
    ];

    /// Returns the displayed name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Constant => "constant",
            Self::Bursts => "bursts",
            Self::ReadsOnly => "reads only",
            Self::DuringErase => "during an erase",
        }
    }
}

/// Slowdown of the first drive.
#[derive(Debug, Clone, Copy)]
pub struct Slowness {
    /// Affected requests and times.
    pub shape: Shape,
    /// Factor by which they take longer.
    pub factor: f64,
    /// Start, seconds since the start of the scenario.
    pub from: f64,
    /// End, seconds since the start of the scenario; exclusive.
    pub to: f64,
}

impl Slowness {
    fn at(&self, second: f64) -> (f64, f64) {
        if !(self.from..self.to).contains(&second) {
            return (1.0, 1.0);
        }
        match self.shape {
            Shape::Constant | Shape::DuringErase => (self.factor, self.factor),
            Shape::ReadsOnly => (self.factor, 1.0),
            Shape::Bursts if (second - self.from) % 180.0 < 120.0 => (self.factor, self.factor),
            Shape::Bursts => (1.0, 1.0),
        }
    }
}

#[derive(Debug)]
struct Node {
    id: DriveId,
    device: Device,
    load: Load,
    /// Periods in which the agent erases, and checks, seconds.
    erases: Vec<(f64, f64)>,
    checks: Vec<(f64, f64)>,
}

/// A node, simulated second by second.
#[derive(Debug)]
pub struct Scenario {
    rng: Rng,
    nodes: Vec<Node>,
    /// Slowdown of the first drive.
    pub slowness: Option<Slowness>,
    /// Duration, minutes: number of times that `next_minute` returns inputs.
    pub minutes: u64,
    /// Name of the first drive's medium and load.
    pub name: String,
    minute: u64,
}

impl Scenario {
    /// Returns a random node for this seed.
    pub fn draw(seed: u64, minutes: u64, slowness: Option<Slowness>) -> Self {
        let mut rng = Rng::with_seed(seed);
        let seconds = minutes as f64 * 60.0;
        let media = [Media::Nvme, Media::Ssd, Media::Hdd][rng.usize(..3)];
        let models = if rng.u8(..5) == 0 { 2 } else { 1 };
        let models: Vec<Model> = (0..models)
            .map(|number| Model::draw(&mut rng, media, number))
            .collect();
        // At least four: a drive and three peers.
        let count = rng.usize(4..=10);
        // Small random requests per second, one at a time.
        let speed = if media == Media::Hdd { 100.0 } else { 8000.0 };
        let profile = Profile::BUSY[rng.usize(..Profile::BUSY.len())];
        let mut common = Load::draw(&mut rng, profile, speed, seconds);
        if slowness.is_some_and(|slow| slow.shape == Shape::ReadsOnly) {
            common = common.reading();
        }
        let uneven = [1.3, 2.0, 4.0][rng.usize(..3)];
        let mixed = rng.u8(..4) == 0;
        let mut nodes = Vec::new();
        for number in 0..count {
            // With mixed loads a third of the neighbours has another profile.
            let other = mixed && number > 0 && number % 3 == 0;
            let load = if other {
                let others = [
                    Profile::FioRandom,
                    Profile::FioSequential,
                    Profile::Database,
                    Profile::Web,
                    Profile::Backup,
                    Profile::Idle,
                ];
                let profile = others[rng.usize(..others.len())];
                Load::draw(&mut rng, profile, speed, seconds)
            } else {
                common.neighbour(&mut rng, uneven)
            };
            let device = Device::draw(&mut rng, &models[number % models.len()]);
            let mut erases = Vec::new();
            let mut checks = Vec::new();
            if rng.u8(..3) == 0 {
                let at = between(&mut rng, 0.0, seconds);
                erases.push((at, at + between(&mut rng, 120.0, 3000.0)));
            }
            if rng.u8(..3) == 0 {
                let at = between(&mut rng, 0.0, seconds);
                checks.push((at, at + between(&mut rng, 60.0, 900.0)));
            }
            nodes.push(Node {
                id: DriveId(format!("drive-{number}")),
                device,
                load,
                erases,
                checks,
            });
        }
        if let (Some(slow), Some(first)) = (slowness, nodes.first_mut())
            && slow.shape == Shape::DuringErase
        {
            first.erases.push((slow.from - 120.0, slow.to + 300.0));
        }
        Self {
            rng,
            nodes,
            slowness,
            minutes,
            name: format!("{media} {}", profile.as_str()),
            minute: 0,
        }
    }

    /// Makes the last drive, which is healthy, several times busier than its peers, or changes its load halfway.
    pub fn odd_one(mut self) -> Self {
        let seconds = self.minutes as f64 * 60.0;
        let other = self.rng.bool();
        let factor = between(&mut self.rng, 3.0, 10.0);
        let profile = Profile::BUSY[self.rng.usize(..Profile::BUSY.len())];
        let media = self.nodes.first().map(|node| node.device.model.media);
        let speed = if media == Some(Media::Hdd) {
            100.0
        } else {
            8000.0
        };
        let drawn = Load::draw(&mut self.rng, profile, speed, seconds);
        if let Some(last) = self.nodes.last_mut() {
            last.load = if other {
                drawn
            } else {
                last.load.clone().busier(factor)
            };
        }
        self
    }

    /// Returns the first drive, which is the one that may be slow.
    pub fn first(&self) -> DriveId {
        DriveId("drive-0".into())
    }

    /// Returns the next minute of every drive; None at the end.
    pub fn next_minute(&mut self) -> Option<Vec<Input>> {
        if self.minute >= self.minutes {
            return None;
        }
        let begin = self.minute as f64 * 60.0;
        self.minute += 1;
        let mut inputs = Vec::new();
        for (number, node) in self.nodes.iter_mut().enumerate() {
            node.device.begin_minute(&mut self.rng);
            node.load.begin_minute(&mut self.rng, begin);
            let (mut erasing, mut checking) = (false, false);
            let mut slices = Vec::new();
            for slice in 0..12 {
                let mut sum = Seconds::default();
                for second in 0..5 {
                    let at = begin + f64::from(slice * 5 + second);
                    let within =
                        |spans: &[(f64, f64)]| spans.iter().any(|(a, b)| (*a..*b).contains(&at));
                    let mut streams = node.load.second(&mut self.rng, at);
                    if within(&node.erases) {
                        erasing = true;
                        streams.push(Offered::erasing());
                    }
                    if within(&node.checks) {
                        checking = true;
                        streams.push(Offered::checking());
                    }
                    let slow = match self.slowness {
                        Some(slowness) if number == 0 => slowness.at(at),
                        _ => (1.0, 1.0),
                    };
                    sum.add(&node.device.second(&mut self.rng, &streams, slow));
                }
                slices.push(sum.counted());
            }
            inputs.push(Input {
                drive: node.id.clone(),
                kind: Kind {
                    model: node.device.model.name.clone(),
                    media: node.device.model.media,
                },
                minute: Some(Minute::new(&slices, erasing, checking)),
            });
        }
        Some(inputs)
    }
}
