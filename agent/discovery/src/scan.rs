//! A scan of all drives: facts, host use, probe, label, verdict. `claim-plan` and the agent's scans share it, so that the plan shows what
//! the agent does.
//!
//! Drives are probed by their own workers, several at a time, each with a deadline: an unresponsive drive affects its own entry only.
//! Without a successful probe no drive is ever available.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::PathBuf,
    time::Duration,
};

use tokio::sync::mpsc;

pub use self::probes::ProbeResults;
use self::probes::gather;
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

mod probes;

pub use self::probes::Questions;

/// Settings of a scan.
#[derive(Debug, Clone)]
pub struct Settings {
    pub sys: PathBuf,
    pub proc: PathBuf,
    /// The kubelet's directory, whose drive is a system drive.
    pub kubelet_dir: PathBuf,
    /// Drives that are probed at the same time.
    pub at_once: usize,
    /// Limit for each step on one drive, and for reading sysfs and /proc.
    pub deadline: Duration,
    /// Time after which a scan continues without a drive that has not responded; None: it waits for each.
    pub patience: Option<Duration>,
    /// All known drives, missing ones included, by identity: each keeps its identity beside another drive of the same WWN.
    pub known: BTreeMap<DriveId, DriveFacts>,
}

impl Settings {
    /// Settings for a read-only scan of this machine.
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

/// Result of a scan for one drive.
#[derive(Debug, Clone)]
pub struct Scanned {
    pub facts: DriveFacts,
    /// Results of the drive's worker.
    pub seen: ProbeResults,
    pub judgement: Judgement,
}

/// Result of a scan.
#[derive(Debug, Clone)]
pub struct Scan {
    /// All disks, sorted by kernel name.
    pub drives: Vec<Scanned>,
    /// The host's use of drives during the scan.
    pub host: HostUse,
}

/// The scan failed as a whole.
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// sysfs was not read.
    #[error("cannot list block devices below {path}")]
    Enumerate {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// mountinfo or the swaps were not read.
    #[error(
        "cannot find out what the host uses (mountinfo and swaps below {path}); without that no drive may be claimed"
    )]
    HostUse {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// Receives results of a scan before it ends.
pub trait Listener: Sync {
    /// Called with all drives that are present.
    fn enumerated(&self, all: &[DriveFacts]);
    /// Called with those of all drives that have given their first result.
    fn scanned(&self, all: &[DriveFacts], drives: Vec<Scanned>);
}

/// Discards the results that arrive before the scan ends, for a caller that needs only its return value.
impl Listener for () {
    fn enumerated(&self, _: &[DriveFacts]) {}
    fn scanned(&self, _: &[DriveFacts], _: Vec<Scanned>) {}
}

/// Scans all drives.
///
/// `only`: kernel names to probe again; other drives keep their results in `previous`, if it is the same device and its last scan
/// succeeded. None: probe all. `questions`: queries that earlier scans did not wait for. Facts, host use and verdicts are always fresh.
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
    identity::assign_identities(&mut facts, &settings.known);
    listener.enumerated(&facts);
    let targets = facts.iter().map(|facts| target(facts, rules)).collect();
    let (answered, answers) = mpsc::unbounded_channel();
    let (entries, ()) = tokio::join!(
        gather(pool, targets, only, previous, settings, questions, answered),
        show(&facts, rules, settings, answers, listener),
    );
    // After the probes, so that mounts made meanwhile count.
    let host = host_use(settings).await?;
    let drives = facts.iter().zip(entries);
    let drives = drives.map(|(one, entry)| scanned(one, &facts, &host, entry, rules));
    let drives = drives.collect();
    Ok(Scan { drives, host })
}

/// Delay of results that are reported before the scan ends. Reading the host's use takes as long as probing several drives, so that it is
/// read once more only for a scan that other drives make longer than this.
const EARLY: Duration = Duration::from_millis(200);

/// Reports drives to the listener that others keep waiting. The rest, and all of them if the host's use cannot be read, are reported when
/// the scan ends.
async fn show(
    all: &[DriveFacts],
    rules: &Rules,
    settings: &Settings,
    mut answers: mpsc::UnboundedReceiver<(usize, ProbeResults)>,
    listener: &impl Listener,
) {
    while let Some(batch) = next_batch(&mut answers).await {
        let Ok(host) = host_use(settings).await else {
            continue;
        };
        let drives = batch.into_iter().filter_map(|(index, entry)| {
            let one = all.get(index)?;
            Some(scanned(one, all, &host, entry, rules))
        });
        listener.scanned(all, drives.collect());
    }
}

/// Returns what has arrived within [`EARLY`] after the first answer; None if the scan ends within that time, and reports it with the rest.
async fn next_batch<T>(answers: &mut mpsc::UnboundedReceiver<T>) -> Option<Vec<T>> {
    let mut batch = vec![answers.recv().await?];
    let more = async {
        while let Some(answer) = answers.recv().await {
            batch.push(answer);
        }
    };
    let is_over = tokio::time::timeout(EARLY, more).await.is_ok();
    (!is_over).then_some(batch)
}

/// Returns the result for one drive, with its verdict.
fn scanned(
    one: &DriveFacts,
    all: &[DriveFacts],
    host: &HostUse,
    entry: ProbeResults,
    rules: &Rules,
) -> Scanned {
    let unfinished = entry.unfinished.then(|| as_if_blank(one, &entry));
    let (judged, probed) = match &unfinished {
        Some((judged, probed)) => (judged, probed.as_ref()),
        None => (one, entry.probed.as_ref()),
    };
    let evidence = Evidence {
        facts: judged,
        all,
        host,
        probed,
        label: entry
            .contents
            .as_ref()
            .filter(|_| entry.trouble.is_none())
            .map(|contents| &contents.label),
        label_trouble: entry.label_trouble.as_deref(),
    };
    let judgement = closed(claim::judge(&evidence, rules), &entry);
    Scanned {
        facts: one.clone(),
        seen: entry,
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
        // The kubelet sets this variable for every container.
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

/// Returns facts and probe of an interrupted claim as those of a blank drive: the claim had proved the drive blank and wrote nothing but
/// its own table before its label. The next claim completes it, after probing again under the lock.
fn as_if_blank(
    facts: &DriveFacts,
    entry: &ProbeResults,
) -> (DriveFacts, Option<Result<Probed, ProbeError>>) {
    let facts = DriveFacts {
        partitions: Vec::new(),
        ..facts.clone()
    };
    let probed = entry.probed.clone().map(|probed| {
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

/// A drive to probe.
#[derive(Debug, Clone)]
struct Target {
    drive: DriveRef,
    /// Claim policy to probe for; None: the facts alone refuse the drive.
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

/// Fails closed, independently of the rules: a drive without a successful probe is neither available nor claimed, and its reasons say why
/// the probe failed.
fn closed(judgement: Judgement, entry: &ProbeResults) -> Judgement {
    let proven = entry.trouble.is_none() && matches!(entry.probed, Some(Ok(_)));
    let (class, mut reasons) = match judgement {
        Judgement::Rejected { class, reasons } => (class, reasons),
        kept if proven => return kept,
        Judgement::Available { class } => (Some(class), Vec::new()),
        Judgement::Claimed => (None, Vec::new()),
    };
    let detail = match (&entry.trouble, &entry.probed) {
        (Some(trouble), _) => Some(trouble.clone()),
        (None, Some(Err(error))) => Some(chain(error)),
        (None, None) if reasons.is_empty() => Some("it was not probed".into()),
        _ => None,
    };
    if let Some(detail) = detail {
        // The rules may have chosen a better code for a probe that ran and failed; a probe without any result is reported here.
        let is_reported = !reasons.is_empty() && entry.trouble.is_none();
        if !is_reported {
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
