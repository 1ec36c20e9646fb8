//! Power cuts in the middle of calls, at each of their writes in turn.
//!
//! Only the drive loses its power, and the machine goes on: it is pulled, gets its power back, and is plugged in
//! again. What is on the medium is the same as after a cut of everything, and that is all that the agent
//! has to go by (nothing of the drive is mounted, and what the kernel still has of it is taken away); it takes
//! seconds instead of a boot, and a round cuts every drive at once. Cuts of whole machines are in `answered`.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use drivebay_hwtests::lab::progress::say;

use super::{
    bench::{Bench, Held, insist, together},
    case::{Case, Op},
};

/// When the power goes, and what the cache keeps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Moment {
    /// The write after which it goes, from 1.
    pub(crate) write: u64,
    /// Probability for each unflushed sector.
    pub(crate) keep: f64,
    pub(crate) seed: u64,
}

/// What is to be cut.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Plan {
    pub(crate) layout: &'static str,
    pub(crate) op: Op,
    pub(crate) moment: Moment,
}

/// How a round went.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Cuts by layout and call.
    pub(crate) cuts: BTreeMap<(&'static str, Op), u32>,
    /// Calls that were over before their write came, by layout and call: no more moments are needed.
    pub(crate) over: BTreeMap<(&'static str, Op), u64>,
    /// Torn metadata that was put back.
    pub(crate) restores: usize,
    pub(crate) failures: Vec<String>,
}

impl Tally {
    pub(crate) fn total(&self) -> u32 {
        self.cuts.values().sum()
    }
}

/// Works through plans, each round one on each drive of its layout.
pub(crate) async fn work(bench: &mut Bench, plans: Vec<Plan>) -> Tally {
    let (mut tally, mut plans) = (Tally::default(), VecDeque::from(plans));
    let mut broken = vec![false; bench.bays.len()];
    let mut number = 0;
    while !plans.is_empty() && !broken.iter().all(|broken| *broken) {
        let mut round = Vec::new();
        for at in (0..bench.bays.len()).filter(|at| !broken[*at]) {
            let (layout, blank) = (bench.bays[at].layout, bench.bays[at].kept.is_none());
            let fits = |plan: &Plan| {
                let past = tally.over.get(&(plan.layout, plan.op));
                (plan.layout == layout && (plan.op == Op::Claim) == blank)
                    && past.is_none_or(|past| plan.moment.write < *past)
            };
            if let Some(found) = plans.iter().position(fits) {
                round.extend(plans.remove(found).map(|plan| (at, plan)));
            }
        }
        if round.is_empty() {
            break;
        }
        number += 1;
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
                    say(format!("FAILED {name}: {plan:?}: {why}"));
                }
            }
        }
        say(format!("round {number}: {} cuts so far", tally.total()));
    }
    let log = bench.lab.agent.log();
    let restored = log
        .iter()
        .filter(|line| line.contains("restored from its copy"));
    tally.restores = restored.count();
    tally
}

/// One round: Ok(true): it was cut and all is well.
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

/// The call until its cut: whether it was acknowledged, and whether it was cut.
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
                // Without power it would only be silent; a drive that is pulled answers with errors.
                nbd.die();
                if plan.op == Op::Erase {
                    break false;
                }
            }
        }
    };
    if !nbd.disarm() {
        nbd.die();
        // The mount may have been made before.
        case.unstage(bench).await?;
        return Ok((case, acknowledged, true));
    }
    // On a busy machine an `lvm` command may have been ended at its deadline.
    insist(async || case.act(bench).await).await?;
    case.unstage(bench).await?;
    Ok((case, true, false))
}

/// Pulls a drive that is dead, and plugs it in with its power back.
fn replug(bench: &mut Bench, at: usize) {
    bench.take_out(at);
    bench.put_back(at);
}
