//! The volumes that PersistentVolumes name, from the output of `kubectl get pv -o json`.
//!
//! A wrong list must not make volumes in use look unclaimed. It must be a complete list of PersistentVolumes that names at least one volume
//! of this cluster. The driver in a PersistentVolume is ignored, since the volume's uuid is unique.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, BufReader, Read},
    path::{Path, PathBuf},
};

use drivebay_common::{query::QueryError, units::count};
use drivebay_proto::{VolumeId, agent::Volume, controller::VolumeOnNode};
use serde::Deserialize;
use uuid::Uuid;

use super::client::Client;
use drivebay_service::agents::unclaimed::UNCLAIMED_AFTER;

/// A list of PersistentVolumes cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ClaimsError {
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The text is not JSON, or not a Kubernetes object.
    #[error(
        "{} is not what `kubectl get pv -o json` prints", path.display()
    )]
    NotAList {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
    /// The object is not a list of PersistentVolumes.
    #[error(
        "{} holds a {kind}, not a list of PersistentVolumes; make it with `kubectl get pv -o json`", path.display()
    )]
    OtherKind { path: PathBuf, kind: String },
    /// The text is the first page of a longer list.
    #[error(
        "{} is only a part of the list; make it with `kubectl get pv -o json`", path.display()
    )]
    Partial { path: PathBuf },
    /// No PersistentVolume in the list names a volume of Drivebay.
    #[error(
        "{} names no volume of Drivebay, so it seems to be the wrong list ({}). If that is right, every volume is unclaimed: `drivebay-controller volumes` shows them", path.display(), count(*others, "other PersistentVolume")
    )]
    NoneOfOurs {
        path: PathBuf,
        /// Number of PersistentVolumes in the list.
        others: usize,
    },
    /// No volume that the list names is in this cluster.
    #[error(
        "none of the {named} Drivebay volumes that {} names is among the {here} here, so it seems to be another cluster's list; nothing is shown", path.display()
    )]
    OtherCluster {
        path: PathBuf,
        /// Number of volumes that the list names.
        named: usize,
        /// Number of volumes in this cluster.
        here: usize,
    },
    /// No list was given, and the controller does not follow PersistentVolumes.
    #[error(
        "this controller does not follow PersistentVolumes (run --kubernetes); give what `kubectl get pv -o json` prints: --unclaimed FILE, or - for standard input"
    )]
    NotFollowed,
    #[error(transparent)]
    Client(#[from] QueryError),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct List {
    api_version: String,
    kind: String,
    #[serde(default)]
    metadata: ListMeta,
    // Optional, so that an object that is not a list has its own error.
    items: Option<Vec<Pv>>,
}

#[derive(Deserialize, Default)]
struct ListMeta {
    #[serde(rename = "continue")]
    more: Option<String>,
}

#[derive(Deserialize)]
struct Pv {
    kind: Option<String>,
    metadata: Meta,
    spec: Spec,
}

#[derive(Deserialize)]
struct Meta {
    name: String,
}

#[derive(Deserialize)]
struct Spec {
    csi: Option<Csi>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Csi {
    volume_handle: String,
}

/// Volumes named by the PersistentVolumes of a list.
#[derive(Debug)]
pub struct Claims {
    path: PathBuf,
    named: HashMap<Uuid, Vec<Named>>,
}

#[derive(Debug)]
struct Named {
    node: String,
    pv: String,
}

/// Result of looking up one volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim<'a> {
    /// A PersistentVolume names it on its node.
    Here,
    /// A PersistentVolume names it, but on another node.
    Elsewhere {
        pv: &'a str,
        /// Node in the PersistentVolume, not that of the volume.
        node: &'a str,
    },
    /// No PersistentVolume names it.
    Nobody,
}

impl Claims {
    /// Reads a list from a file, or from standard input for `-`. Blocks.
    pub fn read(path: &Path) -> Result<Self, ClaimsError> {
        if path == Path::new("-") {
            return Self::parse(path, io::stdin().lock());
        }
        let file = File::open(path).map_err(|source| ClaimsError::Read {
            path: path.to_owned(),
            source,
        })?;
        Self::parse(path, file)
    }

    /// Parses a list. `path` is for error messages.
    pub fn parse(path: &Path, text: impl Read) -> Result<Self, ClaimsError> {
        let owned = || path.to_owned();
        let list: List = serde_json::from_reader(BufReader::new(text)).map_err(|error| {
            if error.is_io() {
                ClaimsError::Read {
                    path: owned(),
                    source: error.into(),
                }
            } else {
                ClaimsError::NotAList {
                    path: owned(),
                    source: error,
                }
            }
        })?;
        let other = |kind: String| ClaimsError::OtherKind {
            path: owned(),
            kind,
        };
        // kubectl prints a List; the API server sends a PersistentVolumeList, whose items have no kind.
        let any_kind = list.kind == "PersistentVolumeList";
        let items = match list.items {
            Some(items) if list.api_version == "v1" && (any_kind || list.kind == "List") => items,
            _ => return Err(other(list.kind)),
        };
        if list.metadata.more.is_some_and(|more| !more.is_empty()) {
            return Err(ClaimsError::Partial { path: owned() });
        }
        let all = items.len();
        let mut named: HashMap<Uuid, Vec<Named>> = HashMap::new();
        for pv in items {
            match pv.kind {
                Some(kind) if kind == "PersistentVolume" => {}
                None if any_kind => {}
                kind => return Err(other(format!("list with a {}", kind.unwrap_or_default()))),
            }
            let handle = pv.spec.csi.map(|csi| csi.volume_handle);
            if let Some(Ok(id)) = handle.map(|handle| handle.parse::<VolumeId>()) {
                named.entry(id.uuid).or_default().push(Named {
                    node: id.node,
                    pv: pv.metadata.name,
                });
            }
        }
        if named.is_empty() {
            return Err(ClaimsError::NoneOfOurs {
                path: owned(),
                others: all,
            });
        }
        Ok(Self {
            path: owned(),
            named,
        })
    }

    /// Looks up a volume.
    pub fn of(&self, id: &VolumeId) -> Claim<'_> {
        let Some(named) = self.named.get(&id.uuid) else {
            return Claim::Nobody;
        };
        let mut named = named.iter();
        let Some(first) = named.next() else {
            return Claim::Nobody;
        };
        if first.node == id.node || named.any(|other| other.node == id.node) {
            return Claim::Here;
        }
        Claim::Elsewhere {
            pv: &first.pv,
            node: &first.node,
        }
    }

    /// Checks that the list names a volume of any node. Fails with [`ClaimsError::OtherCluster`] if it names none of the existing ones.
    pub async fn must_fit(&self, client: &mut Client) -> Result<(), ClaimsError> {
        let mut here = 0;
        let mut incoming = client.volumes(&[], false).await?;
        while let Some(there) = incoming.next().await? {
            here += 1;
            let volume = there.volume.unwrap_or_default();
            if claim_of(client, self, &volume)? != Claim::Nobody {
                return Ok(());
            }
        }
        if here == 0 {
            return Ok(());
        }
        Err(ClaimsError::OtherCluster {
            path: self.path.clone(),
            named: self.named.len(),
            here,
        })
    }
}

/// Looks up a volume that the controller sent. Fails if its id is malformed.
pub fn claim_of<'a>(
    client: &Client,
    claims: &'a Claims,
    volume: &Volume,
) -> Result<Claim<'a>, QueryError> {
    let id = volume
        .id
        .parse()
        .map_err(|_| client.senseless("a volume whose id is none"))?;
    Ok(claims.of(&id))
}

/// Returns the controller's own result, which does not distinguish [`Claim::Elsewhere`].
pub fn claim_as_followed(there: &VolumeOnNode) -> Result<Claim<'static>, ClaimsError> {
    if !there.claims_known {
        return Err(ClaimsError::NotFollowed);
    }
    Ok(if is_unclaimed(there) {
        Claim::Nobody
    } else {
        Claim::Here
    })
}

/// True if the controller counts the volume as unclaimed: no PersistentVolume has named it for [`UNCLAIMED_AFTER`].
pub fn is_unclaimed(there: &VolumeOnNode) -> bool {
    there.unclaimed_seconds >= UNCLAIMED_AFTER.as_secs()
}

impl Claim<'_> {
    /// Returns a note for the line of a volume with this result.
    pub fn note(&self, volume: &Volume) -> Option<String> {
        match self {
            Self::Here => None,
            Self::Elsewhere { pv, node } => Some(format!(
                "PersistentVolume {pv} names it on node {node}; see `drivebay-controller volume pv {}`",
                volume.id
            )),
            Self::Nobody if volume.published => {
                Some("no PersistentVolume names it, but it is in use: it is not left over".into())
            }
            Self::Nobody => None,
        }
    }
}

/// Number of volumes by the result of looking them up.
#[derive(Debug, Default)]
pub struct Tally {
    here: usize,
    elsewhere: usize,
    nobody: usize,
}

impl Tally {
    pub fn count(&mut self, claim: Claim<'_>) {
        match claim {
            Claim::Here => self.here += 1,
            Claim::Elsewhere { .. } => self.elsewhere += 1,
            Claim::Nobody => self.nobody += 1,
        }
    }

    /// Returns the numbers as text, with warnings about likely mistakes.
    pub fn describe(&self) -> String {
        let Self {
            here,
            elsewhere,
            nobody,
        } = self;
        let mut text = format!(
            "({nobody} of {} without a PersistentVolume; {here} with one, {elsewhere} with one that names another node)\n",
            count(here + elsewhere + nobody, "volume")
        );
        if *nobody > 0 {
            text.push_str("(a volume that is being created has none yet: repeat the command in some minutes before deleting one)\n");
        }
        if *nobody > here + elsewhere {
            text.push_str("(most volumes have none: was the list made of ALL PersistentVolumes, without a selector?)\n");
        }
        text
    }
}
