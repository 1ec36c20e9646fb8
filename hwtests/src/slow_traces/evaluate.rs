//! Runs the agent's comparison on scenarios, and evaluates its findings.

use std::{collections::BTreeMap, fmt::Write as _};

use drivebay_smart::slow::Comparison;
use fastrand::Rng;

use super::scenario::{Scenario, Shape, Slowness};

/// Minutes before a drive becomes slow, and after.
const BEFORE: u64 = 90;
const AFTER: u64 = 60;
/// Minutes after the end of a slowdown in which it may still be found.
const GRACE: u64 = 2;

/// Results for some traces.
#[derive(Debug, Clone, Default)]
pub struct Score {
    /// Number of traces with a slow drive.
    pub traces: u32,
    /// Number of those in which it was found while it was slow.
    pub detected: u32,
    /// Minutes from the beginning to the finding.
    pub times: Vec<u64>,
}

impl Score {
    /// Returns the share of slow drives that were found.
    pub fn recall(&self) -> f64 {
        f64::from(self.detected) / f64::from(self.traces.max(1))
    }

    fn percentile(&self, percent: usize) -> String {
        let mut times = self.times.clone();
        times.sort_unstable();
        let at = (times.len() * percent / 100).min(times.len().saturating_sub(1));
        times.get(at).map_or_else(|| "-".to_owned(), u64::to_string)
    }
}

/// Results for all traces.
#[derive(Debug, Clone, Default)]
pub struct Table {
    /// By shape and factor.
    pub slow: BTreeMap<(Shape, u32), Score>,
    /// By medium and load.
    pub by_load: BTreeMap<String, Score>,
    /// By medium and load, shape and factor.
    pub cells: BTreeMap<(String, Shape, u32), Score>,
    /// Number of traces without a slow drive.
    pub healthy_traces: u32,
    /// Slow traces in which the drive had too few requests to be found; they are not counted elsewhere.
    pub too_little: u32,
    /// Findings about drives that were not slow, with the seed of their trace.
    pub false_alarms: Vec<String>,
    /// Slow drives that were not found, with the seed of their trace.
    pub missed: Vec<String>,
}

impl Table {
    /// Returns the sum over all slow traces.
    pub fn all(&self) -> Score {
        let mut all = Score::default();
        for score in self.slow.values() {
            all.traces += score.traces;
            all.detected += score.detected;
            all.times.extend(&score.times);
        }
        all
    }

    /// Returns the share of findings that are correct.
    pub fn precision(&self) -> f64 {
        let right = f64::from(self.all().detected);
        let wrong = self.false_alarms.len() as f64;
        right / (right + wrong).max(1.0)
    }

    /// Returns recall by medium and load, shape and factor, as text.
    pub fn render_cells(&self) -> String {
        let mut text =
            String::from("medium and load   slowdown         found of all at each factor\n");
        let mut last = None;
        for ((load, shape, factor), score) in &self.cells {
            let row = (load, shape);
            if last.replace(row) != Some(row) {
                let _ = write!(text, "\n{load:<18}{:<17}", shape.as_str());
            }
            let _ = write!(
                text,
                " {factor:>3}× {:>3}/{:<3}",
                score.detected, score.traces
            );
        }
        text.push('\n');
        text
    }

    /// Returns the results as text.
    pub fn render(&self) -> String {
        let mut text = String::from(
            "slowdown          factor  traces  found  recall  minutes to the finding (half, 90 %, all)\n",
        );
        let mut line = |name: &str, factor: String, score: &Score| {
            let _ = writeln!(
                text,
                "{name:<18}{factor:>6}{:>8}{:>7}{:>8.3}  {:>3} {:>3} {:>3}",
                score.traces,
                score.detected,
                score.recall(),
                score.percentile(50),
                score.percentile(90),
                score.percentile(100),
            );
        };
        for ((shape, factor), score) in &self.slow {
            line(shape.as_str(), format!("{factor}×"), score);
        }
        line("all", String::new(), &self.all());
        for (load, score) in &self.by_load {
            line(load, String::new(), score);
        }
        let _ = writeln!(
            text,
            "\nslow with too few requests to tell (not counted) {}\nhealthy traces {}; findings about healthy drives {}; precision {:.4}",
            self.too_little,
            self.healthy_traces,
            self.false_alarms.len(),
            self.precision()
        );
        text
    }
}

/// Evaluates this many slow traces and as many healthy ones, generated from this seed.
pub fn evaluate(seed: u64, traces: u64) -> Table {
    let mut table = Table::default();
    let mut rng = Rng::with_seed(seed);
    for number in 0..traces {
        let shape = Shape::ALL[(number % 4) as usize];
        let factor = [3u32, 5, 10, 50][(number / 4 % 4) as usize];
        let minutes = [5, 6, 10, 30][(number / 16 % 4) as usize];
        // Bursts are slow two thirds of the time.
        let minutes = if shape == Shape::Bursts {
            minutes * 2
        } else {
            minutes
        };
        let from = BEFORE as f64 * 60.0 + rng.f64() * 60.0;
        let slowness = Slowness {
            shape,
            factor: f64::from(factor),
            from,
            to: from + minutes as f64 * 60.0,
        };
        one_slow(&mut table, rng.u64(..), shape, factor, minutes, slowness);
        one_healthy(&mut table, rng.u64(..), 240);
    }
    table
}

fn one_slow(
    table: &mut Table,
    seed: u64,
    shape: Shape,
    factor: u32,
    minutes: u64,
    slowness: Slowness,
) {
    let mut scenario = Scenario::draw(seed, BEFORE + minutes + AFTER, Some(slowness));
    let (detected, others, measured) = run(&mut scenario, Some(&slowness));
    if measured < 4 {
        table.too_little += 1;
        return;
    }
    let ends = BEFORE + minutes + 1 + GRACE;
    let detected = detected.filter(|at| (BEFORE..=ends).contains(at));
    let name = format!(
        "seed {seed}: {} {} {factor}× for {minutes} min",
        scenario.name,
        shape.as_str()
    );
    for score in [
        table.slow.entry((shape, factor)).or_default(),
        table.by_load.entry(scenario.name.clone()).or_default(),
        table
            .cells
            .entry((scenario.name.clone(), shape, factor))
            .or_default(),
    ] {
        score.traces += 1;
        if let Some(at) = detected {
            score.detected += 1;
            score.times.push((at + 1).saturating_sub(BEFORE));
        }
    }
    if detected.is_none() {
        table.missed.push(name.clone());
    }
    table
        .false_alarms
        .extend(others.into_iter().map(|drive| format!("{name}: {drive}")));
}

fn one_healthy(table: &mut Table, seed: u64, minutes: u64) {
    let mut scenario = Scenario::draw(seed, minutes, None).odd_one();
    table.healthy_traces += 1;
    let (detected, others, _) = run(&mut scenario, None);
    let first = detected.map(|at| format!("drive-0 at {at}"));
    let name = &scenario.name;
    let all = first.into_iter().chain(others);
    table
        .false_alarms
        .extend(all.map(|drive| format!("seed {seed}: {name} healthy: {drive}")));
}

/// Replays hours of load, bursts and erases on healthy drives; returns the findings.
pub fn replay(seed: u64, hours: u64) -> Vec<String> {
    let mut table = Table::default();
    one_healthy(&mut table, seed, hours * 60);
    table.false_alarms
}

/// Runs a scenario; returns the minute in which its first drive was found slow, findings about other drives, and the number of minutes in
/// which the first drive's requests were slow.
fn run(scenario: &mut Scenario, slowness: Option<&Slowness>) -> (Option<u64>, Vec<String>, u32) {
    let mut comparison = Comparison::default();
    let first = scenario.first();
    let (mut detected, mut others) = (None, BTreeMap::new());
    let (mut minute, mut measured) = (0, 0);
    while let Some(inputs) = scenario.next_minute() {
        let drives: Vec<_> = inputs.iter().map(|input| input.drive.clone()).collect();
        let mut of_first = inputs.iter().filter(|input| input.drive == first);
        if let (Some(slowness), Some(input)) = (slowness, of_first.next()) {
            let begin = minute as f64 * 60.0;
            let whole = begin + 60.0 <= slowness.to && begin >= slowness.from;
            let has_latency = input.minute.is_some_and(|minute| {
                minute.reads.latency_ms().is_some()
                    || (slowness.shape != Shape::ReadsOnly && minute.writes.latency_ms().is_some())
            });
            measured += u32::from(whole && has_latency);
        }
        comparison.feed((minute + 1) * 60, inputs);
        for drive in drives {
            if comparison.slow(&drive).is_empty() {
                continue;
            }
            if drive == first {
                detected.get_or_insert(minute);
            } else {
                others.entry(drive.0).or_insert(minute);
            }
        }
        minute += 1;
    }
    let others = others
        .into_iter()
        .map(|(drive, at)| format!("{drive} at {at}"));
    (detected, others.collect(), measured)
}
