//! The task that feeds the book: the kernel log as it is written, the kernel's counters every few seconds.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use tokio::{
    sync::mpsc,
    time::{MissedTickBehavior, interval},
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{Book, attribute::subject, kmsg, stalls::Stalls};
use crate::{
    model::{DriveId, DriveState, FsType},
    sys::{
        blockstat::{self, Activity},
        kmsg::{Kmsg, Next},
        offload::offload,
    },
    volumes::Volumes,
};

/// How often what no longer counts is let go.
const TIDY_EVERY: Duration = Duration::from_secs(600);
/// How often requests in flight are looked at: a stall is seen within its limit and this.
const LOOK_EVERY: Duration = Duration::from_secs(3);
/// How often ext4's counters are looked at, in looks; what they count is in the kernel log, too.
const COUNTERS_EVERY: u32 = 10;
/// A look at sysfs takes microseconds for each drive.
const LOOK_DEADLINE: Duration = Duration::from_secs(5);

/// Follows it until `stop`. Without the log, drives and volumes are judged by everything else.
/// `complaints` takes drives that the kernel has complained of.
pub async fn run(volumes: Volumes, complaints: mpsc::Sender<DriveId>, stop: CancellationToken) {
    let began = Instant::now();
    let mut log = match Kmsg::open() {
        Ok(log) => Some(log),
        Err(error) => {
            tracing::error!(
                %error,
                "the kernel log cannot be read, so errors that only it tells of are not seen; give the agent /dev/kmsg and CAP_SYSLOG"
            );
            None
        }
    };
    let mut tidying = interval(TIDY_EVERY);
    let mut looking = interval(LOOK_EVERY);
    looking.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut stalls = Stalls::default();
    let mut looks = 0u32;
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
            _ = looking.tick() => {
                look_at_requests(&volumes, &mut stalls, began).await;
                if looks.is_multiple_of(COUNTERS_EVERY) {
                    look_at_counters(&volumes).await;
                }
                looks = looks.wrapping_add(1);
            }
            next = next => match next {
                Ok(Next::Record(record)) => hear(&volumes, &complaints, &record, began.elapsed()),
                Ok(Next::Lost) => tracing::warn!("the kernel log was faster than it is read; something in it was missed"),
                Err(error) => {
                    tracing::error!(%error, "the kernel log can no longer be read");
                    log = None;
                }
            },
        }
    }
}

async fn look_at_requests(volumes: &Volumes, stalls: &mut Stalls, began: Instant) {
    let snapshot = volumes.inventory().current();
    let ours: Vec<(DriveId, String)> = snapshot
        .drives
        .values()
        .filter(|drive| matches!(drive.state, DriveState::Claimed | DriveState::Unprobed))
        .filter(|drive| drive.class.is_some())
        .map(|drive| (drive.id.clone(), drive.facts.kernel_name.clone()))
        .collect();
    if ours.is_empty() {
        return;
    }
    let looked = offload("requests", LOOK_DEADLINE, move || {
        let mut looks: BTreeMap<DriveId, Activity> = BTreeMap::new();
        for (id, name) in ours {
            if let Some(activity) = blockstat::activity(&name)? {
                looks.insert(id, activity);
            }
        }
        Ok(looks)
    });
    let looks = match looked.await.and_then(|looks: std::io::Result<_>| looks) {
        Ok(looks) => looks,
        Err(error) => {
            tracing::warn!(%error, "requests in flight cannot be looked at; tried again");
            return;
        }
    };
    let stalled: BTreeSet<DriveId> = stalls.look(&looks, began.elapsed()).into_iter().collect();
    if stalled.is_empty() && !volumes.inventory().health(Book::any_stalled) {
        return;
    }
    let mut changed = Vec::new();
    volumes
        .inventory()
        .update(|known| changed = known.health.stalled(stalled));
    for (drive, stands) in changed {
        if stands {
            tracing::error!(%drive, "the drive has requests and has completed none for ten seconds");
        } else {
            tracing::info!(%drive, "the drive completes requests again");
        }
    }
}

async fn look_at_counters(volumes: &Volumes) {
    let snapshot = volumes.inventory().current();
    let mounted: Vec<(Uuid, String)> = snapshot
        .volumes
        .values()
        .filter(|volume| volume.in_use && volume.placed.record.fs_type == Some(FsType::Ext4))
        .filter_map(|volume| Some((volume.uuid, volume.placed.device.clone()?)))
        .collect();
    if mounted.is_empty() {
        return;
    }
    let looked = offload("counters", LOOK_DEADLINE, move || {
        let mut counted = Vec::new();
        for (volume, device) in mounted {
            if let Some(errors) = blockstat::ext4_errors(&device)? {
                counted.push((volume, errors > 0));
            }
        }
        Ok(counted)
    });
    match looked.await.and_then(|counted: std::io::Result<_>| counted) {
        Ok(counted) => {
            let known = volumes.inventory();
            let mut news = Vec::new();
            known.update(|known| {
                for (volume, errors) in counted {
                    if known.health.counted(volume, errors) {
                        news.push((volume, errors));
                    }
                }
            });
            for (volume, errors) in news {
                tracing::warn!(%volume, errors, "ext4's count of errors has changed");
            }
        }
        Err(error) => tracing::warn!(%error, "ext4's counters cannot be looked at; tried again"),
    }
}

fn hear(volumes: &Volumes, complaints: &mpsc::Sender<DriveId>, record: &str, now: Duration) {
    let Some(report) = kmsg::parse(record) else {
        return;
    };
    let snapshot = volumes.inventory().current();
    let Some(subject) = subject(&snapshot, &report) else {
        return;
    };
    let inventory = volumes.inventory();
    if inventory.health(|book| book.is_fresh(&subject, report.kind, now)) {
        return;
    }
    let mut news = false;
    inventory.update(|known| news = known.health.note(&subject, report.kind, now));
    if news {
        tracing::warn!(
            drive = %subject.drive,
            volume = subject.volume.map(|volume| volume.to_string()),
            device = report.device,
            kind = ?report.kind,
            "the kernel reports trouble"
        );
        // Full: there are enough to be asked already, and all are asked in time.
        let _ = complaints.try_send(subject.drive);
    }
}
