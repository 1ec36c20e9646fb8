//! What follows from the health of a drive as an agent reports it. Pure.

use crate::agent::{Drive, DriveHealth, Finding};

impl DriveHealth {
    /// The findings that nobody has acknowledged.
    pub fn counting(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| !finding.acknowledged)
    }
}

impl Drive {
    /// Whether its verdict rests on acknowledged findings alone.
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
    use crate::agent::Acknowledged;

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
}
