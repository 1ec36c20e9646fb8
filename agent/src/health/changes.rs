//! What has become of drives and volumes, for the log: each change once, with what to do. `changes` is pure.

use std::{collections::BTreeSet, sync::Arc};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::model::{Drive, DriveId, DriveState, Finding, Snapshot, Verdict, Volume};

/// One thing that is another than before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The drive it is about, or that the volume is on.
    pub drive: DriveId,
    /// The volume; None: it is about the drive.
    pub volume: Option<Uuid>,
    /// Somebody should act.
    pub worse: bool,
    /// What it is and what to do.
    pub what: String,
}

/// Logs what changes until `stop`, beginning with what is wrong at the first complete look.
pub async fn run(mut snapshots: watch::Receiver<Arc<Snapshot>>, stop: CancellationToken) {
    let mut last = Arc::new(Snapshot::default());
    loop {
        let now = snapshots.borrow_and_update().clone();
        if now.ready {
            for change in changes(&last, &now) {
                log(&change);
            }
            for finding in fresh_of_host(&last, &now) {
                tracing::warn!(
                    code = finding.code,
                    "finding on the host: {}",
                    finding.message
                );
            }
            for finding in fresh_of_host(&now, &last) {
                tracing::info!(code = finding.code, "finding on the host cleared");
            }
            last = now;
        }
        tokio::select! {
            () = stop.cancelled() => return,
            changed = snapshots.changed() => if changed.is_err() { return },
        }
    }
}

fn log(change: &Change) {
    let Change {
        drive,
        volume,
        worse,
        what,
    } = change;
    match (volume, worse) {
        (Some(volume), true) => tracing::warn!(%volume, %drive, "{what}"),
        (Some(volume), false) => tracing::info!(%volume, %drive, "{what}"),
        (None, true) => tracing::warn!(%drive, "{what}"),
        (None, false) => tracing::info!(%drive, "{what}"),
    }
}

/// What is found of the host in `new` and was not in `old`.
fn fresh_of_host<'a>(old: &Snapshot, new: &'a Snapshot) -> Vec<&'a Finding> {
    let fresh = |finding: &&Finding| !old.findings.contains(finding);
    new.findings.iter().filter(fresh).collect()
}

/// What is another in `new` than in `old`. What a drive's state does to each volume on it is told of the drive alone.
pub fn changes(old: &Snapshot, new: &Snapshot) -> Vec<Change> {
    let mut all = Vec::new();
    for (id, drive) in &new.drives {
        let volumes = new.volumes.values().filter(|volume| volume.drive == *id);
        let told = of_drive(old.drives.get(id), drive, volumes.count());
        all.extend(told.into_iter().map(|(worse, what)| Change {
            drive: id.clone(),
            volume: None,
            worse,
            what,
        }));
    }
    for (uuid, volume) in &new.volumes {
        let told = of_volume(old.volumes.get(uuid), volume);
        all.extend(told.into_iter().map(|(worse, what)| Change {
            drive: volume.drive.clone(),
            volume: Some(*uuid),
            worse,
            what,
        }));
    }
    all
}

fn of_drive(old: Option<&Drive>, new: &Drive, volumes: usize) -> Vec<(bool, String)> {
    let mut all = Vec::new();
    let on_it = match volumes {
        0 => String::new(),
        1 => "; 1 volume is on it".to_owned(),
        many => format!("; {many} volumes are on it"),
    };
    let missing = |drive: &Drive| drive.state == DriveState::Missing;
    let was_missing = old.is_some_and(missing);
    if missing(new) && !was_missing {
        all.push((
            true,
            format!("the drive is missing; plug it in again{on_it}"),
        ));
    } else if was_missing && !missing(new) {
        all.push((false, "the drive is back".to_owned()));
    }
    let trouble = |drive: &Drive| drive.trouble.clone().filter(|_| !missing(drive));
    match (old.and_then(trouble), trouble(new)) {
        (before, Some(now)) if before.as_ref() != Some(&now) => {
            all.push((true, format!("the drive does not answer: {now}{on_it}")));
        }
        (Some(_), None) if !missing(new) => all.push((false, "the drive answers again".to_owned())),
        _ => {}
    }
    let nothing = Default::default();
    let before = old.map_or(&nothing, |drive| &drive.health);
    let now = &new.health;
    let against = fresh(&before.findings, &now.findings);
    if now.verdict != before.verdict {
        // That nothing is wrong with a drive that was not known is no news.
        let well = before.verdict == Verdict::Unknown && now.verdict == Verdict::Good;
        if !well {
            let why = if now.verdict.weight() > 0 {
                &now.findings[..]
            } else {
                &[]
            };
            let worse = now.verdict.weight() > before.verdict.weight();
            all.push((
                worse,
                format!(
                    "the drive is {} (it was {}){}{}",
                    now.verdict,
                    before.verdict,
                    joined(why),
                    if worse { &on_it } else { "" }
                ),
            ));
        }
    } else if !against.is_empty() {
        all.push((
            true,
            format!("more speaks against the drive{}", joined(&against)),
        ));
    }
    if now.overridden != before.overridden {
        all.push((
            false,
            now.overridden.as_ref().map_or_else(
                || "the verdict is no longer overridden by the operator".to_owned(),
                |given| format!("the verdict is {}", given.told()),
            ),
        ));
    }
    let besides = fresh(&before.conditions, &now.conditions);
    if !besides.is_empty() {
        all.push((
            true,
            format!("of the drive there is to be known{}", joined(&besides)),
        ));
    }
    let over = fresh(&now.conditions, &before.conditions);
    if !over.is_empty() {
        let codes: Vec<&str> = over.iter().map(|finding| finding.code.as_str()).collect();
        all.push((false, format!("over, of the drive: {}", codes.join(", "))));
    }
    all
}

/// Those of `now` whose code was not there.
fn fresh(before: &[Finding], now: &[Finding]) -> Vec<Finding> {
    let known: BTreeSet<&str> = before.iter().map(|finding| finding.code.as_str()).collect();
    now.iter()
        .filter(|finding| !known.contains(finding.code.as_str()))
        .cloned()
        .collect()
}

fn joined(findings: &[Finding]) -> String {
    let told: Vec<String> = findings
        .iter()
        .map(|finding| format!("{}: {}", finding.code, finding.message))
        .collect();
    if told.is_empty() {
        String::new()
    } else {
        format!(": {}", told.join("; "))
    }
}

fn of_volume(old: Option<&Volume>, new: &Volume) -> Vec<(bool, String)> {
    let of_drive = |reason: &str| reason.starts_with("Drive");
    let before = old.map_or(&[][..], |volume| &volume.troubles);
    let has = |volume: &[crate::model::snapshot::Trouble], reason: &str| {
        volume.iter().any(|trouble| trouble.reason == reason)
    };
    let worse = new
        .troubles
        .iter()
        .filter(|trouble| !of_drive(&trouble.reason) && !has(before, &trouble.reason))
        .map(|trouble| {
            let what = format!(
                "the volume is {}: {}: {}",
                trouble.status, trouble.reason, trouble.message
            );
            (true, what)
        });
    let over = before
        .iter()
        .filter(|trouble| !of_drive(&trouble.reason) && !has(&new.troubles, &trouble.reason))
        .map(|trouble| (false, format!("over, of the volume: {}", trouble.reason)));
    worse.chain(over).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{health::Overridden, samples};

    fn snapshot(change: impl FnOnce(&mut Drive)) -> Snapshot {
        let mut snapshot = Snapshot::default();
        let mut drive = samples::drive("sda", DriveState::Claimed, None);
        change(&mut drive);
        snapshot.drives.insert(drive.id.clone(), drive);
        snapshot
    }

    fn finding(code: &str) -> Finding {
        Finding {
            code: code.into(),
            message: "replace it".into(),
        }
    }

    fn told(old: &Snapshot, new: &Snapshot) -> Vec<(bool, String)> {
        let all = changes(old, new).into_iter();
        all.map(|change| (change.worse, change.what)).collect()
    }

    #[test]
    fn a_verdict_is_told_once_with_its_reasons_and_again_when_it_is_another() {
        let well = snapshot(|drive| drive.health.verdict = Verdict::Good);
        let bad = snapshot(|drive| {
            drive.health.verdict = Verdict::Bad;
            drive.health.findings = vec![finding("PendingSectorsMany")];
        });
        assert_eq!(told(&Snapshot::default(), &well), []);
        let worse = "the drive is BAD (it was GOOD): PendingSectorsMany: replace it";
        assert_eq!(told(&well, &bad), [(true, worse.to_owned())]);
        assert_eq!(told(&bad, &bad), []);
        let better = "the drive is GOOD (it was BAD)";
        assert_eq!(told(&bad, &well), [(false, better.to_owned())]);
        // What is wrong at the start is told, too.
        assert_eq!(told(&Snapshot::default(), &bad).len(), 1);
    }

    #[test]
    fn numbers_and_times_that_move_are_no_change() {
        let at = |second: u64| {
            snapshot(|drive| {
                drive.health.verdict = Verdict::Suspect;
                drive.health.findings = vec![finding("PendingSectors")];
                drive.health.smart = Some(crate::model::health::SmartReport {
                    answered_at: second,
                    ..Default::default()
                });
            })
        };
        assert_eq!(told(&at(1), &at(2)), []);
    }

    #[test]
    fn what_comes_and_goes_is_told_both_times() {
        type Change = fn(&mut Drive);
        let cases: [(Change, &str, &str); 5] = [
            (
                |drive| drive.health.conditions = vec![finding("Overheating")],
                "of the drive there is to be known: Overheating: replace it",
                "over, of the drive: Overheating",
            ),
            (
                |drive| drive.state = DriveState::Missing,
                "the drive is missing; plug it in again",
                "the drive is back",
            ),
            (
                |drive| drive.trouble = Some("stuck".into()),
                "the drive does not answer: stuck",
                "the drive answers again",
            ),
            (
                |drive| {
                    drive.health.overridden = Some(Overridden {
                        reason: "known".into(),
                        until: None,
                        otherwise: Verdict::Suspect,
                    });
                },
                "the verdict is overridden by the operator: known (the evidence alone says SUSPECT)",
                "the verdict is no longer overridden by the operator",
            ),
            (
                |drive| drive.health.findings = vec![finding("KernelIoError")],
                "more speaks against the drive: KernelIoError: replace it",
                "",
            ),
        ];
        for (change, comes, goes) in cases {
            let (before, after) = (snapshot(|_| {}), snapshot(change));
            let texts = |old, new| {
                told(old, new)
                    .into_iter()
                    .map(|(_, what)| what)
                    .collect::<Vec<_>>()
            };
            assert_eq!(texts(&before, &after), [comes]);
            assert_eq!(texts(&after, &after), Vec::<String>::new());
            assert_eq!(texts(&after, &before).join(""), goes);
        }
    }

    #[test]
    fn a_volumes_own_trouble_is_told_and_its_drives_only_with_the_drive() {
        use crate::model::{RecordState, snapshot::Trouble};
        let with = |reasons: &[&str]| {
            let mut snapshot = snapshot(|_| {});
            let drive = samples::drive("sda", DriveState::Claimed, None);
            let volume = Volume {
                troubles: reasons
                    .iter()
                    .map(|reason| Trouble {
                        status: "DEGRADED".into(),
                        reason: (*reason).into(),
                        message: "see to it".into(),
                    })
                    .collect(),
                ..samples::volume(&drive, samples::placed(7, RecordState::New))
            };
            snapshot.volumes.insert(volume.uuid, volume);
            snapshot
        };
        let (well, ill) = (with(&[]), with(&["ReadOnly", "DriveSuspect"]));
        let worse = "the volume is DEGRADED: ReadOnly: see to it";
        assert_eq!(told(&well, &ill), [(true, worse.to_owned())]);
        assert_eq!(told(&ill, &ill), []);
        assert_eq!(
            told(&ill, &well),
            [(false, "over, of the volume: ReadOnly".to_owned())]
        );
    }
}
