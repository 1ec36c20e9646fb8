//! PersistentVolumeClaim for which a volume was created, as named by Kubernetes' provisioner, or the name that Nomad's user gave it; also
//! whether it was created manually, and when. For people and metrics: nothing is decided by it, so an invalid value is dropped and fails no
//! creation.
//!
//! Kept among the volume's parameters, which every release preserves with either layout.

use std::collections::BTreeMap;

use drivebay_proto::{agent, names};
use uuid::Uuid;

use super::Record;

/// Longest name of a claim or a PersistentVolume that Kubernetes allows, bytes.
const MAX_NAME: usize = 253;
/// Longest name of a namespace that Kubernetes allows, bytes.
const MAX_NAMESPACE: usize = 63;
/// Longest name of a Nomad volume that is kept, bytes: Nomad itself has no limit.
const MAX_NOMAD_NAME: usize = 128;
/// Longest name of a namespace that Nomad allows, bytes.
const MAX_NOMAD_NAMESPACE: usize = 128;

/// Names in Kubernetes or Nomad; unknown ones are empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CreatedFor {
    pub claim: String,
    /// Namespace of the claim.
    pub namespace: String,
    pub persistent_volume: String,
    /// Name of the dynamic host volume.
    pub nomad_volume: String,
    /// Namespace of `nomad_volume`: after [`checked`](Self::checked), at most 128 letters, digits and '-'.
    pub nomad_namespace: String,
}

impl From<agent::CreatedFor> for CreatedFor {
    fn from(given: agent::CreatedFor) -> Self {
        Self {
            claim: given.claim,
            namespace: given.namespace,
            persistent_volume: given.persistent_volume,
            nomad_volume: given.nomad_volume,
            nomad_namespace: given.nomad_namespace,
        }
    }
}

impl From<CreatedFor> for agent::CreatedFor {
    fn from(metadata: CreatedFor) -> Self {
        Self {
            claim: metadata.claim,
            namespace: metadata.namespace,
            persistent_volume: metadata.persistent_volume,
            nomad_volume: metadata.nomad_volume,
            nomad_namespace: metadata.nomad_namespace,
        }
    }
}

impl CreatedFor {
    /// Empties the names that Kubernetes or Nomad does not allow. Returns the rest, and the fields that were emptied.
    pub fn checked(self) -> (Self, Vec<&'static str>) {
        let mut dropped = Vec::new();
        let mut name = |field, value: String, is_name: fn(&str) -> bool| {
            if value.is_empty() || is_name(&value) {
                return value;
            }
            dropped.push(field);
            String::new()
        };
        let checked = Self {
            claim: name("claim", self.claim, |text| is_name(text, MAX_NAME)),
            namespace: name("namespace", self.namespace, |text| {
                is_name(text, MAX_NAMESPACE)
            }),
            persistent_volume: name("persistent volume", self.persistent_volume, |text| {
                is_name(text, MAX_NAME)
            }),
            nomad_volume: name("Nomad volume", self.nomad_volume, is_nomad_name),
            nomad_namespace: name("Nomad namespace", self.nomad_namespace, is_nomad_namespace),
        };
        (checked, dropped)
    }

    /// Adds the names to the parameters that are kept with the volume of the CSI name `name`; a PersistentVolume of the same name is left
    /// out.
    pub fn keep(self, name: &str, parameters: &mut BTreeMap<String, String>) {
        let volume = self.persistent_volume;
        for (key, value) in [
            (names::KEPT_CLAIM, self.claim),
            (names::KEPT_CLAIM_NAMESPACE, self.namespace),
            // The provisioner gives both the same name.
            (
                names::KEPT_PERSISTENT_VOLUME,
                if volume == name {
                    String::new()
                } else {
                    volume
                },
            ),
            (names::KEPT_NOMAD_VOLUME, self.nomad_volume),
            (names::KEPT_NOMAD_NAMESPACE, self.nomad_namespace),
        ] {
            if !value.is_empty() {
                parameters.insert(key.to_owned(), value);
            }
        }
    }

    /// Returns the names that are kept. A PersistentVolume that is not kept has the CSI name, if a claim is kept or that name is one that
    /// the provisioner gives by default.
    pub fn of(record: &Record) -> Self {
        let kept = |key: &str| record.parameters.get(key).cloned().unwrap_or_default();
        let mut this = Self {
            claim: kept(names::KEPT_CLAIM),
            namespace: kept(names::KEPT_CLAIM_NAMESPACE),
            persistent_volume: kept(names::KEPT_PERSISTENT_VOLUME),
            nomad_volume: kept(names::KEPT_NOMAD_VOLUME),
            nomad_namespace: kept(names::KEPT_NOMAD_NAMESPACE),
        };
        let same_name = !this.claim.is_empty() || is_provisioners(&record.name);
        if this.persistent_volume.is_empty() && same_name {
            this.persistent_volume.clone_from(&record.name);
        }
        this
    }
}

/// Records in the kept parameters that the volume was created manually.
pub fn keep_manual(parameters: &mut BTreeMap<String, String>) {
    parameters.insert(names::KEPT_MANUAL.to_owned(), "true".to_owned());
}

/// True if a volume was created manually, by the parameters that are kept with it.
pub fn is_manual(kept: &BTreeMap<String, String>) -> bool {
    kept.contains_key(names::KEPT_MANUAL)
}

/// Records the time of creation in the kept parameters, seconds since 1970.
pub fn keep_created_at(now: u64, parameters: &mut BTreeMap<String, String>) {
    parameters.insert(names::KEPT_CREATED_AT.to_owned(), now.to_string());
}

/// Returns the time of a volume's creation, seconds since 1970; None if it was not recorded.
pub fn created_at(kept: &BTreeMap<String, String>) -> Option<u64> {
    kept.get(names::KEPT_CREATED_AT)?.parse().ok()
}

/// Returns the request's parameters among those that are kept with its volume: a repeated request is compared with these, and these are
/// shown.
pub fn requested(kept: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let is_requested = |key: &String| {
        let key = key.as_str();
        let noted = [
            names::KEPT_MANUAL,
            names::KEPT_CREATED_AT,
            names::KEPT_SOURCE_SNAPSHOT,
            names::KEPT_SOURCE_VOLUME,
            names::KEPT_COPIED_FS,
            names::KEPT_COPIED_HEADER,
            names::KEPT_ENCRYPTION_HEADER,
            names::KEPT_UNREADABLE_BYTES,
            names::KEPT_LOST_SECTORS,
        ];
        !noted.contains(&key) && !names::KEPT_CREATED_FOR.contains(&key)
    };
    let requested = kept.iter().filter(|(key, _)| is_requested(key));
    requested
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// True if the text is a DNS name in lower case of at most `most` bytes, which Kubernetes requires of claim, namespace and
/// PersistentVolume.
fn is_name(text: &str, most: usize) -> bool {
    let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.len() <= most
        && bytes.iter().all(|&c| plain(c) || matches!(c, b'-' | b'.'))
        && bytes.first().is_some_and(|&c| plain(c))
        && bytes.last().is_some_and(|&c| plain(c))
}

/// True if the text is not too long and has no control characters; Nomad itself takes any text.
fn is_nomad_name(text: &str) -> bool {
    text.len() <= MAX_NOMAD_NAME && !text.chars().any(char::is_control)
}

fn is_nomad_namespace(text: &str) -> bool {
    let plain = |c: u8| c.is_ascii_alphanumeric() || c == b'-';
    text.len() <= MAX_NOMAD_NAMESPACE && text.bytes().all(plain)
}

fn is_provisioners(name: &str) -> bool {
    name.strip_prefix("pvc-")
        .is_some_and(|uid| uid.len() == 36 && Uuid::try_parse(uid).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RecordState, samples::placed};

    fn named(claim: &str, namespace: &str, persistent_volume: &str) -> CreatedFor {
        CreatedFor {
            claim: claim.into(),
            namespace: namespace.into(),
            persistent_volume: persistent_volume.into(),
            ..CreatedFor::default()
        }
    }

    fn in_nomad(volume: &str, namespace: &str) -> CreatedFor {
        CreatedFor {
            nomad_volume: volume.into(),
            nomad_namespace: namespace.into(),
            ..CreatedFor::default()
        }
    }

    fn kept(name: &str, created_for: CreatedFor) -> Record {
        let mut record = placed(1, RecordState::New).record;
        record.name = name.into();
        created_for.keep(name, &mut record.parameters);
        record
    }

    #[test]
    fn what_is_kept_is_read_again_and_an_equal_name_is_kept_once() {
        for (name, keys) in [("pvc-1", 2), ("another", 3)] {
            let all = named("data-db-0", "prod", "pvc-1");
            let record = kept(name, all.clone());
            assert_eq!(record.parameters.len(), keys, "{name}");
            assert_eq!(CreatedFor::of(&record), all);
        }
    }

    #[test]
    fn without_metadata_only_a_name_that_the_provisioner_gives_is_a_persistent_volumes() {
        for (name, is_generated) in [
            ("pvc-5f6a1f0e-43a5-4c0e-8f8e-3a7d2f7f1c11", true),
            ("pvc-1", false),
            ("pvc-5f6a1f0e43a54c0e8f8e3a7d2f7f1c11", false),
            ("db-data", false),
        ] {
            let volume = if is_generated { name } else { "" };
            let record = kept(name, CreatedFor::default());
            assert_eq!(CreatedFor::of(&record), named("", "", volume), "{name}");
        }
    }

    #[test]
    fn what_kubernetes_does_not_allow_is_left_out_and_the_rest_stays() {
        let longest = "n".repeat(253);
        let (checked, dropped) = named(&longest, "prod", "pv.1-a").checked();
        assert_eq!(
            (checked, dropped),
            (named(&longest, "prod", "pv.1-a"), vec![])
        );
        for bad in ["-a", "a-", "A", "a b", "a\n", "ä", &"n".repeat(254)] {
            let (checked, dropped) = named(bad, "prod", "pv").checked();
            assert_eq!(checked, named("", "prod", "pv"), "{bad}");
            assert_eq!(dropped, ["claim"]);
        }
        let (checked, dropped) = named("a", &"n".repeat(64), "pv").checked();
        assert_eq!(
            (checked, dropped),
            (named("a", "", "pv"), vec!["namespace"])
        );
    }

    #[test]
    fn what_nomads_user_calls_a_volume_is_kept_and_makes_no_persistent_volume_of_it() {
        let db = in_nomad("Db 1/ä", "Team-A");
        assert_eq!(db.clone().checked(), (db.clone(), vec![]));
        let record = kept("nomad-8e1c7c0a-0b9d-4d52-9c3d-2f4a1b5c6d7e", db.clone());
        assert_eq!(CreatedFor::of(&record), db);
        assert_eq!(requested(&record.parameters), BTreeMap::new());
        for bad in ["a\nb", &"n".repeat(129)] {
            let (checked, dropped) = in_nomad(bad, bad).checked();
            assert_eq!(checked, CreatedFor::default(), "{bad}");
            assert_eq!(dropped, ["Nomad volume", "Nomad namespace"]);
        }
    }

    #[test]
    fn a_request_has_no_part_in_what_is_kept_for_metrics() {
        let mut parameters: BTreeMap<String, String> = [("class".into(), "fast".into())].into();
        let request = parameters.clone();
        named("a", "b", "c").keep("d", &mut parameters);
        assert!(!is_manual(&parameters));
        keep_manual(&mut parameters);
        assert!(is_manual(&parameters));
        assert_eq!(created_at(&parameters), None);
        keep_created_at(1_700_000_000, &mut parameters);
        assert_eq!(created_at(&parameters), Some(1_700_000_000));
        parameters.insert(names::KEPT_UNREADABLE_BYTES.into(), "4096".into());
        assert_eq!(parameters.len(), 7);
        assert_eq!(requested(&parameters), request);
    }
}
