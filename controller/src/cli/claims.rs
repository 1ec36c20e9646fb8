//! Which volumes have a PersistentVolume, from the output of `kubectl get pv -o json`.
//!
//! A wrong list must not make live volumes look left over. So it has to be a list, of PersistentVolumes, whole,
//! and to name at least one volume that is here. A volume counts as named whatever driver the PersistentVolume
//! says: its uuid is nobody else's.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, BufReader, Read},
    path::{Path, PathBuf},
};

use drivebay_common::{ask::AskError, units::count};
use drivebay_proto::{VolumeId, agent::Volume, controller::VolumeOnNode};
use serde::Deserialize;
use uuid::Uuid;

use super::client::Client;
use drivebay_service::agents::unclaimed::UNCLAIMED_AFTER;

/// Why a list is not believed.
#[derive(Debug, thiserror::Error)]
pub enum ClaimsError {
    /// It cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// It is not JSON, or not of Kubernetes.
    #[error(
        "{} is not what `kubectl get pv -o json` prints", path.display()
    )]
    NotAList {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
    /// One object, or a list of something else.
    #[error(
        "{} holds a {found}, not a list of PersistentVolumes; make it with `kubectl get pv -o json`", path.display()
    )]
    OtherKind { path: PathBuf, found: String },
    /// The first page of a longer list.
    #[error(
        "{} is only a part of the list; make it with `kubectl get pv -o json`", path.display()
    )]
    Partial { path: PathBuf },
    /// None of its PersistentVolumes is Drivebay's.
    #[error(
        "{} names no volume of Drivebay, so it seems to be the wrong list ({}). If that is right, every volume is unclaimed: `drivebay-controller volumes` shows them", path.display(), count(*others, "other PersistentVolume")
    )]
    NoneOfOurs {
        path: PathBuf,
        /// How many it has.
        others: usize,
    },
    /// None of its volumes is here.
    #[error(
        "none of the {named} Drivebay volumes that {} names is among the {here} here, so it seems to be another cluster's list; nothing is shown", path.display()
    )]
    OtherCluster {
        path: PathBuf,
        /// How many it names.
        named: usize,
        /// How many volumes there are.
        here: usize,
    },
    /// Nobody knows.
    #[error(
        "this controller does not follow PersistentVolumes (run --kubernetes); give what `kubectl get pv -o json` prints: --unclaimed FILE, or - for standard input"
    )]
    NotFollowed,
    /// The controller.
    #[error(transparent)]
    Client(#[from] AskError),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct List {
    api_version: String,
    kind: String,
    #[serde(default)]
    metadata: ListMeta,
    // Last in kubectl's output: an object that is none has an error of its own.
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

/// The volumes that PersistentVolumes name.
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

/// What PersistentVolumes say of one volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim<'a> {
    /// One names it where it is.
    Here,
    /// One names it, on another node.
    Elsewhere {
        pv: &'a str,
        /// The node that it names.
        node: &'a str,
    },
    /// None names it.
    Nobody,
}

impl Claims {
    /// Reads a file, or standard input for `-`. Blocks.
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

    /// Reads a list that calls itself `path`.
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
        let other = |found: String| ClaimsError::OtherKind {
            path: owned(),
            found,
        };
        // kubectl prints a List; the API server itself a PersistentVolumeList, whose items have no kind.
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

    /// What they say of this volume.
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

    /// Looks through the volumes of all nodes until one is named. None: it is another cluster's list.
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

/// What a list says of a volume that the controller showed.
pub fn claim_of<'a>(
    client: &Client,
    claims: &'a Claims,
    volume: &Volume,
) -> Result<Claim<'a>, AskError> {
    let id = volume
        .id
        .parse()
        .map_err(|_| client.senseless("a volume whose id is none"))?;
    Ok(claims.of(&id))
}

/// What the controller itself says, which may have seen it named on this node only.
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

/// Whether the controller counts it as one that no PersistentVolume names.
pub fn is_unclaimed(there: &VolumeOnNode) -> bool {
    there.unclaimed_seconds >= UNCLAIMED_AFTER.as_secs()
}

impl Claim<'_> {
    /// What to know about a volume that is shown because of it.
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

/// How many volumes there are of each kind.
#[derive(Debug, Default)]
pub struct Tally {
    here: usize,
    elsewhere: usize,
    nobody: usize,
}

impl Tally {
    /// Counts one.
    pub fn count(&mut self, claim: Claim<'_>) {
        match claim {
            Claim::Here => self.here += 1,
            Claim::Elsewhere { .. } => self.elsewhere += 1,
            Claim::Nobody => self.nobody += 1,
        }
    }

    /// In words, with what to be careful about.
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
