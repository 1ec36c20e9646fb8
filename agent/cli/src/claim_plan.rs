//! `drivebay-agent claim-plan`: shows the effect of a configuration on this machine's drives. Writes nothing.
//!
//! Scans with the same code as the agent (`discovery::scan`), through workers of its own, whose records are separate from a running
//! agent's.

use std::{io, path::PathBuf, time::Duration};

use drivebay_common::{cli::RUN_AS_ROOT, terminal::Terminal};
use drivebay_proto::agent::Reject;
use drivebay_view::{
    drives::{are_unwanted, in_short},
    order::by_device,
};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    args::Format,
    drives::{hidden_note, is_nobodys, reason},
    table::{Align, Table, Yielding, human_size},
};
use drivebay_config::Config;
use drivebay_discovery::{
    claim::{Judgement, Rules},
    scan::{self, ScanError, Scanned, Settings},
};
use drivebay_model::{ClassConfig, Layout, Transport, cause::chain};
use drivebay_sys::{
    lvm::{self, INSTEAD},
    offload::offload,
    statefile, user,
};
use drivebay_worker::{Pool, PoolConfig, SPARE};

pub(super) mod verdicts;

use verdicts::Verdicts;

/// Limit of `lvm version`.
const LVM_ANSWER: Duration = Duration::from_secs(10);

/// The plan could not be made.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The program's path, a directory or the workers are unavailable.
    #[error("cannot start workers to scan the drives ({what})")]
    Workers {
        /// Part that is unavailable, for the message: the directory of the workers' records, the path of this program, or the pool.
        what: &'static str,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Scan(#[from] ScanError),
    /// LVM did not answer in time, or could not be run; the plan would say of drives what is not known.
    #[error("cannot ask LVM for its version")]
    Lvm(#[source] io::Error),
    /// Without root every drive would appear unusable.
    #[error("cannot look at drives: {RUN_AS_ROOT}")]
    NotRoot,
    #[error("cannot write the plan as JSON or YAML")]
    Json(#[from] serde_json::Error),
}

/// What `claim-plan -o json` prints. Field names are stable; sizes are bytes.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Plan<'a> {
    /// The node id.
    node: &'a str,
    /// As the config names it.
    cluster: &'a str,
    /// Reason why no drive can be claimed with layout `lvm` on this host; null if it can, or if no class has that layout.
    lvm_unavailable: Option<&'a str>,
    /// All drives, virtual devices too.
    drives: Vec<PlannedDrive<'a>>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct PlannedDrive<'a> {
    /// Stable identity.
    id: &'a str,
    /// The kernel's name of the device now; empty when it is missing.
    kernel_name: &'a str,
    /// `would-be-claimed`, `unfit` (blank, and its health keeps volumes off it), `layout-unavailable` (blank, and this host cannot use the
    /// layout of its class), `claimed` or `not-used`.
    outcome: &'static str,
    /// By its SMART data now: GOOD, SUSPECT, BAD or UNKNOWN; null of a drive that was not polled for this plan.
    verdict: Option<&'static str>,
    /// Codes of what the verdict rests on.
    findings: &'a [String],
    /// The class of drives; empty when no class selects it.
    class: &'a str,
    /// hdd, ssd or nvme.
    media: String,
    /// sata, sas, nvme, usb, virtio, loop or another bus.
    transport: &'a str,
    /// As the drive says.
    model: &'a str,
    /// As the drive says.
    serial: &'a str,
    /// Its size.
    size_bytes: u64,
    /// How many volumes are on it; null of one that is not claimed.
    volumes: Option<usize>,
    /// Every reason why it may not be used.
    rejects: Vec<Reject>,
}

/// Scans all drives, and returns the plan in the requested format.
pub async fn run(config: &Config, format: Format, all: bool) -> Result<String, PlanError> {
    let mut drives = scan_drives(config).await?;
    drives.sort_by(|a, b| by_device(&a.facts.kernel_name, &b.facts.kernel_name));
    let blank = drives.iter().filter(|drive| verdicts::is_blank(drive));
    let verdicts = Verdicts::poll(&config.health, blank).await;
    let wants_lvm = config
        .classes
        .iter()
        .any(|class| class.layout == Layout::Lvm);
    let lvm_unavailable = match wants_lvm {
        true => lvm_presence().await?.err().map(|absent| chain(&absent)),
        false => None,
    };
    let host = Host {
        verdicts,
        lvm_unavailable,
    };
    let terminal = Terminal::of_stdout();
    Ok(render(config, &drives, &host, format, all, terminal)?)
}

/// State of the host that a plan depends on, beside its drives.
#[derive(Debug, Default)]
pub struct Host {
    pub verdicts: Verdicts,
    /// Reason why layout `lvm` cannot be used; None if it can, or if no class has it.
    pub lvm_unavailable: Option<String>,
}

impl Host {
    /// True if no drive of this class can be claimed on the host.
    fn lacks_layout(&self, classes: &[ClassConfig], class: &str) -> bool {
        let mut wanting = classes.iter().filter(|class| class.layout == Layout::Lvm);
        self.lvm_unavailable.is_some() && wanting.any(|one| one.name == *class)
    }
}

/// Checks whether this host can use layout `lvm`, without an agent. To be called after a scan, whose workers do without.
pub(super) async fn lvm_presence() -> Result<Result<lvm::Presence, lvm::Absent>, PlanError> {
    let presence = offload("lvm", LVM_ANSWER, || {
        let dir = statefile::make_private_dir("drivebay-lvm-")?;
        let presence = lvm::prepare(&dir).and_then(|()| lvm::presence());
        statefile::remove_private_dir(&dir)?;
        io::Result::Ok(presence)
    });
    let presence = presence.await.and_then(|result| result);
    presence.map_err(PlanError::Lvm)
}

/// Scans all drives, as the agent would with this configuration.
pub(super) async fn scan_drives(config: &Config) -> Result<Vec<Scanned>, PlanError> {
    if !user::is_root() {
        return Err(PlanError::NotRoot);
    }
    let workers = |what| move |source| PlanError::Workers { what, source };
    let notes = NotesDir(
        statefile::make_private_dir("drivebay-claim-plan-")
            .map_err(workers("a directory for their notes"))?,
    );
    let pool = Pool::new(PoolConfig {
        program: std::env::current_exe().map_err(workers("the path of this program"))?,
        notes_dir: notes.0.clone(),
        fork: true,
        idle: config.worker_idle,
        spare: SPARE,
        stuck_after: Duration::from_secs(30),
        queue: 8,
    })
    .await
    .map_err(workers("the pool"))?;
    let rules = Rules {
        cluster: config.cluster.clone(),
        node: config.node_id.clone(),
        allow_loop: config.allow_loop,
        classes: config.classes.clone(),
    };
    let settings = Settings::here(config.kubelet_dir.clone());
    let mut questions = scan::Questions::default();
    let scanned = scan::scan(
        &pool,
        &rules,
        &settings,
        None,
        Vec::new(),
        &mut questions,
        &(),
    )
    .await;
    // A worker in D state is left behind; it holds nothing of this process.
    pool.shutdown(Duration::from_secs(1)).await;
    Ok(scanned?.drives)
}

/// Temporary directory of worker records, removed when dropped.
struct NotesDir(PathBuf);

impl Drop for NotesDir {
    fn drop(&mut self) {
        // A directory that remains in the temporary directory has no effect.
        let _ = statefile::remove_private_dir(&self.0);
    }
}

/// Formats the plan. Pure.
pub fn render(
    config: &Config,
    drives: &[Scanned],
    host: &Host,
    format: Format,
    all: bool,
    terminal: Terminal,
) -> serde_json::Result<String> {
    if let Some(document) = format.document() {
        let drives = drives.iter().map(|drive| json(config, drive, host));
        let drives = drives.collect();
        let plan = Plan {
            node: &config.node_id,
            cluster: &config.cluster,
            lvm_unavailable: host.lvm_unavailable.as_deref(),
            drives,
        };
        return document.write(&plan);
    }
    let wide = format == Format::Wide;
    let of = |wanted: &'static str| {
        drives
            .iter()
            .filter(move |drive| outcome(config, drive, host).0 == wanted)
    };
    let mut text = String::new();
    let mut group = |title: &str, members: Vec<&Scanned>| {
        if !members.is_empty() {
            let table = table(config, &members, host, wide, terminal);
            text.push_str(&format!("{title}:\n{table}\n"));
        }
    };
    group(
        "Would be claimed when a volume needs it",
        of("would-be-claimed").collect(),
    );
    group(
        "Blank, and gets no volumes because of its health",
        of("unfit").collect(),
    );
    let why = host.lvm_unavailable.as_deref().unwrap_or_default();
    group(
        &format!("Blank, and cannot be claimed on this host, since {why}. {INSTEAD}"),
        of("layout-unavailable").collect(),
    );
    group("Claimed already", of("claimed").collect());
    let (shown, hidden): (Vec<&Scanned>, Vec<&Scanned>) =
        of("not-used").partition(|drive| all || !is_noise(drive));
    // Drives that no class selects come last.
    let (unwanted, wanted): (Vec<&Scanned>, Vec<&Scanned>) =
        shown.into_iter().partition(|drive| is_unwanted(drive));
    group(
        "Not used, because",
        wanted.into_iter().chain(unwanted).collect(),
    );
    let bytes: u64 = of("would-be-claimed")
        .map(|drive| drive.facts.size_bytes)
        .sum();
    text.push_str(&format!(
        "{} of {} would be claimed ({}). Nothing was written.\n",
        of("would-be-claimed").count(),
        drivebay_common::units::count(drives.len() - hidden.len(), "drive"),
        human_size(bytes)
    ));
    text.push_str(&hidden_note(hidden.len()));
    Ok(text)
}

/// Returns the outcome for a drive, and its class.
fn outcome<'a>(config: &Config, drive: &'a Scanned, host: &Host) -> (&'static str, &'a str) {
    match &drive.judgement {
        Judgement::Claimed => {
            let class = drive
                .seen
                .contents
                .as_ref()
                .map_or("", |contents| contents.label.class.as_str());
            ("claimed", class)
        }
        Judgement::Available { class } if host.verdicts.keep_volumes_off(drive) => ("unfit", class),
        Judgement::Available { class } if host.lacks_layout(&config.classes, class) => {
            ("layout-unavailable", class)
        }
        Judgement::Available { class } => ("would-be-claimed", class),
        Judgement::Rejected { class, .. } => ("not-used", class.as_deref().unwrap_or("")),
    }
}

/// True for devices that can never be used, such as virtual ones.
pub(super) fn is_noise(drive: &Scanned) -> bool {
    let Judgement::Rejected { reasons, .. } = &drive.judgement else {
        return false;
    };
    let codes: Vec<&str> = reasons.iter().map(|reject| reject.code.as_str()).collect();
    is_nobodys(&codes, drive.facts.transport == Transport::Loop)
}

fn codes(drive: &Scanned) -> Vec<&'static str> {
    match &drive.judgement {
        Judgement::Rejected { reasons, .. } => {
            reasons.iter().map(|reject| reject.code.as_str()).collect()
        }
        _ => Vec::new(),
    }
}

fn is_unwanted(drive: &Scanned) -> bool {
    drive.seen.trouble.is_none() && are_unwanted(&codes(drive))
}

fn json<'a>(config: &Config, drive: &'a Scanned, host: &'a Host) -> PlannedDrive<'a> {
    let (outcome, class) = outcome(config, drive, host);
    let polled = host.verdicts.of(drive);
    let rejects = match &drive.judgement {
        Judgement::Rejected { reasons, .. } => reasons.as_slice(),
        _ => &[],
    };
    PlannedDrive {
        id: &drive.facts.id.0,
        kernel_name: &drive.facts.kernel_name,
        outcome,
        verdict: polled.map(|it| it.verdict.as_str()),
        findings: polled.map_or(&[], |it| &it.findings),
        class,
        media: drive.facts.media.to_string(),
        transport: drive.facts.transport.as_str(),
        model: &drive.facts.model,
        serial: &drive.facts.serial,
        size_bytes: drive.facts.size_bytes,
        volumes: drive
            .seen
            .contents
            .as_ref()
            .map(|contents| contents.volumes.len()),
        rejects: rejects
            .iter()
            .map(|reject| Reject {
                code: reject.code.to_string(),
                detail: reject.detail.clone(),
            })
            .collect(),
    }
}

fn table(
    config: &Config,
    drives: &[&Scanned],
    host: &Host,
    wide: bool,
    terminal: Terminal,
) -> String {
    let verdicts = &host.verdicts;
    use Align::{Left, Right};
    let mut columns = vec![
        ("DRIVE", Left),
        ("DEVICE", Left),
        ("MEDIA", Left),
        ("SIZE", Right),
        ("CLASS", Left),
    ];
    if wide {
        columns.extend([("BUS", Left), ("MODEL", Left), ("SERIAL", Left)]);
    }
    let has_reason = |drive: &&Scanned| is_unwanted(drive) || verdicts.keep_volumes_off(drive);
    if drives.iter().any(has_reason) {
        columns.push(("REASON", Left));
    }
    let yielding = match wide {
        true => Yielding::default(),
        false => Yielding {
            names: &["DRIVE"],
            dispensable: &["REASON", "MEDIA", "CLASS"],
        },
    };
    let mut table = Table::new(&columns).on(terminal, yielding);
    for drive in drives {
        let facts = &drive.facts;
        let mut cells = vec![
            facts.id.0.clone(),
            facts.kernel_name.clone(),
            facts.media.to_string(),
            human_size(facts.size_bytes),
            outcome(config, drive, host).1.to_owned(),
        ];
        if wide {
            cells.extend([
                facts.transport.as_str().to_owned(),
                facts.model.clone(),
                facts.serial.clone(),
            ]);
        }
        let is_unwanted = !wide && is_unwanted(drive);
        let unfit = verdicts
            .of(drive)
            .filter(|_| verdicts.keep_volumes_off(drive));
        cells.push(match unfit {
            Some(it) => format!("{}: {}", it.verdict, it.findings.join(", ")),
            None if is_unwanted => in_short(&codes(drive)),
            None => String::new(),
        });
        if is_unwanted {
            table.row(cells, Vec::new());
            continue;
        }
        let mut below: Vec<String> = match &drive.judgement {
            Judgement::Rejected { reasons, .. } => reasons
                .iter()
                .map(|reject| reason(reject.code.as_str(), &reject.detail))
                .collect(),
            _ => Vec::new(),
        };
        if let Some(contents) = drive
            .seen
            .contents
            .as_ref()
            .filter(|_| drive.judgement == Judgement::Claimed)
        {
            below.push(format!(
                "{}, {} free",
                drivebay_common::units::count(contents.volumes.len(), "volume"),
                human_size(contents.free_bytes())
            ));
            below.extend(contents.notes.iter().map(|note| format!("note: {note}")));
        }
        table.row(cells, below);
    }
    table.render()
}
