//! Power cuts during calls, at each of their writes in turn.
//!
//! Only the drive loses its power, and the machine continues: the drive is unplugged, gets its power back, and is plugged in again. The
//! medium has the same contents as after a cut of everything, and the agent has no other source (nothing of the drive is mounted, and the
//! kernel's devices above it are removed). This takes seconds instead of a boot, and a round cuts every drive at the same time. Cuts of
//! whole machines are in `answered`.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use drivebay_hwtests::lab::progress::print_progress;

use super::{
    bench::{Bench, Held, insist, together},
    case::{Case, Op},
};

/// The write after which the power is cut, and the unflushed sectors that survive.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Moment {
    /// Number of the write after which the power is cut, from 1.
    pub(crate) write: u64,
    /// Probability with which an unflushed sector survives.
    pub(crate) keep: f64,
    pub(crate) seed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Plan {
    pub(crate) layout: &'static str,
    pub(crate) op: Op,
    pub(crate) moment: Moment,
}

/// Results of the rounds.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Number of cuts by layout and call.
    pub(crate) cuts: BTreeMap<(&'static str, Op), u32>,
    /// Calls that ended before the write at which to cut, by layout and call: plans with later writes are unnecessary.
    pub(crate) over: BTreeMap<(&'static str, Op), u64>,
    /// Number of restores of torn metadata.
    pub(crate) restores: usize,
    /// Number of rounds. Names of volumes contain it.
    rounds: u64,
    pub(crate) failures: Vec<String>,
}

impl Tally {
    pub(crate) fn total(&self) -> u32 {
        self.cuts.values().sum()
    }
}

/// Runs all plans, and adds their results to `tally`, which must be the only one of the bench. Each round runs one on each drive of its
/// layout.
pub(crate) async fn work(bench: &mut Bench, tally: &mut Tally, plans: Vec<Plan>) {
    let mut plans = VecDeque::from(plans);
    let mut broken = vec![false; bench.bays.len()];
    while !plans.is_empty() && !broken.iter().all(|broken| *broken) {
        let mut round = Vec::new();
        for at in (0..bench.bays.len()).filter(|at| !broken[*at]) {
            let (layout, blank) = (bench.bays[at].layout, bench.bays[at].kept.is_none());
            let fits = |plan: &Plan| {
                let past = tally.over.get(&(plan.layout, plan.op));
                (plan.layout == layout && (plan.op == Op::Claim) == blank)
                    && past.is_none_or(|past| plan.moment.write < *past)
            };
            if let Some(index) = plans.iter().position(fits) {
                round.extend(plans.remove(index).map(|plan| (at, plan)));
            }
        }
        if round.is_empty() {
            break;
        }
        tally.rounds += 1;
        let number = tally.rounds;
        for (at, plan, done) in cut_all(bench, round, number).await {
            let key = (plan.layout, plan.op);
            match done {
                Ok(true) => *tally.cuts.entry(key).or_default() += 1,
                Ok(false) => {
                    let past = tally.over.entry(key).or_insert(plan.moment.write);
                    *past = plan.moment.write.min(*past);
                }
                Err(why) => {
                    broken[at] = true;
                    let name = &bench.bays[at].name;
                    tally.failures.push(format!("{name}: {plan:?}: {why}"));
                    print_progress(format!("FAILED {name}: {plan:?}: {why}"));
                }
            }
        }
        print_progress(format!("round {number}: {} cuts so far", tally.total()));
    }
    let log = bench.lab.agent.log();
    let restored = log
        .iter()
        .filter(|line| line.contains("restored from its copy"));
    tally.restores = restored.count();
}

/// Runs one round. Ok(true): the power was cut, and all checks passed; Ok(false): the call ended before its write.
async fn cut_all(
    bench: &mut Bench,
    round: Vec<(usize, Plan)>,
    number: u64,
) -> Vec<(usize, Plan, Held<bool>)> {
    let begun = {
        let bench = &*bench;
        together(
            round
                .iter()
                .map(|&(at, plan)| begin(bench, at, plan, number)),
        )
        .await
    };
    let mut begun: Vec<_> = round.into_iter().zip(begun).collect();
    for ((at, _), done) in &begun {
        if matches!(done, Ok((_, _, true))) {
            replug(bench, *at);
        }
    }
    let bench = &*bench;
    let ended = together(begun.iter_mut().map(async |(_, done)| match done {
        Ok((case, acknowledged, _)) => case.after(bench, *acknowledged).await,
        Err(why) => Err(why.clone()),
    }))
    .await;
    begun
        .into_iter()
        .zip(ended)
        .map(|(((at, plan), done), ended)| (at, plan, ended.and(done.map(|(_, _, cut)| cut))))
        .collect()
}

/// Runs the call until the cut. Returns whether it was acknowledged, and whether the power was cut.
async fn begin(bench: &Bench, at: usize, plan: Plan, number: u64) -> Held<(Case, bool, bool)> {
    let mut case = Case::prepare(bench, at, plan.op, number).await?;
    let (nbd, moment) = (bench.nbd(at), plan.moment);
    nbd.cut_after_writes(moment.write, moment.keep, moment.seed)
        .map_err(|error| error.to_string())?;
    let acknowledged = {
        let mut call = Box::pin(case.act(bench));
        loop {
            if let Ok(ended) = tokio::time::timeout(Duration::from_millis(20), &mut call).await {
                break ended.is_ok();
            }
            if nbd.is_cut() {
                // A drive without power would only not respond; one that is unplugged returns errors.
                nbd.die();
                if plan.op == Op::Erase {
                    break false;
                }
            }
        }
    };
    if !nbd.disarm() {
        nbd.die();
        // The volume may have been mounted before the cut.
        case.unstage(bench).await?;
        return Ok((case, acknowledged, true));
    }
    // On a busy machine an `lvm` command may have reached its deadline.
    insist(async || case.act(bench).await).await?;
    case.unstage(bench).await?;
    Ok((case, true, false))
}

/// Unplugs a drive without power, and plugs it in with power.
fn replug(bench: &mut Bench, at: usize) {
    bench.take_out(at);
    bench.put_back(at);
}
