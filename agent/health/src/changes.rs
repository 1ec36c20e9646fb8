//! Logs each change of a drive's or volume's condition once, with what to do. `changes` is pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use drivebay_model::{Drive, DriveHealth, DriveId, DriveState, Finding, Snapshot, Verdict, Volume};

/// Difference between two snapshots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Drive that changed, or that the volume is on.
    pub drive: DriveId,
    /// None: the drive changed.
    pub volume: Option<Uuid>,
    pub event: Event,
}

/// Change of a drive or volume. Alerts on logs match `message`, so everything variable is a field.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Event {
    /// Constant text of the log message.
    pub message: &'static str,
    /// True if an operator should act.
    pub worse: bool,
    /// Verdict of the drive or status of the volume, and the one before.
    pub status: Option<(String, Option<String>)>,
    /// Codes of findings or of a condition.
    pub reason: Option<String>,
    /// Reason, and what to do.
    pub details: Option<String>,
    /// Number of volumes on the drive.
    pub volumes: Option<usize>,
}

impl Event {
    fn worse(message: &'static str) -> Self {
        Self {
            message,
            worse: true,
            ..Self::default()
        }
    }

    fn better(message: &'static str) -> Self {
        Self {
            message,
            ..Self::default()
        }
    }

    fn of(mut self, findings: &[Finding]) -> Self {
        let list = |of: fn(&Finding) -> &str, between| {
            let texts: Vec<&str> = findings.iter().map(of).collect();
            (!texts.is_empty()).then(|| texts.join(between))
        };
        self.reason = list(|finding| finding.code.as_str(), ",");
        self.details = list(|finding| finding.message.as_str(), "; ");
        self
    }
}

/// Logs changes until `stop`, beginning with all findings and conditions of the first complete scan. `started`: Unix time at
/// which the agent started; what an earlier agent has logged is not logged as new.
pub async fn run(
    mut snapshots: watch::Receiver<Arc<Snapshot>>,
    started: u64,
    stop: CancellationToken,
) {
    let mut last = Arc::new(Snapshot::default());
    loop {
        let now = snapshots.borrow_and_update().clone();
        if now.ready {
            for change in changes(&last, &now, started) {
                log(&change);
            }
            for finding in fresh_of_host(&last, &now) {
                let Finding { code, message, .. } = finding;
                tracing::warn!(reason = code, details = message, "host finding raised");
            }
            for finding in fresh_of_host(&now, &last) {
                tracing::info!(reason = finding.code, "host finding cleared");
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
        event,
    } = change;
    let volume = volume.map(tracing::field::display);
    let status = event.status.as_ref().map(|(now, _)| now.as_str());
    let previous = event
        .status
        .as_ref()
        .and_then(|(_, before)| before.as_deref());
    let (reason, details) = (event.reason.as_deref(), event.details.as_deref());
    // A field without a value is left out.
    if event.worse {
        tracing::warn!(volume, %drive, status, previous, reason, details, volumes = event.volumes, "{}", event.message);
    } else {
        tracing::info!(volume, %drive, status, previous, reason, details, volumes = event.volumes, "{}", event.message);
    }
}

/// Returns the findings of the host that are in `new` and not in `old`.
fn fresh_of_host<'a>(old: &Snapshot, new: &'a Snapshot) -> Vec<&'a Finding> {
    let fresh = |finding: &&Finding| !old.findings.contains(finding);
    new.findings.iter().filter(fresh).collect()
}

/// Returns the differences of `new` from `old`. Conditions of volumes that follow from a drive's state are reported for the
/// drive alone. Findings and conditions from before `started` are left out, since an earlier agent reported them.
pub fn changes(old: &Snapshot, new: &Snapshot, started: u64) -> Vec<Change> {
    let mut all = Vec::new();
    for (id, drive) in &new.drives {
        let volumes = new.volumes.values().filter(|volume| volume.drive == *id);
        let events = of_drive(old.drives.get(id), drive, volumes.count(), started);
        all.extend(events.into_iter().map(|event| Change {
            drive: id.clone(),
            volume: None,
            event,
        }));
    }
    for (uuid, volume) in &new.volumes {
        let events = of_volume(old.volumes.get(uuid), volume, started);
        all.extend(events.into_iter().map(|event| Change {
            drive: volume.drive.clone(),
            volume: Some(*uuid),
            event,
        }));
    }
    all
}

fn of_drive(old: Option<&Drive>, new: &Drive, volumes: usize, started: u64) -> Vec<Event> {
    let mut all = Vec::new();
    let volumes = Some(volumes);
    let missing = |drive: &Drive| drive.state == DriveState::Missing;
    let was_missing = old.is_some_and(missing);
    if missing(new) && !was_missing {
        all.push(Event {
            volumes,
            ..Event::worse("drive missing; reconnect it")
        });
    } else if was_missing && !missing(new) {
        all.push(Event::better("drive present again"));
    }
    let trouble = |drive: &Drive| drive.trouble.clone().filter(|_| !missing(drive));
    match (old.and_then(trouble), trouble(new)) {
        (before, Some(now)) if before.as_ref() != Some(&now) => all.push(Event {
            details: Some(now),
            volumes,
            ..Event::worse("drive unresponsive")
        }),
        (Some(_), None) if !missing(new) => all.push(Event::better("drive responds again")),
        _ => {}
    }
    let nothing = Default::default();
    let before = old.map_or(&nothing, |drive| &drive.health);
    let now = &new.health;
    let is_news = |finding: &Finding| is_since(&now.since, &finding.code, started);
    let counting = |health: &DriveHealth| health.counting().cloned().collect::<Vec<_>>();
    let (counted, counts) = (counting(before), counting(now));
    let mut raised = fresh(&counted, &counts);
    // A finding that was acknowledged and counts again is new, however old it is.
    raised.retain(|finding| {
        let has_code = |old: &Finding| old.code == finding.code;
        is_news(finding) || before.findings.iter().any(has_code)
    });
    if now.verdict != before.verdict {
        // The first GOOD of a drive is no change.
        let well = before.verdict == Verdict::Unknown && now.verdict == Verdict::Good;
        if !well {
            let findings = match now.verdict.weight() {
                0 => &[][..],
                _ if counts.is_empty() => &now.findings[..],
                _ => &counts[..],
            };
            let worse = now.verdict.weight() > before.verdict.weight();
            let is_known = old.is_none() && worse && raised.is_empty() && !findings.is_empty();
            let event = Event {
                worse,
                status: Some((now.verdict.to_string(), Some(before.verdict.to_string()))),
                volumes: volumes.filter(|_| worse),
                ..Event::better("drive verdict changed")
            };
            let event = match is_known {
                true => Event {
                    status: Some((now.verdict.to_string(), None)),
                    ..Event::better("last known drive verdict restored")
                },
                false => event,
            };
            all.push(event.of(findings));
        }
    } else if !raised.is_empty() {
        all.push(Event::worse("drive finding raised").of(&raised));
    }
    if now.overridden != before.overridden {
        all.push(match &now.overridden {
            Some(given) => Event {
                details: Some(given.describe()),
                ..Event::better("drive verdict overridden by operator")
            },
            None => Event::better("drive verdict override ended"),
        });
    }
    if now.acknowledged != before.acknowledged {
        all.extend(match (&now.acknowledged, old) {
            (Some(given), Some(_)) => Some(Event {
                status: Some((now.shown_verdict(), None)),
                details: Some(given.describe()),
                ..Event::better("drive findings acknowledged")
            }),
            // Logged when it was given.
            (Some(_), None) => None,
            (None, _) => Some(Event::better("drive acknowledgement ended")),
        });
    }
    let conditions = fresh(&before.conditions, &now.conditions).into_iter();
    for finding in conditions.filter(is_news) {
        all.push(Event::worse("drive condition raised").of(&[finding]));
    }
    for finding in fresh(&now.conditions, &before.conditions) {
        all.push(Event {
            reason: Some(finding.code),
            ..Event::better("drive condition cleared")
        });
    }
    all
}

/// True if it began at `started` or later, or if the beginning is unknown.
fn is_since(since: &BTreeMap<String, u64>, code: &str, started: u64) -> bool {
    since.get(code).is_none_or(|since| *since >= started)
}

/// Returns the findings in `now` whose code is not in `before`.
fn fresh(before: &[Finding], now: &[Finding]) -> Vec<Finding> {
    let codes: BTreeSet<&str> = before.iter().map(|finding| finding.code.as_str()).collect();
    now.iter()
        .filter(|finding| !codes.contains(finding.code.as_str()))
        .cloned()
        .collect()
}

fn of_volume(old: Option<&Volume>, new: &Volume, started: u64) -> Vec<Event> {
    let before = old.map_or(&[][..], |volume| &volume.conditions);
    let has = |volume: &[drivebay_model::condition::Condition], reason| {
        volume.iter().any(|condition| condition.reason == reason)
    };
    let raised = new
        .conditions
        .iter()
        .filter(|condition| {
            !condition.reason.is_of_drive()
                && !has(before, condition.reason)
                && is_since(&new.since, condition.reason.as_str(), started)
        })
        .map(|condition| Event {
            status: Some((condition.status.as_str().to_owned(), None)),
            reason: Some(condition.reason.to_string()),
            details: Some(condition.message.clone()),
            ..Event::worse("volume condition raised")
        });
    let cleared = before
        .iter()
        .filter(|condition| {
            !condition.reason.is_of_drive() && !has(&new.conditions, condition.reason)
        })
        .map(|condition| Event {
            reason: Some(condition.reason.to_string()),
            ..Event::better("volume condition cleared")
        });
    raised.chain(cleared).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use drivebay_model::{
        health::{Acknowledged, Overridden},
        samples,
    };

    fn snapshot(change: impl FnOnce(&mut Drive)) -> Snapshot {
        let mut snapshot = Snapshot::default();
        let mut drive = samples::drive("sda", DriveState::Claimed, None);
        change(&mut drive);
        snapshot.drives.insert(drive.id.clone(), drive);
        snapshot
    }

    fn finding(code: &str) -> Finding {
        Finding::new(code, "replace it")
    }

    fn events(old: &Snapshot, new: &Snapshot) -> Vec<Event> {
        let all = changes(old, new, 0).into_iter();
        all.map(|change| change.event).collect()
    }

    fn texts(old: &Snapshot, new: &Snapshot) -> Vec<String> {
        let events = events(old, new).into_iter();
        let text = |event: Event| {
            let fields = [event.reason, event.details].into_iter().flatten();
            let all: Vec<String> = std::iter::once(event.message.to_owned())
                .chain(fields)
                .collect();
            all.join(" | ")
        };
        events.map(text).collect()
    }

    #[test]
    fn a_verdict_change_is_reported_once_with_its_findings() {
        let well = snapshot(|drive| drive.health.verdict = Verdict::Good);
        let bad = snapshot(|drive| {
            drive.health.verdict = Verdict::Bad;
            drive.health.findings = vec![finding("PendingSectorsMany")];
        });
        assert_eq!(events(&Snapshot::default(), &well), []);
        let changed = |now: &str, before: &str| Event {
            status: Some((now.to_owned(), Some(before.to_owned()))),
            ..Event::better("drive verdict changed")
        };
        let worse = Event {
            worse: true,
            volumes: Some(0),
            ..changed("BAD", "GOOD")
        };
        let worse = worse.of(&[finding("PendingSectorsMany")]);
        assert_eq!(events(&well, &bad), [worse]);
        assert_eq!(events(&bad, &bad), []);
        assert_eq!(events(&bad, &well), [changed("GOOD", "BAD")]);
        // Findings and conditions at the start are reported, too.
        assert_eq!(events(&Snapshot::default(), &bad).len(), 1);
    }

    #[test]
    fn an_acknowledgement_is_reported_and_what_counts_again_is_however_old() {
        let bad = |acknowledged: bool, more: bool| {
            snapshot(|drive| {
                drive.health.verdict = Verdict::Bad;
                let old = Finding {
                    acknowledged,
                    ..finding("GrownDefectsMany")
                };
                drive.health.findings = vec![old];
                drive
                    .health
                    .findings
                    .extend(more.then(|| finding("Pending")));
                drive.health.acknowledged = acknowledged.then(|| Acknowledged {
                    by: "ann".into(),
                    ..Acknowledged::default()
                });
                // Since before the agent's start.
                drive.health.since =
                    [("GrownDefectsMany".into(), 1), ("Pending".into(), 200)].into();
            })
        };
        let texts = |old: &Snapshot, new: &Snapshot| -> Vec<String> {
            let all = changes(old, new, 100).into_iter();
            all.map(|change| {
                format!(
                    "{} {}",
                    change.event.message,
                    change.event.reason.unwrap_or_default()
                )
            })
            .collect()
        };
        let (counts, silent) = (bad(false, false), bad(true, false));
        assert_eq!(texts(&counts, &silent), ["drive findings acknowledged "]);
        assert_eq!(texts(&silent, &silent), Vec::<String>::new());
        assert_eq!(
            texts(&silent, &bad(true, true)),
            ["drive finding raised Pending"]
        );
        assert_eq!(
            texts(&silent, &counts),
            [
                "drive finding raised GrownDefectsMany",
                "drive acknowledgement ended "
            ]
        );
        let restored = texts(&Snapshot::default(), &silent);
        assert_eq!(
            restored,
            ["last known drive verdict restored GrownDefectsMany"]
        );
    }

    #[test]
    fn numbers_and_times_that_move_are_no_change() {
        let at = |second: u64| {
            snapshot(|drive| {
                drive.health.verdict = Verdict::Suspect;
                drive.health.findings = vec![finding("PendingSectors")];
                drive.health.smart = Some(drivebay_model::health::SmartReport {
                    answered_at: second,
                    ..Default::default()
                });
            })
        };
        assert_eq!(events(&at(1), &at(2)), []);
    }

    #[test]
    fn conditions_are_reported_when_raised_and_when_cleared() {
        type Change = fn(&mut Drive);
        let cases: [(Change, &str, &str); 5] = [
            (
                |drive| drive.health.conditions = vec![finding("Overheating")],
                "drive condition raised | Overheating | replace it",
                "drive condition cleared | Overheating",
            ),
            (
                |drive| drive.state = DriveState::Missing,
                "drive missing; reconnect it",
                "drive present again",
            ),
            (
                |drive| drive.trouble = Some("stuck".into()),
                "drive unresponsive | stuck",
                "drive responds again",
            ),
            (
                |drive| {
                    drive.health.overridden = Some(Overridden {
                        reason: "known".into(),
                        until: None,
                        otherwise: Verdict::Suspect,
                    });
                },
                "drive verdict overridden by operator | overridden by the operator: known (the evidence alone says SUSPECT)",
                "drive verdict override ended",
            ),
            (
                |drive| drive.health.findings = vec![finding("KernelIoError")],
                "drive finding raised | KernelIoError | replace it",
                "",
            ),
        ];
        for (change, comes, goes) in cases {
            let (before, after) = (snapshot(|_| {}), snapshot(change));
            assert_eq!(texts(&before, &after), [comes]);
            assert_eq!(texts(&after, &after), Vec::<String>::new());
            assert_eq!(texts(&after, &before).join(""), goes);
        }
    }

    #[test]
    fn a_volume_condition_is_reported_and_its_drives_conditions_only_with_the_drive() {
        use drivebay_model::{
            RecordState,
            condition::{Condition, Reason},
        };
        let with = |reasons: &[Reason]| {
            let mut snapshot = snapshot(|_| {});
            let drive = samples::drive("sda", DriveState::Claimed, None);
            let volume = Volume {
                conditions: reasons
                    .iter()
                    .map(|reason| Condition::new(*reason, "see to it"))
                    .collect(),
                ..samples::volume(&drive, samples::placed(7, RecordState::New))
            };
            snapshot.volumes.insert(volume.uuid, volume);
            snapshot
        };
        let (well, ill) = (with(&[]), with(&[Reason::ReadOnly, Reason::DriveSuspect]));
        assert_eq!(
            texts(&well, &ill),
            ["volume condition raised | ReadOnly | see to it"]
        );
        assert_eq!(events(&ill, &ill), []);
        assert_eq!(texts(&ill, &well), ["volume condition cleared | ReadOnly"]);
    }

    #[test]
    fn what_an_earlier_agent_logged_is_not_logged_as_new() {
        let bad = |since| {
            snapshot(|drive| {
                drive.health.verdict = Verdict::Bad;
                drive.health.findings = vec![finding("SmartFailed")];
                drive.health.conditions = vec![finding("Wear")];
                let codes = ["SmartFailed", "Wear"].map(|code| (code.to_owned(), since));
                drive.health.since = codes.into();
            })
        };
        let texts = |since| -> Vec<&str> {
            let all = changes(&Snapshot::default(), &bad(since), 100).into_iter();
            all.map(|change| change.event.message).collect()
        };
        assert_eq!(texts(99), ["last known drive verdict restored"]);
        assert_eq!(
            texts(100),
            ["drive verdict changed", "drive condition raised"]
        );
        // A later finding is new, whatever an earlier agent reported.
        let mut more = bad(99);
        let drive = more.drives.values_mut().next().unwrap();
        drive.health.findings.push(finding("Pending"));
        drive.health.since.insert("Pending".into(), 101);
        let events: Vec<Event> = changes(&bad(99), &more, 100)
            .into_iter()
            .map(|change| change.event)
            .collect();
        assert_eq!(
            events,
            [Event::worse("drive finding raised").of(&[finding("Pending")])]
        );
    }
}
