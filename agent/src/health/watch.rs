//! Follows the kernel log, and what it says of our drives and volumes into the inventory.

use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::{attribute::subject, kmsg};
use crate::{
    sys::kmsg::{Kmsg, Next},
    volumes::Volumes,
};

/// How often what no longer counts is let go.
const TIDY_EVERY: Duration = Duration::from_secs(600);

/// Follows it until `stop`. Without the log, drives and volumes are judged by everything else.
pub async fn run(volumes: Volumes, stop: CancellationToken) {
    let began = Instant::now();
    let log = match Kmsg::open() {
        Ok(log) => Some(log),
        Err(error) => {
            tracing::error!(
                %error,
                "the kernel log cannot be read, so errors that only it tells of are not seen; give the agent /dev/kmsg and CAP_SYSLOG"
            );
            None
        }
    };
    let mut tidying = tokio::time::interval(TIDY_EVERY);
    loop {
        let next = async {
            match &log {
                Some(log) => log.next().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = stop.cancelled() => return,
            _ = tidying.tick() => {
                let snapshot = volumes.inventory().current();
                volumes.inventory().update(|known| known.health.tidy(&snapshot, began.elapsed()));
            }
            next = next => match next {
                Ok(Next::Record(record)) => hear(&volumes, &record, began.elapsed()),
                Ok(Next::Lost) => tracing::warn!("the kernel log was faster than it is read; something in it was missed"),
                Err(error) => {
                    tracing::error!(%error, "the kernel log can no longer be read");
                    return;
                }
            },
        }
    }
}

fn hear(volumes: &Volumes, record: &str, now: Duration) {
    let Some(report) = kmsg::parse(record) else {
        return;
    };
    let snapshot = volumes.inventory().current();
    let Some(subject) = subject(&snapshot, &report) else {
        return;
    };
    let mut news = false;
    volumes
        .inventory()
        .update(|known| news = known.health.note(&subject, report.kind, now));
    if news {
        tracing::warn!(
            drive = %subject.drive,
            volume = subject.volume.map(|volume| volume.to_string()),
            device = report.device,
            kind = ?report.kind,
            "the kernel reports trouble"
        );
    }
}
