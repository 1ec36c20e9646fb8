//! The operation that a task requests.

use drivebay_objects::task::{Acknowledge, Cordon, DriveTaskSpec, Evacuate, Replace};

/// One operation on a drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation<'a> {
    Cordon(&'a Cordon),
    Uncordon,
    Evacuate(&'a Evacuate),
    Replace(&'a Replace),
    Locate { on: bool },
    Acknowledge(&'a Acknowledge),
}

/// Part of a drive's state that an operation changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Subject {
    /// The volumes that the drive has, and new ones.
    Volumes,
    Light,
}

/// Returns the operation of a task; None unless exactly one is set.
pub(super) fn operation(spec: &DriveTaskSpec) -> Option<Operation<'_>> {
    let all = [
        spec.cordon.as_ref().map(Operation::Cordon),
        spec.uncordon.as_ref().map(|_| Operation::Uncordon),
        spec.evacuate.as_ref().map(Operation::Evacuate),
        spec.replace.as_ref().map(Operation::Replace),
        spec.locate
            .as_ref()
            .map(|it| Operation::Locate { on: it.on }),
        spec.acknowledge.as_ref().map(Operation::Acknowledge),
    ];
    let mut set = all.into_iter().flatten();
    set.next().filter(|_| set.next().is_none())
}

impl<'a> Operation<'a> {
    /// Returns the name in a status, in metrics and in the audit log.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Cordon(_) => "Cordon",
            Self::Uncordon => "Uncordon",
            Self::Evacuate(_) => "Evacuate",
            Self::Replace(_) => "Replace",
            Self::Locate { .. } => "Locate",
            Self::Acknowledge(_) => "Acknowledge",
        }
    }

    /// Returns the part of the drive's state that a later operation may change, too. None: the order does not matter.
    pub(super) fn subject(self) -> Option<Subject> {
        match self {
            Self::Cordon(_) | Self::Uncordon | Self::Evacuate(_) | Self::Replace(_) => {
                Some(Subject::Volumes)
            }
            Self::Locate { .. } => Some(Subject::Light),
            Self::Acknowledge(_) => None,
        }
    }

    /// True if volumes move.
    pub(super) fn is_evacuation(self) -> bool {
        matches!(self, Self::Evacuate(_) | Self::Replace(_))
    }

    /// Returns the names of the objects of the drives that receive volumes.
    pub(super) fn targets(self) -> &'a [String] {
        match self {
            Self::Evacuate(it) => &it.to,
            Self::Replace(it) => std::slice::from_ref(&it.with),
            _ => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_of_yaml_has_one_operation() {
        let spec = |operation: &str| {
            let json = format!(
                r#"{{"drive":"wwn-1","by":"ann","issuedAt":"2026-11-29T10:00:00Z",{operation}}}"#
            );
            let spec: DriveTaskSpec = serde_json::from_str(&json).unwrap();
            spec
        };
        let names = [
            (r#""cordon":{}"#, Some("Cordon")),
            (r#""uncordon":{}"#, Some("Uncordon")),
            (r#""evacuate":{"to":["wwn-2"]}"#, Some("Evacuate")),
            (r#""replace":{"with":"wwn-2"}"#, Some("Replace")),
            (r#""locate":{"on":true}"#, Some("Locate")),
            (
                r#""acknowledge":{"findings":[{"code":"A"}]}"#,
                Some("Acknowledge"),
            ),
            (r#""cordon":{},"uncordon":{}"#, None),
            (r#""ttlSecondsAfterFinished":1"#, None),
        ];
        for (json, name) in names {
            let spec = spec(json);
            let operation = operation(&spec);
            assert_eq!(operation.map(|it| it.as_str()), name, "{json}");
        }
    }
}
