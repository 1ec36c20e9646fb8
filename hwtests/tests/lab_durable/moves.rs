//! Power cuts of the drives of a move, at each of their writes in turn: of either drive alone, and of both at the same time.
//!
//! While a drive is unplugged, its volume is overwritten if it is served, so that the contents show whether an old place is served later.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    time::Duration,
};

use drivebay_hwtests::{MIB, csi, lab::progress::print_progress, node::Placed};
use drivebay_proto::agent::{
    CancelMovesRequest, ListMovesRequest, Move, MoveVolumesRequest, PreferPlaceRequest, Volume,
    agent_client::AgentClient,
};
use tonic::transport::Channel;

use super::bench::{Bench, Held, PATIENCE, insist, together, within};

/// Small, since most of the writes at which to cut are of records.
const BYTES: u64 = 4 * MIB;
/// Time limit within which a servable volume is served after a drive was unplugged, on a busy machine.
const SERVED: Duration = Duration::from_secs(15);
/// Time limit of a move with its attempts and the erase of the remains.
const OVER: Duration = Duration::from_secs(240);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Side {
    Source,
    Target,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Source => "source",
            Self::Target => "target",
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Plan {
    pub(crate) layout: &'static str,
    /// The drive whose writes are counted.
    pub(crate) side: Side,
    /// True if the other drive loses its power at the same time.
    pub(crate) both: bool,
    /// Number of the write after which the power is cut, from 1.
    pub(crate) write: u64,
    /// Probability with which an unflushed sector survives.
    pub(crate) keep: f64,
    pub(crate) seed: u64,
}

/// Results of a run.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Number of cuts by layout, side, and whether the other drive was cut as well.
    pub(crate) cuts: BTreeMap<(&'static str, Side, bool), u32>,
    /// Moves that ended before the write at which to cut: plans with later writes are unnecessary.
    pub(crate) over: BTreeMap<(&'static str, Side), u64>,
    /// Number of volumes that were served while a drive was unplugged, and were overwritten.
    pub(crate) served: u32,
    /// Number of volumes with MoveInDoubt with both drives present, for which the test chose the place as an operator does.
    pub(crate) in_doubt: u32,
    pub(crate) failures: Vec<String>,
}

impl Tally {
    pub(crate) fn total(&self) -> u32 {
        self.cuts.values().sum()
    }
}

/// Two drives and the volume on one of them.
#[derive(Debug)]
struct Pair {
    /// Indices in the bench.
    drives: [usize; 2],
    layout: &'static str,
    placed: Placed,
    /// Digests of each MiB of the data written last.
    digest: String,
    broken: bool,
}

/// A move that was cut.
#[derive(Debug, Clone, Copy)]
struct Cut {
    source: usize,
    target: usize,
    /// True for the source and the target if they are without power.
    dark: [bool; 2],
}

async fn client(bench: &Bench) -> Held<AgentClient<Channel>> {
    let channel = csi::channel(&bench.lab.agent_socket).await;
    channel
        .map(AgentClient::new)
        .map_err(|error| error.to_string())
}

impl Pair {
    async fn new(bench: &Bench, drives: [usize; 2]) -> Held<Self> {
        let bay = &bench.bays[drives[0]];
        let name = format!("{}-moves", bay.name);
        let capability = csi::block();
        let placed = bench.create(drives[0], &name, BYTES, &capability);
        let mut pair = Self {
            drives,
            layout: bay.layout,
            placed: placed.await?,
            digest: String::new(),
            broken: false,
        };
        pair.digest = pair.write(bench).await?;
        Ok(pair)
    }

    fn name<'a>(&self, bench: &'a Bench) -> &'a str {
        &bench.bays[self.drives[0]].name
    }

    async fn volume(&self, bench: &Bench) -> Option<Volume> {
        bench.lab.volume_of(&self.placed.id).await
    }

    /// Returns the drive that the volume is on, and the other one. Errs if it is on neither or on both.
    async fn ends(&self, bench: &Bench) -> Held<(usize, usize)> {
        let volume = self.volume(bench).await.ok_or("the volume is not listed")?;
        let is_on = |at: &usize| volume.drive.contains(&bench.bays[*at].name);
        let [one, other] = self.drives;
        match (is_on(&one), is_on(&other)) {
            (true, false) => Ok((one, other)),
            (false, true) => Ok((other, one)),
            _ => Err(format!("it is on {}", volume.drive)),
        }
    }

    /// Stages and publishes the volume, runs a script on the device, unpublishes and unstages it. Returns the output of the script, which
    /// is a digest.
    async fn with_device(&self, bench: &Bench, script: &str) -> Held<String> {
        let (csi, of) = (bench.csi(), &self.placed);
        insist(async || {
            let staged = csi.stage(&of.id, &of.staging, &of.capability).await;
            staged.map_err(|status| format!("stage: {status}"))
        })
        .await?;
        insist(async || {
            let published = csi.publish(&of.id, &of.staging, &of.target, &of.capability, false);
            published
                .await
                .map_err(|status| format!("publish: {status}"))
        })
        .await?;
        let ran = bench.lab.guest().ran(&format!(
            "set -e; device={}; name={}; {script}",
            of.target.display(),
            self.name(bench)
        ));
        insist(async || {
            let left = csi.unpublish(&of.id, &of.target).await;
            left.map_err(|status| format!("unpublish: {status}"))?;
            let left = csi.unstage(&of.id, &of.staging).await;
            left.map_err(|status| format!("unstage: {status}"))
        })
        .await?;
        match ran.ok() {
            true => Ok(ran.stdout.trim().to_owned()),
            false => Err(format!("{script}: {}", ran.stderr)),
        }
    }

    /// Overwrites the volume with random bytes, and returns the digest.
    async fn write(&self, bench: &Bench) -> Held<String> {
        let script = "dd if=/dev/urandom of=/run/$name bs=1M count=4 status=none; \
            dd if=/run/$name of=$device bs=1M oflag=direct conv=fsync,notrunc status=none; for at in 0 1 2 3; do dd if=/run/$name bs=1M skip=$at count=1 status=none | sha256sum | cut -c1-12; done";
        self.with_device(bench, script).await
    }

    /// Checks that the volume has the contents written last.
    async fn is_right(&self, bench: &Bench) -> Held<()> {
        let script = "dd if=$device of=/run/$name bs=1M count=4 iflag=direct status=none; for at in 0 1 2 3; do dd if=/run/$name bs=1M skip=$at count=1 status=none | sha256sum | cut -c1-12; done";
        let now = self.with_device(bench, script).await?;
        match now == self.digest {
            true => Ok(()),
            false => Err(format!(
                "it holds {now:?}, and {:?} was written: {:?}",
                self.digest,
                self.volume(bench).await
            )),
        }
    }

    async fn moves(&self, bench: &Bench) -> Held<Option<Move>> {
        let listed = client(bench)
            .await?
            .list_moves(ListMovesRequest {})
            .await
            .map_err(|status| status.to_string())?;
        let mut all = listed.into_inner().moves.into_iter();
        Ok(all.find(|one| one.volume_id == self.placed.id))
    }

    /// Starts a move, and runs it until the cut; None if it ended before.
    async fn begin(&self, bench: &Bench, plan: Plan) -> Held<Option<Cut>> {
        let (source, target) = self.ends(bench).await?;
        let (armed, other) = match plan.side {
            Side::Source => (source, target),
            Side::Target => (target, source),
        };
        // Findings from late kernel messages of the previous cut.
        bench.acknowledge(target).await?;
        let to = bench.drive(target).await.ok_or("the target is not there")?;
        let armed = bench.nbd(armed);
        let cut = armed.cut_after_writes(plan.write, plan.keep, plan.seed);
        cut.map_err(|error| error.to_string())?;
        insist(async || {
            let request = MoveVolumesRequest {
                volume_id: self.placed.id.clone(),
                to: vec![to.id.clone()],
                by: "lab".into(),
                ..Default::default()
            };
            let answer = client(bench).await?.move_volumes(request).await;
            match answer {
                // The move was requested by a call that was not acknowledged in time.
                Err(_) if armed.is_cut() => Ok(()),
                answer => answer.map(drop).map_err(|status| status.to_string()),
            }
        })
        .await?;
        let ended = within(OVER, async || {
            if armed.is_cut() {
                return Some(true);
            }
            let moved = self.moves(bench).await.ok().flatten();
            let is_over = moved.is_some_and(|one| one.phase == "moved");
            is_over.then_some(false)
        });
        let is_over = match ended.await {
            Some(is_cut) => !is_cut,
            None => {
                return Err(format!(
                    "the move stands still: {:?}",
                    self.moves(bench).await
                ));
            }
        };
        // The writes that mark the source follow shortly.
        if is_over {
            within(Duration::from_secs(3), async || {
                armed.is_cut().then_some(())
            })
            .await;
            if armed.disarm() {
                return Ok(None);
            }
        }
        if plan.both {
            let cut = bench.nbd(other).cut(plan.keep, plan.seed + 1);
            cut.map_err(|error| error.to_string())?;
            bench.nbd(other).die();
        }
        armed.die();
        let dark = |at| plan.both || (at == source) == (plan.side == Side::Source);
        Ok(Some(Cut {
            source,
            target,
            dark: [dark(source), dark(target)],
        }))
    }

    /// While one drive is unplugged: overwrites the volume if it is served from the other drive, and returns the digest; None if it is not
    /// served.
    async fn meanwhile(&self, bench: &Bench, cut: Cut) -> Held<Option<String>> {
        if cut.dark == [true, true] {
            return Ok(None);
        }
        let [source_is_dark, _] = cut.dark;
        let there = if source_is_dark {
            cut.target
        } else {
            cut.source
        };
        bench.acknowledge(there).await?;
        let served = within(SERVED, async || {
            let volume = self.volume(bench).await?;
            let is_there = volume.drive.contains(&bench.bays[there].name);
            (is_there && volume.state == "ready").then_some(())
        });
        match served.await {
            Some(()) => match self.write(bench).await {
                // It was listed before its move was being completed.
                Err(why) if why.contains("is ambiguous") => Ok(None),
                done => done.map(Some),
            },
            None => Ok(None),
        }
    }

    /// With both drives plugged in: checks that one place is served, with the contents written last, and that the move ends. Returns true
    /// if an operator had to choose the place.
    async fn after(&self, bench: &Bench, was_written: bool, cancels: bool) -> Held<bool> {
        for at in self.drives {
            bench.back(at).await?;
            bench.acknowledge(at).await?;
        }
        let mut last = None;
        let polled = within(PATIENCE, async || {
            last = self.volume(bench).await;
            last.clone().filter(|volume| volume.state == "ready")
        });
        let is_in_doubt = polled.await.is_none();
        if is_in_doubt {
            let reasons = last.iter().flat_map(|volume| &volume.conditions);
            let is_reported = reasons.into_iter().any(|one| one.reason == "MoveInDoubt");
            if !is_reported || was_written {
                return Err(format!("it is not served: {last:?}"));
            }
            let drive = last.map(|volume| volume.drive).unwrap_or_default();
            let request = PreferPlaceRequest {
                volume_id: self.placed.id.clone(),
                drive,
                by: "lab".into(),
            };
            let answer = client(bench).await?.prefer_place(request).await;
            answer.map_err(|status| format!("prefer: {status}"))?;
        }
        self.is_right(bench).await?;
        if cancels {
            let request = CancelMovesRequest {
                volume_id: self.placed.id.clone(),
                by: "lab".into(),
                ..Default::default()
            };
            let answer = client(bench).await?.cancel_moves(request).await;
            answer.map_err(|status| format!("cancel: {status}"))?;
        }
        self.end(bench).await?;
        Ok(is_in_doubt)
    }

    /// Waits until no move is listed and the volume has no further place. Checks its contents in the phase `moved` and at the end.
    async fn end(&self, bench: &Bench) -> Held<()> {
        let mut last = None;
        let over = within(OVER, async || {
            last = self.moves(bench).await.ok()?;
            match &last {
                Some(one) if one.phase == "moved" => {
                    if let Err(why) = self.is_right(bench).await {
                        return Some(Err(why));
                    }
                    None
                }
                Some(_) => None,
                None => {
                    let volume = self.volume(bench).await?;
                    let is_alone = volume.places.is_empty() && volume.state == "ready";
                    is_alone.then_some(Ok(()))
                }
            }
        });
        match over.await {
            Some(done) => done?,
            None => {
                let volume = self.volume(bench).await;
                return Err(format!("the move does not end: {last:?}, {volume:?}"));
            }
        }
        self.is_right(bench).await
    }
}

/// Runs all plans. Each round runs one on each pair of its layout.
pub(crate) async fn work(bench: &mut Bench, plans: Vec<Plan>) -> Tally {
    let mut tally = Tally::default();
    let mut pairs = Vec::new();
    for first in (0..bench.bays.len()).step_by(2) {
        pairs.push(Pair::new(bench, [first, first + 1]).await.unwrap());
    }
    let mut plans = VecDeque::from(plans);
    for number in 1.. {
        let mut round = Vec::new();
        for (at, pair) in pairs.iter().enumerate().filter(|(_, pair)| !pair.broken) {
            let fits = |plan: &Plan| {
                let past = tally.over.get(&(plan.layout, plan.side));
                plan.layout == pair.layout && past.is_none_or(|past| plan.write < *past)
            };
            if let Some(index) = plans.iter().position(fits) {
                round.extend(plans.remove(index).map(|plan| (at, plan)));
            }
        }
        if round.is_empty() {
            break;
        }
        cut_all(bench, &mut pairs, &round, &mut tally).await;
        print_progress(format!("round {number}: {} cuts so far", tally.total()));
    }
    tally
}

/// Runs one round on the pairs, and records the results.
async fn cut_all(
    bench: &mut Bench,
    pairs: &mut [Pair],
    round: &[(usize, Plan)],
    tally: &mut Tally,
) {
    let begun = {
        let (bench, pairs) = (&*bench, &*pairs);
        let begun = round.iter().map(|&(at, plan)| pairs[at].begin(bench, plan));
        together(begun).await
    };
    for cut in begun.iter().flatten().flatten() {
        for (at, dark) in [cut.source, cut.target].into_iter().zip(cut.dark) {
            if dark {
                bench.take_out(at);
            }
        }
    }
    let written = {
        let (bench, pairs) = (&*bench, &*pairs);
        together(
            round
                .iter()
                .zip(&begun)
                .map(async |(&(at, _), cut)| match cut {
                    Ok(Some(cut)) => pairs[at].meanwhile(bench, *cut).await,
                    _ => Ok(None),
                }),
        )
        .await
    };
    for (&(at, _), written) in round.iter().zip(&written) {
        if let Ok(Some(digest)) = written {
            pairs[at].digest.clone_from(digest);
        }
    }
    for cut in begun.iter().flatten().flatten() {
        for (at, dark) in [cut.source, cut.target].into_iter().zip(cut.dark) {
            if dark {
                bench.put_back(at);
            }
        }
    }
    let ended = {
        let (bench, pairs) = (&*bench, &*pairs);
        let all = round.iter().zip(&begun).zip(&written);
        together(all.map(async |((&(at, plan), cut), written)| {
            let was_written = written.clone()?.is_some();
            match cut {
                Ok(Some(_)) => {
                    pairs[at]
                        .after(bench, was_written, plan.seed % 2 == 0)
                        .await
                }
                Ok(None) => pairs[at].end(bench).await.map(|()| false),
                Err(why) => Err(why.clone()),
            }
        }))
        .await
    };
    for (((&(at, plan), cut), written), ended) in round.iter().zip(begun).zip(written).zip(ended) {
        tally.served += u32::from(matches!(written, Ok(Some(_))));
        match ended {
            Ok(in_doubt) => tally.in_doubt += u32::from(in_doubt),
            Err(why) => {
                pairs[at].broken = true;
                let name = pairs[at].name(bench);
                print_progress(format!("FAILED {name}: {plan:?}: {why}"));
                tally.failures.push(format!("{name}: {plan:?}: {why}"));
                continue;
            }
        }
        match cut {
            Ok(Some(_)) => {
                let key = (plan.layout, plan.side, plan.both);
                *tally.cuts.entry(key).or_default() += 1;
            }
            _ => {
                let past = tally
                    .over
                    .entry((plan.layout, plan.side))
                    .or_insert(plan.write);
                *past = plan.write.min(*past);
            }
        }
    }
}
