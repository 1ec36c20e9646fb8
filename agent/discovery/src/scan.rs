//! One look at all drives: facts, host use, probe, label, verdict. `claim-plan` and the agent's rescans
//! share it, so that what is shown beforehand is what the agent does.
//!
//! Drives are probed by their own workers, several at a time, each with a deadline: a drive that hangs
//! costs its own entry and nothing else. Without a probe that succeeded no drive is ever available.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::PathBuf,
    time::Duration,
};

use tokio::sync::mpsc;

pub use self::ask::Seen;
use self::ask::gather;
use super::{
    claim::{self, Evidence, Judgement, Rules},
    identity,
    system::{self, HostUse},
};
use drivebay_layout::probe::{Blankness, GptState, ProbeError, Probed};
use drivebay_model::{
    ClaimPolicy, DriveFacts, DriveId, DriveRef, Reject, RejectCode, Signatures, cause::chain,
};
use drivebay_sys::{offload::offload, sysfs};
use drivebay_worker::Pool;

mod ask;

pub use self::ask::Questions;

/// How to look.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `/sys`.
    pub sys: PathBuf,
    /// `/proc`.
    pub proc: PathBuf,
    /// The kubelet's directory, whose drive is the system's.
    pub kubelet_dir: PathBuf,
    /// Drives looked at at the same time.
    pub at_once: usize,
    /// For each step on one drive, and for reading sysfs and /proc.
    pub deadline: Duration,
    /// A scan goes on without a drive that has not answered for so long; None: it waits for each.
    pub patience: Option<Duration>,
    /// The drives that are known, also those that are missing, by identity: each keeps its own beside another drive of
    /// the same WWN.
    pub known: BTreeMap<DriveId, DriveFacts>,
}

impl Settings {
    /// This machine; nothing is written.
    pub fn here(kubelet_dir: PathBuf) -> Self {
        Self {
            sys: "/sys".into(),
            proc: "/proc".into(),
            kubelet_dir,
            at_once: 8,
            deadline: Duration::from_secs(10),
            patience: None,
            known: BTreeMap::new(),
        }
    }
}

/// Everything seen of one drive.
#[derive(Debug, Clone)]
pub struct Scanned {
    /// sysfs facts.
    pub facts: DriveFacts,
    /// What its worker answered.
    pub seen: Seen,
    /// What comes of it.
    pub judgement: Judgement,
}

/// Everything seen.
#[derive(Debug, Clone)]
pub struct Scan {
    /// Every disk, by kernel name.
    pub drives: Vec<Scanned>,
    /// What the host used while it was looked at.
    pub host: HostUse,
}

/// Why there is nothing to show at all.
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// sysfs.
    #[error("cannot list block devices below {path}")]
    Enumerate {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// mountinfo, swaps.
    #[error(
        "cannot find out what the host uses (mountinfo and swaps below {path}); without that no drive may be claimed"
    )]
    HostUse {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// Takes in what a scan has found before it ends.
pub trait Listener: Sync {
    /// These drives are present, and no others.
    fn enumerated(&self, all: &[DriveFacts]);
    /// These of all drives have given their first answer.
    fn scanned(&self, all: &[DriveFacts], drives: Vec<Scanned>);
}

/// Nobody.
impl Listener for () {
    fn enumerated(&self, _: &[DriveFacts]) {}
    fn scanned(&self, _: &[DriveFacts], _: Vec<Scanned>) {}
}

/// Looks at all drives.
///
/// `only`: kernel names to probe again; the others keep what `previous` knows of them, when it is still the same
/// device and was seen well. None: probe all. `questions`: those that earlier scans went on without. Facts, host use
/// and verdicts are always fresh.
pub async fn scan(
    pool: &Pool,
    rules: &Rules,
    settings: &Settings,
    only: Option<&BTreeSet<String>>,
    previous: Vec<Scanned>,
    questions: &mut Questions,
    listener: &impl Listener,
) -> Result<Scan, ScanError> {
    let mut facts = enumerate(settings).await?;
    identity::tell_apart(&mut facts, &settings.known);
    listener.enumerated(&facts);
    let targets = facts.iter().map(|facts| target(facts, rules)).collect();
    let (answered, answers) = mpsc::unbounded_channel();
    let (seen, ()) = tokio::join!(
        gather(pool, targets, only, previous, settings, questions, answered),
        show(&facts, rules, settings, answers, listener),
    );
    // After the probes: what was mounted meanwhile counts.
    let host = host_use(settings).await?;
    let drives = facts.iter().zip(seen);
    let drives = drives.map(|(one, seen)| scanned(one, &facts, &host, seen, rules));
    let drives = drives.collect();
    Ok(Scan { drives, host })
}

/// Shows drives as they answer. Without a look at what the host uses they are shown when the scan ends.
async fn show(
    all: &[DriveFacts],
    rules: &Rules,
    settings: &Settings,
    mut answers: mpsc::UnboundedReceiver<(usize, Seen)>,
    listener: &impl Listener,
) {
    while let Some(first) = answers.recv().await {
        let mut batch = vec![first];
        while let Ok(more) = answers.try_recv() {
            batch.push(more);
        }
        let Ok(host) = host_use(settings).await else {
            continue;
        };
        let drives = batch.into_iter().filter_map(|(index, seen)| {
            let one = all.get(index)?;
            Some(scanned(one, all, &host, seen, rules))
        });
        listener.scanned(all, drives.collect());
    }
}

/// One drive, judged.
fn scanned(
    one: &DriveFacts,
    all: &[DriveFacts],
    host: &HostUse,
    seen: Seen,
    rules: &Rules,
) -> Scanned {
    let unfinished = seen.unfinished.then(|| as_if_blank(one, &seen));
    let (judged, probed) = match &unfinished {
        Some((judged, probed)) => (judged, probed.as_ref()),
        None => (one, seen.probed.as_ref()),
    };
    let evidence = Evidence {
        facts: judged,
        all,
        host,
        probed,
        label: seen
            .contents
            .as_ref()
            .filter(|_| seen.trouble.is_none())
            .map(|contents| &contents.label),
        label_trouble: seen.label_trouble.as_deref(),
    };
    let judgement = closed(claim::judge(&evidence, rules), &seen);
    Scanned {
        facts: one.clone(),
        seen,
        judgement,
    }
}

async fn enumerate(settings: &Settings) -> Result<Vec<DriveFacts>, ScanError> {
    let root = settings.sys.clone();
    offload("sysfs", settings.deadline, move || sysfs::enumerate(&root))
        .await
        .and_then(|inner| inner)
        .map_err(|source| ScanError::Enumerate {
            path: settings.sys.clone(),
            source,
        })
}

async fn host_use(settings: &Settings) -> Result<HostUse, ScanError> {
    let Settings {
        sys,
        proc,
        kubelet_dir,
        ..
    } = settings.clone();
    offload("host-use", settings.deadline, move || {
        // The kubelet sets it for every container.
        let in_pod = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
        system::host_use(&sys, &proc, &kubelet_dir, in_pod)
    })
    .await
    .and_then(|inner| inner)
    .map_err(|source| ScanError::HostUse {
        path: settings.proc.clone(),
        source,
    })
}

/// A claim of ours that was cut off before its label was written proved the drive blank and wrote nothing
/// but its own table: it counts as blank, and the next claim finishes it, after looking again under the lock.
fn as_if_blank(
    facts: &DriveFacts,
    seen: &Seen,
) -> (DriveFacts, Option<Result<Probed, ProbeError>>) {
    let facts = DriveFacts {
        partitions: Vec::new(),
        ..facts.clone()
    };
    let probed = seen.probed.clone().map(|probed| {
        probed.map(|probed| Probed {
            signatures: Signatures::Empty,
            gpt: GptState::None,
            ours: None,
            written_sector: None,
            traces: None,
            gpt_types: Vec::new(),
            blankness: Blankness::Blank,
            ..probed
        })
    });
    (facts, probed)
}

/// A drive to look at.
#[derive(Debug, Clone)]
struct Target {
    drive: DriveRef,
    /// None: the facts alone refuse it.
    probe: Option<Option<ClaimPolicy>>,
}

fn target(facts: &DriveFacts, rules: &Rules) -> Target {
    let policy = claim::class_of(facts, rules)
        .ok()
        .flatten()
        .map(|class| class.claim);
    Target {
        drive: DriveRef::from(facts),
        probe: (!claim::skips_probe(facts, rules)).then_some(policy),
    }
}

/// Fail closed, whatever the rules said: a drive without a probe that succeeded is neither available nor
/// claimed, and its reasons say why it could not be looked at.
fn closed(judgement: Judgement, seen: &Seen) -> Judgement {
    let proven = seen.trouble.is_none() && matches!(seen.probed, Some(Ok(_)));
    let (class, mut reasons) = match judgement {
        Judgement::Rejected { class, reasons } => (class, reasons),
        kept if proven => return kept,
        Judgement::Available { class } => (Some(class), Vec::new()),
        Judgement::Claimed => (None, Vec::new()),
    };
    let detail = match (&seen.trouble, &seen.probed) {
        (Some(trouble), _) => Some(trouble.clone()),
        (None, Some(Err(error))) => Some(chain(error)),
        (None, None) if reasons.is_empty() => Some("it was not probed".into()),
        _ => None,
    };
    if let Some(detail) = detail {
        // The rules may have chosen a better code for a probe that ran and failed; a probe without any
        // answer is ours to tell.
        let told = !reasons.is_empty() && seen.trouble.is_none();
        if !told {
            reasons.retain(|reject| reject.code != RejectCode::ProbeFailed);
            reasons.push(Reject {
                code: RejectCode::ProbeFailed,
                detail,
            });
        }
        reasons.sort_by_key(|reject| reject.code);
    }
    Judgement::Rejected { class, reasons }
}

#[cfg(test)]
mod tests;
