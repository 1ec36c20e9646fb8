//! Cases: lists of steps, generated from a seed and run; a failing one is shrunk to the steps that matter and saved as a regression.

use std::{
    env, fs,
    fs::OpenOptions,
    io::Write,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use drivebay_hwtests::shelf::Turn;
use proptest::{
    strategy::{Strategy, ValueTree},
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};

use super::{
    steps::{self, Step},
    testbed::{DRIVE_COUNT, Tally, Testbed},
};

/// Number of steps in one case. A case begins with an agent on blank drives, which it soon fills.
const LENGTH: usize = 80;
/// Time limit for effects that follow an answer, such as the end of erasing, also on a busy machine.
const SETTLED: Duration = Duration::from_secs(45);
/// The same limit while a case is shrunk, where most runs wait for an effect that never comes.
const SETTLED_SHRINKING: Duration = Duration::from_secs(8);
/// Longest time for which a run keeps other tests of drives waiting.
const SHARE: Duration = Duration::from_secs(60);
/// Environment variable with the seed of a run; if unset, a seed is chosen and printed.
const SEED: &str = "DRIVEBAY_MODEL_SEED";
/// Environment variable with the number of steps.
const STEPS: &str = "DRIVEBAY_MODEL_STEPS";

/// Environment variable with one case in its printed form; only that case is run.
const CASE: &str = "DRIVEBAY_MODEL_CASE";

struct Failure {
    /// Number of steps made, including the failing one.
    made: usize,
    why: String,
    /// Last lines of the agent's log.
    log: String,
}

/// Totals of a run.
#[derive(Debug, Default)]
pub(crate) struct Done {
    pub(crate) cases: usize,
    pub(crate) steps: usize,
    pub(crate) tally: Tally,
}

impl Done {
    pub(crate) fn print(&self, start: Instant) {
        let took = start.elapsed().as_secs_f64();
        println!(
            "model: {} steps in {} cases, {took:.0} s: {:?}",
            self.steps, self.cases, self.tally
        );
    }
}

/// Runs one case on a node of its own.
fn run(turn: &Turn, steps: &[Step], settled: Duration) -> Result<Tally, Failure> {
    let (mut made, mut log) = (0, String::new());
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let case = async {
        let mut bed = Testbed::new(turn, settled).await?;
        let mut result = Ok(());
        for step in steps {
            made += 1;
            result = bed.step(*step).await;
            if result.is_err() {
                break;
            }
        }
        if result.is_ok() {
            result = bed.finish().await;
        }
        log = bed.rig.agent.log_tail();
        result.map(|()| std::mem::take(&mut bed.tally))
    };
    // The harness panics with a message when a time limit passes.
    let result = catch_unwind(AssertUnwindSafe(|| runtime.block_on(case)));
    let why = match result {
        Ok(Ok(tally)) => return Ok(tally),
        Ok(Err(why)) => why,
        Err(panic) => panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
            .unwrap_or_else(|| "the harness panicked".to_owned()),
    };
    Err(Failure { made, why, log })
}

/// Runs `count` steps in cases generated from the seed; a failing case is shrunk for at most `shrinking`.
pub(crate) fn run_seeded(seed: u64, count: usize, shrinking: Duration) -> Done {
    println!("model: {count} steps, seed {seed} ({SEED} repeats it)");
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let random = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), random);
    let mut done = Done::default();
    let mut turn = Turn::wait().expect("the drives' lock");
    let mut since = Instant::now();
    while done.steps < count {
        if since.elapsed() > SHARE {
            // Releases the turn before it requests it again.
            drop(turn);
            turn = Turn::wait().expect("the drives' lock");
            since = Instant::now();
        }
        let length = LENGTH.min(count - done.steps);
        let case = steps::steps(length, 2 * DRIVE_COUNT)
            .new_tree(&mut runner)
            .expect("no step is filtered out")
            .current();
        match run(&turn, &case, SETTLED) {
            Ok(tally) => {
                for (what, times) in tally {
                    *done.tally.entry(what).or_default() += times;
                }
            }
            Err(failure) => {
                println!("model: case {}", written(&case[..failure.made]));
                println!(
                    "model: failed after {} steps: {}",
                    failure.made, failure.why
                );
                let (steps, failure) = shrink(&turn, &case, failure, shrinking);
                save(&steps);
                panic!(
                    "{}\nseed {seed}, case {}: {}\nshrunk to {} steps:\n{}",
                    failure.log,
                    done.cases,
                    failure.why,
                    steps.len(),
                    written(&steps)
                );
            }
        }
        done.cases += 1;
        done.steps += length;
        println!("model: {} steps passed", done.steps);
    }
    done
}

/// State of shrinking one failing case.
struct Shrinking<'a> {
    turn: &'a Turn,
    best: Vec<Step>,
    failure: Failure,
    runs: usize,
    end: Instant,
}

impl Shrinking<'_> {
    /// Runs a shorter or simpler case. True if it fails as well; it is then the best one.
    fn fails(&mut self, steps: &[Step]) -> bool {
        if Instant::now() >= self.end {
            return false;
        }
        self.runs += 1;
        match run(self.turn, steps, SETTLED_SHRINKING) {
            Ok(_) => false,
            Err(failure) => {
                self.best = steps[..failure.made].to_vec();
                self.failure = failure;
                println!("model: {} steps fail as well", self.best.len());
                true
            }
        }
    }

    /// Leaves out runs of steps, long ones first. proptest's own shrinking of a list leaves out one at a time, from the front,
    /// and has no use for steps behind the failing one; a run of a case takes seconds.
    fn leave_out(&mut self) {
        let mut length = self.best.len().div_ceil(2);
        while length > 0 {
            let (mut at, mut shorter) = (0, false);
            while at < self.best.len() {
                let mut steps = self.best.clone();
                steps.drain(at..steps.len().min(at + length));
                if !steps.is_empty() && self.fails(&steps) {
                    shorter = true;
                } else {
                    at += length;
                }
            }
            if length > 1 || !shorter {
                length /= 2;
            }
        }
    }

    /// Replaces steps by simpler ones.
    fn simplify(&mut self) {
        let mut at = 0;
        while at < self.best.len() {
            let simpler = self.best[at].simpler().into_iter().any(|step| {
                let mut steps = self.best.clone();
                steps[at] = step;
                self.fails(&steps)
            });
            if !simpler {
                at += 1;
            }
        }
    }
}

/// Shrinks a failing case for at most `limit`. Returns the shortest and simplest steps found to fail, and their failure.
fn shrink(turn: &Turn, case: &[Step], failure: Failure, limit: Duration) -> (Vec<Step>, Failure) {
    let start = Instant::now();
    let mut shrinking = Shrinking {
        turn,
        best: case[..failure.made].to_vec(),
        failure,
        runs: 0,
        end: start + limit,
    };
    shrinking.leave_out();
    shrinking.simplify();
    println!(
        "model: shrunk to {} steps with {} runs in {:.0} s",
        shrinking.best.len(),
        shrinking.runs,
        start.elapsed().as_secs_f64()
    );
    (shrinking.best, shrinking.failure)
}

fn regressions() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/model/regressions.jsonl")
}

fn written(steps: &[Step]) -> String {
    serde_json::to_string(steps).expect("steps are written as JSON")
}

/// Appends a case to the regressions, which every run runs first.
fn save(steps: &[Step]) {
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(regressions());
    let saved = file.and_then(|mut file| writeln!(file, "{}", written(steps)));
    match saved {
        Ok(()) => println!("model: saved in {}", regressions().display()),
        Err(error) => println!("model: not saved in {}: {error}", regressions().display()),
    }
}

/// Runs the case in the environment variable; false if there is none.
pub(crate) fn run_given() -> bool {
    let Ok(line) = env::var(CASE) else {
        return false;
    };
    let turn = Turn::wait().expect("the drives' lock");
    again(&turn, &line);
    true
}

/// Runs every saved regression.
pub(crate) fn run_regressions() {
    let text = fs::read_to_string(regressions()).unwrap_or_default();
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with('[')).collect();
    if lines.is_empty() {
        return;
    }
    let turn = Turn::wait().expect("the drives' lock");
    for line in lines {
        again(&turn, line);
    }
}

fn again(turn: &Turn, line: &str) {
    let steps: Vec<Step> = serde_json::from_str(line).expect("a saved case parses");
    if let Err(failure) = run(turn, &steps, SETTLED) {
        panic!(
            "{}\nfails after {} steps: {}\n{line}",
            failure.log, failure.made, failure.why
        );
    }
}

/// Returns the seed in the environment variable, or `otherwise`.
pub(crate) fn seed_or(otherwise: u64) -> u64 {
    number(SEED).unwrap_or(otherwise)
}

/// Returns the number of steps in the environment variable, or `otherwise`.
pub(crate) fn steps_or(otherwise: usize) -> usize {
    number(STEPS)
        .and_then(|count| count.try_into().ok())
        .unwrap_or(otherwise)
}

fn number(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{variable} is no number: {text:?}")),
    )
}
