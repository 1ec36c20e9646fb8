//! What happened in the last week, derived from what nodes, drives and volumes still report. Pure.

use std::cmp::Reverse;

use drivebay_proto::{
    agent::{self, Cordon},
    words::ConnectionOutcome,
};
use drivebay_service::agents::Past;

use crate::model::{Event, EventKind, Events};

/// Age of the oldest events, seconds.
const WEEK: u64 = 7 * 24 * 3600;
/// Most events of an answer.
pub(crate) const EVENTS: usize = 1000;

/// Collects the newest events, at most [`EVENTS`], in memory for a few times as many.
#[derive(Debug)]
pub(crate) struct Newest {
    now: u64,
    events: Vec<Event>,
    more: bool,
}

impl Newest {
    /// `now`: Unix time in seconds.
    pub(crate) fn new(now: u64) -> Self {
        Self {
            now,
            events: Vec::new(),
            more: false,
        }
    }

    /// True for an event of the last seven days. One of the future, by a clock that is ahead, is none until its time.
    pub(crate) fn is_recent(&self, event: &Event) -> bool {
        (self.now.saturating_sub(WEEK)..=self.now).contains(&event.at)
    }

    /// Adds those of the last seven days.
    pub(crate) fn add(&mut self, events: impl IntoIterator<Item = Event>) {
        for event in events {
            if self.is_recent(&event) {
                self.events.push(event);
            }
        }
        if self.events.len() > 4 * EVENTS {
            self.cut();
        }
    }

    /// Marks the answer as incomplete.
    pub(crate) fn is_incomplete(&mut self) {
        self.more = true;
    }

    /// Returns the events, newest first.
    pub(crate) fn finish(mut self) -> Events {
        self.cut();
        Events {
            events: self.events,
            more: self.more,
        }
    }

    fn cut(&mut self) {
        self.events.sort_by(|one, other| {
            let newest = Reverse(one.at).cmp(&Reverse(other.at));
            // A fixed order of what happened in the same second.
            newest.then_with(|| {
                (&one.node, &one.drive, &one.volume, one.what, &one.text).cmp(&(
                    &other.node,
                    &other.drive,
                    &other.volume,
                    other.what,
                    &other.text,
                ))
            })
        });
        self.more |= self.events.len() > EVENTS;
        self.events.truncate(EVENTS);
    }
}

fn event(node: &str, at: u64, what: EventKind, text: String) -> Event {
    Event {
        at,
        node: node.to_owned(),
        drive: None,
        volume: None,
        claim: None,
        what,
        text,
    }
}

fn coded(code: &str, message: &str) -> String {
    match code {
        "" => message.to_owned(),
        code => format!("{code}: {message}"),
    }
}

/// Returns the events of a node: its host's findings, and the sessions and refusals of its agent. Without the instance and the machine
/// identity of an agent.
pub(crate) fn of_node(node: &str, findings: &[agent::Finding], sessions: &[Past]) -> Vec<Event> {
    let findings = findings.iter().map(|one| {
        let text = coded(&one.code, &one.message);
        event(node, one.since, EventKind::Finding, text)
    });
    let sessions = sessions.iter().map(|past| {
        let (what, text) = match past.outcome {
            ConnectionOutcome::Connected => {
                let version = past.text.split(", ").next().unwrap_or_default();
                (EventKind::Connected, version)
            }
            ConnectionOutcome::Refused => (EventKind::Refused, past.text.as_str()),
            ConnectionOutcome::Ended => (EventKind::Disconnected, past.text.as_str()),
        };
        let text = match past.times {
            0 | 1 => text.to_owned(),
            times => format!("{text} ({times} times)"),
        };
        event(node, past.at, what, text)
    });
    findings.chain(sessions).collect()
}

/// Returns the events of a drive: its findings and conditions, its verdict, cordon and acknowledgement.
pub(crate) fn of_drive(node: &str, drive: &agent::Drive) -> Vec<Event> {
    let empty = Default::default();
    let health = drive.health.as_ref().unwrap_or(&empty);
    let events_of = |findings: &[agent::Finding], what: EventKind| -> Vec<Event> {
        let findings = findings.iter();
        findings
            .map(|one| event(node, one.since, what, coded(&one.code, &one.message)))
            .collect()
    };
    let mut events = events_of(&health.findings, EventKind::Finding);
    events.extend(events_of(&health.conditions, EventKind::Condition));
    // Findings of the kernel and of latencies count for the drive's verdict, and not for the moment.
    let smart = health.smart.iter();
    events.extend(smart.map(|smart| {
        let verdict = drive.shown_verdict();
        let text = format!("the verdict by SMART data changed; the drive is now {verdict}");
        event(node, smart.verdict_since, EventKind::Verdict, text)
    }));
    let cordon = drive.cordon.iter();
    events.extend(cordon.map(|cordon| {
        let text = Cordon::describe(cordon);
        event(node, cordon.at, EventKind::Cordoned, text)
    }));
    let acknowledged = health.acknowledged.iter();
    events.extend(
        acknowledged.map(|given| event(node, given.at, EventKind::Acknowledged, given.describe())),
    );
    for event in &mut events {
        event.drive = Some(drive.id.clone());
    }
    events
}

/// Returns the events of a volume, without its claim: its creation, conditions, snapshots and last checks.
pub(crate) fn of_volume(node: &str, volume: &agent::Volume) -> Vec<Event> {
    let name = &volume.name;
    let created = event(
        node,
        volume.created_at,
        EventKind::VolumeCreated,
        format!("volume {name} created"),
    );
    let conditions = volume.conditions.iter().map(|one| {
        let text = coded(&one.reason, &one.message);
        event(node, one.since, EventKind::VolumeCondition, text)
    });
    let snapshots = volume.snapshots.iter().map(|one| {
        let text = format!("snapshot {} of volume {name} created", one.name);
        event(node, one.created_at, EventKind::SnapshotCreated, text)
    });
    let checks = volume.checks.iter().map(|one| {
        let text = format!("filesystem of volume {name}: {}", one.text);
        event(node, one.at, EventKind::Checked, text)
    });
    let mut events = vec![created];
    events.extend(conditions.chain(snapshots).chain(checks));
    let drive = Some(volume.drive.clone()).filter(|drive| !drive.is_empty());
    for event in &mut events {
        event.volume = Some(volume.id.clone());
        event.drive.clone_from(&drive);
    }
    events
}

#[cfg(test)]
#[path = "events_tests.rs"]
mod tests;
