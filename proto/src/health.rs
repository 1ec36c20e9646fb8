//! Conclusions from the health of a drive as an agent reports it, and its texts. Pure.

use crate::{
    agent::{Acknowledged, Cordon, Drive, DriveHealth, Finding, NamedFinding, Overridden},
    words::{DriveState, Verdict},
};

/// That an operator decided a verdict, for whatever shows the drive.
pub fn describe_override(reason: &str, otherwise: &str) -> String {
    format!("overridden by the operator: {reason} (the evidence alone says {otherwise})")
}

/// Returns a sentence on the acknowledgement of a drive's findings, for tables and messages. `note`: the operator's reason; may be empty.
pub fn describe_acknowledgement(by: &str, note: &str, takes_new_volumes: bool) -> String {
    let note = match note {
        "" => String::new(),
        note => format!(": {note}"),
    };
    let volumes = match takes_new_volumes {
        true => "it takes new volumes",
        false => "it takes no new volumes",
    };
    format!("acknowledged by {by}{note} ({volumes})")
}

/// Returns the location of a drive for messages, tables and metrics: its slot in an enclosure, its PCIe slot, or both, separated by a
/// comma; empty if the host reports neither. An enclosure without a slot is left out.
pub fn describe_bay(enclosure: &str, slot: &str, pcie_slot: &str) -> String {
    let in_enclosure = match (slot, enclosure) {
        ("", _) => None,
        (slot, "") => Some(format!("slot {slot}")),
        (slot, enclosure) => Some(format!("slot {slot} of enclosure {enclosure}")),
    };
    let pcie = Some(pcie_slot).filter(|slot| !slot.is_empty());
    let pcie = pcie.map(|slot| format!("PCIe slot {slot}"));
    let all: Vec<String> = in_enclosure.into_iter().chain(pcie).collect();
    all.join(", ")
}

impl Overridden {
    /// For whatever shows the drive.
    pub fn describe(&self) -> String {
        describe_override(&self.reason, &self.otherwise)
    }
}

impl Acknowledged {
    /// For whatever shows the drive.
    pub fn describe(&self) -> String {
        describe_acknowledgement(&self.by, &self.note, self.takes_new_volumes)
    }
}

impl Cordon {
    /// For whatever shows the drive.
    pub fn describe(&self) -> String {
        let reason = match self.reason.as_str() {
            "" => String::new(),
            reason => format!(": {reason}"),
        };
        format!("cordoned by {}{reason} (it takes no new volumes)", self.by)
    }
}

impl DriveHealth {
    /// Findings that are not acknowledged: those that affect the verdict.
    pub fn counting(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| !finding.acknowledged)
    }
}

impl Drive {
    /// Returns the findings that an acknowledgement has to name, if it names any: those that count now.
    pub fn nameable_findings(&self) -> Vec<NamedFinding> {
        let health = self.health.as_ref();
        let polled = health.and_then(|health| health.smart.as_ref());
        let polled = polled.iter().flat_map(|smart| &smart.findings);
        let polled = polled.filter(|one| !one.acknowledged);
        let mut named: Vec<NamedFinding> = polled
            .map(|one| NamedFinding {
                code: one.code.clone(),
                subject: one.subject.clone(),
                value: one.value,
            })
            .collect();
        for one in health.iter().flat_map(|health| health.counting()) {
            if !named.iter().any(|it| it.code == one.code) {
                named.push(NamedFinding {
                    code: one.code.clone(),
                    ..NamedFinding::default()
                });
            }
        }
        named
    }

    /// True if the verdict is SUSPECT or BAD, and all findings are acknowledged.
    pub fn is_acknowledged(&self) -> bool {
        let is_bad = self
            .known_verdict()
            .is_some_and(|verdict| verdict.weight() > 0);
        let health = self.health.as_ref();
        let health = health.filter(|health| health.acknowledged.is_some());
        let silent = |health: &DriveHealth| {
            !health.findings.is_empty() && health.counting().next().is_none()
        };
        is_bad && health.is_some_and(silent)
    }

    /// True if the drive accepts new volumes by this report: it is claimed or available, responsive, neither worn out nor cordoned,
    /// and its verdict allows it or an operator does.
    pub fn takes_new_volumes(&self) -> bool {
        let offers = self.known_state().is_some_and(DriveState::offers_space);
        let by_verdict = self.known_verdict().is_some_and(Verdict::takes_new_volumes);
        let health = self.health.as_ref();
        let given = health.and_then(|health| health.acknowledged.as_ref());
        let by_operator = self.is_acknowledged() && given.is_some_and(|it| it.takes_new_volumes);
        let worn_out = health.is_some_and(|health| health.worn_out);
        let is_hindered = worn_out || self.cordon.is_some() || !self.trouble.is_empty();
        offers && (by_verdict || by_operator) && !is_hindered
    }

    /// All that a person should know of it, where its health is not shown besides: its notes and its trouble, what was found and
    /// is not acknowledged, and what an operator decided.
    pub fn all_notes(&self) -> Vec<String> {
        let mut all = self.notes.clone();
        all.extend(Some(self.trouble.clone()).filter(|trouble| !trouble.is_empty()));
        all.extend(self.cordon.iter().map(Cordon::describe));
        let Some(health) = &self.health else {
            return all;
        };
        let findings = health.counting().chain(&health.conditions);
        all.extend(findings.map(|one| format!("{}: {}", one.code, one.message)));
        all.extend(health.overridden.iter().map(Overridden::describe));
        all.extend(health.acknowledged.iter().map(Acknowledged::describe));
        all
    }

    /// Returns [`describe_bay`] of this drive.
    pub fn bay(&self) -> String {
        describe_bay(&self.enclosure, &self.slot, &self.pcie_slot)
    }

    /// By what a person in front of the machine knows it: model, serial number and bay, as far as they are known.
    pub fn known_by(&self) -> Vec<String> {
        let serial = match self.serial.as_str() {
            "" => String::new(),
            serial => format!("serial {serial}"),
        };
        let all = [self.model.clone(), serial, self.bay()];
        all.into_iter().filter(|one| !one.is_empty()).collect()
    }

    /// Returns the kernel name, or the identity if there is none, with model, serial number and bay in parentheses, as far as known.
    pub fn named(&self) -> String {
        let name = match self.kernel_name.as_str() {
            "" => &self.id,
            name => name,
        };
        match self.known_by() {
            none if none.is_empty() => name.to_owned(),
            known_by => format!("{name} ({})", known_by.join(", ")),
        }
    }

    /// The verdict as it is shown: of an acknowledged drive with that word.
    pub fn shown_verdict(&self) -> String {
        match self.is_acknowledged() {
            true => format!("{}, acknowledged", self.verdict),
            false => self.verdict.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_is_acknowledged_when_all_it_rests_on_is() {
        let drive = |verdict: &str, findings: &[bool], given: bool| Drive {
            verdict: verdict.into(),
            health: Some(DriveHealth {
                findings: findings
                    .iter()
                    .map(|acknowledged| Finding {
                        acknowledged: *acknowledged,
                        ..Finding::default()
                    })
                    .collect(),
                acknowledged: given.then(Acknowledged::default),
                ..DriveHealth::default()
            }),
            ..Drive::default()
        };
        for (verdict, findings, given, shown) in [
            ("BAD", &[true][..], true, "BAD, acknowledged"),
            ("SUSPECT", &[true, true], true, "SUSPECT, acknowledged"),
            ("BAD", &[true, false], true, "BAD"),
            ("BAD", &[true], false, "BAD"),
            ("BAD", &[], true, "BAD"),
            ("GOOD", &[], true, "GOOD"),
        ] {
            let drive = drive(verdict, findings, given);
            assert_eq!(drive.shown_verdict(), shown, "{findings:?}");
        }
        assert_eq!(Drive::default().shown_verdict(), "");
    }

    #[test]
    fn a_drive_is_named_by_what_a_person_finds_it_by() {
        let mut drive = Drive {
            id: "wwn-a".into(),
            kernel_name: "sda".into(),
            model: "ST4000".into(),
            serial: "S4YP".into(),
            enclosure: "5000".into(),
            slot: "3".into(),
            pcie_slot: "9".into(),
            ..Drive::default()
        };
        assert_eq!(
            drive.named(),
            "sda (ST4000, serial S4YP, slot 3 of enclosure 5000, PCIe slot 9)"
        );
        drive.slot.clear();
        drive.model.clear();
        assert_eq!(drive.named(), "sda (serial S4YP, PCIe slot 9)");
        let bare = Drive {
            id: "wwn-a".into(),
            ..Drive::default()
        };
        assert_eq!(bare.named(), "wwn-a");
    }

    #[test]
    fn a_bay_is_a_slot_with_what_it_is_a_slot_of() {
        assert_eq!(describe_bay("", "3", ""), "slot 3");
        assert_eq!(describe_bay("5000", "3", ""), "slot 3 of enclosure 5000");
        assert_eq!(describe_bay("", "", "9"), "PCIe slot 9");
        assert_eq!(describe_bay("5000", "", ""), "");
    }

    #[test]
    fn notes_are_followed_by_trouble_findings_that_count_and_decisions() {
        let finding = |code: &str, acknowledged| Finding {
            code: code.into(),
            message: "m".into(),
            since: 0,
            acknowledged,
        };
        let mut drive = Drive {
            notes: vec!["the backup table was repaired".into()],
            trouble: "stuck".into(),
            ..Drive::default()
        };
        assert_eq!(
            drive.all_notes(),
            ["the backup table was repaired", "stuck"]
        );
        drive.trouble.clear();
        drive.health = Some(DriveHealth {
            findings: vec![finding("IoErrors", true), finding("IoStalled", false)],
            conditions: vec![finding("Wear", false)],
            overridden: Some(Overridden {
                reason: "cable replaced".into(),
                until: 0,
                otherwise: "BAD".into(),
            }),
            acknowledged: Some(Acknowledged {
                by: "ann".into(),
                note: "ordered".into(),
                takes_new_volumes: true,
                ..Acknowledged::default()
            }),
            ..DriveHealth::default()
        });
        assert_eq!(
            drive.all_notes(),
            [
                "the backup table was repaired",
                "IoStalled: m",
                "Wear: m",
                "overridden by the operator: cable replaced (the evidence alone says BAD)",
                "acknowledged by ann: ordered (it takes new volumes)",
            ]
        );
    }
}
