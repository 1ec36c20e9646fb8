//! Converts snapshots of the inventory to messages of the agent protocol. Pure.

use std::{collections::HashMap, time::Duration};

use drivebay_csi::new_volume::unreadable_bytes;
use drivebay_proto::{VolumeId, agent as wire, names};

use super::{advice, delta::delta};
use drivebay_fs::jobs::Usage;
use drivebay_model::{
    CheckMethod, ClassConfig, CopySource, Cordon, Drive, DriveHealth, Finding, FsType, LastCheck,
    MIB, Mode, PlacedSnapshot, Record, Snapshot, Volume,
    condition::NormalReason,
    created_for::{CreatedFor, created_at, is_manual, requested},
    health::{Acknowledged, SmartFinding, SmartReport},
    snapshot::Place,
    units::human_size,
    unreadable::UnreadableRange,
    volume_snapshot::SnapshotGroup,
};

/// Fields of the sender that all updates have in common.
#[derive(Debug, Clone)]
pub struct Sender {
    pub node: String,
    /// Random id of this agent process.
    pub instance: String,
    /// Classes of the configuration. Each update has all of them, in this order.
    pub classes: Vec<ClassConfig>,
}

impl Sender {
    /// Converts a whole snapshot to a full update, without usage and pods.
    pub fn full(&self, snapshot: &Snapshot) -> wire::InventoryUpdate {
        wire::InventoryUpdate {
            full: true,
            drives: snapshot
                .drives
                .values()
                .map(|drive| self.drive(drive))
                .collect(),
            volumes: snapshot
                .volumes
                .values()
                .map(|volume| self.volume_with_ranges(volume))
                .collect(),
            ..self.frame(snapshot)
        }
    }

    /// Converts a whole snapshot to a full update with the usage of volumes and the pods that they are published to, for the agent's own
    /// socket.
    pub fn full_with_usage(
        &self,
        snapshot: &Snapshot,
        samples: &HashMap<uuid::Uuid, (Usage, Duration)>,
        mut pods: HashMap<uuid::Uuid, Vec<String>>,
    ) -> wire::InventoryUpdate {
        let mut update = self.full(snapshot);
        // In the order of the snapshot.
        let pairs = update.volumes.iter_mut().zip(snapshot.volumes.values());
        for (message, volume) in pairs.filter(|(_, volume)| volume.in_use) {
            message.pods = pods.remove(&volume.uuid).unwrap_or_default();
            if volume.placed.record.mode == Mode::Mount {
                let sample = samples.get(&volume.uuid);
                message.usage = sample.and_then(|(sample, age)| usage(sample, *age));
            }
        }
        update
    }

    /// Returns the update with all changes from `old` to `new`.
    pub fn changes(&self, old: &Snapshot, new: &Snapshot) -> wire::InventoryUpdate {
        let delta = delta(old, new);
        wire::InventoryUpdate {
            drives: delta
                .drives
                .into_iter()
                .map(|drive| self.drive(drive))
                .collect(),
            removed_drives: delta.removed_drives.iter().map(|id| id.0.clone()).collect(),
            volumes: delta
                .volumes
                .into_iter()
                .map(|volume| self.volume_with_ranges(volume))
                .collect(),
            removed_volumes: delta
                .removed_volumes
                .into_iter()
                .map(|uuid| self.id(uuid))
                .collect(),
            since_revision: old.revision,
            ..self.frame(new)
        }
    }

    fn frame(&self, snapshot: &Snapshot) -> wire::InventoryUpdate {
        wire::InventoryUpdate {
            instance: self.instance.clone(),
            revision: snapshot.revision,
            node_id: self.node.clone(),
            ready: snapshot.ready,
            classes: self
                .classes
                .iter()
                .map(|class| self.class(class, snapshot))
                .collect(),
            findings: snapshot
                .findings
                .iter()
                .map(|finding| wire::Finding {
                    code: finding.code.clone(),
                    message: finding.message.clone(),
                    since: 0,
                    acknowledged: false,
                })
                .collect(),
            ..wire::InventoryUpdate::default()
        }
    }

    fn class(&self, class: &ClassConfig, snapshot: &Snapshot) -> wire::Class {
        let report = snapshot.classes.get(&class.name);
        wire::Class {
            name: class.name.clone(),
            layout: report
                .map_or("", |report| report.layout.as_str())
                .to_owned(),
            total_bytes: report.map_or(0, |report| report.total_bytes),
            free_bytes: report.map_or(0, |report| report.free_bytes),
            largest_volume_bytes: report.map_or(0, |report| report.largest_bytes),
            smallest_volume_bytes: class.fs_type.min_bytes(),
            fs_type: class.fs_type.as_str().to_owned(),
            extent_bytes: MIB,
        }
    }

    fn id(&self, uuid: uuid::Uuid) -> String {
        VolumeId {
            uuid,
            node: self.node.clone(),
        }
        .to_string()
    }

    fn drive(&self, one: &Drive) -> wire::Drive {
        let mut message = drive(one);
        if let Some(health) = &mut message.health {
            health.unreadable = self.unreadable(&one.health.unreadable);
        }
        message
    }

    fn unreadable(&self, ranges: &[UnreadableRange]) -> Vec<wire::UnreadableRange> {
        let messages = ranges.iter().map(|range| {
            let (files, more_files) = range.holds.files();
            wire::UnreadableRange {
                start: range.extent.start,
                len: range.extent.len,
                volume: range.volume.map(|uuid| self.id(uuid)).unwrap_or_default(),
                offset: range.offset,
                holds: range.holds.content().to_string(),
                detail: range.holds.detail().to_owned(),
                files: files.to_vec(),
                more_files,
            }
        });
        messages.collect()
    }

    /// Converts a volume with its unreadable ranges and the names of the files in them, for the inventory only. Names of files may leave
    /// the agent only through the node's own socket.
    fn volume_with_ranges(&self, volume: &Volume) -> wire::Volume {
        wire::Volume {
            unreadable: self.unreadable(&volume.unreadable),
            ..self.volume(volume)
        }
    }

    /// Converts the snapshots of a volume, without those that the agent took for its own use.
    fn snapshots(&self, volume: &Volume) -> Vec<wire::VolumeSnapshot> {
        let all = volume.placed.snapshots.iter();
        all.filter(|one| !one.record.is_internal())
            .map(|one| {
                let used = volume.snapshot_usage.get(&one.record.uuid).copied();
                self.snapshot(one, used)
            })
            .collect()
    }

    /// Converts a snapshot. `used_bytes`: used bytes of its store, if known.
    pub fn snapshot(&self, one: &PlacedSnapshot, used_bytes: Option<u64>) -> wire::VolumeSnapshot {
        let record = &one.record;
        let message = match (&one.ambiguous, one.is_overflowed) {
            (Some(why), _) => format!("{why}; it is not touched until an operator decides"),
            (None, true) => {
                "its reserve was full, or its store could not be written; delete it, and take another one, with a larger reserve if it was full"
                    .to_owned()
            }
            (None, false) => String::new(),
        };
        wire::VolumeSnapshot {
            id: self.id(record.uuid),
            name: record.name.clone(),
            created_at: record.created_at,
            size_bytes: record.size_bytes,
            state: one.state().as_str().to_owned(),
            reserve_bytes: one.reserve_bytes,
            used_bytes: match one.is_overflowed {
                true => Some(one.reserve_bytes),
                false => used_bytes,
            },
            message,
            expires_at: record.expires_at.unwrap_or(0),
            group: record
                .group
                .as_ref()
                .map(|group| self.snapshot_group(group)),
        }
    }

    /// Converts a group snapshot; its id is `<uuid>@<node id>`.
    pub fn snapshot_group(&self, group: &SnapshotGroup) -> wire::SnapshotGroup {
        wire::SnapshotGroup {
            id: self.id(group.uuid),
            name: group.name.clone(),
            members: group.members,
        }
    }

    /// Converts a volume, without its unreadable ranges, usage and pods.
    pub fn volume(&self, volume: &Volume) -> wire::Volume {
        let record = &volume.placed.record;
        wire::Volume {
            id: self.id(volume.uuid),
            name: record.name.clone(),
            class: record.class.clone(),
            drive: volume.drive.0.clone(),
            size_bytes: record.size_bytes(),
            mode: record.mode.as_str().to_owned(),
            fs_type: match record.mode {
                Mode::Mount => record.fs_type.map_or("", FsType::as_str).to_owned(),
                Mode::Block => String::new(),
            },
            state: volume.state.as_str().to_owned(),
            conditions: conditions(volume),
            mounts: volume.mounts.clone(),
            checks: volume.checks.iter().map(check).collect(),
            running_check: volume.checking.map(|running| wire::RunningCheck {
                since: running.since,
                method: running.method.as_str().to_owned(),
            }),
            unreadable: Vec::new(),
            published: volume.in_use,
            device: volume.placed.device.clone().unwrap_or_default(),
            erased_bytes: volume.erasing.map_or(0, |erasing| erasing.done_bytes),
            erase_eta_seconds: volume.erasing.map_or(0, |erasing| erasing.eta_seconds),
            parameters: requested(&record.parameters),
            snapshots: self.snapshots(volume),
            source_snapshot: match CopySource::of(&record.parameters) {
                Some(CopySource::Snapshot(uuid)) => self.id(uuid),
                _ => String::new(),
            },
            source_volume: match CopySource::of(&record.parameters) {
                Some(CopySource::Volume(uuid)) => self.id(uuid),
                _ => String::new(),
            },
            manual: is_manual(&record.parameters),
            usage: None,
            pods: Vec::new(),
            created_at: created_at(&record.parameters).unwrap_or(0),
            created_for: created_for(CreatedFor::of(record)),
            places: volume.copies.iter().map(place).collect(),
            generation: record.place.generation(),
        }
    }
}

/// Returns the condition `CopiedWithLoss` if the volume has zeros in place of unreadable blocks of its source; else None.
fn copied_with_loss(record: &Record) -> Option<wire::Condition> {
    let bytes = unreadable_bytes(&record.parameters);
    (bytes > 0).then(|| wire::Condition {
        abnormal: false,
        status: String::new(),
        reason: NormalReason::CopiedWithLoss.to_string(),
        message: format!(
            "it is not whole: {} of what it was made as a copy of did not read, and it has zeros there ({}: {}); check what is in it, and restore what is lost from a backup",
            human_size(bytes),
            names::PARAM_COPY_UNREADABLE,
            names::COPY_UNREADABLE_ZEROS
        ),
        since: created_at(&record.parameters).unwrap_or(0),
    })
}

/// Returns the conditions of a volume: abnormal ones first, then a move, then a loss of data when it was copied.
fn conditions(volume: &Volume) -> Vec<wire::Condition> {
    let wrong = volume.conditions.iter().map(|condition| {
        let since = volume.since.get(condition.reason.as_str());
        wire::Condition {
            abnormal: true,
            status: condition.status.as_str().to_owned(),
            reason: condition.reason.to_string(),
            message: condition.message.clone(),
            since: since.copied().unwrap_or(0),
        }
    });
    let moving = volume.moving.iter().map(|moving| wire::Condition {
        abnormal: false,
        status: String::new(),
        reason: moving.reason.to_string(),
        message: moving.message.clone(),
        since: moving.since,
    });
    let loss = copied_with_loss(&volume.placed.record);
    wrong.chain(moving).chain(loss).collect()
}

/// Converts a place that is not served.
fn place(place: &Place) -> wire::VolumePlace {
    let state = &place.placed.record.place;
    wire::VolumePlace {
        drive: place.drive.0.clone(),
        is: state.as_str().to_owned(),
        generation: state.generation(),
    }
}

fn created_for(metadata: CreatedFor) -> Option<wire::CreatedFor> {
    (metadata != CreatedFor::default()).then(|| metadata.into())
}

/// Converts a usage sample of this age; None if the filesystem could not be read or has size 0.
fn usage(usage: &Usage, age: Duration) -> Option<wire::VolumeUsage> {
    let answers = usage.unreadable.is_none() && usage.total_bytes > 0;
    answers.then_some(wire::VolumeUsage {
        total_bytes: usage.total_bytes,
        used_bytes: usage.used_bytes,
        available_bytes: usage.available_bytes,
        age_seconds: age.as_secs(),
    })
}

fn check(check: &LastCheck) -> wire::FilesystemCheck {
    wire::FilesystemCheck {
        at: check.at,
        outcome: check.outcome.result().to_string(),
        text: check.outcome.text(),
        method: check.method.map_or("", CheckMethod::as_str).to_owned(),
        tool: check.tool.clone(),
    }
}

pub fn drive(drive: &Drive) -> wire::Drive {
    let facts = &drive.facts;
    let contents = drive.contents.as_ref();
    let available = drive.claimable_bytes;
    wire::Drive {
        id: drive.id.0.clone(),
        kernel_name: if drive.state.is_present() {
            facts.kernel_name.clone()
        } else {
            String::new()
        },
        model: facts.model.clone(),
        serial: facts.serial.clone(),
        wwn: facts.wwn.clone(),
        firmware: facts.firmware.clone(),
        size_bytes: facts.size_bytes,
        logical_sector_bytes: facts.logical_sector,
        physical_sector_bytes: facts.physical_sector,
        media: facts.media.to_string(),
        transport: facts.transport.as_str().to_owned(),
        state: drive.state.to_string(),
        class: drive.class.clone().unwrap_or_default(),
        rejects: drive
            .rejects
            .iter()
            .map(|reject| wire::Reject {
                code: reject.code.to_string(),
                detail: advice::detail(drive, reject),
            })
            .collect(),
        free_bytes: contents.map_or(available, |c| c.free_bytes()),
        largest_free_bytes: contents.map_or(available, |c| c.largest_free()),
        usable_bytes: contents.map_or(available, |c| c.usable_bytes),
        verdict: drive.health.verdict.as_str().to_owned(),
        notes: contents.map_or_else(Vec::new, |c| c.notes.clone()),
        health: Some(health(&drive.health)),
        cordon: drive.cordon().map(cordon),
        enclosure: facts.bay.enclosure.clone(),
        slot: facts.bay.slot.clone(),
        pcie_slot: facts.bay.pcie_slot.clone(),
        trouble: drive.trouble.clone().unwrap_or_default(),
        unzeroed_bytes: contents.map_or(0, |c| c.unzeroed().iter().map(|run| run.len).sum()),
    }
}

pub fn cordon(cordon: &Cordon) -> wire::Cordon {
    wire::Cordon {
        at: cordon.at,
        by: cordon.by.clone(),
        reason: cordon.reason.clone(),
    }
}

fn health(health: &DriveHealth) -> wire::DriveHealth {
    let convert = |findings: &[Finding]| findings.iter().map(|one| finding(one, health)).collect();
    wire::DriveHealth {
        findings: convert(&health.findings),
        conditions: convert(&health.conditions),
        worn_out: health.worn_out,
        overridden: health.overridden.as_ref().map(|given| wire::Overridden {
            reason: given.reason.clone(),
            until: given.until.unwrap_or(0),
            otherwise: given.otherwise.as_str().to_owned(),
        }),
        smart: health.smart.as_ref().map(smart),
        acknowledged: health.acknowledged.as_ref().map(acknowledged),
        poll: health.poll.as_str().to_owned(),
        unreadable: Vec::new(),
        unreadable_more: health.unreadable_more,
    }
}

fn acknowledged(given: &Acknowledged) -> wire::Acknowledged {
    wire::Acknowledged {
        at: given.at,
        by: given.by.clone(),
        note: given.note.clone(),
        until: given.until.unwrap_or(0),
        takes_new_volumes: given.takes_new_volumes,
    }
}

/// Converts a finding, with the time of its beginning from `health`.
pub fn finding(finding: &Finding, health: &DriveHealth) -> wire::Finding {
    wire::Finding {
        code: finding.code.clone(),
        message: finding.message.clone(),
        since: health.since.get(&finding.code).copied().unwrap_or(0),
        acknowledged: finding.acknowledged,
    }
}

fn smart(report: &SmartReport) -> wire::SmartReport {
    wire::SmartReport {
        answered_at: report.answered_at,
        verdict_since: report.verdict_since,
        device_type: report.device_type.clone(),
        asleep: report.asleep,
        failure: report.failure.clone(),
        findings: report.findings.iter().map(smart_finding).collect(),
        readings: report
            .readings
            .iter()
            .map(|reading| wire::Reading {
                name: reading.name.clone(),
                value: reading.value,
            })
            .collect(),
    }
}

pub fn smart_finding(finding: &SmartFinding) -> wire::SmartFinding {
    wire::SmartFinding {
        code: finding.code.clone(),
        subject: finding.subject.clone(),
        value: finding.value,
        threshold: finding.threshold.unwrap_or(0),
        reading: finding.reading.clone(),
        message: finding.message.clone(),
        acknowledged: finding.acknowledged,
    }
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
