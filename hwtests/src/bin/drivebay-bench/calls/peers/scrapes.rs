//! Scrapes of the agent and of smartctl_exporter, alternately.

use std::{net::SocketAddr, path::Path, time::Duration};

use drivebay_hwtests::{Rig, Trouble, scrape, wait};

use super::{
    super::table::{Pair, clocked},
    exporter::Exporter,
    started,
};

/// Scrapes of each kind in a round.
const SCRAPES: usize = 20;
/// Longest time until all drives have answered a SMART poll.
const POLLED: Duration = Duration::from_secs(180);

/// So short that each scrape polls, as the first one after the default interval does.
const AT_ONCE: &str = "1ms";

/// Scrapes of the agent, beside those in which the exporter polls, and those that it answers from its cache.
#[derive(Default)]
pub(super) struct Scrapes {
    pub(super) polling: Pair,
    pub(super) cached: Pair,
    /// Processes that a scrape starts: of the agent, of the peer.
    pub(super) started: Vec<(&'static str, [usize; 2])>,
}

/// Measures scrapes; also returns a running exporter with the default interval.
pub(super) async fn measure(
    rig: &Rig,
    metrics: SocketAddr,
    answer: &Path,
    drives: usize,
    rounds: usize,
) -> Result<Option<(Scrapes, Exporter)>, Trouble> {
    polled(metrics, drives).await;
    let mut scrapes = Scrapes::default();
    for _ in 0..rounds {
        // Both are new, so that the interval of the second does not expire.
        let polling = Exporter::start(&rig.shelf, answer, Some(AT_ONCE))?;
        let cached = Exporter::start(&rig.shelf, answer, None)?;
        let Some((polling, cached)) = polling.zip(cached) else {
            return Ok(None);
        };
        for _ in 0..SCRAPES {
            in_turns(&mut scrapes.polling, metrics, &polling, drives)?;
            in_turns(&mut scrapes.cached, metrics, &cached, drives)?;
        }
    }
    let mut last = None;
    for (what, interval) in [("polls", Some(AT_ONCE)), ("cached", None)] {
        let Some(exporter) = Exporter::start(&rig.shelf, answer, interval)? else {
            return Ok(None);
        };
        let ours = async { scrape::scrape_at(metrics).map(drop) };
        let ours = started(rig.agent.pid(), rig.dir(), ours).await?;
        let theirs = async { exporter.scrape(drives) };
        let theirs = started(exporter.pid(), rig.dir(), theirs).await?;
        scrapes.started.push((what, [ours, theirs]));
        last = Some(exporter);
    }
    Ok(last.map(|exporter| (scrapes, exporter)))
}

fn in_turns(
    pair: &mut Pair,
    metrics: SocketAddr,
    exporter: &Exporter,
    drives: usize,
) -> Result<(), Trouble> {
    let (text, ours) = clocked(|| scrape::scrape_at(metrics));
    text?;
    let (done, theirs) = clocked(|| exporter.scrape(drives));
    done?;
    pair.push(ours, theirs);
    Ok(())
}

async fn polled(metrics: SocketAddr, drives: usize) {
    let what = "all drives have answered a SMART poll";
    wait::until_async(POLLED, what, async || {
        let text = scrape::scrape_at(metrics).ok()?;
        let at = text.lines().filter(|line| {
            line.starts_with("drivebay_drive_smart_last_success_timestamp_seconds{")
        });
        let polled = at.filter(|line| !line.ends_with(" 0")).count();
        (polled >= drives).then_some(())
    })
    .await;
}
