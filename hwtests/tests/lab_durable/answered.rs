//! Power cuts of whole machines after an acknowledgement: each drive loses its power when its call is acknowledged, then the machine with
//! all of them, boots, and starts the agent.

use std::collections::BTreeMap;

use drivebay_hwtests::{MIB, csi, lab::progress::print_progress, node::Placed};

use super::{
    bench::{Bench, Held, insist, together},
    case::{Case, Op},
};

/// Contents that a tenant wrote and synced before the cut.
const LETTER: &[u8] = b"written before the cut, and synced";

/// Results of the rounds.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Number of cuts by layout and call.
    pub(crate) cuts: BTreeMap<(&'static str, Op), u32>,
    /// Number of filesystems whose superblock was torn, and was restored with the command in the refusal.
    pub(crate) restored: u32,
    pub(crate) failures: Vec<String>,
}

/// Creates a filesystem volume on each drive with a kept volume, which is in use in every round.
pub(crate) async fn tenants(bench: &Bench) -> Vec<(usize, Placed)> {
    let used = (0..bench.bays.len()).filter(|at| bench.bays[*at].kept.is_some());
    together(used.map(async |at| {
        let name = format!("{}-tenant", bench.bays[at].name);
        let capability = csi::mount("ext4");
        let placed = bench.create(at, &name, 64 * MIB, &capability).await;
        (at, placed.unwrap())
    }))
    .await
}

/// Runs one round: a call on each drive until it is acknowledged, a power cut of everything, a boot, and the checks of all drives.
pub(crate) async fn round(
    bench: &mut Bench,
    tenants: &[(usize, Placed)],
    calls: &[(usize, Op)],
    (keep, seed): (f64, u64),
    tally: &mut Tally,
) {
    let number = 1000 + seed;
    for (at, placed) in tenants {
        bench
            .lab
            .csi
            .stage(&placed.id, &placed.staging, &placed.capability)
            .await
            .unwrap();
        bench.lab.guest().write(&Bench::letter(placed), LETTER);
        let drive = bench.drive(*at).await.unwrap();
        bench.bays[*at].free_bytes = drive.free_bytes;
    }
    let mut cases = {
        let bench = &*bench;
        together(
            calls
                .iter()
                .map(async |&(at, op)| Case::prepare(bench, at, op, number).await),
        )
        .await
    };
    let answers = {
        let bench = &*bench;
        together(cases.iter_mut().zip(calls).map(async |(case, &(at, _))| {
            let case = case.as_mut().map_err(|why| why.clone())?;
            let answer = insist(async || case.act(bench).await).await;
            let seed = seed * 100 + at as u64;
            bench
                .nbd(at)
                .cut(keep, seed)
                .map_err(|error| error.to_string())?;
            answer
        }))
        .await
    };
    bench.lab.machine.power_cut(keep, seed);
    bench.lab.machine.power_again().unwrap();
    bench.lab.start_again().await;
    let bench = &*bench;
    let ended = together(cases.iter_mut().zip(answers).map(async |(case, answer)| {
        answer.map_err(|why| format!("before the cut: {why}"))?;
        let case = case.as_mut().map_err(|why| why.clone())?;
        case.after(bench, true).await
    }))
    .await;
    let letters = together(
        tenants
            .iter()
            .map(async |(at, placed)| read(bench, *at, placed).await),
    )
    .await;
    let restored = cases.iter().flatten().filter(|case| case.restored).count();
    tally.restored += u32::try_from(restored).unwrap();
    for (&(at, op), ended) in calls.iter().zip(ended) {
        let bay = &bench.bays[at];
        *tally.cuts.entry((bay.layout, op)).or_default() += 1;
        if let Err(why) = ended {
            let what = format!("{}: {op}, keep {keep}, seed {seed}: {why}", bay.name);
            print_progress(format!("FAILED {what}"));
            tally.failures.push(what);
        }
    }
    let wrong = letters.into_iter().filter_map(Result::err);
    tally
        .failures
        .extend(wrong.map(|why| format!("keep {keep}, seed {seed}: {why}")));
    print_progress(format!(
        "keep {keep}, seed {seed}: {} cuts so far",
        tally.cuts.values().sum::<u32>()
    ));
}

/// Checks that the tenant's file has the contents that were synced.
async fn read(bench: &Bench, at: usize, placed: &Placed) -> Held<()> {
    let name = &bench.bays[at].name;
    let staged = bench
        .csi()
        .stage(&placed.id, &placed.staging, &placed.capability)
        .await;
    staged.map_err(|status| format!("{name}: the tenant's volume: {status}"))?;
    let ran = bench
        .lab
        .guest()
        .ran(&format!("cat {}", Bench::letter(placed).display()));
    if ran.ok() && ran.stdout.as_bytes() == LETTER {
        return Ok(());
    }
    Err(format!("{name}: the tenant's file: {ran:?}"))
}
