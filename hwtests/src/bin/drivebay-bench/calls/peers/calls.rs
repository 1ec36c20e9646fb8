//! Node calls of the agent and of topolvm's node plugin, alternately.

use drivebay_hwtests::{Csi, Rig, Trouble, node::Placed};

use super::{
    super::{
        stats,
        table::{Pair, timed},
    },
    started,
    topolvm::Topolvm,
};

/// Calls that mount, of each kind in a round.
const MOUNTS: usize = 10;
const CLIENTS: [usize; 3] = [1, 8, 64];
/// NodeGetVolumeStats of all clients in a round.
const STATS: usize = 320;

/// Results for the node with fewer drives.
#[derive(Default)]
pub(super) struct Calls {
    pub(super) publish: Pair,
    pub(super) unpublish: Pair,
    pub(super) stats: Vec<(usize, Pair)>,
    /// Processes that a call starts: of the agent, of the peer.
    pub(super) started: Vec<(&'static str, [usize; 2])>,
}

/// Publishes and unpublishes one volume repeatedly. topolvm does not stage: it mounts when it publishes.
pub(super) async fn mounted(
    rig: &Rig,
    ours: &Placed,
    topolvm: &Topolvm,
    rounds: usize,
) -> Result<Calls, Trouble> {
    let mut calls = Calls::default();
    let theirs = &topolvm.volumes[0];
    for round in 0..=rounds * MOUNTS {
        let ((), on) = timed(rig.use_volume(ours)).await;
        let (done, beside_on) = timed(topolvm.publish(theirs)).await;
        done?;
        let ((), off) = timed(rig.leave_volume(ours)).await;
        let (done, beside_off) = timed(topolvm.unpublish(theirs)).await;
        done?;
        // The first round creates the agent's filesystem, so it is not counted.
        if round > 0 {
            calls.publish.push(on, beside_on);
            calls.unpublish.push(off, beside_off);
        }
    }
    let (dir, pids) = (rig.dir(), [rig.agent.pid(), topolvm.pid()]);
    let use_ours = async {
        rig.use_volume(ours).await;
        Ok(())
    };
    let on = started(pids[0], dir, use_ours).await?;
    let leave_ours = async {
        rig.leave_volume(ours).await;
        Ok(())
    };
    let off = started(pids[0], dir, leave_ours).await?;
    let beside_on = started(pids[1], dir, topolvm.publish(theirs)).await?;
    let beside_off = started(pids[1], dir, topolvm.unpublish(theirs)).await?;
    calls.started.push(("publish", [on, beside_on]));
    calls.started.push(("unpublish", [off, beside_off]));
    Ok(calls)
}

/// Measures NodeGetVolumeStats of the volumes in use on both sides.
pub(super) async fn sampled(
    calls: &mut Calls,
    rig: &Rig,
    volumes: &[Placed],
    topolvm: &Topolvm,
    rounds: usize,
) -> Result<(), Trouble> {
    let (mut ours, mut theirs): (Vec<Csi>, Vec<Csi>) = Default::default();
    for _ in 0..CLIENTS[CLIENTS.len() - 1] {
        ours.push(rig.agent.csi().await?);
        theirs.push(topolvm.client().await?);
    }
    for count in CLIENTS {
        let mut pair = Pair::default();
        for _ in 0..rounds {
            let sampled = stats::sample(&ours[..count], volumes, STATS).await?;
            pair.ours.extend(sampled);
            let sampled = stats::sample(&theirs[..count], &topolvm.volumes, STATS).await?;
            pair.bare.extend(sampled);
        }
        calls.stats.push((count, pair));
    }
    let dir = rig.dir();
    let once = async |csi: &Csi, of: &Placed| Ok(csi.stats(&of.id, &of.target).await.map(drop)?);
    let ours = started(rig.agent.pid(), dir, once(&rig.csi, &volumes[0])).await?;
    let theirs = &topolvm.volumes[0];
    let theirs = started(topolvm.pid(), dir, once(&topolvm.csi, theirs)).await?;
    calls.started.push(("stats", [ours, theirs]));
    Ok(())
}
